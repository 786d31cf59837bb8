//! How a program ends: by itself, drained, quit or stopped; and what keeps it from starting.
//! Long because the ways to end are many, and share their programs.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{
    App, Cx, Demand, Ended, Error, Ev, Out, Plan, Pull, Result, Source, Stage, StartError, sources,
};

use crate::seen::{Gate, collector, counts, ends, run, stage, taken, until};

/// Passes numbers on; at its end sends how many it has seen, as a negative number.
#[derive(Clone, Default)]
struct Tally {
    seen: i64,
    finished: Arc<AtomicUsize>,
}

impl Stage for Tally {
    type In = i64;
    type Ports = Out<i64>;
    fn handle(&mut self, n: Ev<'_, i64>, out: &mut Out<i64>, _: &Cx) -> Result {
        self.seen += 1;
        out.send(*n);
        Ok(())
    }
    fn finish(&mut self, out: &mut Out<i64>, _: &Cx) -> Result {
        self.finished.fetch_add(1, SeqCst);
        out.send(-self.seen);
        Ok(())
    }
}

#[test]
fn finish_runs_once_per_instance_after_the_last_event_and_what_it_sends_arrives() {
    for (instances, capacity, batch) in [(1, 1, 1), (1, 64, 256), (3, 1, 1), (4, 8, 2)] {
        for seed in 0..5 {
            let app = App::new("finish");
            let (seen, see) = collector();
            let tally = Tally::default();
            let numbers = app.source("numbers", || 1..=100i64);
            let work = app.stage("work", tally.clone());
            let sink = app.sink("sink", see);
            app.connect(numbers, work);
            app.connect(work, sink);
            let plan = Plan::new()
                .threads(2)
                .every(|s| s.capacity(capacity).batch(batch))
                .stage("work", |s| s.instances(instances));
            let mut runtime = TestRuntime::new(app, &plan).unwrap().seeded(seed);
            assert!(runtime.run(), "{}", runtime.snapshot());
            assert_eq!(tally.finished.load(SeqCst), instances);
            let seen = taken(&seen);
            assert_eq!(seen.len(), 100 + instances);
            assert_eq!(seen.iter().filter(|n| **n <= 0).sum::<i64>(), -100);
            if instances == 1 {
                assert_eq!(seen.last(), Some(&-100), "it comes after all events");
            }
        }
    }
}

#[test]
fn what_an_ordered_stage_sends_at_its_end_comes_after_all_its_results() {
    for seed in 0..10 {
        let app = App::new("ordered-finish");
        let (seen, see) = collector();
        let numbers = app.source("numbers", || 1..=40i64);
        let work = app.stage("work", Tally::default()).ordered();
        let sink = app.sink("sink", see);
        app.connect(numbers, work);
        app.connect(work, sink);
        let plan = Plan::new()
            .threads(2)
            .stage("work", |s| s.instances(2).batch(4))
            .stage("sink", |s| s.capacity(1).batch(1));
        let mut runtime = TestRuntime::new(app, &plan).unwrap().seeded(seed);
        assert!(runtime.run(), "{}", runtime.snapshot());
        let seen = taken(&seen);
        assert!(seen[..40].iter().copied().eq(1..=40), "seed {seed}: {seen:?}");
        assert_eq!(seen[40..].iter().sum::<i64>(), -40);
    }
}

/// Sends its event three times; at its end a zero.
#[derive(Clone)]
struct Thrice;
impl Stage for Thrice {
    type In = i64;
    type Ports = Out<i64>;
    fn handle(&mut self, n: Ev<'_, i64>, out: &mut Out<i64>, _: &Cx) -> Result {
        (0..3).for_each(|_| out.send(*n));
        Ok(())
    }
    fn finish(&mut self, out: &mut Out<i64>, _: &Cx) -> Result {
        out.send(0);
        Ok(())
    }
}

