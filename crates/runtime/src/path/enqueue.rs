//! Hop 3, enqueue: a stage's queue, its door and its instances, under one lock.
//! Before: `admit`. After: `ready`.
//!
//! An instance is owned: idle ones stand in `idle`, waiting ones in `parked`, and a running one
//! belongs to the visit that took it out. So no instance can run twice at once, and what the
//! lock guards *is* its state word: in `idle` it is IDLE (or READY, if a good token stands for
//! it), in `parked` WAITING, in neither RUNNING; a grant that comes before the instance has
//! parked is kept in `early` (RUNNING and NOTIFIED).
//! Invariant: events queued and an instance idle imply a good token (`claims`), which is one that
//! some ready queue holds.
//! Long because everything that one lock guards, and each change of it, stands here.

use std::any::{Any, TypeId};
use std::time::Duration;

use comporta_model::chunk::{ChunkQueue, Slots};
use comporta_model::event::{AckGroup, Fate, Meta, Time};
use comporta_model::plan::WhenFull;
use comporta_model::stage::{Cx, Handler};

use crate::core::{Core, Node, Reading};
use crate::cycle::Cycle;
use crate::failure::{Failure, Failures};
use crate::latency::Latency;
use crate::path::admit::{Desk, Drawn, Rest, Shed, Verdict, Wakes, Who};
use crate::path::emit::{Drawing, Inlet, Line, Parcel};
use crate::path::gate::Gate;
use crate::path::handle::{Faults, Instance, Rules};
use crate::path::ready::{Task, Token};
use crate::path::release::Resequencer;
use crate::snapshot::{AdmissionSnapshot, StageSnapshot};
use crate::sync::{Arc, CachePadded, Mutex, MutexGuard};

/// Makes the handler of an instance.
pub(crate) type Maker<H> = Box<dyn Fn(&Cx) -> comporta_model::error::Result<H> + Send + Sync>;

/// A stage that runs.
pub(crate) struct StageNode<H: Handler> {
    pub(crate) id: u32,
    pub(crate) rules: Rules<H::Item>,
    pub(crate) maker: Maker<H>,
    pub(crate) state: CachePadded<Mutex<State<H>>>,
    pub(crate) failures: Mutex<Failures<H::Item>>,
    pub(crate) resequencer: Option<Mutex<Resequencer<H::Ports>>>,
    pub(crate) faults: Mutex<Faults>,
}

/// Everything of a stage that changes.
pub(crate) struct State<H: Handler> {
    pub(crate) queue: ChunkQueue<H::Item>,
    pub(crate) desk: Desk,
    pub(crate) idle: Vec<Box<Instance<H>>>,
    pub(crate) parked: Vec<Box<Instance<H>>>,
    /// Grants that came before their instance had parked.
    pub(crate) early: Vec<(u32, usize)>,
    /// Good tokens in the ready queues.
    pub(crate) claims: usize,
    /// Instances there are, and there should be.
    pub(crate) instances: usize,
    pub(crate) wanted: usize,
    /// Instances no longer counted that have yet to finish.
    pub(crate) retiring: usize,
    /// Visits that began while there was more than one instance.
    pub(crate) crowd: u64,
    pub(crate) made: u32,
    /// Events taken from the queue and not settled.
    pub(crate) in_flight: usize,
    /// Events per visit, from the usual service time.
    pub(crate) stride: usize,
    /// Nanoseconds an event usually takes.
    pub(crate) usual_ns: u64,
    /// Time spent in handlers, all instances together.
    pub(crate) busy_ns: u64,
    /// How long what it handled had been in the program, if nothing leads on from it.
    pub(crate) latency: Latency,
    /// Producers, outside of a cycle, that have not ended.
    pub(crate) open: usize,
    pub(crate) phase: Phase,
    /// Of a grouped stage: a timer runs; when the group that gathers is due; it is.
    pub(crate) gathering: bool,
    pub(crate) flush_at: Option<Time>,
    pub(crate) flush_due: bool,
    /// Of an ordered stage: tickets given out, and not yet let out.
    pub(crate) next_ticket: u64,
    pub(crate) tickets_out: usize,
    /// Of an ordered stage: results wait for room.
    pub(crate) releasing: bool,
}

