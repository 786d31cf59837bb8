//! A chunk: the unit in which events move from stage to stage, never copied on the way.
//! Each slot is an `Option`, so that a handler is lent the event in place and may take it.
//! Invariants: slots before `head` are spent; those from `head` on hold events, and a row of each column
//! each. Where a column tells what is owed for each event, what `meta` tells of it does not hold.
//! Long because of its tests.

use std::collections::VecDeque;
use std::mem::size_of;
use std::ops::Range;

use crate::ack::{Because, Fate};
use crate::column::{Columns, Cursor, Duties, Duty, join};
use crate::event::Meta;
use crate::keyed::LaneRef;

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
    columns: Columns,
    slots: Slots<T>,
    head: usize,
}

impl<T> Chunk<T> {
    /// A chunk of all that `slots` holds.
    #[must_use]
    pub fn new(meta: Meta, slots: Slots<T>) -> Self {
        Chunk { meta, columns: Columns::default(), slots, head: 0 }
    }

    /// A chunk of all that `slots` holds, with what each event carries of its own.
    #[inline]
    #[must_use]
    pub fn with_columns(mut meta: Meta, columns: Columns, slots: Slots<T>) -> Self {
        if columns.duties().is_some() {
            meta.duty = Duty::default();
        }
        Chunk { meta, columns, slots, head: 0 }
    }

    /// What each event carries of its own.
    #[inline]
    #[must_use]
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// As [`slots_mut`](Self::slots_mut), with what each event carries of its own.
    #[inline]
    pub fn parts_mut(&mut self) -> (&mut [Option<T>], &Columns) {
        (&mut self.slots[self.head..], &self.columns)
    }

    /// All of its events have ended.
    pub fn settle(&self, fate: Fate) {
        self.columns.for_duties(&self.meta.duty, self.len(), |duty, n| duty.settle(n, fate));
    }

