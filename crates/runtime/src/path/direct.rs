//! Hop 7 of what goes straight to a queue that has room for it: past link and outlet, without a parcel.
//! Before: `stage::plain`. After: `stage::inlet`.
//!
//! A port goes this way if all of its events go to one queue and no test sees them; what it holds is one chunk and owes what
//! the visit says; and the sender stands in no line, so that there is no outbox to go behind. Then outlet and parcel would
//! hand over just this. The first port that does not, or whose queue does not take all, and those after it, go by `emit`.

use comporta_model::event::Meta;
use comporta_model::plan::WhenFull;
use comporta_model::port::{Out, PortVisitor, Ports};

use crate::core::Core;
use crate::effects::Visit;
use crate::path::bundle::PortLink;
use crate::path::emit::{Links, are_several};
use crate::path::outlet::{Inlet, Sent};
use crate::path::room::{Room, RoomHint};
use crate::sync::{Arc, AtomicU64, CachePadded, Relaxed};

/// The way of a port all of whose events go to one queue, and are shown to nobody else: what needs no outlet goes by it.
pub(super) struct Direct<T> {
    pub(super) inlet: Arc<dyn Inlet<T>>,
    /// As that of the outlet.
    pub(super) sent: Arc<AtomicU64>,
}

/// The queue at the end of such a way, as far as its room goes: whatever the type of its events.
pub(super) struct Ahead {
    pub(super) hint: Arc<CachePadded<RoomHint>>,
    pub(super) rule: Option<WhenFull>,
}

impl Ahead {
    /// How much room there seems to be, unless an admission controller has to be asked.
    #[inline(always)]
    pub(super) fn room(&self) -> Option<Room> {
        if self.hint.is_guarded() { None } else { Some(self.hint.room(self.rule)) }
    }
}

/// Sends what goes straight to a queue that has room for it.
struct Flush<'a> {
    ports: &'a [PortLink],
    core: &'a Core,
    meta: &'a Meta,
    fills: bool,
    visit: &'a mut Visit,
    sent: usize,
    /// Some have to go another way.
    left: bool,
}

impl PortVisitor for Flush<'_> {
    #[inline(always)]
    fn port<T: Send + 'static>(&mut self, index: usize, out: &mut Out<T>) {
        let Flush { core, meta, fills, .. } = *self;
        let n = out.len();
        if n == 0 && !out.has_duties() {
            return;
        }
        let direct = self.ports[index].direct::<T>().filter(|_| !self.left);
        if let (Some(direct), Some(slots)) = (direct, out.lend_one()) {
            let short = fills && self.visit.cache.is_empty::<T>();
            if direct.inlet.enter(core, meta, slots, short, self.visit) {
                direct.sent.fetch_add(n as u64, Relaxed);
                self.sent += n;
                if fills && slots.capacity() == 0 {
                    *slots = self.visit.cache.take();
                }
                return;
            }
        }
        self.left = true;
    }
}

impl Links {
    /// As [`flush`](Self::flush), for visits whose results mostly go straight to queues that have room for them.
    #[inline(always)]
    pub(crate) fn flush_directly<P: Ports>(
        &mut self,
        core: &Core,
        ports: &mut P,
        meta: &Meta,
        fills: bool,
        visit: &mut Visit,
    ) -> Sent {
        let mut sent = 0;
        let special = self.may_stand || self.in_turn && are_several(ports);
        if !special {
            let left;
            (sent, left) = self.flush_straight(core, ports, meta, fills, visit);
            if !left {
                return Sent { emitted: sent, ..Sent::default() };
            }
        }
        let rest = self.flush(core, ports, meta, fills, visit);
        Sent { emitted: sent + rest.emitted, ..rest }
    }

    /// As [`flush_directly`](Self::flush_directly), if all of it goes that way. If it returns nothing, nothing has been
    /// sent.
    #[inline(always)]
    pub(crate) fn flush_all_directly<P: Ports>(
        &mut self,
        core: &Core,
        ports: &mut P,
        meta: &Meta,
        fills: bool,
        visit: &mut Visit,
    ) -> Option<Sent> {
        if self.may_stand || (P::NAMES.len() > 1 && are_several(ports)) {
            return None;
        }
        let (emitted, left) = self.flush_straight(core, ports, meta, fills, visit);
        if left { None } else { Some(Sent { emitted, ..Sent::default() }) }
    }

    /// Returns how many events were sent, and whether some have to go another way.
    #[inline(always)]
    fn flush_straight<P: Ports>(
        &self,
        core: &Core,
        ports: &mut P,
        meta: &Meta,
        fills: bool,
        visit: &mut Visit,
    ) -> (usize, bool) {
        if self.errors.as_ref().is_some_and(|errors| !errors.is_empty()) {
            return (0, true);
        }
        let mut flush =
            Flush { ports: &self.ports, core, meta, fills, visit, sent: 0, left: false };
        ports.each(&mut flush);
        (flush.sent, flush.left)
    }
}
