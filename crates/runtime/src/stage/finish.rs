//! The end of an instance: one that is not needed any more, or has seen its last event, finishes and is dropped;
//! with the last one its stage has ended.
//! Before: `settle`, of an instance with nothing to do. After: `run_state`, which closes the edges of the stage.

use comporta_model::column::Duties;
use comporta_model::event::Meta;
use comporta_model::kind::Kind;
use comporta_model::port::Ports;

use super::handle::{Instance, Tally};
use super::ports::{Flooded, Mark, Unbounded, Withdraw};
use super::settle::Settling;
use super::{Phase, Stage, State};
use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::failure::Reason;
use crate::path::emit::InLine;
use crate::path::ready::Task;
use crate::sync::Arc;
use crate::user;

impl<H: Kind> Stage<H> {
    /// Lets idle instances go that are more than wanted.
    pub(super) fn retire_surplus(&self, state: &mut State<H>, effects: &mut Effects) {
        while state.phase == Phase::Open
            && let Some(instance) = state.instances.retire_one()
        {
            self.retire(state, instance, effects);
            for _ in 0..state.instances.drop_surplus_claims() {
                state.deactivate(effects);
            }
        }
    }

    /// An instance with nothing to do is to finish.
    pub(super) fn retire(
        &self,
        state: &mut State<H>,
        mut instance: Box<Instance<H>>,
        effects: &mut Effects,
    ) {
        instance.finishing = true;
        effects.token(self.id, Task::Finish { instance: instance.index });
        state.instances.park(instance);
        if let Some(cycle) = &state.cycle {
            cycle.activate();
        }
    }

    /// An instance has seen its last event.
    pub(super) fn finish(&self, core: &Arc<Core>, index: u32, visit: &mut Visit) {
        let (unparked, ends) = {
            let mut state = self.state.lock();
            (state.instances.unpark(index, visit.home), matches!(state.phase, Phase::Finishing(_)))
        };
        let Some(mut instance) = unparked else { return };
        if ends {
            self.leave_lanes(&mut visit.effects);
        }
        let Instance { handler, ports, cx, links, .. } = &mut *instance;
        // The state of keys belongs to the stage: an instance that merely leaves does not end it.
        let handler = handler.as_mut().filter(|_| ends || !H::KEYED);
        ports.each(&mut Unbounded(self.rules.emit_max));
        ports.each(&mut Mark);
        visit.effects.hand_over(core);
        let _reactor = if H::WAITS { core.enter_reactor() } else { None };
        let result = user::try_call(|| handler.map_or(Ok(()), |handler| handler.finish(ports, cx)));
        let mut flooded = Flooded(false);
        ports.each(&mut flooded);
        let failure = match result {
            _ if flooded.0 => Some(Reason::Flood(self.rules.emit_max).to_string()),
            Ok(()) => None,
            Err(message) => Some(message),
        };
        if let Some(message) = failure {
            ports.each(&mut Withdraw);
            core.report(format!("`{}` could not finish: {message}", self.rules.name));
        }
        let now = core.clock.now();
        visit.end = Some(now);
        let meta = Meta {
            ingress: now,
            enqueued: now,
            home: visit.home,
            tier: u8::MAX,
            ..Meta::default()
        };
        let sent = links.flush(core, ports, &meta, !H::IN_PLACE, visit);
        let in_line = links.in_line();
        let tally = Tally::default();
        let spent = Duties::default();
        let settling = Settling { meta: &meta, spent: Some(&spent), enqueued: now, tally, sent };
        self.count(core, &mut self.state.lock(), &settling, visit);
        if in_line == InLine::No {
            return self.finished(core, instance, visit);
        }
        let mut guard = self.state.lock();
        if guard.phase == Phase::Cancelled {
            return visit.effects.discard(instance);
        }
        self.park(&mut guard, instance, in_line, &mut visit.effects);
    }

    /// An instance is done, and all it sent is delivered.
    pub(super) fn finished(&self, core: &Core, instance: Box<Instance<H>>, visit: &mut Visit) {
        visit.effects.discard(instance);
        let effects = &mut visit.effects;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.deactivate(effects);
        match state.phase {
            Phase::Finishing(1) => {
                state.phase = Phase::Ended;
                state.instances.ended();
                drop(guard);
                core.stage_ended(self.id, effects);
            }
            Phase::Finishing(left) => state.phase = Phase::Finishing(left - 1),
            Phase::Open => {
                state.instances.retired();
                self.changed(core, state, effects);
            }
            Phase::Ended | Phase::Cancelled => {}
        }
    }
}