/// How far a stage is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// So many instances have yet to finish.
    Finishing(usize),
    Ended,
    /// Stopped before its end.
    Cancelled,
}

impl<H: Handler> State<H> {
    /// Makes the tokens that the invariant asks for.
    pub(crate) fn claim(&mut self, id: u32, rules: &Rules<H::Item>, wakes: &mut Wakes) {
        if self.phase != Phase::Open {
            return;
        }
        let len = self.queue.len();
        let units = match rules.group {
            None => len.div_ceil(self.stride),
            Some((size, _)) if self.flush_due || self.open == 0 => len.div_ceil(size),
            Some((size, _)) => len / size,
        };
        let allowed = match rules.window(self.instances) {
            None => usize::MAX,
            Some(window) => window.saturating_sub(self.tickets_out),
        };
        let want = units.min(self.idle.len()).min(allowed);
        while self.claims < want {
            self.claims += 1;
            if let Some(cycle) = &self.desk.cycle {
                cycle.activate();
            }
            // Single events are taken in the exact order of their coming, wherever they are.
            let home = match rules.batch {
                1 => 0,
                _ => self.queue.oldest().map_or(0, |meta| meta.home),
            };
            wakes.tokens.push(Token { home, ..Token::new(id, Task::Any) });
        }
    }

    /// A good token is used up, or was found not to be needed.
    pub(crate) fn drop_claims_beyond_idle(&mut self, wakes: &mut Wakes) {
        while self.claims > self.idle.len() {
            self.claims -= 1;
            deactivate(self.desk.cycle.as_ref(), wakes);
        }
    }

    /// Whether the stage has seen its last event, and all it sent has left it.
    pub(crate) fn is_over(&self) -> bool {
        let fed = match &self.desk.cycle {
            Some(cycle) => !cycle.is_over(),
            None => self.open > 0 || self.in_flight + self.queue.len() + self.desk.outboxed > 0,
        };
        self.phase == Phase::Open
            && !fed
            && self.retiring == 0
            && !self.releasing
            && self.idle.len() == self.instances
    }

    /// Takes from the queue what does not fit it, oldest first. Places promised to those who come
    /// by another way, and wait for room there, are kept.
    fn shed_oldest(&mut self) {
        while self.queue.len() + self.desk.reserved > self.desk.capacity
            && let Some((meta, _)) = self.queue.pop_oldest()
        {
            self.shed_late(Shed::Oldest, &meta, 1);
        }
    }

    /// Counts events that came to the door as shed.
    pub(crate) fn shed(&mut self, reason: Shed, meta: &Meta, n: usize) {
        self.desk.counts.shed[reason as usize] += n as u64;
        settle_ack(meta.ack.as_ref(), n, Fate::Shed);
    }

    /// Counts events that had arrived as shed.
    pub(crate) fn shed_late(&mut self, reason: Shed, meta: &Meta, n: usize) {
        self.desk.counts.shed_late += n as u64;
        self.shed(reason, meta, n);
    }
}

pub(crate) fn deactivate(cycle: Option<&Arc<Cycle>>, wakes: &mut Wakes) {
    if let Some(cycle) = cycle
        && cycle.deactivate()
    {
        wakes.stuck = Some(cycle.clone());
    }
}

pub(crate) fn settle_ack(ack: Option<&Arc<AckGroup>>, n: usize, fate: Fate) {
    if let Some(group) = ack {
        group.settle(n as u64, fate);
    }
}

impl<H: Handler> StageNode<H> {
    fn lock_len(&self) -> (MutexGuard<'_, State<H>>, usize) {
        let state = self.state.lock();
        let len = state.queue.len();
        (state, len)
    }

