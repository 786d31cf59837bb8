//! Hop 8, settle: counts how the events of a visit ended, puts back what it did not come to, and
//! says what the instance does next: it is free, waits for room, waits to try again, or is done.
//! Before: `emit`. After: `ready`, for the next visit.
//! Also here: the end of an instance. The results of an ordered stage leave by `release`.
//! Invariant: what a visit sent has been delivered, or stands in an outbox, before its events settle.

use std::time::Duration;

use comporta_model::chunk::Chunk;
use comporta_model::event::{Fate, Meta, Time};
use comporta_model::port::Ports;
use comporta_model::stage::Handler;
use comporta_policy::admission::Done;

use crate::core::Core;
use crate::failure::{Reason, guard};
use crate::path::admit::{RELEASER, Wakes, Who};
use crate::path::emit::{Line, Links, Sending};
use crate::path::enqueue::{Phase, StageNode, State, deactivate, settle_ack};
use crate::path::handle::{Instance, Pending, Ran, Tally};
use crate::path::pace::{Pace, QUANTUM};
use crate::path::ports::{Flooded, Mark, Refused, Unbounded, Withdraw};
use crate::path::ready::{Task, Token};
use crate::sync::Arc;

impl<H: Handler> StageNode<H> {
    /// After the handler ran: sends, settles, and places the instance.
    pub(crate) fn conclude(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        mut chunk: Chunk<H::Item>,
        ran: Ran,
        wakes: &mut Wakes,
    ) {
        let Ran { at, tally, ticket, wait, start } = ran;
        wakes.done = at;
        let end = core.clock.now();
        wakes.now = Some(end);
        let meta = Meta { home: wakes.home, ..chunk.meta.clone() };
        instance.pace.note(end.since(start), at);
        // Set aside what is to be tried again; the rest of an ordered visit waits with it.
        if H::IN_PLACE {
            let Instance { handler, ports, .. } = &mut *instance;
            let handled = chunk.take_front(at, tally.failed > 0);
            if let Some(handler) = handler {
                handler.pass_on(handled, ports);
            }
        } else {
            chunk.advance(at);
        }
        if let Some(wait) = wait {
            let alone = ticket.is_none() && !H::GROUPED && chunk.len() > 1;
            let held =
                if alone { chunk.split_front(1, Vec::new()) } else { take(&mut chunk, &meta) };
            // Without a ticket what has been done is settled now.
            let tally = if ticket.is_some() { tally } else { Tally::default() };
            instance.pending = Some(Pending { chunk: held, ticket, tally, wait });
        }
        match ticket {
            Some(_) if instance.pending.is_some() => {
                let mut guard = self.state.lock();
                self.place(core, &mut guard, instance, Line::No, wakes);
            }
            Some(ticket) => {
                let leaves = self.deposit(&mut instance, ticket, tally, meta.clone());
                let mut guard = self.state.lock();
                let state = &mut *guard;
                put_back(state, chunk, &meta, false, wakes); // a visit that called `quit` has not come to all
                self.learn(state, &mut instance.pace);
                self.place(core, state, instance, Line::No, wakes);
                drop(guard);
                if leaves {
                    self.release_results(core, None, wakes);
                }
            }
            None => {
                let sent = self.send(core, &mut instance, &meta, wakes);
                let mut refused = Refused(0);
                instance.ports.each(&mut refused);
                instance.sent_lately = sent.emitted + refused.0;
                self.settle(core, instance, chunk, &meta, tally, sent, wakes);
            }
        }
    }