#[test]
fn a_stage_finishes_only_when_its_results_have_left_it() {
    for ordered in [false, true] {
        let app = App::new("leaving");
        let (seen, see) = collector();
        let (sender, port) = app.input("in");
        let work = app.stage("work", Thrice);
        let work = if ordered { work.ordered() } else { work };
        let sink = app.sink("sink", see);
        app.connect(port, work);
        app.connect(work, sink);
        let plan = Plan::new()
            .threads(1)
            .stage("work", |s| s.instances(2))
            .stage("sink", |s| s.capacity(1));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.hold("sink");
        sender.send(7).unwrap();
        runtime.run_until_idle();
        runtime.close();
        runtime.run_until_idle();
        runtime.resume("sink");
        assert!(runtime.run());
        assert_eq!(taken(&seen), [7, 7, 7, 0, 0], "ordered: {ordered}");
    }
}

#[test]
fn the_end_of_a_stream_goes_through_a_diamond() {
    for seed in 0..20 {
        let app = App::new("diamond");
        let (seen, see) = collector();
        let numbers = app.source("numbers", || 1..=50i64);
        let left = app.stage("left", Tally::default());
        let right = app.stage("right", Tally::default());
        let join = app.stage("join", Tally::default());
        let sink = app.sink("sink", see);
        app.connect(numbers, left);
        app.connect(numbers, right);
        app.connect(left, join);
        app.connect(right, join);
        app.connect(join, sink);
        let plan = Plan::new().threads(3).every(|s| s.capacity(2).batch(3));
        let mut runtime = TestRuntime::new(app, &plan).unwrap().seeded(seed);
        assert!(runtime.run());
        let seen = taken(&seen);
        assert_eq!(seen.len(), 103, "two copies, and what three stages sent at their end");
        assert_eq!(seen.last(), Some(&-102), "join finishes after left and right have");
    }
}

#[test]
fn a_cycle_ends_as_a_unit_once_nothing_is_in_it() {
    for (capacity, batch, threads) in [(1, 1, 1), (2, 256, 2), (64, 7, 3)] {
        let app = App::new("cycle");
        let done = Tally::default();
        let numbers = app.source("numbers", || (1..=200i64).map(|n| n % 10));
        let count_down = app.flat_map("count-down", |n: i64| (n > 0).then(|| n - 1));
        let again = app.map("again", |n: i64| n);
        let out = app.stage("out", done.clone());
        app.connect(numbers, count_down);
        app.connect(count_down, again);
        app.connect(again, count_down);
        app.connect(again, out);
        let plan = Plan::new().threads(threads).every(|s| s.capacity(capacity).batch(batch));
        let summary = run(app, &plan);
        assert_eq!(summary.ended, Ended::Complete);
        assert!(summary.snapshot.adds_up(), "{summary}");
        assert_eq!(done.finished.load(SeqCst), 1);
        assert!(summary.snapshot.stages.iter().all(|stage| stage.ended), "{summary}");
    }
}

#[test]
fn a_cycle_ends_only_when_what_it_sent_outside_has_left_it() {
    for instances in [1, 2] {
        let app = App::new("leaving");
        let (seen, see) = collector();
        let numbers = app.source("numbers", || 1..=3i64);
        let round = app.stage("round", Tally::default());
        let back = app.flat_map("back", |n: i64| (n > 10).then(|| n - 1));
        let out = app.sink("out", see);
        app.connect(numbers, round);
        app.connect(round, back);
        app.connect(back, round);
        app.connect(round, out);
        let plan = Plan::new()
            .threads(1)
            .stage("round", |s| s.instances(instances))
            .stage("out", |s| s.capacity(1));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.hold("out");
        runtime.run_until_idle();
        assert!(stage(&runtime.snapshot(), "out").outboxed > 0);
        runtime.resume("out");
        assert!(runtime.run(), "{}", runtime.snapshot());
        let seen = taken(&seen);
        assert_eq!(seen.len(), 3 + instances, "{seen:?}");
        assert_eq!(seen[..3], [1, 2, 3]);
        assert_eq!(seen[3..].iter().sum::<i64>(), -3);
    }
}

