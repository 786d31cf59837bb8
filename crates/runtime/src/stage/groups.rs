//! Groups: a stage that is handed several events at once (`batched`) waits until so many have come, or
//! the first of them has waited for long enough.

use std::time::Duration;

use comporta_model::event::Time;

/// How large a group is, and how long its first event waits for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupSize {
    pub(crate) events: usize,
    pub(crate) wait: Duration,
}

/// The group that gathers.
#[derive(Default)]
pub(super) struct Gathering {
    /// A timer runs.
    timed: bool,
    /// When the group is due, if there is one.
    due: Option<Time>,
    /// It is, although it is not complete.
    flush: bool,
}

impl Gathering {
    /// Visits that could be made with so many events queued; `last` if no more will come.
    pub(super) fn visits(&self, queued: usize, size: GroupSize, last: bool) -> usize {
        match queued / size.events {
            0 if self.flush => queued.min(1), // it is not complete, and due
            _ if last => queued.div_ceil(size.events),
            complete => complete,
        }
    }

    /// After a change of the queue. Returns when a timer is to fire, if one must be set.
    pub(super) fn note(&mut self, queued: usize, size: GroupSize, now: Time) -> Option<Time> {
        if queued == 0 {
            self.due = None;
            return None;
        }
        let due = *self.due.get_or_insert_with(|| now + size.wait);
        let set = !self.timed && !self.flush;
        self.timed |= set;
        set.then_some(due)
    }

    /// A group was taken: what is left begins to gather anew, if its time was up.
    pub(super) fn taken(&mut self, now: Time) {
        self.flush = false;
        self.due = self.due.filter(|due| *due > now);
    }

    /// The timer has fired: for this group, or for one that is gone.
    pub(super) fn timer_fired(&mut self, queued: usize, now: Time) {
        self.timed = false;
        self.flush = queued > 0 && self.due.is_some_and(|due| due <= now);
    }
}