    fn send(
        &self,
        core: &Core,
        instance: &mut Instance<H>,
        meta: &Meta,
        wakes: &mut Wakes,
    ) -> Sent {
        let who = Who::Instance { stage: self.id, instance: instance.index };
        flush(core, &mut instance.links, &mut instance.ports, (meta, !H::IN_PLACE), &who, wakes)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the one place where all of a visit comes together"
    )]
    fn settle(
        &self,
        core: &Core,
        mut instance: Box<Instance<H>>,
        chunk: Chunk<H::Item>,
        meta: &Meta,
        tally: Tally,
        sent: Sent,
        wakes: &mut Wakes,
    ) {
        let done = tally.handled + tally.failed;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        self.learn(state, &mut instance.pace);
        core.set_pace(self.id, Duration::from_nanos(state.usual_ns)); // of one event: more fit if short
        // Several would each gather for themselves.
        core.set_gathers(self.id, if state.instances == 1 { instance.gathers } else { 0 });
        count(state, tally, sent);
        self.note_times(core, state, meta, tally, wakes);
        state.in_flight -= done;
        put_back(state, chunk, meta, instance.newest, wakes);
        Self::cycle_ended(state, done, self.id, wakes);
        self.place(core, state, instance, sent.line, wakes);
        drop(guard);
        settle_ack(meta.ack.as_ref(), tally.handled, Fate::Handled);
        settle_ack(meta.ack.as_ref(), tally.failed, Fate::Failed);
    }

    /// Notes how long events were in the program, if they leave it here or the gate wants to know.
    pub(crate) fn note_times(
        &self,
        core: &Core,
        state: &mut State<H>,
        meta: &Meta,
        tally: Tally,
        wakes: &Wakes,
    ) {
        if self.rules.last {
            let now = wakes.now.unwrap_or_else(|| core.clock.now());
            state.latency.note(now.since(meta.ingress), tally.handled as u64);
        }
        let n = tally.handled + tally.failed;
        if let Some(gate) = &mut state.desk.gate
            && n > 0
        {
            let now = wakes.now.unwrap_or_else(|| core.clock.now());
            let service = Duration::from_nanos(state.usual_ns);
            gate.settled(&Done { now, n, response: now.since(meta.ingress), service });
        }
    }

    fn learn(&self, state: &mut State<H>, pace: &mut Pace) {
        state.busy_ns += pace.take_busy_ns();
        // By what is usual: events that leave in pieces after one slow visit stay so for the rest
        // of their way.
        state.usual_ns = pace.usual_ns();
        let fits = QUANTUM.as_nanos() as u64 / state.usual_ns.max(1);
        state.stride = usize::try_from(fits).unwrap_or(usize::MAX).clamp(1, self.rules.batch);
    }

    /// Where an instance goes after a visit that is settled.
    fn place(
        &self,
        core: &Core,
        state: &mut State<H>,
        instance: Box<Instance<H>>,
        line: Line,
        wakes: &mut Wakes,
    ) {
        if state.phase == Phase::Cancelled {
            let held = instance.held();
            state.in_flight -= held;
            state.desk.counts.cancelled += held as u64;
            wakes.trash.push(instance);
        } else if line != Line::No || instance.pending.is_some() {
            self.park(core, state, instance, line, wakes);
        } else {
            self.free(state, instance, wakes);
            deactivate(state.desk.cycle.as_ref(), wakes);
            if state.is_over() {
                wakes.over.push(self.id);
            }
        }
    }

    /// The instance waits: for room, or to try again.
    fn park(
        &self,
        core: &Core,
        state: &mut State<H>,
        instance: Box<Instance<H>>,
        line: Line,
        wakes: &mut Wakes,
    ) {
        let index = instance.index;
        let wait = instance.pending.as_ref().map(|pending| pending.wait);
        state.parked.push(instance);
        match (line, wait) {
            (Line::No, Some(wait)) => {
                let token = Token::new(self.id, Task::Retry { instance: index });
                core.timers.add(core.clock.now() + wait, token);
            }
            _ => {
                if let Some(at) = state.early.iter().position(|(early, _)| *early == index) {
                    let (_, room) = state.early.swap_remove(at);
                    let task = Task::Resume { instance: index, room: room as u32 };
                    wakes.tokens.push(Token::new(self.id, task));
                }
                if line == Line::Inside {
                    deactivate(state.desk.cycle.as_ref(), wakes);
                }
            }
        }
    }

    fn unpark(state: &mut State<H>, index: u32) -> Option<Box<Instance<H>>> {
        let at = state.parked.iter().position(|instance| instance.index == index)?;
        Some(state.parked.swap_remove(at))
    }

    /// Room was granted to an instance that waited for it.
    pub(crate) fn resume(&self, core: &Arc<Core>, index: u32, room: usize, wakes: &mut Wakes) {
        if index == RELEASER {
            return self.release_results(core, Some(room), wakes);
        }
        let mut instance = {
            let mut guard = self.state.lock();
            match Self::unpark(&mut guard, index) {
                Some(instance) => instance,
                // It has not parked yet, or the program was stopped.
                None => return guard.early.push((index, room)),
            }
        };
        let who = Who::Instance { stage: self.id, instance: index };
        let line = instance.links.resume(core, room, &who, wakes);
        if line == Line::No && instance.finishing {
            return self.finished(core, instance, wakes);
        }
        let mut guard = self.state.lock();
        self.place(core, &mut guard, instance, line, wakes);
    }

    /// An instance has waited long enough to try an event again.
    pub(crate) fn retry(&self, core: &Arc<Core>, index: u32, now: Time, wakes: &mut Wakes) {
        let Some(mut instance) = Self::unpark(&mut self.state.lock(), index) else { return };
        instance.newest = false;
        instance.alone = false; // others may have come while it waited
        if let Some(Pending { chunk, ticket, tally, .. }) = instance.pending.take() {
            self.run(core, instance, chunk, (ticket, tally), now, wakes);
        }
    }

    /// An instance has seen its last event.
    pub(crate) fn finish(&self, core: &Arc<Core>, index: u32, wakes: &mut Wakes) {
        let Some(mut instance) = Self::unpark(&mut self.state.lock(), index) else { return };
        instance.finishing = true;
        let Instance { handler, ports, cx, .. } = &mut *instance;
        ports.each(&mut Unbounded(self.rules.emit_max));
        ports.each(&mut Mark);
        let result = guard(|| handler.as_mut().map_or(Ok(()), |handler| handler.finish(ports, cx)));
        let mut flooded = Flooded(false);
        ports.each(&mut flooded);
        let failure = match result {
            _ if flooded.0 => Some(Reason::Flood(self.rules.emit_max).to_string()),
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(reason) => Some(reason.to_string()),
        };
        if let Some(message) = failure {
            ports.each(&mut Withdraw);
            core.report(format!("`{}` could not finish: {message}", self.rules.name));
        }
        let meta =
            Meta { ingress: core.clock.now(), home: wakes.home, tier: u8::MAX, ..Meta::default() };
        let sent = self.send(core, &mut instance, &meta, wakes);
        count(&mut self.state.lock(), Tally::default(), sent);
        if sent.line == Line::No {
            self.finished(core, instance, wakes);
        } else {
            let mut guard = self.state.lock();
            self.park(core, &mut guard, instance, sent.line, wakes);
        }
    }

    /// An instance is done, and all it sent is delivered.
    fn finished(&self, core: &Core, instance: Box<Instance<H>>, wakes: &mut Wakes) {
        drop(instance); // outside the lock: its state is the program's
        let mut guard = self.state.lock();
        let state = &mut *guard;
        deactivate(state.desk.cycle.as_ref(), wakes);
        match state.phase {
            Phase::Finishing(1) => {
                state.phase = Phase::Ended;
                state.instances = 0;
                drop(guard);
                core.stage_ended(self.id, wakes);
            }
            Phase::Finishing(left) => state.phase = Phase::Finishing(left - 1),
            Phase::Open => {
                state.retiring -= 1;
                if state.is_over() {
                    wakes.over.push(self.id);
                }
            }
            Phase::Ended | Phase::Cancelled => {}
        }
    }
}

