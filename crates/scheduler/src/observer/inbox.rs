//! The asynchronous demultiplexer: what callbacks on any thread report, and `stop`.
//! A notifier leaves the key of its source here and wakes the loop if it sleeps; the observer empties
//! it. The events themselves lie in the source's mailbox.
//!
//! Invariants: a source stands here at most once ([`Signal`]), so the inbox is no longer than the
//! table of sources. No wake-up is lost: one word holds what is pending and whether the loop sleeps, and is
//! changed in one operation by either side; so either the loop finds what is pending before it sleeps, or
//! the notifier finds that it sleeps. A stop is pending until `take_stop`: emptying the inbox does not clear it.

use super::{Observer, Source};
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering::SeqCst, Waker};
use crate::table::Key;
use crate::wait_list::WaitList;
use std::mem;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};

/// There are keys in the inbox.
const KEYS: u32 = 1;
/// A stop was asked for.
const STOP: u32 = 2;
/// The loop is about to sleep, or sleeps. It sets this only while nothing else is set.
const ASLEEP: u32 = 4;
pub(crate) struct Inbox {
    keys: Mutex<Vec<Key>>,
    flags: AtomicU32,
    waker: Waker,
}

impl Inbox {
    pub(crate) fn new(waker: Waker) -> Arc<Inbox> {
        Arc::new(Inbox { keys: Mutex::new(Vec::new()), flags: AtomicU32::new(0), waker })
    }

    fn push(&self, key: Key) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        self.raise(KEYS);
    }

    /// Makes something pending. The first to do so while the loop sleeps wakes it.
    fn raise(&self, flag: u32) {
        let before = self.flags.fetch_or(flag, SeqCst);
        if before == ASLEEP {
            // The one error it can have is a full counter, and then the loop is awake.
            let _ = self.waker.wake();
        }
    }

    /// Asks the loop to return from `run` or `step`.
    pub(crate) fn stop(&self) {
        self.raise(STOP);
    }

    /// Returns whether a stop was asked for.
    #[inline]
    pub(crate) fn has_stop(&self) -> bool {
        self.flags.load(SeqCst) & STOP != 0
    }

    /// Returns whether a stop was asked for, and forgets it.
    #[inline]
    pub(crate) fn take_stop(&self) -> bool {
        self.has_stop() && self.flags.fetch_and(!STOP, SeqCst) & STOP != 0
    }

    /// Announces that the loop is about to sleep. Returns `false` if it must not: something is pending.
    #[inline]
    pub(crate) fn may_sleep(&self) -> bool {
        self.flags.compare_exchange(0, ASLEEP, SeqCst, SeqCst).is_ok()
    }

    #[inline]
    pub(crate) fn woke(&self) {
        self.flags.fetch_and(!ASLEEP, SeqCst);
    }

    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.flags.load(SeqCst) & KEYS != 0
    }

    /// Moves the keys that are here into `keys`, which is empty.
    pub(crate) fn empty_into(&self, keys: &mut Vec<Key>) {
        self.flags.fetch_and(!KEYS, SeqCst);
        mem::swap(keys, &mut *self.keys.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
impl Inbox {
    #[cfg(shuttle)]
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

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
    pub(crate) fn new(key: Key, inbox: Arc<Inbox>) -> Arc<Signal> {
        Arc::new(Signal { key, raised: AtomicBool::new(false), inbox })
    }

    /// Puts the source into the inbox, from any thread.
    pub(crate) fn raise(&self) {
        if !self.raised.swap(true, SeqCst) {
            self.inbox.push(self.key);
        }
    }

    /// It was taken out; what comes after this is reported anew.
    pub(crate) fn lower(&self) {
        self.raised.store(false, SeqCst);
    }
}

/// A source that has notifiers.
pub(super) struct Notified {
    waiting: Rc<WaitList>,
    signal: Arc<Signal>,
}

impl Observer {
    /// Registers a source that has notifiers, which raise the signal.
    pub(crate) fn add_notified(&self) -> (Key, Arc<Signal>, Rc<WaitList>) {
        let waiting = Rc::new(WaitList::default());
        let mut made = None;
        let key = self.sources.borrow_mut().table.insert_with(|key| {
            let signal = Signal::new(key, self.inbox.clone());
            made = Some(signal.clone());
            Source::Notified(Notified { waiting: waiting.clone(), signal })
        });
        (key, made.expect("`insert_with` makes the entry"), waiting)
    }

    /// Wakes the handlers that wait for what was reported. Returns whether there was anything.
    pub(super) fn empty_inbox(&self) -> bool {
        if !self.inbox.is_pending() {
            return false;
        }
        let mut keys = self.signalled.take();
        self.inbox.empty_into(&mut keys);
        let any = !keys.is_empty();
        let sources = self.sources.borrow();
        for key in keys.drain(..) {
            // A source that was removed since has no handler.
            if let Some(Source::Notified(source)) = sources.table.get(key) {
                source.signal.lower();
                source.waiting.wake_all();
            }
        }
        self.signalled.replace(keys);
        any
    }
}

#[cfg(all(test, not(shuttle)))]
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
        // Before it sleeps: it needs no waking, and it must not sleep.
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
