//! What joins the parts: the repository, the observer, the stacks, and the handler that runs.
//! [`Scheduler`](crate::Scheduler) owns it; operations inside of handlers find it through a
//! thread-local ([`Core::current`]).
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
use std::rc::Rc;
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
/// A scheduler that is never idle looks at the clock every so often that it asks the observer, for whether it
/// is time to trim stacks: seldom enough to cost nothing.
const LOOK_EVERY: u32 = 64;

thread_local! {
    static CURRENT: Cell<Option<Rc<Core>>> = const { Cell::new(None) };
    /// The scheduler whose coroutine is the innermost that runs on this thread. It is only compared.
    static HERE: Cell<*const Core> = const { Cell::new(ptr::null()) };
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
    /// Handlers resumed since the observer was asked.
    resumed: Cell<u32>,
    trimming: Trimming,
    closing: Cell<bool>,
    unclaimed: Cell<Option<Failure>>,
    on_failure: Option<RefCell<FailureHook>>,
    threads: OnceCell<Arc<ThreadPool>>,
    source_threads: ThreadPlaces,
    limits: Limits,
}

/// When stacks are trimmed.
struct Trimming {
    /// Stacks may be left to trim.
    dirty: Cell<bool>,
    /// The scheduler has had nothing to do for `trim_after`.
    idle: Cell<bool>,
    /// Questions to the observer since the clock was looked at, and what it said then.
    asked: Cell<u32>,
    swept_at: Cell<Instant>,
}

impl Core {
    pub(crate) fn new(
        limits: Limits,
        clock: Clock,
        on_failure: Option<FailureHook>,
    ) -> io::Result<Rc<Core>> {
        let swept_at = Cell::new(clock.now());
        Ok(Rc::new(Core {
            observer: Observer::new(clock, limits.wait_max)?,
            repository: Repository::new(),
            stacks: RefCell::new(StackPool::new(limits.stack_size, limits.stacks_kept_max)),
            running: Cell::new(None),
            budget: Cell::new(BUDGET),
            resumed: Cell::new(0),
            trimming: Trimming {
                dirty: Cell::new(false),
                idle: Cell::new(false),
                asked: Cell::new(0),
                swept_at,
            },
            closing: Cell::new(false),
            unclaimed: Cell::new(None),
            on_failure: on_failure.map(RefCell::new),
            threads: OnceCell::new(),
            source_threads: ThreadPlaces::new(limits.source_threads_max),
            limits,
        }))
    }

    /// The scheduler whose loop is the innermost on this thread.
    pub(crate) fn current() -> Option<Rc<Core>> {
        let current = CURRENT.take();
        CURRENT.set(current.clone());
        current
    }

