//! The events of a keyed stage: each stands in the chain of its lane, and in one of all events by age. Used by `mod.rs`,
//! which knows the lanes.
//! Invariant: an entry has an event and stands in both chains, or is free.

use std::num::NonZeroU32;

use comporta_model::chunk::{Chunk, Slots};
use comporta_model::column::Columns;
use comporta_model::event::{Meta, Time};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    lane: u32,
    meta: u32,
    /// The watermark that it found.
    mark: Time,
    /// What it carries of its own beside its lane.
    own: Option<Box<Columns>>,
    links: Links,
}

/// The neighbours of an event in its lane, and among all events by age. Of a free entry, `newer` is the next free one.
#[derive(Clone, Copy, Default)]
struct Links {
    before: Option<At>,
    after: Option<At>,
    older: Option<At>,
    newer: Option<At>,
}

/// What events share that came together, and how many of them are left.
struct Shared {
    meta: Meta,
    events: usize,
}

/// What an event that waits comes with.
pub(super) struct With {
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
    oldest: Option<At>,
    newest: Option<At>,
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
            oldest: None,
            newest: None,
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

    /// The event at one end, by age.
    pub(super) fn at_end(&self, side: Side) -> Option<At> {
        if side == Side::Oldest { self.oldest } else { self.newest }
    }

    /// The lane of an event.
    pub(super) fn lane(&self, at: At) -> usize {
        self.entries[at.index()].lane as usize
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

    /// Puts an event at the end of its lane, and of all events.
    #[inline]
    pub(super) fn link_last(&mut self, (lane, chain): (usize, &mut Chain), event: T, with: With) {
        let links = Links { before: chain.last, after: None, older: self.newest, newer: None };
        let new = self.insert(lane, event, with, links);
        match chain.last.replace(new) {
            Some(before) => self.entries[before.index()].links.after = Some(new),
            None => chain.first = Some(new),
        }
        match self.newest.replace(new) {
            Some(older) => self.entries[older.index()].links.newer = Some(new),
            None => self.oldest = Some(new),
        }
        chain.len += 1;
    }

    /// Puts an event at the beginning of its lane, and of all events.
    pub(super) fn link_first(&mut self, (lane, chain): (usize, &mut Chain), event: T, with: With) {
        let links = Links { before: None, after: chain.first, older: None, newer: self.oldest };
        let new = self.insert(lane, event, with, links);
        match chain.first.replace(new) {
            Some(after) => self.entries[after.index()].links.before = Some(new),
            None => chain.last = Some(new),
        }
        match self.oldest.replace(new) {
            Some(newer) => self.entries[newer.index()].links.older = Some(new),
            None => self.newest = Some(new),
        }
        chain.len += 1;
    }

    /// Gives an event an entry.
    #[inline]
    fn insert(
        &mut self,
        lane: usize,
        event: T,
        With { meta: MetaAt(meta), own, mark }: With,
        links: Links,
    ) -> At {
        self.metas[meta as usize].events += 1;
        self.len += 1;
        let (lane, own) = (number(lane), own.map(Box::new));
        let Some(free) = self.free else {
            self.entries.push(Entry { event: Some(event), lane, meta, mark, own, links });
            return At::new(self.entries.len() - 1);
        };
        let entry = &mut self.entries[free.index()];
        self.free = entry.links.newer;
        entry.event = Some(event);
        (entry.lane, entry.meta, entry.mark) = (lane, meta, mark);
        (entry.own, entry.links) = (own, links);
        free
    }

    /// Moves an event out of its lane, into a chunk.
    #[inline]
    pub(super) fn unlink(&mut self, at: At, chain: &mut Chain, chunk: &mut Chunk<T>) {
        let free = self.free.replace(at);
        let entry = &mut self.entries[at.index()];
        let (event, own, meta) = (entry.event.take(), entry.own.take(), entry.meta);
        let free_links = Links { newer: free, ..Links::default() };
        let Links { before, after, older, newer } = std::mem::replace(&mut entry.links, free_links);
        match before {
            Some(before) => self.entries[before.index()].links.after = after,
            None => chain.first = after,
        }
        match after {
            Some(after) => self.entries[after.index()].links.before = before,
            None => chain.last = before,
        }
        match older {
            Some(older) => self.entries[older.index()].links.newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self.entries[newer.index()].links.older = older,
            None => self.newest = older,
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
    }

    // --- storage

    /// An empty chunk for events, the first of which is this.
    pub(super) fn chunk_for(&mut self, first: At) -> Chunk<T> {
        let storage = self.spare.pop().unwrap_or_default();
        self.mixed = Some(self.entries[first.index()].meta);
        Chunk::new(self.meta(first).clone(), storage)
    }

    pub(super) fn recycle(&mut self, storage: Slots<T>) {
        if self.spare.len() < SPARE_MAX && storage.capacity() > 0 {
            self.spare.push(storage);
        }
    }
}
