//! Faults that random programs have found.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{App, Cx, Ended, Error, Ev, Out, Plan, Ports, Result, Stage};
use serde::{Deserialize, Serialize};

use crate::bounded::{ends, stage, taken, watched};

const EVENTS: u64 = 100;
/// The event whose `Drop` panics.
const BAD: u64 = 37;

/// Cannot be dropped if it is the bad one.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Bomb(u64);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(self.0 != BAD || std::thread::panicking(), "dropped a bomb");
    }
}

#[derive(Clone)]
struct Refuses;
impl Stage for Refuses {
    type In = Bomb;
    type Ports = ();
    fn handle(&mut self, _: Ev<'_, Bomb>, _: &mut (), _: &Cx) -> Result {
        Err(Error::msg("no"))
    }
}

/// `KEPT_FAILURES_PANIC_WHEN_DROPPED`. On threads the panic may come on a worker, at its end.
#[test]
fn a_failed_event_whose_drop_panics_lets_its_program_be_dropped() {
    watched("kept", || {
        let app = App::new("kept");
        let bombs = app.source("bombs", || (0..EVENTS).map(Bomb));
        app.connect(bombs, app.stage("work", Refuses));
        let mut runtime = TestRuntime::new(app, &Plan::new().threads(1)).unwrap();
        assert!(runtime.run());
        assert_eq!(stage(&runtime.snapshot(), "work").counts.failed, EVENTS);
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(runtime)));
        assert!(dropped.is_ok(), "the panic came to the one who dropped the program");
    });
}

/// `RETAINED_COPIES_PANIC_WHEN_DROPPED`.
#[test]
fn a_retained_copy_whose_drop_panics_costs_no_other_event() {
    watched("retained", || {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let app = App::new("retained");
        let bombs = app.source("bombs", || (0..EVENTS).map(Bomb));
        let sees = seen.clone();
        let work =
            app.map_in_place("work", move |bomb: &mut Bomb| sees.lock().unwrap().push(bomb.0));
        app.connect(bombs, work.retain());
        app.connect(work, app.sink("sink", std::mem::forget::<Bomb>));
        let mut runtime = TestRuntime::new(app, &Plan::new().threads(1)).unwrap();
        assert!(runtime.run());
        let mut others = taken(&seen);
        others.retain(|n| *n != BAD);
        let expected: Vec<u64> = (0..EVENTS).filter(|n| *n != BAD).collect();
        assert_eq!(others, expected, "some were never handled");
    });
}

/// Handles numbers in place under this plan, some of which fail. What was handled is sent on.
fn all_that_was_handled_in_place_is_sent_on(ordered: bool, plan: Plan) {
    watched("in place", move || {
        let app = App::new("in-place");
        let numbers = app.source("numbers", || 0..EVENTS);
        let fails = |n: &mut u64| if *n % 10 == 3 { Err(Error::msg("no")) } else { Ok(()) };
        let work = app.map_in_place("work", fails);
        let work = if ordered { work.ordered() } else { work };
        app.connect(numbers, work);
        app.connect(work, app.sink("sink", |_: u64| ()));
        let mut runtime = TestRuntime::new(app, &plan.threads(1)).unwrap();
        assert!(runtime.run());
        let snapshot = runtime.snapshot();
        let (work, sink) = (stage(&snapshot, "work").counts, stage(&snapshot, "sink").counts);
        assert_eq!((work.handled, work.failed), (90, 10));
        assert_eq!((work.emitted, sink.handled), (90, 90), "emitted, and arrived");
    });
}

/// `FAILURES_IN_PLACE_AFTER_OTHERS_WERE_SENT`.
#[test]
fn a_failure_in_place_withdraws_nothing_that_its_instance_had_handled() {
    all_that_was_handled_in_place_is_sent_on(false, Plan::new().stage("work", |s| s.instances(2)));
}

/// `FAILURES_IN_PLACE_AFTER_OTHERS_WERE_SENT`.
#[test]
fn a_second_try_in_place_and_in_order_withdraws_nothing_that_was_handled() {
    let backoff = Duration::from_micros(20);
    let plan = Plan::new().stage("work", |s| s.tries(2).backoff(backoff));
    all_that_was_handled_in_place_is_sent_on(true, plan);
}

#[derive(Ports)]
struct Both {
    left: Out<Bomb>,
    right: Out<Bomb>,
}

/// `WITHDRAWN_EVENTS_PANIC_WHEN_DROPPED`.
#[test]
fn two_events_withdrawn_from_two_ports_whose_drops_panic_cost_no_worker() {
    watched("withdrawn", || {
        let app = App::new("withdrawn");
        let numbers = app.source("numbers", || 0..EVENTS);
        let work = app.stage("work", |n: u64, out: &mut Both| {
            out.left.send(Bomb(n));
            out.right.send(Bomb(n));
            if n == BAD { Err(Error::msg("no")) } else { Ok(()) }
        });
        app.connect(numbers, work);
        app.connect(work.left, app.sink("left", |_: Bomb| ()));
        app.connect(work.right, app.sink("right", |_: Bomb| ()));
        let summary = ends("withdrawn", app.start(&Plan::new().threads(1)).unwrap());
        assert_eq!(summary.problems, Vec::<String>::new());
        let counts = stage(&summary.snapshot, "work").counts;
        assert_eq!((summary.ended, counts.handled), (Ended::Complete, EVENTS - 1), "{summary}");
    });
}

/// Sends through both ports at its end, and fails.
#[derive(Clone)]
struct CannotFinish;
impl Stage for CannotFinish {
    type In = u64;
    type Ports = Both;
    fn handle(&mut self, _: Ev<'_, u64>, _: &mut Both, _: &Cx) -> Result {
        Ok(())
    }
    fn finish(&mut self, out: &mut Both, _: &Cx) -> Result {
        out.left.send(Bomb(BAD));
        out.right.send(Bomb(BAD + 1));
        Err(Error::msg("no"))
    }
}

/// Found by reading, beside the one above: `finish` of random programs does not fail.
#[test]
fn a_withdrawn_event_whose_drop_panics_leaves_nothing_of_a_failed_finish() {
    watched("finish", || {
        let app = App::new("finish");
        let work = app.stage("work", CannotFinish);
        app.connect(app.source("numbers", || 0..EVENTS), work);
        app.connect(work.left, app.sink("left", std::mem::forget::<Bomb>));
        app.connect(work.right, app.sink("right", std::mem::forget::<Bomb>));
        let mut runtime = TestRuntime::new(app, &Plan::new().threads(1)).unwrap();
        assert!(runtime.run());
        let arrived = ["left", "right"].map(|name| stage(&runtime.snapshot(), name).counts.offered);
        assert_eq!(arrived, [0, 0], "what a failed `finish` had sent was sent on");
    });
}
