//! Promise 5: a panic or an error costs one event, never the stage. What it sent is withdrawn, it
//! is tried again if the plan says so, and then set aside with its reason, replayable.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::{StageTester, TestRuntime, record};
use comporta::{App, Cx, Ended, Error, Ev, OnPanic, Out, Plan, Reason, Result, Retry, Stage, Time};

use crate::seen::{collector, counts, run, stage, taken};

const MS: Duration = Duration::from_millis(1);

/// Sends each number, and then fails if the rule says so: by error or by panic.
#[derive(Clone)]
struct Picky {
    fails: fn(u64) -> bool,
    panics: fn(u64) -> bool,
    /// Sends so many copies of a number before it fails.
    sends: usize,
}

impl Stage for Picky {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        for _ in 0..self.sends {
            out.send(*n);
        }
        assert!(!(self.panics)(*n), "no {n}");
        if (self.fails)(*n) {
            return Err(Error::msg(format!("not {n}")));
        }
        Ok(())
    }
}

fn picky(fails: fn(u64) -> bool, panics: fn(u64) -> bool) -> Picky {
    Picky { fails, panics, sends: 1 }
}

/// `numbers` -> `work` -> `sink`.
fn line(
    app: &App,
    numbers: std::ops::Range<u64>,
    work: impl Stage<In = u64, Ports = Out<u64>> + Clone + Sync,
) -> Arc<Mutex<Vec<u64>>> {
    let (seen, see) = collector();
    let source = app.source("numbers", move || numbers);
    let work = app.stage("work", work);
    let sink = app.sink("sink", see);
    app.connect(source, work);
    app.connect(work, sink);
    seen
}

#[test]
fn an_error_and_a_panic_cost_one_event_each_and_what_they_sent() {
    for batch in [1, 3, 256] {
        let app = App::new("picky");
        let seen = line(&app, 0..10, picky(|n| n == 3, |n| n == 7));
        let mut runtime = TestRuntime::new(app, &Plan::new().every(|s| s.batch(batch))).unwrap();
        assert!(runtime.run());
        assert_eq!(taken(&seen), [0, 1, 2, 4, 5, 6, 8, 9], "batch {batch}");
        let c = counts(&runtime, "work");
        assert_eq!((c.handled, c.failed, c.emitted), (8, 2, 8));
        let failures = runtime.control().failures("work").unwrap();
        assert_eq!(failures[0].reason, Reason::Error("not 3".to_owned()));
        let Reason::Panic(message, Some(place)) = &failures[1].reason else {
            panic!("{:?}", failures[1])
        };
        assert!(message == "no 7" && place.contains("failures.rs"), "{message} {place}");
        assert!(failures.iter().all(|f| f.attempts == 1 && f.replayable));
    }
}

#[test]
fn what_a_failing_event_sent_is_withdrawn_across_chunks() {
    let app = App::new("withdraw");
    let work = Picky { fails: |n| n % 2 == 1, panics: |n| n == 4, sends: 1_000 };
    let seen = line(&app, 0..6, work);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    let expected: Vec<u64> = [0, 2].into_iter().flat_map(|n| [n; 1_000]).collect();
    assert_eq!(taken(&seen), expected);
    assert_eq!(counts(&runtime, "work").emitted, 2_000);
}

#[test]
fn failures_are_kept_up_to_the_bound_and_the_rest_is_counted() {
    let app = App::new("bounded");
    let _seen = line(&app, 0..100, picky(|_| true, |_| false));
    let mut runtime =
        TestRuntime::new(app, &Plan::new().stage("work", |s| s.failures_max(7))).unwrap();
    assert!(runtime.run());
    assert_eq!(counts(&runtime, "work").failed, 100);
    let snapshot = runtime.snapshot();
    let work = stage(&snapshot, "work");
    assert_eq!((work.failures_kept, work.failures_forgotten), (7, 93));
    let failures = runtime.control().failures("work").unwrap();
    assert_eq!(
        failures.iter().map(|f| f.number).collect::<Vec<_>>(),
        (93..100).collect::<Vec<_>>()
    );
    assert_eq!(failures[6].reason.to_string(), "not 99");
}

