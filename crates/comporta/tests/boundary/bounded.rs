//! What these tests share: waits that end, so that a fault fails a test and never hangs it; gates
//! that handlers wait at until a test, or its failure, lets them through; and programs under every
//! policy.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use comporta::policy::Registry;
use comporta::{Plan, Running, Snapshot, StageSnapshot, Summary};

use crate::stall;
/// How long anything is waited for. Nothing that works takes a tenth of it.
pub(crate) use crate::stall::STALLED as BOUND;
/// A handler that has not returned for this long is stuck, in plans of these tests.
pub(crate) const STUCK_AFTER: Duration = Duration::from_millis(20);
/// Numbers of threads under which a case must hold.
pub(crate) const THREADS: [usize; 4] = [1, 2, 4, 8];

/// A thread of a test.
pub(crate) fn thread<R: Send + 'static>(
    body: impl FnOnce() -> R + Send + 'static,
) -> JoinHandle<R> {
    // Of a size of its own: `stopping` has the system refuse larger ones.
    Builder::new().stack_size(2 << 20).spawn(body).unwrap()
}

/// Runs `body`, a test or a case of one, on a thread of its own. Should it hang where none of its
/// own waits sees it, it is left behind and has failed.
#[track_caller]
pub(crate) fn watched<R: Send + 'static>(
    what: &str,
    body: impl FnOnce() -> R + Send + 'static,
) -> R {
    join(what, 2 * BOUND, body)
}

/// Runs `body`, one step of a test that may hang, on a thread of its own, as [`watched`] does.
#[track_caller]
pub(crate) fn within<R: Send + 'static>(
    what: &str,
    body: impl FnOnce() -> R + Send + 'static,
) -> R {
    join(what, BOUND, body)
}

#[track_caller]
fn join<R: Send + 'static>(
    what: &str,
    bound: Duration,
    body: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (done, is_done) = channel();
    let worker = thread(move || {
        let result = body();
        let _ = done.send(());
        result
    });
    // A body that panics drops its end of the channel.
    let waited = is_done.recv_timeout(bound);
    assert!(waited != Err(RecvTimeoutError::Timeout), "{what}: not done after {bound:?}");
    worker.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Waits within the bound until `done`.
#[track_caller]
pub(crate) fn until(what: &str, done: impl FnMut() -> bool) {
    assert!(comes_true(done), "{what}: not so after {BOUND:?}");
}

/// Whether `done` becomes so within the bound.
pub(crate) fn comes_true(mut done: impl FnMut() -> bool) -> bool {
    const STEP: Duration = Duration::from_millis(1);
    for _ in 0..1_000 {
        if done() {
            return true;
        }
        std::thread::yield_now();
    }
    let (_open, never) = channel::<()>();
    let steps = BOUND.as_millis() / STEP.as_millis();
    (0..steps).any(|_| done() || never.recv_timeout(STEP).is_ok()) || done()
}

/// Waits for the end of a program within the bound.
#[track_caller]
pub(crate) fn ends(what: &str, running: Running) -> Summary {
    stall::ended(running, what)
}

/// A stage of a snapshot that is there.
pub(crate) fn stage<'a>(snapshot: &'a Snapshot, name: &str) -> &'a StageSnapshot {
    snapshot.stage(name).unwrap_or_else(|| panic!("no stage `{name}`"))
}

/// How many events a stage of a running program has handled.
pub(crate) fn handled(running: &Running, name: &str) -> u64 {
    stage(&running.snapshot(), name).counts.handled
}

/// Runs a case under every policy of the library, and with few and many threads. Handlers that do
/// not return are stuck soon, so that a stand-in comes where threads run out.
pub(crate) fn under_every_policy(case: fn(Plan, &str)) {
    under_policies(|_| true, case);
}

/// As [`under_every_policy`], for those policies that are asked for by name.
pub(crate) fn under_policies(which: fn(&str) -> bool, case: fn(Plan, &str)) {
    for offer in Registry::new().offers().into_iter().filter(|offer| which(offer.name)) {
        THREADS.iter().for_each(|threads| under(offer.name, *threads, case));
    }
}

/// Runs a case under one policy, with so many threads. A stage has one instance unless the case says
/// more: some policies would give it one for each of their threads.
pub(crate) fn under(policy: &str, threads: usize, case: fn(Plan, &str)) {
    let plan = Plan::new().policy(policy).threads(threads).stuck_after(STUCK_AFTER);
    let plan = plan.every(|stage| stage.instances(1));
    let label = format!("{policy}, {threads} threads");
    watched(&label.clone(), move || case(plan, &label));
}

/// Takes what was seen since the last call.
pub(crate) fn taken<T>(seen: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *seen.lock().unwrap())
}

/// A gate that a test keeps; dropped, also by a test that fails, it stands open.
#[derive(Default)]
pub(crate) struct Gate(Way);

/// The way through a gate, for handlers.
#[derive(Clone, Default)]
pub(crate) struct Way(Arc<(Mutex<Passing>, Condvar)>);

#[derive(Default)]
struct Passing {
    open: bool,
    came: usize,
}

impl Gate {
    /// For a handler.
    pub(crate) fn way(&self) -> Way {
        self.0.clone()
    }

    /// Waits within the bound until `n` have come.
    #[track_caller]
    pub(crate) fn wait_for(&self, n: usize, what: &str) {
        self.0.wait_for(n, what);
    }

    /// Lets everybody through.
    pub(crate) fn open(&self) {
        let (state, changed) = &*self.0.0;
        state.lock().unwrap().open = true;
        changed.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

impl Way {
    /// Waits within the bound until `n` have come.
    #[track_caller]
    pub(crate) fn wait_for(&self, n: usize, what: &str) {
        let (state, changed) = &*self.0;
        let waited = changed.wait_timeout_while(state.lock().unwrap(), BOUND, |s| s.came < n);
        let came = waited.unwrap().0.came;
        assert!(came >= n, "{what}: {came} of {n} came within {BOUND:?}");
    }

    /// Waits until the gate is open.
    pub(crate) fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.came += 1;
        changed.notify_all();
        drop(changed.wait_while(state, |state| !state.open).unwrap());
    }
}
