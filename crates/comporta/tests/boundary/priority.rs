//! Who goes first: a higher priority, wherever it stands and whenever it was raised; among equals
//! whoever came first, but for a bounded number of others.

use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{App, Out, Plan, Sender};

use crate::bounded::{Gate, comes_true, handled, stage, under_policies, watched};

/// Policies that go by priorities. Those with a visit order, or a pool for each stage, go by that.
const BY_PRIORITY: [&str; 2] = ["single", "stealing"];
/// How many visits may go before one that should be first.
const A_FEW: usize = 8;

fn done(runtime: &TestRuntime, name: &str) -> u64 {
    stage(&runtime.snapshot(), name).counts.handled
}

/// Steps until a stage has handled its first event; says how many visits others made before.
fn overtaken(runtime: &mut TestRuntime, name: &str, most: usize) -> usize {
    let before = done(runtime, name);
    (0..most).find(|_| runtime.step() && done(runtime, name) > before).unwrap_or(most)
}

/// An input and the sink it leads to.
fn way_in(app: &App, name: &str) -> Sender<u64> {
    let (sender, port) = app.input::<u64>(format!("{name}-in"));
    app.connect(port, app.sink(name, |_: u64| ()));
    sender
}

#[test]
fn a_higher_priority_goes_before_what_a_worker_has_in_its_own_queue() {
    watched("priorities", || {
        for policy in BY_PRIORITY {
            for (threads, seed) in [(1, 0), (2, 1), (4, 2), (8, 3)] {
                let app = App::new("priorities");
                let low = way_in(&app, "low");
                let high = way_in(&app, "high");
                let plan = Plan::new()
                    .policy(policy)
                    .threads(threads)
                    .every(|s| s.batch(1))
                    .stage("high", |s| s.priority(10));
                let mut runtime = TestRuntime::new(app, &plan).unwrap().seeded(seed);
                (0..1_000).for_each(|n| low.send(n).unwrap());
                (0..100).for_each(|_| assert!(runtime.step())); // the workers are in it
                for n in 0..10 {
                    high.send(n).unwrap();
                    let before = overtaken(&mut runtime, "high", 500);
                    assert!(before <= A_FEW, "{policy}, {threads} threads: {before} went before");
                }
            }
        }
    });
}

/// `hog` has events without end, one a visit, and this priority.
fn hog(app: &App) -> Sender<u64> {
    let (sender, port) = app.input::<u64>("hog-in");
    let hog = app.process("hog", |n: u64, out: &mut Out<u64>| out.send(n));
    app.connect(port, hog);
    app.connect(hog, hog);
    sender
}

#[test]
fn a_stage_whose_priority_is_raised_goes_first_with_what_it_has() {
    watched("raised", || {
        for policy in BY_PRIORITY {
            for threads in [1, 2, 4, 8] {
                let app = App::new("raised");
                let hogs = hog(&app);
                let low = way_in(&app, "low");
                let plan = Plan::new()
                    .policy(policy)
                    .threads(threads)
                    .every(|s| s.batch(1))
                    .stage("hog", |s| s.priority(10));
                let mut runtime = TestRuntime::new(app, &plan).unwrap();
                hogs.send(0).unwrap();
                low.send(0).unwrap();
                (0..100).for_each(|_| assert!(runtime.step()));
                runtime.control().set_priority("low", 20).unwrap();
                let before = overtaken(&mut runtime, "low", 5_000);
                assert!(before <= A_FEW, "{policy}, {threads} threads: {before} went before");
            }
        }
    });
}

/// `first` -> `middle` -> `last`, with room for one event each, and `hog` beside them.
fn chain(plan: &Plan) -> (TestRuntime, [Sender<u64>; 2]) {
    let app = App::new("chain");
    let (sender, port) = app.input::<u64>("in");
    let first = app.map("first", |n: u64| n);
    let middle = app.map("middle", |n: u64| n);
    let last = app.sink("last", |_: u64| ());
    let hogs = hog(&app);
    app.connect(port, first);
    app.connect(first, middle);
    app.connect(middle, last);
    let plan = plan
        .clone()
        .every(|s| s.batch(1))
        .stage("first", |s| s.priority(10))
        .stage("middle", |s| s.capacity(1))
        .stage("last", |s| s.capacity(1))
        .stage("hog", |s| s.priority(5));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("hog");
    hogs.send(0).unwrap();
    (runtime, [sender, hogs])
}

