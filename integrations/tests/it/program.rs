//! A program whose one stage waits: numbers ─▶ wait ─▶ end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::{App, Plan, Result, Running, Summary};

/// How long anything here may take.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

type Seen = Arc<Mutex<Vec<u64>>>;

/// The program, which has the resources that `app` was given before.
pub(crate) fn waiting<F, Fut>(app: App, numbers: u64, at_once: usize, call: F) -> (Running, Seen)
where
    F: Fn(u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u64>> + Send + 'static,
{
    let source = app.source("numbers", move || 0..numbers);
    let wait = app.try_map_async("wait", call);
    let seen = Seen::default();
    let see = seen.clone();
    app.connect(source, wait);
    app.connect(wait, app.sink("end", move |n: u64| see.lock().unwrap().push(n)));
    let plan = Plan::new().threads(2).stage("wait", |wait| wait.instances(at_once));
    (app.start(&plan).unwrap(), seen)
}

/// Waits for the end, which comes in time, with every number at the end and nothing to complain of.
pub(crate) fn all_come_through((running, seen): (Running, Seen), numbers: u64) {
    let summary = ends(running);
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..numbers), "{summary}");
}

pub(crate) fn ends(running: Running) -> Summary {
    let Ok(summary) = running.wait_for(BOUND) else { panic!("no end after {BOUND:?}") };
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert!(summary.problems.is_empty(), "{summary}");
    summary
}

/// Waits until it holds, and no longer than the bound.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let (_open, never) = std::sync::mpsc::channel::<()>();
    let tick = Duration::from_millis(1);
    let held = (0..BOUND.as_millis()).any(|_| holds() || never.recv_timeout(tick).is_ok());
    assert!(held, "{what}: not within {BOUND:?}");
}

/// How many threads of this name the process has.
pub(crate) fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|found| found.starts_with(name)).count()
}
