//! Hop 2 as senders see it: the way into the queue of a stage.
//! Before: `outlet` of the sender. After: `permits`, `queue`, and a token.

use comporta_model::ack::{Because, Fate};
use comporta_model::chunk::{ChunkQueue, Slots};
use comporta_model::event::{Meta, Time};
use comporta_model::kind::Kind;
use comporta_model::plan::WhenFull;
use comporta_policy::admission::Ask;

use super::gate::Arrivals;
use super::permits::{Rest, Shed, Verdict};
use super::queue::Side;
use super::{Phase, Stage, State, age};
use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::path::line::Place;
use crate::path::outlet::{Inlet, Refusal, Reserved, Standing};
use crate::path::parcel::Parcel;
use crate::path::room::{Room, RoomHint};
use crate::sync::{Arc, CachePadded};

impl<H: Kind> Inlet<H::Item> for Stage<H> {
    #[inline]
    fn room(&self, core: &Core, meta: &Meta, rule: Option<WhenFull>) -> Room {
        if self.gate.is_present() {
            return self.room_by_gate(core, meta, self.room.free());
        }
        self.room.room(rule)
    }

    fn room_hint(&self) -> Option<Arc<CachePadded<RoomHint>>> {
        Some(self.room.clone())
    }

    fn enter(
        &self,
        core: &Core,
        meta: &Meta,
        slots: &mut Slots<H::Item>,
        short: bool,
        visit: &mut Visit,
    ) -> bool {
        if self.gate.is_present() || self.rules.keys.is_some() {
            return false;
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let n = slots.len();
        let all_enter = state.phase == Phase::Open
            && state.permits.is_quiet()
            && n <= state.permits.room(state.queue.len());
        if all_enter {
            meta.duty.join(n);
            state.counts.offered += n as u64;
            state.counts.arrived += n as u64;
            state.queue.push_alike(meta, slots, short);
            self.changed(core, state, &mut visit.effects);
        }
        all_enter
    }

    fn offer(
        &self,
        core: &Core,
        mut parcel: Parcel<'_, H::Item>,
        visit: &mut Visit,
    ) -> Option<Standing> {
        if self.gate.is_present() || self.rules.keys.is_some() {
            return self.offer_at_large(core, parcel, visit);
        }
        let mut guard = self.state.lock();
        parcel.join();
        self.take_in(core, &mut guard, &mut parcel, &mut visit.effects)
    }

    fn resume(
        &self,
        core: &Core,
        outbox: &mut ChunkQueue<H::Item>,
        place: &Arc<Place>,
        granted: usize,
        visit: &mut Visit,
    ) -> Option<Standing> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.phase != Phase::Open {
            state.permits.release(granted);
            place.refuse();
            self.end_outbox(state, outbox, None, &mut visit.effects);
            return None;
        }
        if state.permits.is_disabled() {
            state.permits.release(granted);
            self.end_outbox(state, outbox, Some(Shed::Disabled), &mut visit.effects);
            self.changed(core, state, &mut visit.effects);
            return None;
        }
        let inside = state.permits.is_inside(place);
        let queued = state.queue.len();
        let mut enter = state.permits.readmit(queued, outbox.len(), granted, inside);
        state.outboxed -= enter;
        let now = core.clock.now();
        self.note_origin(state, place);
        while enter > 0
            && let Some(mut chunk) = outbox.pop(enter)
        {
            enter -= chunk.len();
            chunk.meta.enqueued = now;
            let (meta, columns, events) = chunk.into_parts();
            let storage = state.queue.push(&meta, columns, events, true);
            outbox.recycle(storage);
        }
        let mut standing = None;
        if !outbox.is_empty() {
            standing = Some(state.permits.stand(place, outbox.len()));
        }
        self.changed(core, state, &mut visit.effects);
        standing
    }