    /// `n` events of a cycle ended: tells it, and whether it ended with them.
    pub(crate) fn cycle_ended(state: &State<H>, n: usize, id: u32, wakes: &mut Wakes) {
        if let Some(cycle) = &state.desk.cycle
            && cycle.ended(n)
        {
            wakes.over.push(id);
        }
    }

    /// Puts a sender in line, lending the stage its priority.
    fn stand_in_line(
        &self,
        core: &Core,
        state: &mut State<H>,
        who: &Who,
        want: usize,
        wakes: &mut Wakes,
    ) {
        state.desk.wait(who.clone(), want);
        if let Who::Instance { stage, .. } | Who::Releaser { stage } = who
            && core.inherit(self.id, *stage)
            && state.claims > 0
        {
            // Its tokens stand too low: one more, at the new place. The copy left behind does no harm.
            wakes.tokens.push(Token::new(self.id, Task::Any));
        }
    }
}

/// Moves up to `max` events out of a parcel with `enter`, chunk by chunk.
fn take_from<T>(
    filled: &mut Vec<Slots<T>>,
    last: &mut Slots<T>,
    mut max: usize,
    mut enter: impl FnMut(Slots<T>) -> Slots<T>,
) {
    let mut whole = 0;
    while let Some(chunk) = filled.get(whole).filter(|chunk| chunk.len() <= max) {
        max -= chunk.len();
        whole += 1;
    }
    for chunk in filled.drain(..whole) {
        let _ = enter(chunk);
    }
    if max == 0 {
        return;
    }
    let chunk = filled.first_mut().unwrap_or(last);
    if max < chunk.len() {
        let rest = chunk.split_off(max);
        let _ = enter(std::mem::replace(chunk, rest));
    } else if !chunk.is_empty() {
        *chunk = enter(std::mem::take(chunk));
    }
}

impl<H: Handler> Inlet<H::Item> for StageNode<H> {
    fn draw(&self, want: usize, by: &Drawing<'_>, rule: Option<WhenFull>) -> Drawn {
        let (mut guard, len) = self.lock_len();
        let state = &mut *guard;
        let inside = state.desk.is_inside(by.who);
        let allowed = self.ask_beforehand(state, want, by);
        if allowed == 0 && matches!(by.who, Who::Caller(_)) {
            let refused = state.desk.gate.as_ref().map(|gate| gate.reason);
            return Drawn { places: 0, room: 0, rule: WhenFull::Reject, needed: true, refused };
        }
        let drawn = state.desk.draw(len, want, inside, rule);
        let room = if allowed < want { drawn.room.min(allowed) } else { drawn.room };
        Drawn { room, ..drawn }
    }

