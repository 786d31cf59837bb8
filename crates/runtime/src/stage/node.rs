//! What the rest of the runtime asks of a stage: to make a visit, to begin and to end, its numbers, and
//! live change.

use std::any::{Any, TypeId};
use std::time::Duration;

use comporta_model::ack::Fate;
use comporta_model::event::Meta;
use comporta_model::keyed::{AnyKeys, LaneRef};
use comporta_model::kind::Kind;
use comporta_model::plan::WhenFull;
use comporta_policy::KeyLoad;

use super::fail::Fault;
use super::flight::FlightTray;
use super::gate::Controller;
use super::groups::GroupSize;
use super::handle::{Instance, Pending};
use super::permits::Shed;
use super::queue::Side;
use super::tray::Tray;
use super::{Phase, Stage, State, instances_for};
use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::failure::{Failure, Replayed};
use crate::node::{Node, Reading};
use crate::path::outlet::Inlet;
use crate::path::ready::Task;
use crate::snapshot::StageSnapshot;
use crate::sync::{Arc, Relaxed};
use crate::user;
use crate::wiring::Wiring;

impl<H: Kind> Stage<H> {
    /// Adds instances: made, initialised, idle. All of them, or none.
    fn add_instances(
        &self,
        core: &Arc<Core>,
        n: usize,
        effects: &mut Effects,
    ) -> Result<(), String> {
        let mut made = Vec::new();
        for _ in 0..n {
            let index = self.state.lock().instances.next_index();
            let instance = Instance::make(core, self, index).and_then(|instance| {
                match self.learn_group(&instance) {
                    Ok(()) => Ok(instance),
                    Err(message) => {
                        effects.discard(instance);
                        Err(message)
                    }
                }
            });
            match instance {
                Ok(instance) => made.push(Box::new(instance)),
                Err(message) => {
                    effects.discard(made);
                    return Err(message);
                }
            }
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.phase != Phase::Open {
            effects.discard(made);
            return Err("the stage has ended".to_owned());
        }
        state.instances.add(made);
        self.changed(core, state, effects);
        Ok(())
    }

    /// What a policy asks for that does not depend on the kind of handler.
    fn reading_of(&self, state: &State<H>) -> Reading {
        Reading {
            arrived: state.counts.offered - (state.outboxed + state.given_up) as u64,
            processed: state.counts.handled + state.counts.failed,
            capacity: state.permits.capacity(),
            enabled: !state.permits.is_disabled(),
            busy: state.pace.busy(),
            ..Reading::default()
        }
    }

    /// What a factory makes may be handed groups: how large they are is known only then.
    fn learn_group(&self, instance: &Instance<H>) -> Result<(), String> {
        let Some(handler) = instance.handler.as_ref().filter(|_| H::GROUPED) else { return Ok(()) };
        let said = user::call(|| handler.group()).map_err(|reason| reason.to_string())?;
        let Some((events, wait)) = said else { return Ok(()) };
        let said = GroupSize { events, wait };
        if *self.group.get_or_init(|| said) != said {
            return Err("its instances want groups of different sizes".to_owned());
        }
        let capacity = self.state.lock().permits.capacity();
        if events == 0 {
            return Err("groups of 0 events: use at least 1".to_owned());
        }
        if events > capacity {
            return Err(format!("groups of {events} events do not fit its queue of {capacity}"));
        }
        Ok(())
    }
}

impl<H: Kind> State<H> {
    /// The program was stopped: what an instance has in hand is cancelled.
    pub(super) fn cancel_held(&mut self, instance: &mut Instance<H>, effects: &mut Effects) {
        if H::WAITS {
            self.cancel_flushed(instance, effects);
        }
        let held = instance.held();
        self.in_flight -= held;
        self.counts.cancelled += held as u64;
        if let Some(Pending { batch, .. }) = &instance.pending {
            batch.chunk.settle(Fate::Cancelled);
            batch.spent.settle(Fate::Cancelled);
        }
    }
}

impl<H: Kind> Stage<H> {
    /// A visit that is not to an idle instance: what there is to do was begun before.
    #[inline(never)]
    fn go_on(&self, core: &Arc<Core>, task: Task, visit: &mut Visit) {
        match task {
            Task::Any => {}
            Task::Resume { instance } => self.resume(core, instance, visit),
            Task::Release => self.resume_results(core, visit),
            Task::Retry { instance } => self.retry(core, instance, visit),
            Task::Finish { instance } => self.finish(core, instance, visit),
            Task::Alarm => {
                if H::WAITS {
                    self.flights_due(core, visit);
                }
                self.lanes_due(core, visit);
            }
            Task::Flush => {
                let mut guard = self.state.lock();
                let state = &mut *guard;
                state.gathering.timer_fired(state.queue.len(), core.clock.now());
                self.changed(core, state, &mut visit.effects);
            }
        }
    }
}

impl<H: Kind> Node for Stage<H> {
    #[inline]
    fn visit(&self, core: &Arc<Core>, task: Task, visit: &mut Visit) {
        match task {
            Task::Any => self.visit_events(core, visit),
            _ => self.go_on(core, task, visit),
        }
    }

