//! What joins the parts: the repository, the observer, the stacks, and who runs now.
//! [`Scheduler`](crate::Scheduler) owns it; operations inside of handlers find it through a
//! thread-local ([`Core::current`]).
//!
//! Invariants: user code runs only inside of coroutines, in a polled source or in `attach`, and then
//! nothing here is borrowed. The observer is asked when the ready queue is empty, and after at most
//! `ASK_EVERY` handlers otherwise; a handler is suspended after at most `BUDGET` operations. So neither
//! a handler nor a source can keep another from its turn, unless it never calls an operation.

use crate::Failure;
use crate::blocking::ThreadPool;
use crate::clock::Clock;
use crate::coroutine::{self, Coroutine, StackPool};
use crate::failure::discard;
use crate::observer::{Observer, TimerTarget};
use crate::repository::{Cause, Control, ReadyObject, Repository, Waker};
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
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
/// A busy scheduler looks for stacks to trim every so often that it asks the observer.
const SWEEP_EVERY: u32 = 1024;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
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
}

pub(crate) struct Core {
    pub(crate) observer: Observer,
    repository: RefCell<Repository>,
    stacks: RefCell<StackPool>,
    running: RefCell<Option<Rc<Control>>>,
    /// Operations left to the running handler before it lets others go first.
    budget: Cell<u32>,
    /// Handlers resumed since the observer was asked, and questions since the last sweep.
    resumed: Cell<u32>,
    asked: Cell<u32>,
    /// Whether stacks may be left to trim, and whether it was idle for long enough to do so.
    dirty: Cell<bool>,
    idle: Cell<bool>,
    closing: Cell<bool>,
    unclaimed: RefCell<Option<Failure>>,
    turn: Cell<usize>,
    threads: OnceCell<Arc<ThreadPool>>,
    limits: Limits,
}

impl Core {
    pub(crate) fn new(limits: Limits, clock: Clock) -> io::Result<Rc<Core>> {
        Ok(Rc::new(Core {
            observer: Observer::new(clock, limits.wait_max)?,
            repository: RefCell::new(Repository::new()),
            stacks: RefCell::new(StackPool::new(limits.stack_size, limits.stacks_kept_max)),
            running: RefCell::new(None),
            budget: Cell::new(BUDGET),
            resumed: Cell::new(0),
            asked: Cell::new(0),
            dirty: Cell::new(false),
            idle: Cell::new(false),
            closing: Cell::new(false),
            unclaimed: RefCell::new(None),
            turn: Cell::new(0),
            threads: OnceCell::new(),
            limits,
        }))
    }

    /// The scheduler whose loop is the innermost on this thread.
    pub(crate) fn current() -> Option<Rc<Core>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// The scheduler of the handler that runs on this thread.
    pub(crate) fn of_handler() -> Option<Rc<Core>> {
        Core::current().filter(|core| core.running.borrow().is_some())
    }

    /// As [`Core::of_handler`].
    ///
    /// # Panics
    /// Outside of a coroutine of a scheduler.
    #[track_caller]
    pub(crate) fn expect_handler(operation: &str) -> Rc<Core> {
        Core::of_handler().unwrap_or_else(|| {
            panic!("`{operation}` was called outside of a scheduler's coroutine")
        })
    }

    /// Makes this the current scheduler until the guard is dropped.
    pub(crate) fn enter(self: &Rc<Core>) -> Entered {
        Entered { outer: CURRENT.replace(Some(self.clone())) }
    }

    /// Whether the innermost coroutine of this thread is one of this scheduler's.
    #[inline]
    pub(crate) fn runs_here(&self) -> bool {
        let own = |core: &Option<Rc<Core>>| core.as_deref().is_some_and(|core| ptr::eq(core, self));
        CURRENT.with_borrow(own) && self.running.borrow().is_some()
    }

    /// Wakes the running handler from the suspension that comes next.
    #[inline]
    pub(crate) fn waker(&self) -> Waker {
        self.of_running(Control::waker)
    }

    #[inline]
    fn of_running<R>(&self, get: impl FnOnce(&Control) -> R) -> R {
        get(self.running.borrow().as_deref().expect("only handlers suspend"))
    }

    fn unwind_if_cancelled(&self) {
        if self.of_running(Control::is_cancelled) {
            panic::resume_unwind(Box::new(Unwound));
        }
    }

    pub(crate) fn running(&self) -> Option<Rc<Control>> {
        self.running.borrow().clone()
    }

    pub(crate) fn handlers(&self) -> usize {
        self.repository.borrow().len()
    }

    /// The scheduler is going down: nothing new begins.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// Puts a handler that will run `body`, which must not unwind, into the ready queue.
    pub(crate) fn create_object(
        &self,
        control: Rc<Control>,
        body: impl FnOnce() + 'static,
    ) -> io::Result<()> {
        let most = self.limits.coroutines_max;
        if self.handlers() >= most {
            let message = format!("{most} coroutines exist, which is the limit");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
        }
        let stack = self.stacks.borrow_mut().take()?;
        let coroutine = Coroutine::new(stack, body);
        self.repository.borrow_mut().create_object(coroutine, control);
        Ok(())
    }

    /// The next handler to resume: from the ready queue, or from whatever the observer reports within
    /// `limit`.
    pub(crate) fn get_ready_object(
        &self,
        limit: Option<Duration>,
    ) -> io::Result<Option<ReadyObject>> {
        if self.resumed.get() < ASK_EVERY
            && let Some(object) = self.repository.borrow_mut().pop_ready()
        {
            self.resumed.set(self.resumed.get() + 1);
            return Ok(Some(object));
        }
        self.resumed.set(1);
        self.ask_observer(limit)?;
        Ok(self.repository.borrow_mut().pop_ready())
    }

