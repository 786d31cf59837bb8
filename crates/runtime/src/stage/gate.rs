//! The admission controller of a stage: asked when events arrive (`inlet`) and when a visit takes some
//! (`take`), informed when events were handled (`settle`).
//!
//! It may be the program's own, so it is called outside of the stage's lock, one call at a time. One
//! that panics is asked no more; one that is busy for long, or asks itself, is not waited for. In all
//! these cases everybody is let in.

use std::cell::Cell;
use std::time::Duration;

use comporta_model::event::{Meta, Time};
use comporta_model::plan::Choice;
use comporta_policy::admission::{Admission, Ask, Done, Look, NONE, Next, Open, Registry};

use super::permits::Shed;
use crate::snapshot::AdmissionSnapshot;
use crate::sync::{AtomicBool, Mutex, MutexGuard, OnceLock, Relaxed, SeqCst, thread};
use crate::user;

/// How often a caller that finds the controller busy lets others run before it goes without an answer.
const BUSY_MAX: u32 = if cfg!(shuttle) { 2 } else { 200 };

/// A controller, and what is said of those it does not let in.
pub(crate) struct Controller {
    controller: Box<dyn Admission>,
    choice: Choice,
    reason: Shed,
    /// Why it is asked no more.
    broken: Option<String>,
}

impl Controller {
    /// The controller that was chosen; none for the one that lets everybody in.
    pub(crate) fn new(registry: &Registry, choice: &Choice) -> Option<Self> {
        let entry = registry.find(&choice.name).filter(|entry| entry.offer.name != NONE)?;
        let (controller, broken) = match user::call(|| entry.make(choice)) {
            Ok(controller) => (controller, None),
            Err(reason) => {
                let open: Box<dyn Admission> = Box::new(Open);
                (open, Some(reason.to_string()))
            }
        };
        let reason = Shed::by(entry.offer.name);
        Some(Controller { controller, choice: choice.clone(), reason, broken })
    }
}

/// Where the controller stands, if there is one. It is taken out while it is called.
#[derive(Default)]
pub(super) struct Gate {
    present: AtomicBool,
    /// Made for the first controller: most stages never have one.
    slot: OnceLock<Box<Mutex<Slot>>>,
}

#[derive(Default)]
struct Slot {
    controller: Option<Controller>,
    /// One that was set while the other was being called.
    next: Option<Option<Controller>>,
    called: bool,
    choice: Option<Choice>,
    /// Why it is asked no more, and whether that is still to be reported.
    failure: Option<String>,
    unreported: bool,
}

impl Gate {
    pub(super) fn new(controller: Option<Controller>) -> Self {
        let gate = Gate::default();
        gate.set(controller);
        gate
    }

    /// Whether there is a controller.
    #[inline]
    pub(super) fn is_present(&self) -> bool {
        self.present.load(Relaxed)
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.get_or_init(Box::default).lock()
    }

    /// Has another controller decide from now on.
    pub(super) fn set(&self, controller: Option<Controller>) {
        if controller.is_none() && self.slot.get().is_none() {
            return;
        }
        let mut slot = self.slot();
        self.present.store(controller.is_some(), SeqCst);
        slot.choice = controller.as_ref().map(|controller| controller.choice.clone());
        slot.failure = controller.as_ref().and_then(|controller| controller.broken.clone());
        slot.unreported = slot.failure.is_some();
        let before = if slot.called {
            slot.next.replace(controller).flatten()
        } else {
            std::mem::replace(&mut slot.controller, controller)
        };
        drop(slot);
        user::discard(before);
    }

    /// Calls the controller. Returns what it returned, and why those it does not let in are shed.
    fn ask<R>(&self, body: impl FnOnce(&mut dyn Admission) -> R) -> Option<(R, Shed)> {
        let mut controller = self.take_out()?;
        let before = CALLING.with(|calling| calling.replace(true));
        let answer = user::call(|| body(&mut *controller.controller));
        CALLING.with(|calling| calling.set(before));
        let reason = controller.reason;
        let mut slot = self.slot();
        slot.called = false;
        let replaced = match slot.next.take() {
            Some(next) => std::mem::replace(&mut slot.controller, next).or(Some(controller)),
            None => {
                if let Err(reason) = &answer {
                    controller.broken = Some(reason.to_string());
                    slot.failure.clone_from(&controller.broken);
                    slot.unreported = true;
                }
                slot.controller = Some(controller);
                None
            }
        };
        drop(slot);
        user::discard(replaced);
        answer.ok().map(|answer| (answer, reason))
    }

    /// Takes the controller out, waiting a little while another call goes on.
    fn take_out(&self) -> Option<Controller> {
        for _ in 0..BUSY_MAX {
            let mut slot = self.slot();
            if !slot.called {
                let taken = slot.controller.take_if(|controller| controller.broken.is_none());
                slot.called = taken.is_some();
                return taken;
            }
            drop(slot);
            if CALLING.with(Cell::get) {
                return None; // it asks itself
            }
            thread::yield_now();
        }
        None
    }

    /// How many may enter, and why the others may not. Asked of what may still be given back.
    pub(super) fn admit(&self, ask: &Ask) -> Option<(usize, Shed)> {
        let (allowed, reason) = self.ask(|controller| controller.admit(ask))?;
        Some((allowed.min(ask.n), reason))
    }

    /// So many did.
    pub(super) fn entered(&self, ask: &Ask, n: usize) {
        self.ask(|controller| controller.entered(ask, n));
    }

    /// Whom a visit takes.
    pub(super) fn next(&self, look: &Look) -> (Next, Shed) {
        self.ask(|controller| controller.next(look)).unwrap_or((Next::Oldest, Shed::Admission))
    }

    pub(super) fn settled(&self, done: &Done) {
        self.ask(|controller| controller.settled(done));
    }

    /// Why it is asked no more; returned once.
    pub(super) fn take_failure(&self) -> Option<String> {
        let mut slot = self.slot();
        let unreported = std::mem::take(&mut slot.unreported);
        let (failure, choice) =
            (slot.failure.as_ref().filter(|_| unreported)?, slot.choice.as_ref()?);
        Some(format!("its admission controller `{}` failed: {failure}", choice.name))
    }

    pub(super) fn snapshot(&self) -> Option<AdmissionSnapshot> {
        if !self.is_present() {
            return None;
        }
        let told = self.ask(|controller| controller.describe());
        let slot = self.slot();
        let allows = match &slot.failure {
            Some(reason) => format!("everybody, since it failed: {reason}"),
            None => told.map(|(told, _)| told).unwrap_or_default(),
        };
        Some(AdmissionSnapshot { choice: slot.choice.clone()?, allows })
    }
}

impl Drop for Gate {
    /// The controller goes with its stage.
    fn drop(&mut self) {
        user::discard(self.slot.take());
    }
}

crate::sync::thread_local! {
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

/// What a controller is asked about `n` events that arrive.
pub(super) struct Arrivals {
    pub(super) now: Time,
    pub(super) n: usize,
    pub(super) queued: usize,
    pub(super) in_flight: usize,
    pub(super) capacity: usize,
    pub(super) instances: usize,
    /// How long the oldest event has been in the queue.
    pub(super) oldest: Duration,
}

impl Arrivals {
    pub(super) fn ask(&self, meta: &Meta) -> Ask {
        Ask {
            now: self.now,
            n: self.n,
            queued: self.queued,
            in_flight: self.in_flight,
            capacity: self.capacity,
            instances: self.instances,
            oldest: self.oldest,
            tier: meta.tier,
            deadline: meta.duty.deadline,
        }
    }
}
