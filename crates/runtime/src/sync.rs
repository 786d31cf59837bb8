//! Locks, atomics and threads: std's, or shuttle's under `--cfg shuttle`, so that the very code
//! that runs is the code whose interleavings are explored.

#[cfg(not(shuttle))]
mod imp {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
    pub(crate) use std::sync::{Arc, Condvar, Mutex as RawMutex, MutexGuard};
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
    pub(crate) use shuttle::sync::{Condvar, Mutex as RawMutex, MutexGuard};
    pub(crate) use shuttle::thread::{self, JoinHandle, Thread};
    pub(crate) use shuttle::thread_local;
    // Counts of references decide nothing here; and the model crate's handles are std's.
    pub(crate) use std::sync::Arc;
    pub(crate) fn spin() {
        shuttle::thread::yield_now();
    }
}

pub(crate) use imp::*;
pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

/// A mutex without poisoning: handlers run outside every lock, so a panic cannot leave what a
/// lock guards half changed.
#[derive(Default)]
pub(crate) struct Mutex<T>(RawMutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(RawMutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, unless someone has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Waits on a condition variable, with a bound if there is one.
pub(crate) fn wait<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    bound: Option<Duration>,
) -> MutexGuard<'a, T> {
    match bound {
        None => condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
        Some(bound) => condvar.wait_timeout(guard, bound).unwrap_or_else(PoisonError::into_inner).0,
    }
}

/// A named thread.
pub(crate) fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::Builder::new()
        .name(name)
        .spawn(body)
        .expect("the operating system has room for one more thread")
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