#[test]
fn a_program_without_events_ends() {
    let app = App::new("nothing");
    let none = app.source("nothing", std::iter::empty::<i64>);
    let (seen, see) = collector();
    let work = app.stage("work", Tally::default());
    let sink = app.sink("sink", see);
    app.connect(none, work);
    app.connect(work, sink);
    let summary = run(app, &Plan::new().threads(2));
    assert_eq!((summary.ended, taken(&seen)), (Ended::Complete, vec![0]));
}

#[test]
fn a_drain_closes_the_sources_and_handles_all_that_is_in_the_program() {
    let app = App::new("drain");
    let (sender, port) = app.input("in");
    let endless = app.source("endless", || 0..u64::MAX);
    let sink = app.sink("sink", |_: u64| {});
    app.connect(port, sink);
    app.connect(endless, sink);
    let running = app.start(&Plan::new().threads(2)).unwrap();
    sender.send(7).unwrap();
    until(|| stage(&running.snapshot(), "sink").counts.handled > 1_000);
    let summary = running.drain();
    assert_eq!(summary.ended, Ended::Drained);
    assert!(summary.snapshot.adds_up(), "{summary}");
    let sink = stage(&summary.snapshot, "sink");
    let sent = stage(&summary.snapshot, "endless").counts.emitted;
    assert_eq!((sink.counts.handled, sink.counts.cancelled), (sent + 1, 0));
    assert!(sender.send(8).is_err());
}

#[test]
fn a_closed_program_takes_nothing_in_handles_what_it_holds_and_ends_drained() {
    let app = App::new("close");
    let gate = Gate::default();
    let (sender, port) = app.input("in");
    let endless = app.source("endless", || 0..u64::MAX);
    let sink = app.sink("sink", {
        let gate = gate.clone();
        move |_: u64| gate.pass()
    });
    app.connect(port, sink);
    app.connect(endless, sink);
    let running = app.start(&Plan::new().threads(2)).unwrap();
    gate.wait_for(1);
    running.close();
    assert!(sender.send(8).is_err());
    assert!(!running.is_ended(), "an event is still in a handler");
    gate.open();
    let summary = ends(running);
    assert_eq!(summary.ended, Ended::Drained);
    assert!(summary.snapshot.adds_up(), "{summary}");
    let sent = stage(&summary.snapshot, "endless").counts.emitted;
    assert_eq!(stage(&summary.snapshot, "sink").counts.handled, sent);
}

#[test]
fn all_who_asked_hear_of_the_end_once_however_it_comes_and_however_late_they_ask() {
    for quits in [false, true] {
        let app = App::new("heard");
        let gate = Gate::default();
        let numbers = app.source("numbers", || 0..1u64);
        let sink = app.stage("sink", AtGate { gate: gate.clone(), quits });
        app.connect(numbers, sink);
        let running = app.start(&Plan::new().threads(1)).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        for who in 0..2 {
            let tell = tell.clone();
            running.on_end(move || tell.send(who).unwrap());
        }
        gate.wait_for(1);
        assert!(told.try_recv().is_err(), "it has not ended");
        gate.open();
        let hear = || told.recv_timeout(Duration::from_secs(30)); // the bound of a failure
        assert_eq!((hear(), hear()), (Ok(0), Ok(1)));
        assert!(running.is_ended());
        running.on_end(move || tell.send(2).unwrap());
        assert_eq!((hear(), told.try_recv().is_err()), (Ok(2), true));
        let ended = if quits { Ended::Quit } else { Ended::Complete };
        assert_eq!(ends(running).ended, ended);
    }
}

/// Waits at a gate with each event; then quits, if it is one that does.
#[derive(Clone)]
struct AtGate {
    gate: Gate,
    quits: bool,
}

impl Stage for AtGate {
    type In = u64;
    type Ports = ();
    fn handle(&mut self, _: Ev<'_, u64>, (): &mut (), cx: &Cx) -> Result {
        self.gate.pass();
        if self.quits {
            cx.quit(());
        }
        Ok(())
    }
}

