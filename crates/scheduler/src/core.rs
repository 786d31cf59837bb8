//! What joins the parts: the repository, the observer, the stacks, and the handler that runs.
//! [`Scheduler`](crate::Scheduler) owns it; operations inside of handlers find it through the coroutine
//! that runs, other user code through a thread-local ([`Core::current`]).
//!
//! Invariants: user code runs only inside of coroutines, in a polled source, in `attach` or in `on_failure`,
//! and then nothing here is borrowed. The observer is asked when the ready queue is empty, and after at most
//! `ASK_EVERY` handlers otherwise; a handler is suspended after at most `BUDGET` operations. So neither
//! a handler nor a source can keep another from its turn, unless it never calls an operation.

use crate::Failure;
use crate::blocking::{ThreadPlaces, ThreadPool};
use crate::clock::Clock;
use crate::coroutine::{self, Coroutine, Stack, StackPool};
use crate::failure::{FailureHook, call_hook, discard};
use crate::observer::{Observer, unwinding};
use crate::repository::{Cause, Handler, Repository};
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::mem;
use std::panic;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Handlers resumed before the observer is asked although others are ready. As in tokio, whose
/// `event_interval` is 61: often enough that I/O does not wait, seldom enough to cost nothing.
const ASK_EVERY: u32 = 64;
/// Operations that a handler completes before it lets others go first. As tokio's budget.
const BUDGET: u32 = 128;
/// Stacks trimmed at a time, so that a sweep does not hold up the loop: 0.1 ms or so.
const TRIM_BATCH: usize = 256;

thread_local! {
    /// The scheduler whose loop calls user code on this thread, outside of its coroutines. It is only compared.
    static ENTERED: Cell<*const Core> = const { Cell::new(ptr::null()) };
    /// The schedulers of this thread, of which there is mostly one: see [`Core::current`].
    static LIVE: RefCell<Vec<Weak<Core>>> = const { RefCell::new(Vec::new()) };
}

/// Why a handler goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parked {
    Woken,
    TimedOut,
    /// It was not suspended, because it is unwinding: see [`Core::park`].
    Unwinding,
}

/// The payload with which a cancelled handler unwinds.
pub(crate) struct Unwound;

/// The bounds of a scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) stack_size: usize,
    pub(crate) stacks_kept_max: usize,
    pub(crate) coroutines_max: usize,
    pub(crate) wait_max: Duration,
    pub(crate) trim_after: Duration,
    pub(crate) blocking_threads_max: usize,
    pub(crate) source_threads_max: usize,
}

pub(crate) struct Core {
    pub(crate) observer: Observer,
    repository: Repository,
    stacks: RefCell<StackPool>,
    running: Cell<Option<Rc<Handler>>>,
    /// Operations left to the running handler before it lets others go first.
    budget: Cell<u32>,
    /// Handlers that are resumed before the observer is asked although others are ready; none if there are no
    /// handlers, or none was ready when it was last asked.
    turns_left: Cell<u32>,
    activity: Cell<Activity>,
    /// When it last looked for stacks to trim although it was not idle.
    swept_at: Cell<Instant>,
    closing: Cell<bool>,
    unclaimed: Cell<Option<Failure>>,
    on_failure: Option<RefCell<FailureHook>>,
    threads: OnceCell<Arc<ThreadPool>>,
    source_threads: ThreadPlaces,
    limits: Limits,
}

/// Whether there are stacks to trim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// Handlers ran, and the scheduler was not idle for `trim_after` since.
    Ran,
    /// It was, and stacks are left to trim.
    Idle,
    /// None are left.
    Trimmed,
}

