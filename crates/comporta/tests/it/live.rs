//! Promise 7: threads, instances, capacities, priorities, policies and pools change while events
//! flow, losing none; a change that makes no sense is refused, and changes nothing.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use comporta::testing::{TestRuntime, record};
use comporta::{
    App, Control, ControlError, Cx, Ended, Error, Ev, Out, Plan, Result, Sender, Stage, StageSet,
    WhenFull,
};

use crate::seen::{collector, counts, stage, taken, until};

/// `numbers` -> `a` -> `b` -> `sink`, on two pools, endless until it is drained.
fn endless() -> (App, Plan, Arc<Mutex<Vec<u64>>>) {
    let app = App::new("live");
    let (seen, see) = collector();
    let numbers = app.source("numbers", || 0..u64::MAX);
    let a = app.map("a", |n: u64| n);
    let b = app.map("b", |n: u64| n);
    let sink = app.sink("sink", see);
    app.connect(numbers, a);
    app.connect(a, b);
    app.connect(b, sink);
    let plan = Plan::new()
        .threads(2)
        .cluster("side", |side| side.threads(1).stages(StageSet::none()))
        .every(|s| s.capacity(16).batch(4));
    (app, plan, seen)
}

/// Makes changes while events flow, waiting for some to pass after each; then all that was sent
/// must have come, in order.
fn changed_while_events_flow(changes: impl Fn(&Control, usize)) {
    let (app, plan, seen) = endless();
    let running = app.start(&plan).unwrap();
    let control = running.control();
    for round in 0..60 {
        changes(&control, round);
        let before = stage(&running.snapshot(), "sink").counts.handled;
        until(|| stage(&running.snapshot(), "sink").counts.handled > before + 50);
    }
    let summary = running.drain();
    assert_eq!(summary.ended, Ended::Drained, "{summary}");
    assert!(summary.snapshot.adds_up(), "{summary}");
    let sent = stage(&summary.snapshot, "numbers").counts.emitted;
    assert!(taken(&seen).into_iter().eq(0..sent), "lost or out of order:\n{summary}");
}

#[test]
fn threads_come_and_go_while_events_flow() {
    changed_while_events_flow(|control, round| {
        control.set_threads("main", [4, 1, 3, 2][round % 4]).unwrap();
    });
}

#[test]
fn policies_change_while_events_flow() {
    changed_while_events_flow(|control, round| {
        let policy = ["single", "stealing", "srpt"][round % 3];
        control.set_policy("main", policy).unwrap();
    });
}

#[test]
fn stages_move_between_pools_while_events_flow() {
    changed_while_events_flow(|control, round| {
        let (name, pool) = [
            ("a", "side"),
            ("sink", "side"),
            ("a", "main"),
            ("numbers", "side"),
            ("sink", "main"),
            ("numbers", "main"),
        ][round % 6];
        control.move_stage(name, pool).unwrap();
    });
}

#[test]
fn capacities_and_priorities_change_while_events_flow() {
    changed_while_events_flow(|control, round| {
        control.set_capacity("b", [1, 100, 3, 16][round % 4]).unwrap();
        control.set_priority("sink", [5, -5, 0][round % 3]).unwrap();
        control.set_priority("a", [20, 0][round % 2]).unwrap();
    });
}

#[test]
fn everything_changes_at_once_while_events_flow() {
    changed_while_events_flow(|control, round| {
        control.set_threads("main", 1 + round % 3).unwrap();
        control.set_threads("side", 1 + round % 2).unwrap();
        control.move_stage("b", ["side", "main"][round / 2 % 2]).unwrap();
        control.set_policy("side", ["srpt", "stealing"][round % 2]).unwrap();
        control.set_capacity("sink", 1 + round % 9).unwrap();
    });
}

/// Counts how many were made and how many finished; refuses to be made past a bound.
#[derive(Clone)]
struct Counted {
    made: Arc<AtomicUsize>,
    made_max: usize,
    finished: Arc<AtomicUsize>,
}