    fn start(&self, core: &Arc<Core>, effects: &mut Effects) -> Result<(), String> {
        self.threads.store(core.pools[core.pool_of(self.id)].threads(), Relaxed);
        let wanted = self.state.lock().instances.wanted();
        self.add_instances(core, wanted, effects)
    }

    fn inlet(self: Arc<Self>) -> Box<dyn Any> {
        let inlet: Arc<dyn Inlet<H::Item>> = self;
        Box::new(inlet)
    }

    fn woken(&self, effects: &mut Effects) {
        if H::WAITS {
            self.flights_woken(effects);
        }
    }

    fn reclaim(&self, core: &Core, tray: &dyn Any, effects: &mut Effects) {
        let mut visit = Visit::new(0, None);
        if let Some(tray) = tray.downcast_ref::<Tray<H::Item>>() {
            self.reclaim(core, tray, &mut visit);
        } else if H::WAITS
            && let Some(tray) = tray.downcast_ref::<FlightTray<H>>()
        {
            self.reclaim_flights(core, tray, &mut visit);
        }
        effects.take(&mut visit.effects);
    }

    fn close(&self, core: &Core, effects: &mut Effects) {
        let mut guard = self.state.lock();
        guard.draining = true; // keys that are held may be given up
        self.changed(core, &mut guard, effects);
    }

    fn close_edge(&self, core: &Core, from: u32, effects: &mut Effects) {
        let mut guard = self.state.lock();
        guard.producers -= 1; // the last group need not wait any longer
        if let Some(lanes) = guard.queue.as_lanes() {
            lanes.input_ended(Wiring::origin(&core.graph, from), core.clock.now());
        }
        self.changed(core, &mut guard, effects);
    }

    fn may_finish(&self) -> bool {
        let state = self.state.lock();
        state.phase != Phase::Open || state.is_over()
    }

    fn begin_finish(&self, core: &Core, effects: &mut Effects) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if !state.is_over() {
            return;
        }
        for _ in 0..state.instances.take_claims() {
            state.deactivate(effects); // whatever tokens are left find nothing and are dropped
        }
        // In a cycle some may still wait for room outside of it, or be on their way out: they are
        // waited for.
        let (left, idle) = state.instances.finish();
        state.phase = Phase::Finishing(left);
        for instance in idle {
            self.retire(state, instance, effects);
        }
        if left == 0 {
            state.phase = Phase::Ended;
            drop(guard);
            core.stage_ended(self.id, effects);
        }
    }

    fn cancel(&self, effects: &mut Effects) {
        // Called once at the stop and once more when the workers are gone, for what visits that
        // were running left behind.
        let ordered = self.order.as_ref().map_or(0, |order| order.cancel(effects));
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.phase == Phase::Ended {
            return;
        }
        state.phase = Phase::Cancelled;
        state.in_flight -= ordered;
        state.given_up += state.outboxed;
        let mut cancelled = std::mem::take(&mut state.outboxed) + ordered;
        while let Some(chunk) = state.queue.remove(usize::MAX, Side::Oldest) {
            cancelled += chunk.len();
            chunk.settle(Fate::Cancelled);
            effects.discard_events(&mut chunk.into_events());
        }
        state.counts.cancelled += cancelled as u64;
        if H::WAITS {
            state.cancel_flights(effects);
        }
        for mut instance in state.instances.cancel() {
            state.cancel_held(&mut instance, effects);
            effects.discard(instance);
        }
        let callers = state.permits.send_away();
        let rests = state.in_flight == 0;
        drop(guard);
        if rests {
            self.drop_lanes(effects);
        }
        callers.iter().for_each(|caller| caller.close());
    }

