//! What a stage sent is what its receivers were offered, to the event; what it counts as handled has
//! led to something; and every event has the tries that the plan gives it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::windows::{self, Window};
use comporta::{App, Error, Out, Plan, Ports, Snapshot};

use crate::bounded::{ends, stage, under_every_policy, watched};

#[derive(Ports)]
struct Both {
    left: Out<u64>,
    right: Out<u64>,
}

/// `numbers` -> `both` -> `sink`, by two ports that change with every so many events. Each event
/// sends one, or two if its number ends with 7, and counts what it sent.
fn two_ports(app: &App, numbers: u64, every: u64) -> Arc<AtomicU64> {
    let sent = Arc::new(AtomicU64::new(0));
    let counts = sent.clone();
    let source = app.source("numbers", move || 0..numbers);
    let both = app.stage("both", move |n: u64, out: &mut Both| {
        for _ in 0..if n % 10 == 7 { 2 } else { 1 } {
            let port = if (n / every).is_multiple_of(2) { &mut out.left } else { &mut out.right };
            port.send(n);
            counts.fetch_add(1, SeqCst);
        }
    });
    let sink = app.sink("sink", |_: u64| ());
    app.connect(source, both);
    app.connect(both.left, sink);
    app.connect(both.right, sink);
    sent
}

/// What was sent has been emitted, offered and handled, and nothing failed.
fn all_arrived(snapshot: &Snapshot, sent: u64, label: &str) {
    let (both, sink) = (stage(snapshot, "both").counts, stage(snapshot, "sink").counts);
    let arrived = (both.failed, both.emitted, sink.offered, sink.handled);
    assert_eq!(arrived, (0, sent, sent, sent), "{label}: failed, emitted, offered, handled");
    assert!(snapshot.adds_up(), "{label}\n{snapshot}");
}

#[test]
fn what_two_ports_send_into_one_queue_arrives_whatever_one_event_may_emit() {
    watched("stepped", || {
        for emit_max in [2, 8, 100, 1_000] {
            for every in [1, 3, 50, 1_000] {
                let app = App::new("both");
                let sent = two_ports(&app, 2_000, every);
                let plan = Plan::new().threads(1).stage("both", |s| s.emit_max(emit_max));
                let mut runtime = TestRuntime::new(app, &plan).unwrap();
                assert!(runtime.run(), "{}", runtime.snapshot());
                let label = format!("emit_max {emit_max}, ports change every {every}");
                all_arrived(&runtime.snapshot(), sent.load(SeqCst), &label);
            }
        }
    });
}

#[test]
fn what_two_ports_send_into_one_queue_arrives_under_every_policy() {
    under_every_policy(|plan, label| {
        let app = App::new("both");
        let sent = two_ports(&app, 2_000, 500);
        let plan = plan.stage("both", |s| s.emit_max(8)).stage("sink", |s| s.capacity(100));
        let summary = ends(label, app.start(&plan).unwrap());
        all_arrived(&summary.snapshot, sent.load(SeqCst), label);
    });
}

/// Runs a stage of windows under a small `emit_max`, and compares what it counts as handled with
/// the events that left it.
fn windows_are_sent(build: impl FnOnce(&App, Arc<AtomicU64>)) {
    let app = App::new("windows");
    let left = Arc::new(AtomicU64::new(0));
    build(&app, left.clone());
    let plan = Plan::new().threads(1).stage("window", |s| s.emit_max(10));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.run(), "{}", runtime.snapshot());
    let snapshot = runtime.snapshot();
    let counts = stage(&snapshot, "window").counts;
    assert!(snapshot.adds_up(), "{snapshot}");
    assert_eq!(left.load(SeqCst), counts.handled, "handled, and sent\n{snapshot}");
    assert!(counts.handled >= 1_000, "one event may fail, not those before it\n{snapshot}");
}

/// Counts the events of windows that do not overlap.
fn counts(left: Arc<AtomicU64>) -> impl FnMut(Window<u64>) + Clone {
    move |window| {
        left.fetch_add(window.events.len() as u64, SeqCst);
    }
}