impl Counted {
    fn new(made_max: usize) -> Self {
        Counted { made: Arc::default(), made_max, finished: Arc::default() }
    }
}

impl Stage for Counted {
    type In = u64;
    type Ports = Out<u64>;
    fn init(&mut self, _: &Cx) -> Result {
        if self.made.fetch_add(1, SeqCst) >= self.made_max {
            return Err(Error::msg("no more of these"));
        }
        Ok(())
    }
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        out.send(*n);
        Ok(())
    }
    fn finish(&mut self, out: &mut Out<u64>, _: &Cx) -> Result {
        self.finished.fetch_add(1, SeqCst);
        out.send(u64::MAX);
        Ok(())
    }
}

fn counted(
    made_max: usize,
) -> (TestRuntime, Sender<u64>, Counted, comporta::testing::Recorder<u64>) {
    let app = App::new("counted");
    let counted = Counted::new(made_max);
    let (sender, port) = app.input("in");
    let work = app.stage("work", counted.clone());
    let sent = record(&app, work);
    app.connect(port, work);
    let runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    (runtime, sender, counted, sent)
}

#[test]
fn a_retired_instance_finishes_and_what_it_sends_arrives() {
    let (mut runtime, sender, made, sent) = counted(100);
    let control = runtime.control();
    control.set_instances("work", 5).unwrap();
    assert_eq!((made.made.load(SeqCst), stage(&runtime.snapshot(), "work").instances), (5, 5));
    control.set_instances("work", 2).unwrap();
    runtime.run_until_idle();
    assert_eq!((made.finished.load(SeqCst), stage(&runtime.snapshot(), "work").instances), (3, 2));
    assert_eq!(sent.take(), [u64::MAX; 3]);
    sender.send(7).unwrap();
    runtime.close();
    assert!(runtime.run());
    assert_eq!((made.finished.load(SeqCst), made.made.load(SeqCst)), (5, 5));
    assert_eq!(sent.take(), [7, u64::MAX, u64::MAX]);
}

#[test]
fn a_busy_instance_retires_after_its_visit() {
    let app = App::new("busy");
    let (seen, see) = collector();
    let made = Counted::new(100);
    let numbers = app.source("numbers", || 0..40u64);
    let work = app.stage("work", made.clone());
    let sink = app.sink("sink", see);
    app.connect(numbers, work);
    app.connect(work, sink);
    let plan = Plan::new()
        .every(|s| s.batch(1))
        .stage("work", |s| s.instances(4))
        .stage("sink", |s| s.capacity(1));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("sink");
    runtime.run_until_idle();
    assert_eq!(stage(&runtime.snapshot(), "work").idle, 0, "all wait for room");
    runtime.control().set_instances("work", 1).unwrap();
    runtime.run_until_idle();
    assert_eq!(made.finished.load(SeqCst), 0);
    runtime.resume("sink");
    assert!(runtime.run());
    assert_eq!(made.finished.load(SeqCst), 4);
    let numbers: Vec<u64> = taken(&seen).into_iter().filter(|n| *n < 40).collect();
    assert_eq!(numbers.len(), 40);
}

#[test]
fn instances_come_and_go_while_events_flow() {
    let app = App::new("instances");
    let made = Counted::new(usize::MAX);
    let sum = Arc::new(AtomicUsize::new(0));
    let numbers = app.source("numbers", || 0..u64::MAX);
    let work = app.stage("work", made.clone());
    let sink = app.sink("sink", {
        let sum = sum.clone();
        move |n: u64| {
            if n < u64::MAX {
                sum.fetch_add(usize::try_from(n).unwrap(), SeqCst);
            }
        }
    });
    app.connect(numbers, work);
    app.connect(work, sink);
    let plan = Plan::new().threads(2).every(|s| s.capacity(16).batch(4));
    let running = app.start(&plan).unwrap();
    for round in 0..60 {
        running.control().set_instances("work", [4, 1, 7, 2][round % 4]).unwrap();
        let before = stage(&running.snapshot(), "sink").counts.handled;
        until(|| stage(&running.snapshot(), "sink").counts.handled > before + 50);
    }
    let summary = running.drain();
    assert_eq!(summary.ended, Ended::Drained);
    assert!(summary.snapshot.adds_up(), "{summary}");
    let sent = usize::try_from(stage(&summary.snapshot, "numbers").counts.emitted).unwrap();
    assert_eq!(sum.load(SeqCst), sent * (sent - 1) / 2, "{summary}");
    assert_eq!(made.made.load(SeqCst), made.finished.load(SeqCst), "each that was made finished");
}

