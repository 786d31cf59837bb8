//! Hop 8, settle: counts how the events of a visit ended, puts back what it did not come to, and
//! decides what the instance does next: it is free, waits for room, waits to try again, or is done.
//! Before: `emit`. After: `ready`, for the next visit.
//! What it did not come to goes back by `put_back`. The end of an instance is in `finish`. The results of an ordered stage leave by `order`.
//! Invariant: what a visit sent has been delivered, or stands in an outbox, before its events settle.

use std::time::Duration;

use comporta_model::ack::Fate;
use comporta_model::column::{Duties, Duty};
use comporta_model::event::{Meta, Time};
use comporta_model::kind::Kind;
use comporta_model::port::Ports;
use comporta_policy::admission::Done;

use super::handle::{Instance, Pending, Ran, Tally};
use super::order::Deposited;
use super::ports::{Owes, OwesEach};
use super::take::Batch;
use super::{Phase, Stage, State};
use crate::assignment::is_slow;
use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::path::emit::InLine;
use crate::path::moving::{VisitTime, move_ns};
use crate::path::outlet::Sent;
use crate::path::ready::{Task, Token};
use crate::sync::{Arc, Relaxed};

impl<H: Kind> Stage<H> {
    /// After the handler ran: sends, settles, and places the instance.
    #[inline(always)]
    pub(super) fn conclude(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        mut batch: Box<Batch<H::Item>>,
        ran: Ran,
        visit: &mut Visit,
    ) {
        let Ran { done, at, retry_after, duty, together } = ran;
        visit.done = done;
        let end = core.clock.now();
        visit.end = Some(end);
        instance.pace.note_ns(end.as_nanos().saturating_sub(visit.start.as_nanos()), done);
        let Meta { ingress, enqueued, tier, .. } = batch.chunk.meta;
        let meta = Meta { ingress, enqueued: end, duty, tier, home: visit.home };
        instance.spend(&mut batch, at, &meta.duty);
        let tally = batch.tally;
        match retry_after {
            // Its lane waits, and neither an instance nor another lane.
            Some(wait) if self.rules.keys.is_some() => {
                batch.retry = Some((end + wait, instance.cx.attempt()));
                instance.cx.set_attempt(1);
            }
            Some(wait) => instance.pending = Some(batch.wait_to_retry::<H>(wait)),
            None => {}
        }
        if self.rules.keys.is_some() {
            self.count_keys(batch.lanes.iter().take(done), end.duration_since(visit.start));
        }
        let spent = batch.put_down();
        // What it has not begun goes back under the lock, or before, if what it calls until then does not return.
        let has_tray = batch.tray.is_some();
        match batch.ticket {
            None => {
                let Instance { links, ports, .. } = &mut *instance;
                let sent = links.flush(core, ports, &meta, !H::IN_PLACE, visit);
                let settling = Settling { meta: &meta, spent: Some(&spent), enqueued, tally, sent };
                self.settle(core, instance, batch, settling, visit);
                together.settle(); // what was sent carries it on
            }
            // What it has done so far waits with what is to be tried again.
            Some(_) if instance.pending.is_some() => {
                together.settle(); // by and by its events are
                instance.hand = Some(batch);
                let mut guard = self.state.lock();
                self.place(core, &mut guard, instance, InLine::No, &mut visit.effects);
                self.changed(core, &mut guard, &mut visit.effects);
            }
            Some(ticket) => {
                let of = Deposited { tally, meta, spent, together, enqueued };
                self.conclude_in_order(core, instance, batch, (ticket, of), visit);
            }
        }
        if has_tray {
            core.hide_tray(visit);
        }
    }

    #[inline(always)]
    pub(super) fn settle(
        &self,
        core: &Core,
        instance: Box<Instance<H>>,
        batch: Box<Batch<H::Item>>,
        settling: Settling<'_>,
        visit: &mut Visit,
    ) {
        let in_line = instance.links.in_line();
        let mut guard = self.state.lock();
        let usual_ns = self.settle_in(core, &mut guard, instance, batch, &settling, in_line, visit);
        drop(guard);
        self.tell(core, &settling, usual_ns, visit);
        if H::KEYED {
            visit.saw_to_keys(core);
        }
    }

