//! The events in flight of a stage: those that wait, in slots; those that were woken; when each is to be
//! looked at. Used by `flight`, under the lock of the stage.
//! Invariants: a flight stands in its slot, or belongs to the visit that polls it. Of a wake-up and the moment
//! its flight is parked, whichever comes second makes it ready ([`Wakeup`]).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Weak;
use std::task::Wake;
use std::time::Duration;

use comporta_model::async_stage::Flight;
use comporta_model::event::Time;
use comporta_model::stage::Handler;

use super::Batch;
use crate::core::Core;
use crate::effects::Effects;
use crate::failure::Reason;
use crate::sync::{AcqRel, Acquire, Arc, AtomicU32, AtomicU64, Relaxed, SeqCst};
use crate::timer::Armed;

/// The future of an event.
type AnyFlight<H> = Box<dyn Flight<<H as Handler>::Item, <H as Handler>::Ports>>;

/// Which flight, of all that a stage ever had: its slot, and how often that was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlightId(u64);

impl FlightId {
    fn new(slot: usize, life: u32) -> Self {
        FlightId(u64::from(life) << 32 | slot as u64)
    }

    fn slot(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    fn life(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The events in flight of a stage, under its lock.
pub(in crate::stage) struct Flights<H: Handler> {
    most: usize,
    /// In flight, being polled, or set aside for visits that may begin one.
    begun: usize,
    slots: Vec<Slot<H>>,
    free: Vec<usize>,
    /// Those that are to be polled, first in first out.
    woken: VecDeque<FlightId>,
    /// When a flight that stands in its slot is to be looked at, whether or not it was woken.
    alarms: BTreeSet<(Time, FlightId)>,
    armed: Armed,
    /// The last visit polled flights: the next begins events, if there are and may be.
    pub(super) polled_last: bool,
    /// Nanoseconds for which flights that have landed had waited.
    waited_ns: u64,
}

struct Slot<H: Handler> {
    life: u32,
    /// None while it is free, or its flight is being polled.
    flight: Option<InFlight<H>>,
}

/// An event in flight; boxed, for it moves between its slot and the visits that poll it.
pub(in crate::stage) type InFlight<H> = Box<Flying<H>>;

/// An event in flight.
pub(in crate::stage) struct Flying<H: Handler> {
    /// None until it has a slot.
    pub(super) id: Option<FlightId>,
    /// Its one event: an empty slot while its future has it.
    pub(super) batch: Batch<H::Item>,
    pub(super) kept: Vec<H::Item>,
    pub(super) attempt: u32,
    /// None: it waits to be tried again.
    pub(super) future: Option<AnyFlight<H>>,
    pub(super) wakeup: Arc<Wakeup>,
    /// When it is looked at again: to be tried again, or because its time is up.
    pub(super) alarm: Option<Time>,
    /// When its time is up, in this try.
    pub(super) limit: Option<(Time, Reason)>,
    /// Since when it waits.
    pub(super) since: Time,
    /// It has flushed: what it sent is not withdrawn any more.
    pub(super) partial: bool,
}

impl<H: Handler> Flying<H> {
    /// It is polled again as soon as it stands in its slot.
    pub(super) fn be_looked_at(&mut self, now: Time) {
        match self.future {
            Some(_) => self.wakeup.state.store(WOKEN, SeqCst),
            None => self.alarm = Some(now),
        }
    }
}

/// What the waker of an event wakes.
pub(in crate::stage) struct Wakeup {
    state: AtomicU32,
    id: AtomicU64,
    stage: u32,
    core: Weak<Core>,
}

/// It is being polled, or was not polled yet.
const POLLED: u32 = 0;
/// It was woken since it was last polled.
const WOKEN: u32 = 1;
/// It stands in its slot, and nobody woke it.
const PARKED: u32 = 2;

impl Wakeup {
    pub(in crate::stage) fn new(core: &Arc<Core>, stage: u32) -> Arc<Self> {
        Arc::new(Wakeup {
            state: AtomicU32::new(POLLED),
            id: AtomicU64::new(0),
            stage,
            core: Arc::downgrade(core),
        })
    }

    /// It stands in its slot now. Returns whether it was woken meanwhile.
    fn park(&self, id: FlightId) -> bool {
        self.id.store(id.0, Relaxed);
        self.state.compare_exchange(POLLED, PARKED, AcqRel, Acquire).is_err()
    }

    /// It is about to be polled.
    fn unpark(&self) {
        self.state.swap(POLLED, SeqCst);
    }
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, SeqCst) == PARKED
            && let Some(core) = self.core.upgrade()
        {
            let mut effects = Effects::default();
            core.node(self.stage).woken(&core, FlightId(self.id.load(Relaxed)), &mut effects);
            core.dispatch(effects);
        }
    }
}

impl<H: Handler> Flights<H> {
    pub(in crate::stage) fn new(most: usize) -> Self {
        Flights {
            most,
            begun: 0,
            slots: Vec::new(),
            free: Vec::new(),
            woken: VecDeque::new(),
            alarms: BTreeSet::new(),
            armed: Armed::default(),
            polled_last: false,
            waited_ns: 0,
        }
    }