#[test]
fn an_event_that_closes_more_windows_than_it_may_emit_costs_none_of_their_events() {
    watched("by time", || {
        windows_are_sent(|app, left| {
            // A window each second, all kept open until the last event.
            let seconds = app.source("seconds", || (0..1_000_u64).chain([100_000]));
            let hour = Duration::from_secs(3_600);
            let by_second = windows::by_time(|n: &u64| *n as i64 * 1_000, Duration::from_secs(1));
            let window = app.stage("window", by_second.lateness(hour));
            let late = left.clone();
            app.connect(seconds, window);
            app.connect(window.windows, app.sink("sink", counts(left)));
            app.connect(
                window.late,
                app.sink("late", move |_: u64| {
                    late.fetch_add(1, SeqCst);
                }),
            );
        });
    });
}

#[test]
fn an_end_that_closes_more_windows_than_it_may_emit_sends_them_all() {
    watched("at the end", || {
        windows_are_sent(|app, left| {
            let seconds = app.source("seconds", || 0..1_000_u64);
            let hour = Duration::from_secs(3_600);
            let by_second = windows::by_time(|n: &u64| *n as i64 * 1_000, Duration::from_secs(1));
            let window = app.stage("window", by_second.lateness(hour));
            app.connect(seconds, window);
            app.connect(window.windows, app.sink("sink", counts(left)));
        });
    });
}

type Tries = Arc<Mutex<HashMap<u64, u32>>>;

/// Fails the first try at each event that the rule names, and counts tries.
fn fails_once(
    tries: &Tries,
    fails: fn(u64) -> bool,
) -> impl FnMut(&mut u64) -> Result<(), Error> + Clone + use<> {
    let tries = tries.clone();
    move |n| {
        let mut tries = tries.lock().unwrap();
        let tried = tries.entry(*n).or_default();
        *tried += 1;
        if fails(*n) && *tried == 1 { Err(Error::msg("not yet")) } else { Ok(()) }
    }
}

#[test]
fn a_failure_in_place_uses_up_no_try_of_the_events_after_it() {
    watched("in place", || {
        for batch in [1, 7, 512] {
            let tries = Tries::default();
            let app = App::new("in-place");
            let numbers = app.source("numbers", || 0..1_000_u64);
            let work = app.map_in_place("work", fails_once(&tries, |n| n % 3 == 0));
            app.connect(numbers, work);
            app.connect(work, app.sink("sink", |_: u64| ()));
            let plan = Plan::new().threads(1).stage("work", |s| s.tries(2).batch(batch));
            let mut runtime = TestRuntime::new(app, &plan).unwrap();
            assert!(runtime.run());
            let snapshot = runtime.snapshot();
            let counts = stage(&snapshot, "work").counts;
            assert_eq!(
                (counts.handled, counts.failed, counts.retried),
                (1_000, 0, 334),
                "batch {batch}"
            );
            let sink = stage(&snapshot, "sink").counts;
            assert_eq!((counts.emitted, sink.offered), (1_000, 1_000), "batch {batch}");
        }
    });
}

#[test]
fn an_event_that_fails_in_place_is_reported_with_the_tries_it_had() {
    watched("in place", || {
        let tries = Tries::default();
        let app = App::new("reported");
        let numbers = app.source("numbers", || 0..1_000_u64);
        let count = tries.clone();
        let work = app.map_in_place("work", move |n: &mut u64| {
            let mut tries = count.lock().unwrap();
            let tried = tries.entry(*n).or_default();
            *tried += 1;
            // Some need two tries; what comes after them has its own.
            let fails = *n % 10 == 5 || *n % 10 == 3 && *tried == 1;
            if fails { Err(Error::msg("fails")) } else { Ok(()) }
        });
        app.connect(numbers, work);
        app.connect(work, app.sink("sink", |_: u64| ()));
        let plan = Plan::new().threads(1).stage("work", |s| s.tries(3));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        assert!(runtime.run());
        let failures = runtime.control().failures("work").unwrap();
        assert_eq!(failures.len(), 100);
        assert!(failures.iter().all(|failure| failure.attempts == 3));
        let tries = tries.lock().unwrap();
        assert!((0..100).all(|ten| tries[&(ten * 10 + 5)] == 3), "fewer tries than reported");
    });
}
