//! The events in flight of a stage: those that wait, in slots; those that were woken; when each is to be
//! looked at. Used by `flight`, under the lock of the stage.
//! Invariant: a flight stands in its slot, in the tray of a visit that will poll it ([`FlightTray`]), or
//! belongs to the visit that polls it.

use std::collections::{BTreeSet, VecDeque};
use std::task::Waker;
use std::time::Duration;

use comporta_model::async_stage::Flight;
use comporta_model::chunk::Chunk;
use comporta_model::event::{Meta, Time};
use comporta_model::kind::Kind;

use super::Batch;
use super::wakeup::{Wakeup, WokenList};
use crate::failure::Reason;
use crate::stage::queue::Turn;
use crate::sync::{Arc, Mutex};
use crate::timer::Armed;

/// The future of an event.
type AnyFlight<H> = Box<dyn Flight<<H as Kind>::Item, <H as Kind>::Ports>>;

/// Which flight, of all that a stage ever had: its slot, and how often that was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlightId(u64);

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

    pub(super) fn number(self) -> u64 {
        self.0
    }

    /// Of a [`number`](Self::number).
    pub(super) fn numbered(number: u64) -> Self {
        FlightId(number)
    }
}

/// The events in flight of a stage, under its lock.
pub(in crate::stage) struct Flights<H: Kind> {
    most: usize,
    /// In flight, being polled, or set aside for visits that may begin one.
    begun: usize,
    slots: Vec<Slot<H>>,
    free: Vec<usize>,
    /// Those that are to be polled, first in first out.
    woken: VecDeque<FlightId>,
    /// Those that were woken since a visit last looked: they come after these.
    list: Arc<WokenList>,
    /// When a flight that stands in its slot is to be looked at, whether or not it was woken.
    alarms: BTreeSet<(Time, FlightId)>,
    armed: Armed,
    /// Those that stand in their slots.
    standing: usize,
    /// Instances that wait for room inside of the cycle of their stage; if that is all of them, its flights
    /// cannot act, whoever wakes them.
    pub(in crate::stage) inside: usize,
    pub(super) blocked: bool,
    /// The last visit polled flights: the next begins events, if there are and may be.
    pub(super) polled_last: bool,
    /// Nanoseconds for which flights that have landed had waited.
    waited_ns: u64,
}

struct Slot<H: Kind> {
    life: u32,
    /// None while it is free, or its flight is being polled.
    flight: Option<InFlight<H>>,
}

/// An event in flight; boxed, for it moves between its slot and the visits that poll it.
pub(in crate::stage) type InFlight<H> = Box<Flying<H>>;

/// An event in flight.
pub(in crate::stage) struct Flying<H: Kind> {
    /// None until it has a slot.
    pub(super) id: Option<FlightId>,
    /// Its one event: an empty slot while its future has it.
    pub(in crate::stage) batch: Batch<H::Item>,
    pub(in crate::stage) kept: Vec<H::Item>,
    pub(super) attempt: u32,
    /// None: it waits to be tried again.
    pub(super) future: Option<AnyFlight<H>>,
    /// None only while it is not in use.
    pub(in crate::stage) wakeup: Option<Arc<Wakeup>>,
    /// When it is looked at again: to be tried again, or because its time is up.
    pub(super) alarm: Option<Time>,
    /// When its time is up, in this try.
    pub(super) limit: Option<(Time, Reason)>,
    /// Since when it waits.
    pub(super) since: Time,
    /// It has flushed: what it sent is not withdrawn any more.
    pub(super) partial: bool,
    /// What its queue waits for until it has landed, if it does.
    pub(super) turn: Option<Turn>,
}

impl<H: Kind> Default for Flying<H> {
    fn default() -> Self {
        Flying {
            id: None,
            batch: Batch::of(Chunk::new(Meta::default(), Vec::new())),
            kept: Vec::new(),
            attempt: 1,
            future: None,
            wakeup: None,
            alarm: None,
            limit: None,
            since: Time::ZERO,
            partial: false,
            turn: None,
        }
    }
}

impl<H: Kind> Flying<H> {
    /// It has landed, and is of use for another event: its wake-up too, if no waker is left.
    pub(in crate::stage) fn clear(&mut self) {
        let (storage, wakeup) = (self.batch.chunk.take().into_storage(), self.wakeup.take());
        let batch = Batch::of(Chunk::new(Meta::default(), storage));
        *self = Flying { batch, wakeup, ..Flying::default() };
    }

    /// It is about to be polled: it may be woken anew from now on.
    pub(super) fn begin_poll(&mut self) {
        self.alarm = None;
        if let Some(wakeup) = &self.wakeup {
            wakeup.unpark();
        }
    }

    /// What its future is polled with.
    pub(super) fn waker(&self) -> Waker {
        self.wakeup.clone().map_or_else(|| Waker::noop().clone(), Waker::from)
    }

