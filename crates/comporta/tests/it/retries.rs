//! An event that failed is tried again as the plan says, and the counts still add up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{App, Cx, Error, Ev, Out, Plan, Result, Retry, Stage};

use crate::seen::counts;

/// Fails on the first try at every fifth number.
#[derive(Clone)]
struct Stumble;

impl Stage for Stumble {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, cx: &Cx) -> Result {
        if n.is_multiple_of(5) && cx.attempt() == 1 {
            return Err(Error::msg("stumbled"));
        }
        out.send(*n);
        Ok(())
    }
}

#[test]
fn a_retry_after_a_wait_counts_what_its_visit_handled_before_once() {
    for ordered in [false, true] {
        let app = App::new("stumble");
        let numbers = app.source("numbers", || 1..=20_u64);
        let stumble = app.stage("stumble", Stumble);
        let stumble = if ordered { stumble.ordered() } else { stumble };
        let sink = app.sink("sink", |_: u64| ());
        app.connect(numbers, stumble);
        app.connect(stumble, sink);
        let retry = Retry::new(2, Duration::from_millis(10));
        let plan = Plan::new().threads(1).stage("stumble", |s| s.retry(retry));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        assert!(runtime.run());
        let snapshot = runtime.snapshot();
        assert!(snapshot.adds_up(), "ordered: {ordered}\n{snapshot}");
        let counts = snapshot.stage("stumble").unwrap().counts;
        assert_eq!((counts.handled, counts.failed, counts.retried), (20, 0, 4));
        assert_eq!(snapshot.stage("sink").unwrap().counts.handled, 20);
    }
}

#[test]
fn a_plan_that_retries_a_closure_keeps_copies_of_what_it_takes() {
    let app = App::new("closure");
    let numbers = app.source("numbers", || 0..10u64);
    let tries = Arc::new(Mutex::new(Vec::new()));
    let odd = app.sink("odd", {
        let tries = tries.clone();
        move |n: u64| {
            tries.lock().unwrap().push(n);
            if n % 2 == 1 { Err(Error::msg("odd")) } else { Ok(()) }
        }
    });
    app.connect(numbers, odd);
    let plan = Plan::new().stage("odd", |odd| odd.tries(3));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.run());
    let c = counts(&runtime, "odd");
    assert_eq!((c.handled, c.failed, c.retried), (5, 5, 10));
    assert_eq!(tries.lock().unwrap().len(), 5 + 3 * 5);
    // What failed for good is still there, to be looked at and replayed.
    let failures = runtime.control().take_failures::<u64>("odd").unwrap();
    assert!(failures.iter().all(|(_, event)| event.is_some_and(|n| n % 2 == 1)));
}
