//! The events of a keyed stage: each stands in the chain of its lane, and has a number by which all events are ordered by
//! age. Used by `mod.rs`, which knows the lanes.
//!
//! Only those who shed want events by age, and they are few: a list of all events by age is made when it is first asked
//! for, and kept until no event is left. It may name events that have gone, no more than there are others.
//! Invariant: an entry has an event and stands in the chain of its lane, or is free.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use comporta_model::chunk::{Chunk, Slots};
use comporta_model::column::Columns;
use comporta_model::event::{Meta, Time};
use comporta_model::keyed::LaneRef;

use super::Oldest;
use crate::stage::queue::Side;

/// Storage kept for visits.
const SPARE_MAX: usize = 4;

/// A place in a table, as small as it can be.
#[inline]
fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 events")
}

/// An entry, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At(NonZeroU32);

impl At {
    fn new(index: usize) -> Self {
        let number = u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
        At(number.expect("fewer than 2^32 events"))
    }

    #[inline]
    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The ends of a chain of events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain {
    first: Option<At>,
    last: Option<At>,
    len: u32,
}

impl Chain {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(super) fn first(&self) -> Option<At> {
        self.first
    }
}

/// An event that waits.
struct Entry<T> {
    event: Option<T>,
    /// Its lane, for the visit that handles it, and where that has its place.
    lane: Option<LaneRef>,
    place: u32,
    meta: u32,
    /// The watermark that it found.
    mark: Time,
    age: Age,
    /// What it carries of its own beside its lane.
    own: Option<Box<Columns>>,
    /// Its neighbours in its lane. Of a free entry, `after` is the next free one.
    before: Option<At>,
    after: Option<At>,
}

/// Orders events by age: the older, the less. No two events ever have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Age(i64);

impl Age {
    /// Of an event that came so many after this.
    #[inline]
    pub(super) fn after(self, n: u32) -> Self {
        Age(self.0 + i64::from(n))
    }
}

/// How many events that have gone the list by age may name before it is looked through, beside as many as are left.
const GONE_MAX: usize = 64;

/// What events share that came together, and how many of them are left.
struct Shared {
    meta: Meta,
    events: usize,
}

/// An event that left its lane.
pub(super) struct Unlinked {
    pub(super) lane: Option<LaneRef>,
    /// The watermark that it found.
    pub(super) mark: Time,
}

/// What an event that waits comes with.
pub(super) struct With {
    pub(super) lane: Option<LaneRef>,
    pub(super) meta: MetaAt,
    /// What it carries of its own beside its lane.
    pub(super) own: Option<Columns>,
    /// The watermark that it found.
    pub(super) mark: Time,
}

/// What events share, by number.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetaAt(u32);

/// All events of the lanes of a stage.
pub(super) struct Events<T> {
    entries: Vec<Entry<T>>,
    free: Option<At>,
    len: usize,
    /// The greatest age so far, and the least: of events that were put back.
    newest: Age,
    oldest: Age,
    by_age: Option<VecDeque<(Age, At)>>,
    /// The list by age is kept when no events are left, too.
    keeps_by_age: bool,
    metas: Vec<Shared>,
    metas_free: Vec<u32>,
    /// What the chunk has that is being filled: events that share this need not be looked at.
    mixed: Option<u32>,
    spare: Vec<Slots<T>>,
}

impl<T> Default for Events<T> {
    fn default() -> Self {
        Events {
            entries: Vec::new(),
            free: None,
            len: 0,
            newest: Age::default(),
            oldest: Age::default(),
            by_age: None,
            keeps_by_age: false,
            metas: Vec::new(),
            metas_free: Vec::new(),
            mixed: None,
            spare: Vec::new(),
        }
    }
}

impl<T> Events<T> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where the lane of an event has its place.
    pub(super) fn place(&self, at: At) -> usize {
        self.entries[at.index()].place as usize
    }

    /// The watermark that an event found.
    #[inline]
    pub(super) fn mark(&self, at: At) -> Time {
        self.entries[at.index()].mark
    }

    /// What an event shares with others.
    #[inline]
    pub(super) fn meta(&self, at: At) -> &Meta {
        &self.metas[self.entries[at.index()].meta as usize].meta
    }

