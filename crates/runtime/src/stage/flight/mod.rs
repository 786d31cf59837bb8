//! Hop 6 of a stage whose handlers wait: events in flight. A call of the handler polls the future of its
//! event once (`handle`); if it waits, the event leaves the visit with its future, holds neither an instance
//! nor a thread, and is polled again by whichever instance is free once its waker was called.
//! Before: `take`, with an event or with those that were woken. After: `emit`, then `settle` or `order`.
//!
//! Invariant: at most `instances` events of the plan are in flight or being begun. Where they stand is in
//! [`slots`].

mod slots;

use std::task::Poll;
use std::time::Duration;

use comporta_model::ack::{Fate, Obligation};
use comporta_model::column::Duty;
use comporta_model::event::{Meta, Time};
use comporta_model::port::Ports;
use comporta_model::stage::Handler;

pub(crate) use slots::FlightId;
use slots::Flying;
pub(super) use slots::{Flights, InFlight, Wakeup};

use super::fail::{Next, Why};
use super::handle::{Instance, Progress, Stop, Tally};
use super::order::Deposited;
use super::ports::{Flooded, Mark, Owes, Unbounded};
use super::settle::Settling;
use super::take::Batch;
use super::{Phase, Stage, State};
use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::failure::Reason;
use crate::path::emit::InLine;
use crate::path::ready::{Task, Token};
use crate::sync::Arc;
use crate::user;

/// How many flights that were woken a visit polls at most.
const WOKEN_MAX: usize = if cfg!(shuttle) { 2 } else { 32 };

impl<H: Handler> State<H> {
    /// Flights for a visit to poll: a share of those that were woken.
    pub(super) fn take_woken(&mut self, now: Time) -> Vec<InFlight<H>> {
        let share = self.flights.woken().div_ceil(self.instances.count().max(1));
        let n = share.clamp(1, WOKEN_MAX);
        std::iter::from_fn(|| self.flights.take_woken(now)).take(n).collect()
    }

    /// The program was stopped.
    fn cancel_flight(&mut self, flight: InFlight<H>, effects: &mut Effects) {
        self.flights.release(1);
        self.in_flight -= 1;
        self.counts.cancelled += 1;
        flight.batch.chunk.settle(Fate::Cancelled);
        effects.discard(flight);
    }

    /// What an instance that is dropped holds of them.
    pub(super) fn cancel_flushed(&mut self, instance: &Instance<H>) {
        for flight in &instance.flushed {
            self.flights.release(1);
            self.in_flight -= 1;
            self.counts.cancelled += 1;
            flight.batch.chunk.settle(Fate::Cancelled);
        }
    }

    pub(super) fn cancel_flights(&mut self, effects: &mut Effects) {
        for flight in self.flights.cancel() {
            self.cancel_flight(flight, effects);
        }
    }
}