    fn break_cycle(&self, core: &Core, effects: &mut Effects) -> bool {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if !state.permits.has_waiters_inside() {
            return false;
        }
        // Until one of the waiters can go on: places may be promised to a sender outside.
        let waiting = state.permits.waiting_stages().len();
        while state.permits.waiting_stages().len() == waiting
            && state.shed_queued(&self.rules.name, Shed::Cycle, 1, Side::Newest, effects) > 0
        {
            self.cycle_ended(state, 1, effects);
            state.permits.pass_on(state.queue.len(), effects);
        }
        self.refresh(core, state, effects);
        true
    }

    fn snapshot(&self, name: &str, priority: i32) -> StageSnapshot {
        let (failures_kept, failures_forgotten) = {
            let failures = self.failures.lock();
            (failures.len(), failures.forgotten())
        };
        let admission = self.gate.snapshot();
        let top_keys = self.top_keys_snapshot();
        let mut state = self.state.lock();
        let event_time = state.queue.as_lanes().and_then(|lanes| lanes.event_time());
        StageSnapshot {
            counts: state.counts,
            queued: state.queue.len(),
            in_flight: state.in_flight,
            outboxed: state.outboxed,
            capacity: state.permits.capacity(),
            instances: if H::WAITS { state.flights.most() } else { state.instances.count() },
            idle: if H::WAITS { state.flights.room() } else { state.instances.idle() },
            waiting: state.flights.waiting(),
            waited: state.flights.waited(),
            admission,
            event_time,
            top_keys,
            busy: state.pace.busy(),
            latency: state.latency.clone(),
            failures_kept,
            failures_forgotten,
            ended: matches!(state.phase, Phase::Ended | Phase::Cancelled),
            ..StageSnapshot::blank(name, priority)
        }
    }

    fn count_keys(&self) -> bool {
        self.counted_keys().is_some()
    }

    fn key_loads(&self, most: usize) -> Vec<KeyLoad> {
        self.counted_keys().map_or_else(Vec::new, |top| top.lock().loads(most))
    }

    fn with_waiting(&self, tell: &mut dyn FnMut(Vec<u32>)) {
        tell(self.state.lock().permits.waiting_stages());
    }

    fn set_capacity(&self, core: &Core, capacity: usize, effects: &mut Effects) {
        let mut guard = self.state.lock();
        guard.permits.set_capacity(capacity);
        self.changed(core, &mut guard, effects);
    }

    fn capacity_min(&self) -> usize {
        self.group.get().map_or(1, |size| size.events)
    }

    fn set_enabled(&self, core: &Core, enabled: bool, effects: &mut Effects) {
        let mut guard = self.state.lock();
        guard.permits.set_disabled(!enabled);
        self.changed(core, &mut guard, effects);
    }

    fn set_controller(&self, controller: Option<Controller>) {
        self.state.lock().queue.set_guarded(controller.is_some());
        self.room.set_guarded(controller.is_some());
        self.gate.set(controller);
    }

    fn set_when_full(&self, when_full: WhenFull) {
        let mut state = self.state.lock();
        state.permits.set_when_full(when_full);
        self.room.set_when_full(when_full);
    }

    fn keys(&self) -> Option<&dyn AnyKeys> {
        self.rules.keys.as_deref().map(|keys| keys as &dyn AnyKeys)
    }

    fn with_lane(
        &self,
        core: &Core,
        lane: &mut Option<LaneRef>,
        call: &mut dyn FnMut(&LaneRef),
        effects: &mut Effects,
    ) -> bool {
        self.with_closed_lane(core, lane, call, effects)
    }

    fn wait_for_lane(&self, most: Duration) {
        self.lane_watch.wait(most);
    }

    fn threads_changed(&self, threads: usize) {
        self.threads.store(threads, Relaxed);
        if self.rules.keys.is_some()
            && let Some(lanes) = self.state.lock().queue.as_lanes()
        {
            lanes.sort();
        }
    }

