//! The timers of a lane, by the program's clock and by event time. Before: `handler`, which sets them. After: the runtime,
//! which is asked once for the first of each kind (`armed`), and looks at the lane then.

use std::collections::BTreeSet;

use crate::event::Time;

/// An alarm that the runtime keeps for a lane: when it is due, and a number.
pub type AlarmId = (Time, u64);

/// What time a timer goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The program's clock.
    Program,
    /// The watermark of the stage.
    Events,
}

/// When the event timers of a lane are to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventAlarm {
    /// One is due.
    Due,
    /// When the watermark has come to this.
    At(Time),
    /// There are none, or the runtime has been asked.
    None,
}

/// The timers of a lane.
#[derive(Default)]
pub(super) struct Timers {
    pub(super) program: Alarms,
    pub(super) events: Alarms,
}

/// The timers by one clock.
#[derive(Default)]
pub(super) struct Alarms {
    pub(super) due: Times,
    /// The runtime looks then.
    pub(super) armed: Option<AlarmId>,
}

impl Alarms {
    /// The first, unless the runtime looks then, or before.
    pub(super) fn arm(&self) -> Option<Time> {
        let first = self.due.first()?;
        self.armed.is_none_or(|(armed, _)| armed > first).then_some(first)
    }

    /// The time has come to `now`.
    pub(super) fn ring(&mut self, now: Time) {
        self.armed = self.armed.filter(|(armed, _)| *armed > now);
    }

    /// Takes out the first, if it is due.
    pub(super) fn take_due(&mut self, now: Time) -> Option<Time> {
        self.ring(now);
        self.due.pop_due(now)
    }
}

impl Timers {
    pub(super) fn of(&mut self, clock: Clock) -> &mut Alarms {
        match clock {
            Clock::Program => &mut self.program,
            Clock::Events => &mut self.events,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.program.due.is_empty() && self.events.due.is_empty()
    }
}

/// Moments in order. Mostly there is one, which is kept in place: a set of its own would be made and dropped for each
/// window.
#[derive(Default)]
pub(super) struct Times {
    first: Option<Time>,
    /// None of them is before the first, or the same.
    others: BTreeSet<Time>,
}

impl Times {
    #[inline]
    pub(super) fn first(&self) -> Option<Time> {
        self.first
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn insert(&mut self, at: Time) {
        match self.first {
            Some(first) if first < at => {
                self.others.insert(at);
            }
            Some(first) if first == at => {}
            before => {
                self.first = Some(at);
                self.others.extend(before);
            }
        }
    }

    pub(super) fn remove(&mut self, at: Time) {
        if self.first == Some(at) {
            self.first = self.others.pop_first();
        } else {
            self.others.remove(&at);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Times::default();
    }

    /// Takes out the first, if it is not after `now`.
    fn pop_due(&mut self, now: Time) -> Option<Time> {
        let due = self.first.take_if(|first| *first <= now)?;
        self.first = self.others.pop_first();
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_out_in_order_and_once_each() {
        let mut times = Times::default();
        let mut set = BTreeSet::new();
        // Numbers in no order, many of them twice.
        for n in (0_u64..400).map(|n| n * 7_919 % 61) {
            let at = Time::from_nanos(n % 50);
            match n % 5 {
                0 => {
                    times.remove(at);
                    set.remove(&at);
                }
                1 => assert_eq!(times.pop_due(at), set.pop_first_if_due(at)),
                _ => {
                    times.insert(at);
                    set.insert(at);
                }
            }
            assert_eq!((times.first(), times.is_empty()), (set.first().copied(), set.is_empty()));
        }
        times.clear();
        assert!(times.is_empty());
    }

    trait PopDue {
        fn pop_first_if_due(&mut self, now: Time) -> Option<Time>;
    }

    impl PopDue for BTreeSet<Time> {
        fn pop_first_if_due(&mut self, now: Time) -> Option<Time> {
            if *self.first()? <= now { self.pop_first() } else { None }
        }
    }
}
