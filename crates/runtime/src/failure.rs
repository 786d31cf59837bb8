//! Events that failed for good: kept with their reason, bounded, to be looked at and replayed.

use std::collections::VecDeque;
use std::fmt;

use comporta_model::column::{Columns, Duty};
use comporta_model::event::{Meta, Time};
pub use comporta_model::failed::Reason;
use comporta_model::keyed::LaneRef;

use crate::user;

/// One failed event, without the event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// Numbers failures of a stage, from 0.
    pub number: u64,
    /// Why.
    pub reason: Reason,
    /// How often it was tried.
    pub attempts: u32,
    /// When it failed for good.
    pub at: Time,
    /// Whether the event itself is still there, so that it can be replayed. It is not when the
    /// handler took it and the stage does not retain, nor when it left through the stage's error port.
    pub replayable: bool,
    /// Whether part of what it sent was [flushed](comporta_model::async_stage::Emissions::flush), and so not
    /// withdrawn: a retry or a replay may send it again.
    pub partial: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempts {
            0 | 1 => write!(f, "{}", self.reason),
            attempts => write!(f, "{} ({attempts} tries)", self.reason),
        }
    }
}

pub(crate) struct Stored<T> {
    pub(crate) failure: Failure,
    pub(crate) event: Option<T>,
    pub(crate) meta: Meta,
    /// What it carries of its own.
    pub(crate) columns: Columns,
    /// The lane that waits for it.
    pub(crate) lane: Option<LaneRef>,
}

/// What is kept of a failed event beside itself.
pub(crate) struct Kept<'a> {
    pub(crate) meta: &'a Meta,
    pub(crate) columns: Columns,
    pub(crate) lane: Option<LaneRef>,
}

/// A failed event that is to be handled again.
pub(crate) struct Replayed<T> {
    pub(crate) meta: Meta,
    pub(crate) columns: Columns,
    /// The lane that waits for it.
    pub(crate) lane: Option<LaneRef>,
    pub(crate) event: T,
}

/// The failed events of one stage.
pub(crate) struct Failures<T> {
    kept: VecDeque<Stored<T>>,
    max: usize,
    made: u64,
    forgotten: u64,
}

impl<T> Failures<T> {
    pub(crate) fn new(max: usize) -> Self {
        Failures { kept: VecDeque::new(), max, made: 0, forgotten: 0 }
    }

    /// Keeps a failed event. Returns one that no longer can be kept, or this one if none can, and the lane that
    /// waited for it.
    #[must_use]
    pub(crate) fn push(
        &mut self,
        failure: Failure,
        event: Option<T>,
        Kept { meta, columns, lane }: Kept<'_>,
    ) -> (Option<T>, Option<LaneRef>) {
        let number = self.made;
        self.made += 1;
        let mut forgotten = (None, None);
        if self.kept.len() >= self.max {
            self.forgotten += 1;
            match self.kept.pop_front() {
                Some(oldest) => forgotten = (oldest.event, oldest.lane),
                None => return (event, lane),
            }
        }
        let failure = Failure { number, replayable: event.is_some(), ..failure };
        // The failure was reported to the group; a replay is no longer its concern.
        let duty = Duty { ack: None, ..meta.duty.clone() };
        let meta = Meta { duty, ..meta.clone() };
        self.kept.push_back(Stored { failure, event, meta, columns, lane });
        forgotten
    }

    pub(crate) fn list(&self) -> Vec<Failure> {
        self.kept.iter().map(|failed| failed.failure.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Takes out up to `max` failures that can be replayed, oldest first. There is room for so many in the queue; those
    /// that hold their lanes need none, since what fills it may be waiting for them.
    pub(crate) fn take_replayable(&mut self, max: usize, mut room: usize) -> Vec<Replayed<T>> {
        let mut taken = Vec::new();
        let mut rest = VecDeque::with_capacity(self.kept.len());
        for mut failed in self.kept.drain(..) {
            match failed.event.take() {
                Some(event) if taken.len() < max && (room > 0 || failed.lane.is_some()) => {
                    let Stored { meta, columns, lane, .. } = failed;
                    room = room.saturating_sub(1);
                    taken.push(Replayed { meta, columns, lane, event });
                }
                event => {
                    failed.event = event;
                    rest.push_back(failed);
                }
            }
        }
        self.kept = rest;
        taken
    }

    /// Takes everything out, with the lanes that waited for it.
    pub(crate) fn drain(&mut self) -> (Vec<(Failure, Option<T>)>, Vec<LaneRef>) {
        let lanes = self.kept.iter_mut().filter_map(|failed| failed.lane.take()).collect();
        (self.kept.drain(..).map(|failed| (failed.failure, failed.event)).collect(), lanes)
    }
}

impl<T> Drop for Failures<T> {
    fn drop(&mut self) {
        self.kept.drain(..).for_each(|failed| user::discard(failed.event));
    }
}

#[cfg(test)]
mod tests {
    use comporta_model::column::Id;

    use super::*;

    fn failure(reason: Reason) -> Failure {
        let (number, at) = (0, Time::ZERO);
        Failure { number, reason, attempts: 1, at, replayable: false, partial: false }
    }

    #[test]
    fn only_so_many_failures_are_kept_and_the_rest_is_counted() {
        let meta = Meta::default();
        let mut failures = Failures::new(2);
        for n in 0..5 {
            let event = (n != 3).then_some(n);
            let reason = Reason::Error(n.to_string());
            let mut columns = Columns::default();
            columns.set_ids([Id { producer: n, incarnation: 0, seq: 0 }]);
            let of = Kept { meta: &meta, columns, lane: None };
            let _ = failures.push(failure(reason), event, of);
        }
        assert_eq!((failures.len(), failures.forgotten()), (2, 3));
        assert_eq!(failures.list()[0].number, 3);
        let replayed = failures.take_replayable(9, 9).into_iter();
        let own = |columns: &Columns| columns.ids(1).next().flatten().map(|id| id.producer);
        let replayed: Vec<_> = replayed.map(|r| (own(&r.columns), r.event)).collect();
        assert_eq!((replayed, failures.len()), (vec![(Some(4), 4)], 1));
    }

    #[test]
    fn a_bound_of_zero_keeps_nothing() {
        let mut failures = Failures::new(0);
        let meta = Meta::default();
        let of = Kept { meta: &meta, columns: Columns::default(), lane: None };
        let (given_back, _) = failures.push(failure(Reason::Flood(1)), Some(1), of);
        assert_eq!(given_back, Some(1));
        assert_eq!((failures.len(), failures.forgotten()), (0, 1));
    }
}
