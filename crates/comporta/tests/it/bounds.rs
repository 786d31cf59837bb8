//! Promise 3: every queue is bounded, and what happens at the bound is chosen: the sender waits,
//! gets the event back, or the newest or the oldest is shed.

use std::sync::{Arc, Mutex};

use comporta::testing::{TestRuntime, record};
use comporta::{App, Cx, Ended, Ev, Out, Plan, Result, SendError, Sender, Shed, Stage, WhenFull};

use crate::seen::{collector, counts, run, stage, taken};

/// `in` -> `slow`, held back so that its queue fills.
fn held(rule: WhenFull, capacity: usize) -> (TestRuntime, Sender<u64>, Arc<Mutex<Vec<u64>>>) {
    let app = App::new("held");
    let (seen, see) = collector();
    let (sender, port) = app.input("in");
    let slow = app.sink("slow", see);
    app.connect(port, slow);
    let plan = Plan::new().stage("slow", |s| s.capacity(capacity).when_full(rule));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("slow");
    (runtime, sender, seen)
}

#[test]
fn a_full_queue_that_blocks_or_rejects_gives_a_pushed_event_back() {
    for rule in [WhenFull::Block, WhenFull::Reject] {
        let (mut runtime, sender, seen) = held(rule, 3);
        for n in 0..3 {
            sender.try_send(n).unwrap();
        }
        assert_eq!(sender.try_send(3), Err(SendError::Full(3)), "{rule:?}");
        let c = counts(&runtime, "slow");
        assert_eq!((c.offered, c.refused, c.arrived), (4, 1, 3));
        runtime.resume("slow");
        runtime.run_until_idle();
        sender.try_send(4).unwrap();
        runtime.run_until_idle();
        assert_eq!(taken(&seen), [0, 1, 2, 4]);
    }
}

#[test]
fn a_full_queue_that_rejects_gives_back_even_to_a_pusher_that_would_wait() {
    let (runtime, sender, _seen) = held(WhenFull::Reject, 1);
    sender.send(0).unwrap();
    assert_eq!(sender.send(1), Err(SendError::Full(1)));
    assert_eq!(counts(&runtime, "slow").refused, 1);
}

#[test]
fn drop_newest_keeps_what_came_first() {
    let (mut runtime, sender, seen) = held(WhenFull::DropNewest, 4);
    for n in 0..10 {
        sender.send(n).unwrap();
    }
    runtime.resume("slow");
    runtime.run_until_idle();
    assert_eq!(taken(&seen), [0, 1, 2, 3]);
    let c = counts(&runtime, "slow");
    assert_eq!((c.offered, c.arrived, c.shed(Shed::Newest), c.shed_on_entry()), (10, 4, 6, 6));
}

#[test]
fn drop_oldest_keeps_what_came_last() {
    let (mut runtime, sender, seen) = held(WhenFull::DropOldest, 4);
    for n in 0..10 {
        sender.send(n).unwrap();
        assert!(stage(&runtime.snapshot(), "slow").queued <= 4);
    }
    runtime.resume("slow");
    runtime.run_until_idle();
    assert_eq!(taken(&seen), [6, 7, 8, 9]);
    let c = counts(&runtime, "slow");
    assert_eq!((c.offered, c.arrived, c.shed(Shed::Oldest), c.shed_later()), (10, 10, 6, 6));
}

#[test]
fn what_a_stage_sends_into_a_full_queue_is_shed_by_the_same_rules() {
    let rules = [
        (WhenFull::Reject, Shed::Rejected, [0, 1, 2]),
        (WhenFull::DropNewest, Shed::Newest, [0, 1, 2]),
        (WhenFull::DropOldest, Shed::Oldest, [7, 8, 9]),
    ];
    for (rule, reason, kept) in rules {
        for batch in [1, 256] {
            let app = App::new("rules");
            let (seen, see) = collector();
            let numbers = app.source("numbers", || 0..10u64);
            let pass = app.map("pass", |n: u64| n);
            let slow = app.sink("slow", see);
            app.connect(numbers, pass);
            app.connect(pass, slow);
            let plan = Plan::new()
                .every(|s| s.batch(batch))
                .stage("slow", |s| s.capacity(3).when_full(rule));
            let mut runtime = TestRuntime::new(app, &plan).unwrap();
            runtime.hold("slow");
            runtime.run_until_idle();
            assert_eq!(counts(&runtime, "slow").shed(reason), 7, "{rule:?}");
            assert_eq!(counts(&runtime, "pass").handled, 10);
            runtime.resume("slow");
            assert!(runtime.run());
            assert_eq!(taken(&seen), kept, "{rule:?}");
        }
    }
}