#[test]
fn failures_are_taken_with_their_events_and_only_by_their_type() {
    let app = App::new("taking");
    let _seen = line(&app, 0..4, picky(|n| n > 1, |_| false));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    let control = runtime.control();
    let wrong = control.take_failures::<String>("work").unwrap_err();
    assert_eq!(wrong.to_string(), "`work` takes `u64`, not `alloc::string::String`");
    let events: Vec<_> =
        control.take_failures::<u64>("work").unwrap().into_iter().map(|(_, n)| n).collect();
    assert_eq!(events, [Some(2), Some(3)], "asking for another type took them");
    assert!(control.failures("work").unwrap().is_empty());
}

/// Fails on everything until it is mended.
#[derive(Clone)]
struct Mended(Arc<Mutex<bool>>);
impl Stage for Mended {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        if !*self.0.lock().unwrap() {
            return Err(Error::msg("broken"));
        }
        out.send(*n);
        Ok(())
    }
}

#[test]
fn a_replay_puts_failed_events_back_oldest_first_as_far_as_there_is_room() {
    let app = App::new("replay");
    let mended = Arc::new(Mutex::new(false));
    let (sender, port) = app.input("in");
    let work = app.stage("work", Mended(mended.clone()));
    let sent = record(&app, work);
    app.connect(port, work);
    let mut runtime = TestRuntime::new(app, &Plan::new().stage("work", |s| s.capacity(4))).unwrap();
    for n in 0..6u64 {
        sender.send(n).unwrap();
        runtime.run_until_idle();
    }
    assert_eq!(counts(&runtime, "work").failed, 6);
    *mended.lock().unwrap() = true;
    let control = runtime.control();
    assert_eq!(control.replay("work", 3).unwrap(), 3);
    assert_eq!(control.replay("work", 9).unwrap(), 1, "the queue holds four");
    runtime.run_until_idle();
    assert_eq!(sent.take(), [0, 1, 2, 3]);
    assert_eq!(control.replay("work", 9).unwrap(), 2);
    assert_eq!(control.replay("work", 9).unwrap(), 0);
    runtime.run_until_idle();
    assert_eq!(sent.take(), [4, 5]);
    let c = counts(&runtime, "work");
    assert_eq!((c.offered, c.arrived, c.replayed), (12, 12, 6));
    assert_eq!((c.handled, c.failed), (6, 6));
    assert!(control.failures("work").unwrap().is_empty());
}

#[test]
fn a_taken_event_can_be_replayed_only_where_the_stage_retains() {
    for retains in [false, true] {
        let app = App::new("retain");
        let numbers = app.source("numbers", || 0..3u64);
        let work = app.process("work", |n: u64, _: &mut Out<u64>| -> Result {
            Err(Error::msg(format!("not {n}")))
        });
        let work = if retains { work.retain() } else { work };
        app.connect(numbers, work);
        let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
        runtime.hold("numbers");
        runtime.run_until_idle();
        runtime.resume("numbers");
        runtime.step();
        runtime.step();
        let failures = runtime.control().failures("work").unwrap();
        assert_eq!(failures.len(), 3);
        assert!(failures.iter().all(|failure| failure.replayable == retains));
        let events = runtime.control().take_failures::<u64>("work").unwrap();
        let events: Vec<_> = events.into_iter().map(|(_, event)| event).collect();
        let expected = if retains { [Some(0), Some(1), Some(2)] } else { [None; 3] };
        assert_eq!(events, expected);
    }
}

/// Notes when and at which try each event came; fails those tries that the rule names.
#[derive(Clone)]
struct Tried {
    fails: fn(u64, u32) -> bool,
    seen: Arc<Mutex<Vec<(u64, u32, Time)>>>,
}

impl Tried {
    fn new(fails: fn(u64, u32) -> bool) -> Self {
        Tried { fails, seen: Arc::default() }
    }

    fn tries(&self) -> Vec<(u64, u32, u64)> {
        let at = |time: Time| time.as_nanos() / 1_000_000;
        taken(&self.seen).into_iter().map(|(n, attempt, time)| (n, attempt, at(time))).collect()
    }
}