    /// As [`Wakeup::claim`].
    fn claim(&self) -> bool {
        self.wakeup.as_ref().is_some_and(|wakeup| wakeup.claim())
    }

    /// It is tried again then; or fails at its deadline, if that comes before.
    pub(super) fn try_again(&mut self, due: Time) {
        let deadline = self.batch.chunk.first_duty().0.deadline;
        self.alarm = Some(deadline.map_or(due, |deadline| deadline.min(due)));
    }

    /// It is polled again as soon as it stands in its slot.
    pub(super) fn be_looked_at(&mut self, now: Time) {
        match self.future {
            Some(_) => drop(self.claim()),
            None => self.alarm = Some(now),
        }
    }
}

impl<H: Kind> Flights<H> {
    pub(in crate::stage) fn new(most: usize) -> Self {
        Flights {
            most,
            begun: 0,
            slots: Vec::new(),
            free: Vec::new(),
            woken: VecDeque::new(),
            list: Arc::default(),
            alarms: BTreeSet::new(),
            armed: Armed::default(),
            standing: 0,
            inside: 0,
            blocked: false,
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
        taken.saturating_sub(self.woken())
    }

    pub(in crate::stage) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_ns)
    }

    pub(super) fn standing(&self) -> usize {
        self.standing
    }

    /// Those that are to be polled.
    pub(in crate::stage) fn woken(&self) -> usize {
        self.woken.len() + self.list.len()
    }

    /// Where its flights are put that were woken.
    pub(in crate::stage) fn list(&self) -> &Arc<WokenList> {
        &self.list
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

    /// Puts a flight into its slot, or into a new one. Returns whether it is to be polled again.
    pub(super) fn park(&mut self, mut flight: InFlight<H>, now: Time) -> bool {
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
        let woken =
            flight.future.is_some() && flight.wakeup.as_ref().is_some_and(|wakeup| wakeup.park(id));
        self.slots[id.slot()].flight = Some(flight);
        self.standing += 1;
        if woken {
            self.woken.push_back(id);
        }
        woken
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
                if flight.future.is_none() || flight.claim() {
                    self.woken.push_back(id);
                }
            }
        }
    }

    /// Takes out up to `n` flights that are to be polled.
    pub(super) fn take_woken(&mut self, n: usize, now: Time) -> VecDeque<InFlight<H>> {
        self.list.take(&mut self.woken);
        let mut taken = VecDeque::with_capacity(n.min(self.woken.len()));
        while taken.len() < n
            && let Some(id) = self.woken.pop_front()
        {
            let slot = self.slots.get_mut(id.slot()).filter(|slot| slot.life == id.life());
            let Some(flight) = slot.and_then(|slot| slot.flight.take()) else { continue };
            if let Some(due) = flight.alarm {
                self.alarms.remove(&(due, id));
            }
            self.waited_ns += now.duration_since(flight.since).as_nanos() as u64;
            taken.push_back(flight);
        }
        self.standing -= taken.len();
        taken
    }

    /// Puts back a flight that was taken to be polled, and was not: it is the first again.
    pub(super) fn put_back(&mut self, mut flight: InFlight<H>, now: Time) {
        let Some(id) = flight.id else { return };
        self.alarms.extend(flight.alarm.map(|due| (due, id)));
        flight.since = now;
        self.slots[id.slot()].flight = Some(flight);
        self.standing += 1;
        self.woken.push_front(id);
    }

    /// A flight has landed: its slot is free.
    pub(super) fn free(&mut self, id: FlightId) {
        let slot = &mut self.slots[id.slot()];
        slot.life = slot.life.wrapping_add(1);
        self.free.push(id.slot());
    }

    /// The program stops: takes out all that stand in their slots.
    pub(super) fn cancel(&mut self) -> Vec<InFlight<H>> {
        self.list.take(&mut self.woken);
        self.woken.clear();
        self.alarms.clear();
        self.standing = 0;
        self.slots.iter_mut().filter_map(|slot| slot.flight.take()).collect()
    }
}

/// The flights that a visit has taken and not yet polled: one step away from it, so that they can be taken back
/// when a poll does not return. A leaf lock, as that of [`Tray`](crate::stage::tray::Tray).
pub(in crate::stage) struct FlightTray<H: Kind>(Mutex<VecDeque<InFlight<H>>>);

impl<H: Kind> FlightTray<H> {
    pub(super) fn new(flights: VecDeque<InFlight<H>>) -> Self {
        FlightTray(Mutex::new(flights))
    }

    pub(super) fn next(&self) -> Option<InFlight<H>> {
        self.0.lock().pop_front()
    }

    /// Puts one back that was taken last.
    pub(super) fn put_back(&self, flight: InFlight<H>) {
        self.0.lock().push_front(flight);
    }

    /// Takes all that are left.
    pub(super) fn take_rest(&self) -> VecDeque<InFlight<H>> {
        std::mem::take(&mut *self.0.lock())
    }
}
