//! Locks, atomics and threads: std's, or shuttle's under `--cfg shuttle`, so that the very code
//! that runs is the code whose interleavings are explored.

#[cfg(not(shuttle))]
mod imp {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    pub(crate) use std::sync::{Arc, Condvar, Mutex as RawMutex, MutexGuard as RawGuard, OnceLock};
    pub(crate) use std::thread::{self, JoinHandle, Thread};
    pub(crate) use std::thread_local;
    pub(crate) fn spin() {
        std::hint::spin_loop();
    }
}

#[cfg(shuttle)]
mod imp {
    pub(crate) use shuttle::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    pub(crate) use shuttle::sync::{Condvar, Mutex as RawMutex, MutexGuard as RawGuard};
    pub(crate) use shuttle::thread::{self, JoinHandle, Thread};
    pub(crate) use shuttle::thread_local;
    // Counts of references decide nothing here; and the model crate's handles are std's.
    pub(crate) use std::sync::{Arc, OnceLock};
    pub(crate) fn spin() {
        shuttle::thread::yield_now();
    }
}

pub(crate) use imp::*;
pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use std::sync::PoisonError;
use std::time::Duration;

/// A mutex without poisoning: user code runs outside every lock, so a panic cannot leave what a
/// lock guards half changed. In debug builds each thread counts the locks it holds, and user code
/// asserts that there are none (see `user.rs`).
#[derive(Default)]
pub(crate) struct Mutex<T>(RawMutex<T>);

/// Unlocks when it is dropped.
pub(crate) struct MutexGuard<'a, T> {
    raw: RawGuard<'a, T>,
    held: Held,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(RawMutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let raw = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard { raw, held: Held::new() }
    }
}

impl<T> std::ops::Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.raw
    }
}

impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.raw
    }
}

#[cfg(debug_assertions)]
imp::thread_local! {
    static LOCKS_HELD: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// One more lock is held by this thread, until this is dropped.
struct Held(std::marker::PhantomData<*const ()>);

impl Held {
    #[inline(always)]
    fn new() -> Self {
        #[cfg(debug_assertions)]
        LOCKS_HELD.with(|held| held.set(held.get() + 1));
        Held(std::marker::PhantomData)
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        LOCKS_HELD.with(|held| held.set(held.get() - 1));
    }
}

/// Asserts, in debug builds, that this thread holds no lock of the runtime.
#[inline(always)]
pub(crate) fn assert_unlocked() {
    #[cfg(debug_assertions)]
    LOCKS_HELD.with(|held| assert_eq!(held.get(), 0, "user code must not run under a lock"));
}

/// Waits on a condition variable, with a bound if there is one.
pub(crate) fn wait<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    bound: Option<Duration>,
) -> MutexGuard<'a, T> {
    let MutexGuard { raw, held } = guard;
    let raw = match bound {
        None => condvar.wait(raw).unwrap_or_else(PoisonError::into_inner),
        Some(bound) => condvar.wait_timeout(raw, bound).unwrap_or_else(PoisonError::into_inner).0,
    };
    MutexGuard { raw, held }
}

/// A named thread.
///
/// # Errors
/// The system has no room for one more.
pub(crate) fn spawn(
    name: String,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(body)
}

/// Alone on its cache lines (two of them: processors fetch them in pairs), so that what one core
/// writes does not take from another what it only reads.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    pub(crate) fn new(value: T) -> Self {
        CachePadded(value)
    }
}

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> std::ops::DerefMut for CachePadded<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
