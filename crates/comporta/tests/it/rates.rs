//! A rate that the plan gives a source, and stubs that stand in for stages: on virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{App, Cx, Demand, Ev, Out, Plan, Pull, Result, Source, Stage};

use crate::seen::{collector, counts, stage, taken};

const MS: Duration = Duration::from_millis(1);

/// Notes when events come, in milliseconds.
#[derive(Clone, Default)]
struct Times(Arc<Mutex<Vec<(u64, u64)>>>);
impl Stage for Times {
    type In = u64;
    type Ports = ();
    fn handle(&mut self, n: Ev<'_, u64>, (): &mut (), cx: &Cx) -> Result {
        self.0.lock().unwrap().push((cx.now().as_nanos() / 1_000_000, *n));
        Ok(())
    }
}

/// `numbers -> end`, the first at so many a second.
fn paced<S: Source<Item = u64>>(rate: f64, source: S, plan: Plan) -> (TestRuntime, Times) {
    let (app, times) = (App::new("paced"), Times::default());
    app.connect(app.source("numbers", move || source), app.stage("end", times.clone()));
    let runtime = TestRuntime::new(app, &plan.stage("numbers", |s| s.rate(rate))).unwrap();
    (runtime, times)
}

/// As many as it is asked for.
struct Numbers(std::ops::Range<u64>);
impl Source for Numbers {
    type Item = u64;
    fn pull(&mut self, out: &mut Out<u64>, demand: Demand) -> Result<Pull> {
        self.0.by_ref().take(demand.events).for_each(|n| out.send(n));
        Ok(if self.0.is_empty() { Pull::End } else { Pull::More })
    }
}

#[test]
fn a_source_with_a_rate_sends_each_event_when_it_is_due() {
    let (mut runtime, times) = paced(100.0, Numbers(0..4), Plan::new());
    assert!(runtime.run());
    assert_eq!(taken(&times.0), [(0, 0), (10, 1), (20, 2), (30, 3)]);
    assert_eq!(runtime.snapshot().latency().max(), Duration::ZERO);
}

#[test]
fn an_event_kept_outside_by_a_full_queue_is_as_late_as_it_was_due() {
    let plan = Plan::new().stage("end", |s| s.capacity(1));
    let (mut runtime, times) = paced(100.0, Numbers(0..1_000), plan);
    runtime.run_until_idle();
    runtime.hold("end");
    runtime.advance(55 * MS); // 1 is queued since 10, 2 waits for room since 20, 3 to 5 are not pulled
    runtime.resume("end");
    runtime.run_until_idle();
    let came = taken(&times.0);
    assert_eq!(came, [(0, 0), (55, 1), (55, 2), (55, 3), (55, 4), (55, 5)]);
    let latency = runtime.snapshot().latency();
    let late = |ms: &u64| Duration::from_millis(*ms);
    let expected: Duration = [0, 45, 35, 25, 15, 5].iter().map(late).sum::<Duration>() / 6;
    assert_eq!((latency.max(), latency.mean()), (45 * MS, expected));
    runtime.advance(5 * MS);
    assert_eq!(taken(&times.0), [(60, 6)], "the schedule holds");
}

#[test]
fn without_a_rate_latency_counts_from_when_an_event_was_pulled() {
    let (app, times) = (App::new("free"), Times::default());
    app.connect(app.source("numbers", || 0..3_u64), app.stage("end", times.clone()));
    let mut runtime = TestRuntime::new(app, &Plan::new().stage("end", |s| s.capacity(1))).unwrap();
    runtime.hold("end");
    runtime.advance(30 * MS);
    runtime.resume("end");
    assert!(runtime.run());
    assert_eq!(taken(&times.0).len(), 3);
    assert_eq!(runtime.snapshot().latency().max(), 30 * MS, "that of those inside");
    assert_eq!(
        runtime.snapshot().latency().quantile(0.1),
        Duration::ZERO,
        "3 was pulled at the end"
    );
}

/// Has nothing for 50 ms after every second event.
struct Pairs(u64);
impl Source for Pairs {
    type Item = u64;
    fn pull(&mut self, out: &mut Out<u64>, _: Demand) -> Result<Pull> {
        out.send(self.0);
        self.0 += 1;
        let wait = if self.0.is_multiple_of(2) { Pull::After(50 * MS) } else { Pull::More };
        Ok(if self.0 == 6 { Pull::End } else { wait })
    }
}

