//! Hop 6 of a stage whose handlers wait: events in flight. A call of the handler polls the future of its
//! event once (`handle`); if it waits, the event leaves the visit with its future, holds neither an instance
//! nor a thread, and is polled again by whichever instance is free once its waker was called.
//! Before: `take`, with an event or with those that were woken. After: `emit`, then `settle` or `order`.
//!
//! 1. here: an event takes off, and is parked; what it flushes.
//! 2. [`slots`]: where flights stand.
//! 3. [`wakeup`]: how they are woken.
//! 4. [`poll`]: a visit to those that were.
//! 5. [`land`]: those that have ended land together.
//!
//! Invariants: at most `instances` events of the plan are in flight or being begun. Where the queue has lanes,
//! a flight holds the turn that its event was taken in until what it sent has entered the next queue: its lane
//! stays closed across awaits.

mod slots;
mod wakeup;
mod poll;
mod land;

use std::time::Duration;

use comporta_model::ack::Fate;
use comporta_model::chunk::Chunk;
use comporta_model::event::{Meta, Time};
use comporta_model::kind::Kind;

use slots::Flying;
pub(super) use slots::{FlightTray, Flights, InFlight};
pub(crate) use wakeup::Wakeup;

use super::handle::{Instance, Progress};
use super::queue::Turn;
use super::take::Batch;
use super::{Phase, Stage, State};
use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::failure::Reason;
use crate::path::emit::InLine;
use crate::path::ready::{Task, Token};
use crate::sync::Arc;
use crate::user;

impl<H: Kind> State<H> {
    /// The program was stopped.
    fn cancel_flight(&mut self, flight: InFlight<H>, effects: &mut Effects) {
        self.flights.release(1);
        self.in_flight -= 1;
        self.counts.cancelled += 1;
        // One by one: of two values that panic together, the second would abort the process.
        let Flying { future, kept, batch, .. } = *flight;
        batch.chunk.settle(Fate::Cancelled);
        effects.discard(future);
        kept.into_iter().for_each(|kept| effects.discard(kept));
        effects.discard_events(&mut batch.chunk.into_events());
    }

    /// What an instance that is dropped holds of them.
    pub(super) fn cancel_flushed(&mut self, instance: &mut Instance<H>, effects: &mut Effects) {
        for flight in std::mem::take(&mut instance.flushed) {
            self.cancel_flight(flight, effects);
        }
    }

    /// An event that was begun goes back to its lane, to be tried again then, for so many times.
    fn put_in_lane(
        &mut self,
        turn: Option<Turn>,
        event: Chunk<H::Item>,
        retry: (Time, u32),
        effects: &mut Effects,
    ) {
        self.in_flight -= 1;
        let Some((lanes, turn)) = self.queue.as_lanes().zip(turn) else { return };
        if self.phase == Phase::Cancelled {
            self.counts.cancelled += 1;
            event.settle(Fate::Cancelled);
            effects.discard_events(&mut event.into_events());
        } else {
            lanes.put_back_of(turn, event, Some(retry));
        }
        self.queue.done(turn);
    }

    pub(super) fn cancel_flights(&mut self, effects: &mut Effects) {
        for flight in self.flights.cancel() {
            self.cancel_flight(flight, effects);
        }
    }
}

impl<H: Kind> Stage<H> {
    /// Flights were woken, and are in the list.
    pub(super) fn flights_woken(&self, effects: &mut Effects) {
        self.claim(&mut self.state.lock(), effects);
    }

    /// The clock says that the time of some has come.
    pub(super) fn flights_due(&self, core: &Core, visit: &mut Visit) {
        let mut guard = self.state.lock();
        guard.flights.ring(core.clock.now());
        self.arm(core, &mut guard);
        self.claim(&mut guard, &mut visit.effects);
    }

    fn arm(&self, core: &Core, state: &mut State<H>) {
        if let Some(due) = state.flights.arm() {
            core.timers.add(due, Token::new(self.id, Task::Alarm));
        }
    }