    /// Whether nobody waits for any of its events, and none carries anything of its own.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.meta.duty.ack.is_none() && self.columns.is_none()
    }

    /// Whether somebody waits for any of its events.
    #[inline]
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.meta.duty.ack.is_some() || self.columns.duties().is_some()
    }

    /// Tells whoever waits why all of its events are about to end badly.
    pub fn because(&self, why: &Because<'_>) {
        self.columns.for_duties(&self.meta.duty, self.len(), |duty, _| duty.because(why));
    }

    /// As [`because`](Self::because), of these events.
    pub fn because_of(&self, events: Range<usize>, why: &Because<'_>) {
        let Some(duties) = self.columns.duties() else { return self.meta.duty.because(why) };
        let (mut at, mut cursor) = (events.start, Cursor::default());
        while at < events.end
            && let Some((duty, end)) = duties.at(at, &mut cursor)
        {
            duty.because(why);
            at = end;
        }
    }

    /// Takes out the events of whose duty `gone` is true; none if it is of none.
    pub fn remove_where(&mut self, mut gone: impl FnMut(&Duty) -> bool) -> Option<Chunk<T>> {
        let Some(duties) = self.columns.duties() else {
            let rest = Chunk::new(self.meta.clone(), Slots::new());
            return gone(&self.meta.duty).then(|| std::mem::replace(self, rest));
        };
        let runs: Vec<_> = duties.runs().map(|(duty, n)| (gone(duty), n)).collect();
        if runs.iter().all(|(gone, _)| !gone) {
            return None;
        }
        let empty =
            || Chunk::new(Meta { duty: Duty::default(), ..self.meta.clone() }, Slots::new());
        let (mut removed, mut kept) = (empty(), empty());
        for (gone, n) in runs {
            let (meta, columns, mut slots) = self.split_front(n, Slots::new()).into_parts();
            let into = if gone { &mut removed } else { &mut kept };
            into.append(&meta, columns, &mut slots);
        }
        *self = kept;
        Some(removed)
    }

    /// These events have ended, before the others.
    pub fn settle_some(&mut self, ended: Range<usize>, fate: Fate) {
        if self.meta.duty.ack.is_none() && self.columns.duties().is_none() {
            return; // nobody waits for any of them
        }
        let len = self.len();
        self.columns.spread(self.meta.duty.clone(), len);
        self.columns.settle_some(ended, fate);
    }

    /// What is owed for the first event, and for how many after it that is the same.
    #[must_use]
    pub fn first_duty(&self) -> (&Duty, usize) {
        let each = self.columns.duties().and_then(|duties| duties.first());
        each.unwrap_or((&self.meta.duty, self.len()))
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

    /// The events, to be lent one after the other; tell [`spend`](Self::spend) how many were spent.
    #[inline]
    pub fn slots_mut(&mut self) -> &mut [Option<T>] {
        &mut self.slots[self.head..]
    }

    /// The first `n` events are spent. Returns what is owed for them.
    pub fn spend(&mut self, n: usize) -> Duties {
        self.head += n;
        debug_assert!(self.head <= self.slots.len(), "spent more events than the chunk had");
        Duties::new(self.meta.duty.clone(), self.columns.split_front(n), n)
    }

    /// As [`spend`](Self::spend), where nothing is owed for them: the chunk is [plain](Self::is_plain).
    #[inline]
    pub fn skip(&mut self, n: usize) {
        self.head += n;
        debug_assert!(self.head <= self.slots.len(), "spent more events than the chunk had");
        debug_assert!(self.is_plain(), "something is owed for what is skipped");
    }

    /// Drops what it holds and takes this event in its place, if it is one, with what it carries.
    #[inline]
    pub fn reset(&mut self, next: Option<(T, Columns)>) {
        self.slots.clear();
        self.head = 0;
        self.columns = Columns::default();
        if let Some((event, columns)) = next {
            self.slots.push(Some(event));
            self.columns = columns;
        }
    }

    /// Takes the oldest event, and what it carries of its own.
    pub fn pop_front(&mut self) -> Option<(T, Columns)> {
        let event = self.slots.get_mut(self.head)?.take()?;
        self.head += 1;
        Some((event, self.columns.split_front(1)))
    }

    /// As [`pop_front`](Self::pop_front), of a chunk that is [plain](Self::is_plain); nothing of any other.
    #[inline]
    pub fn pop_plain(&mut self) -> Option<T> {
        if !self.is_plain() {
            return None;
        }
        let event = self.slots.get_mut(self.head)?.take()?;
        self.head += 1;
        Some(event)
    }

    /// Takes out the lanes of its events.
    #[must_use]
    pub fn take_lanes(&mut self) -> Vec<LaneRef> {
        self.columns.take_lanes()
    }

    /// Adds an event at the end, with what it carries of its own, if it carries anything.
    #[inline]
    pub fn push(&mut self, meta: &Meta, own: Option<Columns>, event: T) {
        if own.is_none() && self.columns.is_none() && self.meta.duty == meta.duty {
            self.meta.absorb(meta);
            self.slots.push(Some(event));
        } else {
            self.append(meta, own.unwrap_or_default(), &mut vec![Some(event)]);
        }
    }

    /// Adds an event at the end that shares everything with the others: its `Meta` has been added, and neither carries
    /// anything of its own.
    #[inline]
    pub fn push_alike(&mut self, event: T) {
        debug_assert!(self.columns.is_none(), "an event without a row beside rows");
        self.slots.push(Some(event));
    }

    /// Adds events at the end, leaving their storage empty.
    pub fn append(&mut self, meta: &Meta, mut columns: Columns, more: &mut Slots<T>) {
        let (len, n) = (self.len(), more.len());
        self.meta.absorb(meta);
        join(&mut self.meta.duty, &mut self.columns, len, meta.duty.clone(), &mut columns, n);
        self.columns.append(len, columns, n);
        self.slots.append(more);
    }

    /// Splits off the first `n` events into `into`, which must be empty storage.
    #[must_use]
    pub fn split_front(&mut self, n: usize, mut into: Slots<T>) -> Chunk<T> {
        into.extend(self.slots[self.head..self.head + n].iter_mut().map(Option::take));
        self.head += n;
        Chunk::with_columns(self.meta.clone(), self.columns.split_front(n), into)
    }

    /// Splits off the last `n` events into `into`, which must be empty storage.
    #[must_use]
    fn split_back(&mut self, n: usize, mut into: Slots<T>) -> Chunk<T> {
        into.extend(self.slots.drain(self.slots.len() - n..));
        let front = self.columns.split_front(self.len());
        let back = std::mem::replace(&mut self.columns, front);
        Chunk::with_columns(self.meta.clone(), back, into)
    }

    /// Its first `n` events as a chunk's storage, and what is owed for them. Slots that are empty stay
    /// so. The chunk keeps the rest.
    #[inline]
    #[must_use]
    pub fn take_front(&mut self, n: usize) -> (Slots<T>, Duties) {
        let duties = Duties::new(self.meta.duty.clone(), self.columns.split_front(n), n);
        (self.take_slots(n), duties)
    }

    /// As [`take_front`](Self::take_front), where nothing is owed for them: the chunk is [plain](Self::is_plain).
    #[inline]
    #[must_use]
    pub fn take_plain(&mut self, n: usize) -> Slots<T> {
        debug_assert!(self.is_plain(), "something is owed for what is taken");
        self.take_slots(n)
    }

    #[inline(always)]
    fn take_slots(&mut self, n: usize) -> Slots<T> {
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
        front
    }

    /// Takes the chunk, leaving an empty one without storage.
    #[must_use]
    pub fn take(&mut self) -> Chunk<T> {
        std::mem::replace(self, Chunk::new(Meta::default(), Slots::new()))
    }

    /// Whether its storage is worth keeping.
    #[inline]
    #[must_use]
    pub fn has_storage(&self) -> bool {
        self.slots.capacity() > 0
    }

    /// Takes its storage out, emptied: all of its events are spent.
    #[inline]
    #[must_use]
    pub fn take_storage(&mut self) -> Slots<T> {
        self.head = 0;
        let mut slots = std::mem::take(&mut self.slots);
        slots.clear();
        slots
    }

    /// Its storage, emptied.
    #[inline]
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

    /// Its parts, without what is spent.
    #[must_use]
    pub fn into_parts(mut self) -> (Meta, Columns, Slots<T>) {
        self.slots.drain(..self.head);
        (self.meta, self.columns, self.slots)
    }
}

