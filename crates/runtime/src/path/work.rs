//! Hop 5, work: a worker takes a token and makes the visit it stands for, or sleeps.
//! Before: `ready`. After: `handle`.
//! `Worker::step` is the whole of it but the sleeping; threads and tests call the same code.

use std::cell::Cell;

use crate::assignment::Assignment;
use crate::core::Core;
use crate::cpu_share::Measured;
use crate::effects::Visit;
use crate::path::ready::{Token, When};
use crate::path::shared::{Focus, Popped};
use crate::path::visit_order::{Cursor, Fired};
use crate::sleep::YieldTimer;
use crate::sync::{Arc, SeqCst, thread_local};
use crate::workers::{WorkerGroup, WorkerHandle};

/// How often in a row a worker follows its own last result before it looks at what else waits: a visit counts as one, and
/// as one more for each so many nanoseconds, so that others wait for a millisecond at most.
pub(super) const FOLLOW_MAX: u32 = if cfg!(shuttle) { 2 } else { 64 };
const FOLLOW_NS: u64 = 1 << 14;
/// Every so many picks a thief begins with what has waited longest.
const FAIR_EVERY: u32 = if cfg!(shuttle) { 2 } else { 16 };
/// How often a worker looks at the group's shared queue before its own: every so many picks.
const SHARED_EVERY: u32 = if cfg!(shuttle) { 3 } else { 61 };

/// A worker's home number holds its workers above this bit.
pub(super) const HOME_GROUP_SHIFT: usize = 20;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stepped {
    /// It made a visit.
    Ran,
    /// There was nothing to do.
    Idle,
}

/// One worker, as it sees itself.
pub(crate) struct Worker {
    /// The number of its group, and who else is there.
    pub(super) workers: usize,
    pub(super) handle: Arc<WorkerHandle>,
    pub(super) peers: Arc<Vec<Arc<WorkerHandle>>>,
    epoch: u64,
    picks: u32,
    pub(super) followed: u32,
    searching: bool,
    /// The token to follow next. It is run at once, so nobody needs to find it.
    pub(super) next: Option<Token>,
    /// Where it stands in the visit order, and whether its next visit is made there.
    cursor: Cursor,
    focus: Option<Focus>,
    /// The policy is still to be called for something: it went to use what it had in hand.
    calls_noted: bool,
    /// What the visit order has fired since the policy was last called.
    fired: Fired,
    yield_timer: YieldTimer,
    pub(super) visit: Visit,
}

/// What a thread is to the runtime.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    /// None of ours.
    Other,
    /// A worker, which must not wait.
    Worker,
    /// A worker of blocking stages.
    Blocking,
}

thread_local! {
    static THREAD: Cell<Thread> = const { Cell::new(Thread::Other) };
}

/// Whether this thread is a worker.
pub(crate) fn is_worker() -> bool {
    THREAD.with(Cell::get) != Thread::Other
}

/// Whether this thread is a worker that must not wait.
pub(crate) fn must_not_wait() -> bool {
    THREAD.with(Cell::get) == Thread::Worker
}

/// Calls `body` as a worker would.
pub(crate) fn as_worker<R>(body: impl FnOnce() -> R) -> R {
    let before = THREAD.with(|thread| thread.replace(Thread::Worker));
    let result = body();
    THREAD.with(|thread| thread.set(before));
    result
}

impl Worker {
    pub(crate) fn handle(&self) -> &Arc<WorkerHandle> {
        &self.handle
    }

    pub(crate) fn new(workers: &WorkerGroup, handle: Arc<WorkerHandle>) -> Self {
        let home = home(workers, &handle);
        let visit = Visit::new(home, Some(handle.clone()));
        Worker {
            workers: workers.cluster,
            handle,
            peers: Arc::default(),
            epoch: 0,
            picks: 0,
            followed: 0,
            searching: false,
            next: None,
            cursor: Cursor::default(),
            focus: None,
            calls_noted: false,
            fired: Fired::default(),
            yield_timer: YieldTimer::default(),
            visit,
        }
    }