    /// The scheduler of the handler that runs on this thread.
    #[inline]
    pub(crate) fn of_handler() -> Option<Rc<Core>> {
        if HERE.get().is_null() { None } else { Core::current().filter(|core| core.runs_here()) }
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

    /// Makes this the current scheduler until the guard is dropped.
    #[inline]
    pub(crate) fn enter(self: &Rc<Core>) -> Entered {
        Entered { outer: CURRENT.replace(Some(self.clone())) }
    }

    /// Whether the innermost coroutine of this thread is one of this scheduler's.
    #[inline]
    pub(crate) fn runs_here(&self) -> bool {
        ptr::eq(HERE.get(), self)
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
        Ok(self.repository.create_object(|handler| Coroutine::new(stack, move || body(&handler))))
    }

    /// The next handler to resume: from the ready queue, or from whatever the observer reports within
    /// `limit`.
    #[inline(always)]
    pub(crate) fn get_ready_object(
        &self,
        limit: Option<Duration>,
    ) -> io::Result<Option<Rc<Handler>>> {
        let resumed = self.resumed.get();
        if resumed < ASK_EVERY
            && let Some(handler) = self.repository.pop_ready()
        {
            self.resumed.set(resumed + 1);
            return Ok(Some(handler));
        }
        self.resumed.set(1);
        self.ask_observer(limit)?;
        Ok(self.repository.pop_ready())
    }

    #[inline(always)]
    fn ask_observer(&self, limit: Option<Duration>) -> io::Result<()> {
        let limit = if self.repository.has_ready() { Some(Duration::ZERO) } else { limit };
        let trimming = &self.trimming;
        if !trimming.dirty.get() {
            return self.observer.wait_for_events(limit).map(drop);
        }
        trimming.asked.set(trimming.asked.get() + 1);
        if trimming.asked.get() >= LOOK_EVERY {
            self.sweep_if_due();
        }
        // Idle for so long, it has time to trim the stacks of those that wait, a batch at a time.
        let after = if trimming.idle.get() { Duration::ZERO } else { self.limits.trim_after };
        if limit.is_some_and(|limit| limit <= after) {
            return self.observer.wait_for_events(limit).map(drop);
        }
        if self.observer.wait_for_events(Some(after))? {
            trimming.idle.set(true);
            self.sweep(true);
        }
        Ok(())
    }

    /// Trims although it is not idle: what has not run since the last time.
    #[cold]
    fn sweep_if_due(&self) {
        let Trimming { asked, swept_at, .. } = &self.trimming;
        asked.set(0);
        let now = self.observer.now();
        if now.saturating_duration_since(swept_at.get()) >= self.limits.trim_after {
            swept_at.set(now);
            self.sweep(false);
        }
    }

    #[cold]
    fn sweep(&self, idles: bool) {
        let stacks = self.stacks.borrow_mut().trim(TRIM_BATCH);
        let handlers = self.repository.sweep(TRIM_BATCH, idles);
        self.trimming.dirty.set(stacks || handlers);
    }

    /// Resumes a handler until it suspends or ends. Returns its failure if it ended with one
    /// that is unobserved.
    #[inline(always)]
    pub(crate) fn resume(&self, handler: &Rc<Handler>) -> Option<Failure> {
        self.budget.set(BUDGET);
        self.trimming.dirty.set(true);
        self.trimming.idle.set(false);
        self.running.set(Some(handler.clone()));
        let outer = HERE.replace(self);
        let ended = handler.resume();
        HERE.set(outer);
        self.running.set(None);
        ended.and_then(|stack| self.remove(handler, stack))
    }

    /// Takes out a handler that ended, and calls `on_failure` with an unobserved failure.
    #[cold]
    fn remove(&self, handler: &Handler, stack: Stack) -> Option<Failure> {
        self.repository.remove(handler);
        self.stacks.borrow_mut().put(stack);
        let failure = self.unclaimed.take()?;
        if let Some(hook) = &self.on_failure {
            call_hook(&mut hook.borrow_mut(), &failure);
        }
        Some(failure)
    }

    /// Suspends the running handler until it is woken or the deadline is over. `enlist` leaves it where it
    /// will be woken from; `left` is called with it when it goes on.
    ///
    /// A cancelled handler unwinds instead of going on. One that unwinds already, by cancellation or
    /// by a panic, cannot be suspended: others would run in the midst of its panic. It goes on at once.
    #[inline(always)]
    pub(crate) fn park(
        &self,
        deadline: Option<Instant>,
        enlist: impl FnOnce(&Rc<Handler>),
        left: impl FnOnce(&Rc<Handler>, Cause),
    ) -> Parked {
        if thread::panicking() {
            return Parked::Unwinding;
        }
        let handler = self.take_running();
        enlist(&handler);
        let cause = match deadline {
            None => coroutine::suspend(),
            Some(at) => self.suspend_until(&handler, at),
        };
        left(&handler, cause);
        match cause {
            Cause::Event => Parked::Woken,
            Cause::Deadline => Parked::TimedOut,
            Cause::Cancelled => {
                drop(handler);
                unwind()
            }
        }
    }

    fn suspend_until(&self, handler: &Rc<Handler>, at: Instant) -> Cause {
        let timer = self.observer.wake_at(at, handler.clone());
        let cause = coroutine::suspend();
        self.observer.cancel_timer(timer);
        cause
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
        match self.park(ends, |_| (), |_, _| ()) {
            Parked::Unwinding => Err(unwinding()),
            Parked::Woken | Parked::TimedOut => Ok(()),
        }
    }

    /// Lets every handler that is ready go first, and the sources be asked.
    pub(crate) fn yield_now(&self) {
        if thread::panicking() {
            return;
        }
        self.take_running().requeue();
        if coroutine::suspend() == Cause::Cancelled {
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
            discard(self.resume(&handler));
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

/// Restores the current scheduler of this thread.
pub(crate) struct Entered {
    outer: Option<Rc<Core>>,
}

impl Entered {
    /// As dropping it, which is left to unwinding.
    #[inline(always)]
    pub(crate) fn leave(mut self) {
        CURRENT.set(self.outer.take());
        mem::forget(self);
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.outer.take());
    }
}
