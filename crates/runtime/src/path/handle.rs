//! Hop 6, handle: a visit runs the handler of one instance over a chunk of events.
//! Before: `work`. After: `emit`, then `settle`.
//! The loop knows its types; locks, clock reads, the panic guard, counters and wake-ups are paid
//! per visit. A visit stops when its events are spent, when it sent more than it had room for, or
//! when its time is up.
//! Invariant: `at` is the event being handled, also after a panic.

use std::mem::needs_drop;
use std::time::Duration;

use comporta_model::chunk::Chunk;
use comporta_model::error::Error;
use comporta_model::event::Time;
use comporta_model::plan::{OnPanic, Retry};
use comporta_model::port::Ports;
use comporta_model::stage::{Cx, Handler};

use crate::core::Core;
use crate::failure::{Reason, guard};
use crate::path::admit::{Wakes, Who};
use crate::path::emit::{Drawing, Links};
use crate::path::enqueue::{StageNode, deactivate};
use crate::path::group::gather;
use crate::path::pace::{Pace, Probe};
use crate::path::ports::{Flooded, Mark, Over, Unbounded, Withdraw};
use crate::sync::Arc;

/// What is fixed about a stage.
pub(crate) struct Rules<T> {
    pub(crate) name: Arc<str>,
    pub(crate) batch: usize,
    pub(crate) retry: Retry,
    pub(crate) emit_max: usize,
    pub(crate) on_panic: OnPanic,
    pub(crate) group: Option<(usize, Duration)>,
    pub(crate) ordered: bool,
    /// Its events must be handled as they came, or it has state that may depend on it.
    pub(crate) in_order: bool,
    /// Nothing leads on from it: what it handled has left the program.
    pub(crate) last: bool,
    /// It swallows its events: no handler is made.
    pub(crate) stub: bool,
    /// How to copy an event, if the stage retains.
    pub(crate) retain: Option<fn(&T) -> T>,
}

impl<T> Rules<T> {
    /// How many visits of an ordered stage may be ahead of the oldest: enough that none idles
    /// behind a slow one, and a bound on what waits to be let out.
    pub(crate) fn window(&self, instances: usize) -> Option<usize> {
        self.ordered.then_some(instances * 4)
    }
}

/// One instance of a stage: a handler with its state, its ports and where they lead.
#[repr(align(128))] // apart, as in `sync::CachePadded`: neighbours belong to other workers
pub(crate) struct Instance<H: Handler> {
    pub(crate) index: u32,
    /// None where a stub stands in for the stage.
    pub(crate) handler: Option<H>,
    pub(crate) ports: H::Ports,
    pub(crate) links: Links,
    pub(crate) cx: Cx,
    pub(crate) pending: Option<Pending<H::Item>>,
    /// Copies of the events being handled, if the stage retains.
    kept: Vec<H::Item>,
    pub(crate) sent_lately: usize,
    pub(crate) pace: Pace,
    /// How many more events it gathers before it sends something; 0 if it does not gather.
    pub(crate) gathers: usize,
    pub(crate) finishing: bool,
    /// Its visit took the newest events: what it does not come to goes back to the end.
    pub(crate) newest: bool,
    /// It was the only instance when its visit began.
    pub(crate) alone: bool,
    /// `State::crowd` when it last began a visit with no other instance beside it.
    pub(crate) crowd: u64,
}

/// A visit that waits to try an event again.
pub(crate) struct Pending<T> {
    pub(crate) chunk: Chunk<T>,
    pub(crate) ticket: Option<u64>,
    pub(crate) tally: Tally,
    pub(crate) wait: Duration,
}

/// How the events of a visit ended.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) handled: usize,
    pub(crate) failed: usize,
    pub(crate) retried: usize,
}

/// A failure asked for by a test.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    Error(String),
    Panic(String),
}

pub(crate) type Faults = Vec<Fault>;

enum Stop {
    Spent,
    Full,
    Late,
    Quit,
    Failed(Error),
}

