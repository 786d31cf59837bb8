//! The scheduler: the interface of the document. It registers sources with their handlers, and
//! resumes whichever handler is ready: one (`step`), or all that come (`run`, the document's `loop`).

use crate::Failure;
use crate::clock::Clock;
use crate::core::{Core, Limits};
use crate::coroutine::Stack;
use crate::events::Events;
use crate::failure::{FailureHook, Outcome};
use crate::observer::Inbox;
use crate::repository::Handler;
use crate::source::EventSource;
use crate::task::{self, JoinHandle};
use std::error::Error;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The events that a mailbox holds unless its source chooses otherwise.
pub(crate) const EVENTS_MAX: usize = 1024;
/// Failures that [`Scheduler::run`] keeps; it counts the others.
const FAILURES_KEPT_MAX: usize = 16;
/// Room for ordinary code, serde and formatting, also without optimisation. It is address space, not
/// memory: only pages that were touched are resident.
const STACK_SIZE: usize = 1024 * 1024;
const STACKS_KEPT_MAX: usize = 1024;
/// Each stack is two mappings, and Linux allows 65,530 a process by default.
const COROUTINES_MAX: usize = 30_000;
const WAIT_MAX: Duration = Duration::from_millis(5);
const TRIM_AFTER: Duration = Duration::from_millis(100);
const BLOCKING_THREADS_MAX: usize = 16;
/// Far more than devices; a program that needs more of them should not give each a thread.
const SOURCE_THREADS_MAX: usize = 256;

/// Waits for event sources of every kind on one thread, and runs their handlers as coroutines.
///
/// It stays on the thread that made it. Dropping it cancels every coroutine, which unwinds.
///
/// ```
/// use comporta_scheduler::{Scheduler, sources};
/// use std::time::Duration;
///
/// let mut scheduler = Scheduler::builder().virtual_time().build()?;
/// let mut ticks = 0;
/// scheduler.register_source(sources::every(Duration::from_secs(60)), move |_at| {
///     ticks += 1;
///     if ticks == 3 {
///         comporta_scheduler::stop();
///     }
/// })?;
/// scheduler.run()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Scheduler {
    core: Rc<Core>,
}

/// What a step did.
#[derive(Debug)]
#[must_use]
pub enum Step {
    /// One coroutine was resumed; it suspended again, or ended.
    Resumed,
    /// One coroutine was resumed, and failed unobserved (see [`Failure`]).
    Failed(Box<Failure>),
    /// Nothing was ready within the limit.
    Idle,
    /// A stop was requested.
    Stopped,
    /// There is no coroutine left.
    Complete,
}

/// How [`Scheduler::run`] ended.
#[derive(Debug)]
pub struct Summary {
    /// Whether it was stopped; otherwise no coroutine was left.
    pub stopped: bool,
    /// How many coroutines failed unobserved: see [`Step::Failed`].
    pub failed: u64,
    /// The first of their failures, up to 16.
    pub failures: Vec<Failure>,
}

/// Stops a scheduler, from any thread.
#[derive(Clone)]
pub struct Handle {
    inbox: Arc<Inbox>,
}

impl Handle {
    /// Asks the scheduler to return from `run` or `step` when the coroutine that runs has suspended.
    /// One that does not run returns at once from the next call. The coroutines stay as they are:
    /// the scheduler can be run again.
    pub fn stop(&self) {
        self.inbox.stop();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Creates a scheduler with the default bounds.
    ///
    /// # Errors
    /// Returns an error if the system has no descriptors left.
    pub fn new() -> io::Result<Scheduler> {
        Scheduler::builder().build()
    }

    /// Returns a builder for a scheduler with other bounds.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Registers a source with its handler, which is called with each event, one after the other, in
    /// a coroutine of its own. While it is suspended further events wait in the source's mailbox.
    ///
    /// The coroutine ends when the source ends or fails, or when the handler returns an error, panics
    /// or is cancelled; the source is taken out then.
    ///
    /// # Errors
    /// Like [`spawn`](crate::spawn), or the error of the source.
    pub fn register_source<S, R>(
        &mut self,
        source: S,
        handler: impl FnMut(S::Event) -> R + 'static,
    ) -> io::Result<JoinHandle<()>>
    where
        S: EventSource,
        R: Outcome,
    {
        register(&self.core, source, handler)
    }

    /// Runs `f` in a new coroutine.
    ///
    /// # Errors
    /// Like [`spawn`](crate::spawn).
    pub fn spawn<T: 'static>(
        &mut self,
        f: impl FnOnce() -> T + 'static,
    ) -> io::Result<JoinHandle<T>> {
        task::start(&self.core, || Ok(f()))
    }

    /// Runs `f` in a new coroutine. An error that it returns is a [`Failure`].
    ///
    /// # Errors
    /// Like [`spawn_fallible`](crate::spawn_fallible).
    pub fn spawn_fallible<T: 'static, E: Into<Box<dyn Error>> + 'static>(
        &mut self,
        f: impl FnOnce() -> Result<T, E> + 'static,
    ) -> io::Result<JoinHandle<T>> {
        task::start_fallible(&self.core, f)
    }

