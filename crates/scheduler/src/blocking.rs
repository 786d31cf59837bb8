//! Work that blocks, on threads of its own: [`spawn_blocking`], and the places of the threads that blocking
//! sources have. The threads of the former belong to the scheduler,
//! are started as they are needed, up to a number, and end when they had nothing to do for a while.
//! Invariant: jobs run, and are dropped, under no lock.

use crate::Failure;
use crate::events::Events;
use crate::notifier::Notifier;
use crate::source::{EventSource, Registration};
use crate::task::current;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Jobs that wait for a thread; another is refused.
const JOBS_MAX: usize = 4096;
/// After so long with nothing to do a thread ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;
type Outcome<T> = Result<T, Box<dyn Any + Send>>;

/// A job that runs on another thread. The job goes on if the handle is dropped.
pub struct BlockingHandle<T> {
    outcome: Events<Outcome<T>>,
}

impl<T> BlockingHandle<T> {
    /// Suspends the coroutine until the job is done, and returns its result.
    ///
    /// # Errors
    /// Returns an error if the job panicked, and [`Failure::Error`] if the coroutine is unwinding and would have
    /// to wait.
    ///
    /// # Panics
    /// Panics if it is not done and this is not a coroutine of the same scheduler.
    pub fn join(self) -> Result<T, Failure> {
        match self.outcome.next() {
            Ok(Some(Ok(value))) => Ok(value),
            Ok(Some(Err(payload))) => Err(Failure::Panic(payload)),
            Ok(None) => Err(Failure::Cancelled),
            Err(error) => Err(Failure::Error(error.into())),
        }
    }
}

impl<T> fmt::Debug for BlockingHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingHandle").finish_non_exhaustive()
    }
}

/// Runs `f`, which may block, on a thread of the current scheduler's pool.
///
/// # Errors
/// Returns an error if 4,096 jobs wait for a thread, or if there is no thread and the system cannot start one.
///
/// # Panics
/// Panics outside a scheduler.
pub fn spawn_blocking<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<BlockingHandle<T>> {
    let core = current("spawn_blocking");
    let threads = core.threads().clone();
    let outcome = Events::of(&core, BlockingJob { f, threads }, 1)?;
    Ok(BlockingHandle { outcome })
}

/// Counts the threads of blocking sources, which may outlive them by one call.
pub(crate) struct ThreadPlaces {
    taken: Arc<AtomicUsize>,
    most: usize,
}

/// A thread's place; free again when it is dropped.
pub(crate) struct ThreadPlace(Arc<AtomicUsize>);

impl ThreadPlaces {
    pub(crate) fn new(most: usize) -> ThreadPlaces {
        ThreadPlaces { taken: Arc::new(AtomicUsize::new(0)), most }
    }

    pub(crate) fn take(&self) -> io::Result<ThreadPlace> {
        // Only the scheduler's thread adds, so it cannot come to more than the bound.
        if self.taken.load(Relaxed) >= self.most {
            let message =
                format!("{} blocking sources have threads, which is the limit", self.most);
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
        }
        self.taken.fetch_add(1, Relaxed);
        Ok(ThreadPlace(self.taken.clone()))
    }
}

impl Drop for ThreadPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A job is an asynchronous source of one event.
struct BlockingJob<F> {
    f: F,
    threads: Arc<ThreadPool>,
}

impl<T: Send + 'static, F: FnOnce() -> T + Send + 'static> EventSource for BlockingJob<F> {
    type Event = Outcome<T>;
    fn attach(self, to: Registration<'_, Outcome<T>>) -> io::Result<()> {
        let notifier: Notifier<Outcome<T>> = to.notifier();
        let f = self.f;
        self.threads.push(Box::new(move || {
            let outcome = catch_unwind(AssertUnwindSafe(f));
            // Nobody may wait for it any more; it is dropped on this thread then.
            if let Err(refused) = notifier.notify(outcome) {
                crate::failure::discard(refused);
            }
        }))
    }
}

struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    open: bool,
}

pub(crate) struct ThreadPool {
    queue: Mutex<Queue>,
    work: Condvar,
    threads_max: usize,
}

impl ThreadPool {
    pub(crate) fn new(threads_max: usize) -> Arc<ThreadPool> {
        let queue = Queue { jobs: VecDeque::new(), threads: 0, idle: 0, open: true };
        Arc::new(ThreadPool { queue: Mutex::new(queue), work: Condvar::new(), threads_max })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(self: &Arc<ThreadPool>, job: Job) -> io::Result<()> {
        let mut queue = self.lock();
        let refused = if !queue.open {
            Some("the scheduler is being dropped")
        } else if queue.jobs.len() >= JOBS_MAX {
            Some("too many jobs wait for a thread")
        } else {
            None
        };
        if let Some(reason) = refused {
            drop(queue);
            drop(job);
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, reason));
        }
        queue.jobs.push_back(job);
        let start = queue.idle < queue.jobs.len() && queue.threads < self.threads_max;
        if start {
            queue.threads += 1;
        }
        drop(queue);
        self.work.notify_one();
        if start { self.start() } else { Ok(()) }
    }

    fn start(self: &Arc<ThreadPool>) -> io::Result<()> {
        let pool = self.clone();
        let thread = thread::Builder::new().name("comporta-blocking".to_owned());
        match thread.spawn(move || pool.work()) {
            Ok(_) => Ok(()),
            Err(error) => {
                let mut queue = self.lock();
                queue.threads -= 1;
                // Others will come to it, if there are any.
                let job = if queue.threads == 0 { queue.jobs.pop_back() } else { None };
                drop(queue);
                job.map_or(Ok(()), |job| {
                    drop(job);
                    Err(error)
                })
            }
        }
    }

    fn work(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
                queue = self.lock();
                continue;
            }
            if !queue.open {
                break;
            }
            queue.idle += 1;
            let (woken, waited) =
                self.work.wait_timeout(queue, IDLE_MAX).unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if waited.timed_out() && queue.jobs.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
    }

    /// Forgets the jobs that have not begun; the threads end when theirs are done.
    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        queue.open = false;
        let jobs = std::mem::take(&mut queue.jobs);
        drop(queue);
        self.work.notify_all();
        for job in jobs {
            crate::failure::discard(job);
        }
    }
}
