//! A resource is opened once, before anything that may use it, and closed once, after the last event, however the
//! run ends.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::{TestRuntime, replace_resource};
use comporta::{App, Ended, Error, GraphFault, Out, Plan, Resource, Result, StartError, sources};

use crate::bounded::{Gate, THREADS, ends, stage, taken, thread, until, watched};

/// What happened, in order.
type Log = Arc<Mutex<Vec<String>>>;

fn note(log: &Log, what: impl Into<String>) {
    log.lock().unwrap().push(what.into());
}

/// A resource that notes when it is opened and closed.
fn noted(app: &App, log: &Log, name: &'static str) -> Resource<AtomicUsize> {
    let (opened, closed) = (log.clone(), log.clone());
    let open = move || {
        note(&opened, format!("open {name}"));
        Ok(AtomicUsize::new(0))
    };
    app.resource(name, open, move |used: AtomicUsize| {
        note(&closed, format!("close {name} after {}", used.into_inner()));
    })
}

/// A source, and a sink that uses both resources `a` and `b`.
fn program(log: &Log, events: u64) -> App {
    let app = App::new("shares");
    let (a, b) = (noted(&app, log, "a"), noted(&app, log, "b"));
    let (of_source, told) = (a.clone(), log.clone());
    let numbers = app.source("numbers", move || {
        note(&told, "source");
        assert_eq!(of_source.get().load(SeqCst), 0);
        0..events
    });
    let use_a = app.map("use-a", move |n: u64| {
        a.get().fetch_add(1, SeqCst);
        n
    });
    let use_b = app.sink("use-b", move |_: u64| {
        b.get().fetch_add(1, SeqCst);
    });
    app.connect(numbers, use_a);
    app.connect(use_a, use_b);
    app
}

#[test]
fn resources_are_opened_before_events_flow_and_closed_after_the_last() {
    for threads in THREADS {
        watched("complete", move || {
            let log = Log::default();
            let plan = Plan::new().threads(threads).every(|s| s.instances(4));
            let running = program(&log, 1_000).start(&plan).unwrap();
            let summary = ends("complete", running);
            assert_eq!(summary.ended, Ended::Complete);
            assert!(summary.problems.is_empty(), "{summary}");
            let expected =
                ["open a", "open b", "source", "close b after 1000", "close a after 1000"];
            assert_eq!(taken(&log), expected);
        });
    }
}

#[test]
fn resources_are_closed_however_a_run_ends() {
    type End = fn(comporta::Running);
    let ways: [(&str, End); 4] = [
        ("drained", |running| drop(running.drain())),
        ("stopped", |running| drop(running.stop())),
        ("dropped", drop),
        ("not drained in time", |running| drop(running.drain_within(Duration::ZERO))),
    ];
    for (what, end) in ways {
        watched(what, move || {
            let log = Log::default();
            let running = program(&log, u64::MAX).start(&Plan::new().threads(2)).unwrap();
            until("events flow", || stage(&running.snapshot(), "use-b").counts.handled > 0);
            end(running);
            let log = taken(&log);
            assert_eq!(log[..3], ["open a", "open b", "source"], "{what}");
            assert!(
                log[3].starts_with("close b") && log[4].starts_with("close a"),
                "{what}: {log:?}"
            );
            assert_eq!(log.len(), 5, "{what}");
        });
    }
    watched("quit", || {
        let log = Log::default();
        let app = App::new("quits");
        let a = noted(&app, &log, "a");
        let numbers = app.source("numbers", || 0..u64::MAX);
        let quit = app.stage_with("quit", move |_| {
            let a = a.clone();
            Ok(Quits(a))
        });
        app.connect(numbers, quit);
        let summary = ends("quit", app.start(&Plan::new()).unwrap());
        assert_eq!(summary.ended, Ended::Quit);
        assert_eq!(taken(&log), ["open a", "close a after 1"]);
    });
}

struct Quits(Resource<AtomicUsize>);

impl comporta::Stage for Quits {
    type In = u64;
    type Ports = ();
    fn handle(&mut self, _: comporta::Ev<'_, u64>, (): &mut (), cx: &comporta::Cx) -> Result {
        self.0.get().fetch_add(1, SeqCst);
        cx.quit(());
        Ok(())
    }
}

#[test]
fn a_resource_that_cannot_be_opened_refuses_the_start_and_those_before_it_are_closed() {
    for panics in [false, true] {
        let log = Log::default();
        let app = App::new("refused");
        let _a = noted(&app, &log, "a");
        let _b = noted(&app, &log, "b");
        let closed = log.clone();
        let open = move || -> Result<u64> {
            assert!(!panics, "no network");
            Err(Error::msg("no network"))
        };
        let _c = app.resource("c", open, move |_| note(&closed, "close c"));
        let _d = noted(&app, &log, "d");
        let told = log.clone();
        let numbers = app.source("numbers", move || {
            note(&told, "source");
            0..9_u64
        });
        app.connect(numbers, app.sink("end", |_: u64| ()));
        let error = app.start(&Plan::new()).unwrap_err();
        let StartError::Resource { name, message } = &error else { panic!("{error}") };
        assert_eq!(name, "c");
        assert!(message.ends_with("no network"), "{message}");
        assert!(error.to_string().starts_with("the resource `c` could not be opened: "), "{error}");
        assert_eq!(taken(&log), ["open a", "open b", "close b after 0", "close a after 0"]);
    }
}

