//! One way from a sender to one queue: what is staged for it, what found no room there (the outbox),
//! and the place in line. Every kind of sender has its outlets: an instance, a source, a releaser, a
//! caller outside. After: `stage::inlet`, the other end.
//!
//! Invariants: what one sender sends into one queue arrives in the order sent, because nothing is sent
//! past an outbox that is not empty. A sender stands in line for one queue at a time. Giving up, which
//! leaves the line and cancels the outbox, is what dropping a sender's [`Links`] does.
//!
//! [`Links`]: crate::path::emit::Links

use std::slice::Iter;

use comporta_model::ack::Fate;
use comporta_model::chunk::{ChunkQueue, Slots};
use comporta_model::column::{Column, Columns, Duty};
use comporta_model::event::Meta;
use comporta_model::plan::WhenFull;

use crate::chunk_cache::ChunkCache;
use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::failure::Reason;
use crate::path::direct::{Ahead, Direct};
use crate::path::line::Place;
use crate::path::parcel::Parcel;
use crate::path::room::{Room, RoomHint};
use crate::stage::permits::Shed;
use crate::sync::{Arc, AtomicU64, CachePadded, Relaxed};

/// Where an outlet leads: the queue of a stage. Everything goes by message, so that the other side may
/// be elsewhere.
pub(crate) trait Inlet<T>: Send + Sync {
    /// How much room there seems to be, for events like those of `meta`.
    fn room(&self, core: &Core, meta: &Meta, rule: Option<WhenFull>) -> Room;
    /// Where it publishes its room, if it does: who has that need not ask.
    fn room_hint(&self) -> Option<Arc<CachePadded<RoomHint>>> {
        None
    }
    /// Takes events that share all they carry and come one by one after what the sender sent before, if there is room
    /// for all of them, and leaves storage to go on with in their place; `short` is as in [`Parcel`]. If it returns
    /// `false` nothing has been done: `offer` decides.
    fn enter(
        &self,
        core: &Core,
        meta: &Meta,
        slots: &mut Slots<T>,
        short: bool,
        visit: &mut Visit,
    ) -> bool {
        let _ = (core, meta, slots, short, visit);
        false
    }
    /// Takes a parcel: what may not enter is shed, or waits in the parcel's outbox; then the sender
    /// stands in line, if it may.
    fn offer(&self, core: &Core, parcel: Parcel<'_, T>, visit: &mut Visit) -> Option<Standing>;
    /// Takes more of an outbox after a grant; returns where the sender stands in line again.
    fn resume(
        &self,
        core: &Core,
        outbox: &mut ChunkQueue<T>,
        place: &Arc<Place>,
        granted: usize,
        visit: &mut Visit,
    ) -> Option<Standing>;
    /// Takes a sender out of the line, and cancels what it had in its outbox.
    fn leave(
        &self,
        core: &Core,
        outbox: &mut ChunkQueue<T>,
        place: &Place,
        standing: Option<Standing>,
        effects: &mut Effects,
    );
    /// Reserves places for `n` events of a caller, who sends at once.
    fn reserve(
        &self,
        core: &Core,
        n: usize,
        meta: &Meta,
        rule: Option<WhenFull>,
    ) -> Result<Reserved, Refusal>;
    /// Gives back what was reserved.
    fn release(&self, core: &Core, reserved: Reserved, effects: &mut Effects);
    /// Counts an event as offered and given back.
    fn refuse(&self);
}

/// Places reserved for a caller.
#[derive(Debug)]
#[must_use = "they are given back by `Inlet::release`, or used by `Inlet::offer`"]
pub(crate) struct Reserved(pub(crate) usize);

/// Why a caller's event cannot enter now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no room; the caller may wait for some.
    Full,
    /// There is no room, and the queue rejects.
    Rejected,
    /// The admission controller does not let it in.
    Admission(Shed),
}

/// Where a sender stands in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// It belongs to the same cycle as the queue.
    pub(crate) inside: bool,
    /// Its number in the line.
    pub(crate) number: u64,
}

