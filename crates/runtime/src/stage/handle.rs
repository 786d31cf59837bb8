//! Hop 6, handle: a visit runs the handler of one instance over its batch.
//! Before: `take`. After: `emit`, then `settle`.
//! The loop knows its types; locks, clock reads, the panic guard, counters and wake-ups are paid per visit. A visit stops when
//! its events are spent, when it sent more than there is room for, or when its time is up.
//! Invariant: `at` is the event being handled, also after a panic.

use std::mem::needs_drop;
use std::time::Duration;

use comporta_model::ack::Obligation;
use comporta_model::chunk::Chunk;
use comporta_model::column::{Cursor, Duty};
use comporta_model::error::Error;
use comporta_model::port::Ports;
use comporta_model::stage::{Cx, Handler, Host};

use super::fail::{Next, Why};
use super::flight::{InFlight, Wakeup};
use super::pace::{Pace, QUANTUM, QuantumCheck};
use super::ports::{Flooded, Mark, Over, Owes, Unbounded};
use super::queue::Turn;
use super::take::{Batch, Rows};
use super::{CopyFn, Stage};
use crate::core::Core;
use crate::effects::Visit;
use crate::failure::Reason;
use crate::path::emit::Links;
use crate::path::line::Place;
use crate::path::ready::{Task, Token};
use crate::sync::Arc;
use crate::user;

/// One instance of a stage: a handler with its state, its ports and where they lead.
#[repr(align(128))] // as `sync::CachePadded`: neighbours belong to other workers
pub(super) struct Instance<H: Handler> {
    pub(super) index: u32,
    /// None where a stub stands in for the stage.
    pub(super) handler: Option<H>,
    pub(super) ports: H::Ports,
    pub(super) links: Links,
    pub(super) cx: Cx,
    pub(super) pending: Option<Pending<H::Item>>,
    /// What its queue knows the visit by that it makes: over once it is free again.
    pub(super) turn: Option<Turn>,
    /// What its next visit has its batch in: made once, and filled at every visit.
    pub(super) hand: Option<Box<Batch<H::Item>>>,
    /// The turns of flights that it had land, and whose results wait for room.
    pub(super) landed_turns: Vec<Turn>,
    /// Copies of the events being handled, if the stage retains.
    pub(super) kept: Vec<H::Item>,
    pub(super) pace: Pace,
    pub(super) finishing: bool,
    /// Of a handler that waits: what the next event is woken by, and flights that flushed what has yet to
    /// find room.
    pub(super) wakeup: Option<Arc<Wakeup>>,
    /// Flights that have landed, for the next events that wait.
    pub(super) spare: Vec<InFlight<H>>,
    pub(super) flushed: Vec<InFlight<H>>,
    /// These wait for room inside of a cycle, and count as unable to act.
    pub(super) flushed_inside: bool,
    /// It waits there, and so cannot poll.
    pub(super) stands_inside: bool,
}

/// A batch that waits until one of its events may be tried again.
pub(super) struct Pending<T> {
    pub(super) batch: Box<Batch<T>>,
    pub(super) wait: Duration,
}

/// How the events of a visit ended.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) handled: usize,
    pub(super) failed: usize,
    pub(super) retried: usize,
}

impl Tally {
    pub(super) fn ended(&self) -> usize {
        self.handled + self.failed
    }
}

pub(super) enum Stop {
    Spent,
    Full,
    Late,
    Quit,
    Failed(Error),
    /// The event sent more than it may.
    Flooded,
    /// The event waits: it is in flight.
    Waits,
}

/// How far a visit has come.
#[derive(Default)]
pub(super) struct Progress {
    /// Events done with before the first of the chunk in hand.
    pub(super) before: usize,
    /// Events of the chunk in hand that are done with.
    pub(super) at: usize,
}

impl Progress {
    fn done(&self) -> usize {
        self.before + self.at
    }
}

/// What a visit that has run found out.
pub(super) struct Ran {
    /// What is owed for what it sent, unless its ports say that of each event; and, where its events were
    /// handled as one group, on behalf of them all.
    pub(super) duty: Duty,
    pub(super) together: Obligation,
    /// Events it has done with, and how many of the chunk in hand.
    pub(super) done: usize,
    pub(super) at: usize,
    /// The event at `at` is to be tried again after this.
    pub(super) retry_after: Option<Duration>,
}

