//! Hop 5, work: a worker takes a token and makes the visit it stands for, or sleeps.
//! Before: `ready`. After: `handle`.
//! `Worker::step` is the whole of it but the sleeping; threads and tests call the same code.

use std::cell::Cell;

use crate::core::Core;
use crate::path::admit::Wakes;
use crate::path::ready::{Popped, Task, Token, Turn};
use crate::path::visit_order::{Cursor, Fired};
use crate::sleep::YieldTimer;
use crate::sync::{Acquire, Arc, SeqCst, thread_local};
use crate::workers::{WorkerGroup, WorkerHandle};

/// How often in a row a worker follows its own last result before it looks at what else waits.
const FOLLOW_MAX: u32 = if cfg!(shuttle) { 2 } else { 16 };
/// How often a worker looks at the workers's shared queue before its own: every so many picks.
const SHARED_EVERY: u32 = if cfg!(shuttle) { 3 } else { 61 };

/// A worker's home number holds its workers above this bit.
const HOME_CREW_SHIFT: usize = 20;

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
    /// The number of its workers, and who else is there.
    workers: usize,
    member: Arc<WorkerHandle>,
    mates: Arc<Vec<Arc<WorkerHandle>>>,
    epoch: u64,
    picks: u32,
    followed: u32,
    searching: bool,
    /// The token to follow next. It is run at once, so nobody needs to find it.
    next: Option<Token>,
    /// The token of the stage that feeds the next, which gathers: see [`Stage::gathers`]. It is run
    /// when that has been visited, unless that sends something.
    ///
    /// [`Stage::gathers`]: comporta_model::stage::Stage::gathers
    feeder: Option<Token>,
    /// Where it stands in the visit order, and whether its next visit is made there.
    cursor: Cursor,
    focus: Option<usize>,
    /// The policy is still to be called for something: it went to use what it had in hand.
    word_left: bool,
    yield_timer: YieldTimer,
    wakes: Wakes,
}

