//! Bounded channels between coroutines of one thread. The verbs and errors are those of
//! `std::sync::mpsc`; where a thread would block, a coroutine is suspended.
//!
//! Invariants: a channel holds no more than its capacity. Senders that wait for room get it in the
//! order in which they came: room that a waiting sender was woken for is kept for it.

use crate::core::{Core, Parked};
use crate::failure::discard;
use crate::wait_list::WaitList;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::{Duration, Instant};

struct Channel<T> {
    queue: RefCell<VecDeque<T>>,
    capacity: usize,
    senders: Cell<usize>,
    open: Cell<bool>,
    items: WaitList,
    room: WaitList,
}

/// Creates a channel that holds up to `capacity` items, at least one.
#[must_use]
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let channel = Rc::new(Channel {
        queue: RefCell::new(VecDeque::new()),
        capacity: capacity.max(1),
        senders: Cell::new(1),
        open: Cell::new(true),
        items: WaitList::default(),
        room: WaitList::default(),
    });
    (Sender { channel: channel.clone() }, Receiver { channel })
}

/// The sending end.
pub struct Sender<T> {
    channel: Rc<Channel<T>>,
}

impl<T> Sender<T> {
    /// Sends an item; suspends the coroutine while the channel is full.
    ///
    /// # Errors
    /// Returns the item if there is no receiver any more, or if the coroutine is unwinding and would have to
    /// wait.
    ///
    /// # Panics
    /// Panics if the channel is full and this is not a coroutine.
    pub fn send(&self, item: T) -> Result<(), SendError<T>> {
        if let Some(core) = Core::of_handler() {
            core.spend();
        }
        let channel = &*self.channel;
        loop {
            if !channel.open.get() {
                return Err(SendError(item));
            }
            if channel.has_room() {
                channel.push(item);
                return Ok(());
            }
            let core = Core::expect_handler("Sender::send");
            match channel.room.park(&core, None) {
                Parked::Woken => {}
                Parked::TimedOut | Parked::Unwinding => return Err(SendError(item)),
            }
        }
    }

    /// Sends an item if there is room.
    ///
    /// # Errors
    /// Returns the item if there is no room, if others wait for it, or if there is no receiver any more.
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        let channel = &*self.channel;
        if !channel.open.get() {
            return Err(TrySendError::Disconnected(item));
        }
        if !channel.has_room() {
            return Err(TrySendError::Full(item));
        }
        channel.push(item);
        Ok(())
    }
}

impl<T> Channel<T> {
    /// Room that a waiting sender was woken for is its own; a sender that comes later goes behind.
    fn has_room(&self) -> bool {
        self.queue.borrow().len() + self.room.woken() < self.capacity
    }

    fn push(&self, item: T) {
        self.queue.borrow_mut().push_back(item);
        self.items.wake_one();
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.channel.senders.set(self.channel.senders.get() + 1);
        Sender { channel: self.channel.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.channel.senders.set(self.channel.senders.get() - 1);
        if self.channel.senders.get() == 0 {
            self.channel.items.wake_all();
        }
    }
}

/// The receiving end.
pub struct Receiver<T> {
    channel: Rc<Channel<T>>,
}

impl<T> Receiver<T> {
    /// Receives the next item; suspends the coroutine while there is none.
    ///
    /// # Errors
    /// Returns an error if there is no item and no sender any more, or if the coroutine is unwinding and would
    /// have to wait.
    ///
    /// # Panics
    /// Panics if there is no item and this is not a coroutine.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_before(None).map_err(|_| RecvError)
    }

    /// Like [`Receiver::recv`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// Like [`Receiver::recv`], and if the limit has passed.
    ///
    /// # Panics
    /// Like [`Receiver::recv`].
    pub fn recv_timeout(&self, limit: Duration) -> Result<T, RecvTimeoutError> {
        let deadline = Core::of_handler().and_then(|core| core.deadline(Some(limit)));
        self.recv_before(deadline)
    }

    fn recv_before(&self, deadline: Option<Instant>) -> Result<T, RecvTimeoutError> {
        if let Some(core) = Core::of_handler() {
            core.spend();
        }
        let mut late = false;
        loop {
            match self.try_recv() {
                Ok(item) => return Ok(item),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) if late => return Err(RecvTimeoutError::Timeout),
                Err(TryRecvError::Empty) => {}
            }
            let core = Core::expect_handler("Receiver::recv");
            match self.channel.items.park(&core, deadline) {
                Parked::Woken => {}
                Parked::TimedOut => late = true,
                Parked::Unwinding => return Err(RecvTimeoutError::Disconnected),
            }
        }
    }

    /// Receives an item if there is one.
    ///
    /// # Errors
    /// Returns an error if there is no item. It tells whether there are senders left.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let item = self.channel.queue.borrow_mut().pop_front();
        match item {
            Some(item) => {
                self.channel.room.wake_one();
                Ok(item)
            }
            None if self.channel.senders.get() == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Returns an iterator over the items, which ends when there is no sender any more.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.recv().ok())
    }

    pub(crate) fn waiting(&self) -> &WaitList {
        &self.channel.items
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.channel.open.set(false);
        self.channel.room.wake_all();
        // One by one: the coroutine may be unwinding, and a `Drop` that panics would abort the process.
        self.channel.queue.take().into_iter().for_each(discard);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
