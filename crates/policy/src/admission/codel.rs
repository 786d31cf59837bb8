//! CoDel: a queue whose waits are never short over a whole interval is a *standing* queue, and events that waited
//! too long in it are shed. Meanwhile the newest are served first (adaptive LIFO), since the senders of the
//! oldest have mostly given up.
//!
//! Two ways to shed. That of servers (2015): while the queue stands, everything that waited twice
//! the target goes. That of routers (RFC 8289, `paced`): one event goes, then the next after the
//! interval divided by the square root of how many went, which asks for senders who slow down.

use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use super::{Admission, Entry, Look, Next};

/// Sheds events that waited too long in a standing queue.
#[derive(Clone, Copy, Debug)]
pub struct Codel {
    target: Duration,
    interval: Duration,
    lifo: bool,
    law: Law,
}

#[derive(Clone, Copy, Debug)]
enum Law {
    Servers(LeastWait),
    Routers(Paced),
}

/// The shortest wait of each interval says whether the queue stands.
#[derive(Clone, Copy, Debug, Default)]
struct LeastWait {
    stands: bool,
    least: Option<Duration>,
    until: Time,
}

/// The control law of RFC 8289, section 5.
#[derive(Clone, Copy, Debug, Default)]
struct Paced {
    /// When the wait will have been over the target for an interval.
    above_at: Option<Time>,
    dropping: bool,
    drop_next: Time,
    /// How many went since it began to drop, and with how many it began.
    count: u32,
    began_with: u32,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "codel",
        aliases: &["adaptive-lifo"],
        about: "sheds what waits too long in a queue that stands; newest first meanwhile",
        cites: "Nichols & Jacobson, Controlling Queue Delay, ACM Queue 2012; Nichols et al., Controlled \
                Delay Active Queue Management, RFC 8289, 2018; Maurer, Fail at Scale, ACM Queue 2015",
        params: &[
            ParamSpec {
                name: "target",
                about: "the longest wait that is acceptable",
                kind: ParamKind::Span,
                default: "5ms",
            },
            ParamSpec {
                name: "interval",
                about: "how long waits must exceed it before events are shed",
                kind: ParamKind::Span,
                default: "100ms",
            },
            ParamSpec {
                name: "lifo",
                about: "whether the newest are served first while the queue stands",
                kind: ParamKind::Flag,
                default: "true",
            },
            ParamSpec {
                name: "paced",
                about: "whether events are shed one by one, as in routers",
                kind: ParamKind::Flag,
                default: "false",
            },
        ],
    };
    Entry::new(offer, Codel::new)
}

impl Codel {
    fn new(choice: &Choice) -> Self {
        let law = if choice.flag("paced") {
            Law::Routers(Paced::default())
        } else {
            Law::Servers(LeastWait::default())
        };
        Codel {
            target: choice.span("target"),
            interval: choice.span("interval"),
            lifo: choice.flag("lifo"),
            law,
        }
    }

    fn stands(&self) -> bool {
        match self.law {
            Law::Servers(law) => law.stands,
            Law::Routers(law) => law.dropping,
        }
    }
}

impl LeastWait {
    fn sheds(&mut self, look: &Look, target: Duration, interval: Duration) -> usize {
        if look.now >= self.until {
            // What was seen an interval ago says nothing of now.
            let fresh = look.now.duration_since(self.until) < interval;
            self.stands = fresh && self.least.is_some_and(|least| least > target);
            self.least = None;
            self.until = look.now + interval;
        }
        self.least = Some(self.least.map_or(look.age, |least| least.min(look.age)));
        if self.stands && look.age > target * 2 { look.n } else { 0 }
    }
}

impl Paced {
    fn sheds(&mut self, look: &Look, target: Duration, interval: Duration) -> usize {
        let may = self.may_drop(look, target, interval);
        if self.dropping {
            if !may {
                self.dropping = false;
            } else if look.now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                self.drop_next = self.drop_next + self.pause(interval);
                return 1;
            }
            return 0;
        }
        if !may {
            return 0;
        }
        self.dropping = true;
        // If it stopped not long ago, it goes on at the pace that was right then (RFC 8289, 5.4).
        let dropped = self.count.saturating_sub(self.began_with);
        let lately = look.now.duration_since(self.drop_next) < interval * 16;
        self.count = if dropped > 1 && lately { dropped } else { 1 };
        self.began_with = self.count;
        self.drop_next = look.now + self.pause(interval);
        1
    }

    fn may_drop(&mut self, look: &Look, target: Duration, interval: Duration) -> bool {
        // When these are taken, at most one is left: nobody would gain if some of them went.
        let left = look.queued.saturating_sub(look.n);
        if look.age < target || left <= 1 {
            self.above_at = None;
            return false;
        }
        look.now >= *self.above_at.get_or_insert(look.now + interval)
    }

    fn pause(&self, interval: Duration) -> Duration {
        interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}