#[test]
fn resources_are_closed_if_a_stage_or_a_source_cannot_start() {
    let log = Log::default();
    let app = App::new("refused");
    let _a = noted(&app, &log, "a");
    let numbers =
        app.source("numbers", || -> Result<std::ops::Range<u64>> { Err(Error::msg("empty")) });
    app.connect(numbers, app.sink("end", |_: u64| ()));
    assert!(matches!(app.start(&Plan::new()), Err(StartError::Stage { .. })));
    assert_eq!(taken(&log), ["open a", "close a after 0"]);
}

#[test]
fn a_resource_that_cannot_be_closed_is_reported_and_the_others_are_closed() {
    for panics in [false, true] {
        let log = Log::default();
        let app = App::new("unclosed");
        let _a = noted(&app, &log, "a");
        let _b = app.resource(
            "b",
            || Ok(7_u64),
            move |_| -> Result {
                assert!(!panics, "disk full");
                Err(Error::msg("disk full"))
            },
        );
        let numbers = app.source("numbers", || 0..9_u64);
        app.connect(numbers, app.sink("end", |_: u64| ()));
        let summary = ends("closing fails", app.start(&Plan::new()).unwrap());
        assert_eq!(summary.problems.len(), 1, "{summary}");
        let problem = &summary.problems[0];
        assert!(problem.starts_with("the resource `b` could not be closed: "), "{problem}");
        assert!(problem.ends_with("disk full"), "{problem}");
        assert_eq!(taken(&log), ["open a", "close a after 0"]);
    }
}

#[test]
fn a_resource_that_a_stuck_handler_holds_is_closed_when_the_handler_lets_it_go() {
    watched("stuck", || {
        let log = Log::default();
        let app = App::new("stuck");
        let a = noted(&app, &log, "a");
        let gate = Gate::default();
        let way = gate.way();
        let numbers = app.source("numbers", || 0..1_u64);
        let hold = app.sink("hold", move |_: u64| {
            let held = a.get();
            way.pass();
            held.fetch_add(1, SeqCst);
        });
        app.connect(numbers, hold);
        let running = app.start(&Plan::new().threads(1)).unwrap();
        gate.wait_for(1, "a handler that does not return");
        let summary = running.stop();
        assert!(summary.problems[0].contains("`a` is still in use"), "{summary}");
        assert_eq!(taken(&log), ["open a"]);
        gate.open();
        until("it is closed", || !log.lock().unwrap().is_empty());
        assert_eq!(taken(&log), ["close a after 1"]);
    });
}

#[test]
fn a_resource_is_there_only_while_its_program_runs() {
    let app = App::new("bounds");
    let a = app.resource("a", || Ok(5_u64), drop);
    assert!(a.try_get().is_none());
    let of_test = a.clone();
    let numbers = app.source("numbers", || 0..3_u64);
    let (send, read) = std::sync::mpsc::channel();
    let add = app.sink("add", move |n: u64| send.send(n + *a.get()).unwrap());
    app.connect(numbers, add);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert_eq!(*of_test.get(), 5);
    assert!(runtime.run());
    drop(runtime);
    assert_eq!(read.iter().collect::<Vec<_>>(), [5, 6, 7]);
    assert!(of_test.try_get().is_none());
    let panicked = thread(move || drop(of_test.get())).join().unwrap_err();
    let message = panicked.downcast_ref::<String>().unwrap();
    assert!(message.contains("the resource `a` is not open"), "{message}");
}

#[test]
fn a_program_that_never_starts_opens_nothing() {
    let log = Log::default();
    let app = program(&log, 9);
    assert!(app.check().is_ok());
    assert!(app.rehearse(&Plan::new()).is_ok());
    drop(app);
    assert!(program(&log, 9).start(&Plan::new().threads(0)).is_err());
    assert!(taken(&log).is_empty());
}

#[test]
fn two_resources_of_one_name_are_a_mistake_of_the_graph() {
    let log = Log::default();
    let app = program(&log, 9);
    let _ = noted(&app, &log, "a");
    let Err(StartError::Graph(faults)) = app.start(&Plan::new()) else { panic!("it started") };
    assert_eq!(faults, [GraphFault::SameResource { name: "a".into() }]);
}

#[test]
fn a_test_puts_another_resource_in_its_place() {
    let log = Log::default();
    let app = program(&log, 3);
    let kept = Arc::new(());
    let mock = kept.clone();
    replace_resource(&app, "a", move || {
        drop(mock);
        Ok(AtomicUsize::new(0))
    });
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert_eq!(Arc::strong_count(&kept), 1, "the other was opened");
    assert!(runtime.run());
    drop(runtime);
    assert_eq!(taken(&log), ["open b", "source", "close b after 3"]);
    let app = program(&log, 3);
    let wrong = thread(move || replace_resource(&app, "a", || Ok(7_u8))).join().unwrap_err();
    assert!(wrong.downcast_ref::<String>().unwrap().contains("no resource `a` of the type `u8`"));
}

#[test]
fn a_resource_may_use_one_that_was_declared_before() {
    let app = App::new("layers");
    let base = app.resource("base", || Ok(20_u64), drop);
    let below = base.clone();
    let top = app.resource("top", move || Ok(*below.get() + 1), drop);
    let ticks = app.source("ticks", || sources::every(Duration::from_secs(1)));
    let (send, read) = std::sync::mpsc::channel();
    let sum =
        app.process("sum", move |_: u64, out: &mut Out<u64>| out.send(*base.get() + *top.get()));
    app.connect(ticks, sum);
    app.connect(sum, app.sink("told", move |n: u64| send.send(n).unwrap()));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    runtime.advance(Duration::from_secs(1));
    drop(runtime);
    assert_eq!(read.iter().next(), Some(41));
}