    /// The life of a worker thread.
    pub(crate) fn run(mut self, core: &Arc<Core>) {
        let blocking = core.settings.clusters[self.workers].blocking;
        let kind = if blocking { Thread::Blocking } else { Thread::Worker };
        THREAD.with(|thread| thread.set(kind)); // the thread is its own
        let workers = &core.worker_groups[self.workers];
        workers.sleep.up();
        while !core.is_stopped() && !self.handle.leaving.load(SeqCst) {
            match self.step(core) {
                Stepped::Ran => self.yield_now(core),
                Stepped::Idle => self.idle(core, workers),
            }
        }
        workers.sleep.down();
        if core.is_stopped() {
            core.cancel(); // a handler called `quit`: those who wait to push are sent away
        }
        self.leave(core);
    }

    /// Takes one token and makes its visit.
    #[inline(always)] // into the loop of a thread
    pub(crate) fn step(&mut self, core: &Arc<Core>) -> Stepped {
        let workers = &core.worker_groups[self.workers];
        if self.epoch != workers.epoch() {
            self.epoch = workers.epoch();
            self.peers = workers.members();
        }
        let Some(token) = self.pick(core, workers) else { return Stepped::Idle };
        if std::mem::take(&mut self.searching) {
            workers.sleep.end_search();
            if self.sees_work(workers) {
                workers.sleep.work_made();
            }
        }
        let assignment = &core.assignments[token.stage as usize];
        self.leave_rest(core, workers, assignment);
        self.visit(core, workers, assignment, token);
        self.call_policy(core);
        Stepped::Ran
    }

    /// This worker begins a visit to `stage`: others take the rest of its queue, if that pays or the visit takes a
    /// while. The clock sees to it that what they do not take does not wait for a handler that does not return.
    #[inline]
    fn leave_rest(&self, core: &Core, workers: &WorkerGroup, to: &Assignment) {
        let local = &self.handle.local;
        local.set_occupied(to.pays_to_move());
        if local.is_empty() {
            return;
        }
        core.timers.hurry();
        if self.peers.len() > 1 && local.has_stealable() {
            workers.sleep.work_made();
        }
    }

    /// Calls the policy for what the visit order fired. It is user code: the worker has no token in hand.
    fn call_policy(&mut self, core: &Arc<Core>) {
        if self.fired.any() || self.calls_noted {
            self.put_next_by(core);
            let fired = std::mem::take(&mut self.fired);
            self.calls_noted = core.policy_hosts[self.workers].focused(core, fired);
        }
    }

    /// Between visits, when it is time to, lets other threads have the processor; not if it is about
    /// to sleep anyway, for a thread that has yielded is woken more slowly.
    fn yield_now(&mut self, core: &Core) {
        let Some(now) = self.visit.end.filter(|now| self.yield_timer.asks(*now)) else { return };
        if self.next.is_none() && !self.has_work(&core.worker_groups[self.workers]) {
            return;
        }
        if self.peers.len() <= 1 {
            // Nobody else would take what it has in hand.
        } else if self.yield_timer.met_another() {
            self.put_next_by(core);
        } else {
            // This worker is back at once, as it was last time: to wake another for what it has in hand
            // would be a switch of threads for nothing.
            self.put_next_down(core);
        }
        let spare = core.worker_groups[self.workers].sleep.has_processors();
        self.visit.end = Some(self.yield_timer.yield_now(now, spare, || core.clock.now()));
    }

    /// It will be away for a moment, perhaps in user code: others may have what it has in hand, and look for
    /// the rest.
    pub(super) fn put_next_by(&mut self, core: &Core) {
        self.put_next_down(core);
        self.handle.local.set_occupied(true);
        let workers = &core.worker_groups[self.workers];
        if std::mem::take(&mut self.searching) {
            workers.sleep.end_search();
        }
        if self.sees_work(workers) {
            workers.sleep.work_made();
        }
    }

    /// The token in hand can be stolen, if that pays.
    fn put_next_down(&mut self, core: &Core) {
        if let Some(token) = self.next.take() {
            self.put(core, token, When::Lifo);
            core.timers.hurry();
        }
    }

