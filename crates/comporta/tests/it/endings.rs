//! Ends that meet something else under way: a full queue, a timer, a change, a start. Found by the
//! models of the runtime, or on the way to them; here step by step.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{App, Cx, Demand, Ev, Out, Plan, Pull, Result, Settled, Source, Stage};

/// Passes on what comes; at its end sends 100.
#[derive(Clone)]
struct Tell;
impl Stage for Tell {
    type In = u32;
    type Ports = Out<u32>;
    fn handle(&mut self, n: Ev<'_, u32>, out: &mut Out<u32>, _: &Cx) -> Result {
        out.send(*n);
        Ok(())
    }
    fn finish(&mut self, out: &mut Out<u32>, _: &Cx) -> Result {
        out.send(100);
        Ok(())
    }
}

fn collector() -> (Arc<Mutex<Vec<u32>>>, impl Fn(u32) + Clone + Send + Sync) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = seen.clone();
    (seen, move |event| into.lock().unwrap().push(event))
}

#[test]
fn a_cycle_that_ends_while_an_instance_waits_for_room_outside_still_ends() {
    let app = App::new("exit");
    let (seen, see) = collector();
    let source = app.source("source", || [1u32].into_iter());
    let ping = app.flat_map("ping", |n: u32| [n, n + 1, n + 2]);
    let pong = app.process("pong", |_: u32, _: &mut Out<u32>| {});
    let end = app.sink("end", see);
    app.connect(source, ping);
    app.connect(ping, pong);
    app.connect(pong, ping);
    app.connect(ping, end);
    let mut runtime =
        TestRuntime::new(app, &Plan::new().threads(1).stage("end", |s| s.capacity(1))).unwrap();
    runtime.hold("end");
    runtime.run_until_idle();
    runtime.resume("end");
    assert!(runtime.run(), "{}", runtime.snapshot());
    assert_eq!(*seen.lock().unwrap(), [1, 2, 3]);
}

#[test]
fn a_cycle_that_ends_while_an_instance_retires_waits_for_all_to_finish() {
    let app = App::new("retire");
    let (seen, see) = collector();
    let (sender, input) = app.input::<u32>("input");
    let ping = app.stage("ping", Tell);
    let pong = app.process("pong", |_: u32, _: &mut Out<u32>| {});
    let end = app.sink("end", see);
    app.connect(input, ping);
    app.connect(ping, pong);
    app.connect(pong, ping);
    app.connect(ping, end);
    let plan = Plan::new().threads(1).stage("ping", |s| s.instances(2));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.control().set_instances("ping", 1).unwrap();
    sender.close();
    assert!(runtime.run(), "{}", runtime.snapshot());
    assert_eq!(*seen.lock().unwrap(), [100, 100], "{}", runtime.snapshot());
}

/// Sends one event, then sleeps for an hour; wants to hear of it.
struct Sleepy(Arc<Mutex<Vec<u32>>>);
impl Source for Sleepy {
    type Item = u32;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u32>, _: Demand) -> Result<Pull> {
        out.send(7);
        Ok(Pull::After(Duration::from_secs(3_600)))
    }
    fn settled(&mut self, _: Settled) {
        self.0.lock().unwrap().push(1);
    }
}

#[test]
fn a_source_closed_in_its_sleep_hears_of_its_events_although_its_timer_fires() {
    let app = App::new("sleepy");
    let (told, _) = collector();
    let source = app.source("source", {
        let told = told.clone();
        move || Sleepy(told)
    });
    let end = app.sink("end", |_: u32| {});
    app.connect(source, end);
    let mut runtime = TestRuntime::new(app, &Plan::new().threads(1)).unwrap();
    runtime.hold("end");
    runtime.run_until_idle();
    runtime.close();
    runtime.advance(Duration::from_secs(7_200));
    runtime.resume("end");
    assert!(runtime.run(), "{}", runtime.snapshot());
    assert_eq!(told.lock().unwrap().len(), 1);
}

#[test]
fn an_ordered_stage_does_not_finish_while_its_results_wait_for_room() {
    let app = App::new("last");
    let (sender, input) = app.input::<u32>("input");
    let work = app.stage("work", Tell).ordered();
    app.connect(input, work);
    let (left, see) = collector();
    let end = app.sink("left", see);
    app.connect(work, end);
    let (right, see) = collector();
    let end = app.sink("right", see);
    app.connect(work, end);
    let plan = Plan::new().stage("left", |s| s.capacity(1)).stage("right", |s| s.capacity(1));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("left");
    runtime.hold("right");
    for n in 0..2 {
        sender.send(n).unwrap();
        runtime.run_until_idle(); // the second waits for both, and is in line for `left`
    }
    runtime.resume("right");
    runtime.run_until_idle();
    drop(sender); // there is room in `right`, which the second has yet to use
    runtime.run_until_idle();
    runtime.resume("left");
    assert!(runtime.run(), "{}", runtime.snapshot());
    for seen in [left, right] {
        assert_eq!(*seen.lock().unwrap(), [0, 1, 100]);
    }
}

#[test]
fn an_input_closed_before_the_start_ends_with_it() {
    let app = App::new("early");
    let (sender, input) = app.input::<u32>("input");
    let end = app.sink("end", |_: u32| {});
    app.connect(input, end);
    sender.close();
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    assert!(sender.send(1).is_err());
}

#[test]
fn an_instance_made_while_its_stage_ends_is_refused() {
    let app = App::new("late");
    let (sender, input) = app.input::<u32>("input");
    let closer = sender.clone();
    let end = app.stage_with("end", move |cx| {
        if cx.instance() > 0 {
            closer.close();
        }
        Ok(|_: u32, _: &mut Out<u32>| {})
    });
    app.connect(input, end);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.control().set_instances("end", 2).is_err());
    assert!(runtime.run());
    drop(sender);
}

/// Passes on what comes; notes its number when it is dropped.
struct Numbered {
    number: u32,
    made: Arc<AtomicU32>,
    dropped: Arc<Mutex<Vec<u32>>>,
}
impl Clone for Numbered {
    fn clone(&self) -> Self {
        let (made, dropped) = (self.made.clone(), self.dropped.clone());
        Numbered { number: made.fetch_add(1, SeqCst), made, dropped }
    }
}
impl Drop for Numbered {
    fn drop(&mut self) {
        self.dropped.lock().unwrap().push(self.number);
    }
}
impl Stage for Numbered {
    type In = u32;
    type Ports = Out<u32>;
    fn handle(&mut self, n: Ev<'_, u32>, out: &mut Out<u32>, _: &Cx) -> Result {
        out.send(*n);
        Ok(())
    }
}

#[test]
fn instances_that_wait_for_room_when_a_program_stops_are_dropped_in_the_same_order_in_every_run() {
    let run = || {
        let dropped = Arc::default();
        let app = App::new("waiting");
        let source = app.source("source", || 0..100_u32);
        let numbered =
            Numbered { number: 100, made: Arc::default(), dropped: Arc::clone(&dropped) };
        let numbered = app.stage("numbered", numbered);
        let end = app.sink("end", |_: u32| ());
        app.connect(source, numbered);
        app.connect(numbered, end);
        let plan = Plan::new().threads(2).stage("end", |end| end.capacity(1));
        let plan = plan.stage("numbered", |numbered| numbered.instances(20).batch(1));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.hold("end");
        runtime.run_until_idle();
        assert_eq!(runtime.snapshot().stage("numbered").unwrap().idle, 0, "all wait");
        drop(runtime);
        dropped.lock().unwrap().clone()
    };
    let dropped: Vec<u32> = run();
    assert_eq!(dropped, run());
}