    fn leave(
        &self,
        core: &Core,
        outbox: &mut ChunkQueue<H::Item>,
        place: &Place,
        standing: Option<Standing>,
        effects: &mut Effects,
    ) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some(standing) = standing {
            state.permits.leave(place, standing);
        }
        // A caller that waits no longer has changed its mind; all others leave because the program stops, or went on
        // without them.
        let shed = place.stage().is_none() && !core.is_stopped();
        self.end_outbox(state, outbox, shed.then_some(Shed::Abandoned), effects);
        self.changed(core, state, effects);
    }

    fn reserve(
        &self,
        core: &Core,
        n: usize,
        meta: &Meta,
        rule: Option<WhenFull>,
    ) -> Result<Reserved, Refusal> {
        if self.gate.is_present()
            && let Some(ask) = self.arrivals(core, n, meta)
            && let Some((allowed, reason)) = self.gate.admit(&ask)
            && allowed < n
        {
            self.gate.entered(&ask, 0);
            return Err(Refusal::Admission(reason));
        }
        let mut state = self.state.lock();
        let queued = state.queue.len();
        let reserved = match state.phase {
            Phase::Open => state.permits.reserve(queued, n, rule),
            _ => Ok(Reserved(0)), // it is turned away when it comes
        };
        self.room.publish(state.permits.hint(queued));
        reserved
    }

    fn release(&self, core: &Core, Reserved(places): Reserved, effects: &mut Effects) {
        let mut guard = self.state.lock();
        guard.permits.release(places);
        self.changed(core, &mut guard, effects);
    }

    fn refuse(&self) {
        let mut state = self.state.lock();
        state.counts.offered += 1;
        state.counts.refused += 1;
    }
}

impl<H: Kind> Stage<H> {
    /// As [`offer`](Inlet::offer), where an admission controller has a say, or each event has a lane.
    fn offer_at_large(
        &self,
        core: &Core,
        mut parcel: Parcel<'_, H::Item>,
        visit: &mut Visit,
    ) -> Option<Standing> {
        if self.gate.is_present() && parcel.columns.duties().is_some() {
            return self.offer_by_duty(core, parcel, visit);
        }
        let asked =
            if self.gate.is_present() { self.ask_gate(core, &mut parcel, visit) } else { None };
        if let Some(keys) = &self.rules.keys {
            self.add_lanes(core, &**keys, &mut parcel, visit);
        }
        let effects = &mut visit.effects;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        parcel.join();
        let before = state.counts.arrived;
        let standing = self.take_in(core, state, &mut parcel, effects);
        let arrived = (state.counts.arrived - before) as usize;
        let spare = state.queue.as_lanes().and_then(|lanes| lanes.take_spare());
        drop(guard);
        if let Some(spare) = spare {
            visit.lanes = spare;
        }
        if let Some(asked) = asked {
            effects.hand_over(core);
            self.gate.entered(&asked, arrived);
        }
        if self.rules.keys.is_some() {
            visit.saw_to_keys(core);
        }
        standing
    }

    /// Takes a parcel as far as it may enter; returns where its sender stands in line for the rest.
    fn take_in(
        &self,
        core: &Core,
        state: &mut State<H>,
        parcel: &mut Parcel<'_, H::Item>,
        effects: &mut Effects,
    ) -> Option<Standing> {
        match state.phase {
            Phase::Open => self.let_in(core, state, parcel, effects),
            phase => {
                self.turn_away(state, phase, parcel, effects);
                None
            }
        }
    }

    /// As [`room`](Inlet::room), where an admission controller has a say.
    #[cold]
    fn room_by_gate(&self, core: &Core, meta: &Meta, free: usize) -> Room {
        let ask = self.state.lock().arrivals(core.clock.now(), free.max(1)).ask(meta);
        let allowed = self.gate.admit(&ask).map_or(free, |(allowed, _)| allowed);
        Room { before_waiting: free, before_refusing: free.min(allowed) }
    }

