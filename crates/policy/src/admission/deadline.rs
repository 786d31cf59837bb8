//! Deadline: sheds events that cannot be finished in time. On entry, by the length of the queue and the rate of
//! completions; when taken, by the time that the handler takes. Events without a deadline are admitted.
//!
//! The rate is learnt from the time between completions while more events wait, and is never taken to be lower
//! than that of one instance alone: there may be more instances than threads.

use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use super::gate::ns;
use super::{Admission, Ask, Done, Entry, Look, Next};

/// Sheds events that would be late.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    margin: f64,
    /// Nanoseconds in the handler for an event, smoothed.
    service: f64,
    /// Nanoseconds from one completion to the next, smoothed.
    gap: f64,
    last: Option<Time>,
}

/// How much a batch of one moves what was learnt; larger ones move it as often.
const LEARNS: f64 = 0.05;

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "deadline",
        aliases: &[],
        about: "sheds events that cannot be finished before their deadline",
        cites: "Abbott & Garcia-Molina, Scheduling Real-Time Transactions: A Performance Evaluation, VLDB 1988",
        params: &[ParamSpec {
            name: "margin",
            about: "how many times the expected time must be left before the deadline",
            kind: ParamKind::Number(0.0, 100.0),
            default: "1",
        }],
    };
    Entry::new(offer, Deadline::new)
}

impl Deadline {
    fn new(choice: &Choice) -> Self {
        Deadline { margin: choice.number("margin"), service: 0.0, gap: 0.0, last: None }
    }
}

impl Admission for Deadline {
    fn admit(&mut self, ask: &Ask) -> usize {
        let Some(deadline) = ask.deadline else { return ask.n };
        if deadline <= ask.now {
            return 0;
        }
        let left = ns(deadline.duration_since(ask.now)) - self.margin * self.service;
        let waits = self.margin * self.gap;
        if left < 0.0 {
            return 0;
        }
        if waits <= 0.0 {
            return ask.n; // nothing is known yet
        }
        // The last of them waits for those before it.
        let fit = (left / waits) as usize;
        ask.n.min((fit + 1).saturating_sub(ask.queued))
    }

    /// Whoever is refused where nobody is was refused for what was learnt alone. It is forgotten a
    /// little each time: else one slow event would let nothing in any more.
    fn entered(&mut self, ask: &Ask, n: usize) {
        if n == 0 && ask.inside() == 0 {
            self.service *= 1.0 - LEARNS;
        }
    }

    fn next(&mut self, look: &Look) -> Next {
        let Some(deadline) = look.deadline else { return Next::Oldest };
        let needed = Duration::from_nanos((self.margin * self.service) as u64);
        if look.now >= deadline || deadline.duration_since(look.now) < needed {
            return Next::Shed(look.n);
        }
        Next::Oldest
    }

    fn settled(&mut self, done: &Done) {
        let service = ns(done.service);
        let learns = 1.0 - (1.0 - LEARNS).powi(done.n.min(64) as i32);
        let first = self.last.is_none();
        let between =
            self.last.map_or(service, |last| ns(done.now.duration_since(last)) / done.n as f64);
        self.last = Some(done.now);
        if first {
            (self.service, self.gap) = (service, service);
            return;
        }
        self.service += (service - self.service) * learns;
        self.gap += (between.min(self.service) - self.gap) * learns;
    }

