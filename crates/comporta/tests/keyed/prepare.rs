//! Prepared events: side by side before their turn, and in order when it comes, whatever happens to the step.

use std::collections::HashSet;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::windows::{Count, Windowed, Windows, keyed};
use comporta::{App, Error, OnFailure, Plan, Result, Time};

use crate::bounded::run;
use crate::lanes::Watch;

/// As many instances of both stages, and one event a visit.
fn plan(instances: usize) -> Plan {
    let plan = Plan::new().threads(instances);
    let plan = plan.stage("work-prepare", |step| step.instances(instances).batch(1));
    plan.stage("work", |work| work.instances(instances))
}

#[test]
fn events_of_one_key_are_prepared_side_by_side_and_handled_in_order() {
    const N: u64 = 200;
    let (pair, watch) = (Arc::new(Barrier::new(2)), Watch::default());
    let of = watch.clone();
    let app = App::new("pairs");
    let numbers = app.source("numbers", || 0..N);
    let work = app.keyed_prepared(
        "work",
        |_: &u64| 0_u64,
        move |n: &u64| {
            pair.wait(); // nobody goes on alone
            Ok(n + 1_000)
        },
        move |next: &mut u64, n: u64, (): &mut ()| {
            of.enter(0);
            assert_eq!(n, *next + 1_000);
            *next += 1;
            of.leave(0, Some(n - 1_000));
        },
    );
    app.connect(numbers, work);
    let summary = run(app, &plan(2));
    assert_eq!(summary.snapshot.stage("work").unwrap().counts.handled, N, "{summary}");
    watch.assert_in_order(N, 1);
}

#[test]
fn each_key_is_in_order_behind_steps_of_any_length_under_every_policy() {
    const N: u64 = 2_000;
    for policy in ["stealing", "single", "srpt", "seda", "color"] {
        let watch = Watch::default();
        let of = watch.clone();
        let app = App::new("keys");
        let numbers = app.source("numbers", || 0..N);
        let work = app.keyed_prepared(
            "work",
            |n: &u64| n % 7,
            |n: &u64| {
                (0..n * 7_919 % 400).for_each(|_| std::hint::spin_loop());
                Ok(*n)
            },
            move |_: &mut (), n: u64, (): &mut ()| {
                of.enter(n % 7);
                of.leave(n % 7, Some(n));
            },
        );
        app.connect(numbers, work);
        let plan = Plan::new().threads(4).policy(policy).every(|every| every.instances(4));
        let summary = run(app, &plan);
        assert_eq!(summary.snapshot.stage("work").unwrap().counts.handled, N, "{policy}");
        watch.assert_in_order(N, 7);
    }
}

#[test]
fn a_step_that_fails_is_retried_in_the_turn_of_its_event() {
    const N: u64 = 400;
    let watch = Watch::default();
    let (of, calls) = (watch.clone(), Arc::new(Mutex::new(Vec::new())));
    let app = App::new("retries");
    let numbers = app.source("numbers", || 0..N);
    let work = app.keyed_prepared(
        "work",
        |n: &u64| n % 4,
        move |n: &u64| {
            // Of every fifth, the one ahead and the first in its turn.
            let mut calls = calls.lock().unwrap();
            calls.push(*n);
            let before = calls.iter().filter(|call| *call == n).count();
            let fails = n % 5 == 2 && before <= 2;
            drop(calls);
            assert!(!fails || n.is_multiple_of(2), "a panic of the step");
            if fails { Err(Error::msg("not yet")) } else { Ok(*n) }
        },
        move |_: &mut (), n: u64, (): &mut ()| {
            of.enter(n % 4);
            of.leave(n % 4, Some(n));
        },
    );
    app.connect(numbers, work);
    let wait = Duration::from_micros(50);
    let plan = plan(2).stage("work", |work| work.instances(2).tries(3).backoff(wait));
    let summary = run(app, &plan);
    let counts = summary.snapshot.stage("work").unwrap().counts;
    assert_eq!((counts.handled, counts.failed, counts.retried), (N, 0, N / 5), "{summary}");
    watch.assert_in_order(N, 4);
}