#[test]
fn what_a_source_does_not_have_in_time_is_not_late_and_not_made_up_for() {
    let (mut runtime, times) = paced(100.0, Pairs(0), Plan::new());
    assert!(runtime.run());
    assert_eq!(taken(&times.0), [(0, 0), (10, 1), (60, 2), (70, 3), (120, 4), (130, 5)]);
    assert_eq!(runtime.snapshot().latency().max(), Duration::ZERO);
}

/// Wants to hear of each event before it sends the next.
struct Asking(u64);
impl Source for Asking {
    type Item = u64;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u64>, _: Demand) -> Result<Pull> {
        out.send(self.0);
        self.0 += 1;
        Ok(if self.0 == 3 { Pull::End } else { Pull::AfterAck })
    }
}

#[test]
fn a_source_that_is_told_what_has_settled_is_not_pulled_before_its_time() {
    let (mut runtime, times) = paced(100.0, Asking(0), Plan::new());
    assert!(runtime.run());
    assert_eq!(taken(&times.0), [(0, 0), (10, 1), (20, 2)]);
}

#[test]
fn a_source_that_waits_for_its_next_event_can_be_closed() {
    let (mut runtime, times) = paced(0.001, Numbers(0..10), Plan::new());
    runtime.run_until_idle();
    runtime.close();
    assert!(runtime.run());
    assert_eq!(taken(&times.0), [(0, 0)]);
    assert_eq!(runtime.now().as_nanos(), 0, "nobody waited a thousand seconds");
}

/// Cannot even be made.
#[derive(Clone)]
struct Disk;
impl Stage for Disk {
    type In = u64;
    type Ports = Out<u64>;
    fn init(&mut self, _: &Cx) -> Result {
        panic!("it would write");
    }
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        out.send(*n);
        Ok(())
    }
    fn finish(&mut self, out: &mut Out<u64>, _: &Cx) -> Result {
        out.send(99);
        Ok(())
    }
}

#[test]
fn a_stub_swallows_what_comes_counts_it_as_handled_and_sends_nothing() {
    let app = App::new("stubbed");
    let (seen, see) = collector::<u64>();
    let numbers = app.source("numbers", || 0..1_000_u64);
    let double = app.map_in_place("double", |n: &mut u64| *n *= 2);
    let save = app.stage("save", Disk).effects();
    app.connect(numbers, double);
    app.connect(double, save);
    app.connect(save, app.sink("after", see));
    assert!(app.graph().stages[2].effects && !app.graph().stages[1].effects);
    let mut runtime = TestRuntime::new(app, &Plan::new().stage("save", |s| s.stub(true))).unwrap();
    assert!(runtime.run());
    let save = counts(&runtime, "save");
    assert_eq!((save.arrived, save.handled, save.emitted, save.failed), (1_000, 1_000, 0, 0));
    assert!(taken(&seen).is_empty());
    let snapshot = runtime.snapshot();
    assert_eq!(stage(&snapshot, "save").latency.count(), 1_000, "they leave the program here");
    assert!(runtime.problems().is_empty());
}

#[test]
fn stages_of_every_kind_can_be_stubbed() {
    let app = App::new("stubs");
    let numbers = app.source("numbers", || 0..100_u64);
    let update = app.map_in_place("update", |n: &mut u64| *n += 1);
    let group = |events: Vec<u64>, _: &mut Out<u64>| assert!(events.is_empty(), "it was called");
    let batched = app.stage("batched", comporta::batched(7, MS, group));
    let ordered = app.map("ordered", |n: u64| n).ordered().autostart(5);
    for to in ["update", "batched", "ordered"] {
        match to {
            "update" => app.connect(numbers, update),
            "batched" => app.connect(numbers, batched),
            _ => app.connect(numbers, ordered),
        }
    }
    let end = app.sink("end", |n: u64| assert_eq!(n, 1_000, "it was called"));
    app.connect(update, end);
    app.connect(batched, end);
    app.connect(ordered, end);
    let mut plan = Plan::new().threads(2);
    for name in ["update", "batched", "ordered"] {
        plan = plan.stage(name, |s| s.stub(true));
    }
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.run());
    for (name, events) in [("update", 100), ("batched", 100), ("ordered", 101), ("end", 0)] {
        assert_eq!(counts(&runtime, name).handled, events, "{name}");
    }
    assert!(runtime.problems().is_empty());
}