impl Admission for Codel {
    fn next(&mut self, look: &Look) -> Next {
        let (target, interval) = (self.target, self.interval);
        let shed = match &mut self.law {
            Law::Servers(law) => law.sheds(look, target, interval),
            Law::Routers(law) => law.sheds(look, target, interval),
        };
        if shed > 0 {
            Next::Shed(shed)
        } else if self.lifo && self.stands() {
            Next::Newest
        } else {
            Next::Oldest
        }
    }

    fn describe(&self) -> String {
        let stands = if self.stands() { "the queue stands" } else { "the queue moves" };
        format!("{stands}; at most {:?}", self.target * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::gate::tests::{LOOK, at};
    use crate::admission::sim::{SIM, made};

    fn look(now: u64, age: u64) -> Look {
        Look { now: at(now), n: 4, queued: 40, age: Duration::from_millis(age), ..LOOK }
    }

    #[test]
    fn an_interval_in_which_no_wait_was_short_makes_the_queue_stand() {
        let mut gate = made("codel(target=5ms, interval=100ms)");
        for now in [0, 30, 60, 99] {
            assert_eq!(gate.next(&look(now, 50)), Next::Oldest, "{now}");
        }
        assert_eq!(gate.next(&look(100, 50)), Next::Shed(4));
        assert_eq!(gate.next(&look(101, 9)), Next::Newest, "not twice the target");
        assert_eq!(gate.next(&look(150, 3)), Next::Newest, "one short wait");
        assert_eq!(gate.next(&look(200, 50)), Next::Oldest, "ends it with the interval");
    }

    #[test]
    fn a_lull_is_forgotten() {
        let mut gate = made("codel(target=5ms, interval=100ms)");
        gate.next(&look(0, 50));
        assert_eq!(gate.next(&look(500, 50)), Next::Oldest);
    }

    #[test]
    fn paced_it_drops_ever_sooner_while_the_wait_is_long() {
        let mut gate = made("codel(target=5ms, interval=100ms, paced=true, lifo=false)");
        let mut dropped = Vec::new();
        for now in 0..600 {
            while gate.next(&look(now, 20)) == Next::Shed(1) {
                dropped.push(now);
            }
        }
        // 100 / sqrt(1), sqrt(2), ... later each time.
        assert_eq!(dropped, [100, 200, 271, 329, 379, 424, 464, 502, 538, 571]);
        assert_eq!(gate.next(&look(601, 1)), Next::Oldest);
        assert_eq!(gate.next(&look(602, 20)), Next::Oldest, "it waits for an interval again");
    }

    #[test]
    fn paced_it_goes_on_at_the_pace_it_had_if_the_wait_was_short_only_just_now() {
        let above_at = Some(at(0));
        let law = Paced { count: 9, began_with: 2, drop_next: at(1000), above_at, dropping: false };
        let (target, interval) = (Duration::from_millis(5), Duration::from_millis(100));
        // What it dropped the last time, for 16 intervals.
        for (now, began_with, count) in [(1050, 2, 7), (2599, 2, 7), (2600, 2, 1), (1050, 8, 1)] {
            let mut law = Paced { began_with, ..law };
            assert_eq!(law.sheds(&look(now, 20), target, interval), 1);
            assert_eq!((law.count, law.began_with), (count, count), "{now}, {began_with}");
        }
        // What counts is what is left when a batch is taken.
        for (n, queued, may) in
            [(1, 1, false), (1, 2, false), (1, 3, true), (4, 5, false), (4, 6, true)]
        {
            let last = Look { n, queued, ..look(1051, 20) };
            let mut law = law;
            assert_eq!(law.may_drop(&last, target, interval), may, "{n} of {queued}");
        }
    }

    #[test]
    fn overload_sheds_the_old_and_light_load_sheds_nobody() {
        for (load, shed) in [(0.5, 0.0), (1.1, 0.09), (3.0, 0.66)] {
            for order in ["true", "false"] {
                let plan = format!("codel(target=10ms, interval=100ms, lifo={order})");
                let report = SIM.run(&mut *made(&plan), load);
                assert!((report.shed() - shed).abs() < 0.03, "{load}: {}", report.shed());
                assert!(report.goodput() > load.min(0.99) - 0.02, "{load}: {}", report.goodput());
                assert!(report.response(0.99) < Duration::from_millis(50), "{load}");
                if load > 2.0 && order == "true" {
                    let half = report.response(0.5);
                    assert!(half < Duration::from_millis(3), "the newest do not wait: {half:?}");
                }
            }
        }
    }

    #[test]
    fn paced_alone_does_not_hold_against_senders_who_do_not_slow_down() {
        let paced = SIM.run(&mut *made("codel(target=10ms, paced=true)"), 3.0);
        let plain = SIM.run(&mut *made("codel(target=10ms)"), 3.0);
        assert!(paced.most_queued > 10 * plain.most_queued);
    }
}
