//! A visit to events in flight that were woken: it takes as many as a quantum has time for, polls them one after
//! the other, and has those that ended land together.
//! Before: `take`. After: `land`; or `slots` again, for those that still wait.
//!
//! Invariant: flights that a visit has taken and not polled stand in its tray, from where they are taken back if
//! a poll does not return (`Core::look`).

use std::collections::VecDeque;
use std::task::Poll;

use comporta_model::event::{Meta, Time};
use comporta_model::kind::Kind;
use comporta_model::port::Ports;

use super::InFlight;
use super::land::Landing;
use super::slots::{FlightTray, Flying};
use crate::core::Core;
use crate::effects::Visit;
use crate::failure::Reason;
use crate::path::emit::InLine;
use crate::stage::fail::{Next, Why};
use crate::stage::handle::{Instance, Progress, Stop, Tally};
use crate::stage::order::Deposited;
use crate::stage::pace::QuantumCheck;
use crate::stage::permits::Shed;
use crate::stage::ports::{Flooded, Mark, Over, Owes, Unbounded};
use crate::stage::take::Batch;
use crate::stage::{Phase, Stage, State};
use crate::sync::Arc;
use crate::user;

/// How many flights that were woken a visit polls at most: what a visit costs is little against so many, and the
/// rest of a burst is left to others.
const WOKEN_MAX: usize = if cfg!(shuttle) { 2 } else { 64 };

/// A visit looks at the clock at least so often, however quick polls were before.
const LOOK_EVERY: usize = 16;

impl<H: Kind> Stage<H> {
    /// The flights for a visit to poll, if there are. Visits that poll and visits that begin events take turns.
    pub(in crate::stage) fn take_woken(
        &self,
        state: &mut State<H>,
        visit: &Visit,
    ) -> Option<VecDeque<InFlight<H>>> {
        if state.flights.woken() == 0 {
            state.flights.polled_last = false;
            return None;
        }
        let begins = self.may_begin(state, state.queue.visits(1)) > 0;
        if begins && std::mem::take(&mut state.flights.polled_last) {
            return None;
        }
        let most = state.pace.stride(self.is_shared(state)).min(WOKEN_MAX);
        let taken = state.flights.take_woken(visit.at_most(most), visit.start);
        state.flights.polled_last = !taken.is_empty();
        state.flights.polled_last.then_some(taken)
    }

    /// Polls flights that were woken.
    pub(in crate::stage) fn fly_on(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        mut flights: VecDeque<InFlight<H>>,
        visit: &mut Visit,
    ) {
        let _reactor = core.enter_reactor();
        let mut next = flights.pop_front();
        let tray = (!flights.is_empty()).then(|| Arc::new(FlightTray::<H>::new(flights)));
        if let Some(tray) = &tray {
            core.show_tray(visit, self.id, tray.clone());
        }
        let (mut landing, mut polled, mut now) = (Landing::default(), 0, visit.start);
        let mut check = QuantumCheck::new(visit.start, &instance.pace);
        let mut look = true;
        while let Some(flight) = next.take() {
            if !landing.mixes_with(&flight.batch.chunk.meta) {
                self.settle_landed(core, &mut instance, &mut landing, visit);
                look = true;
                if let Some(tray) = &tray
                    && instance.links.in_line() != InLine::No
                {
                    tray.put_back(flight); // what it would send has to wait for room, too
                    break;
                }
            }
            if std::mem::take(&mut look) {
                self.look_for_room(core, &mut instance, &flight, visit);
            }
            if flight.limit.is_some() {
                now = core.clock.now();
            }
            self.poll(core, &mut instance, flight, &mut landing, now, visit);
            polled += 1;
            let look_now = polled >= check.next() || polled.is_multiple_of(LOOK_EVERY);
            let late = look_now && {
                now = core.clock.now();
                check.judge(now, polled, WOKEN_MAX.saturating_sub(polled))
            };
            let mut over = Over(self.rules.flushes || instance.links.errors_are_over());
            instance.ports.each(&mut over);
            if over.0 {
                self.settle_landed(core, &mut instance, &mut landing, visit);
                look = true;
            }
            let waits = instance.links.in_line() != InLine::No;
            if !late && !waits && !core.is_stopped() {
                next = tray.as_ref().and_then(|tray| tray.next());
            }
        }
        now = core.clock.now();
        visit.end = Some(now);
        self.settle_landed(core, &mut instance, &mut landing, visit);
        let rest = tray.map(|tray| {
            core.hide_tray(visit);
            tray.take_rest()
        });
        visit.done = polled;
        instance.pace.note(now.duration_since(visit.start), polled);
        let in_line = instance.links.in_line();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.put_flights_back(rest.unwrap_or_default(), now, visit);
        self.learn(core, state, &mut instance);
        self.place(core, state, instance, in_line, &mut visit.effects);
        self.changed(core, state, &mut visit.effects);
    }