impl<H: Handler> Instance<H> {
    pub(crate) fn make(core: &Arc<Core>, node: &StageNode<H>, index: u32) -> Result<Self, String> {
        let host: Arc<dyn comporta_model::stage::Host> = core.clone();
        let cx = Cx::new(node.rules.name.clone(), index as usize, host);
        let handler = if node.rules.stub { None } else { Some(node.make_handler(&cx)?) };
        let gathers = guard(|| handler.as_ref().and_then(Handler::gathers));
        let mut ports = H::Ports::new();
        let exact = node.rules.batch == 1;
        let links = Links::new(core, node.id, &mut ports, exact);
        Ok(Instance {
            index,
            handler,
            ports,
            links,
            cx,
            pending: None,
            kept: Vec::new(),
            sent_lately: 0,
            pace: Pace::default(),
            gathers: gathers.ok().flatten().unwrap_or(0),
            finishing: false,
            newest: false,
            alone: false,
            crowd: 0,
        })
    }

    /// Events it holds that are in flight.
    pub(crate) fn held(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| {
            pending.chunk.len()
                + pending.ticket.map_or(0, |_| pending.tally.handled + pending.tally.failed)
        })
    }

    /// Runs the handler over the events from `at` on.
    #[inline(never)]
    #[expect(clippy::type_complexity, reason = "a plain function, or none")]
    fn run(
        &mut self,
        slots: &mut [Option<H::Item>],
        at: &mut usize,
        probe: &mut Probe,
        retain: Option<fn(&H::Item) -> H::Item>,
        core: &Core,
    ) -> Stop {
        if self.handler.is_none() {
            slots[*at..].fill_with(|| None);
            *at = slots.len();
        }
        while *at < slots.len() {
            // The clock is looked at between spans, so that the loop inside stays small.
            let span = if H::GROUPED { slots.len() } else { probe.next.max(*at + 1) };
            let until = slots.len().min(span);
            let stop = if H::IN_PLACE && retain.is_none() {
                self.run_in_place(&mut slots[..until], at)
            } else {
                self.run_span(&mut slots[..until], at, retain)
            };
            if let Some(stop) = stop {
                return stop;
            }
            if *at < slots.len() && probe.is_late(core, *at, slots.len() - *at) {
                return Stop::Late;
            }
        }
        Stop::Spent
    }

    /// In place, what is handled is what is sent, and the handler sees nothing but its event.
    #[inline(always)]
    fn run_in_place(&mut self, slots: &mut [Option<H::Item>], at: &mut usize) -> Option<Stop> {
        let Instance { handler: Some(handler), ports, cx, .. } = self else { return None };
        let room = handler.allowance(ports);
        let until = slots.len().min(room.saturating_add(1));
        for slot in slots.get_mut(*at..until).unwrap_or_default() {
            if let Err(error) = handler.call(std::slice::from_mut(slot), ports, cx) {
                return Some(Stop::Failed(error));
            }
            *at += 1;
        }
        cx.set_attempt(1);
        (*at > room).then_some(Stop::Full)
    }

    #[inline(always)]
    #[expect(clippy::type_complexity, reason = "a plain function, or none")]
    fn run_span(
        &mut self,
        slots: &mut [Option<H::Item>],
        at: &mut usize,
        retain: Option<fn(&H::Item) -> H::Item>,
    ) -> Option<Stop> {
        let Instance { handler: Some(handler), ports, cx, kept, .. } = self else { return None };
        let mut again = cx.attempt() > 1;
        while *at < slots.len() {
            let end = if H::GROUPED { slots.len() } else { *at + 1 };
            ports.each(&mut Mark);
            if let Some(copy) = retain {
                kept.clear();
                kept.extend(slots[*at..end].iter().flatten().map(copy));
            }
            if let Err(error) = handler.call(&mut slots[*at..end], ports, cx) {
                return Some(Stop::Failed(error));
            }
            let mut over = Over(H::IN_PLACE && *at >= handler.allowance(ports));
            ports.each(&mut over);
            if over.0 {
                let mut flooded = Flooded(false);
                ports.each(&mut flooded);
                if flooded.0 {
                    return Some(Stop::Failed(Error::msg("flood")));
                }
            }
            if needs_drop::<H::Item>() && !H::IN_PLACE {
                slots[*at..end].fill_with(|| None);
            }
            *at = end;
            if again {
                cx.set_attempt(1);
                again = false;
            }
            if over.0 {
                return Some(Stop::Full);
            }
            if cx.is_quitting() {
                return Some(Stop::Quit);
            }
        }
        None
    }
}

