//! A chunk: the unit in which events move from stage to stage, never copied on the way.
//! Each slot is an `Option`, so that a handler is lent the event in place and may take it.
//! Invariant: slots before `head` are spent; those from `head` on hold events.

use std::collections::VecDeque;
use std::mem::size_of;

use crate::event::Meta;

/// The storage of a chunk, used again and again.
pub type Slots<T> = Vec<Option<T>>;

/// How many events of type `T` a chunk holds: as many as fill 64 KiB, at least 8 and at most 512,
/// which is a visit's greatest batch.
#[must_use]
pub const fn chunk_capacity<T>() -> usize {
    let by_size = 64 * 1024 / if size_of::<Option<T>>() == 0 { 1 } else { size_of::<Option<T>>() };
    if by_size < 8 {
        8
    } else if by_size > 512 {
        512
    } else {
        by_size
    }
}

/// Events that travel together, with what they share.
#[derive(Debug)]
pub struct Chunk<T> {
    /// What they share.
    pub meta: Meta,
    slots: Slots<T>,
    head: usize,
}

impl<T> Chunk<T> {
    /// A chunk of all that `slots` holds.
    #[must_use]
    pub fn new(meta: Meta, slots: Slots<T>) -> Self {
        Chunk { meta, slots, head: 0 }
    }

    /// Events in it.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.head
    }

    /// Whether it has none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.slots.len()
    }

    /// Places left before its storage would have to grow.
    #[inline]
    #[must_use]
    pub fn spare(&self) -> usize {
        self.slots.capacity() - self.slots.len()
    }

    /// The events, to be lent one after the other; tell [`advance`](Self::advance) how many were spent.
    #[inline]
    pub fn slots_mut(&mut self) -> &mut [Option<T>] {
        &mut self.slots[self.head..]
    }

    /// The first `n` events are spent.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        self.head += n;
        debug_assert!(self.head <= self.slots.len(), "spent more events than the chunk had");
    }

    /// Adds an event at the end.
    #[inline]
    pub fn push(&mut self, event: T) {
        self.slots.push(Some(event));
    }

    /// Drops what it holds and takes this event in its place, if it is one.
    #[inline]
    pub fn reset(&mut self, event: Option<T>) {
        self.slots.clear();
        self.head = 0;
        self.slots.extend(event.map(Some));
    }

    /// Takes the oldest event.
    pub fn pop_front(&mut self) -> Option<T> {
        let event = self.slots.get_mut(self.head)?.take();
        self.head += 1;
        event
    }

    /// Takes the newest event.
    pub fn pop_back(&mut self) -> Option<T> {
        if self.is_empty() { None } else { self.slots.pop().flatten() }
    }

    /// Moves all of `more` to the end, leaving it empty with its storage.
    pub fn append(&mut self, more: &mut Slots<T>) {
        self.slots.append(more);
    }

    /// Splits off the first `n` events into `into`, which must be empty storage.
    #[must_use]
    pub fn split_front(&mut self, n: usize, mut into: Slots<T>) -> Chunk<T> {
        into.extend(self.slots[self.head..self.head + n].iter_mut().map(Option::take));
        self.head += n;
        Chunk::new(self.meta.clone(), into)
    }

    /// Its first `n` events as a chunk's storage, without the slots that are empty. The chunk keeps
    /// the rest.
    #[must_use]
    pub fn take_front(&mut self, n: usize, holes: bool) -> Slots<T> {
        let mut front = if n == self.len() {
            std::mem::take(&mut self.slots)
        } else {
            let rest = self.slots.split_off(self.head + n);
            std::mem::replace(&mut self.slots, rest)
        };
        if self.head > 0 {
            front.drain(..self.head);
            self.head = 0;
        }
        if holes {
            front.retain(Option::is_some);
        }
        front
    }

    /// Its storage, emptied.
    #[must_use]
    pub fn into_storage(mut self) -> Slots<T> {
        self.slots.clear();
        self.slots
    }

    /// Its events, without those spent.
    #[must_use]
    pub fn into_events(mut self) -> Slots<T> {
        self.slots.drain(..self.head);
        self.slots
    }
}

/// The chunks of a queue, first in first out, with a bounded free list of storage.
#[derive(Debug)]
pub struct ChunkQueue<T> {
    chunks: VecDeque<Chunk<T>>,
    len: usize,
    spare: Vec<Slots<T>>,
    /// How far apart events of one chunk may have come to the queue.
    spread_ns: u64,
}

impl<T> Default for ChunkQueue<T> {
    fn default() -> Self {
        ChunkQueue {
            chunks: VecDeque::new(),
            len: 0,
            spare: Vec::new(),
            spread_ns: Meta::INGRESS_SPREAD_NS,
        }
    }
}