#[test]
fn a_drain_whose_time_is_up_cancels_exactly_what_is_left() {
    let app = App::new("late");
    let gate = Gate::default();
    let numbers = app.source("numbers", || 0..100u64);
    let pass = app.map("pass", |n: u64| n);
    let slow = app.sink("slow", {
        let gate = gate.clone();
        move |_: u64| gate.pass()
    });
    app.connect(numbers, pass);
    app.connect(pass, slow);
    let plan = Plan::new()
        .threads(2)
        .stage("pass", |s| s.capacity(20))
        .stage("slow", |s| s.capacity(10).batch(1));
    let running = app.start(&plan).unwrap();
    gate.wait_for(1);
    until(|| {
        let snapshot = running.snapshot();
        stage(&snapshot, "slow").outboxed > 0 && stage(&snapshot, "pass").queued > 10
    });
    // The gate opens while the drain gives up, so that the one event in hand ends as handled.
    let opener = crate::seen::thread({
        let snapshot = running.control();
        let gate = gate.clone();
        move || {
            until(|| snapshot.set_instances("slow", 1).is_err()); // it has been stopped
            gate.open();
        }
    });
    let summary = running.drain_within(Duration::from_millis(20));
    opener.join().unwrap();
    assert_eq!(summary.ended, Ended::TimedOut);
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert!(summary.stuck.is_empty());
    for at in &summary.snapshot.stages {
        assert_eq!((at.queued, at.in_flight, at.outboxed), (0, 0, 0), "{}", at.name);
    }
    let (slow, pass) = (stage(&summary.snapshot, "slow"), stage(&summary.snapshot, "pass"));
    assert_eq!(slow.counts.handled, 1);
    assert_eq!(slow.counts.cancelled, slow.counts.arrived - 1);
    assert_eq!(pass.counts.handled, slow.counts.arrived);
    assert_eq!(pass.counts.cancelled, pass.counts.arrived - pass.counts.handled);
}

#[test]
fn a_stop_cancels_what_is_queued_at_once() {
    let app = App::new("stop");
    let endless = app.source("endless", || 0..u64::MAX);
    let work = app.map("work", |n: u64| n).ordered();
    let sink = app.sink("sink", |_: u64| {});
    app.connect(endless, work);
    app.connect(work, sink);
    let plan = Plan::new().threads(2).stage("work", |s| s.instances(3));
    let running = app.start(&plan).unwrap();
    until(|| stage(&running.snapshot(), "sink").counts.handled > 1_000);
    let summary = running.stop();
    assert_eq!(summary.ended, Ended::Stopped);
    assert!(summary.snapshot.adds_up(), "{summary}");
    for at in &summary.snapshot.stages {
        assert_eq!((at.queued, at.in_flight, at.outboxed), (0, 0, 0), "{summary}");
    }
}

/// Quits at one number.
#[derive(Clone)]
struct Quits(u64);
impl Stage for Quits {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, cx: &Cx) -> Result {
        out.send(*n);
        if *n == self.0 {
            cx.quit(format!("found {n}"));
        }
        Ok(())
    }
}

#[test]
fn a_quit_ends_the_program_with_its_result_and_handles_nothing_more() {
    for ordered in [false, true] {
        let app = App::new("quit");
        let numbers = app.source("numbers", || 0..1_000u64);
        let work = app.stage("work", Quits(30));
        let work = if ordered { work.ordered() } else { work };
        app.connect(numbers, work);
        let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
        assert!(runtime.run());
        assert_eq!(runtime.quit_with::<String>().as_deref(), Some("found 30"));
        assert!(!runtime.step(), "nothing is done after a quit");
        let snapshot = runtime.snapshot();
        assert!(snapshot.adds_up(), "{snapshot}");
        let work = stage(&snapshot, "work");
        assert_eq!(
            work.counts.arrived,
            (work.queued + work.in_flight) as u64 + work.counts.handled
        );
        if !ordered {
            assert_eq!(work.counts.handled, 31);
        }
    }
}