    fn deliver(
        &self,
        core: &Core,
        parcel: Parcel<'_, H::Item>,
        who: &Who,
        wakes: &mut Wakes,
    ) -> Line {
        let Parcel { meta, filled, last, short, left, drawn, counted, outbox, rule, in_line } =
            parcel;
        let n = filled.iter().map(Vec::len).sum::<usize>() + last.len();
        let (mut guard, len) = self.lock_len();
        let state = &mut *guard;
        let inside = state.desk.is_inside(who);
        if let Some(group) = &meta.ack {
            group.join(n as u64);
        }
        let came = n;
        let asked =
            if state.phase == Phase::Open { self.ask(core, state, n, meta, who) } else { None };
        let n = asked.map_or(n, |(_, admitted)| admitted);
        let verdict = match state.phase {
            Phase::Open if outbox.is_empty() => {
                state.desk.admit(len, n, (drawn, counted), inside, rule)
            }
            Phase::Open => {
                // Behind an outbox: these wait too.
                state.desk.reserved -= drawn;
                state.desk.counts.offered += n as u64;
                Verdict { enter: 0, rest: Rest::Waits }
            }
            phase => {
                *left = 0;
                state.desk.reserved -= drawn;
                state.desk.counts.offered += n as u64;
                filled.clear();
                last.clear();
                if phase == Phase::Cancelled {
                    state.desk.counts.arrived += n as u64;
                    state.desk.counts.cancelled += n as u64;
                    settle_ack(meta.ack.as_ref(), n, Fate::Cancelled);
                } else {
                    state.shed(Shed::Ended, meta, n);
                }
                return Line::No;
            }
        };
        take_from(filled, last, verdict.enter, |slots| state.queue.push(meta, slots, short));
        let rest = n - verdict.enter;
        let (mut arrived, mut gone) = (n, 0);
        let mut line = Line::No;
        match verdict.rest {
            Rest::None => {}
            Rest::Oldest => {
                let before = state.queue.len();
                state.shed_oldest();
                gone = before - state.queue.len();
            }
            Rest::Shed(reason) => {
                arrived = verdict.enter;
                filled.clear();
                last.clear();
                state.shed(reason, meta, rest);
            }
            Rest::Waits if rest > 0 => {
                take_from(filled, last, rest, |slots| outbox.push(meta, slots, short));
                state.desk.outboxed += rest;
                if !in_line {
                    self.stand_in_line(core, state, who, outbox.len(), wakes);
                    line = if inside { Line::Inside } else { Line::Outside };
                }
            }
            Rest::Waits => {}
        }
        if let Some((ask, _)) = asked {
            filled.clear();
            last.clear();
            self.answer(state, &ask, arrived, (came - n, meta));
        }
        state.desk.counts.arrived += arrived as u64;
        if let Some(cycle) = &state.desk.cycle {
            cycle.arrived(arrived);
        }
        Self::cycle_ended(state, gone, self.id, wakes);
        self.after_arrival(core, state, wakes);
        // What is in flight may come back to the queue.
        *left = match state.desk.gate {
            Some(_) => 0, // it wants to be asked
            None => state.desk.room_left(state.queue.len() + state.in_flight, inside, rule),
        };
        line
    }

    fn offer(
        &self,
        core: &Core,
        outbox: &mut ChunkQueue<H::Item>,
        room: usize,
        who: &Who,
        wakes: &mut Wakes,
    ) -> Line {
        let (mut guard, len) = self.lock_len();
        let state = &mut *guard;
        if state.phase != Phase::Open {
            // A stop has counted what waited for this queue as cancelled.
            while outbox.pop(usize::MAX).is_some() {}
            return Line::No;
        }
        let inside = state.desk.is_inside(who);
        let mut enter = state.desk.readmit(len, outbox.len(), room, inside);
        while let Some(chunk) = outbox.pop(enter).filter(|_| enter > 0) {
            enter -= chunk.len();
            let meta = chunk.meta.clone();
            let storage = state.queue.push(&meta, chunk.into_events(), true);
            outbox.recycle(storage);
        }
        let mut line = Line::No;
        if !outbox.is_empty() {
            self.stand_in_line(core, state, who, outbox.len(), wakes);
            line = if inside { Line::Inside } else { Line::Outside };
        }
        self.after_arrival(core, state, wakes);
        line
    }

    fn release(&self, room: usize, wakes: &mut Wakes) {
        let (mut state, len) = self.lock_len();
        state.desk.release(room);
        state.desk.pass_room(len, wakes);
    }

    fn refuse(&self) {
        let mut state = self.state.lock();
        state.desk.counts.offered += 1;
        state.desk.counts.refused += 1;
    }

    fn abandon(&self, outbox: &mut ChunkQueue<H::Item>, room: usize, wakes: &mut Wakes) {
        let (mut guard, len) = self.lock_len();
        let state = &mut *guard;
        state.desk.release(room);
        while let Some(chunk) = outbox.pop(usize::MAX) {
            let n = chunk.len();
            if state.phase != Phase::Cancelled {
                state.desk.outboxed -= n;
                state.desk.counts.cancelled += n as u64;
            }
            Self::cycle_ended(state, n, self.id, wakes);
            settle_ack(chunk.meta.ack.as_ref(), n, Fate::Cancelled);
        }
        state.desk.pass_room(len, wakes);
        if state.is_over() {
            wakes.over.push(self.id);
        }
    }
}

