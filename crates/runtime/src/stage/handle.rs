//! Hop 6, handle: a visit runs the handler of one instance over its batch.
//! Before: `take`. After: `emit`, then `settle`.
//! The loop over the events is in `call`; locks, clock reads, the panic guard, counters and wake-ups are paid per visit. A
//! visit stops when its events are spent, when it sent more than there is room for, or when its time is up.

use std::time::Duration;

use comporta_model::ack::Obligation;
use comporta_model::column::Duty;
use comporta_model::error::Error;
use comporta_model::event::Time;
use comporta_model::kind::Kind;
use comporta_model::port::Ports;
use comporta_model::stage::{Cx, Host};

use super::Stage;
use super::call::DynHandler;
use super::fail::{Next, Why};
use super::flight::{InFlight, Wakeup};
use super::pace::{Pace, QUANTUM, QuantumCheck};
use super::ports::{Owes, Unbounded};
use super::queue::Turn;
use super::take::{Batch, Rows};
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
pub(super) struct Instance<H: Kind> {
    pub(super) index: u32,
    /// None where a stub stands in for the stage.
    pub(super) handler: Option<Box<dyn DynHandler<H>>>,
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

impl<H: Kind> Instance<H> {
    /// How long a visit may take that begins now.
    pub(super) fn check(&self, batch: &Batch<H::Item>, start: Time) -> QuantumCheck {
        if batch.ticket.is_none() {
            QuantumCheck::new(start, &self.pace)
        } else {
            // Its events left the queue in order and must be handled together.
            QuantumCheck::never(start, &self.pace)
        }
    }
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

pub(crate) enum Stop {
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
pub(crate) struct Progress {
    /// Events done with before the first of the chunk in hand.
    pub(super) before: usize,
    /// Events of the chunk in hand that are done with.
    pub(super) at: usize,
}

impl Progress {
    #[inline]
    pub(super) fn done(&self) -> usize {
        self.before + self.at
    }
}

/// A visit that handles its events.
pub(super) struct Handling {
    /// As in [`Ran`].
    pub(super) duty: Duty,
    pub(super) together: Obligation,
    pub(super) progress: Progress,
    pub(super) check: QuantumCheck,
    /// How many of its events had failed before.
    pub(super) failed_before: usize,
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

impl<H: Kind> Instance<H> {
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
            instance.cx.set_emit_max(stage.rules.emit_max);
            instance.set_list(core, stage);
        }
        Ok(instance)
    }

    /// Events it holds that are in flight.
    pub(super) fn held(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| {
            let settled = pending.batch.ticket.map_or(0, |_| pending.batch.tally.ended());
            pending.batch.chunk.len() + settled
        })
    }
}

impl<H: Kind> Stage<H> {
    pub(super) fn make_handler(&self, cx: &Cx) -> Result<Box<dyn DynHandler<H>>, String> {
        let made = user::try_call(|| {
            let mut handler = (self.maker)(cx)?;
            handler.init(cx)?;
            Ok(handler)
        })?;
        Ok(made)
    }

    /// Runs an instance over a batch, sends what it emits, and settles.
    pub(super) fn run(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        batch: Box<Batch<H::Item>>,
        visit: &mut Visit,
    ) {
        let _reactor = if H::WAITS { core.enter_reactor() } else { None };
        if let Some(tray) = &batch.tray {
            core.show_tray(visit, self.id, tray.clone());
        }
        let (duty, together) = batch.owed::<H>();
        let mut check = self.prepare(core, &mut instance, &batch, &duty, visit);
        check.time(core, self.id);
        let (failed_before, progress) = (batch.tally.failed, Progress::default());
        let handling = Handling { duty, together, progress, check, failed_before };
        self.run_on(core, instance, batch, handling, None, visit);
    }

    /// As [`run`](Self::run), of a visit that has begun; `stopped` is how its handler stopped, if it was called.
    // Long because every way in which a handler stops is decided in one loop.
    pub(super) fn run_on(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        mut batch: Box<Batch<H::Item>>,
        handling: Handling,
        mut stopped: Option<Result<Stop, Reason>>,
        visit: &mut Visit,
    ) {
        let Handling { duty, together, mut progress, mut check, failed_before } = handling;
        let retry_after = loop {
            let called = stopped.take().unwrap_or_else(|| {
                let user = visit.effects.hand_over(core);
                let strikes = core.is_tested() || batch.doomed.is_some();
                user.call(|| {
                    let struck = if strikes { self.strike(core, &batch, &progress) } else { None };
                    struck.unwrap_or_else(|| {
                        self.run_batch(&mut instance, &mut batch, &mut progress, &mut check, core)
                    })
                })
            });
            let why = match called {
                Err(panic) => Why::usual(panic),
                Ok(stop) => match stop {
                    Stop::Failed(error) => Why::of(error),
                    Stop::Flooded => Why::usual(Reason::Flood(self.rules.emit_max)),
                    Stop::Waits if H::WAITS => {
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
                    instance.ports.each(&mut Unbounded(self.rules.emit_max));
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
        // Results of a ticket may leave after another visit. Where events wait, the ports may still say what one of them
        // owes.
        if batch.ticket.is_some() && (H::WAITS || *duty != Duty::default()) {
            instance.ports.each(&mut Owes(duty));
        }
        self.allow(core, instance, batch);
        instance.check(batch, visit.start)
    }

    /// How much a visit may send. Nothing is due to anybody: admission controllers are asked.
    #[inline(always)]
    pub(super) fn allow(&self, core: &Core, instance: &mut Instance<H>, batch: &Batch<H::Item>) {
        let Instance { ports, links, .. } = instance;
        if batch.ticket.is_none() {
            links.look_for_room(core, ports, &batch.chunk.meta, self.rules.emit_max);
        } else {
            ports.each(&mut Unbounded(self.rules.emit_max));
        }
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
            let mut stop = instance.run(chunk, progress, check, rows, retain, core);
            if matches!(stop, Stop::Spent)
                && retain.is_none()
                && let Some(tray) = tray.as_deref()
            {
                stop = instance.run_from(chunk, tray, progress, check, rows, core);
            }
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
