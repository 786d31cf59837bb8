//! The events of a visit that it has not begun. Where several instances may handle them in any order,
//! they stand here, one step away from the visit, so that they can be taken back when its handler does
//! not return: a stuck handler costs its own event and no other.
//!
//! A leaf lock: taken under the stage's lock, or alone.

use comporta_model::chunk::Chunk;
use comporta_model::column::Columns;

use super::queue::{Side, Turn};
use crate::sync::{Arc, Mutex};

pub(crate) struct Tray<T> {
    rest: Mutex<Option<Chunk<T>>>,
    /// Where its events were taken, and what the queue knows the visit by.
    from: Side,
    turn: Turn,
}

impl<T> Tray<T> {
    pub(super) fn new(chunk: Chunk<T>, from: Side, turn: Turn) -> Arc<Self> {
        Arc::new(Tray { rest: Mutex::new(Some(chunk)), from, turn })
    }

    pub(super) fn turn(&self) -> Turn {
        self.turn
    }

    pub(super) fn from(&self) -> Side {
        self.from
    }

    /// Takes the next event, with what it carries of its own.
    pub(super) fn next(&self) -> Option<(T, Columns)> {
        self.rest.lock().as_mut()?.pop_front()
    }

    /// As [`next`](Self::next), if nothing is owed for what is left, and it carries nothing of its own.
    #[inline]
    pub(super) fn next_plain(&self) -> Option<T> {
        self.rest.lock().as_mut()?.pop_plain()
    }

    /// Events that are left.
    pub(super) fn left(&self) -> usize {
        self.rest.lock().as_ref().map_or(0, Chunk::len)
    }

    /// Takes all that is left.
    pub(super) fn take_rest(&self) -> Option<Chunk<T>> {
        self.rest.lock().take()
    }
}
