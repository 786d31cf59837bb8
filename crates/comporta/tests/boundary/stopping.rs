//! Stops and drains end what goes on without an end; a start that the system refuses is an error.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver, channel};
use std::thread::Builder;
use std::time::Duration;

use comporta::policy::{Entry, Offer, Policy, PolicyControl, Refused};
use comporta::{App, ControlError, Cx, Ended, Error, Ev, Plan, Result, Running, Sender, Stage};

use crate::bounded::{
    BOUND, Gate, comes_true, ends, handled, stage, under_every_policy, until, watched, within,
};

/// Fails every try, until it is told to relent. Says when it is dropped.
struct Stubborn {
    tries: Arc<AtomicU64>,
    relents: Arc<AtomicBool>,
    gone: mpsc::Sender<()>,
}

impl Stage for Stubborn {
    type In = u64;
    type Ports = ();
    fn handle(&mut self, _: Ev<'_, u64>, _: &mut (), _: &Cx) -> Result {
        self.tries.fetch_add(1, SeqCst);
        if self.relents.load(SeqCst) { Ok(()) } else { Err(Error::msg("never")) }
    }
}

impl Drop for Stubborn {
    fn drop(&mut self) {
        let _ = self.gone.send(());
    }
}

/// A program in which an event is tried without end, and what a test needs of it.
struct Retrying {
    running: Running,
    sender: Sender<u64>,
    other: Sender<u64>,
    tries: Arc<AtomicU64>,
    gone: Receiver<()>,
    relents: Relents,
}