#[test]
fn two_ways_into_one_queue_may_differ_in_what_a_full_queue_means() {
    for (rule, reason) in [
        (WhenFull::Reject, Shed::Rejected),
        (WhenFull::DropNewest, Shed::Newest),
        (WhenFull::DropOldest, Shed::Oldest),
    ] {
        let app = App::new("ways");
        let (seen, see) = collector();
        let slow = app.sink("slow", see);
        for (name, from) in [("dear", 0), ("cheap", 100)] {
            let numbers = app.source(format!("{name}s"), move || from..from + 20u64);
            let pass = app.map(name, |n: u64| n);
            app.connect(numbers, pass);
            app.connect(pass, slow);
        }
        let plan = Plan::new()
            .stage("slow", |s| s.capacity(4))
            .connector("cheap -> slow", |way| way.when_full(rule));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.hold("slow");
        runtime.run_until_idle();
        // The one sender has waited, the other has not.
        assert_eq!(counts(&runtime, "cheap").handled, 20, "{rule:?}");
        assert!(counts(&runtime, "slow").shed(reason) >= 16, "{rule:?}");
        assert!(
            stage(&runtime.snapshot(), "slow").outboxed > 0
                || counts(&runtime, "dear").handled < 20
        );
        runtime.resume("slow");
        assert!(runtime.run());
        let dear: Vec<u64> = taken(&seen).into_iter().filter(|n| *n < 100).collect();
        if rule == WhenFull::DropOldest {
            // What came by the one way is shed in favour of what comes by the other.
            assert!(dear.is_sorted());
        } else {
            assert_eq!(dear, (0..20).collect::<Vec<_>>(), "{rule:?}");
        }
        assert!(runtime.snapshot().adds_up());
    }
}

/// Tries to send each event; remembers what it got back.
#[derive(Clone)]
struct Offers(Arc<Mutex<Vec<u64>>>);
impl Stage for Offers {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        if let Err(back) = out.try_send(*n) {
            self.0.lock().unwrap().push(back);
        }
        Ok(())
    }
}

#[test]
fn try_send_gives_an_event_back_when_there_is_no_room_for_it() {
    for rule in [WhenFull::Block, WhenFull::Reject] {
        for batch in [1, 256] {
            let app = App::new("offers");
            let back = Arc::new(Mutex::new(Vec::new()));
            let (seen, see) = collector();
            let numbers = app.source("numbers", || 0..10u64);
            let offers = app.stage("offers", Offers(back.clone()));
            let slow = app.sink("slow", see);
            app.connect(numbers, offers);
            app.connect(offers, slow);
            let plan = Plan::new()
                .every(|s| s.batch(batch))
                .stage("slow", |s| s.capacity(3).when_full(rule));
            let mut runtime = TestRuntime::new(app, &plan).unwrap();
            runtime.hold("slow");
            runtime.run_until_idle();
            assert_eq!(taken(&back), [3, 4, 5, 6, 7, 8, 9], "{rule:?}, batch {batch}");
            let c = counts(&runtime, "slow");
            assert_eq!((c.offered, c.arrived), (3, 3), "one given back was never offered");
            runtime.resume("slow");
            assert!(runtime.run());
            assert_eq!(taken(&seen), [0, 1, 2]);
        }
    }
}

/// Tries to send its event three times over.
#[derive(Clone)]
struct Triples;
impl Stage for Triples {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        for _ in 0..3 {
            let _ = out.try_send(*n);
        }
        Ok(())
    }
}

