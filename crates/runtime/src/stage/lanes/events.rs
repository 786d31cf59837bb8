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
    len: usize,
}

impl Chain {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn first(&self) -> Option<At> {
        self.first
    }
}

/// An event that waits.
struct Entry<T> {
    event: Option<T>,
    lane: usize,
    meta: usize,
    /// The watermark that it found.
    mark: Time,
    /// What it carries of its own beside its lane.
    own: Option<Box<Columns>>,
    /// Its neighbours in the lane, and among all events by age. Of a free entry, `newer` is the next free one.
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
pub(super) struct MetaAt(usize);

/// All events of the lanes of a stage.
pub(super) struct Events<T> {
    entries: Vec<Entry<T>>,
    free: Option<At>,
    len: usize,
    oldest: Option<At>,
    newest: Option<At>,
    metas: Vec<Shared>,
    metas_free: Vec<usize>,
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
        self.entries[at.index()].lane
    }

    /// The watermark that an event found.
    #[inline]
    pub(super) fn mark(&self, at: At) -> Time {
        self.entries[at.index()].mark
    }

    /// What an event shares with others.
    #[inline]
    pub(super) fn meta(&self, at: At) -> &Meta {
        &self.metas[self.entries[at.index()].meta].meta
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
        MetaAt(match self.metas_free.pop() {
            Some(at) => {
                self.metas[at] = shared;
                at
            }
            None => {
                self.metas.push(shared);
                self.metas.len() - 1
            }
        })
    }

    pub(super) fn close(&mut self, meta: MetaAt) {
        self.unshare(meta.0);
    }

    fn unshare(&mut self, meta: usize) {
        let shared = &mut self.metas[meta];
        shared.events -= 1;
        if shared.events == 0 {
            shared.meta.duty = Default::default(); // nobody waits for what is over
            self.metas_free.push(meta);
        }
    }

    // --- chains

    /// Puts an event at one end of its lane, and of all events.
    #[inline]
    pub(super) fn link(
        &mut self,
        (lane, chain): (usize, &mut Chain),
        event: T,
        With { meta: MetaAt(meta), own, mark }: With,
        side: Side,
    ) {
        self.metas[meta].events += 1;
        let (older, newer) = match side {
            Side::Newest => (self.newest, None),
            Side::Oldest => (None, self.oldest),
        };
        let (before, after) = match side {
            Side::Newest => (chain.last, None),
            Side::Oldest => (None, chain.first),
        };
        let own = own.map(Box::new);
        let entry =
            Entry { event: Some(event), lane, meta, mark, own, before, after, older, newer };
        let new = match self.free {
            Some(free) => {
                let slot = &mut self.entries[free.index()];
                self.free = slot.newer;
                *slot = entry;
                free
            }
            None => {
                self.entries.push(entry);
                At::new(self.entries.len() - 1)
            }
        };
        match before {
            Some(before) => self.entries[before.index()].after = Some(new),
            None => chain.first = Some(new),
        }
        match after {
            Some(after) => self.entries[after.index()].before = Some(new),
            None => chain.last = Some(new),
        }
        match older {
            Some(older) => self.entries[older.index()].newer = Some(new),
            None => self.oldest = Some(new),
        }
        match newer {
            Some(newer) => self.entries[newer.index()].older = Some(new),
            None => self.newest = Some(new),
        }
        chain.len += 1;
        self.len += 1;
    }

    /// Moves an event out of its lane, into a chunk.
    #[inline]
    pub(super) fn unlink(&mut self, at: At, chain: &mut Chain, chunk: &mut Chunk<T>) {
        let free = self.free.replace(at);
        let entry = &mut self.entries[at.index()];
        let (event, own) = (entry.event.take(), entry.own.take());
        let (before, after) = (entry.before.take(), entry.after.take());
        let (older, newer) = (entry.older.take(), std::mem::replace(&mut entry.newer, free));
        let meta = entry.meta;
        match before {
            Some(before) => self.entries[before.index()].after = after,
            None => chain.first = after,
        }
        match after {
            Some(after) => self.entries[after.index()].before = before,
            None => chain.last = before,
        }
        match older {
            Some(older) => self.entries[older.index()].newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self.entries[newer.index()].older = older,
            None => self.newest = older,
        }
        chain.len -= 1;
        self.len -= 1;
        if let Some(event) = event {
            chunk.push(&self.metas[meta].meta, own.map(|own| *own), event);
        }
        self.unshare(meta);
    }

    // --- storage

    /// An empty chunk for events, the first of which is this.
    pub(super) fn chunk_for(&mut self, first: At) -> Chunk<T> {
        let storage = self.spare.pop().unwrap_or_default();
        Chunk::new(self.meta(first).clone(), storage)
    }

    pub(super) fn recycle(&mut self, storage: Slots<T>) {
        if self.spare.len() < SPARE_MAX && storage.capacity() > 0 {
            self.spare.push(storage);
        }
    }
}
