//! Handlers that wait for one thing, in the order in which they began to.
//! Every operation that suspends does so through here: sockets, channels, events, joins.
//!
//! Invariants: a handler is taken out by itself when it goes on, unless it was taken out by being woken
//! from here; `woken` counts the latter until they go on. No wake-up is lost: a handler that was woken
//! and leaves without using it, because it was cancelled, wakes the next.

use crate::core::{Core, OnDrop, Parked};
use crate::repository::Waker;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;
use std::time::Instant;

/// A suspended handler, and the scheduler that it belongs to.
struct Waiter {
    core: Rc<Core>,
    waker: Waker,
}

impl Waiter {
    fn wake(&self) -> bool {
        self.core.wake(self.waker)
    }
}

#[derive(Default)]
pub(crate) struct WaitList {
    waiters: RefCell<VecDeque<Waiter>>,
    woken: Cell<usize>,
}

impl WaitList {
    /// Suspends the running handler until it is woken from here or the deadline is over.
    pub(crate) fn park(&self, core: &Rc<Core>, deadline: Option<Instant>) -> Parked {
        let waker = self.enlist(core);
        let unused = OnDrop(|| self.leave(waker));
        let parked = core.park(deadline);
        if parked == Parked::Woken {
            mem::forget(unused);
            self.strike(waker);
        }
        parked
    }

    /// Adds the running handler, which suspends next.
    pub(crate) fn enlist(&self, core: &Rc<Core>) -> Waker {
        let waker = core.waker();
        self.waiters.borrow_mut().push_back(Waiter { core: core.clone(), waker });
        waker
    }

    /// Takes a handler out that goes on for another reason. If it was woken from here, the next is.
    pub(crate) fn leave(&self, waker: Waker) {
        if self.strike(waker) {
            self.wake_one();
        }
    }

    /// Takes a handler out that goes on; returns whether it was woken from here.
    #[inline]
    fn strike(&self, waker: Waker) -> bool {
        let mut waiters = self.waiters.borrow_mut();
        let place = waiters.iter().position(|waiter| waiter.waker == waker);
        if let Some(place) = place {
            waiters.remove(place);
            return false;
        }
        self.woken.set(self.woken.get() - 1);
        true
    }

    /// Wakes the handler that has waited longest, of those that do not go on for another reason.
    pub(crate) fn wake_one(&self) {
        let mut waiters = self.waiters.borrow_mut();
        if let Some(place) = waiters.iter().position(Waiter::wake) {
            waiters.remove(place);
            self.woken.set(self.woken.get() + 1);
        }
    }

    pub(crate) fn wake_all(&self) {
        let mut waiters = self.waiters.borrow_mut();
        // Mostly there is one or none, and then `retain` costs more than the rest.
        if waiters.len() <= 1 {
            if waiters.pop_front_if(|waiter| waiter.wake()).is_some() {
                self.woken.set(self.woken.get() + 1);
            }
            return;
        }
        let before = waiters.len();
        waiters.retain(|waiter| !waiter.wake());
        self.woken.set(self.woken.get() + before - waiters.len());
    }

    /// Handlers that were woken and have not gone on yet.
    pub(crate) fn woken(&self) -> usize {
        self.woken.get()
    }
}