impl<H: Handler> StageNode<H> {
    /// Events may have come, places may have been given back.
    fn after_arrival(&self, core: &Core, state: &mut State<H>, wakes: &mut Wakes) {
        if state.desk.has_waiters() {
            state.desk.pass_room(state.queue.len(), wakes);
            if let Some(cycle) = state.desk.cycle.as_ref().filter(|cycle| cycle.is_stuck()) {
                wakes.stuck = Some(cycle.clone()); // what came from outside took the room
            }
        }
        self.gather_on(core, state);
        state.claim(self.id, &self.rules, wakes);
    }

    /// Sees to it that the group that gathers is handed over in time.
    pub(crate) fn gather_on(&self, core: &Core, state: &mut State<H>) {
        let Some((_, wait)) = self.rules.group.filter(|_| !state.queue.is_empty()) else {
            state.flush_at = None;
            return;
        };
        let due = *state.flush_at.get_or_insert_with(|| core.clock.now() + wait);
        if !state.gathering && !state.flush_due {
            state.gathering = true;
            core.timers.add(due, Token::new(self.id, Task::Flush));
        }
    }

    /// The timer has fired: for the group that gathers, or for one that is gone.
    pub(crate) fn flush_group(&self, core: &Core, wakes: &mut Wakes) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let now = core.clock.now();
        state.gathering = false;
        state.flush_due = !state.queue.is_empty() && state.flush_at.is_some_and(|due| due <= now);
        self.after_arrival(core, state, wakes);
    }

    /// Adds instances: made, initialised, idle. All of them, or none.
    fn add_instances(&self, core: &Arc<Core>, n: usize, wakes: &mut Wakes) -> Result<(), String> {
        let mut made = Vec::new();
        for _ in 0..n {
            let index = {
                let mut state = self.state.lock();
                state.made += 1;
                state.made - 1
            };
            made.push(Box::new(Instance::make(core, self, index)?));
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.phase != Phase::Open {
            return Err("the stage has ended".to_owned());
        }
        state.instances += made.len();
        state.wanted = state.wanted.max(state.instances);
        state.idle.append(&mut made);
        let only = state.idle.first().filter(|_| state.instances == 1);
        core.set_gathers(self.id, only.map_or(0, |instance| instance.gathers));
        state.claim(self.id, &self.rules, wakes);
        Ok(())
    }

    fn retire_surplus(&self, state: &mut State<H>, wakes: &mut Wakes) {
        while state.instances > state.wanted && state.phase == Phase::Open {
            let Some(at) = state.idle.iter().rposition(|instance| !instance.finishing) else {
                return;
            };
            let mut instance = state.idle.remove(at);
            instance.finishing = true;
            state.instances -= 1;
            state.retiring += 1;
            self.dismiss(state, instance, wakes);
            state.drop_claims_beyond_idle(wakes);
        }
    }

    /// An instance with nothing to do is to finish.
    fn dismiss(&self, state: &mut State<H>, instance: Box<Instance<H>>, wakes: &mut Wakes) {
        let task = Task::Finish { instance: instance.index };
        wakes.tokens.push(Token::new(self.id, task));
        state.parked.push(instance);
        if let Some(cycle) = &state.desk.cycle {
            cycle.activate();
        }
    }

    /// An instance has nothing to do: it is free for the next event, or goes.
    pub(crate) fn free(&self, state: &mut State<H>, instance: Box<Instance<H>>, wakes: &mut Wakes) {
        if matches!(state.phase, Phase::Finishing(_)) {
            return self.dismiss(state, instance, wakes);
        }
        state.idle.push(instance);
        if state.instances > state.wanted {
            self.retire_surplus(state, wakes);
        }
        state.claim(self.id, &self.rules, wakes);
    }
}