#[test]
fn instances_that_cannot_be_made_leave_things_as_they_were() {
    let (mut runtime, sender, made, sent) = counted(3);
    let control = runtime.control();
    let error = control.set_instances("work", 5).unwrap_err();
    assert_eq!(error, ControlError::Instance("no more of these".to_owned()));
    assert_eq!(stage(&runtime.snapshot(), "work").instances, 1);
    sender.send(1).unwrap();
    runtime.run_until_idle();
    assert_eq!(sent.take(), [1]);
    runtime.close();
    assert!(runtime.run());
    assert_eq!((made.finished.load(SeqCst), sent.take()), (1, vec![u64::MAX]));
}

#[test]
fn a_raised_capacity_lets_those_in_who_wait() {
    let app = App::new("raised");
    let numbers = app.source("numbers", || 0..20u64);
    let sink = app.sink("sink", |_: u64| {});
    app.connect(numbers, sink);
    let mut runtime = TestRuntime::new(app, &Plan::new().stage("sink", |s| s.capacity(2))).unwrap();
    runtime.hold("sink");
    runtime.run_until_idle();
    assert_eq!(stage(&runtime.snapshot(), "sink").queued, 2);
    runtime.control().set_capacity("sink", 100).unwrap();
    runtime.run_until_idle();
    assert_eq!(stage(&runtime.snapshot(), "sink").queued, 20);
}

#[test]
fn each_change_that_makes_no_sense_is_refused_and_changes_nothing() {
    let app = App::new("refused");
    let numbers = app.source("numbers", || 0..3u64);
    let count = app.map("count", |n: u64| n).stateful();
    let groups = comporta::batched(
        10,
        std::time::Duration::from_secs(1),
        |_: Vec<u64>, _: &mut Out<u64>| {},
    );
    let group = app.stage("group", groups);
    app.connect(numbers, count);
    app.connect(count, group);
    let plan = Plan::new().threads(2).cluster("side", |side| side.stages(StageSet::none()));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    let control = runtime.control();
    let shown = |runtime: &TestRuntime| format!("{:?}", runtime.snapshot());
    let before = shown(&runtime);
    let refusals = [
        (
            control.set_instances("cuont", 1),
            "the program has no stage `cuont`: did you mean `count`?",
        ),
        (
            control.set_capacity("cuont", 1),
            "the program has no stage `cuont`: did you mean `count`?",
        ),
        (control.set_priority("zzz", 1), "the program has no stage `zzz`"),
        (control.set_enabled("zzz", false), "the program has no stage `zzz`"),
        (control.move_stage("zzz", "side"), "the program has no stage `zzz`"),
        (
            control.move_stage("count", "sied"),
            "the program has no cluster `sied`: did you mean `side`?",
        ),
        (
            control.set_policy("mian", "srpt"),
            "the program has no cluster `mian`: did you mean `main`?",
        ),
        (control.set_threads("mian", 1), "the program has no cluster `mian`: did you mean `main`?"),
        (control.set_threads("main", 0), "the number of threads of `main` is 0: use 1 to 1,024"),
        (
            control.set_threads("main", 9_999),
            "the number of threads of `main` is 9999: use 1 to 1,024",
        ),
        (control.set_capacity("count", 0), "the queue capacity of `count` is 0: use at least 1"),
        (
            control.set_instances("count", 0),
            "the number of instances of `count` is 0: use 1 to 1,048,576",
        ),
        (
            control.set_instances("count", 2),
            "the stage `count` is stateful and has one instance: it cannot have 2",
        ),
        (control.set_capacity("numbers", 5), "`numbers` is a source and has no queue"),
        (control.set_enabled("numbers", false), "`numbers` is a source and has no queue"),
        (
            control.set_capacity("group", 9),
            "the stage `group` is handed 10 events at once, but its queue holds 9",
        ),
    ];
    for (refusal, expected) in refusals {
        assert_eq!(refusal.map_err(|error| error.to_string()), Err(expected.to_owned()));
    }
    assert!(control.failures("zzz").is_err() && control.replay("zzz", 1).is_err());
    assert!(control.take_failures::<u64>("zzz").is_err());
    assert_eq!(shown(&runtime), before);
    assert!(runtime.run());
    assert_eq!(counts(&runtime, "group").handled, 3);
}

