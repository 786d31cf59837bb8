//! Room in a queue belongs to those who use it: nobody holds places while his handler runs, nor
//! after he has given up.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Wake, Waker};

use comporta::testing::TestRuntime;
use comporta::{App, Demand, Out, Plan, Pull, Result, Shed, Source, WhenFull};

use crate::bounded::{
    BOUND, Gate, Way, comes_true, ends, handled, stage, thread, under_every_policy, until, watched,
};

/// `bursts` -> `burst` -> `sink` <- `pass` <- `others`. The first event of `burst` sends more than
/// the queue of `sink` holds; the second waits at a gate. Returns once it does, with the queue empty.
fn held_burst(plan: &Plan, label: &str) -> (comporta::Running, comporta::Sender<u64>, Gate) {
    let gate = Gate::default();
    let way = gate.way();
    let app = App::new("burst");
    let (bursts, port) = app.input::<u64>("bursts");
    let burst = app.process("burst", move |n: u64, out: &mut Out<u64>| {
        if n == 0 {
            (0..1_100).for_each(|n| out.send(n));
        } else {
            way.pass();
        }
    });
    let (others, other) = app.input::<u64>("others");
    let pass = app.map("pass", |n: u64| n);
    let sink = app.sink("sink", |_: u64| ());
    app.connect(port, burst);
    app.connect(other, pass);
    app.connect(burst, sink);
    app.connect(pass, sink);
    let running = app.start(plan).unwrap();
    bursts.send(0).unwrap();
    let settled = || {
        let snapshot = running.snapshot();
        let (burst, sink) = (stage(&snapshot, "burst"), stage(&snapshot, "sink"));
        let ended = sink.counts.handled + sink.counts.shed_on_entry();
        burst.idle == 1 && ended == 1_100
    };
    until(&format!("{label}: the burst is over"), settled);
    bursts.send(1).unwrap();
    gate.wait_for(1, label);
    (running, others, gate)
}

#[test]
fn a_handler_that_once_sent_much_stops_no_other_sender_while_it_runs() {
    under_every_policy(|plan, label| {
        let (running, others, gate) = held_burst(&plan, label);
        let (tell, told) = channel();
        let pusher = thread(move || {
            let pushed = (0..2_000).all(|n| others.send(n).is_ok());
            let _ = tell.send(pushed);
        });
        let all = || handled(&running, "sink") == 1_100 + 2_000;
        assert!(
            comes_true(all),
            "{label}: others wait, the queue is empty\n{}",
            running.snapshot()
        );
        assert_eq!(told.recv_timeout(BOUND), Ok(true), "{label}");
        pusher.join().unwrap();
        gate.open();
        assert!(ends(label, running).snapshot.adds_up(), "{label}");
    });
}

#[test]
fn a_queue_that_rejects_and_is_empty_takes_what_others_send_while_a_handler_runs() {
    under_every_policy(|plan, label| {
        let plan = plan.connector("pass -> sink", |way| way.when_full(WhenFull::Reject));
        let (running, others, gate) = held_burst(&plan, label);
        for n in 0..20 {
            others.send(n).unwrap();
            // One at a time: the queue is empty whenever one comes.
            until(label, || {
                let snapshot = running.snapshot();
                let sink = stage(&snapshot, "sink");
                sink.counts.handled + sink.counts.shed_on_entry() == 1_100 + n + 1
            });
        }
        let snapshot = running.snapshot();
        let shed = stage(&snapshot, "sink").counts.shed_on_entry();
        assert_eq!(shed, 0, "{label}: of 20, with the queue empty");
        drop(others);
        gate.open();
        let _ = ends(label, running);
    });
}

/// Waits at a gate in its first pull, and ends.
struct Waits(Way);

impl Source for Waits {
    type Item = u64;
    fn pull(&mut self, _: &mut Out<u64>, _: Demand) -> Result<Pull> {
        self.0.pass();
        Ok(Pull::End)
    }
}

#[test]
fn a_source_that_waits_in_a_pull_keeps_no_room_from_others() {
    under_every_policy(|plan, label| {
        let gate = Gate::default();
        let way = gate.way();
        let app = App::new("waits");
        let sink = app.sink("sink", |_: u64| ());
        let (sender, port) = app.input::<u64>("others");
        app.connect(app.source("waits", move || Waits(way)), sink);
        app.connect(port, sink);
        let running = app.start(&plan.stage("sink", |s| s.capacity(1))).unwrap();
        gate.wait_for(1, label);
        let (tell, told) = channel();
        let pusher = thread(move || {
            let _ = tell.send((0..10).all(|n| sender.send(n).is_ok()));
        });
        let pushed = told.recv_timeout(BOUND);
        assert_eq!(pushed, Ok(true), "{label}: a push waits for room in an empty queue");
        pusher.join().unwrap();
        gate.open();
        let summary = ends(label, running);
        assert_eq!(stage(&summary.snapshot, "sink").counts.handled, 10, "{label}");
    });
}

struct Ignores;
impl Wake for Ignores {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn pushes_that_were_given_up_leave_nothing_behind() {
    watched("given up", || {
        let app = App::new("given-up");
        let (sender, port) = app.input::<u64>("in");
        app.connect(port, app.sink("sink", |_: u64| ()));
        let mut runtime =
            TestRuntime::new(app, &Plan::new().stage("sink", |s| s.capacity(1))).unwrap();
        runtime.hold("sink");
        sender.try_send(0).unwrap();
        // What still stands in line holds the waker it would be woken by.
        let wake = Arc::new(Ignores);
        let waker = Waker::from(wake.clone());
        let before = Arc::strong_count(&wake);
        for n in 1..=1_000 {
            let mut waits = Box::pin(sender.send_async(n));
            assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        let left = Arc::strong_count(&wake) - before;
        assert_eq!(left, 0, "of 1,000 pushes that were given up, so many still stand in line");
        assert_eq!(stage(&runtime.snapshot(), "sink").outboxed, 0);
        runtime.resume("sink");
        runtime.run_until_idle();
        sender.try_send(1_001).unwrap();
        drop(sender);
        assert!(runtime.run());
        let counts = stage(&runtime.snapshot(), "sink").counts;
        assert_eq!((counts.handled, counts.shed(Shed::Abandoned)), (2, 1_000));
    });
}
