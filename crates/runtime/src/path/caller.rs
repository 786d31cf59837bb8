//! A thread or a task outside the program that stands in line for room in a queue: how it is told of
//! room, and how it leaves.
//! Used by `push`; `admit` grants it room.

use std::task::{Poll, Waker};

use crate::sync::{Arc, Condvar, Mutex, wait};

/// A thread or task outside that may wait for room.
pub(crate) struct Caller {
    state: Mutex<CallerState>,
    changed: Condvar,
}

#[derive(Default)]
struct CallerState {
    room: Option<usize>,
    closed: bool,
    gone: bool,
    waker: Option<Waker>,
}

impl Caller {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Caller { state: Mutex::default(), changed: Condvar::new() })
    }

    /// Grants places; refuses them if the caller has left.
    pub(crate) fn grant(&self, room: usize) -> bool {
        let mut state = self.state.lock();
        if state.gone {
            return false;
        }
        *state.room.get_or_insert(0) += room;
        self.tell(&mut state);
        true
    }

    /// The program stops.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.tell(&mut state);
    }

    fn tell(&self, state: &mut CallerState) {
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        self.changed.notify_one();
    }

    pub(crate) fn wait(&self) -> Option<usize> {
        let mut state = self.state.lock();
        loop {
            if let Some(room) = state.room.take() {
                return Some(room);
            }
            if state.closed {
                return None;
            }
            state = wait(&self.changed, state, None);
        }
    }

    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Option<usize>> {
        let mut state = self.state.lock();
        if let Some(room) = state.room.take() {
            return Poll::Ready(Some(room));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        state.waker = Some(waker.clone());
        Poll::Pending
    }

    /// Leaves the line, with what was granted and not used.
    pub(crate) fn leave(&self) -> usize {
        let mut state = self.state.lock();
        state.gone = true;
        state.room.take().unwrap_or(0)
    }
}