impl Core {
    pub(crate) fn new(
        limits: Limits,
        clock: Clock,
        on_failure: Option<FailureHook>,
    ) -> io::Result<Rc<Core>> {
        let swept_at = Cell::new(clock.now());
        let core = Rc::new(Core {
            observer: Observer::new(clock, limits.wait_max)?,
            repository: Repository::new(),
            stacks: RefCell::new(StackPool::new(limits.stack_size, limits.stacks_kept_max)),
            running: Cell::new(None),
            budget: Cell::new(BUDGET),
            turns_left: Cell::new(0),
            activity: Cell::new(Activity::Trimmed),
            swept_at,
            closing: Cell::new(false),
            unclaimed: Cell::new(None),
            on_failure: on_failure.map(RefCell::new),
            threads: OnceCell::new(),
            source_threads: ThreadPlaces::new(limits.source_threads_max),
            limits,
        });
        LIVE.with_borrow_mut(|live| live.push(Rc::downgrade(&core)));
        Ok(core)
    }

    /// The scheduler whose coroutine or loop is the innermost on this thread.
    pub(crate) fn current() -> Option<Rc<Core>> {
        let owner: *const Core = coroutine::owner();
        let innermost = if owner.is_null() { ENTERED.get() } else { owner };
        if innermost.is_null() {
            return None;
        }
        LIVE.with_borrow_mut(|live| {
            let place = live.iter().position(|core| ptr::eq(core.as_ptr(), innermost))?;
            // The next search finds it at once.
            live.swap(0, place);
            live[0].upgrade()
        })
    }

    /// The scheduler of the handler that runs on this thread.
    #[inline]
    pub(crate) fn of_handler() -> Option<Rc<Core>> {
        Core::current().filter(|core| core.runs_here())
    }

    /// As [`Core::of_handler`].
    ///
    /// # Panics
    /// Panics outside a coroutine of a scheduler.
    #[track_caller]
    pub(crate) fn expect_handler(operation: &str) -> Rc<Core> {
        Core::of_handler().unwrap_or_else(|| {
            panic!("`{operation}` was called outside of a scheduler's coroutine")
        })
    }

    /// Makes this the current scheduler until the guard is dropped, outside of its coroutines. For what may call user code
    /// there; coroutines know whose they are.
    pub(crate) fn enter(self: &Rc<Core>) -> Entered {
        Entered { outer: ENTERED.replace(Rc::as_ptr(self)), _outer_coroutine: coroutine::hide() }
    }

    /// Whether the innermost coroutine of this thread is one of this scheduler's.
    #[inline(always)]
    pub(crate) fn runs_here(&self) -> bool {
        ptr::eq(coroutine::owner(), self)
    }

    /// The handler that runs, which is about to suspend: it is not here any more, unless it goes on.
    #[inline]
    fn take_running(&self) -> Rc<Handler> {
        let handler = self.running.take().expect("only handlers suspend");
        if handler.is_cancelled() {
            self.running.set(Some(handler));
            unwind();
        }
        handler
    }

    /// The handler that runs.
    #[inline]
    pub(crate) fn running(&self) -> Rc<Handler> {
        let running = self.running.take().expect("only handlers suspend");
        self.running.set(Some(running.clone()));
        running
    }

    #[inline]
    pub(crate) fn handlers(&self) -> usize {
        self.repository.len()
    }

    /// The scheduler is going down: nothing new begins.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// Puts a handler that will run `body`, which must not unwind, into the ready queue.
    pub(crate) fn create_object(
        &self,
        body: impl FnOnce(&Handler) + 'static,
    ) -> io::Result<Rc<Handler>> {
        let most = self.limits.coroutines_max;
        if self.handlers() >= most {
            let message = format!("{most} coroutines exist, which is the limit");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
        }
        let stack = self.stacks.borrow_mut().take()?;
        let owner = ptr::from_ref(self);
        let begin = |handler: Rc<Handler>| Coroutine::new(stack, owner, move || body(&handler));
        Ok(self.repository.create_object(begin))
    }

    /// The next handler to resume, on the shortest way: the first of the ready queue, or whichever an event of the
    /// operating system makes ready. If there is anything else to do or to wait for, returns `None`.
    #[inline(always)]
    pub(crate) fn take_next(&self) -> Option<Rc<Handler>> {
        self.turns_left.set(self.turns_left.get().checked_sub(1)?);
        if self.repository.has_ready() {
            let stops = self.observer.inbox().has_stop();
            return if stops { None } else { self.repository.pop_ready() };
        }
        if let Some(only) = self.observer.wait_for_one() {
            return Some(only);
        }
        self.repository.pop_ready()
    }