/// See the header.
#[repr(align(128))] // as `sync::CachePadded`: neighbours belong to other workers
pub(crate) struct Outlet<T> {
    pub(crate) to: u32,
    inlet: Arc<dyn Inlet<T>>,
    /// Events sent this way, by all instances of the sender.
    sent: Arc<AtomicU64>,
    /// What happens when there is no room, if that is not as the queue has it.
    pub(crate) rule: Option<WhenFull>,
    outbox: ChunkQueue<T>,
    standing: Option<Standing>,
    reserved: Option<Reserved>,
    filled: Vec<Slots<T>>,
    last: Slots<T>,
    /// What is owed for each event that is staged, where it is not what their sender says of them all.
    duties: Column<Duty>,
}

impl<T: Send + 'static> Outlet<T> {
    pub(crate) fn new(to: u32, inlet: Arc<dyn Inlet<T>>, sent: Arc<AtomicU64>) -> Self {
        Outlet {
            to,
            inlet,
            sent,
            rule: None,
            outbox: ChunkQueue::default(),
            standing: None,
            reserved: None,
            filled: Vec::new(),
            last: Vec::new(),
            duties: Column::default(),
        }
    }

    #[inline]
    pub(crate) fn room(&self, core: &Core, meta: &Meta, rule: Option<WhenFull>) -> Room {
        self.inlet.room(core, meta, rule)
    }

    /// The way past it, for what finds nothing here that it would have to wait behind.
    pub(super) fn direct(&self, rule: Option<WhenFull>) -> (Direct<T>, Option<Ahead>) {
        let ahead = self.inlet.room_hint().map(|hint| Ahead { hint, rule });
        (Direct { inlet: self.inlet.clone(), sent: self.sent.clone() }, ahead)
    }

    /// Stages an event, with what is owed for it where its sender says that of each.
    #[inline]
    pub(crate) fn stage(&mut self, event: T, duty: Option<&Duty>) {
        self.last.push(Some(event));
        if let Some(duty) = duty {
            self.duties.extend(duty.clone(), 1);
        }
    }

    /// Stages copies of events.
    #[inline]
    pub(crate) fn stage_copies(&mut self, events: &mut Iter<'_, Option<T>>, copy: fn(&T) -> T) {
        self.last.extend(events.map(|event| event.as_ref().map(copy)));
    }

    /// Stages what follows in storage of the worker, if the outlet has none.
    pub(crate) fn use_storage(&mut self, cache: &mut ChunkCache) {
        if self.last.capacity() == 0 {
            self.last = cache.take();
        }
    }

    /// Takes the event staged last back.
    pub(crate) fn unstage(&mut self) -> Option<T> {
        self.last.pop().flatten()
    }

    fn staged(&self) -> usize {
        self.filled.iter().map(Vec::len).sum::<usize>() + self.last.len()
    }

    /// Hands over what is staged. Returns whether the sender now stands in line here.
    pub(crate) fn deliver(&mut self, send: &mut Sending<'_>) -> bool {
        let columns = Columns::of_duties(std::mem::take(&mut self.duties));
        let (mut filled, mut last) =
            (std::mem::take(&mut self.filled), std::mem::take(&mut self.last));
        let stands = self.deliver_from(&mut filled, &mut last, columns, send);
        (self.filled, self.last) = (filled, last);
        stands
    }

    /// As [`deliver`](Self::deliver), of the events of these chunks, with what each carries of its own.
    #[inline(always)]
    pub(crate) fn deliver_from(
        &mut self,
        filled: &mut Vec<Slots<T>>,
        last: &mut Slots<T>,
        columns: Columns,
        send: &mut Sending<'_>,
    ) -> bool {
        let short = send.fills && send.visit.cache.is_empty::<T>();
        let mut staged = last.len();
        // Mostly it is one chunk, and there is room for it.
        let alone = filled.is_empty() && self.outbox.is_empty() && self.reserved.is_none();
        if alone && columns.is_none() {
            if staged == 0 {
                return false;
            }
            if self.inlet.enter(send.core, send.meta, last, short, send.visit) {
                self.sent.fetch_add(staged as u64, Relaxed);
                return false;
            }
        }
        staged += filled.iter().map(Vec::len).sum::<usize>();
        if staged == 0 {
            return false;
        }
        let parcel = Parcel {
            meta: send.meta,
            columns,
            filled,
            last,
            short,
            reserved: self.reserved.take(),
            outbox: &mut self.outbox,
            rule: self.rule,
            place: send.place,
            waits_elsewhere: send.waits,
        };
        let standing = self.inlet.offer(send.core, parcel, send.visit);
        self.sent.fetch_add(staged as u64, Relaxed);
        debug_assert!(filled.is_empty() && last.is_empty(), "a parcel was not emptied");
        if standing.is_some() {
            self.standing = standing;
        }
        standing.is_some()
    }

    /// Reserves places for what is staged: an event, or several copies of it.
    pub(crate) fn reserve(&mut self, core: &Core, meta: &Meta) -> Result<(), Refusal> {
        let staged = self.staged();
        if staged > 0 {
            self.reserved = Some(self.inlet.reserve(core, staged, meta, self.rule)?);
        }
        Ok(())
    }

    /// Gives back what was reserved.
    pub(crate) fn unreserve(&mut self, core: &Core, effects: &mut Effects) {
        if let Some(reserved) = self.reserved.take() {
            self.inlet.release(core, reserved, effects);
        }
    }

    /// Takes back all that is staged.
    pub(crate) fn take_staged(&mut self) -> Slots<T> {
        std::mem::take(&mut self.last)
    }

    /// Counts the event that is staged as offered and given back.
    pub(crate) fn refuse(&self) {
        self.inlet.refuse();
    }

    pub(crate) fn holds(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether the sender stands in line here, and whether the queue belongs to its cycle.
    pub(crate) fn standing(&self) -> Option<Standing> {
        self.standing
    }

    /// Goes on with the outbox, `granted` places of which were granted.
    pub(crate) fn resume(
        &mut self,
        core: &Core,
        place: &Arc<Place>,
        granted: usize,
        visit: &mut Visit,
    ) {
        self.standing = None; // whoever granted took it out of the line
        self.standing = self.inlet.resume(core, &mut self.outbox, place, granted, visit);
    }

    /// Leaves the line, and gives up what stands in the outbox.
    pub(crate) fn give_up(&mut self, core: &Core, place: &Place, effects: &mut Effects) {
        let standing = self.standing.take();
        if standing.is_some() || self.holds() {
            self.inlet.leave(core, &mut self.outbox, place, standing, effects);
        }
    }
}