    /// Asks the admission controller about a parcel, outside of the lock. Whom it does not let in is
    /// counted as shed, and leaves the parcel.
    fn ask_gate(
        &self,
        core: &Core,
        parcel: &mut Parcel<'_, H::Item>,
        visit: &mut Visit,
    ) -> Option<Ask> {
        let n = parcel.len();
        let ask = self.arrivals(core, n, parcel.meta)?;
        if parcel.place.stage().is_none() {
            return Some(ask); // a caller was asked about when it could still be given its event back
        }
        visit.effects.hand_over(core);
        let (allowed, reason) = self.gate.admit(&ask)?;
        if allowed < n {
            let because = self.sheds(reason);
            let shed = parcel.shed_all_but(allowed, &because, &mut visit.effects) as u64;
            let mut state = self.state.lock();
            state.counts.offered += shed;
            state.counts.shed[reason as usize] += shed;
        }
        Some(ask)
    }

    /// Takes a parcel in pieces whose events all owe the same, for an admission controller that judges by
    /// it.
    #[cold]
    fn offer_by_duty(
        &self,
        core: &Core,
        mut parcel: Parcel<'_, H::Item>,
        visit: &mut Visit,
    ) -> Option<Standing> {
        let mut standing = None;
        while let Some((duty, n)) = parcel.columns.duties().and_then(|duties| duties.first()) {
            let meta = Meta { duty: duty.clone(), ..parcel.meta.clone() };
            let (mut filled, columns) = parcel.take_apart(n);
            let piece = Parcel {
                meta: &meta,
                columns: columns.without_duties(),
                filled: &mut filled,
                last: &mut Slots::new(),
                short: false,
                reserved: parcel.reserved.take(),
                outbox: parcel.outbox,
                rule: parcel.rule,
                place: parcel.place,
                waits_elsewhere: parcel.waits_elsewhere || standing.is_some(),
            };
            standing = self.offer(core, piece, visit).or(standing);
        }
        standing
    }

    /// What the admission controller is asked about `n` events, unless that does not matter any more.
    fn arrivals(&self, core: &Core, n: usize, meta: &Meta) -> Option<Ask> {
        let state = self.state.lock();
        let asks = state.phase == Phase::Open && !state.permits.is_disabled() && n > 0;
        asks.then(|| state.arrivals(core.clock.now(), n).ask(meta))
    }

    /// Takes a parcel as far as there is room; returns where its sender stands in line for the rest.
    fn let_in(
        &self,
        core: &Core,
        state: &mut State<H>,
        parcel: &mut Parcel<'_, H::Item>,
        effects: &mut Effects,
    ) -> Option<Standing> {
        let n = parcel.len();
        let reserved = parcel.reserved.take();
        let reserves = reserved.is_some();
        let places = reserved.map_or(0, |Reserved(places)| places);
        state.permits.release(places);
        let inside = state.permits.is_inside(parcel.place);
        let verdict = if n <= places {
            Verdict { enter: n, rest: Rest::Waits } // whoever came in between waits behind it
        } else if parcel.outbox.is_empty() {
            state.permits.admit(state.queue.len(), n, inside, parcel.rule)
        } else {
            Verdict { enter: 0, rest: Rest::Waits } // behind an outbox: these wait too
        };
        state.counts.offered += n as u64;
        let (meta, short) = (parcel.meta, parcel.short);
        self.note_origin(state, parcel.place);
        parcel.take(verdict.enter, |slots, columns| state.queue.push(meta, columns, slots, short));
        let rest = n - verdict.enter;
        let mut arrived = n;
        let mut standing = None;
        match verdict.rest {
            Rest::Oldest => {
                let surplus = state.permits.surplus(state.queue.len());
                let name = &self.rules.name;
                let gone = state.shed_queued(name, Shed::Oldest, surplus, Side::Oldest, effects);
                state.counts.arrived += n as u64; // before the cycle hears of those that are gone
                arrived = 0;
                if let Some(cycle) = &state.cycle {
                    cycle.arrived(n);
                }
                self.cycle_ended(state, gone, effects);
            }
            _ if rest == 0 => {}
            Rest::Shed(reason) => {
                arrived = verdict.enter;
                self.retire_later(parcel.take_lanes(), effects);
                parcel.shed(&self.sheds(reason), effects);
                state.counts.shed[reason as usize] += rest as u64;
            }
            // It asked for places when none were needed: the queue was shut, and is not any more.
            Rest::Waits if reserves => {
                arrived = verdict.enter;
                self.retire_later(parcel.take_lanes(), effects);
                parcel.shed(&self.sheds(Shed::Disabled), effects);
                state.counts.shed[Shed::Disabled as usize] += rest as u64;
            }
            Rest::Waits => {
                parcel.keep();
                state.outboxed += rest;
                if !parcel.waits_elsewhere {
                    let want = parcel.outbox.len();
                    standing = Some(state.permits.stand(parcel.place, want));
                }
            }
        }
        state.counts.arrived += arrived as u64;
        if let Some(cycle) = &state.cycle {
            cycle.arrived(arrived);
        }
        self.changed(core, state, effects);
        standing
    }