impl Stage for Tried {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, cx: &Cx) -> Result {
        self.seen.lock().unwrap().push((*n, cx.attempt(), cx.now()));
        out.send(*n);
        if (self.fails)(*n, cx.attempt()) { Err(Error::msg("again")) } else { Ok(()) }
    }
}

#[test]
fn a_retry_waits_twice_as_long_each_time_and_a_single_instance_keeps_order() {
    for batch in [1, 2, 256] {
        let app = App::new("retry");
        let work = Tried::new(|n, attempt| n == 2 && attempt < 4);
        let seen = line(&app, 0..5, work.clone());
        let plan = Plan::new()
            .every(|s| s.batch(batch))
            .stage("work", |s| s.retry(Retry::new(4, 50 * MS).jitter(false)));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        assert!(runtime.run());
        let expected = [
            (0, 1, 0),
            (1, 1, 0),
            (2, 1, 0),
            (2, 2, 50),
            (2, 3, 150),
            (2, 4, 350),
            (3, 1, 350),
            (4, 1, 350),
        ];
        assert_eq!(work.tries(), expected, "batch {batch}");
        assert_eq!(taken(&seen), [0, 1, 2, 3, 4]);
        let c = counts(&runtime, "work");
        assert_eq!((c.arrived, c.handled, c.failed, c.retried), (5, 5, 0, 3), "batch {batch}");
    }
}

#[test]
fn when_its_tries_run_out_an_event_is_set_aside_with_their_number() {
    let app = App::new("used-up");
    let work = Tried::new(|n, _| n % 2 == 1);
    let seen = line(&app, 0..5, work.clone());
    let plan = Plan::new().stage("work", |s| s.retry(Retry::new(3, 10 * MS).jitter(false)));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.run());
    assert_eq!(taken(&seen), [0, 2, 4]);
    let c = counts(&runtime, "work");
    assert_eq!((c.handled, c.failed, c.retried), (3, 2, 4));
    let failures = runtime.control().failures("work").unwrap();
    assert!(failures.iter().all(|failure| failure.attempts == 3));
    assert_eq!(failures[1].at, Time::from_nanos(60_000_000));
}

#[test]
fn a_retry_without_a_wait_is_made_at_once() {
    let app = App::new("at-once");
    let work = Tried::new(|_, attempt| attempt < 3);
    let seen = line(&app, 0..4, work.clone());
    let plan = Plan::new().stage("work", |s| s.retry(Retry::new(3, Duration::ZERO)));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.run());
    assert_eq!((taken(&seen), runtime.now()), (vec![0, 1, 2, 3], Time::ZERO));
    let c = counts(&runtime, "work");
    assert_eq!((c.handled, c.failed, c.retried), (4, 0, 8));
}

#[test]
fn an_injected_fault_is_retried_like_any_other() {
    let app = App::new("injected");
    let seen = line(&app, 0..3, picky(|_| false, |_| false));
    let plan = Plan::new().stage("work", |s| s.retry(Retry::new(2, 5 * MS)));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.fail_next("work", "injected");
    assert!(runtime.run());
    assert_eq!((taken(&seen), counts(&runtime, "work").retried), (vec![0, 1, 2], 1));
}

#[test]
fn a_retry_in_an_ordered_stage_keeps_order_at_its_output() {
    for (batch, instances) in [(1, 1), (1, 4), (3, 4), (256, 2)] {
        for seed in 0..20 {
            let app = App::new("ordered");
            let (seen, see) = collector();
            let numbers = app.source("numbers", || 0..60u64);
            let work = Tried::new(|n, attempt| n % 7 == 3 && attempt < 3 || n == 50);
            let work = app.stage("work", work).ordered();
            let sink = app.sink("sink", see);
            app.connect(numbers, work);
            app.connect(work, sink);
            let plan = Plan::new()
                .threads(3)
                .every(|s| s.batch(batch).capacity(8))
                .stage("work", |s| s.instances(instances).retry(Retry::new(3, 50 * MS)));
            let mut runtime = TestRuntime::new(app, &plan).unwrap().seeded(seed);
            assert!(runtime.run(), "{}", runtime.snapshot());
            let expected: Vec<u64> = (0..60).filter(|n| *n != 50).collect();
            assert_eq!(taken(&seen), expected, "batch {batch}, {instances} instances, {seed}");
            let c = counts(&runtime, "work");
            assert_eq!((c.handled, c.failed), (59, 1));
        }
    }
}

