//! A coroutine from its beginning to its end: [`spawn`], what it may do about itself, and the
//! [`JoinHandle`] by which others wait for it or cancel it.
//!
//! At its end, in this order: the body returns, panics or unwinds; its finalizers run, the last one
//! first, in the same coroutine; then the result goes to the handle, or, if that was dropped, a failure
//! that no finalizer has seen goes to the caller of `step` or `run`.
//! Invariant: nothing unwinds out of [`body`].

use crate::Failure;
use crate::core::{Core, Parked, Unwound};
use crate::failure::discard;
use crate::repository::{FINALIZERS_MAX, Handler, Refused};
use crate::wait_list::WaitList;
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Where the result of a coroutine is left for its handle.
struct Slot<T> {
    result: RefCell<Option<Result<T, Failure>>>,
    ended: Cell<bool>,
    waiting: WaitList,
}

/// A handle to a spawned coroutine, which goes on if the handle is dropped.
pub struct JoinHandle<T> {
    slot: Rc<Slot<T>>,
    handler: Rc<Handler>,
    core: Rc<Core>,
}

impl<T> JoinHandle<T> {
    /// Waits for the coroutine to end, and returns its result.
    ///
    /// # Errors
    /// Returns an error if the coroutine panicked, was cancelled or failed, or if the caller is unwinding and
    /// would have to wait ([`Failure::Cancelled`]).
    ///
    /// # Panics
    /// Panics if it has not ended and this is not another coroutine of the same scheduler. Two that join each other
    /// wait until one of them is cancelled.
    pub fn join(self) -> Result<T, Failure> {
        self.wait(None).unwrap_or(Err(Failure::Cancelled))
    }

    /// Like [`JoinHandle::join`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// Returns the handle if the coroutine has not ended in time.
    ///
    /// # Panics
    /// Like [`JoinHandle::join`].
    pub fn join_timeout(self, limit: Duration) -> Result<Result<T, Failure>, JoinHandle<T>> {
        let deadline = self.core.deadline(Some(limit));
        self.wait(deadline).ok_or(self)
    }

    fn wait(&self, deadline: Option<Instant>) -> Option<Result<T, Failure>> {
        while !self.slot.ended.get() {
            let here = self.core.runs_here();
            assert!(here, "`JoinHandle::join` would wait outside of a coroutine of its scheduler");
            let own = Rc::ptr_eq(&self.handler, &self.core.running());
            assert!(!own, "a coroutine that joins itself would wait for ever");
            match self.slot.waiting.park(&self.core, deadline) {
                Parked::Woken => {}
                Parked::TimedOut | Parked::Unwinding => break,
            }
        }
        self.slot.result.borrow_mut().take()
    }

    /// Returns `true` if the coroutine has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.slot.ended.get()
    }

    /// Cancels the coroutine: it unwinds from where it is suspended, or suspends next, so that `Drop` runs.
    /// Returns at once. Does nothing the second time, or if the coroutine has ended.
    pub fn cancel(&self) {
        self.handler.cancel();
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish_non_exhaustive()
    }
}

/// Runs `f` in a new coroutine of the current scheduler.
///
/// The return value of `f` is for the holder of the handle, even if it is an `Err`; if the handle was dropped, so is
/// the value. Use [`spawn_fallible`] for errors that must not go unseen.
///
/// # Errors
/// Returns an error if there are too many coroutines, if the system has no memory for a stack, or if the
/// scheduler is being dropped.
///
/// # Panics
/// Panics outside a scheduler.
pub fn spawn<T: 'static>(f: impl FnOnce() -> T + 'static) -> io::Result<JoinHandle<T>> {
    start(&current("spawn"), || Ok(f()))
}

/// Runs `f` in a new coroutine of the current scheduler. An error that it returns is a [`Failure`]: its
/// finalizers see it, then the holder of its handle; if it is unobserved, it is reported as a panic is.
///
/// # Errors
/// Like [`spawn`].
///
/// # Panics
/// Like [`spawn`].
pub fn spawn_fallible<T: 'static, E: Into<Box<dyn Error>> + 'static>(
    f: impl FnOnce() -> Result<T, E> + 'static,
) -> io::Result<JoinHandle<T>> {
    start_fallible(&current("spawn_fallible"), f)
}

pub(crate) fn start_fallible<T: 'static, E: Into<Box<dyn Error>> + 'static>(
    core: &Rc<Core>,
    f: impl FnOnce() -> Result<T, E> + 'static,
) -> io::Result<JoinHandle<T>> {
    start(core, || f().map_err(|error| Failure::Error(error.into())))
}

#[track_caller]
pub(crate) fn current(operation: &str) -> Rc<Core> {
    Core::current().unwrap_or_else(|| panic!("`{operation}` was called outside of a scheduler"))
}

