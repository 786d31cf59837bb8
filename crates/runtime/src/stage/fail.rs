//! Hop 6, where it fails: what becomes of an event whose handler returned an error, panicked or sent too much.
//! Before: `handle`. After: `handle`, with the next event or another try, or `settle`.
//! An event that failed for good is set aside with its reason, or goes on through the error port of its stage.
//! Invariant: what a failed event sent is withdrawn before anything is decided.

use comporta_model::ack::{Because, Fate};
use comporta_model::column::{Cursor, Duty};
use comporta_model::error::{Advice, Error};
use comporta_model::event::Time;
use comporta_model::failed::Failed;
use comporta_model::keyed::LaneRef;
use comporta_model::kind::Kind;
use comporta_model::plan::OnPanic;
use comporta_model::port::{Out, Ports};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use super::Stage;
use super::handle::{Instance, Progress, Stop};
use super::ports::{Flooded, Withdraw};
use super::take::Batch;
use crate::core::Core;
use crate::effects::Effects;
use crate::failure::{Failure, Kept, Reason};
use crate::path::error_port::HeldErrors;
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

impl<H: Kind> Stage<H> {
    /// Whether a test has asked for failures: then each visit takes one event.
    #[inline]
    pub(super) fn has_faults(&self, core: &Core) -> bool {
        core.is_tested() && !self.faults.lock().is_empty()
    }

    /// The failure that a test has asked for next, if there is an event to fail.
    #[inline]
    pub(super) fn next_fault(&self, core: &Core, has_event: bool) -> Option<Fault> {
        if core.is_tested() && has_event { self.faults.lock().pop_front() } else { None }
    }

    /// The failure that comes before the next event is handled: it is doomed, or a test has asked for it.
    #[cold]
    pub(super) fn strike(
        &self,
        core: &Core,
        batch: &Batch<H::Item>,
        progress: &Progress,
    ) -> Option<Stop> {
        let has_event = progress.at < batch.chunk.len();
        let fault = self.next_fault(core, has_event);
        match batch.doomed.filter(|_| has_event) {
            Some(doom) => Some(Stop::Failed(doom.error())),
            None => fault.map(Fault::strike),
        }
    }

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
        let (slots, _) = batch.chunk.parts_mut();
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
        let mut of = Failing { reason, attempts: attempt, partial, lane: None };
        let lane = *before + *at;
        let failed = *at..end;
        *at = end;
        let full = if instance.links.has_errors() {
            self.send_on(core, effects, instance, batch, failed, &of)
        } else {
            of.lane = self.hold_lane(batch.lanes.get(lane).and_then(Option::as_ref));
            self.set_aside(core, effects, batch, failed, &of);
            false
        };
        // A flood took the allowance of the visit with it.
        if flooded.0 || full { Next::Stop } else { Next::On }
    }

    /// Failed events are kept, with their reason, and whoever waits for them is told.
    fn set_aside(
        &self,
        core: &Core,
        effects: &mut Effects,
        batch: &mut Batch<H::Item>,
        failed: Range<usize>,
        of: &Failing,
    ) {
        let now = core.clock.now();
        let meta = batch.chunk.meta.clone();
        let awaited = batch.chunk.is_awaited();
        let (slots, columns) = batch.chunk.parts_mut();
        for at in failed.clone() {
            let event = slots[at].take();
            self.report(of, now, event.as_ref());
            let carries = Kept { meta: &meta, columns: columns.row(at), lane: of.lane.clone() };
            self.keep(core, effects, of, event, carries);
        }
        if awaited {
            let because = Because::Failed { stage: &self.rules.name, reason: &of.reason };
            batch.chunk.because_of(failed.clone(), &because);
        }
        batch.chunk.settle_some(failed, Fate::Failed);
    }

    /// Failed events go on through the error port, with what is owed for them: they are settled as if handled, and
    /// what becomes of their sources depends on the receivers. No lane waits for them. Returns whether there is no
    /// room for more.
    fn send_on(
        &self,
        core: &Core,
        effects: &mut Effects,
        instance: &mut Instance<H>,
        batch: &mut Batch<H::Item>,
        failed: Range<usize>,
        of: &Failing,
    ) -> bool {
        let now = core.clock.now();
        let meta = batch.chunk.meta.clone();
        let mut full = false;
        for at in failed {
            let (slots, columns) = batch.chunk.parts_mut();
            let duties = columns.duties();
            let own = duties.and_then(|duties| duties.at(at, &mut Cursor::default()));
            let ack = own.map_or(&meta.duty, |(duty, _)| duty).ack.clone();
            let duty = Duty { deadline: None, ack }; // what failed is wanted also when it is late
            let event = slots[at].take();
            self.report(of, now, event.as_ref());
            let carries = Kept { meta: &meta, columns: columns.row(at), lane: None };
            self.keep(core, effects, of, None, carries);
            let mut failed = Failed::new(&*self.rules.name, event, of.reason.clone());
            (failed.attempts, failed.partial) = (of.attempts, of.partial);
            let send = |errors: &mut dyn HeldErrors| {
                if let Some(errors) = errors.as_any().downcast_mut::<Out<Failed<H::Item>>>() {
                    errors.set_duty(&duty);
                    errors.send(failed);
                    full = errors.is_over();
                }
            };
            match (instance.links.errors(), batch.ticket, &self.order) {
                (Some(held), Some(ticket), Some(order)) => order.fail(ticket, held.fresh(), send),
                (Some(held), ..) => send(&mut **held),
                (None, ..) => {}
            }
        }
        full
    }

    /// Reports a failed event to the program, if it asked for that.
    fn report(&self, of: &Failing, at: Time, event: Option<&H::Item>) {
        if let Some(on_failed) = &self.rules.on_failed {
            on_failed(&of.reason, of.attempts, at, event);
        }
    }

    /// Keeps a failure, with the event if it did not go on.
    fn keep(
        &self,
        core: &Core,
        effects: &mut Effects,
        of: &Failing,
        event: Option<H::Item>,
        carries: Kept<'_>,
    ) {
        let Failing { ref reason, attempts, partial, .. } = *of;
        let (reason, at) = (reason.clone(), core.clock.now());
        let failure = Failure { number: 0, reason, attempts, at, replayable: false, partial };
        let (forgotten, released) = self.failures.lock().push(failure, event, carries);
        user::discard(forgotten);
        self.release_lanes(core, released, effects);
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