#[test]
fn try_send_gives_nothing_back_while_there_is_room() {
    // Under `reject` a visit must have places set aside: the first knows not yet how many.
    for (rule, unknowing) in [(WhenFull::Block, 0), (WhenFull::Reject, 1)] {
        for batch in [1, 4, 256] {
            let app = App::new("triples");
            let numbers = app.source("numbers", || 0..20u64);
            let work = app.stage("work", Triples);
            let sink = app.sink("sink", |_: u64| {});
            app.connect(numbers, work);
            app.connect(work, sink);
            let plan = Plan::new()
                .every(|s| s.batch(batch))
                .stage("sink", |s| s.capacity(100).when_full(rule));
            let mut runtime = TestRuntime::new(app, &plan).unwrap();
            assert!(runtime.run());
            let back = 60 - counts(&runtime, "sink").handled;
            let visit = u64::try_from(batch.min(20)).unwrap();
            assert!(back <= unknowing * visit * 2, "{back} came back, {rule:?}, batch {batch}");
        }
    }
}

#[test]
fn a_disabled_queue_sheds_with_that_reason_whatever_its_rule() {
    let rules = [WhenFull::Block, WhenFull::Reject, WhenFull::DropNewest, WhenFull::DropOldest];
    for rule in rules {
        let (mut runtime, sender, seen) = held(rule, 4);
        sender.try_send(0).unwrap();
        let control = runtime.control();
        control.set_enabled("slow", false).unwrap();
        for n in 1..4 {
            sender.try_send(n).unwrap();
        }
        control.set_enabled("slow", true).unwrap();
        sender.try_send(4).unwrap();
        runtime.resume("slow");
        runtime.run_until_idle();
        assert_eq!(taken(&seen), [0, 4], "{rule:?}");
        let c = counts(&runtime, "slow");
        assert_eq!((c.offered, c.arrived, c.shed(Shed::Disabled)), (5, 2, 3));
    }
}

/// Sends as many events as its event says, numbered on.
#[derive(Clone)]
struct Burst(u64);
impl Stage for Burst {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        for _ in 0..*n {
            out.send(self.0);
            self.0 += 1;
        }
        Ok(())
    }
}

/// Steps to the end, and says how many events stood in and before the queue of `name` at most.
fn peak(runtime: &mut TestRuntime, name: &str) -> (usize, usize) {
    let (mut queued, mut all) = (0, 0);
    loop {
        let ran = runtime.step();
        let snapshot = runtime.snapshot();
        assert!(snapshot.adds_up(), "{snapshot}");
        let at = stage(&snapshot, name);
        queued = queued.max(at.queued);
        all = all.max(at.queued + at.outboxed);
        if !ran {
            assert!(runtime.is_ended(), "{snapshot}");
            return (queued, all);
        }
    }
}

#[test]
fn under_block_no_more_is_held_than_the_capacity_and_one_emission_per_instance() {
    for (instances, emission, capacity) in [(1, 1, 1), (1, 5, 1), (3, 5, 4), (4, 2, 1), (2, 300, 7)]
    {
        for batch in [1, 2, 256] {
            for seed in 0..8 {
                let app = App::new("bound");
                let bursts = app.source("bursts", move || (0..40u64).map(move |_| emission));
                let work = app.stage("work", Burst(0));
                let sink = app.sink("sink", |_: u64| {});
                app.connect(bursts, work);
                app.connect(work, sink);
                let plan = Plan::new()
                    .threads(3)
                    .every(|s| s.batch(batch))
                    .stage("work", |s| s.instances(instances))
                    .stage("sink", |s| s.capacity(capacity));
                let mut runtime = TestRuntime::new(app, &plan).unwrap().seeded(seed);
                let (queued, all) = peak(&mut runtime, "sink");
                assert!(queued <= capacity, "{queued} in a queue of {capacity}");
                let bound = capacity + instances * usize::try_from(emission).unwrap();
                assert!(all <= bound, "{all} held, bound {bound}, batch {batch}, seed {seed}");
                assert_eq!(counts(&runtime, "sink").handled, 40 * emission);
            }
        }
    }
}

