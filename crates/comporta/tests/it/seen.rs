//! What the tests share: a sink that remembers, a gate that a handler waits at, threads, and a
//! short way to a stage's counts.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use comporta::testing::TestRuntime;
use comporta::{Counts, Snapshot, StageSnapshot};

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
        let mut state = self.0.0.lock().unwrap();
        state.came += 1;
        self.0.1.notify_all();
        drop(self.0.1.wait_while(state, |state| !state.open).unwrap());
    }

    /// Waits until `n` have come.
    pub(crate) fn wait_for(&self, n: usize) {
        let state = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(state, |state| state.came < n).unwrap());
    }

    /// Lets everybody through.
    pub(crate) fn open(&self) {
        self.0.0.lock().unwrap().open = true;
        self.0.1.notify_all();
    }
}

/// Waits until `done`, giving way to other threads meanwhile.
pub(crate) fn until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

/// A thread of a test.
pub(crate) fn thread<R: Send + 'static>(
    body: impl FnOnce() -> R + Send + 'static,
) -> JoinHandle<R> {
    std::thread::Builder::new().spawn(body).unwrap()
}
