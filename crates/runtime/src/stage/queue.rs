//! Hop 3, enqueue: the queue behind a stage. It comes in kinds: the usual one is first in first out, that of a keyed
//! stage has lanes (`lanes`). Before: `permits`. After: `instances`, which makes the tokens that are now due.
//!
//! Everything here runs under the stage's lock: no user code and no I/O. What a kind needs of an event
//! (its key, its encoding) is computed before.
//!
//! A turn is over when its instance is idle again: not while an event waits to be retried, nor while results
//! wait in an outbox, where those of the next visit to the same lane would overtake them; nor while its event is
//! in flight. Events that are shed
//! or cancelled are removed, not taken, because a lane with a visit gives no turns.

use comporta_model::chunk::{Chunk, ChunkQueue, Slots};
use comporta_model::column::{Columns, Duty};
use comporta_model::event::{Meta, Time};

use super::lanes::LanesAsked;

/// The events of a stage that wait for a visit.
pub(crate) trait EventQueue<T>: Send {
    /// Events in it.
    fn len(&self) -> usize;

    /// Visits that could be made now, of `stride` events each: fewer where some events wait for others.
    fn visits(&self, stride: usize) -> usize {
        let len = self.len();
        if len <= stride { usize::from(len > 0) } else { len.div_ceil(stride) }
    }

    /// Adds events, with what each carries of its own. Returns storage for the giver to go on with, from a
    /// free list if it is `short` of any.
    fn push(&mut self, meta: &Meta, columns: Columns, slots: Slots<T>, short: bool) -> Slots<T>;

    /// Takes events that share one `Meta`. They need not be a prefix: what is taken together is what one visit
    /// may handle.
    fn take(&mut self, want: Want) -> Option<Taken<T>>;

    /// Takes out up to `max` events that end here, from the given end: shed, or cancelled by a stop. Those
    /// that wait for others can be removed too.
    fn remove(&mut self, max: usize, from: Side) -> Option<Chunk<T>>;

    /// As [`remove`](Self::remove), of those that [`oldest`](Self::oldest) shows.
    fn remove_oldest(&mut self, max: usize) -> Option<Chunk<T>> {
        self.remove(max, Side::Oldest)
    }

    /// A visit is over, and with it what others waited for: all it took has settled or was put back, and
    /// all it sent has entered the next queue.
    fn done(&mut self, turn: Turn) {
        let _ = turn;
    }

    /// Puts back what a visit did not come to, where it was taken: the last of the events that it has.
    fn put_back(&mut self, chunk: Chunk<T>, from: Side, turn: Turn);

    /// The oldest events, as far as they share everything.
    fn oldest(&self) -> Option<Oldest<'_>>;

    /// Keeps emptied storage for later use, up to a bound.
    fn recycle(&mut self, storage: Slots<T>);

    /// Somebody decides by how long its events have waited: those who come from now on are mixed less.
    fn set_guarded(&mut self, guarded: bool);

    /// Whether there is nothing to do beside handling events: no timer is due, and nobody outside has the
    /// state of a key.
    fn is_at_rest(&self) -> bool {
        true
    }

    /// The queue, if it has lanes.
    fn as_lanes(&mut self) -> Option<&mut dyn LanesAsked<T>> {
        None
    }
}

/// What a visit wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    /// So many events at most.
    pub(crate) max: usize,
    pub(crate) from: Side,
    /// Visits that could be made at once, this one among them: each should have its share.
    pub(crate) side_by_side: usize,
    pub(crate) now: Time,
}

/// What a visit takes.
pub(crate) struct Taken<T> {
    pub(crate) chunk: Chunk<T>,
    pub(crate) turn: Turn,
    /// Which try at the first event this is.
    pub(crate) attempt: u32,
}

/// The oldest events of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Oldest<'a> {
    pub(crate) meta: &'a Meta,
    pub(crate) duty: &'a Duty,
    pub(crate) n: usize,
}

/// By which a queue knows a visit again that it has to hear of; queues that need not do with the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Turn(pub(crate) u32);

/// An end of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Oldest,
    Newest,
}

/// The queue of a stage. The usual kind is called without a table of functions: every visit calls it eight times,
/// and most of these calls do less than the call costs.
pub(crate) enum StageQueue<T> {
    Fifo(ChunkQueue<T>),
    Other(Box<dyn EventQueue<T>>),
}

