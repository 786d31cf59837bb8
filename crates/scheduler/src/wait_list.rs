//! Handlers that wait for one thing, in the order in which they began to.
//! Every operation that suspends does so through here: sockets, channels, events, joins.
//!
//! Invariants: a handler is taken out by itself when it goes on, unless it was taken out by being woken
//! from here; `woken` counts the latter until they go on. No wake-up is lost: a handler that was woken
//! and leaves without using it, because it was cancelled or took something else (`wait`), wakes the next. One that
//! found nothing wakes nobody: handlers that woke each other for nothing would do so without end.

use crate::core::{Core, Parked};
use crate::fifo::Fifo;
use crate::repository::{Cause, Handler};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

pub(crate) struct WaitList {
    waiters: Fifo<Rc<Handler>>,
    woken: Cell<usize>,
    /// When a `Wait` last took something from what this list is for: see `Wait::suspend`.
    served: Cell<u64>,
}

impl Default for WaitList {
    fn default() -> WaitList {
        WaitList { waiters: Fifo::new(), woken: Cell::new(0), served: Cell::new(0) }
    }
}

impl WaitList {
    /// Suspends the running handler until it is woken from here or the deadline is over.
    #[inline(always)]
    pub(crate) fn park(&self, core: &Core, deadline: Option<Instant>) -> Parked {
        core.park(
            deadline,
            |handler| self.enlist(handler),
            |cause| match cause {
                // Nothing else wakes it with an event while it waits for this alone.
                Cause::Event => self.woken.set(self.woken.get() - 1),
                Cause::Deadline | Cause::Cancelled => self.give_up(core),
            },
        )
    }

    /// The running handler goes on for another reason.
    #[cold]
    fn give_up(&self, core: &Core) {
        if self.leave(&core.running()) {
            self.wake_one();
        }
    }

    /// Adds the running handler, which suspends next.
    #[inline]
    pub(crate) fn enlist(&self, handler: Rc<Handler>) {
        self.waiters.push(handler);
    }

    /// Takes out a handler that goes on. Returns `true` if it was woken from here: what that was for is its own to
    /// use, or to pass on.
    #[must_use]
    pub(crate) fn leave(&self, handler: &Rc<Handler>) -> bool {
        let waits = self.waiters.remove_first(|waiter| Rc::ptr_eq(waiter, handler));
        if waits.is_none() {
            self.woken.set(self.woken.get() - 1);
        }
        waits.is_none()
    }

    /// Wakes the handler that has waited longest, of those that do not go on for another reason.
    /// Returns `false` if there is none.
    #[inline]
    pub(crate) fn wake_one(&self) -> bool {
        let Some(waiter) = self.waiters.remove_first(|waiter| waiter.is_suspended()) else {
            return false;
        };
        self.woken.set(self.woken.get() + 1);
        waiter.wake(Cause::Event);
        true
    }

    /// If one handler waits here, takes it out, woken, to be resumed at once. To be called while no handler is ready:
    /// so it does not go on for another reason, and it is the first.
    #[inline]
    pub(crate) fn take_only(&self) -> Option<Rc<Handler>> {
        let waiter = self.waiters.pop_only()?;
        debug_assert!(waiter.is_suspended(), "no handler is ready");
        self.woken.set(self.woken.get() + 1);
        Some(waiter)
    }

    #[inline]
    pub(crate) fn wake_all(&self) {
        while self.wake_one() {}
    }

    /// Handlers that were woken and have not gone on yet.
    pub(crate) fn woken(&self) -> usize {
        self.woken.get()
    }

    pub(crate) fn served(&self) -> &Cell<u64> {
        &self.served
    }
}