impl<H: Handler> Node for StageNode<H> {
    fn visit(&self, core: &Arc<Core>, task: Task, now: Time, wakes: &mut Wakes) {
        match task {
            Task::Any => self.visit_events(core, now, wakes),
            Task::Resume { instance, room } => self.resume(core, instance, room as usize, wakes),
            Task::Retry { instance } => self.retry(core, instance, now, wakes),
            Task::Finish { instance } => self.finish(core, instance, wakes),
            Task::Flush => self.flush_group(core, wakes),
        }
    }

    fn start(&self, core: &Arc<Core>, wakes: &mut Wakes) -> Result<(), String> {
        let wanted = self.state.lock().wanted;
        self.add_instances(core, wanted, wakes)?;
        self.gather_on(core, &mut self.state.lock()); // an autostart event may be alone
        Ok(())
    }

    fn inlet(self: Arc<Self>) -> Box<dyn Any> {
        let inlet: Arc<dyn Inlet<H::Item>> = self;
        Box::new(inlet)
    }

    fn close_edge(&self, wakes: &mut Wakes) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.open -= 1;
        state.claim(self.id, &self.rules, wakes); // the last group need not wait any longer
        if state.is_over() {
            wakes.over.push(self.id);
        }
    }

    fn may_finish(&self) -> bool {
        let state = self.state.lock();
        state.phase != Phase::Open || state.is_over()
    }

    fn begin_finish(&self, core: &Core, wakes: &mut Wakes) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if !state.is_over() {
            return;
        }
        for _ in 0..std::mem::take(&mut state.claims) {
            // Whatever tokens are left find nothing and are dropped.
            deactivate(state.desk.cycle.as_ref(), wakes);
        }
        // In a cycle some may still wait for room outside of it, or be on their way out: they are
        // waited for.
        let left = state.instances + std::mem::take(&mut state.retiring);
        state.phase = Phase::Finishing(left);
        for instance in std::mem::take(&mut state.idle) {
            self.dismiss(state, instance, wakes);
        }
        if left == 0 {
            state.phase = Phase::Ended;
            drop(guard);
            core.stage_ended(self.id, wakes);
        }
    }

    fn cancel(&self) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.phase == Phase::Ended {
            return;
        }
        // Called once at the stop and once more when the workers are gone, for what visits that
        // were running left behind.
        state.phase = Phase::Cancelled;
        state.claims = 0;
        let mut cancelled = std::mem::take(&mut state.desk.outboxed);
        while let Some(chunk) = state.queue.pop(usize::MAX) {
            cancelled += chunk.len();
            settle_ack(chunk.meta.ack.as_ref(), chunk.len(), Fate::Cancelled);
        }
        let parked = std::mem::take(&mut state.parked);
        let held: usize = parked.iter().map(|instance| instance.held()).sum();
        state.in_flight -= held;
        cancelled += held;
        if let Some(resequencer) = &self.resequencer {
            let held = resequencer.lock().clear();
            state.in_flight -= held;
            cancelled += held;
        }
        state.desk.counts.cancelled += cancelled as u64;
        for who in state.desk.dismiss() {
            if let Who::Caller(caller) = who {
                caller.close();
            }
        }
        let idle = std::mem::take(&mut state.idle);
        drop(guard);
        drop((parked, idle)); // state of handlers: dropped outside the lock
    }

    fn break_cycle(&self, wakes: &mut Wakes) -> bool {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if !state.desk.has_inside_waiters() {
            return false;
        }
        // Until one of the waiters can go on: places may be promised to a sender outside.
        let granted = wakes.tokens.len();
        while wakes.tokens.len() == granted
            && let Some((meta, _)) = state.queue.pop_newest()
        {
            state.shed_late(Shed::Cycle, &meta, 1);
            Self::cycle_ended(state, 1, self.id, wakes);
            state.desk.pass_room(state.queue.len(), wakes);
        }
        true
    }

    fn snapshot(&self, name: &str, priority: i32) -> StageSnapshot {
        let (failures_kept, failures_forgotten) = {
            let failures = self.failures.lock();
            (failures.len(), failures.forgotten())
        };
        let state = self.state.lock();
        StageSnapshot {
            name: name.to_owned(),
            counts: state.desk.counts,
            queued: state.queue.len(),
            in_flight: state.in_flight,
            outboxed: state.desk.outboxed,
            capacity: state.desk.capacity,
            instances: state.instances,
            idle: state.idle.len(),
            priority,
            admission: state
                .desk
                .gate
                .as_ref()
                .map(|gate| AdmissionSnapshot { choice: gate.choice.clone(), allows: gate.tell() }),
            busy: Duration::from_nanos(state.busy_ns),
            latency: state.latency.clone(),
            failures_kept,
            failures_forgotten,
            ended: matches!(state.phase, Phase::Ended | Phase::Cancelled),
        }
    }

    fn set_capacity(&self, capacity: usize, wakes: &mut Wakes) {
        let (mut state, len) = self.lock_len();
        state.desk.capacity = capacity;
        state.desk.pass_room(len, wakes);
    }

    fn set_enabled(&self, enabled: bool) {
        self.state.lock().desk.disabled = !enabled;
    }

    fn set_admission(&self, gate: Option<Box<Gate>>) {
        let mut state = self.state.lock();
        state.queue.set_guarded(gate.is_some());
        let before = std::mem::replace(&mut state.desk.gate, gate);
        drop(state);
        drop(before); // outside the lock: it may be the program's
    }

    fn set_when_full(&self, when_full: WhenFull) {
        self.state.lock().desk.when_full = when_full;
    }

    fn reading(&self) -> Reading {
        let state = self.state.lock();
        let counts = &state.desk.counts;
        Reading {
            queued: state.queue.len(),
            arrived: counts.arrived,
            processed: counts.handled + counts.failed,
            instances: if state.phase == Phase::Open { state.wanted } else { 0 },
            free: state.idle.len(),
            capacity: state.desk.capacity,
            enabled: !state.desk.disabled,
        }
    }

    fn set_instances(
        &self,
        core: &Arc<Core>,
        wanted: usize,
        wakes: &mut Wakes,
    ) -> Result<(), String> {
        let missing = {
            let state = self.state.lock();
            if state.phase != Phase::Open {
                return Err("the stage has ended".to_owned());
            }
            wanted.saturating_sub(state.instances)
        };
        self.add_instances(core, missing, wakes)?;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.wanted = wanted;
        self.retire_surplus(state, wakes);
        Ok(())
    }

    fn failures(&self) -> Vec<Failure> {
        self.failures.lock().list()
    }

    fn take_failures(&self, item: TypeId) -> Box<dyn Any> {
        if item != TypeId::of::<H::Item>() {
            return Box::new(()); // who asks for another type takes nothing
        }
        Box::new(self.failures.lock().drain())
    }

    fn replay(&self, core: &Core, max: usize, wakes: &mut Wakes) -> usize {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.phase != Phase::Open {
            return 0;
        }
        let room = state.desk.capacity.saturating_sub(state.queue.len() + state.desk.reserved);
        let replayed = self.failures.lock().take_replayable(max.min(room));
        let n = replayed.len();
        for (meta, event) in replayed {
            state.queue.push_one(&meta, event);
        }
        if let Some(cycle) = &state.desk.cycle {
            cycle.arrived(n);
        }
        let counts = &mut state.desk.counts;
        for count in [&mut counts.offered, &mut counts.arrived, &mut counts.replayed] {
            *count += n as u64;
        }
        self.after_arrival(core, state, wakes);
        n
    }

    fn inject(&self, fault: crate::path::handle::Fault) {
        self.faults.lock().push(fault);
    }
}