    /// What a sender had in its outbox ends here: shed, or cancelled.
    fn end_outbox(
        &self,
        state: &mut State<H>,
        outbox: &mut ChunkQueue<H::Item>,
        shed: Option<Shed>,
        effects: &mut Effects,
    ) {
        while let Some(mut chunk) = outbox.pop(usize::MAX) {
            self.retire_later(chunk.take_lanes(), effects);
            let n = chunk.len();
            // A stop has counted what waited for this queue.
            if state.phase != Phase::Cancelled {
                state.outboxed -= n;
                if let Some(reason) = shed {
                    state.counts.shed_late += n as u64;
                    state.counts.shed[reason as usize] += n as u64;
                } else {
                    state.counts.cancelled += n as u64;
                }
                if shed != Some(Shed::Disabled) {
                    state.given_up += n;
                }
            }
            self.cycle_ended(state, n, effects);
            if let Some(reason) = shed {
                chunk.because(&self.sheds(reason));
            }
            chunk.settle(if shed.is_some() { Fate::Shed } else { Fate::Cancelled });
            effects.discard_events(&mut chunk.into_events());
        }
    }

    /// Why it sheds, for whoever waits for the events.
    fn sheds(&self, reason: Shed) -> Because<'_> {
        Because::Shed { stage: &self.rules.name, reason: reason.name() }
    }

    /// The stage has ended, or the program was stopped: what comes still is counted.
    fn turn_away(
        &self,
        state: &mut State<H>,
        phase: Phase,
        parcel: &mut Parcel<'_, H::Item>,
        effects: &mut Effects,
    ) {
        let n = parcel.len();
        self.retire_later(parcel.take_lanes(), effects);
        if let Some(Reserved(places)) = parcel.reserved.take() {
            state.permits.release(places);
        }
        state.counts.offered += n as u64;
        if phase == Phase::Cancelled {
            parcel.end(Fate::Cancelled, effects);
            state.counts.arrived += n as u64;
            state.counts.cancelled += n as u64;
        } else {
            parcel.shed(&self.sheds(Shed::Ended), effects);
            state.counts.shed[Shed::Ended as usize] += n as u64;
        }
    }
}

impl<H: Kind> State<H> {
    /// What the admission controller is asked about `n` events that arrive.
    fn arrivals(&self, now: Time, n: usize) -> Arrivals {
        let oldest = self.queue.oldest();
        Arrivals {
            now,
            n,
            queued: self.queue.len() + self.outboxed,
            in_flight: self.in_flight,
            capacity: self.permits.capacity(),
            instances: self.instances.count(),
            oldest: oldest.map_or(std::time::Duration::ZERO, |oldest| age(oldest.meta, now)),
        }
    }
}