    /// When the time of an event is up that is begun now, and why.
    fn limit(&self, now: Time, deadline: Option<Time>) -> Option<(Time, Reason)> {
        let timeout = self.rules.timeout.map(|limit| (now + limit, Reason::TimedOut(limit)));
        let deadline = deadline.map(|deadline| (deadline, Reason::Deadline));
        match (timeout, deadline) {
            (Some(timeout), Some(deadline)) if deadline.0 < timeout.0 => Some(deadline),
            (timeout, deadline) => timeout.or(deadline),
        }
    }

    /// The first event in hand, at which the visit has come, waits: for what its future waits for, or to be
    /// tried again after `retry`. It leaves the visit. Returns whether another may be begun.
    pub(super) fn take_off(
        &self,
        core: &Arc<Core>,
        instance: &mut Instance<H>,
        batch: &mut Batch<H::Item>,
        progress: &mut Progress,
        retry: Option<Duration>,
        visit: &mut Visit,
    ) -> bool {
        if let Some(wait) = retry.filter(|_| self.rules.keys.is_some()) {
            return self.wait_in_lane(core, instance, batch, progress, wait, visit);
        }
        let Batch { chunk, spent, lanes, .. } = batch;
        progress.before += progress.at;
        spent.append(chunk.spend(std::mem::take(&mut progress.at)));
        let now = core.clock.now();
        let mut flight = instance.begin_flight(chunk);
        if !lanes.is_empty() {
            flight.batch.lanes.push(lanes.remove(progress.before));
        }
        flight.batch.ticket = batch.ticket.take();
        flight.attempt = instance.cx.attempt();
        instance.cx.set_attempt(1);
        match retry {
            None => {
                flight.future = instance.handler.as_mut().and_then(|handler| handler.take_flight());
                flight.limit = self.limit(now, flight.batch.chunk.first_duty().0.deadline);
            }
            Some(wait) => flight.try_again(now + wait),
        }
        batch.slots = 0; // it has it
        let mut guard = self.state.lock();
        if let Some(cycle) = &guard.cycle {
            cycle.activate(); // in flight it can act
        }
        flight.turn = guard.detach(batch);
        if self.rules.flushes {
            drop(guard);
            if self.flush(core, instance, &mut flight, now, visit) {
                instance.flushed.push(flight);
                if instance.links.in_line() == InLine::No {
                    self.flushed(core, instance, visit);
                }
                return false;
            }
            guard = self.state.lock();
        }
        let state = &mut *guard;
        self.park_flight(core, state, flight, now, &mut visit.effects);
        let more = state.flights.reserve();
        batch.slots = usize::from(more);
        more && !core.is_stopped()
    }

    /// The first event in hand, at which the visit has come, is tried again after `wait`. It goes back to its lane, where
    /// it holds up neither an instance nor another key. Returns whether another event may be begun.
    fn wait_in_lane(
        &self,
        core: &Core,
        instance: &mut Instance<H>,
        batch: &mut Batch<H::Item>,
        progress: &mut Progress,
        wait: Duration,
        visit: &mut Visit,
    ) -> bool {
        let Batch { chunk, spent, lanes, .. } = batch;
        progress.before += progress.at;
        spent.append(chunk.spend(std::mem::take(&mut progress.at)));
        let event = chunk.split_front(1, Vec::new());
        let lane = (!lanes.is_empty()).then(|| lanes.remove(progress.before));
        drop(lane); // before the lane can be forgotten; its queue has it
        instance.kept.drain(..).for_each(user::discard);
        let retry = (core.clock.now() + wait, instance.cx.attempt());
        instance.cx.set_attempt(1);
        let mut guard = self.state.lock();
        let turn = guard.detach(batch);
        guard.put_in_lane(turn, event, retry, &mut visit.effects);
        self.note_waiting_lanes(&mut guard, &mut visit.effects);
        self.changed(core, &mut guard, &mut visit.effects);
        !core.is_stopped()
    }

    /// Flights of a cycle can act as long as an instance may come to poll them: not while all wait for room in
    /// the cycle.
    pub(super) fn note_blocked(&self, state: &mut State<H>, effects: &mut Effects) {
        let Some(cycle) = &state.cycle else { return };
        let inside = state.flights.inside;
        let blocked = inside > 0 && inside >= state.instances.count();
        if state.flights.blocked != blocked {
            state.flights.blocked = blocked;
            for _ in 0..state.flights.standing() {
                if blocked { state.deactivate(effects) } else { cycle.activate() }
            }
        }
    }