    #[inline(always)]
    fn visit(
        &mut self,
        core: &Arc<Core>,
        workers: &WorkerGroup,
        assignment: &Assignment,
        token: Token,
    ) {
        let special = self.focus.is_some() || workers.measures_cpu() || core.has_held();
        if special || !assignment.is_free(workers) {
            return self.visit_at_large(core, workers, token);
        }
        self.visit.limit = None;
        self.begin_visit(core, token.stage, false);
        core.node(token.stage).visit(core, token.task, &mut self.visit);
        self.hand_on(core, workers, token.stage);
        // The user code that a visit leaves to be run belongs to it: it may not return either.
        if self.handle.end() {
            workers.sleep.up();
        }
    }

    /// A visit begins, now.
    #[inline]
    fn begin_visit(&mut self, core: &Core, stage: u32, slow: bool) {
        self.visit.done = 0;
        // The end of the last visit is the start of this one: a read of the clock is saved. A test
        // moves its clock between steps.
        self.visit.start = match self.visit.end.take() {
            Some(lately) if !core.is_tested() => {
                let took = lately.as_nanos().saturating_sub(self.visit.start.as_nanos());
                self.followed = self.followed.saturating_add((took / FOLLOW_NS) as u32);
                lately
            }
            _ => core.clock.now(),
        };
        self.handle.begin(stage, self.visit.start, slow);
    }

    /// As [`visit`](Self::visit), where there is more to look at.
    #[inline(never)]
    fn visit_at_large(&mut self, core: &Arc<Core>, workers: &WorkerGroup, token: Token) {
        let focus = self.focus.take();
        let Some(pool) = core.enter_pool(workers, token) else { return };
        let begun = !core.is_held(token) && self.visit_in_pool(core, workers, token, focus);
        if let Some(pool) = pool {
            pool.leave(&core.pools, &mut self.visit.effects.tokens);
        }
        self.hand_on(core, workers, token.stage);
        // The user code that a visit leaves to be run belongs to it: it may not return either.
        if begun && self.handle.end() {
            workers.sleep.up();
        }
    }

    /// Makes the visit, unless another stage of its color runs. Returns whether it did.
    fn visit_in_pool(
        &mut self,
        core: &Arc<Core>,
        workers: &WorkerGroup,
        token: Token,
        focus: Option<Focus>,
    ) -> bool {
        let Ok(color) = core.colors.take(core.color(token.stage), token) else {
            return false; // another stage of its color runs, and will make it ready again
        };
        self.visit.limit = focus.and_then(|focus| focus.limit);
        let slow = core.is_slow(token.stage);
        self.begin_visit(core, token.stage, slow);
        if slow {
            workers.sleep.down();
            if self.sees_work(workers) {
                workers.sleep.work_left();
            }
        }
        let share = workers.measures_cpu().then(|| &core.cpu_shares[token.stage as usize]);
        let measured =
            share.and_then(|share| Measured::begin(&core.clock, self.visit.start, share));
        core.node(token.stage).visit(core, token.task, &mut self.visit);
        if let (Some(measured), Some(share)) = (measured, share) {
            measured.end(&core.clock, share);
        }
        if focus.is_some() {
            self.cursor.spent += self.visit.done;
        }
        core.colors.give(color, &mut self.visit.effects.tokens);
        true
    }

    /// The next token: the one to follow, or one of this worker's own queue, the shared one, or another worker's.
    #[inline(always)]
    fn pick(&mut self, core: &Arc<Core>, workers: &WorkerGroup) -> Option<Token> {
        self.picks = self.picks.wrapping_add(1);
        if let Some(token) = self.next.take() {
            self.followed = self.followed.saturating_add(1);
            return Some(token);
        }
        self.pick_queued(core, workers)
    }