/// Counts its events, and panics on some.
#[derive(Clone)]
struct Counting(u64);
impl Stage for Counting {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        self.0 += 1;
        assert!(*n != 3, "three");
        out.send(self.0);
        Ok(())
    }
}

#[test]
fn state_is_kept_after_a_panic_or_made_anew_as_the_plan_says() {
    for (on_panic, expected) in
        [(OnPanic::Keep, [1, 2, 3, 5, 6]), (OnPanic::Reset, [1, 2, 3, 1, 2])]
    {
        let app = App::new("state");
        let seen = line(&app, 0..6, Counting(0));
        let plan = Plan::new().stage("work", |s| s.on_panic(on_panic));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        assert!(runtime.run());
        assert_eq!(taken(&seen), expected, "{on_panic:?}");
    }
}

/// Sends as many events as its event says.
#[derive(Clone)]
struct Burst;
impl Stage for Burst {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        (0..*n).for_each(|_| out.send(*n));
        Ok(())
    }
}

#[test]
fn an_event_that_sends_more_than_emit_max_fails_and_takes_no_memory() {
    for ordered in [false, true] {
        let app = App::new("flood");
        let (seen, see) = collector();
        let bursts = app.source("bursts", || [3, 10_000_000, 5, 2_000, 1_000].into_iter());
        let work = app.stage("work", Burst);
        let work = if ordered { work.ordered() } else { work };
        let sink = app.sink("sink", see);
        app.connect(bursts, work);
        app.connect(work, sink);
        let mut runtime = TestRuntime::new(app, &Plan::new().every(|s| s.emit_max(1_000))).unwrap();
        assert!(runtime.run(), "{}", runtime.snapshot());
        let expected: Vec<u64> =
            [3, 5, 1_000].into_iter().flat_map(|n| std::iter::repeat_n(n, n as usize)).collect();
        assert_eq!(taken(&seen), expected);
        let c = counts(&runtime, "work");
        assert_eq!((c.handled, c.failed, c.emitted), (3, 2, 1_008));
        let failures = runtime.control().failures("work").unwrap();
        assert_eq!(failures[0].reason, Reason::Flood(1_000));
        assert!(failures[0].replayable);
    }
}

#[test]
fn a_flood_in_an_ordered_stage_leaves_the_others_in_order() {
    // On threads: while one visit meets the flood, others take what comes after.
    let flood = |n: u64| n % 9 == 4;
    let app = App::new("ordered-flood");
    let (seen, see) = collector();
    let bursts =
        app.source("bursts", move || (1..=900u64).map(move |n| if flood(n) { 20_000 } else { n }));
    let work = app.stage("work", Burst).ordered();
    let sink = app.sink("sink", see);
    app.connect(bursts, work);
    app.connect(work, sink);
    let plan = Plan::new().threads(2).stage("work", |s| s.instances(3).batch(5).emit_max(1_000));
    let summary = run(app, &plan);
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert_eq!(stage(&summary.snapshot, "work").counts.failed, 100);
    let mut seen = taken(&seen);
    seen.dedup();
    assert!(seen.into_iter().eq((1..=900).filter(|n| !flood(*n))), "out of order");
}

#[test]
fn a_stage_tried_by_itself_reports_its_failures() {
    let mut tester = StageTester::new(picky(|n| n == 1, |n| n == 2));
    tester.send(0).unwrap();
    assert_eq!(tester.send(1), Err(Reason::Error("not 1".to_owned())));
    assert!(matches!(tester.send(2), Err(Reason::Panic(message, _)) if message == "no 2"));
    tester.send(3).unwrap();
    assert_eq!(tester.out.drain().collect::<Vec<_>>(), [0, 3]);
}