#[test]
fn a_quit_is_found_in_the_summary() {
    for ordered in [false, true] {
        let app = App::new("quit");
        let numbers = app.source("numbers", || 0..u64::MAX);
        let work = app.stage("work", Quits(50_000));
        let work = if ordered { work.ordered() } else { work };
        let sink = app.sink("sink", |_: u64| {});
        app.connect(numbers, work);
        app.connect(work, sink);
        let mut summary = run(app, &Plan::new().threads(2));
        assert_eq!(summary.ended, Ended::Quit, "{summary}");
        assert_eq!(summary.take_result::<u8>(), None, "it is no u8");
        assert_eq!(summary.take_result::<String>().as_deref(), Some("found 50000"));
        assert!(summary.snapshot.adds_up(), "{summary}");
        for at in &summary.snapshot.stages {
            assert_eq!((at.queued, at.in_flight, at.outboxed), (0, 0, 0), "{summary}");
        }
    }
}

#[test]
fn a_stuck_handler_is_stood_in_for_and_named() {
    let app = App::new("stuck");
    let gate = Gate::default();
    let numbers = app.source("numbers", || 0..1u64);
    let stuck = app.sink("stuck", {
        let gate = gate.clone();
        move |_: u64| gate.pass()
    });
    app.connect(numbers, stuck);
    let (sender, port) = app.input("in");
    let other = app.sink("other", |_: u64| {});
    app.connect(port, other);
    // One thread, and it is stuck: only one that stands in can serve `other`.
    let plan = Plan::new().threads(1).stuck_after(Duration::from_millis(5));
    let running = app.start(&plan).unwrap();
    gate.wait_for(1);
    sender.send(1).unwrap();
    until(|| stage(&running.snapshot(), "other").counts.handled == 1);
    assert_eq!(running.snapshot().pools[0].threads, 1, "who stands in is not counted");
    let summary = running.stop();
    assert_eq!(summary.stuck, ["stuck"]);
    assert!(summary.to_string().contains("a handler of `stuck` has not returned"));
    assert_eq!(stage(&summary.snapshot, "stuck").in_flight, 1);
    assert!(summary.snapshot.adds_up(), "{summary}");
    gate.open();
}

#[test]
fn a_handler_that_does_not_return_from_a_stop_is_named_however_short_it_has_been_stuck() {
    let app = App::new("slow");
    let gate = Gate::default();
    let numbers = app.source("numbers", || 0..1u64);
    let slow = app.sink("slow", {
        let gate = gate.clone();
        move |_: u64| gate.pass()
    });
    app.connect(numbers, slow);
    let running = app.start(&Plan::new().threads(1)).unwrap();
    gate.wait_for(1);
    let summary = running.stop();
    assert_eq!(summary.stuck, ["slow"]);
    gate.open();
}

/// Fails in its life where it is told to.
#[derive(Clone)]
struct Frail {
    init: Does,
    finish: Does,
}

type Does = fn() -> Result;

impl Stage for Frail {
    type In = u64;
    type Ports = Out<u64>;
    fn init(&mut self, _: &Cx) -> Result {
        (self.init)()
    }
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        out.send(*n);
        Ok(())
    }
    fn finish(&mut self, out: &mut Out<u64>, _: &Cx) -> Result {
        out.send(1_000);
        (self.finish)()
    }
}

fn fine() -> Result {
    Ok(())
}

fn no_database() -> Result {
    Err(Error::msg("no database"))
}

fn frail(init: Does, finish: Does) -> (App, Arc<Mutex<Vec<u64>>>) {
    let app = App::new("frail");
    let (seen, see) = collector();
    let numbers = app.source("numbers", || 0..3u64);
    let work = app.stage("work", Frail { init, finish });
    let sink = app.sink("sink", see);
    app.connect(numbers, work);
    app.connect(work, sink);
    (app, seen)
}

