//! Snapshots for the tests of what is shown: taken from real programs that are stepped, then set
//! to the numbers of the case.

use std::time::Duration;

use comporta_model::plan::{Plan, WhenFull};
use comporta_runtime::testing::TestRuntime;
use comporta_runtime::{App, Ended, Snapshot};

use super::exit::Exit;
use super::pace::Shape;
use super::report::{Asked, Decisions, Failed, Report};

/// A source `numbers`, then `work` (two instances) and `show`, with queues of 100.
pub(super) fn pipeline() -> (Shape, Snapshot) {
    let app = App::new("sample");
    let numbers = app.source("numbers", || 0..0_u64);
    let work = app.map("work", |n: u64| n);
    let show = app.sink("show", |_: u64| ());
    app.connect(numbers, work);
    app.connect(work, show);
    let shape = Shape::of(&app.graph(), &Plan::new());
    let plan = Plan::new().threads(2).every(|s| s.capacity(100)).stage("work", |s| s.instances(2));
    (shape, TestRuntime::new(app, &plan).unwrap().snapshot())
}

/// That moment of it, with so much done by each stage.
pub(super) fn at(of: &Snapshot, elapsed_ms: u64, done: &[u64]) -> Snapshot {
    let mut snapshot = of.clone();
    snapshot.elapsed = Duration::from_millis(elapsed_ms);
    for (stage, done) in snapshot.stages.iter_mut().zip(done) {
        stage.counts.emitted = *done;
        if stage.capacity > 0 {
            (stage.counts.offered, stage.counts.arrived) = (*done, *done);
            stage.counts.handled = *done;
        }
    }
    snapshot
}

/// The same with so much in each queue.
pub(super) fn queued(of: &Snapshot, queued: &[usize]) -> Snapshot {
    let mut snapshot = of.clone();
    for (stage, queued) in snapshot.stages.iter_mut().zip(queued) {
        stage.queued = *queued;
        if *queued > 0 {
            stage.idle = 0;
        }
    }
    snapshot
}

/// Ten events came at once to a queue of four that drops the oldest: six were shed, two of the
/// others failed. As it began, and as it ended.
pub(super) fn lossy() -> (Shape, Snapshot, Snapshot) {
    let app = App::new("lossy");
    let numbers = app.source("numbers", || 0..10_u64);
    let spread = app.flat_map("spread", |n: u64| [n]);
    let parse =
        app.sink("parse", |n: u64| if n < 8 { Ok(()) } else { "x".parse::<u64>().map(drop) });
    app.connect(numbers, spread);
    app.connect(spread, parse);
    let shape = Shape::of(&app.graph(), &Plan::new());
    let plan = Plan::new()
        .threads(1)
        .stage("parse", |s| s.capacity(4).when_full(WhenFull::DropOldest).priority(-1));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    let first = runtime.snapshot();
    runtime.hold("parse");
    runtime.run_until_idle();
    runtime.resume("parse");
    runtime.run_until_idle();
    let mut snapshot = runtime.snapshot();
    snapshot.stages.iter_mut().for_each(|stage| stage.busy = Duration::ZERO);
    (shape, first, snapshot)
}

/// What is left of the pipeline after a drain.
pub(super) fn report() -> Report {
    let (shape, first) = pipeline();
    let mut snapshot = at(&first, 2_000, &[1_250_000, 1_250_000, 1_240_000]);
    let handled = u32::try_from(snapshot.stages[1].counts.handled).unwrap();
    snapshot.stages[1].busy = Duration::from_nanos(1_250) * handled;
    Report {
        ended: Ended::Drained,
        asked: Some(Asked::Signal(15)),
        exit: Exit::Done,
        first,
        entered: shape.entered(&snapshot),
        left: shape.left(&snapshot),
        snapshot,
        problems: Vec::new(),
        stuck: Vec::new(),
        cpu: None,
        decisions: Decisions::default(),
        failed: Vec::new(),
        kept: None,
    }
}

/// What is left of the lossy one, with a problem and a handler that does not return.
pub(super) fn lossy_report() -> Report {
    let (shape, first, snapshot) = lossy();
    let reason = "invalid digit found in string".to_owned();
    Report {
        ended: Ended::Complete,
        asked: None,
        exit: Exit::Problems,
        first,
        entered: shape.entered(&snapshot),
        left: shape.left(&snapshot),
        snapshot,
        problems: vec!["`numbers`: the disk is full".to_owned()],
        stuck: vec!["parse".to_owned()],
        cpu: None,
        decisions: Decisions::default(),
        failed: vec![Failed {
            stage: "parse".to_owned(),
            reasons: vec![(reason, 2)],
            forgotten: 0,
            sent_on: false,
        }],
        kept: None,
    }
}

/// A gateway that was asked four times: one request was answered, one failed, one came to nothing, and one was
/// given up.
pub(super) fn asked_report() -> Report {
    let app = App::new("asked");
    let prices = app.gateway::<u64, u64>("prices");
    let price = app.try_map("price", |n: u64| if n == 1 { Ok("x".parse::<u64>()?) } else { Ok(n) });
    let known = app.filter("known", |n: &u64| *n != 2);
    app.connect(prices.requests, price);
    app.connect(price, known);
    app.connect(known, prices.replies);
    let client = prices.client;
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    for n in 0..3 {
        assert!(runtime.complete(client.request(n)).is_some());
    }
    runtime.hold("price");
    let mut given_up = std::pin::pin!(client.request(3));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(given_up.as_mut().poll(&mut cx).is_pending());
    given_up.set(client.request(4)); // never polled
    let snapshot = runtime.snapshot();
    Report { first: snapshot.clone(), snapshot, ..report() }
}
