//! What the tests share: a sink that remembers, a gate that a handler waits at, threads, and a
//! short way to a stage's counts. Every wait has a bound, and fails there.

use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{App, Counts, Plan, Running, Snapshot, StageSnapshot, Summary};

use crate::stall::{STALLED, ended};

/// Longer than any test: of a plan whose handlers wait for the test, so that no worker stands in for
/// those that are stuck, and does what the test is about.
pub(crate) const NOBODY_STANDS_IN: Duration = Duration::from_secs(3_600);

/// What a sink saw, in order, and the closure that sees it.
pub(crate) fn collector<T: Send + 'static>()
-> (Arc<Mutex<Vec<T>>>, impl Fn(T) + Clone + Send + Sync + 'static) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = seen.clone();
    (seen, move |event| into.lock().unwrap().push(event))
}

/// Takes what was seen since the last call.
pub(crate) fn taken<T>(seen: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *seen.lock().unwrap())
}

/// A stage of a snapshot that is there.
pub(crate) fn stage<'a>(snapshot: &'a Snapshot, name: &str) -> &'a StageSnapshot {
    snapshot.stage(name).unwrap_or_else(|| panic!("no stage `{name}`"))
}

/// The counts of a stage of a runtime, which must add up.
pub(crate) fn counts(runtime: &TestRuntime, name: &str) -> Counts {
    let snapshot = runtime.snapshot();
    assert!(snapshot.adds_up(), "{snapshot}");
    stage(&snapshot, name).counts
}

/// Where handlers wait until a test lets them through, and the test until they have come.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<Passing>, Condvar)>);

#[derive(Default)]
struct Passing {
    open: bool,
    came: usize,
}

impl Gate {
    /// Waits until the gate is open.
    pub(crate) fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.came += 1;
        changed.notify_all();
        let waited = changed.wait_timeout_while(state, STALLED, |state| !state.open).unwrap();
        let open = waited.0.open;
        drop(waited); // a panic would poison the lock
        assert!(open, "nobody opened the gate within {STALLED:?}");
    }

    /// Waits until `n` have come.
    #[track_caller]
    pub(crate) fn wait_for(&self, n: usize) {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap();
        let waited = changed.wait_timeout_while(state, STALLED, |state| state.came < n).unwrap();
        let came = waited.0.came;
        drop(waited);
        assert!(came >= n, "{came} of {n} came within {STALLED:?}");
    }

    /// Lets everybody through.
    pub(crate) fn open(&self) {
        self.0.0.lock().unwrap().open = true;
        self.0.1.notify_all();
    }
}

/// Waits until `done`, giving way to other threads meanwhile.
#[track_caller]
pub(crate) fn until(done: impl Fn() -> bool) {
    const YIELDS: usize = 1_000;
    const STEP: Duration = Duration::from_millis(1);
    for _ in 0..YIELDS {
        if done() {
            return;
        }
        std::thread::yield_now();
    }
    let (_open, never) = channel::<()>();
    let steps = STALLED.as_millis() / STEP.as_millis();
    let comes = (0..steps).any(|_| done() || never.recv_timeout(STEP).is_ok());
    assert!(comes || done(), "not so after {STALLED:?}");
}

/// Runs a program to its end.
#[track_caller]
pub(crate) fn run(app: App, plan: &Plan) -> Summary {
    ends(app.start(plan).unwrap())
}

/// Waits for the end of a program.
#[track_caller]
pub(crate) fn ends(running: Running) -> Summary {
    ended(running, "")
}

/// A thread of a test.
pub(crate) fn thread<R: Send + 'static>(
    body: impl FnOnce() -> R + Send + 'static,
) -> JoinHandle<R> {
    std::thread::Builder::new().spawn(body).unwrap()
}