/// What a flush did.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) line: Line,
    emitted: usize,
    unrouted: usize,
}

pub(crate) fn flush<P: Ports>(
    core: &Core,
    links: &mut Links,
    ports: &mut P,
    (meta, fills): (&Meta, bool),
    who: &Who,
    wakes: &mut Wakes,
) -> Sent {
    let mut sending =
        Sending { core, meta, who, wakes, fills, line: Line::No, emitted: 0, unrouted: 0 };
    links.flush(ports, &mut sending);
    Sent { line: sending.line, emitted: sending.emitted, unrouted: sending.unrouted }
}

/// What a visit did not come to is queued again, where it was taken.
fn put_back<H: Handler>(
    state: &mut State<H>,
    chunk: Chunk<H::Item>,
    meta: &Meta,
    newest: bool,
    wakes: &mut Wakes,
) {
    if chunk.is_empty() {
        if let Some(storage) = wakes.cache.put(chunk.into_storage()) {
            state.queue.recycle(storage);
        }
        return;
    }
    let rest = chunk.len();
    state.in_flight -= rest;
    if state.phase == Phase::Cancelled {
        state.desk.counts.cancelled += rest as u64;
        settle_ack(meta.ack.as_ref(), rest, Fate::Cancelled);
    } else if newest {
        state.queue.push_last(chunk);
    } else {
        state.queue.push_front(chunk);
    }
}

pub(crate) fn count<H: Handler>(state: &mut State<H>, tally: Tally, sent: Sent) {
    let counts = &mut state.desk.counts;
    counts.handled += tally.handled as u64;
    counts.failed += tally.failed as u64;
    counts.retried += tally.retried as u64;
    counts.emitted += sent.emitted as u64;
    counts.unrouted += sent.unrouted as u64;
}

fn take<T>(chunk: &mut Chunk<T>, meta: &Meta) -> Chunk<T> {
    std::mem::replace(chunk, Chunk::new(meta.clone(), Vec::new()))
}
