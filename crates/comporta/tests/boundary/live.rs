//! Live change keeps what plans keep; programs are told apart; the end is told to whoever awaits it.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{App, Plan, Running};

use crate::bounded::{BOUND, Gate, stage, watched};

/// `numbers` -> `work` -> `store`, the last two joined for good, and a cluster with another stage.
fn joined() -> (App, Plan) {
    let app = App::new("joined");
    let numbers = app.source("numbers", || 0..100_u64);
    let work = app.map("work", |n: u64| n);
    let store = app.sink("store", |_: u64| ());
    let other = app.sink("other", |_: u64| ());
    app.connect(numbers, work);
    app.connect_local(work, store);
    app.connect(numbers, other);
    (app, Plan::new().cluster("side", |side| side.threads(1).stages("other".into())))
}

#[test]
fn a_stage_is_not_moved_away_from_one_that_a_local_connector_joins_it_to() {
    watched("moved", || {
        let (app, plan) = joined();
        let apart = plan.clone().cluster("side", |side| side.stages("other + store".into()));
        assert!(app.rehearse(&apart).is_err(), "a plan that takes them apart is refused");
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        for name in ["store", "work"] {
            let moved = runtime.control().move_stage(name, "side");
            assert!(moved.is_err(), "`{name}` was moved");
            let snapshot = runtime.snapshot();
            let side = snapshot.pools.iter().find(|pool| pool.name == "side").unwrap();
            assert_eq!(side.stages, ["other"], "a change that is refused has changed nothing");
        }
        runtime.control().move_stage("other", "main").unwrap(); // nothing joins it
        assert!(runtime.run());
        assert_eq!(stage(&runtime.snapshot(), "store").counts.handled, 100);
    });
}

#[test]
fn a_port_of_a_program_that_is_gone_belongs_to_no_other() {
    watched("identity", || {
        let gone = |n: usize| App::new("x".repeat(n % 100)).source("numbers", || 0..3_u64);
        let ports: Vec<_> = (0..1_000).map(gone).collect();
        let app = App::new("here");
        app.source("numbers", || 0..3_u64);
        let sink = app.sink("sink", |_: u64| ());
        ports.into_iter().for_each(|port| app.connect(port, sink));
        let joined = app.graph().connectors.len();
        assert_eq!(joined, 0, "of 1,000 ports of programs that are gone");
    });
}

/// Tells that it was woken.
struct Tells(Sender<()>);
impl Wake for Tells {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

/// Whether what awaits the end of a program is told of it when the program is ended like this.
fn is_told_of(what: &str, end: fn(Running)) {
    let gate = Gate::default();
    let way = gate.way();
    let app = App::new("awaited");
    let (sender, numbers) = app.input::<u64>("numbers");
    app.connect(numbers, app.sink("work", move |_: u64| way.pass()));
    let running = app.start(&Plan::new().threads(1)).unwrap();
    sender.send(0).unwrap();
    gate.wait_for(1, what);
    let mut ended = Box::pin(running.ended());
    let mut late = Box::pin(running.ended());
    let (tell, told) = channel();
    let waker = Waker::from(Arc::new(Tells(tell)));
    let mut context = Context::from_waker(&waker);
    assert!(ended.as_mut().poll(&mut context).is_pending(), "{what}");
    end(running);
    assert_eq!(told.recv_timeout(BOUND), Ok(()), "{what}: nobody wakes who awaits the end");
    assert_eq!(ended.as_mut().poll(&mut context), Poll::Ready(()), "{what}");
    assert_eq!(late.as_mut().poll(&mut context), Poll::Ready(()), "{what}");
}

#[test]
fn who_awaits_the_end_is_told_of_a_stop() {
    watched("stopped", || is_told_of("stopped", |running| drop(running.stop())));
}

#[test]
fn who_awaits_the_end_is_told_of_a_drain_that_takes_too_long() {
    let end = |running: Running| drop(running.drain_within(Duration::from_millis(1)));
    watched("given up", move || is_told_of("given up", end));
}

#[test]
fn who_awaits_the_end_is_told_when_the_program_is_dropped() {
    watched("dropped", || is_told_of("dropped", drop));
}
