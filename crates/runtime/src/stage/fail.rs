//! Hop 6, where it fails: what becomes of an event whose handler returned an error, panicked or sent too much.
//! Before: `handle`. After: `handle`, with the next event or another try, or `settle`.
//! Invariant: what a failed event sent is withdrawn before anything is decided.

use comporta_model::ack::{Because, Fate};
use comporta_model::column::Columns;
use comporta_model::error::{Advice, Error};
use comporta_model::event::Meta;
use comporta_model::keyed::LaneRef;
use comporta_model::plan::OnPanic;
use comporta_model::port::Ports;
use comporta_model::stage::Handler;
use std::collections::VecDeque;
use std::time::Duration;

use super::Stage;
use super::handle::{Instance, Progress, Stop};
use super::ports::{Flooded, Withdraw};
use super::take::Batch;
use crate::core::Core;
use crate::effects::Effects;
use crate::failure::{Failure, Kept, Reason};
use crate::user;

/// Why an event failed, and what its error says of another try.
pub(super) struct Why {
    pub(super) reason: Reason,
    pub(super) advice: Advice,
    /// Part of what the event sent has moved on, and is not withdrawn.
    pub(super) partial: bool,
}

impl Why {
    pub(super) fn of(error: Error) -> Self {
        let advice = error.advice();
        Why { reason: Reason::Error(user::text(error)), advice, partial: false }
    }

    /// A failure that says nothing of trying again.
    pub(super) fn usual(reason: Reason) -> Self {
        let advice = if reason == Reason::Deadline { Advice::Permanent } else { Advice::Usual };
        Why { reason, advice, partial: false }
    }
}

/// A failure asked for by a test.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    Error(String),
    Panic(String),
}

impl Fault {
    /// It happens.
    pub(super) fn strike(self) -> Stop {
        match self {
            Fault::Error(message) => Stop::Failed(Error::msg(message)),
            Fault::Panic(message) => std::panic::panic_any(message),
        }
    }
}

/// Failures asked for by a test, in the order in which they are to come.
pub(super) type Faults = VecDeque<Fault>;

/// How an event failed for good.
pub(super) struct Failing {
    reason: Reason,
    attempts: u32,
    partial: bool,
    /// The lane that waits for it.
    lane: Option<LaneRef>,
}

/// What a visit does after a failure.
pub(super) enum Next {
    On,
    Wait(Duration),
    Stop,
}

impl<H: Handler> Stage<H> {
    /// The event at `at` failed: withdraws what it sent and decides what becomes of it.
    pub(super) fn failed(
        &self,
        core: &Core,
        effects: &mut Effects,
        instance: &mut Instance<H>,
        batch: &mut Batch<H::Item>,
        progress: &mut Progress,
        Why { reason, advice, partial }: Why,
    ) -> Next {
        let mut flooded = Flooded(false);
        instance.ports.each(&mut flooded);
        instance.ports.each(&mut Withdraw);
        let reason = if flooded.0 { Reason::Flood(self.rules.emit_max) } else { reason };
        if matches!(reason, Reason::Panic(..)) && self.rules.on_panic == OnPanic::Reset {
            self.reset(core, instance);
        }
        let Progress { before, at } = progress;
        let attempt = instance.cx.attempt();
        let meta = batch.chunk.meta.clone();
        let awaited = batch.chunk.is_awaited();
        let (slots, columns) = batch.chunk.parts_mut();
        let end = if H::GROUPED { slots.len() } else { *at + 1 };
        let failed = &mut slots[*at..end];
        if failed.iter().any(Option::is_none) || (H::IN_PLACE && !instance.kept.is_empty()) {
            let kept = std::mem::take(&mut instance.kept);
            let _ = user::call(|| {
                for (slot, copy) in failed.iter_mut().zip(kept) {
                    *slot = Some(copy);
                }
            });
        }
        let whole = failed.iter().all(Option::is_some);
        // Instances that fail at one moment wait differently long.
        let dice = core.clock.now().as_nanos() ^ u64::from(instance.index) << 48;
        let wait = self.rules.retry.wait(attempt, advice, dice);
        if let Some(wait) = wait.filter(|_| whole) {
            batch.tally.retried += 1;
            instance.cx.set_attempt(attempt + 1);
            return Next::Wait(wait);
        }
        instance.cx.set_attempt(1);
        batch.tally.failed += failed.len();
        let told = awaited.then(|| reason.clone());
        let rows = (*at..end).map(|at| columns.row(at));
        let lane = self.hold_lane(batch.lanes.get(*before + *at));
        let of = Failing { reason, attempts: attempt, partial, lane };
        self.set_aside(core, effects, failed.iter_mut().zip(rows), of, &meta);
        if let Some(reason) = &told {
            let because = Because::Failed { stage: &self.rules.name, reason };
            batch.chunk.because_of(*at..end, &because);
        }
        batch.chunk.settle_some(*at..end, Fate::Failed);
        *at = end;
        // A flood took the allowance of the visit with it.
        if flooded.0 { Next::Stop } else { Next::On }
    }

    /// Keeps failed events, with their reason.
    pub(super) fn set_aside<'a>(
        &self,
        core: &Core,
        effects: &mut Effects,
        failed: impl Iterator<Item = (&'a mut Option<H::Item>, Columns)>,
        Failing { reason, attempts, partial, lane }: Failing,
        meta: &Meta,
    ) {
        let now = core.clock.now();
        for (slot, columns) in failed {
            let (event, of) = (slot.take(), Kept { meta, columns, lane: lane.clone() });
            if let Some(on_failed) = &self.rules.on_failed {
                on_failed(&reason, attempts, now, event.as_ref());
            }
            let (forgotten, released) = {
                let reason = reason.clone();
                let failure =
                    Failure { number: 0, reason, attempts, at: now, replayable: false, partial };
                self.failures.lock().push(failure, event, of)
            };
            user::discard(forgotten);
            self.release_lanes(core, released, effects);
        }
    }

    /// Makes a handler anew after a panic.
    fn reset(&self, core: &Core, instance: &mut Instance<H>) {
        match self.make_handler(&instance.cx) {
            Ok(handler) => user::discard(instance.handler.replace(handler)), // what it held has failed
            Err(error) => core.report(format!(
                "an instance of `{}` could not be made anew after a panic: {error}",
                self.rules.name
            )),
        }
    }
}
