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

    /// Grants places; refuses them if the caller has left. It is to be [woken](Self::wake).
    pub(crate) fn grant(&self, room: usize) -> bool {
        let mut state = self.state.lock();
        if !state.gone {
            *state.room.get_or_insert(0) += room;
        }
        !state.gone
    }

    /// The program stops.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake();
    }

    /// Has it see what it was granted.
    pub(crate) fn wake(&self) {
        let waker = self.state.lock().waker.take();
        if let Some(waker) = waker {
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