#[test]
fn one_event_that_sends_a_million_stays_within_the_bound_and_keeps_order() {
    let app = App::new("million");
    let (seen, see) = collector();
    let bursts = app.source("bursts", || [3, 1_000_000, 2].into_iter());
    let work = app.stage("work", Burst(0));
    let sink = app.sink("sink", see);
    app.connect(bursts, work);
    app.connect(work, sink);
    let mut runtime =
        TestRuntime::new(app, &Plan::new().stage("sink", |s| s.capacity(64))).unwrap();
    let (queued, all) = peak(&mut runtime, "sink");
    assert!(queued <= 64 && all <= 64 + 1_000_000, "{queued}, {all}");
    assert!(taken(&seen).into_iter().eq(0..1_000_005));
}

#[test]
fn a_queue_for_one_event_passes_everything_from_several_producers_in_each_ones_order() {
    for threads in [1, 2, 4] {
        for batch in [1, 256] {
            let app = App::new("fan-in");
            let (seen, see) = collector();
            let sink = app.sink("sink", see);
            for producer in 0..3u64 {
                let events = move || (0..2_000u64).map(move |n| (producer, n));
                let source = app.source(format!("source-{producer}"), events);
                let pass = app.map(format!("pass-{producer}"), |event: (u64, u64)| event);
                app.connect(source, pass);
                app.connect(pass, sink);
            }
            let plan = Plan::new().threads(threads).every(|s| s.capacity(1).batch(batch));
            let summary = run(app, &plan);
            assert_eq!(summary.ended, Ended::Complete);
            assert!(summary.snapshot.adds_up(), "{summary}");
            let seen = taken(&seen);
            for producer in 0..3 {
                let own = seen.iter().filter(|(from, _)| *from == producer).map(|(_, n)| *n);
                assert!(own.eq(0..2_000), "{threads} threads, batch {batch}");
            }
        }
    }
}

#[test]
fn those_who_wait_for_room_are_served_in_turn() {
    let app = App::new("turns");
    let (seen, see) = collector();
    let sink = app.sink("sink", see);
    for producer in 0..4u64 {
        let source =
            app.source(format!("source-{producer}"), move || (0..50).map(move |_| producer));
        app.connect(source, sink);
    }
    let plan = Plan::new()
        .threads(1)
        .policy("single")
        .every(|s| s.batch(1))
        .stage("sink", |s| s.capacity(1));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.run());
    let seen = taken(&seen);
    for window in seen[8..192].chunks(8) {
        for producer in 0..4 {
            let served = window.iter().filter(|from| **from == producer).count();
            assert!(
                (1..=3).contains(&served),
                "{producer} was served {served} times in {window:?}"
            );
        }
    }
}

#[test]
fn a_capacity_lowered_below_the_length_keeps_the_events_and_admits_none() {
    let (mut runtime, sender, seen) = held(WhenFull::Block, 8);
    for n in 0..8 {
        sender.try_send(n).unwrap();
    }
    runtime.control().set_capacity("slow", 3).unwrap();
    assert_eq!(sender.try_send(8), Err(SendError::Full(8)));
    assert_eq!(stage(&runtime.snapshot(), "slow").queued, 8);
    runtime.resume("slow");
    runtime.run_until_idle();
    assert_eq!(taken(&seen), (0..8).collect::<Vec<_>>());
    runtime.hold("slow");
    for n in 10..13 {
        sender.try_send(n).unwrap();
    }
    assert_eq!(sender.try_send(13), Err(SendError::Full(13)));
}

#[test]
fn record_sees_what_a_port_sends_once_it_is_sent() {
    let app = App::new("recorded");
    let numbers = app.source("numbers", || 0..5u64);
    let sent = record(&app, numbers);
    let sink = app.sink("sink", |_: u64| {});
    app.connect(numbers, sink);
    let mut runtime = TestRuntime::new(app, &Plan::new().stage("sink", |s| s.capacity(1))).unwrap();
    assert!(runtime.run());
    assert_eq!(sent.take(), [0, 1, 2, 3, 4]);
}