/// Calls what is behind it.
macro_rules! behind {
    ($queue:expr, $call:ident($($arg:expr),*)) => {
        match $queue {
            StageQueue::Fifo(queue) => EventQueue::$call(queue, $($arg),*),
            StageQueue::Other(queue) => queue.$call($($arg),*),
        }
    };
}

/// As those of [`EventQueue`].
impl<T: Send + 'static> StageQueue<T> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        behind!(self, len())
    }

    #[inline]
    pub(crate) fn visits(&self, stride: usize) -> usize {
        behind!(self, visits(stride))
    }

    #[inline]
    pub(crate) fn push(
        &mut self,
        meta: &Meta,
        columns: Columns,
        slots: Slots<T>,
        short: bool,
    ) -> Slots<T> {
        behind!(self, push(meta, columns, slots, short))
    }

    /// As [`push`](Self::push), of events that carry nothing of their own; leaves the storage in their place.
    #[inline(always)]
    pub(crate) fn push_alike(&mut self, meta: &Meta, slots: &mut Slots<T>, short: bool) {
        match self {
            StageQueue::Fifo(queue) => queue.push_alike(meta, slots, short),
            StageQueue::Other(queue) => {
                *slots = queue.push(meta, Columns::default(), std::mem::take(slots), short);
            }
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, want: Want) -> Option<Taken<T>> {
        behind!(self, take(want))
    }

    pub(crate) fn remove(&mut self, max: usize, from: Side) -> Option<Chunk<T>> {
        behind!(self, remove(max, from))
    }

    pub(crate) fn remove_oldest(&mut self, max: usize) -> Option<Chunk<T>> {
        behind!(self, remove_oldest(max))
    }

    pub(crate) fn done(&mut self, turn: Turn) {
        behind!(self, done(turn));
    }

    pub(crate) fn put_back(&mut self, chunk: Chunk<T>, from: Side, turn: Turn) {
        behind!(self, put_back(chunk, from, turn));
    }

    #[inline]
    pub(crate) fn oldest(&self) -> Option<Oldest<'_>> {
        behind!(self, oldest())
    }

    #[inline]
    pub(crate) fn recycle(&mut self, storage: Slots<T>) {
        behind!(self, recycle(storage));
    }

    pub(crate) fn set_guarded(&mut self, guarded: bool) {
        behind!(self, set_guarded(guarded));
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        behind!(self, is_at_rest())
    }

    #[inline]
    pub(crate) fn as_lanes(&mut self) -> Option<&mut dyn LanesAsked<T>> {
        behind!(self, as_lanes())
    }
}

impl<T: Send> EventQueue<T> for ChunkQueue<T> {
    #[inline]
    fn len(&self) -> usize {
        ChunkQueue::len(self)
    }

    #[inline]
    fn push(&mut self, meta: &Meta, columns: Columns, slots: Slots<T>, short: bool) -> Slots<T> {
        ChunkQueue::push(self, meta, columns, slots, short)
    }

    #[inline]
    fn take(&mut self, want: Want) -> Option<Taken<T>> {
        let chunk = self.remove(want.max, want.from)?;
        Some(Taken { chunk, turn: Turn::default(), attempt: 1 })
    }

    #[inline]
    fn remove(&mut self, max: usize, from: Side) -> Option<Chunk<T>> {
        match from {
            Side::Oldest => self.pop(max),
            Side::Newest => self.pop_last(max),
        }
    }

    fn put_back(&mut self, chunk: Chunk<T>, from: Side, _: Turn) {
        match from {
            Side::Oldest => self.push_front(chunk),
            Side::Newest => self.push_last(chunk),
        }
    }

    fn oldest(&self) -> Option<Oldest<'_>> {
        self.first().map(|chunk| {
            let (duty, n) = chunk.first_duty();
            Oldest { meta: &chunk.meta, duty, n }
        })
    }

    fn recycle(&mut self, storage: Slots<T>) {
        ChunkQueue::recycle(self, storage);
    }

    fn set_guarded(&mut self, guarded: bool) {
        ChunkQueue::set_guarded(self, guarded);
    }
}