    /// The next handler to resume: from the ready queue, or from whatever the observer reports within
    /// `limit`.
    pub(crate) fn get_ready_object(
        &self,
        limit: Option<Duration>,
    ) -> io::Result<Option<Rc<Handler>>> {
        let turns_left = self.turns_left.get().checked_sub(1);
        match turns_left {
            Some(turns_left) => self.turns_left.set(turns_left),
            None => self.look_around()?,
        }
        let was_asked = turns_left.is_none() && limit == Some(Duration::ZERO);
        let ready = match self.repository.pop_ready() {
            None if !was_asked => self.wait_for_handler(limit)?,
            ready => ready,
        };
        match ready {
            Some(_) => self.activity.set(Activity::Ran),
            None => self.turns_left.set(0),
        }
        Ok(ready)
    }

    /// Asks the observer although handlers may be ready, and trims, although it is not idle, the stacks of those that
    /// have not run since the last time.
    #[cold]
    fn look_around(&self) -> io::Result<()> {
        self.turns_left.set(ASK_EVERY);
        let now = self.observer.now();
        if now.saturating_duration_since(self.swept_at.get()) >= self.limits.trim_after {
            self.swept_at.set(now);
            self.sweep(false);
        }
        self.observer.wait_for_events(Some(Duration::ZERO)).map(drop)
    }

    /// No handler is ready. Waits for events, and if there are none for long enough, it has time to trim the stacks
    /// of those that wait, a batch at a time.
    fn wait_for_handler(&self, limit: Option<Duration>) -> io::Result<Option<Rc<Handler>>> {
        let after = match self.activity.get() {
            Activity::Ran => Some(self.limits.trim_after),
            Activity::Idle => Some(Duration::ZERO),
            Activity::Trimmed => None,
        };
        let trims = after.is_some_and(|after| limit.is_none_or(|limit| after < limit));
        let in_vain = self.observer.wait_for_events(if trims { after } else { limit })?;
        if trims && in_vain {
            self.activity.set(Activity::Idle);
            self.sweep(true);
        }
        Ok(self.repository.pop_ready())
    }

    fn sweep(&self, idles: bool) {
        let stacks = self.stacks.borrow_mut().trim(TRIM_BATCH);
        let handlers = self.repository.sweep(TRIM_BATCH, idles);
        if !stacks && !handlers {
            self.activity.set(Activity::Trimmed);
        }
    }

    /// Resumes a handler until it suspends or ends. Returns its stack if it has ended: [`Core::remove`] is next.
    #[inline(always)]
    pub(crate) fn resume(&self, handler: &Rc<Handler>) -> Option<Stack> {
        self.budget.set(BUDGET);
        let before = self.running.replace(Some(handler.clone()));
        debug_assert!(before.is_none(), "one handler runs at a time");
        mem::forget(before);
        // A handler that suspends has taken itself out of `running`.
        handler.resume()
    }

    /// Takes out a handler that ended, and calls `on_failure` with an unobserved failure, which it returns.
    #[cold]
    pub(crate) fn remove(&self, handler: &Handler, stack: Stack) -> Option<Box<Failure>> {
        self.running.set(None);
        self.repository.remove(handler);
        if self.handlers() == 0 {
            self.turns_left.set(0);
        }
        self.stacks.borrow_mut().put(stack);
        let failure = self.unclaimed.take()?;
        if let Some(hook) = &self.on_failure {
            call_hook(&mut hook.borrow_mut(), &failure);
        }
        Some(Box::new(failure))
    }

