//! How far a run is, and its end: how the end of one stage reaches the next, a drain, a stop.

use std::any::Any;
use std::task::Waker;
use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::stage::Host;

use crate::core::Core;
use crate::effects::Effects;
use crate::log;
use crate::sync::{Arc, MutexGuard, SeqCst, wait};
use crate::timer::Alarm;
use crate::user;

/// Called once, when the run has come to its end.
pub(crate) type OnEnd = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct RunState {
    /// Nodes that have not ended.
    pub(crate) live: usize,
    /// Threads that have not ended.
    pub(crate) threads: usize,
    /// So many of them are in sources that were left; below zero for the moment until one that returned at
    /// once is counted.
    pub(crate) left: isize,
    pub(crate) quit: bool,
    /// Sources have heard of the end.
    pub(crate) parted: bool,
    /// Sources and inputs were closed: the end that follows is a drain's.
    pub(crate) closed: bool,
    /// A source ended because it failed.
    pub(crate) source_failed: bool,
    /// The program was stopped.
    pub(crate) stopped: bool,
    /// What is to be called at the end.
    on_end: Vec<OnEnd>,
    pub(crate) result: Option<Box<dyn Any + Send>>,
    pub(crate) problems: Vec<String>,
    /// Problems past the bound.
    pub(crate) problems_more: usize,
}

impl RunState {
    /// Of a run with so many nodes.
    pub(crate) fn new(live: usize) -> Self {
        RunState { live, ..RunState::default() }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.live == 0 || self.quit || self.stopped
    }

    fn take_on_end(&mut self) -> Vec<OnEnd> {
        std::mem::take(&mut self.on_end)
    }
}

/// How long a drain waits for a source that does not return, at most.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// How many problems are remembered; the rest is counted.
const PROBLEMS_MAX: usize = 100;

impl Core {
    /// A stage has ended: so have its edges.
    pub(crate) fn stage_ended(&self, stage: u32, effects: &mut Effects) {
        self.close_edges(stage, effects);
        self.stage_gone(effects);
    }

    pub(crate) fn close_edges(&self, stage: u32, effects: &mut Effects) {
        for to in self.wiring.leads_to(stage) {
            match self.wiring.cycle(to.0) {
                Some(cycle) if cycle.stages.binary_search(&stage).is_ok() => {}
                Some(cycle) => {
                    if cycle.close_edge() {
                        effects.over.push(to.0);
                    }
                }
                None => self.node(to.0).close_edge(self, stage, effects),
            }
        }
    }

    pub(crate) fn stage_gone(&self, effects: &mut Effects) {
        let mut run = self.run.lock();
        run.live -= 1;
        if run.live == 0 {
            self.changed.notify_all();
            effects.call_later(run.take_on_end());
        }
    }

    /// Has `call` called at the end of the run; at once if that has come.
    pub(crate) fn on_end(&self, call: OnEnd) {
        let mut run = self.run.lock();
        if run.is_ended() {
            drop(run);
            let _ = user::call(call);
        } else {
            run.on_end.push(call);
        }
    }

    /// Nothing more comes in from outside.
    pub(crate) fn close(&self) {
        self.run.lock().closed = true;
        let mut effects = Effects::default();
        for node in self.nodes() {
            node.close(self, &mut effects);
        }
        self.dispatch(effects);
        // A short drain has time to end without them, too.
        let patience = PATIENCE.min(self.settings.drain / 2);
        self.timers.add(self.clock.now() + patience, Alarm::Leave);
    }

    /// Sources that were asked to end, and wait for events that may never come, are left: what they
    /// have sent is handled, and the stages finish. A worker stands in for the one they hold.
    pub(crate) fn leave_sources(self: &Arc<Self>) {
        let mut effects = Effects::default();
        for node in self.nodes() {
            let left = node.leave(self, &mut effects);
            self.run.lock().left += isize::from(left);
            self.changed.notify_all();
        }
        self.watch(self.clock.now());
        self.dispatch(effects);
    }

    /// Something went wrong that costs no event and stops nothing.
    pub(crate) fn report(&self, problem: String) {
        log::warn(&self.graph.name, &problem);
        let mut run = self.run.lock();
        if run.problems.len() < PROBLEMS_MAX {
            run.problems.push(problem);
        } else {
            run.problems_more += 1;
        }
    }

    /// A source failed, and has ended.
    pub(crate) fn source_failed(&self, name: &str, message: &str) {
        self.run.lock().source_failed = true;
        self.report(format!("the source `{name}` failed: {message}"));
    }

    pub(crate) fn run_state(&self) -> MutexGuard<'_, RunState> {
        self.run.lock()
    }

    /// Waits until `done` says so or the time is up. Returns whether it did.
    pub(crate) fn wait_until(
        &self,
        bound: Option<Duration>,
        done: impl Fn(&RunState) -> bool,
    ) -> bool {
        let start = self.clock.now();
        let mut run = self.run.lock();
        loop {
            if done(&run) {
                return true;
            }
            let left =
                bound.map(|bound| bound.saturating_sub(self.clock.now().duration_since(start)));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            run = wait(&self.changed, run, left);
        }
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    /// Workers leave after their visit, and no timer fires any more.
    fn halt(&self) {
        self.stopped.store(true, SeqCst);
        self.timers.stop();
        self.policy_calls.stop(|_| true);
        self.waker_calls.stop(|_| false);
        for workers in &self.worker_groups {
            workers.sleep.wake_all();
        }
    }

    /// Stops everything: workers leave after their visit, what is queued is cancelled.
    pub(crate) fn stop(&self) {
        self.halt();
        let on_end = {
            let mut run = self.run.lock();
            run.stopped = true;
            run.take_on_end()
        };
        self.changed.notify_all();
        self.cancel();
        on_end.into_iter().for_each(|call| drop(user::call(call)));
    }

    /// Cancels what nodes hold.
    pub(crate) fn cancel(&self) {
        let mut effects = Effects::default();
        for node in self.nodes() {
            node.cancel(&mut effects);
        }
        self.dispatch(effects);
    }

    /// After the stop, when the workers are gone: cancels what their last visits left behind, and reports to
    /// sources what has settled.
    pub(crate) fn farewell(&self) {
        self.cancel();
        let mut effects = Effects::default();
        for node in self.nodes() {
            node.farewell(self, &mut effects);
        }
        self.dispatch(effects);
    }
}

impl Host for Core {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn quit(&self, result: Box<dyn Any + Send>) {
        let mut run = self.run.lock();
        if !run.quit {
            run.quit = true;
            run.result = Some(result);
        }
        self.changed.notify_all();
        let on_end = run.take_on_end();
        drop(run);
        self.halt();
        on_end.into_iter().for_each(|call| drop(user::call(call)));
    }

    fn wake_at(&self, due: Time, waker: Waker) -> u64 {
        self.wake_timers.add(self, due, waker)
    }

    fn forget_timer(&self, due: Time, timer: u64) {
        self.wake_timers.forget(due, timer);
    }

    fn report(&self, problem: String) {
        Core::report(self, problem);
    }
}
