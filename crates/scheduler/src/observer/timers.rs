//! The timer demultiplexer: what is due, earliest first; what is due at one instant, in the order in
//! which it was set. Setting and removing a timer cost a search each, and a timer that was removed
//! takes no memory, so that a time limit on every operation is affordable.

use crate::repository::Waker;
use crate::table::Key;
use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    at: Instant,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerTarget {
    /// A suspended handler whose time is over.
    Handler(Waker),
    /// A source that reports an event.
    Source(Key),
}

#[derive(Default)]
pub(crate) struct Timers {
    due: BTreeMap<TimerKey, TimerTarget>,
    number: u64,
}

impl Timers {
    pub(crate) fn insert(&mut self, at: Instant, target: TimerTarget) -> TimerKey {
        self.number += 1;
        let key = TimerKey { at, number: self.number };
        self.due.insert(key, target);
        key
    }

    pub(crate) fn remove(&mut self, key: TimerKey) -> Option<TimerTarget> {
        self.due.remove(&key)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    #[inline]
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.due.first_key_value().map(|(key, _)| key.at)
    }

    /// Takes out the earliest that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, TimerTarget)> {
        let first = self.due.first_entry().filter(|first| first.key().at <= now)?;
        Some((first.key().at, first.remove()))
    }
}