    /// Whether an event shares with others what the chunk has that is being filled.
    #[inline]
    pub(super) fn is_alike(&self, at: At) -> bool {
        self.mixed == Some(self.entries[at.index()].meta)
    }

    /// What is known of an event that waits.
    pub(super) fn look(&self, at: At) -> Oldest<'_> {
        let (meta, own) = (self.meta(at), &self.entries[at.index()].own);
        let duty = own.as_ref().and_then(|own| own.duties()).and_then(|duties| duties.first());
        Oldest { meta, duty: duty.map_or(&meta.duty, |(duty, _)| duty), n: 1 }
    }

    // --- what events share

    /// Notes what events share that come next; [`close`](Self::close) it when they have come.
    pub(super) fn open(&mut self, meta: &Meta) -> MetaAt {
        let shared = Shared { meta: meta.clone(), events: 1 };
        self.mixed = None;
        MetaAt(match self.metas_free.pop() {
            Some(at) => {
                self.metas[at as usize] = shared;
                at
            }
            None => {
                self.metas.push(shared);
                number(self.metas.len() - 1)
            }
        })
    }

    pub(super) fn close(&mut self, meta: MetaAt) {
        self.unshare(meta.0);
    }

    #[inline]
    fn unshare(&mut self, meta: u32) {
        let shared = &mut self.metas[meta as usize];
        shared.events -= 1;
        if shared.events == 0 {
            shared.meta.duty = Default::default(); // nobody waits for what is over
            self.metas_free.push(meta);
        }
    }

    // --- chains

    /// The age of the first of `n` events that come now.
    #[inline]
    pub(super) fn ages(&mut self, n: usize) -> Age {
        let first = Age(self.newest.0 + 1);
        self.newest.0 += n as i64;
        first
    }

    /// Puts an event at the end of its lane, and of all events.
    #[inline]
    pub(super) fn link_last(
        &mut self,
        (place, chain): (usize, &mut Chain),
        event: T,
        with: With,
        age: Age,
    ) {
        let new = self.insert(place, event, with, age, (chain.last, None));
        match chain.last.replace(new) {
            Some(before) => self.entries[before.index()].after = Some(new),
            None => chain.first = Some(new),
        }
        chain.len += 1;
        if let Some(by_age) = &mut self.by_age {
            by_age.push_back((age, new));
        }
    }

    /// Puts an event at the beginning of its lane, and of all events.
    pub(super) fn link_first(&mut self, to: (usize, &mut Chain), event: T, with: With) {
        self.oldest.0 -= 1;
        let new = self.link_before(to, event, with, self.oldest);
        if let Some(by_age) = &mut self.by_age {
            by_age.push_front((self.oldest, new));
        }
    }

    /// Puts an event at the beginning of its lane that came before those that are there.
    pub(super) fn link_before(
        &mut self,
        (place, chain): (usize, &mut Chain),
        event: T,
        with: With,
        age: Age,
    ) -> At {
        let new = self.insert(place, event, with, age, (None, chain.first));
        match chain.first.replace(new) {
            Some(after) => self.entries[after.index()].before = Some(new),
            None => chain.last = Some(new),
        }
        chain.len += 1;
        new
    }

    /// Gives an event an entry.
    #[inline]
    fn insert(
        &mut self,
        place: usize,
        event: T,
        With { lane, meta: MetaAt(meta), own, mark }: With,
        age: Age,
        (before, after): (Option<At>, Option<At>),
    ) -> At {
        self.metas[meta as usize].events += 1;
        self.len += 1;
        let (place, own, event) = (number(place), own.map(Box::new), Some(event));
        let Some(free) = self.free else {
            self.entries.push(Entry { event, lane, place, meta, mark, age, own, before, after });
            return At::new(self.entries.len() - 1);
        };
        let entry = &mut self.entries[free.index()];
        self.free = entry.after;
        *entry = Entry { event, lane, place, meta, mark, age, own, before, after };
        free
    }

    /// Moves an event out of its lane, into a chunk.
    #[inline]
    pub(super) fn unlink(&mut self, at: At, chain: &mut Chain, chunk: &mut Chunk<T>) -> Unlinked {
        let free = self.free.replace(at);
        let entry = &mut self.entries[at.index()];
        let (event, own, meta) = (entry.event.take(), entry.own.take(), entry.meta);
        let unlinked = Unlinked { lane: entry.lane.take(), mark: entry.mark };
        let (before, after) = (entry.before, std::mem::replace(&mut entry.after, free));
        match before {
            Some(before) => self.entries[before.index()].after = after,
            None => chain.first = after,
        }
        match after {
            Some(after) => self.entries[after.index()].before = before,
            None => chain.last = before,
        }
        chain.len -= 1;
        self.len -= 1;
        match event {
            Some(event)
                if own.is_none() && self.mixed == Some(meta) && chunk.columns().is_none() =>
            {
                chunk.push_alike(event);
            }
            Some(event) => {
                chunk.push(&self.metas[meta as usize].meta, own.map(|own| *own), event);
                self.mixed = Some(meta);
            }
            None => {}
        }
        self.unshare(meta);
        if self.by_age.is_some() {
            self.forget_gone();
        }
        unlinked
    }

    // --- by age

    /// The list by age is kept from now on, or only while somebody asks for it.
    pub(super) fn keep_by_age(&mut self, keeps: bool) {
        self.keeps_by_age = keeps;
        if keeps {
            self.make_by_age();
        }
    }

    /// Whether somebody wants events by age.
    #[inline]
    pub(super) fn is_by_age(&self) -> bool {
        self.by_age.is_some()
    }

    /// The event at one end, by age.
    pub(super) fn at_end(&mut self, side: Side) -> Option<At> {
        self.make_by_age();
        let Events { by_age: Some(by_age), entries, .. } = self else { return None };
        loop {
            let end = if side == Side::Oldest { by_age.front() } else { by_age.back() };
            let (age, at) = *end?;
            if is_there(entries, age, at) {
                return Some(at);
            }
            if side == Side::Oldest {
                by_age.pop_front()
            } else {
                by_age.pop_back()
            };
        }
    }

    /// The oldest event, for those who must not change anything.
    pub(super) fn oldest(&self) -> Option<At> {
        match &self.by_age {
            Some(by_age) => {
                let mut there =
                    by_age.iter().filter(|(age, at)| is_there(&self.entries, *age, *at));
                there.next().map(|(_, at)| *at)
            }
            None => self.all().min().map(|(_, at)| at),
        }
    }

    fn all(&self) -> impl Iterator<Item = (Age, At)> {
        let there = self.entries.iter().enumerate().filter(|(_, entry)| entry.event.is_some());
        there.map(|(index, entry)| (entry.age, At::new(index)))
    }

    fn make_by_age(&mut self) {
        if self.by_age.is_none() {
            let mut all: Vec<_> = self.all().collect();
            all.sort_unstable();
            self.by_age = Some(all.into());
        }
    }

    /// Keeps the list by age about as long as there are events.
    #[cold]
    fn forget_gone(&mut self) {
        let Events { by_age, entries, len, keeps_by_age, .. } = self;
        if *len == 0 && !*keeps_by_age {
            *by_age = None;
        } else if let Some(by_age) = by_age
            && by_age.len() > 2 * *len + GONE_MAX
        {
            by_age.retain(|(age, at)| is_there(entries, *age, *at));
        }
    }

    // --- storage

    /// Empty storage, from the free list if there is any.
    pub(super) fn storage(&mut self) -> Slots<T> {
        self.spare.pop().unwrap_or_default()
    }

    /// The chunk that is being filled has events that are not from here.
    pub(super) fn mix_others(&mut self) {
        self.mixed = None;
    }

    /// An empty chunk for events, the first of which is this.
    pub(super) fn chunk_for(&mut self, first: At) -> Chunk<T> {
        let storage = self.storage();
        self.mixed = Some(self.entries[first.index()].meta);
        Chunk::new(self.meta(first).clone(), storage)
    }

    pub(super) fn recycle(&mut self, storage: Slots<T>) {
        if self.spare.len() < SPARE_MAX && storage.capacity() > 0 {
            self.spare.push(storage);
        }
    }
}

/// Whether an entry has the event that is so old.
fn is_there<T>(entries: &[Entry<T>], age: Age, at: At) -> bool {
    let entry = &entries[at.index()];
    entry.event.is_some() && entry.age == age
}