    /// Resumes one coroutine: the first that is ready. If none is, waits for an event that makes one ready.
    ///
    /// # Errors
    /// Returns an error if the system call for events fails, or if the thread is panicking (in a `Drop`).
    pub fn step(&mut self) -> io::Result<Step> {
        self.step_inlined()
    }

    /// As [`Scheduler::step`], for loops.
    #[inline(always)]
    fn step_inlined(&self) -> io::Result<Step> {
        if let Some(handler) = self.take_next() {
            // What mostly happens is told apart, so that it is short.
            if let Some(stack) = self.core.resume(&handler) {
                return Ok(self.end(&handler, stack));
            }
            return Ok(Step::Resumed);
        }
        self.wait_and_step(None)
    }

    /// Like [`Scheduler::step`], but waits no longer than `limit`; [`Duration::ZERO`] does not wait.
    ///
    /// # Errors
    /// Like [`Scheduler::step`].
    pub fn step_within(&mut self, limit: Duration) -> io::Result<Step> {
        self.wait_and_step(Some(limit))
    }

    /// The next handler, on the shortest way: see [`Core::take_next`].
    #[inline(always)]
    fn take_next(&self) -> Option<Rc<Handler>> {
        if thread::panicking() { None } else { self.core.take_next() }
    }

    /// A handler has ended.
    #[cold]
    fn end(&self, handler: &Handler, stack: Stack) -> Step {
        let _entered = self.core.enter();
        self.core.remove(handler, stack).map_or(Step::Resumed, Step::Failed)
    }

    #[inline(never)]
    fn wait_and_step(&self, limit: Option<Duration>) -> io::Result<Step> {
        if thread::panicking() {
            // No handler could be suspended: see `Core::park`.
            let refused = "the thread is panicking, so no coroutine can be resumed";
            return Err(io::Error::other(refused));
        }
        let core = &self.core;
        let _entered = core.enter();
        let deadline = match limit {
            None | Some(Duration::ZERO) => None,
            limit => core.deadline(limit),
        };
        let mut wait = limit;
        loop {
            if core.observer.inbox().take_stop() {
                return Ok(Step::Stopped);
            }
            if core.handlers() == 0 {
                return Ok(Step::Complete);
            }
            if let Some(handler) = core.get_ready_object(wait)? {
                let ended = core.resume(&handler);
                return Ok(ended.map_or(Step::Resumed, |stack| self.end(&handler, stack)));
            }
            if wait == Some(Duration::ZERO) {
                return Ok(Step::Idle);
            }
            if let Some(deadline) = deadline {
                wait = Some(deadline.saturating_duration_since(core.observer.now()));
            }
        }
    }

    /// Steps until [`Handle::stop`] or [`stop`](crate::stop) is called, or no coroutine is left.
    /// A failure of a coroutine does not end it.
    ///
    /// # Errors
    /// Like [`Scheduler::step`].
    pub fn run(&mut self) -> io::Result<Summary> {
        let mut summary = Summary { stopped: false, failed: 0, failures: Vec::new() };
        loop {
            match self.step_inlined()? {
                Step::Resumed | Step::Idle => {}
                Step::Failed(failure) => summary.add(*failure),
                Step::Stopped => {
                    summary.stopped = true;
                    return Ok(summary);
                }
                Step::Complete => return Ok(summary),
            }
        }
    }

    /// Runs `f` in a new coroutine, and all others with it, until it has ended. Unobserved
    /// failures of others go to [`Builder::on_failure`] only.
    ///
    /// # Errors
    /// Returns the failure of the coroutine: a panic, [`Failure::Cancelled`] if the scheduler was stopped before
    /// its end, or [`Failure::Error`] if it could not start or go on.
    pub fn block_on<T: 'static>(&mut self, f: impl FnOnce() -> T + 'static) -> Result<T, Failure> {
        let error = |error: io::Error| Failure::Error(error.into());
        let handle = self.spawn(f).map_err(error)?;
        if self.run_until(&|| handle.is_finished()).map_err(error)? {
            return handle.join();
        }
        handle.cancel();
        Err(Failure::Cancelled)
    }

    /// Steps until `is_over` returns `true`. Returns `false` if it was stopped before.
    fn run_until(&mut self, is_over: &dyn Fn() -> bool) -> io::Result<bool> {
        while !is_over() {
            match self.step_inlined()? {
                Step::Stopped => return Ok(false),
                Step::Failed(failure) => crate::failure::discard(failure),
                Step::Resumed | Step::Idle | Step::Complete => {}
            }
        }
        Ok(true)
    }

    /// Returns a handle that stops this scheduler from any thread.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { inbox: self.core.observer.inbox().clone() }
    }

    /// Returns the number of coroutines that have not ended.
    #[must_use]
    pub fn coroutines(&self) -> usize {
        self.core.handlers()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.core.close();
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("coroutines", &self.coroutines()).finish_non_exhaustive()
    }
}

impl Summary {
    fn add(&mut self, failure: Failure) {
        self.failed += 1;
        if self.failures.len() < FAILURES_KEPT_MAX {
            self.failures.push(failure);
        } else {
            crate::failure::discard(failure);
        }
    }
}

