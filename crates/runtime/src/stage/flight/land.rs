//! Hop 8 of events in flight: those that end in one visit land together. What they sent leaves by one flush,
//! under one lock of each queue, and they are settled together, under one lock of their stage.
//! Before: `poll`. After: `settle`, which counts them; results of an ordered stage land one by one, by `order`.
//!
//! Invariants: what flights sent has been delivered, or stands in an outbox, before they settle. Flights that
//! entered the program further apart than a latency may err do not land together. A visit holds no more landed
//! flights than a synchronous visit holds handled events: those of one quantum.

use comporta_model::ack::Obligation;
use comporta_model::column::{Duties, Duty};
use comporta_model::event::Meta;
use comporta_model::kind::Kind;
use comporta_model::port::Ports;
use std::time::Duration;

use super::InFlight;
use super::slots::{FlightId, Flying};
use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::path::emit::InLine;
use crate::stage::handle::{Instance, Tally};
use crate::stage::order::Deposited;
use crate::stage::ports::Owes;
use crate::stage::queue::Turn;
use crate::stage::settle::Settling;
use crate::stage::{Stage, State};
use crate::sync::Arc;
use crate::user;

/// Flights of a visit that have landed, and are not settled yet. What they sent stands in the ports.
#[derive(Default)]
pub(super) struct Landing {
    /// What the events share that they sent; `None` before the first flight is polled.
    meta: Option<Meta>,
    /// They do not all owe the same: each says what it owes.
    differ: bool,
    spent: Duties,
    tally: Tally,
    ids: Vec<FlightId>,
    turns: Vec<Turn>,
}

impl Landing {
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether a flight with this may land with those that have.
    pub(super) fn mixes_with(&self, meta: &Meta) -> bool {
        self.is_empty() || self.meta.as_ref().is_none_or(|own| own.mixes_with(meta, u64::MAX))
    }

    /// A flight is about to be polled: what it sends owes `duty`.
    pub(super) fn expect<P: Ports>(&mut self, meta: &Meta, duty: &Duty, ports: &mut P) {
        match &mut self.meta {
            Some(own) if !self.ids.is_empty() => {
                own.absorb(meta);
                self.differ |= own.duty != *duty;
            }
            own => *own = Some(Meta { duty: duty.clone(), ..meta.clone() }),
        }
        if self.differ {
            ports.each(&mut Owes(duty));
        }
    }

    /// A flight has ended, and has a slot.
    fn add<H: Kind>(&mut self, id: FlightId, flight: &mut Flying<H>) {
        let Tally { handled, failed, retried } = flight.batch.tally;
        self.tally.handled += handled;
        self.tally.failed += failed;
        self.tally.retried += retried;
        self.spent.append(flight.batch.chunk.spend(1));
        self.ids.push(id);
        self.turns.extend(flight.turn.take());
    }
}

impl<H: Kind> Stage<H> {
    /// An event in flight has ended: it lands with others, unless its results leave in order.
    pub(super) fn land(
        &self,
        core: &Arc<Core>,
        instance: &mut Instance<H>,
        mut flight: InFlight<H>,
        landing: &mut Landing,
        visit: &mut Visit,
    ) {
        instance.kept.drain(..).for_each(user::discard);
        let id = flight.id.expect("a flight that is polled stood in a slot");
        self.count_keys(flight.batch.lanes.iter(), Duration::ZERO);
        match flight.batch.ticket.take() {
            None => {
                landing.add(id, &mut flight);
                instance.keep_spare(flight);
            }
            Some(ticket) => self.land_in_order(core, instance, flight, (id, ticket), visit),
        }
    }

    fn land_in_order(
        &self,
        core: &Arc<Core>,
        instance: &mut Instance<H>,
        mut flight: InFlight<H>,
        (id, ticket): (FlightId, u64),
        visit: &mut Visit,
    ) {
        let end = core.clock.now();
        visit.end = Some(end);
        let chunk = &mut flight.batch.chunk;
        let (tally, enqueued) = (flight.batch.tally, chunk.meta.enqueued);
        let duty = chunk.first_duty().0.clone();
        let meta = Meta { home: visit.home, enqueued: end, duty, ..chunk.meta.clone() };
        let (spent, together) = (chunk.spend(1), Obligation::default());
        let of = Deposited { tally, meta, spent, together, enqueued };
        let leaves = self.deposit(&mut instance.ports, ticket, of);
        let turn = flight.turn.take();
        instance.keep_spare(flight);
        let mut guard = self.state.lock();
        turn.into_iter().for_each(|turn| guard.queue.done(turn));
        self.landed(core, &mut guard, &[id], Tally::default(), &mut visit.effects);
        drop(guard);
        if leaves {
            self.release_results(core, visit);
        }
    }

    /// An event in flight is tried again after `wait`. It waits in its lane, and not in a slot.
    pub(super) fn land_in_lane(
        &self,
        core: &Core,
        instance: &mut Instance<H>,
        mut flight: InFlight<H>,
        wait: Duration,
        visit: &mut Visit,
    ) {
        instance.kept.drain(..).for_each(user::discard);
        let id = flight.id.expect("a flight that is polled stood in a slot");
        let event = flight.batch.chunk.split_front(1, Vec::new());
        let turn = flight.turn.take();
        flight.batch.lanes.clear(); // before the lane can be forgotten
        let retry = (core.clock.now() + wait, instance.cx.attempt());
        instance.keep_spare(flight);
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.counts.retried += 1;
        state.put_in_lane(turn, event, retry, &mut visit.effects);
        self.note_waiting_lanes(state, &mut visit.effects); // before the flight can act no more
        self.landed(core, state, &[id], Tally::default(), &mut visit.effects);
    }

    /// Sends what the flights sent that have landed, and settles them.
    pub(super) fn settle_landed(
        &self,
        core: &Arc<Core>,
        instance: &mut Instance<H>,
        landing: &mut Landing,
        visit: &mut Visit,
    ) {
        if landing.is_empty() {
            return;
        }
        let end = core.clock.now();
        let Landing { meta, spent, tally, ids, turns, .. } = std::mem::take(landing);
        let meta = meta.unwrap_or_default();
        let enqueued = meta.enqueued;
        let meta = Meta { home: visit.home, enqueued: end, ..meta };
        visit.end = Some(end);
        let sent = instance.links.flush(core, &mut instance.ports, &meta, true, visit);
        let settling = Settling { meta: &meta, spent: Some(&spent), enqueued, tally, sent };
        let waits = instance.links.in_line() != InLine::No;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        self.count(core, state, &settling, visit);
        if waits {
            instance.landed_turns.extend(turns); // what they sent has not entered the next queue
        } else {
            turns.into_iter().for_each(|turn| state.queue.done(turn));
        }
        self.landed(core, state, &ids, tally, &mut visit.effects);
        let usual_ns = state.pace.usual_ns();
        drop(guard);
        self.tell(core, &settling, usual_ns, visit);
    }

    /// Flights have landed: others may begin.
    pub(super) fn landed(
        &self,
        core: &Core,
        state: &mut State<H>,
        ids: &[FlightId],
        tally: Tally,
        effects: &mut Effects,
    ) {
        ids.iter().for_each(|id| state.flights.free(*id));
        state.flights.release(ids.len());
        self.cycle_ended(state, tally.ended(), effects);
        if state.cycle.is_some() {
            self.claim(state, effects); // what can act now is counted before what cannot any more
            ids.iter().for_each(|_| state.deactivate(effects));
        }
        self.changed(core, state, effects);
    }
}