    /// The part under the lock. Returns how many nanoseconds an event usually takes.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "all there is at the end of a visit")]
    pub(super) fn settle_in(
        &self,
        core: &Core,
        state: &mut State<H>,
        mut instance: Box<Instance<H>>,
        batch: Box<Batch<H::Item>>,
        settling: &Settling<'_>,
        in_line: InLine,
        visit: &mut Visit,
    ) -> u64 {
        self.learn(core, state, &mut instance);
        self.count(core, state, settling, visit);
        let all_spent = batch.tray.is_none() && batch.chunk.is_empty();
        let hand = self.put_back(state, batch, visit);
        std::mem::forget(instance.hand.replace(hand)); // there is none: to drop it would cost a call
        let effects = &mut visit.effects;
        if self.rules.keys.is_some() {
            self.note_waiting_lanes(state, effects); // before the instance can act no more
        }
        self.cycle_ended(state, settling.tally.ended(), effects);
        self.place(core, state, instance, in_line, effects);
        if all_spent {
            self.settled(core, state, effects);
        } else {
            self.changed(core, state, effects);
        }
        state.pace.usual_ns()
    }

    /// Learns from a visit of an instance.
    #[inline(always)]
    pub(super) fn learn(&self, core: &Core, state: &mut State<H>, instance: &mut Instance<H>) {
        let visits = state.counts.visits;
        if state.pace.learn(&mut instance.pace, self.rules.batch, visits) {
            self.publish_pace(core, state);
        }
    }

    /// Publishes how long visits take, so that workers know what they begin, and what to take from others: where that has
    /// changed, which is seldom.
    #[inline(never)]
    fn publish_pace(&self, core: &Core, state: &mut State<H>) {
        let usual_ns = state.pace.usual_ns(); // of one event: more fit if short
        if is_slow(usual_ns) != state.slow {
            state.slow = !state.slow;
            core.set_pace(self.id, usual_ns);
        }
        let count = state.instances.count();
        let (takes_ns, events) = state.pace.visit_ns(count > 1);
        let side_by_side = if count > 2 { self.threads.load(Relaxed).min(count) } else { count };
        let event_ns = move_ns::<H::Item>();
        let visit = VisitTime { takes_ns, side_by_side, events, event_ns, keys_ns: 0 };
        state.pays_to_move = core.set_visit_time(self.id, visit);
    }

    /// As [`settle`](Self::settle), of an ordered stage: what was sent leaves when its turn has come.
    fn conclude_in_order(
        &self,
        core: &Arc<Core>,
        instance: Box<Instance<H>>,
        batch: Box<Batch<H::Item>>,
        (ticket, of): (u64, Deposited),
        visit: &mut Visit,
    ) {
        if let Some(links) = self.begin_release(core, ticket) {
            return self.release_own(core, instance, batch, links, of, visit);
        }
        self.conclude_later(core, instance, batch, (ticket, of), visit);
    }

    /// As [`conclude_in_order`](Self::conclude_in_order), where others come before: what was sent is deposited.
    pub(super) fn conclude_later(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        batch: Box<Batch<H::Item>>,
        (ticket, of): (u64, Deposited),
        visit: &mut Visit,
    ) {
        let leaves = self.deposit(&mut instance.ports, ticket, of);
        let mut guard = self.state.lock();
        let state = &mut *guard;
        self.learn(core, state, &mut instance);
        // A visit that called `quit` has not come to all.
        instance.hand = Some(self.put_back(state, batch, visit));
        self.place(core, state, instance, InLine::No, &mut visit.effects);
        self.changed(core, state, &mut visit.effects);
        drop(guard);
        if leaves {
            self.release_results(core, visit);
        }
    }

    /// Counts what a visit did.
    #[inline(always)]
    pub(super) fn count(
        &self,
        core: &Core,
        state: &mut State<H>,
        settling: &Settling<'_>,
        visit: &Visit,
    ) {
        let Settling { meta, tally, sent, .. } = settling;
        let counts = &mut state.counts;
        counts.handled += tally.handled as u64;
        counts.failed += tally.failed as u64;
        counts.retried += tally.retried as u64;
        counts.emitted += sent.emitted as u64;
        counts.unrouted += sent.unrouted as u64;
        counts.lost += sent.lost as u64;
        state.in_flight -= tally.ended();
        if self.rules.last && tally.handled > 0 {
            let now = visit.end.unwrap_or_else(|| core.clock.now());
            state.latency.note(now.duration_since(meta.ingress), tally.handled as u64);
        }
    }