/// What stages did, in order, as a text.
type Log = Arc<Mutex<String>>;

fn logs(log: &Log, name: char) -> impl Fn(u64) -> u64 + Clone + Send + Sync + 'static {
    let log = log.clone();
    move |n| {
        log.lock().unwrap().push(name);
        n
    }
}

#[test]
fn higher_priorities_are_served_first() {
    let app = App::new("priorities");
    let log = Log::default();
    let inputs: Vec<Sender<u64>> = ["low", "mid", "high"]
        .map(|name| {
            let (sender, port) = app.input(format!("in-{name}"));
            let seen = logs(&log, name.chars().next().unwrap());
            let sink = app.sink(name, move |n: u64| {
                seen(n);
            });
            app.connect(port, sink);
            sender
        })
        .into();
    let plan = Plan::new()
        .threads(1)
        .policy("single")
        .every(|s| s.batch(1))
        .stage("mid", |s| s.priority(3))
        .stage("high", |s| s.priority(7));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    let push = || (0..2).for_each(|n| inputs.iter().for_each(|input| input.send(n).unwrap()));
    push();
    runtime.run_until_idle();
    assert_eq!(std::mem::take(&mut *log.lock().unwrap()), "hhmmll");
    runtime.control().set_priority("low", 100).unwrap();
    push();
    runtime.run_until_idle();
    assert_eq!(std::mem::take(&mut *log.lock().unwrap()), "llhhmm");
}

#[test]
fn the_consumer_of_a_full_queue_inherits_the_priority_of_those_who_wait() {
    // `high` sends to `low`, whose queue holds one event; `mid` has work all along. Without the
    // loan `low` would wait for `mid`, and `high` with it.
    let app = App::new("inversion");
    let log = Log::default();
    let (urgent, urgent_port) = app.input("urgent");
    let (usual, usual_port) = app.input("usual");
    let high = app.map("high", logs(&log, 'h'));
    let low = app.map("low", logs(&log, 'l'));
    let mid = app.map("mid", logs(&log, 'm'));
    app.connect(urgent_port, high);
    app.connect(usual_port, mid);
    app.connect(high, low);
    let plan = Plan::new()
        .threads(1)
        .policy("single")
        .every(|s| s.batch(1))
        .stage("high", |s| s.priority(10))
        .stage("mid", |s| s.priority(5))
        .stage("low", |s| s.priority(1).capacity(1).when_full(WhenFull::Block));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    for n in 0..4 {
        usual.send(n).unwrap();
        urgent.send(n).unwrap();
    }
    runtime.run_until_idle();
    // The first two of `high` fill the queue and wait; from then on `low` goes before `mid` as
    // long as `high` waits. The last event of `low` has nobody behind it: it yields to `mid`.
    assert_eq!(*log.lock().unwrap(), "hhlhlhlmmmml");
}
