//! The workers of a test: which of them acts next, and how virtual time passes.
//!
//! Exactly one thread acts at any moment: it holds the baton (`State::holder`). As long as no stage has a service
//! time, that is the thread of the test, and each visit begins and ends at one instant. With a service time, visits are made
//! on threads of their own, the *carriers*: a handler that takes time notes until when, passes the baton to a carrier
//! that is free, and waits for its return. So a visit keeps its thread, its lane and its instance while time passes,
//! and the code in between is the code that runs in production.
//!
//! At one instant the order is: visits that end, in the order in which they do; timers, policies among them; visits that
//! begin, by the seed. Then the clock moves to the next instant at which something happens. While visits last, this module also
//! does what the clock thread does (`threads.rs`): it looks after trays every 2 ms, and has others stand in.
//!
//! Invariants: only the holder of the baton runs user code, and it does so with `state` unlocked; while a worker steps on
//! a carrier, another carrier is free, so that a handler never has to start one; there are at most as many carriers
//! as workers, one that acts, and that one.

use std::any::Any;
use std::collections::HashMap;
use std::panic;
use std::time::Duration;

use comporta_model::event::Time;

use super::service_time::{Dice, ServiceTime};
use crate::core::Core;
use crate::env;
use crate::path::work::{Stepped, Worker, as_worker};
use crate::sync::{Arc, Condvar, JoinHandle, Mutex, MutexGuard, SeqCst, spawn, wait};
use crate::timer::HURRY;
use crate::workers::WorkerHandle;

/// How many timers of policies in a row may bring nothing on before a program counts as at rest.
pub(super) const TIMERS_IN_VAIN: usize = 1_000;

/// How many steps a program may make at one instant.
const STEPS_MAX: usize = 10_000_000;

/// What the test has its workers do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Goal {
    /// One step.
    Step,
    /// All that can be done at this instant.
    #[default]
    Idle,
    /// All that happens until then.
    Until(Time),
    /// All that happens, until the program ends or rests.
    End,
}

/// Who acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Holder {
    #[default]
    Test,
    Carrier(usize),
}

#[derive(Default)]
pub(crate) struct VirtualWorkers {
    state: Mutex<State>,
    /// The thread of the test waits here for the baton.
    test: Condvar,
}

#[derive(Default)]
struct State {
    holder: Holder,
    goal: Goal,
    workers: Vec<Slot>,
    /// Of each group, when its members were last looked at.
    epochs: Vec<u64>,
    dice: Dice,
    seed: u64,
    /// Steps made for the goal, and since the clock last moved.
    steps: usize,
    steps_now: usize,
    /// When the clock last moved, something was sure to come; how often nothing did since something came.
    awaited: bool,
    in_vain: usize,
    /// When the duties of the clock thread were last done.
    looked: Time,
    watched: Time,
    timed: HashMap<u32, Option<Timed>>,
    carriers: Vec<Carrier>,
    /// Carriers that make no visit.
    free: Vec<usize>,
    occupied: Vec<Occupied>,
    /// CPU time of the visits that have ended, in nanoseconds.
    cpu_ns: u64,
    /// The program is dropped: no more time passes, and carriers that are free end.
    closing: bool,
    /// What a carrier panicked with, for the test.
    panic: Option<Box<dyn Any + Send>>,
}

/// A worker, and its place while it is in a visit.
struct Slot {
    handle: Arc<WorkerHandle>,
    worker: Option<Worker>,
}

struct Timed {
    time: ServiceTime,
    dice: Dice,
}

struct Carrier {
    turn: Arc<Condvar>,
    thread: JoinHandle<()>,
}

/// A visit whose handler takes its time.
struct Occupied {
    carrier: usize,
    since: Time,
    until: Time,
    busy: bool,
}

impl VirtualWorkers {
    // --- by the test

    pub(super) fn seed(&self, seed: u64) {
        let mut state = self.state.lock();
        state.seed = seed;
        state.dice = Dice::new(seed);
        for (stage, timed) in &mut state.timed {
            if let Some(timed) = timed {
                timed.dice = dice_of(seed, *stage);
            }
        }
    }

    pub(super) fn set_time(&self, stage: u32, time: ServiceTime) {
        let mut state = self.state.lock();
        let dice = dice_of(state.seed, stage);
        let before = state.timed.insert(stage, Some(Timed { time, dice }));
        drop(state);
        drop(before); // a closure of the test
    }

