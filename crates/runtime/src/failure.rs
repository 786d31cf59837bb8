//! Events that failed for good: kept with their reason, bounded, to be looked at and replayed.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use comporta_model::column::{Columns, Duty};
use comporta_model::event::{Meta, Time};

use crate::user;

/// Why an event failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The handler returned an error.
    Error(String),
    /// The handler panicked; where, if known.
    Panic(String, Option<String>),
    /// It emitted more than the plan's `emit_max`.
    Flood(usize),
    /// Its handler waited longer than the plan's `timeout`.
    TimedOut(Duration),
    /// Its deadline passed while its handler waited.
    Deadline,
}

impl std::error::Error for Reason {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Error(message) => f.write_str(message),
            Reason::Panic(message, Some(place)) => write!(f, "panic at {place}: {message}"),
            Reason::Panic(message, None) => write!(f, "panic: {message}"),
            Reason::Flood(max) => write!(f, "emitted more than {max} events (emit_max)"),
            Reason::TimedOut(limit) => write!(f, "timed-out after {limit:?} (timeout)"),
            Reason::Deadline => f.write_str("its deadline passed"),
        }
    }
}

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
    /// handler took it and the stage does not retain.
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

pub(crate) struct Failed<T> {
    pub(crate) failure: Failure,
    pub(crate) event: Option<T>,
    pub(crate) meta: Meta,
    /// What it carries of its own.
    pub(crate) columns: Columns,
}

/// The failed events of one stage.
pub(crate) struct Failures<T> {
    kept: VecDeque<Failed<T>>,
    max: usize,
    made: u64,
    forgotten: u64,
}

impl<T> Failures<T> {
    pub(crate) fn new(max: usize) -> Self {
        Failures { kept: VecDeque::new(), max, made: 0, forgotten: 0 }
    }

    /// Keeps a failed event. Returns one that no longer can be kept, or this one if none can.
    #[must_use]
    pub(crate) fn push(
        &mut self,
        failure: Failure,
        event: Option<T>,
        (meta, columns): (&Meta, Columns),
    ) -> Option<T> {
        let number = self.made;
        self.made += 1;
        let mut forgotten = None;
        if self.kept.len() >= self.max {
            self.forgotten += 1;
            match self.kept.pop_front() {
                Some(oldest) => forgotten = oldest.event,
                None => return event,
            }
        }
        let failure = Failure { number, replayable: event.is_some(), ..failure };
        // The failure was reported to the group; a replay is no longer its concern.
        let duty = Duty { ack: None, ..meta.duty.clone() };
        let meta = Meta { duty, ..meta.clone() };
        self.kept.push_back(Failed { failure, event, meta, columns });
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

    /// Takes out up to `max` failures that can be replayed, oldest first.
    pub(crate) fn take_replayable(&mut self, max: usize) -> Vec<(Meta, Columns, T)> {
        let mut taken = Vec::new();
        let mut rest = VecDeque::with_capacity(self.kept.len());
        for mut failed in self.kept.drain(..) {
            match failed.event.take() {
                Some(event) if taken.len() < max => {
                    taken.push((failed.meta, failed.columns, event));
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

    /// Takes everything out.
    pub(crate) fn drain(&mut self) -> Vec<(Failure, Option<T>)> {
        self.kept.drain(..).map(|failed| (failed.failure, failed.event)).collect()
    }
}

impl<T> Drop for Failures<T> {
    fn drop(&mut self) {
        self.kept.drain(..).for_each(|failed| user::discard(failed.event));
    }
}

#[cfg(test)]
mod tests {
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
            columns.set_keys([Some(n + 10)]);
            let _ = failures.push(failure(reason), event, (&meta, columns));
        }
        assert_eq!((failures.len(), failures.forgotten()), (2, 3));
        assert_eq!(failures.list()[0].number, 3);
        let replayed = failures.take_replayable(9).into_iter();
        let replayed: Vec<_> = replayed.map(|(_, own, e)| (own.keys(1).next(), e)).collect();
        assert_eq!((replayed, failures.len()), (vec![(Some(Some(14)), 4)], 1));
    }

    #[test]
    fn a_bound_of_zero_keeps_nothing() {
        let mut failures = Failures::new(0);
        let meta = Meta::default();
        let of = (&meta, Columns::default());
        let given_back = failures.push(failure(Reason::Flood(1)), Some(1), of);
        assert_eq!(given_back, Some(1));
        assert_eq!((failures.len(), failures.forgotten()), (0, 1));
    }
}
