//! The admission controller of a stage: asked at the door (`enqueue`) and when a visit takes events
//! (`handle`), told when events were handled (`settle`), all under the stage's lock.
//! One that panics is asked no more: from then on everybody is let in.

use std::time::Duration;

use comporta_model::event::{Meta, Time};
use comporta_model::plan::Choice;
use comporta_model::stage::Handler;
use comporta_policy::admission::{Admission, Ask, Done, Look, NONE, Next, Open, Registry};

use crate::core::Core;
use crate::failure::guard;
use crate::path::admit::{Shed, Wakes, Who};
use crate::path::emit::Drawing;
use crate::path::enqueue::{Phase, StageNode, State};

/// A controller, and what is said of those it does not let in.
pub(crate) struct Gate {
    controller: Box<dyn Admission>,
    pub(crate) choice: Choice,
    pub(crate) reason: Shed,
    /// Why it is asked no more, and whether that was told.
    broken: Option<String>,
    told: bool,
}

impl Gate {
    /// The controller that was chosen; nothing for the one that lets everybody in.
    pub(crate) fn new(registry: &Registry, choice: &Choice) -> Option<Box<Self>> {
        let entry = registry.find(&choice.name).filter(|entry| entry.offer.name != NONE)?;
        let made = guard(|| entry.make(choice));
        let (controller, broken) = match made {
            Ok(controller) => (controller, None),
            Err(reason) => {
                let open: Box<dyn Admission> = Box::new(Open);
                (open, Some(reason.to_string()))
            }
        };
        let reason = Shed::by(entry.offer.name);
        Some(Box::new(Gate { controller, choice: choice.clone(), reason, broken, told: false }))
    }

    fn ask<R>(&mut self, body: impl FnOnce(&mut dyn Admission) -> R) -> Option<R> {
        if self.broken.is_some() {
            return None;
        }
        match guard(|| body(&mut *self.controller)) {
            Ok(answer) => Some(answer),
            Err(reason) => {
                self.broken = Some(reason.to_string());
                None
            }
        }
    }

    /// How many may enter.
    pub(crate) fn admit(&mut self, ask: &Ask) -> usize {
        self.ask(|controller| controller.admit(ask)).unwrap_or(ask.n).min(ask.n)
    }

    /// So many did.
    pub(crate) fn entered(&mut self, ask: &Ask, n: usize) {
        self.ask(|controller| controller.entered(ask, n));
    }

    /// Whom a visit takes.
    pub(crate) fn next(&mut self, look: &Look) -> Next {
        self.ask(|controller| controller.next(look)).unwrap_or(Next::Oldest)
    }

    pub(crate) fn settled(&mut self, done: &Done) {
        self.ask(|controller| controller.settled(done));
    }

    /// What it allows now, in a few words.
    pub(crate) fn tell(&self) -> String {
        match &self.broken {
            Some(reason) => format!("everybody, since it failed: {reason}"),
            None => guard(|| self.controller.tell()).unwrap_or_default(),
        }
    }

    /// Why it is asked no more; said once.
    pub(crate) fn failure(&mut self) -> Option<String> {
        let failure = self.broken.as_ref().filter(|_| !self.told)?;
        self.told = true;
        Some(format!("its admission controller `{}` failed: {failure}", self.choice.name))
    }
}

impl<H: Handler> State<H> {
    /// What the gate is asked about `n` events at the door.
    fn ask(&self, now: Time, n: usize, meta: &Meta) -> Ask {
        Ask {
            now,
            n,
            queued: self.queue.len() + self.desk.outboxed,
            in_flight: self.in_flight,
            capacity: self.desk.capacity,
            instances: self.instances,
            oldest: self.queue.oldest().map_or(Duration::ZERO, |meta| now.since(meta.ingress)),
            tier: meta.tier,
            deadline: meta.deadline,
        }
    }
}