/// What a sender knows while it sends, and what it finds out.
pub(crate) struct Sending<'a> {
    pub(crate) core: &'a Core,
    pub(crate) meta: &'a Meta,
    pub(crate) place: &'a Arc<Place>,
    pub(crate) visit: &'a mut Visit,
    /// Whether the sender fills chunks of its own and so needs storage.
    pub(crate) fills: bool,
    /// The sender stands in line.
    pub(crate) waits: bool,
    pub(crate) sent: Sent,
}

impl Sending<'_> {
    /// Gives a port storage to go on with, if its sender needs any and it has none.
    #[inline]
    pub(super) fn refill<T: Send + 'static>(&mut self, last: &mut Slots<T>) {
        if self.fills && last.capacity() == 0 {
            *last = self.visit.cache.take();
        }
    }
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) emitted: usize,
    /// Of these, through a port that is not connected.
    pub(crate) unrouted: usize,
    /// Copies, or events, that a `Clone` or a key function that panicked has cost.
    pub(crate) lost: usize,
}

impl Sent {
    /// An event, or a copy of one, could not be made or sent; `owed` is what is owed for it.
    #[cold]
    pub(crate) fn lose(&mut self, core: &Core, owed: &Duty, reason: &Reason) {
        self.lost += 1;
        owed.join(1);
        owed.settle(1, Fate::Failed);
        core.report(format!("an event could not be sent on: {reason}"));
    }
}
