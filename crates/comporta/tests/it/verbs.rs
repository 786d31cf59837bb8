//! Stages made of a closure: what each verb sends, and what it does with an error.

use std::sync::{Arc, Mutex};

use comporta::testing::{TestRuntime, record};
use comporta::{App, Error, Plan, Result};

use crate::seen::{counts, taken};

/// Runs `verb` on the numbers 0 to 9; returns what it sent, what failed and what was handled.
fn sent<T: Clone + Send + 'static>(
    verb: impl FnOnce(&App) -> comporta::StageRef<'_, u64, comporta::Out<T>>,
) -> (Vec<T>, u64, u64) {
    let app = App::new("verbs");
    let numbers = app.source("numbers", || 0..10_u64);
    let stage = verb(&app);
    app.connect(numbers, stage);
    let seen = record(&app, stage);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    let counts = counts(&runtime, "verb");
    (seen.take(), counts.failed, counts.handled)
}

#[test]
fn map_and_try_map_send_what_they_return_and_an_error_costs_its_event() {
    assert_eq!(sent(|app| app.map("verb", |n: u64| n + 1)), ((1..11).collect(), 0, 10));
    let (seen, failed, handled) = sent(|app| {
        app.try_map("verb", |n: u64| if n < 4 { Ok(u8::try_from(n * 100)?) } else { Ok(0) })
    });
    assert_eq!((seen, failed, handled), (vec![0, 100, 200, 0, 0, 0, 0, 0, 0], 1, 9));
}

#[test]
fn filter_and_filter_map_send_on_what_they_keep() {
    assert_eq!(sent(|app| app.filter("verb", |n: &u64| n.is_multiple_of(5))), (vec![0, 5], 0, 10));
    let halves = sent(|app| app.filter_map("verb", |n: u64| n.is_multiple_of(4).then_some(n / 2)));
    assert_eq!(halves, (vec![0, 2, 4], 0, 10));
}

#[test]
fn flat_map_and_try_flat_map_send_every_item() {
    let (seen, failed, _) =
        sent(|app| app.flat_map("verb", |n: u64| vec![n; usize::from(n == 3) * 2]));
    assert_eq!((seen, failed), (vec![3, 3], 0));
    let (seen, failed, handled) = sent(|app| {
        app.try_flat_map("verb", |n: u64| match n {
            0..8 => Ok(vec![n; usize::from(n == 3) * 2]),
            _ => Err(Error::msg("too many")),
        })
    });
    assert_eq!((seen, failed, handled), (vec![3, 3], 2, 8));
}

#[test]
fn inspect_sends_every_event_on_and_may_fail() {
    let looked = Arc::new(Mutex::new(Vec::new()));
    let into = looked.clone();
    let (seen, failed, _) = sent(|app| {
        app.inspect("verb", move |n: &u64| -> Result {
            into.lock().unwrap().push(*n);
            if *n == 7 { Err(Error::msg("no sevens")) } else { Ok(()) }
        })
    });
    assert_eq!(taken(&looked), (0..10).collect::<Vec<_>>());
    assert_eq!((seen, failed), (vec![0, 1, 2, 3, 4, 5, 6, 8, 9], 1));
}

/// A result of the type of its event stays in place, and the event is taken all the same.
#[test]
fn a_map_to_the_same_type_takes_its_event_and_is_tried_again_with_a_copy() {
    let run = |plan: &Plan| {
        let app = App::new("maps");
        let numbers = app.source("numbers", || 0..5_u64);
        let mut failed = false;
        let map = app.map("map", move |n: u64| {
            if n == 3 && !std::mem::replace(&mut failed, true) {
                panic!("no threes at first");
            }
            n * 10
        });
        app.connect(numbers, map);
        let seen = record(&app, map);
        let mut runtime = TestRuntime::new(app, plan).unwrap();
        assert!(runtime.run());
        let failures = runtime.control().take_failures::<u64>("map").unwrap();
        (seen.take(), failures.into_iter().map(|(_, event)| event).collect::<Vec<_>>())
    };
    assert_eq!(run(&Plan::new()), (vec![0, 10, 20, 40], vec![None]));
    let again = Plan::new().stage("map", |map| map.tries(2));
    assert_eq!(run(&again), (vec![0, 10, 20, 30, 40], vec![]));
}

#[test]
fn a_predicate_that_panics_leaves_its_event_to_be_replayed() {
    let app = App::new("borrows");
    let numbers = app.source("numbers", || 0..3_u64);
    let keep = app.filter("keep", |n: &u64| if *n == 1 { panic!("no ones") } else { true });
    app.connect(numbers, keep);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    let failures = runtime.control().take_failures::<u64>("keep").unwrap();
    assert_eq!(failures[0].1, Some(1));
}

#[test]
fn a_flat_map_over_a_result_is_warned_about_by_name() {
    let app = App::new("surprise");
    let texts = app.source("texts", || ["1", "two"].map(String::from).into_iter());
    let parse = app.flat_map("parse", |text: String| text.parse::<u64>());
    app.connect(texts, parse);
    app.connect(parse, app.sink("end", |_: u64| {}));
    let warnings: Vec<_> = app.check().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["`parse` is a `flat_map` over a `Result`: errors are dropped, and their events count as \
             handled; use `try_map` or `try_flat_map`"]
    );
}