    pub(in crate::stage) fn most(&self) -> usize {
        self.most
    }

    pub(in crate::stage) fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Events that may still be begun.
    pub(in crate::stage) fn room(&self) -> usize {
        self.most.saturating_sub(self.begun)
    }

    /// Events that wait.
    pub(in crate::stage) fn waiting(&self) -> usize {
        let taken = self.slots.len() - self.free.len();
        taken.saturating_sub(self.woken.len())
    }

    pub(in crate::stage) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_ns)
    }

    /// Those that are to be polled.
    pub(in crate::stage) fn woken(&self) -> usize {
        self.woken.len()
    }

    /// A visit may begin one more. Returns whether there is room for it.
    pub(in crate::stage) fn reserve(&mut self) -> bool {
        let may = self.begun < self.most;
        self.begun += usize::from(may);
        may
    }

    /// So many that were set aside, or were in flight, are not.
    pub(in crate::stage) fn release(&mut self, n: usize) {
        self.begun -= n;
    }

    /// Puts a flight into its slot, or into a new one.
    pub(super) fn park(&mut self, mut flight: InFlight<H>, now: Time) {
        let id = flight.id.unwrap_or_else(|| {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(Slot { life: 0, flight: None });
                self.slots.len() - 1
            });
            FlightId::new(slot, self.slots[slot].life)
        });
        flight.id = Some(id);
        flight.since = now;
        let due = flight.alarm.or_else(|| flight.limit.as_ref().map(|(due, _)| *due));
        self.alarms.extend(due.map(|due| (due, id)));
        flight.alarm = due;
        // A flight without a future waits for its alarm alone.
        let woken = flight.future.is_some() && flight.wakeup.park(id);
        self.slots[id.slot()].flight = Some(flight);
        if woken {
            self.woken.push_back(id);
        }
    }

    /// The time for which the clock is to be asked, if it is another than before.
    pub(super) fn arm(&mut self) -> Option<Time> {
        let (first, _) = self.alarms.first()?;
        self.armed.arm(*first)
    }

    /// Those whose time has come are to be looked at.
    pub(super) fn ring(&mut self, now: Time) {
        self.armed.ring(now);
        while let Some((due, id)) = self.alarms.pop_first() {
            if due > now {
                self.alarms.insert((due, id));
                return;
            }
            if let Some(flight) = &mut self.slots[id.slot()].flight {
                flight.alarm = None;
                // Its waker may have made it ready already; then it is taken for that.
                if flight.future.is_none() || flight.wakeup.state.swap(WOKEN, SeqCst) == PARKED {
                    self.woken.push_back(id);
                }
            }
        }
    }

    /// The waker of a flight was called.
    pub(super) fn wake(&mut self, id: FlightId) -> bool {
        let slot = self.slots.get(id.slot()).filter(|slot| slot.life == id.life());
        let woken = slot.is_some_and(|slot| slot.flight.is_some());
        if woken {
            self.woken.push_back(id);
        }
        woken
    }

    /// Takes out the next flight that is to be polled.
    pub(super) fn take_woken(&mut self, now: Time) -> Option<InFlight<H>> {
        loop {
            let id = self.woken.pop_front()?;
            let slot = self.slots.get_mut(id.slot()).filter(|slot| slot.life == id.life());
            let Some(mut flight) = slot.and_then(|slot| slot.flight.take()) else { continue };
            if let Some(due) = flight.alarm.take() {
                self.alarms.remove(&(due, id));
            }
            flight.wakeup.unpark();
            self.waited_ns += now.duration_since(flight.since).as_nanos() as u64;
            return Some(flight);
        }
    }

    /// A flight has landed: its slot is free.
    pub(super) fn free(&mut self, id: Option<FlightId>) {
        if let Some(id) = id {
            let slot = &mut self.slots[id.slot()];
            slot.life = slot.life.wrapping_add(1);
            self.free.push(id.slot());
        }
    }

    /// The program stops: takes out all that stand in their slots.
    pub(super) fn cancel(&mut self) -> Vec<InFlight<H>> {
        self.woken.clear();
        self.alarms.clear();
        self.slots.iter_mut().filter_map(|slot| slot.flight.take()).collect()
    }
}