    /// Reports how events ended to those who want to know.
    #[inline(always)]
    pub(super) fn tell(
        &self,
        core: &Core,
        settling: &Settling<'_>,
        usual_ns: u64,
        visit: &mut Visit,
    ) {
        if let Some(spent) = settling.spent {
            spent.settle(Fate::Handled); // those that failed have been settled when they did
        }
        let ended = settling.tally.ended();
        if self.gate.is_present() && ended > 0 {
            self.tell_gate(core, ended, settling.enqueued, Duration::from_nanos(usual_ns), visit);
        }
    }

    #[cold]
    fn tell_gate(
        &self,
        core: &Core,
        n: usize,
        enqueued: Time,
        service: Duration,
        visit: &mut Visit,
    ) {
        visit.effects.hand_over(core);
        let now = visit.end.unwrap_or_else(|| core.clock.now());
        let response = now.duration_since(enqueued);
        self.gate.settled(&Done { now, n, response, service });
    }

    /// Where an instance goes after a visit that is settled.
    #[inline(always)]
    pub(super) fn place(
        &self,
        core: &Core,
        state: &mut State<H>,
        instance: Box<Instance<H>>,
        in_line: InLine,
        effects: &mut Effects,
    ) {
        // Mostly it is free for the next event.
        let free = state.phase == Phase::Open && in_line == InLine::No;
        if free && instance.pending.is_none() && state.cycle.is_none() && self.rules.keys.is_none()
        {
            state.instances.put_idle(instance);
            if state.instances.are_more_than_wanted() {
                self.retire_surplus(state, effects);
            }
        } else {
            self.place_at_large(core, state, instance, in_line, effects);
        }
    }

    #[inline(never)]
    fn place_at_large(
        &self,
        core: &Core,
        state: &mut State<H>,
        instance: Box<Instance<H>>,
        in_line: InLine,
        effects: &mut Effects,
    ) {
        if state.phase == Phase::Cancelled {
            let mut instance = instance;
            state.cancel_held(&mut instance, effects);
            effects.discard(instance);
        } else if in_line != InLine::No {
            self.park(state, instance, in_line, effects);
        } else if let Some(pending) = &instance.pending {
            let token = Token::new(self.id, Task::Retry { instance: instance.index });
            core.timers.add(core.clock.now() + pending.wait, token);
            state.instances.park(instance);
        } else {
            self.free(state, instance, effects);
            if state.cycle.is_some() {
                self.claim(state, effects); // what can act now is counted before what cannot any more
                state.deactivate(effects);
            }
        }
    }

    /// The instance waits for room.
    pub(super) fn park(
        &self,
        state: &mut State<H>,
        instance: Box<Instance<H>>,
        in_line: InLine,
        effects: &mut Effects,
    ) {
        let mut instance = instance;
        let place = instance.links.place().clone();
        let inside = in_line == InLine::Inside;
        instance.stands_inside = inside && H::WAITS && !instance.finishing;
        state.flights.inside += usize::from(instance.stands_inside);
        // What it has flushed can act as little as it can: noted once, however often it stands in line.
        let flushed = instance.flushed.len();
        let flushed_before = std::mem::replace(&mut instance.flushed_inside, inside && flushed > 0);
        state.instances.park(instance);
        if place.park() {
            effects.tokens.extend(place.token()); // room was granted meanwhile
        }
        match &state.cycle {
            Some(cycle) if flushed_before && !inside => (0..flushed).for_each(|_| cycle.activate()),
            _ => {}
        }
        if inside {
            self.claim(state, effects);
            for _ in 0..=if flushed_before { 0 } else { flushed } {
                state.deactivate(effects);
            }
            if H::WAITS {
                self.note_blocked(state, effects);
            }
        }
    }

    /// An instance has nothing to do: it is free for the next event, or goes.
    #[inline]
    pub(super) fn free(
        &self,
        state: &mut State<H>,
        mut instance: Box<Instance<H>>,
        effects: &mut Effects,
    ) {
        if self.rules.keys.is_some() {
            let turns = instance.turn.take().into_iter().chain(instance.landed_turns.drain(..));
            turns.for_each(|turn| state.queue.done(turn));
        }
        if matches!(state.phase, Phase::Finishing(_)) {
            return self.retire(state, instance, effects);
        }
        state.instances.put_idle(instance);
        if state.instances.are_more_than_wanted() {
            self.retire_surplus(state, effects);
        }
    }