    /// Suspends the running handler until it is woken or the deadline is over. `enlist` leaves it where it
    /// will be woken from; `left` is called when it goes on.
    ///
    /// A cancelled handler unwinds instead of going on. One that unwinds already, by cancellation or
    /// by a panic, cannot be suspended: others would run in the midst of its panic. It goes on at once.
    ///
    /// # Panics
    /// Panics if this is not a coroutine of this scheduler.
    #[inline(always)]
    pub(crate) fn park(
        &self,
        deadline: Option<Instant>,
        enlist: impl FnOnce(Rc<Handler>),
        left: impl FnOnce(Cause),
    ) -> Parked {
        if thread::panicking() {
            return Parked::Unwinding;
        }
        let mut timer = None;
        let cause = coroutine::suspend(self, || {
            let handler = self.take_running();
            handler.suspends();
            timer = deadline.map(|at| self.observer.wake_at(at, handler.clone()));
            enlist(handler);
        });
        if let Some(timer) = timer {
            self.observer.cancel_timer(timer);
        }
        left(cause);
        match cause {
            Cause::Event => Parked::Woken,
            Cause::Deadline => Parked::TimedOut,
            Cause::Cancelled => unwind(),
        }
    }

    /// Suspends the running handler for `time`, and no longer than to the deadline of what it is about to
    /// try again.
    ///
    /// # Errors
    /// Returns an error if the deadline is over, or the handler is unwinding.
    pub(crate) fn pause(&self, time: Duration, deadline: Option<Instant>) -> io::Result<()> {
        if deadline.is_some_and(|deadline| self.observer.now() >= deadline) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let ends = [self.deadline(Some(time)), deadline].into_iter().flatten().min();
        match self.park(ends, drop, |_| ()) {
            Parked::Unwinding => Err(unwinding()),
            Parked::Woken | Parked::TimedOut => Ok(()),
        }
    }

    /// Lets every handler that is ready go first, and the sources be asked.
    pub(crate) fn yield_now(&self) {
        if thread::panicking() {
            return;
        }
        if coroutine::suspend(self, || self.take_running().requeue()) == Cause::Cancelled {
            unwind();
        }
    }

    /// To be called before an operation that may complete without suspending.
    #[inline]
    pub(crate) fn spend(&self) {
        match self.budget.get() {
            0 => self.yield_now(),
            left => self.budget.set(left - 1),
        }
    }

    /// What the handler has left is spent: its next operation lets others go first.
    pub(crate) fn spend_all(&self) {
        self.budget.set(0);
    }

    /// An unobserved failure of the running handler, which ends.
    pub(crate) fn report(&self, failure: Failure) {
        let before = self.unclaimed.replace(Some(failure));
        debug_assert!(before.is_none(), "a handler ends once, and `step` takes its failure");
    }

    pub(crate) fn deadline(&self, limit: Option<Duration>) -> Option<Instant> {
        limit.and_then(|limit| self.observer.now().checked_add(limit))
    }

    pub(crate) fn threads(&self) -> &Arc<ThreadPool> {
        self.threads.get_or_init(|| ThreadPool::new(self.limits.blocking_threads_max))
    }

    pub(crate) fn source_threads(&self) -> &ThreadPlaces {
        &self.source_threads
    }

    /// Cancels every handler and lets it unwind.
    pub(crate) fn close(self: &Rc<Core>) {
        let _entered = self.enter();
        self.closing.set(true);
        for handler in self.repository.handlers() {
            handler.cancel();
        }
        // A handler may wake others while it unwinds, but none begins, and none suspends again.
        while let Some(handler) = self.repository.pop_ready() {
            discard(self.resume(&handler).and_then(|stack| self.remove(&handler, stack)));
        }
        if let Some(threads) = self.threads.get() {
            threads.close();
        }
    }
}

/// Unwinds the running handler, which was cancelled.
#[cold]
fn unwind() -> ! {
    panic::resume_unwind(Box::new(Unwound))
}

impl Drop for Core {
    fn drop(&mut self) {
        // A thread that ends may have dropped the list before.
        let _ = LIVE.try_with(|live| live.borrow_mut().retain(|core| core.strong_count() > 0));
    }
}

/// Restores the current scheduler of this thread.
pub(crate) struct Entered {
    outer: *const Core,
    _outer_coroutine: coroutine::Outer,
}

impl Drop for Entered {
    fn drop(&mut self) {
        ENTERED.set(self.outer);
    }
}
