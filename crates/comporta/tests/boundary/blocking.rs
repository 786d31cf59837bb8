//! A blocking stage runs on threads of its own: handlers that wait there keep nobody else waiting, and are never more
//! than the plan says.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{App, Client, Ended, Plan, SendError, StageSet};

use crate::bounded::{
    BOUND, Gate, STUCK_AFTER, ends, handled, stage, under_policies, until, watched,
};

const SIBLING: u64 = 10_000;

#[test]
fn handlers_that_wait_keep_no_sibling_from_its_events() {
    under_policies(
        |_| true,
        |plan, label| {
            let gate = Gate::default();
            let way = gate.way();
            let app = App::new("waits");
            let slow = app.source("slow", || 0..8_u64);
            let wait = app.sink("wait", move |_: u64| way.pass()).blocking();
            app.connect(slow, wait);
            let fast = app.source("fast", || 0..SIBLING);
            let work = app.map("work", |n: u64| n + 1);
            let end = app.sink("end", |_: u64| ());
            app.connect(fast, work);
            app.connect(work, end);
            let plan =
                plan.stage("wait", |s| s.instances(8)).blocking_threads(8).stuck_after(BOUND);
            let running = app.start(&plan).unwrap();
            gate.wait_for(8, label);
            until(label, || handled(&running, "end") == SIBLING);
            assert!(running.stuck().is_empty(), "{label}");
            gate.open();
            let summary = ends(label, running);
            assert_eq!(summary.ended, Ended::Complete, "{label}");
            assert_eq!(stage(&summary.snapshot, "wait").counts.handled, 8, "{label}");
        },
    );
}

#[test]
fn no_more_handlers_wait_than_there_are_threads_however_long_they_take() {
    watched("bounded", || {
        let gate = Gate::default();
        let way = gate.way();
        let most = Arc::new(AtomicUsize::new(0));
        let (now, seen) = (Arc::new(AtomicUsize::new(0)), most.clone());
        let app = App::new("bounded");
        let numbers = app.source("numbers", || 0..20_u64);
        let wait = app.sink("wait", move |_: u64| {
            seen.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            way.pass();
            now.fetch_sub(1, SeqCst);
        });
        app.connect(numbers, wait.blocking());
        let ticks = app.source("ticks", || 0..SIBLING);
        app.connect(ticks, app.sink("end", |_: u64| ()));
        let plan = Plan::new().threads(1).blocking_threads(3).stuck_after(STUCK_AFTER);
        let running = app.start(&plan.stage("wait", |s| s.instances(20))).unwrap();
        gate.wait_for(3, "three wait");
        // Handlers that took as long elsewhere would have been stood in for by now.
        let later = running.snapshot().elapsed + 10 * STUCK_AFTER;
        until("time passes", || running.snapshot().elapsed > later);
        assert!(running.stuck().is_empty());
        let pools = running.snapshot().pools;
        let own = pools.iter().find(|pool| pool.name == "blocking").unwrap();
        assert_eq!((own.threads, own.cluster.as_str()), (3, "blocking"));
        assert_eq!(own.stages, ["wait"]);
        gate.open();
        let summary = ends("bounded", running);
        assert_eq!(most.load(SeqCst), 3);
        assert_eq!(stage(&summary.snapshot, "wait").counts.handled, 20);
        assert!(summary.snapshot.adds_up());
    });
}

#[test]
fn a_blocking_handler_may_wait_for_room_and_for_replies() {
    watched("may wait", || {
        let app = App::new("doubles");
        let gateway = app.gateway::<u64, u64>("double");
        let double = app.map("double-it", |n: u64| 2 * n);
        app.connect(gateway.requests, double);
        app.connect(double, gateway.replies);
        let client: Client<u64, u64> = gateway.client;
        let inner = app.start(&Plan::new().threads(1)).unwrap();

        let app = App::new("asks");
        let (sender, sums) = app.input::<u64>("sums");
        let numbers = app.source("numbers", || 0..100_u64);
        let ask = app.sink("ask", move |n: u64| -> comporta::Result {
            sender.send(client.request_blocking(n)?)?;
            if n == 99 {
                sender.close();
            }
            Ok(())
        });
        app.connect(numbers, ask.blocking());
        let total = Arc::new(AtomicUsize::new(0));
        let sum = total.clone();
        let add = app.sink("add", move |n: u64| {
            sum.fetch_add(usize::try_from(n).unwrap(), SeqCst);
        });
        app.connect(sums, add);
        let plan = Plan::new().threads(1).stage("add", |s| s.capacity(1));
        let summary = ends("outer", app.start(&plan).unwrap());
        assert_eq!(stage(&summary.snapshot, "ask").counts.failed, 0, "{summary}");
        assert_eq!(total.load(SeqCst), 9_900);
        let _ = ends("inner", inner); // its client went with the handler
    });
}

#[test]
fn a_blocking_stage_in_another_cluster_is_a_stage_like_any_other() {
    watched("elsewhere", || {
        let app = App::new("elsewhere");
        let (sender, sent) = app.input::<u64>("sent");
        let gate = Gate::default();
        let way = gate.way();
        app.connect(sent, app.sink("end", move |_: u64| way.pass()));
        let numbers = app.source("numbers", || 0..1_u64);
        let send = app.sink("send", move |n: u64| {
            let told = [0; 9].map(|_| sender.send(n));
            assert!(told.contains(&Err(SendError::WouldBlock(n))), "its worker must not wait");
            sender.close();
        });
        app.connect_local(numbers, send.blocking());
        let plan = Plan::new().stage("end", |s| s.capacity(1));
        let plan = plan.cluster("disk", |c| c.stages(StageSet::of(["send", "numbers"])));
        let running = app.start(&plan).unwrap();
        let names: Vec<_> = running.snapshot().pools.into_iter().map(|pool| pool.name).collect();
        assert_eq!(names, ["main", "disk"]);
        until("it has sent", || stage(&running.snapshot(), "send").ended);
        gate.open();
        let summary = ends("elsewhere", running);
        assert_eq!(summary.ended, Ended::Complete);
        assert_eq!(stage(&summary.snapshot, "send").counts.failed, 0, "{summary}");
    });
}

#[test]
fn a_blocking_stage_may_be_joined_by_local_connectors() {
    struct Local(u64);
    let app = App::new("local");
    let numbers = app.source("numbers", || (0..9).map(Local));
    let end = app.sink("end", |n: Local| assert!(n.0 < 9)).blocking();
    app.connect_local(numbers, end);
    let summary = ends("local", app.start(&Plan::new()).unwrap());
    assert_eq!(stage(&summary.snapshot, "end").counts.handled, 9);
}

#[test]
fn a_program_with_blocking_stages_is_drained_stopped_and_tested_like_any_other() {
    watched("ends", || {
        let gate = Gate::default();
        let way = gate.way();
        let app = App::new("ends");
        let numbers = app.source("numbers", || 0..u64::MAX);
        let wait = app.sink("wait", move |_: u64| way.pass()).blocking();
        app.connect(numbers, wait);
        let running = app.start(&Plan::new().threads(1)).unwrap();
        gate.wait_for(1, "one waits");
        let summary = running.drain_within(Duration::from_millis(10));
        assert_eq!(summary.ended, Ended::TimedOut);
        assert_eq!(summary.stuck, ["wait"], "it has not returned when the run is given up");
    });
    let app = App::new("tested");
    let numbers = app.source("numbers", || 0..9_u64);
    let end = app.sink("end", |_: u64| ()).blocking();
    app.connect(numbers, end);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    assert_eq!(runtime.snapshot().stage("end").unwrap().counts.handled, 9);
}