    /// Room was granted to an instance that waited for it.
    pub(super) fn resume(&self, core: &Arc<Core>, index: u32, visit: &mut Visit) {
        let mut guard = self.state.lock();
        let unparked = guard.instances.unpark(index, visit.home);
        let Some(mut instance) = unparked else { return }; // the program was stopped
        if H::WAITS && std::mem::take(&mut instance.stands_inside) {
            guard.flights.inside -= 1;
            self.note_blocked(&mut guard, &mut visit.effects);
        }
        drop(guard);
        let in_line = instance.links.resume(core, visit);
        if H::WAITS && self.rules.flushes && in_line == InLine::No {
            self.flushed(core, &mut instance, visit);
        }
        if in_line == InLine::No && instance.finishing {
            return self.finished(core, instance, visit);
        }
        let mut guard = self.state.lock();
        self.place(core, &mut guard, instance, in_line, &mut visit.effects);
        self.changed(core, &mut guard, &mut visit.effects);
    }

    /// An instance has waited long enough to try an event again.
    pub(super) fn retry(&self, core: &Arc<Core>, index: u32, visit: &mut Visit) {
        let unparked = self.state.lock().instances.unpark(index, visit.home);
        let Some(mut instance) = unparked else { return };
        if let Some(Pending { mut batch, .. }) = instance.pending.take() {
            self.shed_over_retry(core, &instance, &mut batch, visit);
            self.run(core, instance, batch, visit);
        }
    }
}

impl<H: Kind> Instance<H> {
    /// As [`spend`](Self::spend), where nothing is owed for any of them and none has failed.
    #[inline]
    pub(super) fn spend_plain(&mut self, batch: &mut Batch<H::Item>, at: usize) {
        if !H::IN_PLACE {
            batch.chunk.skip(at);
            return;
        }
        let handled = batch.chunk.take_plain(at);
        if let Some(handler) = &mut self.handler {
            handler.pass_on(handled, &mut self.ports);
        }
    }

    /// The first `at` events in hand are spent; those handled in place are passed on, and owe `duty` unless a
    /// column says what each does.
    #[inline]
    fn spend(&mut self, batch: &mut Batch<H::Item>, at: usize, duty: &Duty) {
        let owes = H::IN_PLACE && (*duty != Duty::default() || batch.tally.failed > 0);
        if batch.chunk.is_plain() && !owes {
            return self.spend_plain(batch, at);
        }
        if !H::IN_PLACE {
            batch.spent.append(batch.chunk.spend(at));
            return;
        }
        let (mut handled, owed) = batch.chunk.take_front(at);
        match owed.each_present(handled.iter().map(Option::is_some)) {
            Some(each) => self.ports.each(&mut OwesEach(&each)),
            // What was passed on before it may have owed something else.
            None if *duty != Duty::default() => self.ports.each(&mut Owes(duty)),
            None => {}
        }
        if batch.tally.failed > 0 {
            handled.retain(Option::is_some);
        }
        if let Some(handler) = &mut self.handler {
            handler.pass_on(handled, &mut self.ports);
        }
        batch.spent.append(owed);
    }
}

/// Events that are to be settled.
pub(super) struct Settling<'a> {
    /// What they share.
    pub(super) meta: &'a Meta,
    /// What is owed for those that were handled, if anything is.
    pub(super) spent: Option<&'a Duties>,
    /// When they came to the queue.
    pub(super) enqueued: Time,
    pub(super) tally: Tally,
    pub(super) sent: Sent,
}

impl<T> Batch<T> {
    /// Takes out the event that is to be tried again, and what has to be handled together with it.
    fn wait_to_retry<H: Kind>(&mut self, wait: Duration) -> Pending<T> {
        let together = H::GROUPED || self.ticket.is_some();
        let events = if together { self.chunk.len() } else { 1 };
        let chunk = self.chunk.split_front(events, Vec::new());
        // Without a ticket what has been done is settled now.
        let (mut tally, mut spent) = (Tally::default(), Duties::default());
        if self.ticket.is_some() {
            (tally, spent) = (self.tally, std::mem::take(&mut self.spent));
        }
        let ticket = self.ticket;
        let batch = Batch { ticket, tally, spent, ..Batch::of(chunk) };
        Pending { batch: Box::new(batch), wait }
    }

    /// Its visit is over: nothing of it is held until the next. Returns what is owed for what was handled.
    #[inline(always)]
    fn put_down(&mut self) -> Duties {
        self.lanes.clear(); // a lane that nobody holds can be forgotten
        self.marks.clear();
        self.doomed = None;
        if self.chunk.is_plain() && self.spent.is_empty() {
            return Duties::default();
        }
        if self.chunk.is_empty() {
            self.chunk.meta.duty = Duty::default();
        }
        std::mem::take(&mut self.spent)
    }
}