    fn describe(&self) -> String {
        let [service, gap] = [self.service, self.gap].map(|t| Duration::from_nanos(t as u64));
        format!("{service:.1?} for one, one in {gap:.1?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::gate::tests::{ASK, LOOK, at};
    use crate::admission::sim::{SIM, Sim, made};

    /// One that has seen events take 4 ms each, two at a time.
    fn taught() -> Box<dyn Admission> {
        let mut gate = made("deadline");
        for pair in 0..500 {
            let service = Duration::from_millis(4);
            gate.settled(&Done { now: at(pair * 4), n: 2, response: service, service });
        }
        gate
    }

    #[test]
    fn as_many_enter_as_can_be_done_in_time() {
        let mut gate = taught();
        let ask = |queued, within: u64| Ask {
            n: 10,
            queued,
            now: at(9_000),
            deadline: Some(at(9_000 + within)),
            ..ASK
        };
        assert_eq!(gate.admit(&ask(0, 25)), 10);
        assert_eq!(gate.admit(&ask(5, 25)), 6, "21 ms for what waits: ten, at 2 ms each");
        assert_eq!(gate.admit(&ask(11, 25)), 0);
        assert_eq!(gate.admit(&ask(0, 3)), 0, "shorter than the handler");
        assert_eq!(gate.admit(&Ask { deadline: Some(at(1)), ..ask(0, 0) }), 0, "past");
        assert_eq!(gate.admit(&Ask { deadline: None, ..ask(999, 0) }), 10);
    }

    #[test]
    fn idle_times_are_not_taken_for_slowness_and_a_batch_teaches_as_its_events_would() {
        let service = Duration::from_millis(4);
        let mut gate = Deadline { margin: 1.0, service: 4e6, gap: 2e6, last: Some(at(0)) };
        gate.settled(&Done { now: at(60_000), n: 1, response: service, service });
        assert!(gate.gap < 4e6, "{}", gate.gap);
        let mut by_one = Deadline { margin: 1.0, service: 8e6, gap: 8e6, last: Some(at(0)) };
        let mut at_once = by_one;
        for n in 1..=20 {
            by_one.settled(&Done { now: at(n), n: 1, response: service, service });
        }
        at_once.settled(&Done { now: at(20), n: 20, response: service, service });
        assert!((by_one.service - at_once.service).abs() < 1.0);
        assert!((by_one.gap - at_once.gap).abs() < 1.0);
    }

    #[test]
    fn a_margin_asks_for_more_time_than_is_expected() {
        let mut gate = Deadline { margin: 2.0, service: 4e6, gap: 2e6, last: Some(at(0)) };
        let ask = Ask { n: 10, deadline: Some(at(24)), ..ASK };
        assert_eq!(gate.admit(&ask), 5, "16 ms for what waits: four, at 4 ms each, and it");
        assert_eq!(gate.next(&Look { deadline: Some(at(7)), ..LOOK }), Next::Shed(1));
    }

    #[test]
    fn what_is_late_when_taken_is_shed() {
        let mut gate = taught();
        let look = |deadline| Look { n: 3, now: at(100), deadline, ..LOOK };
        assert_eq!(gate.next(&look(None)), Next::Oldest);
        assert_eq!(gate.next(&look(Some(at(105)))), Next::Oldest);
        assert_eq!(gate.next(&look(Some(at(103)))), Next::Shed(3), "4 ms are needed");
        assert_eq!(made("deadline").next(&look(Some(at(100)))), Next::Shed(3));
    }

    #[test]
    fn nearly_all_that_is_handled_is_in_time_under_any_load() {
        let sim = Sim { within: Some(Duration::from_millis(20)), ..SIM };
        for load in [0.5, 1.1, 3.0] {
            let report = sim.run(&mut *made("deadline"), load);
            let in_time = report.in_time as f64 / report.handled as f64;
            assert!(in_time > 0.9, "{load}: {in_time}");
            assert!(report.goodput() > load.min(0.98) - 0.02, "{load}: {}", report.goodput());
            assert!(load > 0.6 || report.shed() < 0.001, "{}", report.shed());
        }
    }

    #[test]
    fn one_slow_event_does_not_shut_the_door_for_good() {
        let mut gate = made("deadline");
        let service = Duration::from_millis(900);
        gate.settled(&Done { now: at(900), n: 1, response: service, service });
        let ask = Ask { now: at(1000), deadline: Some(at(1050)), ..ASK };
        let refused = (0..1000).take_while(|_| {
            let enters = gate.admit(&ask);
            gate.entered(&ask, enters);
            enters == 0
        });
        assert!((1..100).contains(&refused.count()));
    }
}