/// The chunks of a queue, first in first out, with a bounded free list of storage.
/// Mostly a queue has one chunk at most, or few. So the first has a place of its own: it is filled and emptied where it is.
/// Invariant: `first` has no events, owes nothing and has no columns if the queue is empty; else it has some.
#[derive(Debug)]
pub struct ChunkQueue<T> {
    first: Chunk<T>,
    rest: VecDeque<Chunk<T>>,
    len: usize,
    spare: Vec<Slots<T>>,
    /// How far apart events of one chunk may have come to the queue.
    spread_ns: u64,
}

impl<T> Default for ChunkQueue<T> {
    fn default() -> Self {
        ChunkQueue {
            first: Chunk::new(Meta::default(), Slots::new()),
            rest: VecDeque::new(),
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
    pub fn push(
        &mut self,
        meta: &Meta,
        columns: Columns,
        mut slots: Slots<T>,
        short: bool,
    ) -> Slots<T> {
        let spread_ns = self.spread_ns;
        if let Some(tail) = self.last_mut()
            && slots.len() * 4 <= chunk_capacity::<T>()
            && tail.spare() >= slots.len()
            && tail.meta.mixes_with(meta, spread_ns)
        {
            let n = slots.len();
            tail.append(meta, columns, &mut slots);
            self.len += n;
            return slots;
        }
        self.add_last(Chunk::with_columns(meta.clone(), columns, slots));
        if short { self.storage() } else { Slots::new() }
    }

    /// As [`push`](Self::push), of events that carry nothing of their own; leaves the storage in their place.
    #[inline(always)]
    pub fn push_alike(&mut self, meta: &Meta, slots: &mut Slots<T>, short: bool) {
        if self.len > 0 || slots.is_empty() {
            *slots = self.push(meta, Columns::default(), std::mem::take(slots), short);
            return;
        }
        let Chunk { meta: into, slots: kept, head, .. } = &mut self.first;
        let Meta { ingress, enqueued, duty, tier, home } = meta;
        (into.ingress, into.enqueued, into.tier, into.home) = (*ingress, *enqueued, *tier, *home);
        into.duty.deadline = duty.deadline;
        if duty.ack.is_some() {
            into.duty.ack.clone_from(&duty.ack);
        }
        (self.len, *head) = (slots.len(), 0);
        std::mem::swap(kept, slots);
        if short && slots.capacity() == 0 {
            *slots = self.storage();
        }
    }

    /// The newest events that share one `Meta`.
    fn last_mut(&mut self) -> Option<&mut Chunk<T>> {
        match self.rest.back_mut() {
            None if self.len == 0 => None,
            None => Some(&mut self.first),
            last => last,
        }
    }

    /// Adds a chunk at the end that has events.
    fn add_last(&mut self, chunk: Chunk<T>) {
        self.len += chunk.len();
        if self.first.is_empty() {
            self.set_first(chunk);
        } else {
            self.rest.push_back(chunk);
        }
    }

    fn set_first(&mut self, chunk: Chunk<T>) {
        let before = std::mem::replace(&mut self.first, chunk);
        self.recycle(before.into_storage());
    }

    /// Takes the first chunk out.
    fn take_first(&mut self) -> Chunk<T> {
        self.len -= self.first.len();
        let next = self.rest.pop_front();
        let next = next.unwrap_or_else(|| Chunk::new(Meta::default(), Slots::new()));
        std::mem::replace(&mut self.first, next)
    }

    /// Puts a chunk back at the front.
    pub fn push_front(&mut self, chunk: Chunk<T>) {
        if chunk.is_empty() {
            self.recycle(chunk.into_storage());
            return;
        }
        self.len += chunk.len();
        if self.first.is_empty() {
            self.set_first(chunk);
        } else {
            let second = std::mem::replace(&mut self.first, chunk);
            self.rest.push_front(second);
        }
    }

    /// Takes up to `max` events that share one `Meta`: a whole chunk when it is no longer than that.
    #[inline]
    pub fn pop(&mut self, max: usize) -> Option<Chunk<T>> {
        if self.len == 0 {
            return None;
        }
        if self.first.len() <= max {
            return Some(self.take_first());
        }
        self.len -= max;
        let storage = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(max));
        Some(self.first.split_front(max, storage))
    }

    /// Moves up to `max` events of the first chunk into `into`, all of whose events are spent, if nothing is owed for any
    /// of them, and they carry nothing of their own; all of it or nothing, if `whole`. Returns how many.
    #[inline(always)]
    pub fn pop_free(&mut self, max: usize, whole: bool, into: &mut Chunk<T>) -> Option<usize> {
        debug_assert!(into.is_empty(), "the chunk is still in use");
        let first = &mut self.first;
        let n = first.len();
        if n == 0 || (whole && n > max) || !first.is_plain() || first.meta.duty.deadline.is_some() {
            return None;
        }
        if !into.is_plain() {
            into.columns = Columns::default();
            into.meta.duty.ack = None;
        }
        into.meta.duty.deadline = None;
        let Meta { ingress, enqueued, tier, home, .. } = first.meta;
        (into.meta.ingress, into.meta.enqueued) = (ingress, enqueued);
        (into.meta.tier, into.meta.home) = (tier, home);
        into.slots.clear();
        if n > max {
            self.split_into(max, into);
            return Some(max);
        }
        self.len -= n;
        std::mem::swap(&mut into.slots, &mut first.slots);
        (into.head, first.head) = (first.head, 0);
        if !self.rest.is_empty() {
            self.bring_up_next();
        }
        Some(n)
    }

    /// Moves the first `n` events into `into`, where nothing is owed for them. The first chunk has more.
    #[inline(never)]
    fn split_into(&mut self, n: usize, into: &mut Chunk<T>) {
        if into.slots.capacity() == 0 {
            into.slots = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(n));
        }
        let Chunk { slots, head, .. } = &mut self.first;
        into.slots.extend(slots[*head..*head + n].iter_mut().map(Option::take));
        into.head = 0;
        *head += n;
        self.len -= n;
    }

