//! Windows in a program: joined like other stages, and never two instances.

use std::time::Duration;

use comporta::testing::{TestRuntime, record};
use comporta::windows::{self, Window};
use comporta::{App, Plan, StartError};

#[test]
fn no_plan_gives_a_window_two_instances() {
    let app = || {
        let app = App::new("pairs");
        let numbers = app.source("numbers", || 0..100_u64);
        let pairs = app.stage("pairs", windows::by_count(2));
        let made = app.stage_with("made", |_| Ok(windows::by_count(2)));
        let end = app.sink("end", |_: Window<u64>| ());
        app.connect(numbers, pairs);
        app.connect(numbers, made);
        app.connect(pairs, end);
        app.connect(made, end);
        app
    };
    for name in ["pairs", "made"] {
        let plan = Plan::new().stage(name, |stage| stage.instances(2));
        let refused = app().run(&plan).unwrap_err();
        assert!(matches!(refused, StartError::Plan(_)), "{refused}");
        assert!(refused.to_string().contains("is stateful and has one instance"), "{refused}");
    }
    let runtime = TestRuntime::new(app(), &Plan::new().every(|stage| stage.instances(4))).unwrap();
    assert!(runtime.control().set_instances("pairs", 2).is_err());
    assert_eq!(runtime.snapshot().stage("pairs").unwrap().instances, 1);
}

#[test]
fn a_window_that_makes_no_sense_keeps_the_program_from_starting() {
    let app = App::new("senseless");
    let numbers = app.source("numbers", || 0..10_u64);
    let window = app.stage("window", windows::by_count(10).sliding(0));
    app.connect(numbers, window);
    let refused = app.run(&Plan::new()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`window` could not start: a step of 0 events never moves on: use 1 to 10"
    );
}

#[test]
fn late_events_leave_by_a_port_of_their_own() {
    let app = App::new("late");
    let times = app.source("times", || [0, 7, 12, 3, 25, 18, 4].into_iter());
    let tens = windows::by_time(|time: &i64| *time, Duration::from_millis(10));
    let tens = app.stage("tens", tens.lateness(Duration::from_millis(7)));
    app.connect(times, tens);
    let (windows, late) = (record(&app, tens.windows), record(&app, tens.late));
    let sizes = app.map("sizes", |window: Window<i64>| window.events.len());
    app.connect(tens.windows, sizes);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    let seen: Vec<_> = windows.take().into_iter().map(|w| (w.start, w.events)).collect();
    assert_eq!(seen, [(0, vec![0, 3, 7]), (10, vec![12, 18]), (20, vec![25])]);
    assert_eq!(late.take(), [4]);
}

/// `numbers` of a source through windows of `size` events, under two threads.
fn windowed(numbers: u64, size: usize, seed: u64) -> TestRuntime {
    let app = App::new("windowed");
    let numbers = app.source("numbers", move || 0..numbers);
    let window = app.stage("window", windows::by_count(size));
    let end = app.sink("end", |_: Window<u64>| ());
    app.connect(numbers, window);
    app.connect(window, end);
    TestRuntime::new(app, &Plan::new().threads(2)).unwrap().seeded(seed)
}

#[test]
fn a_source_is_not_pulled_for_a_few_events_because_windows_are_small() {
    let mut runtime = windowed(10_000, 10, 1);
    assert!(runtime.run());
    let numbers = runtime.snapshot().stage("numbers").unwrap().counts;
    assert!(numbers.visits <= 10_000 / 512 + 2, "{numbers:?}");
}

#[test]
fn a_window_that_never_closes_keeps_nobody_out() {
    let app = App::new("open");
    let times = app.source("times", || std::iter::repeat(0_i64));
    let day = windows::by_time(|time: &i64| *time, Duration::from_secs(86_400));
    let day = app.stage("day", day.held_max(1_000_000));
    let others = app.source("others", || 0..2_000_u64);
    let end = app.sink("end", |_: u64| ());
    app.connect(times, day);
    app.connect(others, end);
    let mut runtime = TestRuntime::new(app, &Plan::new().threads(1)).unwrap();
    for _ in 0..200 {
        runtime.step();
    }
    assert_eq!(runtime.snapshot().stage("end").unwrap().counts.handled, 2_000);
}
