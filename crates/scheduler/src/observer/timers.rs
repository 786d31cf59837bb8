//! The timer demultiplexer: what is due, earliest first; what is due at one instant, in the order in
//! which it was set. Setting and removing a timer cost a search each, and a timer that was removed
//! takes no memory, so that a time limit on every operation is affordable.

use super::{Observer, Source};
use crate::mailbox::Mailbox;
use crate::repository::{Cause, Handler};
use crate::table::Key;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    at: Instant,
    number: u64,
}

enum Target {
    /// A suspended handler whose time is over.
    Handler(Rc<Handler>),
    /// A source that reports an event.
    Source(Key),
}

#[derive(Default)]
pub(super) struct Timers {
    due: BTreeMap<TimerKey, Target>,
    number: u64,
}

impl Timers {
    fn insert(&mut self, at: Instant, target: Target) -> TimerKey {
        self.number += 1;
        let key = TimerKey { at, number: self.number };
        self.due.insert(key, target);
        key
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.due.first_key_value().map(|(key, _)| key.at)
    }

    /// Takes out the earliest that is due.
    fn pop_due(&mut self, now: Instant) -> Option<(Instant, Target)> {
        let first = self.due.first_entry().filter(|first| first.key().at <= now)?;
        Some((first.key().at, first.remove()))
    }
}

/// A source that reports times.
pub(super) struct Timer {
    mailbox: Rc<Mailbox<Instant>>,
    period: Option<Duration>,
    key: TimerKey,
}

impl Timer {
    pub(super) fn key(&self) -> TimerKey {
        self.key
    }
}

impl Observer {
    pub(crate) fn add_timer(
        &self,
        mailbox: Rc<Mailbox<Instant>>,
        first: Instant,
        period: Option<Duration>,
    ) -> Key {
        let set = |key| self.set_timer(first, Target::Source(key));
        self.sources
            .borrow_mut()
            .table
            .insert_with(|key| Source::Timer(Timer { mailbox, period, key: set(key) }))
    }

    /// Has a handler go on at `at`, if it is still suspended then.
    pub(crate) fn wake_at(&self, at: Instant, handler: Rc<Handler>) -> TimerKey {
        self.set_timer(at, Target::Handler(handler))
    }

    fn set_timer(&self, at: Instant, target: Target) -> TimerKey {
        self.others.set(self.others.get() + 1);
        self.timers.borrow_mut().insert(at, target)
    }

    pub(crate) fn cancel_timer(&self, key: TimerKey) {
        if self.timers.borrow_mut().due.remove(&key).is_some() {
            self.others.set(self.others.get() - 1);
        }
    }

    /// Reports what is due. Returns whether anything was. The clock is read only if there are timers.
    pub(super) fn expire(&self) -> bool {
        if self.timers.borrow().due.is_empty() {
            return false;
        }
        let (now, mut any) = (self.now(), false);
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            let Some((at, target)) = due else { return any };
            self.others.set(self.others.get() - 1);
            any = true;
            match target {
                Target::Handler(handler) if handler.is_suspended() => handler.wake(Cause::Deadline),
                Target::Handler(_) => {}
                Target::Source(key) => self.tick(key, at, now),
            }
        }
    }

    /// A timer source is due: reports it, and sets it again if it is periodic. Periods that have passed
    /// unseen are skipped.
    fn tick(&self, source: Key, at: Instant, now: Instant) {
        let mut sources = self.sources.borrow_mut();
        let Some(Source::Timer(timer)) = sources.table.get_mut(source) else { return };
        // A full mailbox holds a tick that was not seen; another would say no more.
        let _ = timer.mailbox.push(at);
        match timer.period.and_then(|period| next_tick(at, now, period)) {
            Some(next) => {
                timer.key = self.set_timer(next, Target::Source(source));
            }
            None => timer.mailbox.end(None),
        }
    }
}

/// The first tick after `now`, at a multiple of the period from `at`.
fn next_tick(at: Instant, now: Instant, period: Duration) -> Option<Instant> {
    let period = period.as_nanos().max(1);
    let since_last = now.saturating_duration_since(at).as_nanos() % period;
    let to_next = u64::try_from(period - since_last).ok()?;
    now.max(at).checked_add(Duration::from_nanos(to_next))
}