impl<H: Handler> Instance<H> {
    pub(super) fn make(core: &Arc<Core>, stage: &Stage<H>, index: u32) -> Result<Self, String> {
        let host: Arc<dyn Host> = core.clone();
        let cx = Cx::new(stage.rules.name.clone(), index as usize, host);
        let handler = if stage.rules.stub { None } else { Some(stage.make_handler(&cx)?) };
        let mut ports = H::Ports::new();
        let place = Place::of_task(Token::new(stage.id, Task::Resume { instance: index }));
        let links = stage.links(core, &mut ports, place);
        let mut instance = Instance {
            index,
            handler,
            ports,
            links,
            cx,
            pending: None,
            turn: None,
            hand: None,
            landed_turns: Vec::new(),
            kept: Vec::new(),
            pace: Pace::default(),
            finishing: false,
            wakeup: None,
            spare: Vec::new(),
            flushed: Vec::new(),
            flushed_inside: false,
            stands_inside: false,
        };
        if H::WAITS {
            instance.cx.set_emit_max(stage.emit_max());
            instance.set_list(core, stage);
        }
        Ok(instance)
    }

    /// Calls the handler with the one event of `batch`.
    pub(super) fn try_one(
        &mut self,
        batch: &mut Batch<H::Item>,
        retain: Option<CopyFn<H::Item>>,
    ) -> Stop {
        let Batch { chunk, lanes, marks, .. } = batch;
        self.run_span(chunk.slots_mut(), &mut 0, Rows { lanes, marks }, retain)
            .unwrap_or(Stop::Spent)
    }