#[test]
fn an_error_or_a_panic_in_init_keeps_the_program_from_starting() {
    let inits: [(Does, &str); 2] =
        [(no_database, "no database"), (|| panic!("no luck"), "no luck")];
    for (init, why) in inits {
        let (app, seen) = frail(init, fine);
        let error = app.start(&Plan::new().threads(1)).unwrap_err();
        let StartError::Stage { name, message } = &error else { panic!("{error}") };
        assert!(name == "work" && message.contains(why), "{error}");
        assert!(error.to_string().starts_with("`work` could not start: "), "{error}");
        assert!(taken(&seen).is_empty());
    }
}

#[test]
fn an_error_or_a_panic_in_finish_is_reported_and_stops_nothing() {
    let finishes: [(Does, &str); 2] =
        [(no_database, "no database"), (|| panic!("no luck"), "no luck")];
    for (finish, why) in finishes {
        let (app, seen) = frail(fine, finish);
        let summary = run(app, &Plan::new().threads(2));
        assert_eq!(summary.ended, Ended::Complete);
        assert_eq!(taken(&seen), [0, 1, 2], "what a failed finish sent is withdrawn");
        let [problem] = summary.problems.as_slice() else { panic!("{:?}", summary.problems) };
        assert!(problem.starts_with("`work` could not finish: ") && problem.contains(why));
    }
}

/// Sends far too much at its end.
#[derive(Clone)]
struct Floods;
impl Stage for Floods {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, _: Ev<'_, u64>, _: &mut Out<u64>, _: &Cx) -> Result {
        Ok(())
    }
    fn finish(&mut self, out: &mut Out<u64>, _: &Cx) -> Result {
        (0..5_000).for_each(|n| out.send(n));
        Ok(())
    }
}

#[test]
fn a_finish_that_sends_more_than_emit_max_is_reported() {
    let app = App::new("flood");
    let (seen, see) = collector();
    let numbers = app.source("numbers", || 0..3u64);
    let work = app.stage("work", Floods);
    let sink = app.sink("sink", see);
    app.connect(numbers, work);
    app.connect(work, sink);
    let mut runtime =
        TestRuntime::new(app, &Plan::new().stage("work", |s| s.emit_max(1_000))).unwrap();
    assert!(runtime.run());
    assert_eq!(
        runtime.problems(),
        ["`work` could not finish: emitted more than 1000 events (emit_max)"]
    );
    assert!(taken(&seen).is_empty());
    assert_eq!(counts(&runtime, "work").emitted, 0);
}

/// Gives two events, then fails.
struct Breaks(Fails);
type Fails = fn() -> Result<Pull>;
impl Source for Breaks {
    type Item = u64;
    fn pull(&mut self, out: &mut Out<u64>, demand: Demand) -> Result<Pull> {
        out.send(demand.group);
        if demand.group == 1 { Ok(Pull::More) } else { (self.0)() }
    }
}

#[test]
fn a_source_that_fails_or_panics_ends_and_is_reported() {
    let breaks: [(Fails, &str); 2] =
        [(|| Err(Error::msg("cut off")), "cut off"), (|| panic!("no luck"), "no luck")];
    for (fails, why) in breaks {
        let app = App::new("breaks");
        let (seen, see) = collector();
        let source = app.source("source", move || Breaks(fails));
        let sink = app.sink("sink", see);
        app.connect(source, sink);
        let summary = run(app, &Plan::new().threads(1));
        assert_eq!(summary.ended, Ended::SourceFailed);
        assert_eq!(taken(&seen), [1, 2], "what it sent before it failed is handled");
        let [problem] = summary.problems.as_slice() else { panic!("{:?}", summary.problems) };
        assert!(problem.starts_with("the source `source` failed: ") && problem.contains(why));
    }
}

