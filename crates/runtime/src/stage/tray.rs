//! The events of a visit that it has not begun. Where several instances may handle them in any order,
//! they stand here, one step away from the visit, so that they can be taken back when its handler does
//! not return: a stuck handler costs its own event and no other.
//!
//! A leaf lock: taken under the stage's lock, or alone.

use comporta_model::chunk::Chunk;

use crate::sync::{Arc, Mutex};

pub(super) struct Tray<T>(Mutex<Option<Chunk<T>>>);

impl<T> Tray<T> {
    pub(super) fn new(chunk: Chunk<T>) -> Arc<Self> {
        Arc::new(Tray(Mutex::new(Some(chunk))))
    }

    /// Takes the next event.
    pub(super) fn next(&self) -> Option<T> {
        self.0.lock().as_mut()?.pop_front()
    }

    /// Events that are left.
    pub(super) fn left(&self) -> usize {
        self.0.lock().as_ref().map_or(0, Chunk::len)
    }

    /// Takes all that is left.
    pub(super) fn take_rest(&self) -> Option<Chunk<T>> {
        self.0.lock().take()
    }
}