/// Storage kept by an emptied queue: one chunk read while one is written, and one each way in transit.
const SPARE_MAX: usize = 4;

impl<T> ChunkQueue<T> {
    /// Events in it.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether somebody decides by how long its events have waited: those who come from now on are
    /// mixed less.
    pub fn set_guarded(&mut self, guarded: bool) {
        self.spread_ns = if guarded { Meta::GUARDED_SPREAD_NS } else { Meta::INGRESS_SPREAD_NS };
    }

    /// Adds events at the end: into the last chunk where few fit there (so that memory stays near
    /// what is queued), else as a chunk of their own. Returns storage for the giver to go on with,
    /// from the free list if it is `short` of any.
    pub fn push(&mut self, meta: &Meta, mut slots: Slots<T>, short: bool) -> Slots<T> {
        self.len += slots.len();
        if let Some(tail) = self.chunks.back_mut()
            && slots.len() * 4 <= chunk_capacity::<T>()
            && tail.spare() >= slots.len()
            && tail.meta.mixes_with(meta, self.spread_ns)
        {
            tail.meta.absorb(meta);
            tail.append(&mut slots);
            return slots;
        }
        self.chunks.push_back(Chunk::new(meta.clone(), slots));
        if short { self.storage() } else { Slots::new() }
    }

    /// Adds one event at the end.
    pub fn push_one(&mut self, meta: &Meta, event: T) {
        self.len += 1;
        if let Some(tail) = self.chunks.back_mut()
            && tail.spare() > 0
            && tail.meta.mixes_with(meta, self.spread_ns)
        {
            tail.meta.absorb(meta);
            tail.push(event);
            return;
        }
        let mut slots = self.storage();
        // A lone event must not cost a whole chunk: most queues of a large graph hold few events.
        if slots.capacity() == 0 {
            slots.reserve_exact(4);
        }
        slots.push(Some(event));
        self.chunks.push_back(Chunk::new(meta.clone(), slots));
    }

    /// Puts a chunk back at the front.
    pub fn push_front(&mut self, chunk: Chunk<T>) {
        if chunk.is_empty() {
            self.recycle(chunk.into_storage());
        } else {
            self.len += chunk.len();
            self.chunks.push_front(chunk);
        }
    }