#[test]
fn a_handler_that_panics_once_in_a_hundred_costs_those_events_only_at_full_speed() {
    let events: u64 = if cfg!(debug_assertions) { 4_000_000 } else { 10_000_000 };
    let app = App::new("hundredth");
    let numbers = app.source("numbers", move || 0..events);
    let work = app.stage("work", picky(|_| false, |n| n % 100 == 7));
    let sum = Arc::new(AtomicU64::new(0));
    let sink = app.sink("sink", {
        let sum = sum.clone();
        move |n: u64| {
            sum.fetch_add(n, Relaxed);
        }
    });
    app.connect(numbers, work);
    app.connect(work, sink);
    let summary = run(app, &Plan::new().threads(2));
    assert_eq!(summary.ended, Ended::Complete);
    assert!(summary.snapshot.adds_up(), "{summary}");
    let work = stage(&summary.snapshot, "work");
    assert_eq!((work.counts.failed, work.counts.handled), (events / 100, events / 100 * 99));
    assert_eq!(stage(&summary.snapshot, "sink").counts.handled, events / 100 * 99);
    assert_eq!(work.failures_kept, 1_000);
    let failed: u64 = (0..events / 100).map(|hundred| hundred * 100 + 7).sum();
    assert_eq!(sum.load(Relaxed), events * (events - 1) / 2 - failed);
}

#[test]
fn a_summary_says_what_failed_and_why() {
    let app = App::new("why");
    let numbers = app.source("numbers", || 0..10_u64);
    let check = app.try_map("check", |n: u64| match n {
        3 | 4 => Err(Error::msg("too small")),
        5..10 => Err(Error::msg(format!("{n} is too large"))),
        n => Ok(n),
    });
    app.connect(numbers, check);
    app.connect(check, app.sink("end", |_: u64| {}));
    let summary = run(app, &Plan::new().stage("check", |check| check.tries(2)));
    let [failures] = &summary.failures[..] else { panic!("{:?}", summary.failures) };
    assert_eq!((failures.failed, failures.retried, failures.reasons.len()), (7, 7, 6));
    assert_eq!(failures.reasons[0], (Reason::Error("too small".to_owned()), 2));
    let shown = summary.to_string();
    let lines = "failed: 7 events of `check`, after 7 further tries\n  2 × too small\n  \
                 1 × 5 is too large\n  1 × 6 is too large\n  and 3 other reasons\n";
    assert!(shown.contains(lines), "{shown}");
}

#[test]
fn a_permanent_error_is_not_tried_again_and_one_that_says_how_long_is_waited_for() {
    let app = App::new("advised");
    let numbers = app.source("numbers", || 0..3_u64);
    let tried = Arc::new(Mutex::new(Vec::new()));
    let into = tried.clone();
    let work = app.stage("work", Advised(into)).stateful();
    app.connect(numbers, work);
    let retry = Retry::new(3, 10 * MS);
    let mut runtime =
        TestRuntime::new(app, &Plan::new().stage("work", |s| s.retry(retry))).unwrap();
    assert!(runtime.run());
    let at = |(n, time): (u64, Time)| (n, time.as_nanos() / 1_000_000);
    let tried: Vec<_> = taken(&tried).into_iter().map(at).collect();
    let [(0, 0), (1, 0), (1, 700), (1, 1_400), (2, first), (2, second), (2, third)] = tried[..]
    else {
        panic!("{tried:?}")
    };
    assert_eq!(first, 1_400);
    assert!((5..=10).contains(&(second - first)) && (10..=20).contains(&(third - second)));
    let c = counts(&runtime, "work");
    assert_eq!((c.failed, c.retried), (3, 4));
}

/// Fails for good at 0, says how long to wait at 1, and only fails at 2.
#[derive(Clone)]
struct Advised(Arc<Mutex<Vec<(u64, Time)>>>);
impl Stage for Advised {
    type In = u64;
    type Ports = ();
    fn handle(&mut self, n: Ev<'_, u64>, (): &mut (), cx: &Cx) -> Result {
        self.0.lock().unwrap().push((*n, cx.now()));
        Err(match *n {
            0 => Error::permanent(Error::msg("never")),
            1 => Error::retry_after(Error::msg("busy"), 700 * MS),
            _ => Error::msg("again"),
        })
    }
}
