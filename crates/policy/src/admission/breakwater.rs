//! Breakwater: bounds how many events are in the stage by credits, which grow by a few while the
//! queueing delay is under a target, and shrink in proportion to the excess. Events that have waited for twice the
//! target all the same are shed.
//! This is the server's half of the paper. There, clients hold credits and send only while they have some, so that
//! no refused request travels; each request carries the demand of its client, and more credits are issued than
//! there are places, since some clients do not use theirs. Here there are no clients: the credits are the places
//! in the stage, and credits that are not needed are not issued, so that they do not pile up in quiet times.

use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use super::gate::ns;
use super::{Admission, Ask, Entry, Look, Next};

/// Credits, by queueing delay.
#[derive(Clone, Copy, Debug)]
pub struct Breakwater {
    target: Duration,
    every: Duration,
    grow: f64,
    shrink: f64,
    credits: f64,
    /// The most that were inside, or wanted to be, since the credits were moved.
    wanted: usize,
    /// Never fewer: every instance may have one.
    least: f64,
    moved: Time,
    delay: Duration,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "breakwater",
        aliases: &["credits"],
        about: "bounds the events in the stage by credits that follow the queueing delay; the server's half of the paper: senders hold no credits",
        cites: "Cho, Saeed, Fried, Park, Alizadeh & Belay, Overload Control for µs-scale RPCs with Breakwater, OSDI 2020",
        params: &[
            ParamSpec {
                name: "target",
                about: "the queueing delay to keep; events that waited twice as long are shed",
                kind: ParamKind::Span,
                default: "2ms",
            },
            ParamSpec {
                name: "every",
                about: "how often credits are adjusted; a round trip in the paper",
                kind: ParamKind::Span,
                default: "200us",
            },
            ParamSpec {
                name: "grow",
                about: "credits added each time, under the target",
                kind: ParamKind::Number(0.001, f64::INFINITY),
                default: "1",
            },
            ParamSpec {
                name: "shrink",
                about: "the share of credits removed for each target's worth of delay over it",
                kind: ParamKind::Number(0.001, 1.0),
                default: "0.02",
            },
        ],
    };
    Entry::new(offer, Breakwater::new)
}

impl Breakwater {
    fn new(choice: &Choice) -> Self {
        Breakwater {
            target: choice.span("target"),
            every: choice.span("every"),
            grow: choice.number("grow"),
            shrink: choice.number("shrink"),
            credits: 1.0,
            wanted: 0,
            least: 1.0,
            moved: Time::ZERO,
            delay: Duration::ZERO,
        }
    }

    fn sense(&mut self, now: Time, delay: Duration) {
        if now.duration_since(self.moved) < self.every {
            return;
        }
        self.moved = now;
        self.delay = delay;
        let wanted = std::mem::take(&mut self.wanted) as f64;
        if delay >= self.target {
            let over = (ns(delay) - ns(self.target)) / ns(self.target);
            self.credits *= (1.0 - self.shrink * over).max(0.5);
        } else if wanted * 2.0 >= self.credits {
            self.credits += self.grow;
        }
        self.credits = self.credits.max(self.least);
    }
}

impl Admission for Breakwater {
    fn admit(&mut self, ask: &Ask) -> usize {
        self.least = ask.instances.max(1) as f64;
        self.sense(ask.now, ask.oldest);
        ask.n.min((self.credits.max(self.least) as usize).saturating_sub(ask.inside()))
    }

    fn entered(&mut self, ask: &Ask, _: usize) {
        self.wanted = self.wanted.max(ask.inside() + ask.n);
    }

    fn next(&mut self, look: &Look) -> Next {
        self.sense(look.now, look.age);
        if look.age > self.target * 2 { Next::Shed(look.n) } else { Next::Oldest }
    }

    fn describe(&self) -> String {
        format!("{} credits; {:.1?} of {:?}", self.credits as usize, self.delay, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::gate::tests::{ASK, LOOK, at};
    use crate::admission::sim::{SIM, Sim, made};

    fn breakwater(text: &str) -> Breakwater {
        let choice: Choice = text.parse().unwrap();
        Breakwater::new(&entry().offer.validate(&choice, "admission").unwrap())
    }

    const PLAN: &str = "breakwater(target=10ms, every=1ms)";

    #[test]
    fn credits_grow_by_one_and_shrink_by_what_the_delay_is_over() {
        let mut gate = breakwater(PLAN);
        let busy = Ask { n: 50, now: at(1), ..ASK };
        gate.admit(&busy); // nothing was wanted before
        gate.entered(&busy, 1);
        gate.admit(&Ask { now: at(2), ..busy });
        gate.admit(&Ask { now: at(3), ..busy }); // nor since
        assert!((gate.credits - 2.0).abs() < 1e-9, "{}", gate.credits);
        gate.credits = 100.0;
        gate.sense(at(4), Duration::from_millis(20));
        assert!((gate.credits - 98.0).abs() < 1e-9, "{}", gate.credits);
        gate.sense(at(5), Duration::from_secs(9));
        assert!((gate.credits - 49.0).abs() < 1e-9, "half at most: {}", gate.credits);
    }

    #[test]
    fn credits_that_nobody_wants_are_not_issued() {
        let mut gate = breakwater(PLAN);
        for millis in 1..1000 {
            let ask = Ask { now: at(millis), in_flight: 3, ..ASK };
            let n = gate.admit(&ask);
            gate.entered(&ask, n);
        }
        assert!((gate.credits - 9.0).abs() < 1e-9, "{}", gate.credits);
    }

    #[test]
    fn every_instance_may_have_an_event() {
        let mut gate = breakwater(PLAN);
        assert_eq!(gate.admit(&Ask { n: 9, instances: 4, in_flight: 1, ..ASK }), 3);
    }

    #[test]
    fn what_waited_twice_the_target_is_shed() {
        let mut gate = breakwater(PLAN);
        let old = |millis| Look { n: 8, age: Duration::from_millis(millis), ..LOOK };
        assert_eq!(gate.next(&old(20)), Next::Oldest);
        assert_eq!(gate.next(&old(21)), Next::Shed(8));
    }

    #[test]
    fn overload_is_kept_near_the_target_and_light_load_is_let_in() {
        for (load, shed) in [(0.5, 0.0), (1.1, 0.1), (3.0, 0.67)] {
            let report = SIM.run(&mut *made(PLAN), load);
            assert!((report.shed() - shed).abs() < 0.02, "{load}: {}", report.shed());
            assert!(report.goodput() > load.min(0.97) - 0.02, "{load}: {}", report.goodput());
            assert!(report.response(0.99) < Duration::from_millis(22), "{load}");
        }
    }

    #[test]
    fn a_step_into_overload_is_over_soon() {
        let sim = Sim { events: 20_000, ..SIM };
        let report = sim.phases(&mut *made(PLAN), &[(0.5, 0.7), (0.5, 1.4)]);
        assert!(report.response(0.99) < Duration::from_millis(24), "{:?}", report.response(0.99));
        assert!(report.goodput() > 0.95, "{}", report.goodput());
    }
}