#[test]
fn an_event_that_cannot_be_prepared_fails_in_order_and_holds_its_key() {
    for panics in [false, true] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = seen.clone();
        let app = App::new("held");
        let numbers = app.source("numbers", || 0..30_u64);
        let work = app.keyed_prepared(
            "work",
            |n: &u64| n % 3,
            move |n: &u64| {
                assert!(*n != 4 || !panics, "a panic of the step");
                if *n == 4 { Err(Error::msg("bad")) } else { Ok(*n) }
            },
            move |_: &mut (), n: u64, (): &mut ()| into.lock().unwrap().push(n),
        );
        app.connect(numbers, work);
        let plan =
            plan(2).stage("work", |work| work.instances(2).tries(2).on_failure(OnFailure::HoldKey));
        let summary = run(app, &plan);
        let counts = summary.snapshot.stage("work").unwrap().counts;
        assert_eq!((counts.handled, counts.failed, counts.retried), (21, 9, 1), "{summary}");
        let own: Vec<u64> = seen.lock().unwrap().iter().copied().filter(|n| n % 3 == 1).collect();
        assert_eq!(own, [1], "nothing overtakes the event that failed");
        let step = summary.snapshot.stage("work-prepare").unwrap().counts;
        assert_eq!((step.handled, step.failed), (30, 0), "it is a failure of the keyed stage");
    }
}

#[test]
fn an_event_whose_handler_fails_is_prepared_again_and_replayed_as_it_came() {
    let (failed, switch) = (Arc::new(Mutex::new(HashSet::new())), Arc::new(Mutex::new(true)));
    let (on, sum) = (switch.clone(), Arc::new(Mutex::new(Vec::new())));
    let into = sum.clone();
    let app = App::new("again");
    let (sender, texts) = app.input::<String>("texts");
    let work = app.keyed_prepared(
        "work",
        |_: &String| (),
        |text: &String| Ok(text.parse::<u64>()?),
        move |_: &mut (), n: u64, (): &mut ()| -> Result {
            if failed.lock().unwrap().insert(n) || (n == 9 && *on.lock().unwrap()) {
                return Err(Error::msg("once, and 9 as long as the switch is on"));
            }
            into.lock().unwrap().push(n);
            Ok(())
        },
    );
    app.connect(texts, work);
    let plan = plan(1).stage("work", |work| work.tries(2));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    for text in ["7", "8", "9"] {
        sender.try_send(text.to_owned()).unwrap();
    }
    runtime.run();
    assert_eq!(*sum.lock().unwrap(), [7, 8]);
    *switch.lock().unwrap() = false;
    assert_eq!(runtime.control().replay("work", 9), Ok(1));
    runtime.run();
    assert_eq!(*sum.lock().unwrap(), [7, 8, 9]);
}

#[test]
fn windows_gather_what_was_prepared() {
    let counts = Arc::new(Mutex::new(Vec::new()));
    let into = counts.clone();
    let app = App::new("windows");
    let texts = app.source("texts", || (0..1_000_u64).map(|n| n.to_string()));
    let work = app.prepared(
        "work",
        |text: &String| text.len(),
        |text: &String| Ok(text.parse::<u64>()?),
        keyed(
            |n: &u64| n.to_string().len(),
            |n: &u64| Time::from_nanos(*n),
            Windows::tumbling(Duration::from_nanos(100)),
            Count,
        ),
    );
    let keep = app.sink("keep", move |window: Windowed<usize, u64>| {
        into.lock().unwrap().push((window.key, window.start.as_nanos(), window.value));
    });
    app.connect(texts, work);
    app.connect(work.windows, keep);
    let _ = run(app, &plan(4));
    let mut counts = counts.lock().unwrap().clone();
    counts.sort_unstable();
    let hundreds = (1..10).map(|n| (3, n * 100, 100));
    assert!(
        counts.iter().copied().eq([(1, 0, 10), (2, 0, 90)].into_iter().chain(hundreds)),
        "{counts:?}"
    );
}

#[test]
fn a_stop_accounts_for_events_between_their_steps() {
    let app = App::new("stopped");
    let numbers = app.source("numbers", || 0_u64..);
    let (begun, first) = std::sync::mpsc::channel();
    let work = app.keyed_prepared(
        "work",
        |n: &u64| n % 5,
        |n: &u64| Ok(*n),
        move |_: &mut (), n: u64, (): &mut ()| {
            if n == 100 {
                let _ = begun.send(());
            }
        },
    );
    app.connect(numbers, work);
    let running = app.start(&plan(2)).unwrap();
    first.recv_timeout(crate::bounded::BOUND).unwrap();
    let summary = running.stop();
    assert!(summary.snapshot.adds_up(), "{summary}");
}