    /// Has the workers act until `goal` is reached. Returns how many steps they made.
    pub(super) fn act(self: &Arc<Self>, core: &Arc<Core>, goal: Goal) -> usize {
        let awaited = core.timers.awaits_token();
        let mut state = self.state.lock();
        state.goal = goal;
        (state.steps, state.steps_now, state.in_vain) = (0, 0, 0);
        state.awaited = awaited || !state.occupied.is_empty();
        if state.timed.is_empty() {
            drop(state);
            self.drive(core);
            return self.state.lock().steps;
        }
        if state.free.is_empty() {
            drop(state);
            self.add_carrier(core);
            state = self.state.lock();
        }
        let carrier = state.free.pop().expect("one was free, or was added");
        let mut state = self.wait_for_test(self.pass(state, Holder::Carrier(carrier)));
        let (steps, panic) = (state.steps, state.panic.take());
        drop(state);
        if let Some(panic) = panic {
            panic::resume_unwind(panic);
        }
        steps
    }

    /// Has handlers that are in their service time return at once, and ends all carriers.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        while !state.occupied.is_empty() {
            let carrier = state.occupied.remove(0).carrier;
            state = self.wait_for_test(self.pass(state, Holder::Carrier(carrier)));
        }
        let carriers = std::mem::take(&mut state.carriers);
        drop(state);
        carriers.iter().for_each(|carrier| carrier.turn.notify_one());
        for carrier in carriers {
            let _ = carrier.thread.join(); // its panic, if any, has been passed on
        }
    }

    /// CPU time that handlers have used, in nanoseconds.
    pub(crate) fn cpu_ns(&self, now: Time) -> u64 {
        let state = self.state.lock();
        let busy = state.occupied.iter().filter(|occupied| occupied.busy);
        let under_way = busy.map(|occupied| nanos(now.duration_since(occupied.since)));
        state.cpu_ns + under_way.sum::<u64>()
    }

    /// Moves the clock to the next instant at which something happens, if anything does, and fires the timers of that
    /// instant: they may be all that happens. Returns whether something is sure to come of it; nothing if nothing
    /// happens any more.
    pub(super) fn skip_idle(&self, core: &Arc<Core>) -> Option<bool> {
        let (next, occupied) = {
            let state = self.state.lock();
            (state.next_instant(core)?, !state.occupied.is_empty())
        };
        core.clock.advance(next.duration_since(core.clock.now()));
        self.fire_timers(core);
        Some(occupied)
    }

    // --- by a visit

    /// Whether the handler of a stage takes time.
    pub(crate) fn is_timed(&self, stage: u32) -> bool {
        self.state.lock().timed.contains_key(&stage)
    }

    /// The handler of a stage takes its time for so many events: others act meanwhile.
    pub(crate) fn serve(&self, core: &Core, stage: u32, events: usize) {
        let Some((time, busy)) = self.draw(stage, events) else { return };
        let mut state = self.state.lock();
        let Holder::Carrier(me) = state.holder else { return };
        if time.is_zero() || state.closing {
            return;
        }
        let since = core.clock.now();
        state.occupied.push(Occupied { carrier: me, since, until: since + time, busy });
        state.note_step();
        let next = match state.goal {
            Goal::Step => Holder::Test,
            _ => Holder::Carrier(
                state.free.pop().expect("a carrier is free while another makes a visit"),
            ),
        };
        let turn = state.carriers[me].turn.clone();
        let mut state = self.pass(state, next);
        while state.holder != Holder::Carrier(me) {
            state = wait(&turn, state, None);
        }
        let spent = core.clock.now().duration_since(since); // less if the program was dropped
        if busy {
            state.cpu_ns += nanos(spent);
            env::add_virtual_cpu_time(spent);
        }
    }

    /// How long a handler takes for so many events, and whether it computes.
    fn draw(&self, stage: u32, events: usize) -> Option<(Duration, bool)> {
        /// The closure is the test's: it is taken out while it is called, and put back also when it panics.
        struct PutBack<'a>(&'a VirtualWorkers, u32, Option<Timed>);
        impl Drop for PutBack<'_> {
            fn drop(&mut self) {
                self.0.state.lock().timed.insert(self.1, self.2.take());
            }
        }
        let taken = self.state.lock().timed.get_mut(&stage)?.take();
        let mut guard = PutBack(self, stage, taken);
        let Timed { time, dice } = guard.2.as_mut()?;
        Some((time.draw(dice, events), time.is_busy()))
    }

    // --- the baton

    /// Has `next` act in place of this thread.
    fn pass<'a>(&self, mut state: MutexGuard<'a, State>, next: Holder) -> MutexGuard<'a, State> {
        state.holder = next;
        match next {
            Holder::Test => self.test.notify_one(),
            Holder::Carrier(carrier) => state.carriers[carrier].turn.notify_one(),
        }
        state
    }

    fn wait_for_test<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.holder != Holder::Test {
            state = wait(&self.test, state, None);
        }
        state
    }

    /// The goal is reached, or this thread has nothing to do any more.
    fn pass_and_rest(&self, mut state: MutexGuard<'_, State>, next: Holder) {
        if let Holder::Carrier(me) = state.holder {
            state.free.push(me);
        }
        self.pass(state, next);
    }

    /// # Panics
    /// The system has no more threads.
    fn add_carrier(self: &Arc<Self>, core: &Arc<Core>) {
        let mut state = self.state.lock();
        let me = state.carriers.len();
        let turn = Arc::new(Condvar::new());
        let name = format!("{}-virtual-{me}", core.graph.name);
        let (workers, core, own_turn) = (self.clone(), core.clone(), turn.clone());
        let thread = spawn(name, move || workers.carry(&core, me, &own_turn));
        let thread = thread.unwrap_or_else(|error| {
            panic!("the system has no thread for a handler that takes virtual time: {error}")
        });
        state.carriers.push(Carrier { turn, thread });
        state.free.push(me);
    }

    /// The life of a carrier.
    fn carry(self: &Arc<Self>, core: &Arc<Core>, me: usize, turn: &Condvar) {
        loop {
            let mut state = self.state.lock();
            while state.holder != Holder::Carrier(me) {
                if state.closing && state.carriers.is_empty() {
                    return;
                }
                state = wait(turn, state, None);
            }
            drop(state);
            let driven = panic::catch_unwind(panic::AssertUnwindSafe(|| self.drive(core)));
            if let Err(panic) = driven {
                let mut state = self.state.lock();
                state.panic = Some(panic);
                self.pass_and_rest(state, Holder::Test);
            }
        }
    }

    // --- what happens next

    /// Acts until the goal is reached, or another thread is to act.
    fn drive(self: &Arc<Self>, core: &Arc<Core>) {
        loop {
            let mut state = self.state.lock();
            assert!(state.steps_now < STEPS_MAX, "the program does not come to rest");
            let reached = state.goal == Goal::Step && state.steps > 0;
            if reached || state.closing || core.is_stopped() {
                return self.pass_and_rest(state, Holder::Test);
            }
            if let Some(carrier) = state.take_ended(core.clock.now()) {
                return self.pass_and_rest(state, Holder::Carrier(carrier));
            }
            let needs_carrier = matches!(state.holder, Holder::Carrier(_)) && state.free.is_empty();
            drop(state);
            if needs_carrier {
                self.add_carrier(core);
            }
            self.fire_timers(core);
            self.follow_groups(core);
            if !self.step(core) && !self.do_duties(core) && !self.let_time_pass(core) {
                return self.pass_and_rest(self.state.lock(), Holder::Test);
            }
        }
    }

    fn fire_timers(&self, core: &Arc<Core>) {
        let mut due = Vec::new();
        core.timers.due(core.clock.now(), &mut due);
        due.into_iter().for_each(|alarm| core.sound(alarm));
    }

    /// Workers come and go with their groups; one that is in a visit goes after it.
    fn follow_groups(&self, core: &Arc<Core>) {
        let mut state = self.state.lock();
        let leaves = |slot: &mut Slot| slot.worker.is_some() && slot.handle.leaving.load(SeqCst);
        let leaving: Vec<_> = state.workers.extract_if(.., leaves).collect();
        drop(state);
        for Slot { handle, worker } in leaving {
            core.worker_groups[handle.group].sleep.down();
            worker.into_iter().for_each(|worker| worker.leave(core));
        }
        let mut state = self.state.lock();
        state.epochs.resize(core.worker_groups.len(), 0);
        for (group, workers) in core.worker_groups.iter().enumerate() {
            let epoch = workers.epoch();
            if std::mem::replace(&mut state.epochs[group], epoch) == epoch {
                continue;
            }
            for handle in workers.members().iter() {
                if !state.workers.iter().any(|slot| Arc::ptr_eq(&slot.handle, handle)) {
                    workers.sleep.up();
                    let worker = Some(Worker::new(workers, handle.clone()));
                    state.workers.push(Slot { handle: handle.clone(), worker });
                }
            }
        }
    }

    /// Has the first of the workers that finds something to do make a visit, or begin one. Returns whether one did.
    fn step(&self, core: &Arc<Core>) -> bool {
        let mut state = self.state.lock();
        let n = state.workers.len();
        let first = state.dice.below(n);
        for i in 0..n {
            let Some(mut worker) = state.workers[(first + i) % n].worker.take() else { continue };
            drop(state);
            let stepped = as_worker(|| worker.step(core));
            state = self.state.lock();
            let own = |slot: &&mut Slot| Arc::ptr_eq(&slot.handle, worker.handle());
            let slot = state.workers.iter_mut().find(own);
            slot.expect("a worker in a visit keeps its place").worker = Some(worker);
            if stepped == Stepped::Ran {
                state.note_step();
                return true;
            }
        }
        false
    }

    /// Does what the clock thread does while visits last. Returns whether there was anything to do now.
    fn do_duties(&self, core: &Arc<Core>) -> bool {
        let now = core.clock.now();
        let mut state = self.state.lock();
        if state.occupied.is_empty() {
            return false;
        }
        let looks = now >= state.looked + HURRY && core.timers.was_hurried();
        let watches = now >= state.watched + core.watch_beat();
        if looks {
            state.looked = now;
        }
        if watches {
            state.watched = now;
        }
        drop(state);
        if looks {
            core.look(now);
        }
        if watches {
            core.watch(now);
        }
        looks || watches
    }

    /// Moves the clock to the next instant at which something happens. Returns whether there is one before the goal.
    fn let_time_pass(&self, core: &Core) -> bool {
        let mut state = self.state.lock();
        let now = core.clock.now();
        let next = state.next_instant(core);
        let (to, more) = match (state.goal, next) {
            (Goal::Step | Goal::Idle, _) | (Goal::End, None) => (now, false),
            (Goal::Until(end), Some(next)) if next <= end => (next, true),
            (Goal::Until(end), _) => (end, false),
            (Goal::End, Some(next)) => {
                let in_vain = state.steps_now == 0 && !state.awaited;
                state.in_vain = if in_vain { state.in_vain + 1 } else { 0 };
                let more = state.in_vain < TIMERS_IN_VAIN && !is_ended(core);
                (if more { next } else { now }, more)
            }
        };
        state.awaited = core.timers.awaits_token() || !state.occupied.is_empty();
        state.steps_now = 0;
        core.clock.advance(to.duration_since(now));
        more
    }
}