#[test]
fn dropping_a_running_program_stops_it() {
    let app = App::new("dropped");
    let endless = app.source("endless", || 0..u64::MAX);
    let finished = Arc::new(());
    let kept = finished.clone();
    let sink = app.sink("sink", move |_: u64| {
        let _ = &kept;
    });
    app.connect(endless, sink);
    drop(app.start(&Plan::new().threads(2)).unwrap());
    until(|| Arc::strong_count(&finished) == 1); // every instance is gone
}

#[test]
fn a_program_inside_of_an_async_runtime_is_fed_and_awaited_there() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let summary = runtime.block_on(async {
        let app = App::new("embedded");
        let (sender, port) = app.input::<u64>("in");
        let sink = app.sink("sink", |_: u64| ());
        app.connect(port, sink);
        // A queue of one: the pusher waits as a future, on the runtime's only thread.
        let plan = Plan::new().threads(2).stage("sink", |sink| sink.capacity(1));
        let running = app.start(&plan).unwrap();
        let ended = running.ended();
        let pushed = tokio::spawn(async move {
            for n in 0..1_000 {
                sender.send_async(n).await.unwrap();
            }
        });
        ended.await;
        pushed.await.unwrap();
        running.ended().await; // and again, for whoever comes late
        ends(running)
    });
    assert_eq!(summary.ended, Ended::Complete);
    assert_eq!(stage(&summary.snapshot, "sink").counts.handled, 1_000);
}

#[test]
fn what_a_program_says_itself_gives_way_to_the_plan_it_is_started_with() {
    let app = App::new("own");
    let numbers = app.source("numbers", || 0..3u64);
    let sink = app.sink("sink", |_: u64| ());
    app.connect(numbers, sink);
    app.set_plan(Plan::new().stage("sink", |sink| sink.instances(2).capacity(7)));
    assert_eq!(app.plan().stages["sink"].instances, Some(2));
    let plan = Plan::new().stage("sink", |sink| sink.instances(3));
    let summary = run(app, &plan);
    assert_eq!(stage(&summary.snapshot, "sink").capacity, 7);
}

#[test]
fn how_long_events_were_in_the_program_is_told_where_they_leave_it() {
    for ordered in [false, true] {
        let app = App::new("latency");
        let ticks = app.source("ticks", || sources::every(Duration::from_secs(1)));
        let pass = app.map("pass", |n: u64| n);
        let show = app.sink("show", |_: u64| ());
        let show = if ordered { show.ordered() } else { show };
        app.connect(ticks, pass);
        app.connect(pass, show);
        let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
        runtime.hold("show");
        for _ in 0..4 {
            runtime.advance(Duration::from_secs(1)); // ticks at 1, 2, 3 and 4 s wait
        }
        runtime.resume("show");
        runtime.run_until_idle();
        let snapshot = runtime.snapshot();
        assert_eq!(stage(&snapshot, "pass").latency.count(), 0, "nothing leaves there");
        let latency = snapshot.latency();
        assert_eq!((latency.count(), latency.max()), (4, Duration::from_secs(3)));
        assert_eq!(latency.mean(), Duration::from_millis(1_500));
        let p50 = latency.quantile(0.5).as_secs_f64();
        assert!((p50 - 1.0).abs() <= 1.0 / 32.0, "{p50}");
    }
}

#[test]
fn the_time_spent_in_handlers_is_no_more_than_the_threads_had() {
    let app = App::new("busy");
    let numbers = app.source("numbers", || 0..200_000u64);
    let work = app.map("work", |n: u64| std::hint::black_box(n.wrapping_mul(n) % 1_009));
    let sum = app.sink("sum", |_: u64| ());
    app.connect(numbers, work);
    app.connect(work, sum);
    let snapshot = run(app, &Plan::new().threads(2)).snapshot;
    let busy: Duration = snapshot.stages.iter().map(|stage| stage.busy).sum();
    assert!(busy <= snapshot.elapsed * 2, "{busy:?} of {:?}", snapshot.elapsed);
    for stage in &snapshot.stages {
        assert!(stage.busy > Duration::ZERO && stage.service() <= stage.busy, "{stage:?}");
    }
}
