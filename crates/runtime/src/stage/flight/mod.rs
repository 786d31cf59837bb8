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
use super::pace::QUANTUM;
use super::permits::Shed;
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
    /// The first flight for a visit to poll. Visits that poll and visits that begin events take turns.
    pub(super) fn take_woken(&mut self, now: Time) -> Option<InFlight<H>> {
        let begins = self.queue.len() > 0 && self.flights.room() > 0 && self.flights.polled_last;
        let woken = if begins { None } else { self.flights.take_woken(now) };
        self.flights.polled_last = woken.is_some();
        woken
    }

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
        let Batch { chunk, spent, lanes, .. } = batch;
        progress.before += progress.at;
        spent.append(chunk.spend(std::mem::take(&mut progress.at)));
        let one = chunk.split_front(1, Vec::with_capacity(1));
        let lane = (!lanes.is_empty()).then(|| lanes.remove(progress.before));
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
            batch: Batch {
                ticket: batch.ticket.take(),
                lanes: lane.into_iter().collect(),
                ..Batch::of(one)
            },
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
        flight.batch.turn = self.detach(batch);
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

    /// A visit of flights that were woken: they are taken one by one, so that a poll that does not return holds
    /// no other.
    pub(super) fn fly_on(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        first: InFlight<H>,
        visit: &mut Visit,
    ) {
        let _reactor = core.enter_reactor();
        let most = visit.at_most(WOKEN_MAX);
        let (mut next, mut polled) = (Some(first), 0);
        while let Some(flight) = next.take() {
            self.poll(core, &mut instance, flight, visit);
            polled += 1;
            let now = core.clock.now();
            visit.end = Some(now);
            let late = now.duration_since(visit.start) > QUANTUM;
            let waits = instance.links.in_line() != InLine::No;
            if polled < most && !late && !waits && !core.is_stopped() {
                next = self.state.lock().flights.take_woken(now);
            }
        }
        let in_line = instance.links.in_line();
        let end = visit.end.unwrap_or(visit.start);
        visit.done = polled;
        instance.pace.note(end.duration_since(visit.start), polled);
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.pace.learn(&mut instance.pace, self.rules.batch);
        core.set_pace(self.id, state.pace.usual());
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
        if flight.batch.ticket.is_some() && duty != Duty::default() {
            instance.ports.each(&mut Owes(&duty)); // its results may leave after another's
        }
        instance.ports.each(&mut Mark);
        if flight.future.is_none() && self.shed_over_flight(core, &mut flight, now, visit) {
            instance.cx.set_attempt(1);
            return;
        }
        let stop = self.poll_once(core, instance, &mut flight, now, visit);
        instance.cx.set_attempt(1); // of what comes next
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
        instance.cx.set_attempt(flight.attempt);
        let effects = &mut visit.effects;
        match self.failed(core, effects, instance, &mut flight.batch, &mut Progress::default(), why)
        {
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
            (None, _) if instance.cx.deadline().is_some_and(|deadline| deadline <= now) => {
                Err(Reason::Deadline)
            }
            (None, _) => {
                flight.limit = self.limit(now, instance.cx.deadline());
                let (retain, fault) = (self.rules.retain, self.next_fault(core, true));
                let tried = user.call(|| match fault {
                    None => instance.try_one(&mut flight.batch, retain),
                    Some(fault) => fault.strike(),
                });
                if let Ok(Stop::Waits) = tried {
                    flight.future = instance.handler.as_mut().and_then(Handler::take_flight);
                    flight.wakeup = instance.renew_wakeup(core, self.id);
                }
                tried
            }
        }
    }

    /// Sheds an event that is to be tried again, if nobody wants it any more. Returns whether it did.
    fn shed_over_flight(
        &self,
        core: &Core,
        flight: &mut Flying<H>,
        now: Time,
        visit: &mut Visit,
    ) -> bool {
        let chunk = &mut flight.batch.chunk;
        if !chunk.is_awaited() || !chunk.first_duty().0.is_over(now) {
            return false;
        }
        let over = chunk.split_front(1, Vec::new());
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.in_flight -= 1;
        state.shed(&self.rules.name, Shed::Abandoned, over, &mut visit.effects);
        let shed = Tally { failed: 1, ..Tally::default() };
        self.landed(core, state, flight, shed, &mut visit.effects);
        true
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

    /// An event in flight has ended: what it sent goes on its way, and it is counted.
    fn land(
        &self,
        core: &Arc<Core>,
        instance: &mut Instance<H>,
        mut flight: InFlight<H>,
        visit: &mut Visit,
    ) {
        instance.kept.drain(..).for_each(user::discard);
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
                self.landed(core, state, &flight, tally, &mut visit.effects);
                let usual = state.pace.usual();
                drop(guard);
                self.tell(core, &settling, usual, visit);
                false
            }
            Some(ticket) => {
                let together = Obligation::default();
                let of = Deposited { tally, meta, spent, together, enqueued };
                let leaves = self.deposit(&mut instance.ports, ticket, of);
                let mut guard = self.state.lock();
                self.landed(core, &mut guard, &flight, Tally::default(), &mut visit.effects);
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
        flight: &Flying<H>,
        tally: Tally,
        effects: &mut Effects,
    ) {
        state.flights.free(flight.id);
        state.queue.done(flight.batch.turn);
        state.flights.release(1);
        self.cycle_ended(state, tally.ended(), effects);
        self.claim(state, effects);
        state.deactivate(effects);
        self.changed(core, state, effects);
    }
}