    /// Events it holds that are in flight.
    pub(super) fn held(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| {
            let settled = pending.batch.ticket.map_or(0, |_| pending.batch.tally.ended());
            pending.batch.chunk.len() + settled
        })
    }

    /// Runs the handler over the events of the chunk in hand that are not done with.
    #[inline(never)]
    fn run(
        &mut self,
        chunk: &mut Chunk<H::Item>,
        progress: &mut Progress,
        check: &mut QuantumCheck,
        rows: Rows<'_>,
        retain: Option<CopyFn<H::Item>>,
        core: &Core,
    ) -> Stop {
        let (slots, columns) = chunk.parts_mut();
        // Mostly the clock need not be looked at before the end, and all events owe the same.
        let (at, len) = (progress.at, slots.len());
        let last = at < len && (progress.before + len <= check.next() || len == at + 1);
        if last && columns.is_none() && self.handler.is_some() && !check.is_timed() {
            let rows = if H::KEYED { rows.after(progress.before) } else { rows };
            let stop = if H::IN_PLACE && retain.is_none() {
                self.run_in_place(slots, &mut progress.at)
            } else {
                self.run_span(slots, &mut progress.at, rows, retain)
            };
            return stop.unwrap_or(Stop::Spent);
        }
        let duties = columns.duties().filter(|_| !H::GROUPED);
        let mut cursor = Cursor::default();
        let Progress { before, at } = progress;
        let before = *before;
        let rows = rows.after(before);
        if self.handler.is_none() {
            slots[*at..].fill_with(|| None);
            *at = slots.len();
        }
        while *at < slots.len() {
            // The clock is looked at between spans, so that the loop inside stays small.
            let span = check.next().saturating_sub(before).max(*at + 1);
            let mut until = slots.len().min(if H::GROUPED { slots.len() } else { span });
            until = check.serve(core, *at, until, H::GROUPED);
            if let Some((duty, end)) = duties.and_then(|duties| duties.at(*at, &mut cursor)) {
                until = until.min(end);
                self.cx.set_duty(duty);
                self.ports.each(&mut Owes(duty));
            }
            let stop = if H::IN_PLACE && retain.is_none() {
                self.run_in_place(&mut slots[..until], at)
            } else {
                self.run_span(&mut slots[..until], at, rows, retain)
            };
            if let Some(stop) = stop {
                return stop;
            }
            let look = *at < slots.len() && before + *at >= check.next();
            if look && check.is_late(core, before + *at, slots.len() - *at) {
                return Stop::Late;
            }
        }
        Stop::Spent
    }

    /// In place, what is handled is what is sent, and the handler sees nothing but its event.
    #[inline(always)]
    fn run_in_place(&mut self, slots: &mut [Option<H::Item>], at: &mut usize) -> Option<Stop> {
        let Instance { handler: Some(handler), ports, cx, .. } = self else { return None };
        ports.each(&mut Mark); // what this visit has passed on before is not withdrawn by a failure
        let room = handler.allowance(ports);
        let until = slots.len().min(room.saturating_add(1));
        let tried_again = cx.attempt() > 1;
        for slot in slots.get_mut(*at..until).unwrap_or_default() {
            if let Err(error) = handler.call(std::slice::from_mut(slot), ports, cx) {
                return Some(Stop::Failed(error));
            }
            *at += 1;
            if tried_again {
                cx.set_attempt(1); // of the events after it
            }
        }
        (*at > room).then_some(Stop::Full)
    }

    #[inline(always)]
    fn run_span(
        &mut self,
        slots: &mut [Option<H::Item>],
        at: &mut usize,
        rows: Rows<'_>,
        retain: Option<CopyFn<H::Item>>,
    ) -> Option<Stop> {
        let Instance { handler: Some(handler), ports, cx, kept, .. } = self else { return None };
        let mut again = cx.attempt() > 1;
        while *at < slots.len() {
            let end = if H::GROUPED { slots.len() } else { *at + 1 };
            ports.each(&mut Mark);
            if let Some(copy) = retain {
                kept.drain(..).for_each(user::discard);
                kept.extend(slots[*at..end].iter().flatten().map(copy));
            }
            let called = if H::KEYED {
                if let Some(mark) = rows.marks.get(*at) {
                    cx.set_watermark(*mark);
                }
                let lane = rows.lanes[*at].as_ref().expect("each event of a keyed stage has one");
                handler.call_in(lane, &mut slots[*at..end], ports, cx)
            } else {
                handler.call(&mut slots[*at..end], ports, cx)
            };
            if let Err(error) = called {
                return Some(Stop::Failed(error));
            }
            if H::WAITS && cx.is_waiting() {
                cx.set_waiting(false);
                return Some(Stop::Waits);
            }
            let mut over = Over(H::IN_PLACE && *at >= handler.allowance(ports));
            ports.each(&mut over);
            if over.0 {
                let mut flooded = Flooded(false);
                ports.each(&mut flooded);
                if flooded.0 {
                    return Some(Stop::Flooded);
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

    /// Sends on the event that was handled in place, if it was.
    fn pass_on_one(&mut self, chunk: &mut Chunk<H::Item>) {
        if H::IN_PLACE
            && let Some(handler) = &mut self.handler
        {
            let (duty, _) = chunk.first_duty();
            if chunk.columns().duties().is_some() || *duty != Duty::default() {
                self.ports.each(&mut Owes(duty));
            }
            let (slots, _) = chunk.parts_mut();
            for event in slots.iter_mut().filter_map(Option::take) {
                handler.pass_one(event, &mut self.ports);
            }
        }
    }
}

impl<H: Handler> Stage<H> {
    pub(super) fn make_handler(&self, cx: &Cx) -> Result<H, String> {
        let made = user::try_call(|| {
            let mut handler = (self.maker)(cx)?;
            handler.init(cx)?;
            Ok(handler)
        })?;
        Ok(made)
    }

    /// How many events one event may lead to.
    pub(super) fn emit_max(&self) -> usize {
        if H::BOUNDS_ITSELF { usize::MAX } else { self.rules.emit_max }
    }

    /// Runs an instance over a batch, sends what it emits, and settles.
    // Long because every way in which a handler stops is decided in one loop.
    pub(super) fn run(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        mut batch: Box<Batch<H::Item>>,
        visit: &mut Visit,
    ) {
        let _reactor = if H::WAITS { core.enter_reactor() } else { None };
        if let Some(tray) = &batch.tray {
            core.show_tray(visit, self.id, tray.clone());
        }
        let (duty, together) = batch.owed::<H>();
        let mut check = self.prepare(core, &mut instance, &batch, &duty, visit);
        check.time(core, self.id);
        let failed_before = batch.tally.failed;
        let mut progress = Progress::default();
        let retry_after = loop {
            let user = visit.effects.hand_over(core);
            let mut stop = Stop::Spent;
            let strikes = core.is_tested() || batch.doomed.is_some();
            let called = user.call(|| {
                let struck = if strikes { self.strike(core, &batch, &progress) } else { None };
                stop = struck.unwrap_or_else(|| {
                    self.run_batch(&mut instance, &mut batch, &mut progress, &mut check, core)
                });
            });
            let why = match called {
                Err(panic) => Why::usual(panic),
                Ok(()) => match stop {
                    Stop::Failed(error) => Why::of(error),
                    Stop::Flooded => Why::usual(Reason::Flood(self.rules.emit_max)),
                    Stop::Waits => {
                        let progress = &mut progress;
                        if self.take_off(core, &mut instance, &mut batch, progress, None, visit) {
                            continue;
                        }
                        break None;
                    }
                    _ => break None,
                },
            };
            let effects = &mut visit.effects;
            match self.failed(core, effects, &mut instance, &mut batch, &mut progress, why) {
                Next::On => {}
                Next::Wait(wait) if H::WAITS => {
                    let retry = Some(wait);
                    if !self.take_off(core, &mut instance, &mut batch, &mut progress, retry, visit)
                    {
                        break None;
                    }
                }
                // It would not end, nor let others run: it takes its turn with them.
                Next::Wait(wait) if wait.is_zero() => {
                    let late = core.clock.now().duration_since(visit.start) > QUANTUM;
                    if core.is_stopped() || (late && batch.ticket.is_none()) {
                        break Some(wait);
                    }
                }
                Next::Wait(wait) => break Some(wait),
                // The events of a ticket are handled together: it gets a new allowance.
                Next::Stop if batch.ticket.is_some() => {
                    instance.ports.each(&mut Unbounded(self.emit_max()));
                }
                Next::Stop => break None,
            }
        };
        if !instance.kept.is_empty() {
            instance.kept.drain(..).for_each(user::discard);
        }
        let (done, at) = (progress.done(), progress.at);
        batch.tally.handled += done - (batch.tally.failed - failed_before);
        let ran = Ran { duty, together, done, at, retry_after };
        self.conclude(core, instance, batch, ran, visit);
    }

    /// Before the handler runs: what its events are, how much they may send, how long it may take.
    fn prepare(
        &self,
        core: &Core,
        instance: &mut Instance<H>,
        batch: &Batch<H::Item>,
        duty: &Duty,
        visit: &mut Visit,
    ) -> QuantumCheck {
        let meta = &batch.chunk.meta;
        instance.cx.set_origin(meta.ingress, meta.tier);
        instance.cx.set_duty(duty);
        visit.effects.hand_over(core);
        let Instance { ports, links, pace, .. } = instance;
        if batch.ticket.is_none() {
            links.look_for_room(core, ports, meta, self.emit_max());
            return QuantumCheck::new(visit.start, pace);
        }
        // Its results may leave after another visit. Where events wait, the ports may still say what one of them owes.
        if H::WAITS || *duty != Duty::default() {
            ports.each(&mut Owes(duty));
        }
        ports.each(&mut Unbounded(self.emit_max()));
        // Its events left the queue in order and must be handled together.
        QuantumCheck::never(visit.start, pace)
    }

    /// Runs the handler over the chunk in hand, and then over what stands in the tray.
    #[inline]
    fn run_batch(
        &self,
        instance: &mut Instance<H>,
        batch: &mut Batch<H::Item>,
        progress: &mut Progress,
        check: &mut QuantumCheck,
        core: &Core,
    ) -> Stop {
        let Batch { chunk, tray, spent, lanes, marks, .. } = batch;
        let retain = self.rules.retain;
        loop {
            let rows = Rows { lanes, marks };
            let stop = instance.run(chunk, progress, check, rows, retain, core);
            let Some(tray) = tray.as_deref().filter(|_| matches!(stop, Stop::Spent)) else {
                return stop;
            };
            if progress.at > 0 && progress.done() >= check.next() {
                let left = tray.left();
                if left > 0 && check.is_late(core, progress.done(), left) {
                    return Stop::Late;
                }
            }
            instance.pass_on_one(chunk);
            progress.before += progress.at;
            spent.append(chunk.spend(std::mem::take(&mut progress.at)));
            let next = tray.next();
            let spent_all = next.is_none();
            chunk.reset(next);
            if spent_all {
                return Stop::Spent;
            }
            if core.is_stopped() {
                return Stop::Quit;
            }
        }
    }
}