/// Registers a source with the current scheduler: see [`Scheduler::register_source`]. A handler may
/// do so while it runs, also with itself.
///
/// # Errors
/// Like [`Scheduler::register_source`].
///
/// # Panics
/// Panics outside a scheduler.
pub fn register_source<S, R>(
    source: S,
    handler: impl FnMut(S::Event) -> R + 'static,
) -> io::Result<JoinHandle<()>>
where
    S: EventSource,
    R: Outcome,
{
    register(&task::current("register_source"), source, handler)
}

fn register<S, R>(
    core: &Rc<Core>,
    source: S,
    mut handler: impl FnMut(S::Event) -> R + 'static,
) -> io::Result<JoinHandle<()>>
where
    S: EventSource,
    R: Outcome,
{
    let events = Events::of(core, source, EVENTS_MAX)?;
    task::start(core, move || {
        while let Some(event) = events.next().map_err(|error| Failure::Error(error.into()))? {
            handler(event).into_result().map_err(Failure::Error)?;
        }
        Ok(())
    })
}

/// Registers a source with the current scheduler, so that this coroutine can take its events.
///
/// # Errors
/// Returns the error of the source.
///
/// # Panics
/// Panics outside a scheduler.
pub fn listen<S: EventSource>(source: S) -> io::Result<Events<S::Event>> {
    Events::of(&task::current("listen"), source, EVENTS_MAX)
}

/// Builds a scheduler with other bounds than the default.
#[must_use]
pub struct Builder {
    limits: Limits,
    virtual_time: bool,
    on_failure: Option<FailureHook>,
}

impl Builder {
    fn new() -> Builder {
        Builder {
            limits: Limits {
                stack_size: STACK_SIZE,
                stacks_kept_max: STACKS_KEPT_MAX,
                coroutines_max: COROUTINES_MAX,
                wait_max: WAIT_MAX,
                trim_after: TRIM_AFTER,
                blocking_threads_max: BLOCKING_THREADS_MAX,
                source_threads_max: SOURCE_THREADS_MAX,
            },
            virtual_time: false,
            on_failure: None,
        }
    }

    /// Sets the size of each stack in bytes (default 1 MiB), rounded up to whole pages. Only the pages that
    /// were used take memory; an overflow hits a guard page and ends the process.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        // More would overflow when it is rounded up; the system refuses this, too.
        self.limits.stack_size = bytes.min(isize::MAX as usize);
        self
    }

    /// Sets how many stacks are kept for new coroutines (default 1,024).
    pub fn stacks_kept_max(mut self, stacks: usize) -> Builder {
        self.limits.stacks_kept_max = stacks;
        self
    }

    /// Sets how many coroutines there may be at once (default 30,000); spawning another is an error.
    pub fn coroutines_max(mut self, coroutines: usize) -> Builder {
        self.limits.coroutines_max = coroutines;
        self
    }

    /// Sets the longest wait in one demultiplexer while there are several (default 5 ms). Each source made by
    /// `sources::polled` can delay the others by that much.
    pub fn wait_max(mut self, wait: Duration) -> Builder {
        self.limits.wait_max = wait;
        self
    }

    /// Sets how long the scheduler must have been idle, or a coroutine must not have run, before unused pages
    /// of suspended stacks are returned to the system (default 100 ms, or a little more).
    pub fn trim_after(mut self, idle: Duration) -> Builder {
        self.limits.trim_after = idle;
        self
    }

    /// Sets how many threads [`spawn_blocking`](crate::spawn_blocking) may use (default 16, at least 1).
    pub fn blocking_threads_max(mut self, threads: usize) -> Builder {
        self.limits.blocking_threads_max = threads.max(1);
        self
    }

    /// Sets how many threads blocking sources may have (default 256); registering another source is an error.
    /// The thread of a source that was removed counts until its current call returns.
    pub fn source_threads_max(mut self, threads: usize) -> Builder {
        self.limits.source_threads_max = threads;
        self
    }

    /// Calls `hook` with each unobserved [`Failure`], before
    /// [`step`](Scheduler::step), [`run`](Scheduler::run) or [`block_on`](Scheduler::block_on) goes on.
    /// It must not suspend; a panic in it is ignored.
    pub fn on_failure(mut self, hook: impl FnMut(&Failure) + 'static) -> Builder {
        self.on_failure = Some(Box::new(hook));
        self
    }

    /// Uses virtual time, for tests: the clock stands still while anything is ready, and then jumps to the next
    /// timer. Other threads and processes take no virtual time, and are not waited for while there are timers.
    pub fn virtual_time(mut self) -> Builder {
        self.virtual_time = true;
        self
    }

    /// Builds the scheduler.
    ///
    /// # Errors
    /// Returns an error if the system has no descriptors left.
    pub fn build(self) -> io::Result<Scheduler> {
        let clock = if self.virtual_time { Clock::virtual_time() } else { Clock::System };
        Ok(Scheduler { core: Core::new(self.limits, clock, self.on_failure)? })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("limits", &self.limits).finish_non_exhaustive()
    }
}