thread_local! {
    static ON_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is a worker, which must not wait.
pub(crate) fn is_worker() -> bool {
    ON_WORKER.with(Cell::get)
}

/// Calls `body` as a worker would.
pub(crate) fn as_worker<R>(body: impl FnOnce() -> R) -> R {
    let before = ON_WORKER.with(|on| on.replace(true));
    let result = body();
    ON_WORKER.with(|on| on.set(before));
    result
}

impl Worker {
    pub(crate) fn member(&self) -> &Arc<WorkerHandle> {
        &self.member
    }

    pub(crate) fn new(workers: &WorkerGroup, member: Arc<WorkerHandle>) -> Self {
        let home = home(workers, &member);
        Worker {
            workers: workers.cluster,
            member,
            mates: Arc::default(),
            epoch: 0,
            picks: 0,
            followed: 0,
            searching: false,
            next: None,
            feeder: None,
            cursor: Cursor::default(),
            focus: None,
            word_left: false,
            yield_timer: YieldTimer::default(),
            wakes: Wakes { home, ..Wakes::default() },
        }
    }

    /// The life of a worker thread.
    pub(crate) fn run(mut self, core: &Arc<Core>) {
        ON_WORKER.with(|on| on.set(true)); // the thread is its own
        let workers = &core.worker_groups[self.workers];
        workers.sleep.up();
        while !core.is_stopped() && !self.member.leaving.load(SeqCst) {
            match self.step(core) {
                Stepped::Ran => self.give_way(core),
                Stepped::Idle => self.idle(core, workers),
            }
        }
        workers.sleep.down();
        self.leave(core);
    }

    /// Takes one token and makes its visit.
    pub(crate) fn step(&mut self, core: &Arc<Core>) -> Stepped {
        let workers = &core.worker_groups[self.workers];
        if self.epoch != workers.epoch() {
            self.epoch = workers.epoch();
            self.mates = workers.members();
        }
        let Some(token) = self.pick(core, workers) else { return Stepped::Idle };
        if std::mem::take(&mut self.searching) {
            workers.sleep.end_search();
            if self.sees_work(workers) {
                workers.sleep.work_made();
            }
        }
        self.visit(core, workers, token);
        Stepped::Ran
    }

    /// Between visits, when it is time to, lets other threads have the processor; not if it is about
    /// to sleep anyway, for who has given way is woken more slowly.
    fn give_way(&mut self, core: &Core) {
        let Some(now) = self.wakes.now.filter(|now| self.yield_timer.asks(*now)) else { return };
        if self.next.is_none() && !self.sees_work(&core.worker_groups[self.workers]) {
            return;
        }
        // Others may have what it has in hand.
        if let Some(token) = self.feeder.take() {
            self.put_back(core, token);
        }
        if let Some(token) = self.next.take() {
            self.put_by(core, token, Turn::Next);
        }
        self.wakes.now = Some(self.yield_timer.give_way(now, || core.clock.now()));
    }

    fn visit(&mut self, core: &Arc<Core>, workers: &WorkerGroup, token: Token) {
        let focus = self.focus.take();
        let Some(pool) = core.enter_pool(workers, token) else { return };
        if !core.is_held(token) {
            self.visit_in_pool(core, workers, token, focus);
        }
        if let Some(pool) = pool {
            pool.leave(&core.pools, &mut self.wakes.tokens);
        }
        self.hand_on(core, workers, token.stage);
    }

    fn visit_in_pool(
        &mut self,
        core: &Arc<Core>,
        workers: &WorkerGroup,
        token: Token,
        focus: Option<usize>,
    ) {
        let Ok(color) = core.colors.take(core.color(token.stage), token) else {
            return; // another stage of its color runs, and will make it ready again
        };
        self.wakes.limit = focus.unwrap_or(0);
        self.wakes.done = 0;
        // The end of the last visit is the start of this one: a read of the clock is saved. A test
        // moves its clock between steps.
        let lately = self.wakes.now.take().filter(|_| !core.is_tested());
        let now = lately.unwrap_or_else(|| core.clock.now());
        let slow = core.is_slow(token.stage);
        self.member.begin(token.stage, now, slow);
        if slow {
            workers.sleep.down();
            if self.sees_work(workers) {
                workers.sleep.work_left();
            }
        }
        core.node(token.stage).visit(core, token.task, now, &mut self.wakes);
        if self.member.end() {
            workers.sleep.up();
        }
        if focus.is_some() {
            self.cursor.spent += self.wakes.done;
        }
        core.colors.give(color, &mut self.wakes.tokens);
    }

    /// Puts what a visit woke where it will be found.
    fn hand_on(&mut self, core: &Core, workers: &WorkerGroup, from: u32) {
        core.resolve(&mut self.wakes);
        let stealing = workers.own_queues();
        let feeder = self.feeder.take();
        let (mut again, mut woke) = (None, false);
        let mut tokens = std::mem::take(&mut self.wakes.tokens);
        if !stealing {
            self.put_in_line(core, workers, &mut tokens);
        }
        for token in tokens.drain(..) {
            if core.workers_of(token.stage) != self.workers || !stealing {
                core.make_ready(token);
                continue;
            }
            if token.home != 0
                && token.home != self.wakes.home
                && let Some(member) = self.mate(token.home)
            {
                // The events are in that worker's cache: moving them here would cost more than
                // handling them. It is awake, or whoever is woken takes it from there.
                match member.local.offer(token, core.priority(token.stage)) {
                    Ok(()) => workers.sleep.work_made(),
                    Err(token) => core.make_ready(token), // it has just left
                }
                continue;
            }
            if token.task != Task::Any {
                self.put_by(core, token, Turn::InLine);
            } else if token.stage != from {
                woke = true;
                if self.next.is_none() && self.may_follow(core) {
                    self.next = Some(token);
                } else {
                    self.put_by(core, token, Turn::Next);
                }
            } else if let Some(other) = again.replace(token) {
                self.put_by(core, other, Turn::InLine);
            }
        }
        self.wakes.tokens = tokens;
        self.wakes.trash.clear();
        if self.next.is_some_and(|next| core.gathers(next.stage) > 0) {
            // It is fed until it sends something: what it sends is then made of what is in this
            // worker's cache. Meanwhile nobody else pulls the stage that feeds it.
            self.feeder = again.take();
        } else if feeder.is_some() && !woke && self.may_follow(core) {
            // It has gathered, and sent nothing yet.
            self.next = again.take().or(feeder);
            self.feeder = feeder.filter(|_| self.next != feeder);
            return;
        }
        for token in feeder.into_iter().chain(again) {
            self.put_back(core, token);
        }
    }

    /// Whether it may go on with what it has in its cache, or should see what else waits.
    fn may_follow(&self, core: &Core) -> bool {
        self.followed < FOLLOW_MAX && !core.has_priorities()
    }

    fn put_by(&self, core: &Core, token: Token, turn: Turn) {
        self.member.local.push(token, core.priority(token.stage), turn);
    }

    /// A stage that was just visited has more to do.
    fn put_back(&self, core: &Core, token: Token) {
        if !core.worker_groups[self.workers].own_queues() {
            core.make_ready(token); // the policy has just changed
        } else if core.is_source(token.stage) && !core.has_priorities() {
            self.put_by(core, token, Turn::Last);
        } else {
            self.put_by(core, token, Turn::InLine);
        }
    }

    /// Under one queue: puts what is this workers's there, and leaves the rest. Nobody is woken for it:
    /// this worker takes from the queue next, and wakes another if more is left, as it does when it
    /// leaves. (To be woken for what the waker takes itself is a switch of threads for nothing.)
    fn put_in_line(&self, core: &Core, workers: &WorkerGroup, tokens: &mut Vec<Token>) {
        workers.shared.push_all(tokens, |token| {
            let here = core.workers_of(token.stage) == self.workers;
            here.then(|| core.priority(token.stage))
        });
        if !self.member.local.is_empty() {
            workers.sleep.work_made(); // it takes from its own queue first
        }
    }

    /// The worker of this workers that calls itself `home`.
    fn mate(&self, home: u32) -> Option<&Arc<WorkerHandle>> {
        let number = (home as usize).checked_sub(1 + (self.workers << HOME_CREW_SHIFT))?;
        let at = self.mates.binary_search_by_key(&number, |member| member.number).ok()?;
        Some(&self.mates[at]).filter(|member| !member.leaving.load(Acquire))
    }

    /// The next token of this worker's own queue, the shared one, or another worker's.
    fn pick(&mut self, core: &Arc<Core>, workers: &WorkerGroup) -> Option<Token> {
        self.picks = self.picks.wrapping_add(1);
        if let Some(token) = self.next.take().or_else(|| self.feeder.take()) {
            self.followed += 1;
            if !self.member.local.is_empty() {
                workers.sleep.work_made();
            }
            return Some(token);
        }
        let own = |worker: &mut Self| {
            let fair = worker.followed >= FOLLOW_MAX;
            worker.followed = if fair { 0 } else { worker.followed + 1 };
            worker.member.local.pop(fair)
        };
        let mut fired = Fired::default();
        let mut shared = |worker: &mut Self| {
            let popped =
                workers.shared.pop(&mut worker.cursor, worker.mates.len(), worker.wakes.home);
            let Popped { token, left, focus, fired: now } = popped;
            (worker.focus, fired) = (focus, now);
            token.map(|token| (token, left))
        };
        let found = if self.picks.is_multiple_of(SHARED_EVERY) {
            shared(self).or_else(|| own(self))
        } else {
            own(self).or_else(|| shared(self))
        };
        if found.is_some_and(|(_, left)| left > 0) {
            workers.sleep.work_made(); // before the policy is called: what is left need not wait for that
        }
        if fired.any() || self.word_left {
            let host = &core.policy_hosts[workers.cluster];
            self.word_left = host.focused(core, fired, found.is_some());
        }
        if let Some((token, _)) = found {
            return Some(token);
        }
        self.followed = 0;
        self.steal()
    }

    fn steal(&self) -> Option<Token> {
        let n = self.mates.len();
        let start = self.picks as usize;
        let fair = self.picks.is_multiple_of(FOLLOW_MAX);
        (0..n).map(|i| &self.mates[(start + i) % n]).find_map(|member| member.local.steal(fair))
    }

    fn sees_work(&self, workers: &WorkerGroup) -> bool {
        !workers.shared.is_empty() || self.mates.iter().any(|member| !member.local.is_empty())
    }

    /// Looks around for a moment, then sleeps until there is work.
    fn idle(&mut self, core: &Core, workers: &WorkerGroup) {
        self.wakes.now = None; // time passes
        if !self.searching {
            self.searching = workers.sleep.begin_search(self.mates.len());
        }
        if self.searching && workers.sleep.linger(|| self.sees_work(workers)) {
            return;
        }
        workers.sleep.announce(&self.member.woken, std::mem::take(&mut self.searching));
        workers.sleep.down(); // before the last look: who makes work relies on those that are up
        // The workers may have changed since the last look: a new member's queue counts too.
        self.mates = workers.members();
        let stay = self.sees_work(workers) || core.is_stopped() || self.member.leaving.load(SeqCst);
        if stay {
            self.searching = workers.sleep.cancel(&self.member.woken);
        } else {
            workers.sleep.commit(&self.member.woken);
            self.searching = true;
        }
        workers.sleep.up();
    }

    /// Leaves for good.
    pub(crate) fn leave(mut self, core: &Arc<Core>) {
        let workers = &core.worker_groups[self.workers];
        workers.gone(&self.member);
        self.put_down(core, workers);
        if self.word_left && !core.is_stopped() {
            core.policy_hosts[workers.cluster].focused(core, Fired::default(), false);
        }
    }

    /// Leaves the workers; what stands in its queue goes to the shared one.
    fn put_down(&mut self, core: &Core, workers: &WorkerGroup) {
        if std::mem::take(&mut self.searching) {
            workers.sleep.end_search();
        }
        let in_hand = self.next.take().into_iter().chain(self.feeder.take());
        in_hand.for_each(|token| core.make_ready(token));
        self.member.local.close().into_iter().for_each(|token| core.make_ready(token));
        workers.sleep.work_made();
    }
}

/// By what others know a worker: see [`Token::home`].
fn home(workers: &WorkerGroup, member: &WorkerHandle) -> u32 {
    u32::try_from(1 + (workers.cluster << HOME_CREW_SHIFT) + member.number).unwrap_or(0)
}