/// Has the handler relent when the test is over, however it ends.
struct Relents(Arc<AtomicBool>);
impl Drop for Relents {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn retrying(plan: Plan, label: &str) -> Retrying {
    let (tries, relents) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let (tell, gone) = channel();
    let app = App::new("stubborn");
    let (sender, port) = app.input::<u64>("in");
    let (count, relent) = (tries.clone(), relents.clone());
    let work = app.stage_with("work", move |_| {
        Ok(Stubborn { tries: count.clone(), relents: relent.clone(), gone: tell.clone() })
    });
    let (other, other_port) = app.input::<u64>("other-in");
    app.connect(port, work);
    app.connect(other_port, app.sink("other", |_: u64| ()));
    let plan = plan.stage("work", |s| s.tries(u32::MAX));
    let running = app.start(&plan).unwrap();
    let relents = Relents(relents);
    sender.send(0).unwrap();
    until(label, || tries.load(SeqCst) > 1_000);
    Retrying { running, sender, other, tries, gone, relents }
}

/// The handler is let go, and so was tried for the last time; its event counts as cancelled.
fn has_stopped(retrying: Retrying, label: &str, end: fn(Running) -> comporta::Summary) {
    let Retrying { running, gone, tries, relents, .. } = retrying;
    let summary = within(label, move || end(running));
    assert_eq!(summary.stuck, Vec::<String>::new(), "{label}: after {tries:?} tries\n{summary}");
    assert_eq!(gone.recv_timeout(BOUND), Ok(()), "{label}: it is tried on and on");
    let counts = stage(&summary.snapshot, "work").counts;
    assert_eq!((counts.handled, counts.cancelled), (0, 1), "{label}\n{summary}");
    assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
    drop(relents);
}

#[test]
fn a_stop_ends_retries_without_a_wait() {
    under_every_policy(|plan, label| {
        has_stopped(retrying(plan, label), label, Running::stop);
    });
}

#[test]
fn a_drain_whose_time_is_up_ends_retries_without_a_wait() {
    under_every_policy(|plan, label| {
        let drain = |running: Running| running.drain_within(Duration::from_millis(10));
        has_stopped(retrying(plan, label), label, drain);
    });
}

#[test]
fn retries_without_a_wait_leave_the_thread_to_other_stages() {
    under_every_policy(|plan, label| {
        // No stand-in: the visit ends when its time is up.
        let retrying = retrying(plan.stuck_after(Duration::from_secs(3_600)), label);
        let Retrying { running, sender, other, tries, relents, .. } = retrying;
        other.send(0).unwrap();
        let goes_on = comes_true(|| handled(&running, "other") == 1);
        assert!(goes_on, "{label}: after {tries:?} tries\n{}", running.snapshot());
        drop((relents, sender, other));
        let summary = ends(label, running);
        assert_eq!(summary.ended, Ended::Complete, "{label}");
        assert_eq!(stage(&summary.snapshot, "work").counts.handled, 1, "{label}\n{summary}");
    });
}

/// Whether a program starts: `Err` if that panics.
fn starts(app: App, plan: &Plan) -> std::thread::Result<bool> {
    catch_unwind(AssertUnwindSafe(|| {
        let started = app.start(plan);
        let is_started = started.is_ok();
        if let Err(error) = &started {
            assert!(!error.to_string().is_empty());
        }
        drop(started);
        is_started
    }))
}

#[test]
fn a_name_that_passes_the_checks_can_be_run() {
    watched("names", || {
        let named = |app: &str, stage: &str| {
            let app = App::new(app);
            let numbers = app.source("numbers", || 0..3_u64);
            app.connect(numbers, app.sink(stage, |_: u64| ()));
            app
        };
        for (app, stage, cluster) in
            [("a\0b", "sink", "side"), ("app", "si\0nk", "side"), ("app", "sink", "si\0de")]
        {
            let plan = Plan::new().cluster(cluster, |side| side.threads(1).stages(stage.into()));
            let passes =
                named(app, stage).check().is_ok() && named(app, stage).rehearse(&plan).is_ok();
            let started = starts(named(app, stage), &plan);
            assert!(started.is_ok(), "{app:?}, {stage:?}, {cluster:?}: `start` panicked");
            assert_eq!(started.unwrap(), passes, "{app:?}, {stage:?}, {cluster:?}");
        }
    });
}

/// Stacks of threads in the child, which has room for a few.
const STACK: usize = 1 << 30;
const CHILD: &str = "COMPORTA_BOUNDARY_CHILD";

/// Whether this is the child that [`with_few_threads`] makes.
fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs a test of this binary again, in a process in which there is room for few threads.
#[track_caller]
fn with_few_threads(test: &str) {
    let limited = format!("ulimit -v {} && exec \"$0\" \"$@\"", 6 * STACK / 1_024 + STACK / 2_048);
    let mut child = Command::new("sh")
        .args(["-c", &limited])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .env("RUST_MIN_STACK", STACK.to_string())
        // glibc reserves addresses for a heap of each thread: now and then those that were left for a stack.
        .env("MALLOC_ARENA_MAX", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut has_ended = || comes_true(|| child.try_wait().unwrap().is_some());
    let ended = has_ended() || has_ended(); // its own waits have the same bound
    if !ended {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(ended && status.success(), "ended: {ended}, {status}\n{said}");
}

/// Leaves room for so many more threads of the usual size; until what it returns is dropped.
fn room_for(threads: usize) -> impl Drop {
    struct Full(Vec<mpsc::Sender<()>>);
    impl Drop for Full {
        fn drop(&mut self) {
            self.0.clear();
        }
    }
    let mut taken = Vec::new();
    loop {
        let (keep, kept) = channel::<()>();
        let spawned = Builder::new().spawn(move || {
            let _ = kept.recv();
        });
        let Ok(thread) = spawned else { break };
        taken.push((keep, thread));
        assert!(taken.len() < 100, "no limit holds here");
    }
    for _ in 0..threads {
        let (keep, thread) = taken.pop().expect("room for a few threads");
        drop(keep);
        thread.join().unwrap();
    }
    Full(taken.into_iter().map(|(keep, _)| keep).collect())
}

#[test]
fn a_start_for_which_the_system_has_no_threads_is_an_error() {
    if !is_child() {
        return with_few_threads(
            "stopping::a_start_for_which_the_system_has_no_threads_is_an_error",
        );
    }
    let build = || {
        let app = App::new("many");
        let numbers = app.source("numbers", || 0..3_u64);
        app.connect(numbers, app.sink("sink", |_: u64| ()));
        app
    };
    let full = room_for(3);
    let started = starts(build(), &Plan::new().threads(8));
    assert!(matches!(started, Ok(false)), "8 threads where there is room for 3: {started:?}");
    drop(full);
    until("there is room again", || matches!(starts(build(), &Plan::new().threads(1)), Ok(true)));
}

#[test]
fn a_stand_in_that_cannot_be_had_costs_a_warning() {
    if !is_child() {
        return with_few_threads("stopping::a_stand_in_that_cannot_be_had_costs_a_warning");
    }
    let gate = Gate::default();
    let way = gate.way();
    let failed = Arc::new(AtomicBool::new(false));
    let app = App::new("alone");
    let (sender, numbers) = app.input::<u64>("in");
    let work = app.sink("work", move |n: u64| {
        if n == 0 {
            way.pass();
        }
        // Then time must still pass, for the second try.
        let fails = n == 1 && !failed.swap(true, SeqCst);
        if fails { Err(Error::msg("once")) } else { Ok(()) }
    });
    app.connect(numbers, work);
    let full = room_for(2); // the clock and a worker
    let retry = comporta::Retry::new(2, Duration::from_millis(5));
    let plan = Plan::new()
        .threads(1)
        .stuck_after(Duration::from_millis(20))
        .stage("work", |s| s.retry(retry));
    let running = app.start(&plan).unwrap();
    sender.send(0).unwrap();
    gate.wait_for(1, "a handler is held");
    until("it is known to be stuck", || running.stuck() == ["work"]);
    // The clock has looked at it since: it does so four times in that while.
    let (_never, wait) = channel::<()>();
    let _ = wait.recv_timeout(Duration::from_millis(200));
    gate.open();
    sender.send(1).unwrap();
    drop(sender);
    let summary = ends("without a stand-in", running);
    drop(full);
    let counts = stage(&summary.snapshot, "work").counts;
    assert_eq!((counts.handled, counts.retried), (2, 1), "{summary}");
}

#[test]
fn a_pool_for_which_the_system_has_no_threads_is_refused_and_changes_nothing() {
    if !is_child() {
        return with_few_threads(
            "stopping::a_pool_for_which_the_system_has_no_threads_is_refused_and_changes_nothing",
        );
    }
    /// Asks for more threads than there are, and takes what comes.
    struct Greedy;
    impl Policy for Greedy {
        fn start(&mut self, control: &mut dyn PolicyControl) -> std::result::Result<(), Refused> {
            let main = control.main_pool();
            for refused in [control.new_pool(8).map(drop), control.add_threads(main, 8)] {
                assert!(matches!(refused, Err(Refused::Failed(_))), "{refused:?}");
            }
            assert_eq!(control.threads(main), Ok(1));
            // The pool that was not made does not count against those that may be.
            assert_eq!((0..100).map_while(|_| control.new_pool(0).ok()).count(), 2 * 2 + 16);
            Ok(())
        }
    }
    let app = App::new("greedy");
    let offer = Offer { name: "greedy", aliases: &[], about: "", cites: "", params: &[] };
    app.register_policy(Entry::new(offer, |_| Greedy));
    let numbers = app.source("numbers", || 0..3_u64);
    app.connect(numbers, app.sink("sink", |_: u64| ()));
    let full = room_for(4); // the clock, a worker, and two of those that are asked for
    let running = app.start(&Plan::new().threads(1).policy("greedy")).unwrap();
    let threads = || running.snapshot().pools.iter().map(|pool| pool.threads).collect::<Vec<_>>();
    assert_eq!(threads(), [1]);
    let refused = running.control().set_threads("main", 9);
    assert!(matches!(refused, Err(ControlError::Threads(_))), "{refused:?}");
    assert_eq!(threads(), [1], "a person is given all or none too");
    let summary = ends("with the thread it has", running);
    drop(full);
    assert_eq!(stage(&summary.snapshot, "sink").counts.handled, 3, "{summary}");
}
