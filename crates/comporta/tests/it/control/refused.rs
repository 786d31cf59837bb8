//! What must hold when a policy is unknown, will not start, is refused something, or panics.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use comporta::policy::{PolicyControl, Refused};
use comporta::testing::TestRuntime;
use comporta::{App, Choice, ControlError, Plan, StartError};

use super::{Made, ended, handled, id, settings};
use crate::seen::counts;

/// `numbers` -> `work` -> `sink`, and this policy, called `ours`.
fn program(made: Made) -> App {
    let app = App::new("refused");
    made.add(&app, "ours");
    let numbers = app.source("numbers", || 0..500_u64);
    let work = app.map("work", |n: u64| n);
    let sink = app.sink("sink", |_: u64| ());
    app.connect(numbers, work);
    app.connect(work, sink);
    app
}

fn plan() -> Plan {
    Plan::new().threads(2).every(|s| s.capacity(8).batch(4))
}

fn nothing() -> Made {
    Made::new(|_| Ok(()))
}

#[test]
fn an_unknown_policy_or_parameter_is_refused_before_anything_runs() {
    let start = |policy: &str| {
        let choice: Choice = policy.parse().unwrap();
        TestRuntime::new(program(nothing()), &plan().policy(choice)).unwrap_err()
    };
    for (policy, expected) in [
        ("sdea", "sdea"),
        ("seda(thread=4)", "`seda` has no parameter `thread`"),
        ("seda(threads=0)", "threads"),
        ("seda(capacity=0)", "capacity"),
    ] {
        let error = start(policy);
        assert!(matches!(error, StartError::Plan(_)), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let mut runtime = TestRuntime::new(program(nothing()), &plan()).unwrap();
    let before = settings(&runtime.snapshot());
    for policy in ["sdea", "seda(thread=4)", "lrb(slots_per_stage=1)", "srpt(threads=3)"] {
        let choice: Choice = policy.parse().unwrap();
        let error = runtime.control().set_policy("main", choice).unwrap_err();
        assert!(matches!(error, ControlError::Plan(_)), "{error:?}");
    }
    assert_eq!(settings(&runtime.snapshot()), before);
    assert!(runtime.run());
}

#[test]
fn a_policy_that_will_not_start_keeps_the_program_from_starting() {
    let made = Made::new(|control| control.kill_threads(control.main_pool(), 9));
    let error = TestRuntime::new(program(made), &plan().policy("ours")).unwrap_err();
    let StartError::Policy { cluster, policy, message } = error else { panic!("{error}") };
    assert_eq!((cluster.as_str(), policy.as_str()), ("main", "ours"));
    assert_eq!(message, "the number of threads to go from `main` is 9: use at most 2");
    let made = Made::new(|_| panic!("no"));
    assert!(matches!(program(made).start(&plan().policy("ours")), Err(StartError::Policy { .. })));
}

#[test]
fn while_events_flow_the_policy_before_goes_on_and_nothing_is_changed() {
    // It changes what it can before it gives up.
    let made = Made::new(|control| {
        let (work, pool) = (id(control, "work"), control.new_pool(3)?);
        control.set_pool(pool, work)?;
        control.set_priority(work, 5)?;
        control.add_instances(work, 5)?;
        control.set_queue_capacity(work, 99)?;
        control.disable_queue(work)?;
        control.set_color(work, Some(1))?;
        control.add_timer(Duration::from_millis(1))?;
        control.set_queue_capacity(work, 0)
    });
    let mut runtime = TestRuntime::new(program(made), &plan().policy("seda")).unwrap();
    (0..20).for_each(|_| _ = runtime.step());
    let before = settings(&runtime.snapshot());
    let error = runtime.control().set_policy("main", "ours").unwrap_err();
    let expected = "the policy did not start: the queue capacity of `work` is 0: use at least 1";
    assert_eq!(error.to_string(), expected);
    runtime.step();
    assert_eq!(settings(&runtime.snapshot()), before);
    assert!(runtime.run());
    assert_eq!(counts(&runtime, "sink").handled, 500);
}

#[test]
fn what_a_call_is_refused_is_reported_and_the_policy_goes_on() {
    let made = Made::new(|control| control.add_timer(Duration::from_millis(1)).map(drop))
        .on_timer(|control| control.set_queue_capacity(id(control, "work"), 0));
    let mut runtime = TestRuntime::new(program(made), &plan().policy("ours")).unwrap();
    runtime.advance(Duration::from_millis(2));
    let refusal = "the policy `ours` of `main`: the queue capacity of `work` is 0: use at least 1";
    assert_eq!(runtime.problems(), [refusal, refusal]);
    assert_eq!(runtime.snapshot().pools[0].policy.name, "ours");
    assert!(runtime.is_ended());
}

/// Panics the first time it is called for this, and never again.
fn panics_once() -> impl Fn(&mut dyn PolicyControl) -> Result<(), Refused> + Clone + Send + Sync {
    let done = Arc::new(AtomicBool::new(false));
    move |control| {
        control.set_priority(id(control, "work"), 7)?;
        assert!(done.swap(true, SeqCst), "boom");
        Ok(())
    }
}

fn watching(control: &mut dyn PolicyControl) -> Result<(), Refused> {
    control.use_per_stage_queues()?;
    control.add_timer(Duration::from_millis(1))?;
    control.set_fire_last_focused(true)?;
    control.set_max_visits(NonZeroUsize::new(5))
}

#[test]
fn a_policy_that_panics_is_replaced_by_the_default_and_the_program_goes_on() {
    for call in ["timer 0", "last focused", "max visits"] {
        let made = || match call {
            "timer 0" => Made::new(watching).on_timer(panics_once()),
            "last focused" => Made::new(watching).on_last_focused(panics_once()),
            _ => Made::new(watching).on_max_visits(panics_once()),
        };
        let mut runtime = TestRuntime::new(program(made()), &plan().policy("ours")).unwrap();
        let stepped = |runtime: &mut TestRuntime| {
            runtime.advance(Duration::from_millis(1));
            runtime.is_ended()
        };
        assert!(stepped(&mut runtime) || runtime.run(), "{call}");
        let problems = runtime.problems();
        let begins = format!("the policy `ours` of `main` failed ({call}): panic at ");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with(&begins), "{problems:?}");
        assert!(problems[0].ends_with(": boom; `stealing` goes on"), "{problems:?}");
        let snapshot = runtime.snapshot();
        assert_eq!(snapshot.pools[0].policy.name, "stealing");
        assert!(snapshot.stages.iter().all(|stage| stage.priority == 0), "as planned again");
        assert_eq!(counts(&runtime, "sink").handled, 500);
        // And it may be chosen again.
        runtime.control().set_policy("main", "ours").unwrap();

        let summary = ended(program(made()).start(&plan().policy("ours")).unwrap(), call);
        assert!(summary.snapshot.adds_up(), "{summary}");
        assert_eq!(handled(&summary.snapshot, "sink"), 500);
    }
}

#[test]
fn a_policy_that_panics_when_it_begins_while_events_flow_leaves_the_one_before() {
    let mut runtime =
        TestRuntime::new(program(Made::new(|_| panic!("boom"))), &plan().policy("lrb")).unwrap();
    (0..20).for_each(|_| _ = runtime.step());
    let error = runtime.control().set_policy("main", "ours").unwrap_err();
    assert!(error.to_string().contains("boom"), "{error}");
    assert_eq!(runtime.snapshot().pools[0].policy.name, "lrb");
    assert!(runtime.run());
    assert_eq!(counts(&runtime, "sink").handled, 500);
}

#[test]
fn a_policy_that_changes_its_program_through_a_handle_is_refused_rather_than_left_waiting() {
    let handle = Arc::new(std::sync::OnceLock::<comporta::Control>::new());
    let (given, said) = (handle.clone(), Arc::new(std::sync::Mutex::new(Vec::new())));
    let heard = said.clone();
    let made = Made::new(|control| control.add_timer(Duration::from_millis(1)).map(drop)).on_timer(
        move |_| {
            let Some(handle) = given.get() else { return Ok(()) };
            let mut heard = heard.lock().unwrap();
            heard.push(handle.set_policy("main", "single"));
            heard.push(handle.set_threads("main", 1));
            heard.push(handle.move_stage("work", "main"));
            Ok(())
        },
    );
    let mut runtime = TestRuntime::new(program(made), &plan().policy("ours")).unwrap();
    let _ = handle.set(runtime.control());
    runtime.advance(Duration::from_millis(1));
    assert_eq!(*said.lock().unwrap(), vec![Err(ControlError::ByPolicy); 3]);
    assert!(runtime.is_ended());
}
