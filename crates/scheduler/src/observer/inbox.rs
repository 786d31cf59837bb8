//! The asynchronous demultiplexer: what callbacks on any thread report, and `stop`.
//! A notifier leaves the key of its source here and wakes the loop if it sleeps; the observer empties
//! it. The events themselves lie in the source's mailbox.
//!
//! Invariants: a source stands here at most once ([`Signal`]), so the inbox is no longer than the
//! table of sources. No wake-up is lost: the loop announces its sleep before it looks whether anything
//! is pending, and a notifier makes something pending before it looks whether the loop sleeps; all four
//! are sequentially consistent. A stop is pending until `take_stop`: emptying the inbox does not clear it.

use crate::table::Key;
use mio::Waker;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) struct Inbox {
    keys: Mutex<Vec<Key>>,
    pending: AtomicBool,
    sleeping: AtomicBool,
    stopping: AtomicBool,
    waker: Waker,
}

impl Inbox {
    pub(super) fn new(waker: Waker) -> Arc<Inbox> {
        Arc::new(Inbox {
            keys: Mutex::new(Vec::new()),
            pending: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            waker,
        })
    }

    fn push(&self, key: Key) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        self.rouse();
    }

    fn rouse(&self) {
        self.pending.store(true, SeqCst);
        if self.sleeping.swap(false, SeqCst) {
            // The one error it can have is a full counter, and then the loop is awake.
            let _ = self.waker.wake();
        }
    }

    /// Asks the loop to return from `run` or `step`.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.rouse();
    }

    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Returns whether a stop was asked for, and forgets it.
    #[inline]
    pub(crate) fn take_stop(&self) -> bool {
        self.is_stopping() && self.stopping.swap(false, SeqCst)
    }

    /// Announces that the loop is about to sleep. Returns `false` if it must not.
    #[inline]
    pub(super) fn may_sleep(&self) -> bool {
        self.sleeping.store(true, SeqCst);
        !self.pending.load(SeqCst) && !self.is_stopping()
    }

    #[inline]
    pub(super) fn woke(&self) {
        self.sleeping.store(false, SeqCst);
    }

    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.pending.load(SeqCst)
    }

    /// Moves the keys that are here into `keys`, which is empty.
    #[inline]
    pub(super) fn empty_into(&self, keys: &mut Vec<Key>) {
        self.pending.store(false, SeqCst);
        mem::swap(keys, &mut *self.keys.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
impl Inbox {
    /// How many sources stand here.
    pub(crate) fn len(&self) -> usize {
        self.keys.lock().unwrap().len()
    }
}

/// Whether a source stands in the inbox.
pub(crate) struct Signal {
    key: Key,
    raised: AtomicBool,
    inbox: Arc<Inbox>,
}

impl Signal {
    pub(super) fn new(key: Key, inbox: Arc<Inbox>) -> Arc<Signal> {
        Arc::new(Signal { key, raised: AtomicBool::new(false), inbox })
    }

    /// Puts the source into the inbox, from any thread.
    pub(crate) fn raise(&self) {
        if !self.raised.swap(true, SeqCst) {
            self.inbox.push(self.key);
        }
    }

    /// It was taken out; what comes after this is reported anew.
    pub(super) fn lower(&self) {
        self.raised.store(false, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;
    use mio::{Events, Poll, Token};
    use std::time::Duration;

    #[test]
    fn the_loop_does_not_sleep_over_what_came_before_and_is_woken_by_what_comes_after() {
        let mut poll = Poll::new().unwrap();
        let inbox = Inbox::new(Waker::new(poll.registry(), Token(0)).unwrap());
        let signal = Signal::new(Table::new().insert(()), inbox.clone());
        let mut events = Events::with_capacity(8);
        let mut woken = |poll: &mut Poll| {
            poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
            !events.is_empty()
        };
        // Before it sleeps: nobody need wake it, and it must not sleep.
        signal.raise();
        assert!(!woken(&mut poll));
        assert!(!inbox.may_sleep());
        inbox.woke();
        let mut keys = Vec::new();
        inbox.empty_into(&mut keys);
        assert_eq!(keys.len(), 1);
        signal.lower();
        // After it announced its sleep: it is woken, once.
        assert!(inbox.may_sleep());
        signal.raise();
        signal.raise();
        assert!(woken(&mut poll));
        inbox.woke();
        keys.clear();
        inbox.empty_into(&mut keys);
        assert_eq!(keys.len(), 1);
    }

    #[test]
    fn the_loop_does_not_sleep_over_a_stop_that_came_before_the_inbox_was_emptied() {
        let poll = Poll::new().unwrap();
        let inbox = Inbox::new(Waker::new(poll.registry(), Token(0)).unwrap());
        assert!(!inbox.take_stop());
        inbox.stop();
        inbox.empty_into(&mut Vec::new());
        assert!(!inbox.may_sleep());
        inbox.woke();
        assert!(inbox.take_stop());
        assert!(inbox.may_sleep(), "it is taken once");
    }
}