#[test]
fn an_inherited_priority_is_passed_on_to_whom_the_heir_waits_for() {
    watched("inherited", || {
        for policy in BY_PRIORITY {
            let (mut runtime, [sender, _hogs]) = chain(&Plan::new().policy(policy).threads(1));
            runtime.hold("last");
            // One fills `last`, one waits for it in `middle`'s outbox, one fills `middle`, and one
            // waits for that in the outbox of `first`, which lends its priority.
            for n in 0..4 {
                sender.send(n).unwrap();
                runtime.run_until_idle();
            }
            let snapshot = runtime.snapshot();
            let waits = |name| stage(&snapshot, name).outboxed;
            assert_eq!((waits("middle"), waits("last")), (1, 1), "{policy}\n{snapshot}");
            runtime.resume("hog");
            runtime.resume("last");
            // Whoever waits with priority 10 waits for `last` in the end; `hog` has 5.
            let before = overtaken(&mut runtime, "last", 500);
            assert!(before <= A_FEW, "{policy}: {before} visits of the hog went before");
        }
    });
}

#[test]
fn an_inherited_priority_is_given_back_when_room_is_made_by_hand() {
    watched("inherited", || {
        for policy in BY_PRIORITY {
            let (mut runtime, [sender, _hogs]) = chain(&Plan::new().policy(policy).threads(1));
            runtime.hold("middle");
            for n in 0..2 {
                sender.send(n).unwrap();
                runtime.run_until_idle();
            }
            assert_eq!(
                stage(&runtime.snapshot(), "middle").outboxed,
                1,
                "{policy}: it is waited for"
            );
            runtime.control().set_capacity("middle", 1_000).unwrap();
            (2..100).for_each(|n| sender.send(n).unwrap());
            runtime.run_until_idle();
            let snapshot = runtime.snapshot();
            let middle = stage(&snapshot, "middle");
            assert_eq!((middle.queued, middle.outboxed), (100, 0), "{policy}: nobody waits for it");
            runtime.resume("hog");
            runtime.resume("middle");
            for _ in 0..50 {
                assert!(runtime.step());
            }
            let (middle, hog) = (done(&runtime, "middle"), done(&runtime, "hog"));
            assert!(middle <= A_FEW as u64, "{policy}: {middle} with priority 0, {hog} with 5");
        }
    });
}

#[test]
fn an_event_that_goes_round_overtakes_another_stage_a_bounded_number_of_times() {
    const BOUND: usize = 1_000;
    watched("round", || {
        for policy in ["single", "color", "master-worker", "stealing"] {
            for threads in [1, 2, 4, 8] {
                let app = App::new("round");
                let hogs = hog(&app);
                let other = way_in(&app, "other");
                let mut runtime =
                    TestRuntime::new(app, &Plan::new().policy(policy).threads(threads)).unwrap();
                hogs.send(0).unwrap();
                (0..100).for_each(|_| assert!(runtime.step()));
                for n in 0..10 {
                    other.send(n).unwrap();
                    let before = overtaken(&mut runtime, "other", BOUND);
                    assert!(
                        before < BOUND,
                        "{policy}, {threads} threads: overtaken without a bound"
                    );
                }
            }
        }
    });
}

/// Its threads leave a stage only when that has no more events: one that feeds itself keeps them.
fn stays_where_events_last(policy: &str) -> bool {
    ["cohort", "cohort-bounded", "lrb", "dbr", "srpt-private"].contains(&policy)
}

#[test]
fn what_a_worker_sent_is_handled_while_it_does_not_return_and_the_others_are_busy() {
    const SENT: u64 = 200;
    under_policies(
        |policy| !stays_where_events_last(policy),
        |plan, label| {
            if label.ends_with(", 1 threads") {
                return; // its only thread is held
            }
            let gate = Gate::default();
            let way = gate.way();
            let app = App::new("hidden");
            let hogs = hog(&app);
            let (sender, port) = app.input::<u64>("in");
            let split = app.flat_map("split", |_: u64| 0..SENT);
            let sink = app.sink("sink", |_: u64| ());
            let long = app.sink("long", move |n: u64| {
                if n == 0 {
                    way.pass();
                }
            });
            app.connect(port, split);
            app.connect(split, sink);
            app.connect(split, long);
            // No stand-in: the other threads see to it. And many visits, not one.
            let plan = plan.stuck_after(Duration::from_secs(3_600)).stage("sink", |s| s.batch(2));
            let running = app.start(&plan).unwrap();
            hogs.send(0).unwrap();
            sender.send(0).unwrap();
            gate.wait_for(1, label);
            let all = || handled(&running, "sink") == SENT;
            assert!(comes_true(all), "{label}\n{}", running.snapshot());
            gate.open();
            let _ = running.stop();
        },
    );
}
