//! Standing in line for room. A [`Place`] is one who may wait, whoever it is: an instance, a source,
//! the releaser of an ordered stage, a caller outside. A [`Line`] is those who wait for one queue,
//! first in first out. Used by `outlet`, which stands in line, and by `stage::permits`, which grants.
//!
//! Invariant: of a grant and the moment its owner parks, whichever comes second makes the wake-up.

use std::collections::BTreeMap;
use std::task::{Poll, Waker};

use comporta_model::event::Time;

use crate::effects::Effects;
use crate::env::Clock;
use crate::path::ready::Token;
use crate::sync::{Arc, Condvar, Mutex, wait};
use crate::user;

/// One who may stand in line, for one queue at a time.
pub(crate) struct Place {
    /// What resumes it; none for a caller outside, who is woken.
    token: Option<Token>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// So many places were granted.
    granted: Option<usize>,
    /// It waits to be resumed or woken.
    parked: bool,
    /// The program has stopped.
    closed: bool,
    waker: Option<Waker>,
}

impl Place {
    /// A place of one that is resumed by a token.
    pub(crate) fn of_task(token: Token) -> Arc<Self> {
        Arc::new(Place { token: Some(token), state: Mutex::default(), changed: Condvar::new() })
    }

    /// A place of a thread or task outside.
    pub(crate) fn of_caller() -> Arc<Self> {
        Arc::new(Place { token: None, state: Mutex::default(), changed: Condvar::new() })
    }

    /// The stage it belongs to; none for a caller outside.
    #[inline]
    pub(crate) fn stage(&self) -> Option<u32> {
        self.token.map(|token| token.stage)
    }

    /// What resumes it.
    pub(crate) fn token(&self) -> Option<Token> {
        self.token
    }

    /// Grants room. Returns whether it is to be resumed or woken for it.
    pub(crate) fn grant(&self, room: usize) -> bool {
        let mut state = self.state.lock();
        *state.granted.get_or_insert(0) += room;
        state.parked || self.token.is_none()
    }

    /// Grants room, and notes whom to resume or wake for it.
    pub(crate) fn grant_by(self: &Arc<Self>, room: usize, effects: &mut Effects) {
        let wakes = self.grant(room);
        match self.token {
            Some(token) if wakes => effects.tokens.push(token),
            Some(_) => {} // it has not parked yet, and will see it when it does
            None => effects.callers.push(self.clone()),
        }
    }

    /// It parks. Returns whether room was granted already, so that it is to be resumed at once.
    #[must_use]
    pub(crate) fn park(&self) -> bool {
        let mut state = self.state.lock();
        state.parked = true;
        state.granted.is_some()
    }

    /// Takes what was granted: it goes on, or gives up.
    pub(crate) fn take(&self) -> usize {
        let mut state = self.state.lock();
        state.parked = false;
        state.granted.take().unwrap_or(0)
    }

    // --- callers

    /// The program stops: who waits is sent away.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake();
    }

    /// What it was granted came too late: the program has stopped, and what it had sent is cancelled.
    pub(crate) fn refuse(&self) {
        self.state.lock().closed = true;
    }

    /// Whether the program has stopped.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Has a caller see what it was granted.
    pub(crate) fn wake(&self) {
        let waker = self.state.lock().waker.take();
        self.changed.notify_one();
        if let Some(waker) = waker {
            let _ = user::call(|| waker.wake());
        }
    }

    /// Waits on this thread until room is granted; returns `false` if the program has stopped.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while state.granted.is_none() && !state.closed {
            state = wait(&self.changed, state, None);
        }
        state.granted.is_some()
    }

    /// As [`wait`](Self::wait), for as long as `clock` is before `due`. Returns `None` after that.
    pub(crate) fn wait_until(&self, clock: &Clock, due: Time) -> Option<bool> {
        let mut state = self.state.lock();
        while state.granted.is_none() && !state.closed {
            let left = due.duration_since(clock.now());
            if left.is_zero() {
                return None;
            }
            state = wait(&self.changed, state, Some(left));
        }
        Some(state.granted.is_some())
    }

    /// As [`wait`](Self::wait), for a task.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<bool> {
        let fresh = waker.clone(); // user code: not under the lock
        let mut state = self.state.lock();
        let ready = if state.granted.is_some() {
            Poll::Ready(true)
        } else if state.closed {
            Poll::Ready(false)
        } else {
            Poll::Pending
        };
        let spare = if ready.is_pending() { state.waker.replace(fresh) } else { Some(fresh) };
        drop(state);
        user::discard(spare);
        ready
    }
}

/// Those who wait for one queue.
#[derive(Default)]
pub(crate) struct Line {
    waiters: BTreeMap<u64, Waiter>,
    next: u64,
}

pub(crate) struct Waiter {
    pub(crate) place: Arc<Place>,
    /// How much room it wants.
    pub(crate) want: usize,
}

impl Line {
    /// Stands at the end of the line. Returns the number to leave by.
    pub(crate) fn join(&mut self, place: Arc<Place>, want: usize) -> u64 {
        self.next += 1;
        self.waiters.insert(self.next, Waiter { place, want });
        self.next
    }

    /// Leaves the line. Returns whether it stood there: if not, it was granted room.
    pub(crate) fn leave(&mut self, number: u64) -> bool {
        self.waiters.remove(&number).is_some()
    }

    /// How much room the first in line wants.
    pub(crate) fn first_wants(&self) -> Option<usize> {
        self.waiters.first_key_value().map(|(_, first)| first.want)
    }

    pub(crate) fn pop(&mut self) -> Option<Waiter> {
        self.waiters.pop_first().map(|(_, waiter)| waiter)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(crate) fn stages(&self) -> impl Iterator<Item = u32> {
        self.waiters.values().filter_map(|waiter| waiter.place.stage())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::path::ready::Task;

    fn place(stage: u32) -> Arc<Place> {
        Place::of_task(Token::new(stage, Task::Any))
    }

    #[test]
    fn of_grant_and_park_the_second_makes_the_wake_up() {
        let one = place(1);
        assert!(!one.grant(2), "it has not parked");
        assert!(one.park());
        assert_eq!(one.take(), 2);
        assert!(!one.park());
        assert!(one.grant(1));
        assert_eq!((one.take(), one.take()), (1, 0));
    }

    #[test]
    fn who_leaves_the_line_is_not_served_and_costs_nothing_any_more() {
        let mut line = Line::default();
        let numbers: Vec<u64> = (0..3).map(|n| line.join(place(n), 1)).collect();
        assert!(line.leave(numbers[1]));
        assert!(!line.leave(numbers[1]));
        let served = std::iter::from_fn(|| line.pop()).filter_map(|w| w.place.stage());
        assert_eq!(served.collect::<Vec<_>>(), [0, 2]);
        assert!(line.is_empty());
    }
}