    /// Takes up to `max` events that share one `Meta`: a whole chunk when it is no longer than that.
    pub fn pop(&mut self, max: usize) -> Option<Chunk<T>> {
        let front = self.chunks.front_mut()?;
        if front.len() <= max {
            self.len -= front.len();
            return self.chunks.pop_front();
        }
        self.len -= max;
        let storage = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(max));
        self.chunks.front_mut().map(|front| front.split_front(max, storage))
    }

    /// Takes up to `max` of the newest events that share one `Meta`, in the order in which they came.
    pub fn pop_last(&mut self, max: usize) -> Option<Chunk<T>> {
        let back = self.chunks.back_mut()?;
        if back.len() <= max {
            self.len -= back.len();
            return self.chunks.pop_back();
        }
        self.len -= max;
        let mut storage = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(max));
        let back = self.chunks.back_mut()?;
        storage.extend(back.slots.drain(back.slots.len() - max..));
        Some(Chunk::new(back.meta.clone(), storage))
    }

    /// Puts a chunk back at the end.
    pub fn push_last(&mut self, chunk: Chunk<T>) {
        if chunk.is_empty() {
            self.recycle(chunk.into_storage());
        } else {
            self.len += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    /// Takes the oldest event and what travelled with it.
    pub fn pop_oldest(&mut self) -> Option<(Meta, T)> {
        self.pop_end(VecDeque::front_mut, Chunk::pop_front, VecDeque::pop_front)
    }

    /// Takes the newest event and what travelled with it.
    pub fn pop_newest(&mut self) -> Option<(Meta, T)> {
        self.pop_end(VecDeque::back_mut, Chunk::pop_back, VecDeque::pop_back)
    }

    fn pop_end(
        &mut self,
        end: impl FnOnce(&mut VecDeque<Chunk<T>>) -> Option<&mut Chunk<T>>,
        take: impl FnOnce(&mut Chunk<T>) -> Option<T>,
        remove: impl FnOnce(&mut VecDeque<Chunk<T>>) -> Option<Chunk<T>>,
    ) -> Option<(Meta, T)> {
        let chunk = end(&mut self.chunks)?;
        let event = take(chunk)?;
        let meta = chunk.meta.clone();
        self.len -= 1;
        if chunk.is_empty()
            && let Some(spent) = remove(&mut self.chunks)
        {
            self.recycle(spent.into_storage());
        }
        Some((meta, event))
    }

    /// When the oldest event entered the program.
    #[must_use]
    pub fn oldest(&self) -> Option<&Meta> {
        self.chunks.front().map(|chunk| &chunk.meta)
    }

    /// The oldest events that share one `Meta`.
    #[must_use]
    pub fn first(&self) -> Option<&Chunk<T>> {
        self.chunks.front()
    }

    /// Keeps emptied storage for later use, up to a bound.
    pub fn recycle(&mut self, slots: Slots<T>) {
        if self.spare.len() < SPARE_MAX && slots.capacity() > 0 {
            debug_assert!(slots.is_empty(), "recycled storage holds events");
            self.spare.push(slots);
        }
    }

    /// Empty storage from the free list, or new storage that has allocated nothing.
    #[must_use]
    pub fn storage(&mut self) -> Slots<T> {
        self.spare.pop().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Time;

    fn drain(queue: &mut ChunkQueue<u32>, max: usize) -> Vec<u32> {
        let mut seen = Vec::new();
        while let Some(mut chunk) = queue.pop(max) {
            while let Some(event) = chunk.pop_front() {
                seen.push(event);
            }
            queue.recycle(chunk.into_storage());
        }
        seen
    }

    #[test]
    fn a_guarded_queue_does_not_take_an_event_for_as_old_as_the_one_before() {
        let at = |ns| Meta { enqueued: Time::from_nanos(ns), ..Meta::default() };
        let waits = |guarded| {
            let mut queue = ChunkQueue::default();
            queue.set_guarded(guarded);
            queue.push_one(&at(0), 1);
            queue.push_one(&at(20_000), 2);
            queue.push_one(&at(40_000), 3);
            queue.push_one(&at(44_000), 4);
            std::iter::from_fn(|| queue.pop(1)).map(|one| one.meta.enqueued).collect::<Vec<_>>()
        };
        assert_eq!(waits(false), [0; 4].map(Time::from_nanos));
        assert_eq!(waits(true), [0, 20_000, 40_000, 40_000].map(Time::from_nanos));
    }

    #[test]
    fn few_events_join_the_last_chunk_and_many_travel_whole() {
        let mut queue = ChunkQueue::default();
        let meta = Meta::default();
        let mut first = Vec::with_capacity(256);
        first.extend((0..100).map(Some));
        let _ = queue.push(&meta, first, true);
        let returned = queue.push(&meta, vec![Some(100)], true);
        assert_eq!((returned.capacity(), queue.chunks.len()), (1, 1));
        let _ = queue.push(&meta, (101..300).map(Some).collect(), true);
        assert_eq!((queue.chunks.len(), queue.len()), (2, 300));
        assert_eq!(drain(&mut queue, 7), (0..300).collect::<Vec<_>>());
        assert!(queue.is_empty());
    }

    #[test]
    fn what_is_put_back_comes_first() {
        let mut queue = ChunkQueue::default();
        for event in 0..5 {
            queue.push_one(&Meta::default(), event);
        }
        let mut chunk = queue.pop(3).unwrap();
        chunk.advance(1);
        queue.push_front(chunk);
        assert_eq!(queue.len(), 4);
        assert_eq!(queue.pop_newest().unwrap().1, 4);
        assert_eq!(drain(&mut queue, 2), [1, 2, 3]);
    }

    #[test]
    fn the_newest_are_taken_from_the_end_and_can_be_put_back_there() {
        let mut queue = ChunkQueue::default();
        let _ = queue.push(&Meta::default(), (0..6).map(Some).collect(), true);
        let mut newest = queue.pop_last(3).unwrap();
        assert_eq!((newest.pop_front(), newest.len(), queue.len()), (Some(3), 2, 3));
        queue.push_last(newest);
        assert_eq!(queue.len(), 5);
        let last = queue.pop_last(9).unwrap();
        assert_eq!((last.len(), queue.len()), (2, 3));
        assert_eq!(queue.first().unwrap().len(), 3);
        assert_eq!(drain(&mut queue, 9), [0, 1, 2]);
        assert!(queue.pop_last(1).is_none());
    }

    #[test]
    fn events_of_different_tiers_never_share_a_chunk() {
        let mut queue = ChunkQueue::default();
        queue.push_one(&Meta::default(), 1);
        queue.push_one(&Meta { tier: 1, ..Meta::default() }, 2);
        assert_eq!(queue.pop(9).unwrap().len(), 1);
    }

    #[test]
    fn events_of_different_groups_never_share_a_chunk() {
        let mut queue = ChunkQueue::default();
        let late = Meta { deadline: Some(crate::event::Time::from_nanos(5)), ..Meta::default() };
        queue.push_one(&Meta::default(), 1);
        queue.push_one(&late, 2);
        assert_eq!(queue.pop(9).unwrap().len(), 1);
        assert_eq!(queue.pop(9).unwrap().meta.deadline, late.deadline);
    }
}