impl State {
    fn note_step(&mut self) {
        self.steps += 1;
        self.steps_now += 1;
    }

    /// The carrier of the next visit that ends by now, if there is one.
    fn take_ended(&mut self, now: Time) -> Option<usize> {
        let ended = |(_, visit): &(usize, &Occupied)| visit.until <= now;
        let visits = self.occupied.iter().enumerate().filter(ended);
        let (first, _) = visits.min_by_key(|(at, visit)| (visit.until, *at))?;
        Some(self.occupied.remove(first).carrier)
    }

    /// When something happens next, if anything does.
    fn next_instant(&self, core: &Core) -> Option<Time> {
        let ends = self.occupied.iter().map(|visit| visit.until).min();
        let duties = ends.map(|_| {
            let watch = self.watched + core.watch_beat();
            if core.timers.is_hurried() { watch.min(self.looked + HURRY) } else { watch }
        });
        core.timers.next().into_iter().chain(ends).chain(duties).min()
    }
}

/// Whether every stage has ended, or a handler called `quit`.
pub(super) fn is_ended(core: &Core) -> bool {
    let run = core.run_state();
    run.live == 0 || run.quit
}

/// Numbers of its own for each stage, so that the times of one do not depend on another.
fn dice_of(seed: u64, stage: u32) -> Dice {
    Dice::new(Dice::new(seed ^ u64::from(stage) << 32).roll())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