    fn ask_observer(&self, limit: Option<Duration>) -> io::Result<()> {
        let limit = if self.repository.borrow().has_ready() { Some(Duration::ZERO) } else { limit };
        self.asked.set(self.asked.get() + 1);
        if self.asked.get() >= SWEEP_EVERY {
            self.asked.set(0);
            self.sweep(false);
        }
        // Idle for so long, it has time to trim the stacks of those that wait, a batch at a time.
        let after = if self.idle.get() { Duration::ZERO } else { self.limits.trim_after };
        if self.dirty.get() && limit.is_none_or(|limit| limit > after) {
            self.idle.set(self.wait_for_events(Some(after))?);
            if self.idle.get() {
                self.sweep(true);
            }
            return Ok(());
        }
        self.wait_for_events(limit).map(drop)
    }

    fn wait_for_events(&self, limit: Option<Duration>) -> io::Result<bool> {
        self.observer.wait_for_events(limit, &|waker| {
            self.repository.borrow_mut().wake(waker, Cause::Deadline);
        })
    }

    fn sweep(&self, idles: bool) {
        let stacks = self.stacks.borrow_mut().trim(TRIM_BATCH);
        let handlers = self.repository.borrow_mut().sweep(TRIM_BATCH, idles);
        self.dirty.set(stacks || handlers);
    }

    /// Resumes a handler until it suspends or ends.
    pub(crate) fn resume(&self, object: ReadyObject) {
        let ReadyObject { key, mut coroutine, control } = object;
        self.budget.set(BUDGET);
        self.dirty.set(true);
        self.idle.set(false);
        let mut outer = self.running.replace(Some(control));
        let restore = OnDrop(|| drop(self.running.replace(outer.take())));
        let ended = coroutine.resume();
        drop(restore);
        if ended {
            let object = self.repository.borrow_mut().remove(key);
            discard(object);
            self.stacks.borrow_mut().put(coroutine.into_stack());
        } else {
            self.repository.borrow_mut().put_back(key, coroutine);
        }
    }

    /// Suspends the running handler until one of its wakers is woken or the deadline is over.
    ///
    /// A cancelled handler unwinds instead of going on. One that unwinds already, by cancellation or
    /// by a panic, cannot be suspended: others would run in the midst of its panic. It goes on at once.
    pub(crate) fn park(&self, deadline: Option<Instant>) -> Parked {
        if thread::panicking() {
            return Parked::Unwinding;
        }
        self.unwind_if_cancelled();
        let timer = deadline.map(|at| {
            let waker = self.waker();
            let key = self.observer.timers().borrow_mut().insert(at, TimerTarget::Handler(waker));
            OnDrop(move || {
                self.observer.timers().borrow_mut().remove(key);
            })
        });
        coroutine::suspend();
        drop(timer);
        self.unwind_if_cancelled();
        match self.of_running(Control::cause) {
            Cause::Event => Parked::Woken,
            Cause::Deadline => Parked::TimedOut,
        }
    }

    /// Lets every handler that is ready go first, and the sources be asked.
    pub(crate) fn yield_now(&self) {
        if thread::panicking() {
            return;
        }
        self.unwind_if_cancelled();
        self.repository.borrow_mut().requeue(self.waker());
        coroutine::suspend();
        self.unwind_if_cancelled();
    }

    /// To be called before an operation that may complete without suspending.
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

    pub(crate) fn wake(&self, waker: Waker) -> bool {
        self.repository.borrow_mut().wake(waker, Cause::Event)
    }

    pub(crate) fn cancel(&self, control: &Control) {
        control.cancel();
        if let Some(key) = control.key() {
            self.repository.borrow_mut().interrupt(key);
        }
    }

    /// A number that changes with every call: who of several goes first.
    pub(crate) fn take_turn(&self) -> usize {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        turn
    }

    /// A failure of which nobody else will hear: for the caller of `step`.
    pub(crate) fn report(&self, failure: Failure) {
        let before = self.unclaimed.replace(Some(failure));
        debug_assert!(before.is_none(), "a handler ends once, and `step` takes its failure");
    }

    pub(crate) fn take_unclaimed(&self) -> Option<Failure> {
        self.unclaimed.take()
    }

    pub(crate) fn deadline(&self, limit: Option<Duration>) -> Option<Instant> {
        limit.and_then(|limit| self.observer.now().checked_add(limit))
    }

    pub(crate) fn threads(&self) -> &Arc<ThreadPool> {
        self.threads.get_or_init(|| ThreadPool::new(self.limits.blocking_threads_max))
    }

    /// Cancels every handler and lets it unwind.
    pub(crate) fn close(self: &Rc<Core>) {
        let _entered = self.enter();
        self.closing.set(true);
        let keys = self.repository.borrow().keys();
        for key in keys {
            let control = self.repository.borrow().control(key).cloned();
            if let Some(control) = control {
                self.cancel(&control);
            }
        }
        // A handler may wake others while it unwinds, but none begins, and none suspends again.
        loop {
            let object = self.repository.borrow_mut().pop_ready();
            let Some(object) = object else { break };
            self.resume(object);
            discard(self.take_unclaimed());
        }
        if let Some(threads) = self.threads.get() {
            threads.close();
        }
    }
}

/// Restores the current scheduler of this thread.
pub(crate) struct Entered {
    outer: Option<Rc<Core>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let inner = CURRENT.replace(self.outer.take());
        drop(inner);
    }
}

/// Calls its function when dropped, also by unwinding.
pub(crate) struct OnDrop<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
