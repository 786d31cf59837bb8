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
    pub(super) due: BTreeSet<Time>,
    /// The runtime looks then.
    pub(super) armed: Option<AlarmId>,
}

impl Alarms {
    /// The first, unless the runtime looks then, or before.
    pub(super) fn arm(&self) -> Option<Time> {
        let first = *self.due.first()?;
        self.armed.is_none_or(|(armed, _)| armed > first).then_some(first)
    }

    /// The time has come to `now`.
    pub(super) fn ring(&mut self, now: Time) {
        self.armed = self.armed.filter(|(armed, _)| *armed > now);
    }

    /// Takes out the first, if it is due.
    pub(super) fn take_due(&mut self, now: Time) -> Option<Time> {
        self.ring(now);
        self.due.pop_first_if(|at| *at <= now)
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

/// `pop_first`, if it is as asked.
trait PopFirstIf<T> {
    fn pop_first_if(&mut self, wanted: impl FnOnce(&T) -> bool) -> Option<T>;
}

impl<T: Ord> PopFirstIf<T> for BTreeSet<T> {
    fn pop_first_if(&mut self, wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        if wanted(self.first()?) { self.pop_first() } else { None }
    }
}