/// Like [`spawn`], of a given scheduler, and with a failure that is not a panic.
pub(crate) fn start<T: 'static>(
    core: &Rc<Core>,
    f: impl FnOnce() -> Result<T, Failure> + 'static,
) -> io::Result<JoinHandle<T>> {
    if core.is_closing() {
        return Err(io::Error::other("the scheduler is being dropped"));
    }
    let slot = Rc::new(Slot {
        result: RefCell::new(None),
        ended: Cell::new(false),
        waiting: WaitList::default(),
    });
    let own = slot.clone();
    let handler = core.create_object(move |handler| body(f, handler, own))?;
    Ok(JoinHandle { slot, handler, core: core.clone() })
}

/// What runs in a coroutine.
fn body<T>(f: impl FnOnce() -> Result<T, Failure>, handler: &Handler, slot: Rc<Slot<T>>) {
    let mut result = if handler.is_cancelled() {
        discard(f);
        Err(Failure::Cancelled)
    } else {
        guarded(f)
    };
    let finalized = finalize(handler, &mut result);
    slot.ended.set(true);
    if Rc::strong_count(&slot) > 1 {
        slot.result.replace(Some(result));
        slot.waiting.wake_all();
        return discard(slot);
    }
    match result {
        Err(Failure::Cancelled) => {}
        Err(failure) if !finalized => {
            if let Some(core) = Core::current() {
                core.report(failure);
            }
        }
        result => discard(result),
    }
}

/// Runs the finalizers; returns whether there were any. The first failure is the coroutine's.
fn finalize<T>(handler: &Handler, result: &mut Result<T, Failure>) -> bool {
    let mut any = false;
    while let Some(finalizer) = handler.pop_finalizer() {
        any = true;
        let end = result.as_ref().map(drop);
        let finalized = guarded(|| {
            finalizer(end);
            Ok(())
        });
        match (finalized, &*result) {
            (Err(failure), Ok(_)) => discard(std::mem::replace(result, Err(failure))),
            // The payload of a second panic, which may panic when dropped.
            (other, _) => discard(other),
        }
    }
    any
}

fn guarded<T>(f: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        if payload.is::<Unwound>() { Err(Failure::Cancelled) } else { Err(Failure::Panic(payload)) }
    })
}

/// Registers a finalizer for the end of this coroutine, however it ends. Finalizers run in the
/// coroutine itself, after its body, the last one first; they may suspend, unless it was cancelled.
///
/// # Panics
/// Panics outside a coroutine; in one whose finalizers have run (in the `Drop` of its result); and in one that
/// has 1,024 of them. They are for the coroutine, not for each event of it.
pub fn on_end(finalizer: impl FnOnce(Result<(), &Failure>) + 'static) {
    let handler = Core::expect_handler("on_end").running();
    let (refused, why) = match handler.push_finalizer(Box::new(finalizer)) {
        Ok(()) => return,
        Err(Refused::Late(refused)) => (refused, "after the finalizers of the coroutine have run"),
        Err(Refused::Full(refused)) => (refused, "by a coroutine that has as many as it may have"),
    };
    discard(refused);
    panic!("`on_end` was called {why} (at most {FINALIZERS_MAX})");
}

/// Returns `true` if this coroutine was cancelled: it unwinds, or will do so where it suspends next. For code that
/// catches panics and goes on, as a loop of a server may: cancellation is one that it must not go on after.
///
/// # Panics
/// Panics outside a coroutine.
#[must_use]
pub fn is_cancelled() -> bool {
    Core::expect_handler("is_cancelled").running().is_cancelled()
}

/// Suspends this coroutine for `time`, or a little longer.
///
/// Returns at once in a coroutine that is unwinding.
///
/// # Panics
/// Panics outside a coroutine.
pub fn sleep(time: Duration) {
    let core = Core::expect_handler("sleep");
    // A time that the clock cannot say never comes.
    let deadline = core.deadline(Some(time));
    let _: Parked = core.park(deadline, drop, |_| ());
}

/// Yields to every coroutine that is ready, and polls the sources.
///
/// # Panics
/// Panics outside a coroutine.
pub fn yield_now() {
    Core::expect_handler("yield_now").yield_now();
}

/// Returns the time of the current scheduler, which may be virtual.
///
/// # Panics
/// Panics outside a scheduler.
#[must_use]
pub fn now() -> Instant {
    current("now").observer.now()
}

/// Asks the current scheduler to return from `run`, as [`Handle::stop`](crate::Handle::stop) does.
/// The coroutine goes on until it suspends.
///
/// # Panics
/// Panics outside a scheduler.
pub fn stop() {
    current("stop").observer.inbox().stop();
}