impl<H: Handler> StageNode<H> {
    pub(crate) fn make_handler(&self, cx: &Cx) -> Result<H, String> {
        let made = guard(|| {
            let mut handler = (self.maker)(cx)?;
            handler.init(cx)?;
            Ok::<H, Error>(handler)
        });
        match made {
            Ok(Ok(handler)) => Ok(handler),
            Ok(Err(error)) => Err(error.to_string()),
            Err(reason) => Err(reason.to_string()),
        }
    }

    /// One visit of a free instance to the queue.
    pub(crate) fn visit_events(&self, core: &Arc<Core>, now: Time, wakes: &mut Wakes) {
        if let Some((instance, chunk, ticket)) = self.take_events(core, now, wakes) {
            self.run(core, instance, chunk, (ticket, Tally::default()), now, wakes);
        }
    }

    #[expect(clippy::type_complexity, reason = "what a visit is made of, used once")]
    fn take_events(
        &self,
        core: &Core,
        now: Time,
        wakes: &mut Wakes,
    ) -> Option<(Box<Instance<H>>, Chunk<H::Item>, Option<u64>)> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.claims == 0 {
            return None; // a copy of a token that was used
        }
        state.claims -= 1;
        let mut instance = state.idle.pop()?;
        // What it knows of the room in other queues holds only if no other instance ran meanwhile.
        if state.instances + state.retiring == 1 {
            instance.alone = instance.crowd == state.crowd;
            instance.crowd = state.crowd;
        } else {
            instance.alone = false;
            state.crowd += 1;
        }
        instance.newest = self.sift(core, state, now, wakes);
        let chunk = match self.rules.group {
            // No more than the queue may hold: what a visit puts back comes on top of what came
            // meanwhile, and if the next one took it all, the queue would grow from visit to visit.
            None => {
                let most = state.desk.capacity.max(1);
                let most = if wakes.limit == 0 { most } else { most.min(wakes.limit) };
                let most = self.stride(core, state.stride).min(most);
                if instance.newest { state.queue.pop_last(most) } else { state.queue.pop(most) }
            }
            Some((size, _)) => {
                state.flush_due = false;
                let gathered = gather(&mut state.queue, size);
                let now = core.clock.now();
                state.flush_at = state.flush_at.filter(|due| *due > now);
                self.gather_on(core, state);
                gathered
            }
        };
        let Some(chunk) = chunk else {
            state.idle.push(instance);
            deactivate(state.desk.cycle.as_ref(), wakes);
            if state.is_over() {
                wakes.over.push(self.id);
            }
            return None;
        };
        state.in_flight += chunk.len();
        state.desk.counts.visits += 1;
        self.pass_room(core, state, wakes);
        let ticket = self.rules.ordered.then(|| {
            state.tickets_out += 1;
            state.next_ticket += 1;
            state.next_ticket - 1
        });
        state.claim(self.id, &self.rules, wakes);
        Some((instance, chunk, ticket))
    }

    fn stride(&self, core: &Core, stride: usize) -> usize {
        if core.is_tested() && !self.faults.lock().is_empty() { 1 } else { stride }
    }

    /// Runs an instance over a chunk, sends what it emits, and settles.
    pub(crate) fn run(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        mut chunk: Chunk<H::Item>,
        (ticket, mut tally): (Option<u64>, Tally),
        start: Time,
        wakes: &mut Wakes,
    ) {
        let who = Who::Instance { stage: self.id, instance: instance.index };
        instance.cx.set_origin(chunk.meta.ingress, chunk.meta.deadline, chunk.meta.tier);
        let Instance { ports, links, sent_lately, alone, .. } = &mut *instance;
        if ticket.is_some() {
            ports.each(&mut Unbounded(self.rules.emit_max));
        } else {
            let want = chunk.len().max(*sent_lately);
            let by = Drawing { core, who: &who, alone: *alone, meta: &chunk.meta };
            links.draw(ports, want, self.rules.emit_max, by);
        }
        let mut at = 0;
        let failed_before = tally.failed;
        let mut probe = Probe::new(start, &instance.pace);
        if ticket.is_some() {
            probe.next = usize::MAX; // its events left the queue in order and must be handled together
        }
        let wait = loop {
            let fault = if core.is_tested() { self.faults.lock().pop() } else { None };
            let stop = guard(|| match fault {
                None => {
                    let retain = self.rules.retain;
                    let stop = instance.run(chunk.slots_mut(), &mut at, &mut probe, retain, core);
                    let gathers = instance.handler.as_ref().and_then(Handler::gathers);
                    instance.gathers = gathers.unwrap_or(0);
                    stop
                }
                Some(Fault::Error(message)) => Stop::Failed(Error::msg(message)),
                Some(Fault::Panic(message)) => std::panic::panic_any(message),
            });
            let reason = match stop {
                Ok(Stop::Spent | Stop::Full | Stop::Late | Stop::Quit) => break None,
                Ok(Stop::Failed(error)) => Reason::Error(error.to_string()),
                Err(panic) => panic,
            };
            match self.failed(core, &mut instance, &mut chunk, &mut at, reason, &mut tally) {
                Next::On => {}
                Next::Wait(wait) => break Some(wait),
                // The events of a ticket are handled together: it gets a new allowance.
                Next::Stop if ticket.is_some() => {
                    instance.ports.each(&mut Unbounded(self.rules.emit_max));
                }
                Next::Stop => break None,
            }
        };
        tally.handled += at - (tally.failed - failed_before);
        let ran = Ran { at, tally, ticket, wait, start };
        self.conclude(core, instance, chunk, ran, wakes);
    }

    /// The event at `at` failed: withdraws what it sent and decides what becomes of it.
    fn failed(
        &self,
        core: &Core,
        instance: &mut Instance<H>,
        chunk: &mut Chunk<H::Item>,
        at: &mut usize,
        reason: Reason,
        tally: &mut Tally,
    ) -> Next {
        let mut flooded = Flooded(false);
        instance.ports.each(&mut flooded);
        instance.ports.each(&mut Withdraw);
        if flooded.0 && self.rules.ordered {
            // The visit of an ordered stage handles all of its events; its allowance has no end.
            instance.ports.each(&mut Unbounded(self.rules.emit_max));
        }
        let reason = if flooded.0 { Reason::Flood(self.rules.emit_max) } else { reason };
        if matches!(reason, Reason::Panic(..)) && self.rules.on_panic == OnPanic::Reset {
            match self.make_handler(&instance.cx) {
                Ok(handler) => instance.handler = Some(handler),
                Err(error) => tracing::warn!(
                    stage = %self.rules.name, %error, "an instance could not be made anew after a panic"
                ),
            }
        }
        let attempt = instance.cx.attempt();
        let meta = chunk.meta.clone();
        let slots = chunk.slots_mut();
        let end = if H::GROUPED { slots.len() } else { *at + 1 };
        let failed = &mut slots[*at..end];
        if failed.iter().any(Option::is_none) {
            for (slot, copy) in failed.iter_mut().zip(instance.kept.drain(..)) {
                *slot = Some(copy);
            }
        }
        let whole = failed.iter().all(Option::is_some);
        if let Some(wait) = self.rules.retry.wait_after(attempt).filter(|_| whole) {
            tally.retried += 1;
            instance.cx.set_attempt(attempt + 1);
            return if wait.is_zero() { Next::On } else { Next::Wait(wait) };
        }
        instance.cx.set_attempt(1);
        tally.failed += failed.len();
        let now = core.clock.now();
        let mut failures = self.failures.lock();
        for slot in failed {
            failures.push(reason.clone(), attempt, now, slot.take(), &meta);
        }
        *at = end;
        // A flood took the allowance of the visit with it.
        if flooded.0 && !self.rules.ordered { Next::Stop } else { Next::On }
    }
}

/// What a visit does after a failure.
enum Next {
    On,
    Wait(Duration),
    Stop,
}

/// A visit that has run: where it stopped and how its events ended.
pub(crate) struct Ran {
    /// Events of the chunk that are spent.
    pub(crate) at: usize,
    pub(crate) tally: Tally,
    pub(crate) ticket: Option<u64>,
    /// The event at `at` is to be tried again after this.
    pub(crate) wait: Option<Duration>,
    pub(crate) start: Time,
}