impl<H: Handler> StageNode<H> {
    /// Asks the gate, if there is one, how many of a parcel may enter. Those who push from outside
    /// were asked about when they drew places, and could still take their event back.
    pub(crate) fn ask(
        &self,
        core: &Core,
        state: &mut State<H>,
        n: usize,
        meta: &Meta,
        who: &Who,
    ) -> Option<(Ask, usize)> {
        if state.desk.gate.is_none() || state.desk.disabled || n == 0 {
            return None;
        }
        let ask = state.ask(core.clock.now(), n, meta);
        let gate = state.desk.gate.as_mut()?;
        let admitted = if matches!(who, Who::Caller(_)) { n } else { gate.admit(&ask) };
        Some((ask, admitted))
    }

    /// Tells the gate what came of it, and counts whom it did not let in.
    pub(crate) fn answer(
        &self,
        state: &mut State<H>,
        ask: &Ask,
        arrived: usize,
        (refused, meta): (usize, &Meta),
    ) {
        let Some(gate) = &mut state.desk.gate else { return };
        gate.entered(ask, arrived);
        let reason = gate.reason;
        if refused > 0 {
            state.desk.counts.offered += refused as u64;
            state.shed(reason, meta, refused);
        }
    }

    /// How many of `want` events the gate would let in now. Those outside are given their event
    /// back if it is none, and that is told to the gate.
    pub(crate) fn ask_beforehand(
        &self,
        state: &mut State<H>,
        want: usize,
        by: &Drawing<'_>,
    ) -> usize {
        if state.desk.gate.is_none() || state.desk.disabled || state.phase != Phase::Open {
            return want;
        }
        let ask = state.ask(by.core.clock.now(), want, by.meta);
        let Some(gate) = &mut state.desk.gate else { return want };
        let allowed = gate.admit(&ask);
        if allowed == 0 && matches!(by.who, Who::Caller(_)) {
            gate.entered(&ask, 0);
        }
        allowed
    }

    /// Gives the room there is to those who wait for it.
    pub(crate) fn pass_room(&self, core: &Core, state: &mut State<H>, wakes: &mut Wakes) {
        if state.desk.has_waiters() {
            state.desk.pass_room(state.queue.len(), wakes);
            if !state.desk.has_waiters() {
                core.disinherit(self.id);
            }
        }
    }

    /// Sheds what the gate says has waited in vain. Says whether the newest are to be taken.
    #[inline]
    pub(crate) fn sift(
        &self,
        core: &Core,
        state: &mut State<H>,
        now: Time,
        wakes: &mut Wakes,
    ) -> bool {
        if state.desk.gate.is_none() {
            return false;
        }
        self.sift_by_gate(core, state, now, wakes)
    }

    #[cold]
    #[inline(never)]
    fn sift_by_gate(
        &self,
        core: &Core,
        state: &mut State<H>,
        now: Time,
        wakes: &mut Wakes,
    ) -> bool {
        let Some(mut gate) = state.desk.gate.take() else { return false };
        if let Some(failure) = gate.failure() {
            core.report(format!("`{}`: {failure}", self.rules.name));
        }
        let (mut shed, mut newest) = (0, false);
        while let Some(oldest) = state.queue.first() {
            let meta = oldest.meta.clone();
            let look = Look {
                now,
                n: oldest.len(),
                queued: state.queue.len(),
                age: now.since(meta.ingress),
                tier: meta.tier,
                deadline: meta.deadline,
            };
            match gate.next(&look) {
                Next::Shed(n) => {
                    let Some(late) = state.queue.pop(n.max(1)) else { break };
                    shed += late.len();
                    state.shed_late(gate.reason, &meta, late.len());
                    state.queue.recycle(late.into_storage());
                }
                Next::Oldest => break,
                Next::Newest => {
                    newest = !self.rules.in_order;
                    break;
                }
            }
        }
        state.desk.gate = Some(gate);
        if shed > 0 {
            Self::cycle_ended(state, shed, self.id, wakes);
            self.pass_room(core, state, wakes);
        }
        newest
    }
}