    fn park_flight(
        &self,
        core: &Core,
        state: &mut State<H>,
        flight: InFlight<H>,
        now: Time,
        effects: &mut Effects,
    ) {
        if state.phase == Phase::Cancelled {
            return state.cancel_flight(flight, effects);
        }
        let woken = state.flights.park(flight, now);
        self.arm(core, state);
        if woken {
            self.claim(state, effects);
        }
    }

    /// Sends what a flight flushed, if it did.
    pub(super) fn flush(
        &self,
        core: &Arc<Core>,
        instance: &mut Instance<H>,
        flight: &mut Flying<H>,
        now: Time,
        visit: &mut Visit,
    ) -> bool {
        let Some(future) = &mut flight.future else { return false };
        let ports = &mut instance.ports;
        if !user::call(|| future.take_flushed(ports)).unwrap_or(false) {
            return false;
        }
        flight.partial = true;
        let duty = flight.batch.chunk.first_duty().0.clone();
        let meta =
            Meta { home: visit.home, enqueued: now, duty, ..flight.batch.chunk.meta.clone() };
        visit.end = Some(now);
        let sent = instance.links.flush(core, &mut instance.ports, &meta, true, visit);
        let mut state = self.state.lock();
        state.counts.emitted += sent.emitted as u64;
        state.counts.unrouted += sent.unrouted as u64;
        state.counts.lost += sent.lost as u64;
        true
    }

    /// What flights flushed has found room: they go on.
    pub(super) fn flushed(&self, core: &Core, instance: &mut Instance<H>, visit: &mut Visit) {
        if instance.flushed.is_empty() {
            return;
        }
        let now = core.clock.now();
        let inactive = std::mem::take(&mut instance.flushed_inside);
        let mut guard = self.state.lock();
        for mut flight in instance.flushed.drain(..) {
            if let Some(cycle) = guard.cycle.as_ref().filter(|_| inactive) {
                cycle.activate();
            }
            flight.be_looked_at(now);
            self.park_flight(core, &mut guard, flight, now, &mut visit.effects);
        }
    }
}

/// Flights that an instance keeps for the next events, as many as its handler keeps futures.
const SPARE_MAX: usize = 256;

impl<H: Kind> Instance<H> {
    /// Events that wait are woken by way of the list of their stage.
    pub(super) fn set_list(&mut self, core: &Arc<Core>, stage: &Stage<H>) {
        let list = stage.state.lock().flights.list().clone();
        list.start(core, stage.id);
        self.set_wakeup(Wakeup::new(&list));
    }

    /// The next event that waits is woken by this.
    fn set_wakeup(&mut self, wakeup: Arc<Wakeup>) {
        drop(self.cx.set_waker(wakeup.clone().into()));
        self.wakeup = Some(wakeup);
    }

    /// The next event that waits is woken by another than the last one, whose is returned. It is made of one
    /// that is no longer used, if there is one.
    fn renew_wakeup(&mut self, unused: Option<Arc<Wakeup>>) -> Arc<Wakeup> {
        let last = self.wakeup.clone().expect("the instance of a stage that waits has one");
        self.set_wakeup(unused.map_or_else(|| last.another(), Wakeup::renew));
        last
    }

    /// The flight of the first event of `chunk`, which has come to wait.
    fn begin_flight(&mut self, chunk: &mut Chunk<H::Item>) -> InFlight<H> {
        let mut flight = self.spare.pop().unwrap_or_default();
        let storage = flight.batch.chunk.take().into_storage();
        flight.batch = Batch::of(chunk.split_front(1, storage));
        let unused = flight.wakeup.take();
        flight.wakeup = Some(self.renew_wakeup(unused));
        flight.kept = std::mem::take(&mut self.kept);
        flight
    }

    /// Keeps a flight that has landed for another event.
    fn keep_spare(&mut self, mut flight: InFlight<H>) {
        if self.spare.len() < SPARE_MAX {
            flight.clear();
            self.spare.push(flight);
        }
    }
}
