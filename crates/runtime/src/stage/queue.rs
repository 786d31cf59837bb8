//! Hop 3, enqueue: the queue behind a stage. It comes in kinds; the one in memory is first in first out.
//! Before: `permits`. After: `instances`, which makes the tokens that are now due.
//!
//! Everything here runs under the stage's lock: no user code and no I/O. What a kind needs of an event
//! (its key, its encoding) is computed before.

use comporta_model::chunk::{Chunk, ChunkQueue, Slots};
use comporta_model::event::Meta;

/// The events of a stage that wait for a visit.
pub(crate) trait EventQueue<T>: Send {
    /// Events in it.
    fn len(&self) -> usize;

    /// Events that visits could take now: fewer than there are where some wait for others.
    fn takeable(&self) -> usize {
        self.len()
    }

    /// Adds events. Returns storage for the giver to go on with, from a free list if it is `short` of
    /// any.
    fn push(&mut self, meta: &Meta, slots: Slots<T>, short: bool) -> Slots<T>;

    /// Takes up to `max` events that share one `Meta`, from the given end. They need not be a prefix:
    /// what is taken together is what one visit may handle.
    fn take(&mut self, max: usize, from: Side) -> Option<Chunk<T>>;

    /// Puts back what a visit did not come to, where it was taken.
    fn put_back(&mut self, chunk: Chunk<T>, from: Side);

    /// What the oldest events share, and how many these are.
    fn oldest(&self) -> Option<(&Meta, usize)>;

    /// Keeps emptied storage for later use, up to a bound.
    fn recycle(&mut self, storage: Slots<T>);

    /// Somebody decides by how long its events have waited: those who come from now on are mixed less.
    fn set_guarded(&mut self, guarded: bool);
}

/// An end of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Oldest,
    Newest,
}

impl<T: Send> EventQueue<T> for ChunkQueue<T> {
    fn len(&self) -> usize {
        ChunkQueue::len(self)
    }

    fn push(&mut self, meta: &Meta, slots: Slots<T>, short: bool) -> Slots<T> {
        ChunkQueue::push(self, meta, slots, short)
    }

    fn take(&mut self, max: usize, from: Side) -> Option<Chunk<T>> {
        match from {
            Side::Oldest => self.pop(max),
            Side::Newest => self.pop_last(max),
        }
    }

    fn put_back(&mut self, chunk: Chunk<T>, from: Side) {
        match from {
            Side::Oldest => self.push_front(chunk),
            Side::Newest => self.push_last(chunk),
        }
    }

    fn oldest(&self) -> Option<(&Meta, usize)> {
        self.first().map(|chunk| (&chunk.meta, chunk.len()))
    }

    fn recycle(&mut self, storage: Slots<T>) {
        ChunkQueue::recycle(self, storage);
    }

    fn set_guarded(&mut self, guarded: bool) {
        ChunkQueue::set_guarded(self, guarded);
    }
}