    /// Takes back the flights that a visit has not polled, because a poll does not return.
    pub(in crate::stage) fn reclaim_flights(
        &self,
        core: &Core,
        tray: &FlightTray<H>,
        visit: &mut Visit,
    ) {
        let mut guard = self.state.lock();
        let rest = tray.take_rest();
        if !rest.is_empty() {
            guard.put_flights_back(rest, core.clock.now(), visit);
            self.changed(core, &mut guard, &mut visit.effects);
        }
    }

    /// How much may be sent by flights that land together, the first of them being this one.
    fn look_for_room(
        &self,
        core: &Core,
        instance: &mut Instance<H>,
        first: &Flying<H>,
        visit: &mut Visit,
    ) {
        let Instance { ports, links, .. } = instance;
        if first.batch.ticket.is_none() {
            visit.effects.hand_over(core); // admission controllers are asked
            links.look_for_room(core, ports, &first.batch.chunk.meta, self.rules.emit_max);
        }
    }

    /// Polls a flight, and sees to what becomes of it.
    fn poll(
        &self,
        core: &Arc<Core>,
        instance: &mut Instance<H>,
        mut flight: InFlight<H>,
        landing: &mut Landing,
        now: Time,
        visit: &mut Visit,
    ) {
        flight.begin_poll();
        let Meta { ingress, tier, .. } = flight.batch.chunk.meta;
        let duty = flight.batch.chunk.first_duty().0.clone();
        instance.cx.set_origin(ingress, tier);
        instance.cx.set_duty(&duty);
        instance.cx.set_attempt(flight.attempt);
        instance.kept = std::mem::take(&mut flight.kept);
        if flight.batch.ticket.is_none() {
            landing.expect(&flight.batch.chunk.meta, &duty, &mut instance.ports);
        } else {
            instance.ports.each(&mut Unbounded(self.rules.emit_max));
            // Its results may leave after another's; the ports may still say what one owes that waits on.
            instance.ports.each(&mut Owes(&duty));
        }
        instance.ports.each(&mut Mark);
        if flight.future.is_none() && self.shed_over_flight(core, instance, &mut flight, now, visit)
        {
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
                return self.land(core, instance, flight, landing, visit);
            }
        };
        let why = Why { partial: flight.partial, ..why };
        instance.cx.set_attempt(flight.attempt);
        let (effects, progress) = (&mut visit.effects, &mut Progress::default());
        match self.failed(core, effects, instance, &mut flight.batch, progress, why) {
            Next::On | Next::Stop => self.land(core, instance, flight, landing, visit),
            Next::Wait(wait) if self.rules.keys.is_some() && !flight.partial => {
                self.land_in_lane(core, instance, flight, wait, visit);
            }
            Next::Wait(wait) => {
                flight.attempt = instance.cx.attempt();
                flight.limit = None;
                flight.kept = std::mem::take(&mut instance.kept);
                let now = core.clock.now();
                flight.try_again(now + wait);
                let mut guard = self.state.lock();
                let state = &mut *guard;
                state.counts.retried += 1;
                flight.batch.tally.retried = 0;
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
                let waker = flight.waker();
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
                    flight.future =
                        instance.handler.as_mut().and_then(|handler| handler.take_flight());
                    flight.wakeup = Some(instance.renew_wakeup(None));
                }
                tried
            }
        }
    }

    /// Sheds an event that is to be tried again, if nobody wants it any more. Returns whether it did.
    fn shed_over_flight(
        &self,
        core: &Arc<Core>,
        instance: &mut Instance<H>,
        flight: &mut Flying<H>,
        now: Time,
        visit: &mut Visit,
    ) -> bool {
        let Batch { chunk, ticket, .. } = &mut flight.batch;
        if !chunk.is_awaited() || !chunk.first_duty().0.is_over(now) {
            return false;
        }
        // In an ordered stage its place is passed over.
        let leaves = ticket.take().is_some_and(|ticket| {
            self.deposit(&mut instance.ports, ticket, Deposited::nothing(chunk.meta.clone()))
        });
        let over = chunk.split_front(1, Vec::new());
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.in_flight -= 1;
        state.shed(&self.rules.name, Shed::Abandoned, over, &mut visit.effects);
        flight.turn.take().into_iter().for_each(|turn| state.queue.done(turn));
        let shed = Tally { failed: 1, ..Tally::default() };
        self.landed(core, state, flight.id.as_slice(), shed, &mut visit.effects);
        drop(guard);
        if leaves {
            self.release_results(core, visit);
        }
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
        if self.rules.flushes && self.flush(core, instance, &mut flight, now, visit) {
            instance.flushed.push(flight);
            if instance.links.in_line() == InLine::No {
                self.flushed(core, instance, visit);
            }
            return;
        }
        let mut guard = self.state.lock();
        self.park_flight(core, &mut guard, flight, now, &mut visit.effects);
    }
}

impl<H: Kind> State<H> {
    /// What a visit has not polled is polled by the next.
    fn put_flights_back(&mut self, rest: VecDeque<InFlight<H>>, now: Time, visit: &mut Visit) {
        for flight in rest.into_iter().rev() {
            if self.phase == Phase::Cancelled {
                self.cancel_flight(flight, &mut visit.effects);
            } else {
                self.flights.put_back(flight, now);
            }
        }
    }
}
