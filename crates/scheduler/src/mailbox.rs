//! Where the events of a source wait for its handler if they are found on the scheduler's own thread: those
//! of timers, descriptors and polled sources. What other threads report waits behind a lock (`notifier`).
//! Invariant: a mailbox holds no more than its capacity.

use crate::failure::discard;
use crate::fifo::Fifo;
use crate::repository::Handler;
use crate::wait_list::WaitList;
use std::cell::Cell;
use std::io;
use std::rc::Rc;

pub(crate) struct Mailbox<E> {
    events: Fifo<E>,
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
            capacity,
            ended: Cell::new(false),
            error: Cell::new(None),
            waiting: WaitList::default(),
        })
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.events.len() < self.capacity
    }

    /// Adds an event and wakes the handlers that wait for it; gives it back if there is no room.
    #[inline(always)]
    pub(crate) fn push(&self, event: E) -> Result<(), E> {
        if !self.has_room() {
            return Err(event);
        }
        self.events.push(event);
        self.waiting.wake_all();
        Ok(())
    }

    /// If there is no event, and one handler waits for one, takes this for it and returns the handler, to be resumed
    /// at once. To be called while no handler is ready.
    #[inline(always)]
    pub(crate) fn hand_over(&self, event: E) -> Option<Rc<Handler>> {
        if !self.events.is_empty() {
            return None;
        }
        let waiter = self.waiting.take_only()?;
        self.events.push(event);
        Some(waiter)
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
        match self.events.pop() {
            Some(event) => Some(Ok(Some(event))),
            None if self.ended.get() => Some(self.take_end()),
            None => None,
        }
    }

    #[cold]
    fn take_end(&self) -> io::Result<Option<E>> {
        self.error.take().map_or(Ok(None), Err)
    }

    /// There is only to wait.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty() && !self.ended.get()
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
