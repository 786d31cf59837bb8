//! Where the events of a source wait for its handler if they are found on the scheduler's own thread: those
//! of timers, descriptors and polled sources. What other threads report waits behind a lock (`notifier`).
//! Invariant: a mailbox holds no more than its capacity.

use crate::failure::discard;
use crate::fifo::Fifo;
use crate::wait_list::WaitList;
use std::cell::Cell;
use std::io;
use std::rc::Rc;

pub(crate) struct Mailbox<E> {
    events: Fifo<E>,
    len: Cell<usize>,
    capacity: usize,
    ended: Cell<bool>,
    /// The error it ended with, until it was taken.
    error: Cell<Option<io::Error>>,
    waiting: WaitList,
}

impl<E> Mailbox<E> {
    pub(crate) fn new(capacity: usize) -> Rc<Mailbox<E>> {
        Rc::new(Mailbox {
            events: Fifo::new(),
            len: Cell::new(0),
            capacity,
            ended: Cell::new(false),
            error: Cell::new(None),
            waiting: WaitList::default(),
        })
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.len.get() < self.capacity
    }

    /// Adds an event and wakes the handlers that wait for it; gives it back if there is no room.
    #[inline(always)]
    pub(crate) fn push(&self, event: E) -> Result<(), E> {
        if !self.has_room() {
            return Err(event);
        }
        self.len.set(self.len.get() + 1);
        self.events.push(event);
        self.waiting.wake_all();
        Ok(())
    }

    /// No more will come. The first call counts.
    pub(crate) fn end(&self, error: Option<io::Error>) {
        if !self.ended.replace(true) {
            self.error.set(error);
            self.waiting.wake_all();
        }
    }

    /// Takes what is there: an event, the error, or the end. `None` if there is only to wait.
    #[inline]
    pub(crate) fn take(&self) -> Option<io::Result<Option<E>>> {
        if let Some(event) = self.events.pop() {
            self.len.set(self.len.get() - 1);
            return Some(Ok(Some(event)));
        }
        if !self.ended.get() {
            return None;
        }
        Some(self.error.take().map_or(Ok(None), Err))
    }

    pub(crate) fn waiting(&self) -> &WaitList {
        &self.waiting
    }
}

impl<E> Drop for Mailbox<E> {
    fn drop(&mut self) {
        // One by one: the handler may be unwinding, and a `Drop` that panics would abort the process.
        while let Some(event) = self.events.pop() {
            discard(event);
        }
    }
}
