//! What random programs (`tests/random`) found, as small programs: each failed before its fix.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{
    App, Cx, Demand, Error, Ev, Out, Plan, Ports, Pull, Result, Retry, Settled, Source, Stage,
    batched,
};

type Seen = Arc<Mutex<Vec<u64>>>;

fn see(seen: &Seen) -> impl Fn(u64) + Clone + Send + Sync + 'static {
    let seen = seen.clone();
    move |n| seen.lock().expect("no handler panics").push(n)
}

/// An acknowledged source that pauses instead of ending, if asked to, and counts what has settled.
struct Asked {
    left: u64,
    settled: Arc<AtomicU64>,
    pauses: bool,
}

impl Source for Asked {
    type Item = u64;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u64>, _: Demand) -> Result<Pull> {
        if self.left == 0 {
            return Ok(if self.pauses { Pull::After(Duration::from_secs(1)) } else { Pull::End });
        }
        self.left -= 1;
        out.send(self.left);
        Ok(Pull::More)
    }
    fn settled(&mut self, _: Settled) {
        self.settled.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_batch_of_events_with_and_without_a_group_settles_the_group() {
    let app = App::new("mixed");
    let settled = Arc::new(AtomicU64::new(0));
    let told = settled.clone();
    let asked = app.source("asked", move || Asked { left: 3, settled: told, pauses: false });
    let plain = app.source("plain", || 0..3u64);
    let all = |_: Vec<u64>, _: &mut ()| {};
    let all = app.stage("group", batched(4, Duration::from_secs(1), all));
    app.connect(asked, all);
    app.connect(plain, all);
    let mut runtime = TestRuntime::new(app, &Plan::new().threads(1).every(|s| s.batch(1))).unwrap();
    assert!(runtime.run(), "{}", runtime.snapshot());
    assert_eq!(settled.load(SeqCst), 3);
}

#[test]
fn a_timer_from_before_a_drain_leaves_a_source_that_awaits_acknowledgement() {
    let app = App::new("drained");
    let settled = Arc::new(AtomicU64::new(0));
    let told = settled.clone();
    let asked = app.source("asked", move || Asked { left: 1, settled: told, pauses: true });
    let sink = app.sink("sink", |_: u64| {});
    app.connect(asked, sink);
    let mut runtime = TestRuntime::new(app, &Plan::new().threads(1)).unwrap();
    runtime.hold("sink");
    runtime.run_until_idle();
    runtime.close();
    runtime.advance(Duration::from_secs(2));
    runtime.resume("sink");
    assert!(runtime.run(), "{:?}", runtime.snapshot());
    assert_eq!(settled.load(SeqCst), 1);
}

/// Takes groups, and fails them without taking their events.
#[derive(Clone)]
struct Fails;
impl Stage for Fails {
    type In = Vec<u64>;
    type Ports = Out<u64>;
    fn handle(&mut self, _: Ev<'_, Vec<u64>>, _: &mut Out<u64>, _: &Cx) -> Result {
        Err(Error::msg("always"))
    }
}

#[test]
fn an_autostart_event_alone_in_its_group_waits_no_longer_than_its_patience() {
    let app = App::new("alone");
    let all = app.stage("group", batched(3, Duration::from_secs(1), Fails)).autostart(1);
    app.connect(all, all);
    let mut runtime = TestRuntime::new(app, &Plan::new().threads(1)).unwrap();
    assert!(runtime.run(), "{:?}", runtime.snapshot());
}

#[test]
fn a_group_that_is_due_and_has_no_patience_rests_until_an_instance_is_free() {
    let app = App::new("due");
    let numbers = app.source("numbers", || 0..9u64);
    let all = app.stage("group", batched(2, Duration::ZERO, Fails));
    app.connect(numbers, all);
    let retry = Retry::new(2, Duration::from_secs(1));
    let plan = Plan::new().threads(1).stage("group", |s| s.capacity(3).retry(retry));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    for _ in 0..1_000 {
        runtime.step();
    }
    assert!(!runtime.step(), "there is nothing to do before the second try");
}

#[test]
fn a_cycle_ends_although_an_instance_waited_for_room_outside_of_it() {
    let app = App::new("loop");
    let numbers = app.source("numbers", || 0..1u64);
    let turn = app.process("turn", |n: u64, out: &mut Out<u64>| {
        if n == 0 {
            (1..4).for_each(|n| out.send(n));
        }
    });
    let sink = app.sink("sink", |_: u64| {});
    app.connect(numbers, turn);
    app.connect(turn, turn);
    app.connect(turn, sink);
    let plan = Plan::new().threads(1).stage("sink", |s| s.capacity(1));
    let plan = plan.stage("turn", |s| s.instances(2));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("sink");
    runtime.run_until_idle();
    runtime.resume("sink");
    assert!(runtime.run(), "{:?}", runtime.snapshot());
}

#[test]
fn what_was_handled_before_an_event_that_is_tried_later_counts_once() {
    let app = App::new("later");
    let numbers = app.source("numbers", || 0..10u64);
    #[derive(Clone)]
    struct FailsFirst;
    impl Stage for FailsFirst {
        type In = u64;
        type Ports = ();
        fn handle(&mut self, n: Ev<'_, u64>, _: &mut (), cx: &Cx) -> Result {
            if *n == 5 && cx.attempt() == 1 {
                return Err(Error::msg("not yet"));
            }
            Ok(())
        }
    }
    let sink = app.stage("sink", FailsFirst);
    app.connect(numbers, sink);
    let retry = Retry::new(2, Duration::from_secs(1));
    let mut runtime =
        TestRuntime::new(app, &Plan::new().threads(1).stage("sink", |s| s.retry(retry))).unwrap();
    assert!(runtime.run());
    let snapshot = runtime.snapshot();
    let counts = snapshot.stage("sink").unwrap().counts;
    assert_eq!((counts.handled, counts.retried), (10, 1), "{snapshot}");
}

#[derive(Ports)]
struct Both {
    left: Out<u64>,
    right: Out<u64>,
}

#[test]
fn two_ports_to_one_full_queue_keep_their_order() {
    let app = App::new("both");
    let numbers = app.source("numbers", || 0..50u64);
    let both = app.stage("both", |n: u64, out: &mut Both| {
        out.left.send(n * 4);
        out.right.send(n * 4 + 1);
        out.left.send(n * 4 + 2);
        out.right.send(n * 4 + 3);
    });
    let seen = Seen::default();
    let sink = app.sink("sink", see(&seen));
    app.connect(numbers, both);
    app.connect(both.left, sink);
    app.connect(both.right, sink);
    let mut runtime =
        TestRuntime::new(app, &Plan::new().threads(1).every(|s| s.capacity(1))).unwrap();
    assert!(runtime.run());
    assert!(seen.lock().unwrap().iter().copied().eq(0..200));
}

#[test]
fn what_finish_sends_comes_after_what_an_ordered_stage_still_waits_to_send() {
    #[derive(Clone)]
    struct Says;
    impl Stage for Says {
        type In = u64;
        type Ports = Out<u64>;
        fn handle(&mut self, _: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
            (0..5).for_each(|n| out.send(n));
            Ok(())
        }
        fn finish(&mut self, out: &mut Out<u64>, _: &Cx) -> Result {
            out.send(5);
            Ok(())
        }
    }
    let app = App::new("last");
    let (sender, port) = app.input::<u64>("input");
    let says = app.stage("says", Says).ordered();
    let seen = Seen::default();
    let sink = app.sink("sink", see(&seen));
    app.connect(port, says);
    app.connect(says, sink);
    let plan = Plan::new().threads(1).stage("sink", |s| s.capacity(1));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("sink");
    sender.send(0).unwrap();
    runtime.run_until_idle();
    drop(sender);
    runtime.run_until_idle();
    runtime.resume("sink");
    assert!(runtime.run());
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn an_ordered_stage_goes_on_after_an_event_that_floods() {
    let app = App::new("flood");
    let numbers = app.source("numbers", || 0..10u64);
    let many = app
        .process("many", |n: u64, out: &mut Out<u64>| {
            (0..if n == 3 { 100_000 } else { 1 }).for_each(|_| out.send(n));
        })
        .ordered();
    let seen = Seen::default();
    let sink = app.sink("sink", see(&seen));
    app.connect(numbers, many);
    app.connect(many, sink);
    let plan = Plan::new().threads(1).stage("many", |s| s.emit_max(100));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.run(), "{:?}", runtime.snapshot());
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
}