impl<H: Handler> Stage<H> {
    /// The waker of a flight was called.
    pub(super) fn flight_woken(&self, id: FlightId, effects: &mut Effects) {
        let mut guard = self.state.lock();
        if guard.flights.wake(id) {
            self.claim(&mut guard, effects);
        }
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
        let Batch { chunk, spent, .. } = batch;
        progress.before += progress.at;
        spent.append(chunk.spend(std::mem::take(&mut progress.at)));
        let one = chunk.split_front(1, Vec::with_capacity(1));
        let now = core.clock.now();
        let attempt = instance.cx.attempt();
        instance.cx.set_attempt(1);
        let future = match retry {
            None => instance.handler.as_mut().and_then(Handler::take_flight),
            Some(_) => None,
        };
        let limit = self.limit(now, one.first_duty().0.deadline).filter(|_| retry.is_none());
        let mut flight = Box::new(Flying {
            id: None,
            batch: Batch { ticket: batch.ticket.take(), ..Batch::of(one) },
            kept: std::mem::take(&mut instance.kept),
            attempt,
            future,
            wakeup: instance.renew_wakeup(core, self.id),
            alarm: retry.map(|wait| now + wait),
            limit,
            since: now,
            partial: false,
        });
        batch.slots = 0; // it has it
        if let Some(cycle) = &self.state.lock().cycle {
            cycle.activate(); // in flight it can act
        }
        if H::FLUSHES && self.flush(core, instance, &mut flight, now, visit) {
            instance.flushed.push(flight);
            if instance.links.in_line() == InLine::No {
                self.flushed(core, instance, visit);
            }
            return false;
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        self.park_flight(core, state, flight, now, &mut visit.effects);
        let more = state.flights.reserve();
        batch.slots = usize::from(more);
        more && !core.is_stopped()
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
        state.flights.park(flight, now);
        self.arm(core, state);
        self.claim(state, effects);
    }

    /// A visit of flights that were woken.
    pub(super) fn fly_on(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        flights: Vec<InFlight<H>>,
        visit: &mut Visit,
    ) {
        let _reactor = core.enter_reactor();
        let polled = flights.len();
        let mut flights = flights.into_iter();
        let mut in_line = InLine::No;
        for flight in flights.by_ref() {
            self.poll(core, &mut instance, flight, visit);
            in_line = instance.links.in_line();
            if in_line != InLine::No {
                break; // it waits for room: others poll the rest
            }
        }
        let end = core.clock.now();
        visit.end = Some(end);
        visit.done = polled;
        instance.pace.note(end.duration_since(visit.start), polled);
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.pace.learn(&mut instance.pace, self.rules.batch);
        core.set_pace(self.id, state.pace.usual());
        for mut flight in flights {
            flight.be_looked_at(end);
            self.park_flight(core, state, flight, end, &mut visit.effects);
        }
        self.place(core, state, instance, in_line, &mut visit.effects);
        self.changed(core, state, &mut visit.effects);
    }

    /// Polls a flight, and sees to what becomes of it.
    fn poll(
        &self,
        core: &Arc<Core>,
        instance: &mut Instance<H>,
        mut flight: InFlight<H>,
        visit: &mut Visit,
    ) {
        let now = core.clock.now();
        let Meta { ingress, tier, .. } = flight.batch.chunk.meta;
        let duty = flight.batch.chunk.first_duty().0.clone();
        instance.cx.set_origin(ingress, tier);
        instance.cx.set_duty(&duty);
        instance.cx.set_attempt(flight.attempt);
        instance.kept = std::mem::take(&mut flight.kept);
        instance.ports.each(&mut Unbounded(self.emit_max()));
        instance.ports.each(&mut Mark);
        let stop = self.poll_once(core, instance, &mut flight, now, visit);
        let mut flooded = Flooded(false);
        instance.ports.each(&mut flooded);
        let why = match stop {
            Ok(Stop::Waits) => return self.wait_on(core, instance, flight, visit),
            Ok(Stop::Failed(error)) => Why::of(error),
            Err(reason) => Why::usual(reason),
            Ok(_) if flooded.0 => Why::usual(Reason::Flood(self.rules.emit_max)),
            Ok(_) => {
                flight.batch.tally.handled = 1;
                return self.land(core, instance, flight, visit);
            }
        };
        let why = Why { partial: flight.partial, ..why };
        match self.failed(core, instance, &mut flight.batch, &mut 0, why) {
            Next::On | Next::Stop => self.land(core, instance, flight, visit),
            Next::Wait(wait) => {
                flight.attempt = instance.cx.attempt();
                flight.alarm = Some(core.clock.now() + wait);
                flight.limit = None;
                flight.kept = std::mem::take(&mut instance.kept);
                let mut guard = self.state.lock();
                let state = &mut *guard;
                state.counts.retried += 1;
                flight.batch.tally.retried = 0;
                let now = core.clock.now();
                self.park_flight(core, state, flight, now, &mut visit.effects);
            }
        }
        instance.cx.set_attempt(1);
    }

    /// Polls the future of a flight, or calls the handler anew if it is tried again.
    fn poll_once(
        &self,
        core: &Arc<Core>,
        instance: &mut Instance<H>,
        flight: &mut Flying<H>,
        now: Time,
        visit: &mut Visit,
    ) -> Result<Stop, Reason> {
        let user = visit.effects.hand_over(core);
        let expired = flight.limit.take_if(|(due, _)| *due <= now);
        match (flight.future.take(), expired) {
            (Some(future), Some((_, reason))) => {
                user::discard(future);
                Err(reason)
            }
            (Some(mut future), None) => {
                let waker = flight.wakeup.clone().into();
                let polled = user.call(|| future.poll(&waker, &mut instance.ports));
                match polled {
                    Ok(Poll::Pending) => {
                        flight.future = Some(future);
                        Ok(Stop::Waits)
                    }
                    Ok(Poll::Ready(result)) => {
                        if let Some(handler) = &mut instance.handler {
                            let _ = user::call(|| handler.put_by(future));
                        }
                        Ok(result.map_or_else(Stop::Failed, |()| Stop::Spent))
                    }
                    Err(panic) => {
                        user::discard(future);
                        Err(panic)
                    }
                }
            }
            // It is tried again.
            (None, _) => {
                flight.limit = self.limit(now, instance.cx.deadline());
                let retain = self.rules.retain;
                let tried = user.call(|| instance.try_one(&mut flight.batch.chunk, retain));
                if let Ok(Stop::Waits) = tried {
                    flight.future = instance.handler.as_mut().and_then(Handler::take_flight);
                    flight.wakeup = instance.renew_wakeup(core, self.id);
                }
                tried
            }
        }
    }

    /// A flight still waits. What it flushed goes on its way; it is polled again when that found room.
    fn wait_on(
        &self,
        core: &Arc<Core>,
        instance: &mut Instance<H>,
        mut flight: InFlight<H>,
        visit: &mut Visit,
    ) {
        flight.kept = std::mem::take(&mut instance.kept);
        let now = core.clock.now();
        if H::FLUSHES && self.flush(core, instance, &mut flight, now, visit) {
            instance.flushed.push(flight);
            if instance.links.in_line() == InLine::No {
                self.flushed(core, instance, visit);
            }
            return;
        }
        let mut guard = self.state.lock();
        self.park_flight(core, &mut guard, flight, now, &mut visit.effects);
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
        let mut guard = self.state.lock();
        for mut flight in instance.flushed.drain(..) {
            flight.be_looked_at(now);
            self.park_flight(core, &mut guard, flight, now, &mut visit.effects);
        }
    }

    /// An event in flight has ended: what it sent goes on its way, and it is counted.
    fn land(
        &self,
        core: &Arc<Core>,
        instance: &mut Instance<H>,
        mut flight: InFlight<H>,
        visit: &mut Visit,
    ) {
        instance.kept.drain(..).for_each(user::discard);
        let id = flight.id;
        let Batch { chunk, ticket, tally, .. } = &mut flight.batch;
        let (tally, ticket) = (*tally, *ticket);
        let end = core.clock.now();
        visit.end = Some(end);
        let duty = chunk.first_duty().0.clone();
        let enqueued = chunk.meta.enqueued;
        let meta = Meta { home: visit.home, enqueued: end, duty, ..chunk.meta.clone() };
        let spent = chunk.spend(1);
        let leaves = match ticket {
            None => {
                let sent = instance.links.flush(core, &mut instance.ports, &meta, true, visit);
                let settling = Settling { meta: &meta, spent: &spent, enqueued, tally, sent };
                let mut guard = self.state.lock();
                let state = &mut *guard;
                self.count(core, state, &settling, visit);
                self.landed(core, state, id, tally, &mut visit.effects);
                let usual = state.pace.usual();
                drop(guard);
                self.tell(core, &settling, usual, visit);
                false
            }
            Some(ticket) => {
                if meta.duty != Duty::default() {
                    instance.ports.each(&mut Owes(&meta.duty)); // it may leave after another's results
                }
                let together = Obligation::default();
                let of = Deposited { tally, meta, spent, together, enqueued };
                let leaves = self.deposit(&mut instance.ports, ticket, of);
                let mut guard = self.state.lock();
                self.landed(core, &mut guard, id, Tally::default(), &mut visit.effects);
                leaves
            }
        };
        if leaves {
            self.release_results(core, visit);
        }
    }

    fn landed(
        &self,
        core: &Core,
        state: &mut State<H>,
        id: Option<FlightId>,
        tally: Tally,
        effects: &mut Effects,
    ) {
        state.flights.free(id);
        state.flights.release(1);
        self.cycle_ended(state, tally.ended(), effects);
        self.claim(state, effects);
        state.deactivate(effects);
        self.changed(core, state, effects);
    }
}