    /// The first chunk has been emptied, and there are others.
    fn bring_up_next(&mut self) {
        if let Some(next) = self.rest.pop_front() {
            self.set_first(next);
        }
    }

    /// Takes up to `max` of the newest events that share one `Meta`, in the order in which they came.
    pub fn pop_last(&mut self, max: usize) -> Option<Chunk<T>> {
        let n = self.last_mut()?.len();
        if n <= max {
            let Some(last) = self.rest.pop_back() else { return Some(self.take_first()) };
            self.len -= n;
            return Some(last);
        }
        self.len -= max;
        let storage = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(max));
        self.last_mut().map(|last| last.split_back(max, storage))
    }

    /// Puts a chunk back at the end.
    pub fn push_last(&mut self, chunk: Chunk<T>) {
        if chunk.is_empty() {
            self.recycle(chunk.into_storage());
        } else {
            self.add_last(chunk);
        }
    }

    /// The oldest events that share one `Meta`.
    #[inline]
    #[must_use]
    pub fn first(&self) -> Option<&Chunk<T>> {
        if self.len > 0 { Some(&self.first) } else { None }
    }

    /// Keeps emptied storage for later use, up to a bound.
    #[inline(always)] // each visit comes here
    pub fn recycle(&mut self, slots: Slots<T>) {
        debug_assert!(slots.is_empty(), "recycled storage holds events");
        if self.len == 0 && self.first.slots.capacity() == 0 {
            // Where the next giver finds it. There is nothing to drop.
            std::mem::forget(std::mem::replace(&mut self.first.slots, slots));
        } else {
            self.keep(slots);
        }
    }

    #[inline(never)]
    fn keep(&mut self, slots: Slots<T>) {
        if self.spare.len() < SPARE_MAX && slots.capacity() > 0 {
            self.spare.push(slots);
        }
    }

    /// Empty storage from the free list, or new storage that has allocated nothing.
    #[inline]
    #[must_use]
    pub fn storage(&mut self) -> Slots<T> {
        self.spare.pop().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::Column;
    use crate::event::Time;

    fn push(queue: &mut ChunkQueue<u32>, slots: Slots<u32>) -> Slots<u32> {
        queue.push(&Meta::default(), Columns::default(), slots, true)
    }

    #[test]
    fn a_chunk_is_popped_freely_only_if_nothing_is_owed_for_its_events() {
        let mut queue = ChunkQueue::default();
        let mut into = Chunk::new(Meta::default(), Vec::new());
        push(&mut queue, vec![Some(1), Some(2)]);
        assert_eq!(queue.pop_free(1, true, &mut into), None);
        assert_eq!(queue.pop_free(1, false, &mut into), Some(1));
        assert_eq!((queue.len(), into.pop_front().map(|(event, _)| event)), (1, Some(1)));
        assert_eq!(queue.pop_free(2, true, &mut into), Some(1));
        assert_eq!((queue.len(), into.into_events()), (0, vec![Some(2)]));
        let deadline = Duty { deadline: Some(Time::from_nanos(9)), ack: None };
        let owes = Meta { duty: deadline.clone(), ..Meta::default() };
        let mut slots = vec![Some(3)];
        queue.push_alike(&owes, &mut slots, false);
        let mut into = Chunk::new(owes, Vec::new()); // as a visit before left it
        assert_eq!(queue.pop_free(9, false, &mut into), None);
        queue.pop(9);
        let columns = Columns::of_duties(Column::same(deadline, 1));
        queue.push(&Meta::default(), columns, vec![Some(4)], false);
        assert_eq!(queue.pop_free(9, false, &mut into), None);
        queue.pop(9);
        queue.push_alike(&Meta::default(), &mut vec![Some(5)], false);
        assert_eq!(queue.pop_free(9, false, &mut into), Some(1));
        assert_eq!(into.meta.duty, Duty::default());
    }

    fn push_one(queue: &mut ChunkQueue<u32>, meta: &Meta, event: u32) {
        let mut slots = Vec::with_capacity(8);
        slots.push(Some(event));
        let _ = queue.push(meta, Columns::default(), slots, false);
    }

    fn drain(queue: &mut ChunkQueue<u32>, max: usize) -> Vec<u32> {
        let mut seen = Vec::new();
        while let Some(mut chunk) = queue.pop(max) {
            while let Some((event, _)) = chunk.pop_front() {
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
            push_one(&mut queue, &at(0), 1);
            push_one(&mut queue, &at(20_000), 2);
            push_one(&mut queue, &at(40_000), 3);
            push_one(&mut queue, &at(44_000), 4);
            std::iter::from_fn(|| queue.pop(1)).map(|one| one.meta.enqueued).collect::<Vec<_>>()
        };
        assert_eq!(waits(false), [0; 4].map(Time::from_nanos));
        assert_eq!(waits(true), [0, 20_000, 40_000, 40_000].map(Time::from_nanos));
    }

    #[test]
    fn few_events_join_the_last_chunk_and_many_travel_whole() {
        let mut queue = ChunkQueue::default();
        let mut first = Vec::with_capacity(256);
        first.extend((0..100).map(Some));
        let _ = push(&mut queue, first);
        let returned = push(&mut queue, vec![Some(100)]);
        assert_eq!((returned.capacity(), queue.rest.len()), (1, 0));
        let _ = push(&mut queue, (101..300).map(Some).collect());
        assert_eq!((queue.rest.len(), queue.len()), (1, 300));
        assert_eq!(drain(&mut queue, 7), (0..300).collect::<Vec<_>>());
        assert!(queue.is_empty());
    }

    #[test]
    fn what_is_put_back_comes_first() {
        let mut queue = ChunkQueue::default();
        for event in 0..5 {
            push_one(&mut queue, &Meta::default(), event);
        }
        let mut chunk = queue.pop(3).unwrap();
        let _ = chunk.spend(1);
        queue.push_front(chunk);
        assert_eq!(queue.len(), 4);
        assert_eq!(drain(&mut queue, 2), [1, 2, 3, 4]);
    }

    #[test]
    fn the_newest_are_taken_from_the_end_and_can_be_put_back_there() {
        let mut queue = ChunkQueue::default();
        let _ = push(&mut queue, (0..6).map(Some).collect());
        let mut newest = queue.pop_last(3).unwrap();
        assert_eq!(
            (newest.pop_front().map(|(n, _)| n), newest.len(), queue.len()),
            (Some(3), 2, 3)
        );
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
        push_one(&mut queue, &Meta::default(), 1);
        push_one(&mut queue, &Meta { tier: 1, ..Meta::default() }, 2);
        assert_eq!(queue.pop(9).unwrap().len(), 1);
    }

    fn due(ns: u64) -> Meta {
        let deadline = Some(Time::from_nanos(ns));
        Meta { duty: Duty { deadline, ack: None }, ..Meta::default() }
    }

    fn deadlines(chunk: &Chunk<u32>) -> Vec<u64> {
        let mut seen = Vec::new();
        chunk.columns().for_duties(&chunk.meta.duty, chunk.len(), |duty, n| {
            seen.extend(std::iter::repeat_n(duty.deadline.map_or(0, Time::as_nanos), n));
        });
        seen
    }

    #[test]
    fn events_that_owe_different_things_share_a_chunk_and_each_keeps_its_own() {
        let mut queue = ChunkQueue::default();
        for (event, ns) in [(1, 0), (2, 5), (3, 5), (4, 9)] {
            let meta = if ns == 0 { Meta::default() } else { due(ns) };
            push_one(&mut queue, &meta, event);
        }
        let mut last = queue.pop_last(1).unwrap();
        assert_eq!((deadlines(&last), last.pop_front().map(|(n, _)| n)), (vec![9], Some(4)));
        let mut chunk = queue.pop(9).unwrap();
        assert_eq!((deadlines(&chunk), chunk.first_duty().1), (vec![0, 5, 5], 1));
        assert_eq!(chunk.meta.duty, Duty::default());
        let _ = chunk.spend(1);
        assert_eq!((deadlines(&chunk), chunk.first_duty().1), (vec![5, 5], 2));
        queue.push_front(chunk);
        push_one(&mut queue, &due(7), 5);
        let first = queue.pop(1).unwrap();
        assert_eq!(deadlines(&first), [5]);
        assert_eq!(deadlines(&queue.pop(9).unwrap()), [5, 7]);
    }

    #[test]
    fn events_that_owe_the_same_need_no_column() {
        let mut queue = ChunkQueue::default();
        push_one(&mut queue, &due(5), 1);
        push_one(&mut queue, &due(5), 2);
        let chunk = queue.pop(9).unwrap();
        assert!(chunk.columns().is_none());
        assert_eq!((chunk.len(), deadlines(&chunk)), (2, vec![5, 5]));
    }

    #[test]
    fn events_are_taken_out_by_what_is_owed_for_them_and_the_rest_keep_their_rows() {
        use crate::column::Column;
        let duty = |ns| Duty { deadline: Some(Time::from_nanos(ns)), ack: None };
        let mut duties = Column::default();
        for (ns, n) in [(1, 2), (2, 1), (1, 1), (3, 2)] {
            duties.extend(duty(ns), n);
        }
        let slots = (0..6).map(Some).collect();
        let mut chunk = Chunk::with_columns(Meta::default(), Columns::of_duties(duties), slots);
        assert!(chunk.remove_where(|duty| duty.deadline.is_none()).is_none());
        let removed = chunk.remove_where(|owed| *owed == duty(1)).unwrap();
        assert_eq!(removed.into_events(), [Some(0), Some(1), Some(3)]);
        let rows: Vec<_> =
            chunk.columns().duties().unwrap().runs().map(|(d, n)| (d.clone(), n)).collect();
        assert_eq!(rows, [(duty(2), 1), (duty(3), 2)]);
        assert_eq!(chunk.into_events(), [Some(2), Some(4), Some(5)]);
        let mut alike = Chunk::new(Meta { duty: duty(1), ..Meta::default() }, vec![Some(7)]);
        assert_eq!(alike.remove_where(|owed| *owed == duty(1)).unwrap().len(), 1);
        assert!(alike.is_empty());
    }
}