    fn reading(&self) -> Reading {
        let state = self.state.lock();
        let (instances, ready) = (&state.instances, state.instances.claims());
        let busy = instances.count().saturating_sub(instances.idle());
        if H::WAITS {
            return Reading {
                queued: state.queue.len(),
                instances: if state.phase == Phase::Open { state.flights.most() } else { 0 },
                free: state.flights.room(),
                ..self.reading_of(&state)
            };
        }
        // An instance that is ready, or has begun, stands for the event it is paired with.
        let waits = state.queue.len().saturating_sub(ready) + state.in_flight.saturating_sub(busy);
        Reading {
            queued: waits,
            instances: if state.phase == Phase::Open { state.instances.wanted() } else { 0 },
            free: instances.idle().saturating_sub(ready),
            ..self.reading_of(&state)
        }
    }

    fn set_instances(
        &self,
        core: &Arc<Core>,
        wanted: usize,
        effects: &mut Effects,
    ) -> Result<(), String> {
        let instances = instances_for::<H>(wanted);
        let (before, missing) = {
            let mut state = self.state.lock();
            if state.phase != Phase::Open {
                return Err("the stage has ended".to_owned());
            }
            // None that is there may leave, as one too many, while others are made.
            let before = state.instances.wanted();
            state.instances.set_wanted(instances.max(before));
            (before, instances.saturating_sub(state.instances.count()))
        };
        let added = self.add_instances(core, missing, effects);
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.instances.set_wanted(if added.is_ok() { instances } else { before });
        if added.is_ok() {
            state.flights.set_most(wanted);
        }
        self.retire_surplus(state, effects);
        self.changed(core, state, effects);
        added
    }

    fn failures(&self) -> Vec<Failure> {
        self.failures.lock().list()
    }

    fn take_failures(&self, core: &Core, item: TypeId, effects: &mut Effects) -> Box<dyn Any> {
        if item != TypeId::of::<H::Item>() {
            return Box::new(()); // who asks for another type takes nothing
        }
        let (failures, lanes) = self.failures.lock().drain();
        self.release_lanes(core, lanes, effects);
        Box::new(failures)
    }

    fn replay(&self, core: &Core, max: usize, effects: &mut Effects) -> usize {
        let room = {
            let mut state = self.state.lock();
            if state.phase != Phase::Open {
                return 0;
            }
            let room = state.permits.unpromised(state.queue.len());
            state.permits.keep(room); // others would fill it before their lanes are found
            room
        };
        let mut replayed = self.failures.lock().take_replayable(max, room);
        for Replayed { columns, lane, event, .. } in &mut replayed {
            // Unless it waits for the event, its lane may have been forgotten.
            let own = lane.is_none().then(|| self.lane_of(core, event)).flatten();
            columns.set_lane(own);
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.permits.release(room);
        let n = replayed.len();
        let now = core.clock.now();
        if state.phase != Phase::Open {
            // It was stopped meanwhile.
            let counts = &mut state.counts;
            for count in [&mut counts.offered, &mut counts.arrived, &mut counts.cancelled] {
                *count += n as u64;
            }
            replayed.into_iter().for_each(|replayed| effects.discard(replayed.event));
            return 0;
        }
        for Replayed { meta, mut columns, lane, event } in replayed {
            // Whoever replays an event wants it handled, late as it is.
            columns.forget_passed(now);
            let mut meta = Meta { enqueued: now, ..meta };
            meta.duty.forget_passed(now);
            if let (Some(lane), Some(lanes)) = (lane, state.queue.as_lanes()) {
                lanes.replay(&lane, &meta, columns, event);
                continue;
            }
            let _ = state.queue.push(&meta, columns, vec![Some(event)], false);
        }
        if let Some(cycle) = &state.cycle {
            cycle.arrived(n);
        }
        let counts = &mut state.counts;
        for count in [&mut counts.offered, &mut counts.arrived, &mut counts.replayed] {
            *count += n as u64;
        }
        self.changed(core, state, effects);
        n
    }

    fn inject(&self, fault: Fault) {
        self.faults.lock().push_back(fault);
    }
}