    #[inline(never)]
    fn pick_queued(&mut self, core: &Arc<Core>, workers: &WorkerGroup) -> Option<Token> {
        let own = |worker: &mut Self| {
            let fair = worker.followed >= FOLLOW_MAX;
            worker.followed = if fair { 0 } else { worker.followed + 1 };
            worker.handle.local.pop(fair, worker.lately())
        };
        let mut fired = Fired::default();
        let mut shared = |worker: &mut Self| {
            let popped =
                workers.shared.pop(&mut worker.cursor, worker.peers.len(), worker.visit.home);
            let Popped { token, left, focus, fired: now } = popped;
            (worker.focus, fired) = (focus, now);
            if worker.peers.len() > 1 && token.is_some() && left > 0 {
                workers.sleep.work_made(); // before the policy is called: what is left need not wait for that
            }
            token
        };
        let found = if self.picks.is_multiple_of(SHARED_EVERY) {
            shared(self).or_else(|| own(self))
        } else {
            own(self).or_else(|| shared(self))
        };
        self.fired.add(fired);
        if found.is_some() {
            return found;
        }
        self.call_policy(core);
        self.followed = 0;
        self.steal(core)
    }

    fn steal(&self, core: &Core) -> Option<Token> {
        let n = self.peers.len();
        let start = self.picks as usize;
        let fair = self.picks.is_multiple_of(FAIR_EVERY);
        let peers = (0..n).map(|i| &self.peers[(start + i) % n]);
        let mut now = None; // a read of the clock, for those that have something only
        peers.filter(|handle| handle.local.has_stealable()).find_map(|handle| {
            handle.local.steal(fair, *now.get_or_insert_with(|| core.clock.now()))
        })
    }

    /// Whether this worker has something to do.
    fn has_work(&self, workers: &WorkerGroup) -> bool {
        !self.handle.local.is_empty() || self.sees_work(workers)
    }

    /// Whether there is something that any worker would take.
    fn sees_work(&self, workers: &WorkerGroup) -> bool {
        !workers.shared.is_empty() || self.peers.iter().any(|handle| handle.local.has_stealable())
    }

    /// Looks around for a moment, then sleeps until there is work.
    fn idle(&mut self, core: &Core, workers: &WorkerGroup) {
        self.visit.end = None; // time passes
        if self.calls_noted {
            return; // whoever noted them relies on this worker to call the policy
        }
        if !self.searching {
            self.searching = workers.sleep.begin_search(self.peers.len());
        }
        if self.searching && workers.sleep.linger(|| self.has_work(workers)) {
            return;
        }
        workers.sleep.announce(&self.handle.woken, std::mem::take(&mut self.searching));
        workers.sleep.down(); // before the last look: who makes work relies on those that are up
        // The workers may have changed since the last look: a new member's queue counts too.
        self.peers = workers.members();
        let stay = self.has_work(workers) || core.is_stopped() || self.handle.leaving.load(SeqCst);
        if stay {
            self.searching = workers.sleep.cancel(&self.handle.woken);
        } else {
            workers.sleep.commit(&self.handle.woken);
            self.searching = true;
        }
        workers.sleep.up();
    }

    /// Leaves for good.
    pub(crate) fn leave(mut self, core: &Arc<Core>) {
        let workers = &core.worker_groups[self.workers];
        workers.gone(&self.handle);
        self.put_down(core, workers);
        while std::mem::take(&mut self.calls_noted) && !core.is_stopped() {
            self.calls_noted = core.policy_hosts[workers.cluster].focused(core, Fired::default());
        }
    }

    /// Leaves the workers; what stands in its queue goes to the shared one.
    fn put_down(&mut self, core: &Core, workers: &WorkerGroup) {
        if std::mem::take(&mut self.searching) {
            workers.sleep.end_search();
        }
        self.next.take().into_iter().for_each(|token| core.make_ready(token));
        self.handle.local.close().into_iter().for_each(|token| core.make_ready(token));
        workers.sleep.work_made();
    }
}

/// By what others know a worker: see [`Token::home`].
fn home(workers: &WorkerGroup, handle: &WorkerHandle) -> u32 {
    u32::try_from(1 + (workers.cluster << HOME_GROUP_SHIFT) + handle.number).unwrap_or(0)
}
