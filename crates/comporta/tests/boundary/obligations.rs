//! What is owed for an event travels with it: into chunks that it shares with others, through every kind
//! of stage, and with what a window, a batch or a handler of one's own makes of it.
//! Long because all of it is told by the same sources, and read by the same few functions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::windows::{self, Window};
use comporta::{
    App, Choice, Cx, Demand, Error, Ev, Held, Obligation, OnPanic, Out, Plan, Port, Ports, Pull,
    Result, Retry, Settled, Source, Stage, batched,
};

use crate::bounded::{ends, stage, until, watched};

const HOUR: Duration = Duration::from_secs(3_600);

type Reported = Arc<Mutex<Vec<Settled>>>;

/// One event a pull, each a group of its own.
struct Acked {
    events: VecDeque<u64>,
    reported: Reported,
}

impl Source for Acked {
    type Item = u64;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u64>, _: Demand) -> Result<Pull> {
        let Some(event) = self.events.pop_front() else { return Ok(Pull::End) };
        out.send(event);
        Ok(Pull::More)
    }
    fn settled(&mut self, settled: Settled) {
        self.reported.lock().unwrap().push(settled);
    }
}

fn acked(app: &App, events: std::ops::Range<u64>) -> (Port<u64>, Reported) {
    let reported = Reported::default();
    let source = Acked { events: events.collect(), reported: reported.clone() };
    (app.source("acked", move || source), reported)
}

/// What each group was told, by its number: failed, shed, cancelled.
fn fates(reported: &Reported) -> Vec<(u64, u64, u64, u64)> {
    let mut all: Vec<_> = reported.lock().unwrap().clone();
    all.sort_unstable_by_key(|settled| settled.group);
    all.iter().map(|told| (told.group, told.failed, told.shed, told.cancelled)).collect()
}

/// How many failures each group was told of, by its number.
fn failures(reported: &Reported) -> Vec<u64> {
    fates(reported).into_iter().map(|(_, failed, ..)| failed).collect()
}

/// Fails every third event, once and for all.
fn picky(n: u64) -> Result {
    if n.is_multiple_of(3) { Err(Error::msg("every third")) } else { Ok(()) }
}

const EVENTS: u64 = 100;

/// Group `n + 1` is that of the event `n`: every third has failed, and no other.
fn every_third_failed(what: &str, reported: &Reported) {
    let expected: Vec<_> =
        (0..EVENTS).map(|n| (n + 1, u64::from(n.is_multiple_of(3)), 0, 0)).collect();
    assert_eq!(fates(reported), expected, "{what}");
}

#[derive(Clone)]
struct Copies;

#[derive(Ports)]
struct Two {
    low: Out<u64>,
    high: Out<u64>,
}

/// Sends each event through one of two ports that lead to one queue.
impl Stage for Copies {
    type In = u64;
    type Ports = Two;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Two, _: &Cx) -> Result {
        if *n < EVENTS / 2 {
            out.low.send(*n);
        } else {
            out.high.send(*n);
        }
        Ok(())
    }
}

/// Builds the way of the events to the stage that fails some.
type Way = fn(&App, Port<u64>);

/// Each with the stages that it ends in.
const WAYS: [(&str, &[&str], Way); 8] = [
    ("directly", &["picky"], |app, numbers| app.connect(numbers, app.sink("picky", picky))),
    ("after a map", &["picky"], |app, numbers| {
        let map = app.map("map", |n: u64| n);
        app.connect(numbers, map);
        app.connect(map, app.sink("picky", picky));
    }),
    ("in place", &["sink"], |app, numbers| {
        let pass = app.map_in_place("picky", |n: &mut u64| picky(*n));
        app.connect(numbers, pass);
        app.connect(pass, app.sink("sink", |_: u64| ()));
    }),
    ("in place before it", &["picky"], |app, numbers| {
        let pass = app.map_in_place("pass", |_: &mut u64| ());
        app.connect(numbers, pass);
        app.connect(pass, app.sink("picky", picky));
    }),
    ("through an ordered stage", &["picky"], |app, numbers| {
        let pass = app.map("map", |n: u64| n).ordered();
        app.connect(numbers, pass);
        app.connect(pass, app.sink("picky", picky));
    }),
    ("of an ordered stage", &["sink"], |app, numbers| {
        let pass = app.process("picky", |n: u64, out: &mut Out<u64>| {
            out.send(n);
            picky(n)
        });
        app.connect(numbers, pass.ordered());
        app.connect(pass, app.sink("sink", |_: u64| ()));
    }),
    ("by two ports into one queue", &["picky"], |app, numbers| {
        let two = app.stage("two", Copies);
        let picky = app.sink("picky", picky);
        app.connect(numbers, two);
        app.connect(two.low, picky);
        app.connect(two.high, picky);
    }),
    ("by key", &["a", "b", "c"], |app, numbers| {
        let map = app.map("map", |n: u64| n);
        let all = ["a", "b", "c"].map(|name| app.sink(name, picky));
        app.connect(numbers, map);
        app.by_key(map, |n: &u64| *n, all);
    }),
];

#[test]
fn events_of_many_groups_share_visits_and_each_has_its_own_fate() {
    for (what, _, way) in WAYS {
        for (instances, tries) in [(1, 1), (2, 1), (1, 3)] {
            watched(what, move || {
                let app = App::new("fates");
                let (numbers, reported) = acked(&app, 0..EVENTS);
                way(&app, numbers);
                let plan = Plan::new().threads(2).every(move |s| {
                    s.instances(instances).retry(Retry::new(tries, Duration::from_micros(1)))
                });
                let mut runtime = TestRuntime::new(app, &plan).unwrap();
                assert!(runtime.run(), "{what}");
                assert!(runtime.snapshot().adds_up(), "{what}");
                every_third_failed(what, &reported);
            });
        }
    }
}

/// However an event goes, and whatever becomes of others of its pull, nothing is reported before what all of
/// them led to has ended.
#[test]
fn a_pull_of_many_events_is_reported_after_the_last_of_them() {
    for (what, last, way) in WAYS {
        for (instances, tries) in [(1, 1), (2, 1), (1, 3), (2, 3)] {
            watched(what, move || {
                let app = App::new("one");
                let reported = Reported::default();
                let source = Once(Some(0..EVENTS), reported.clone());
                way(&app, app.source("numbers", move || source));
                let plan = Plan::new().threads(2).every(move |s| {
                    s.instances(instances).retry(Retry::new(tries, Duration::from_micros(1)))
                });
                let mut runtime = TestRuntime::new(app, &plan).unwrap();
                last.iter().for_each(|name| runtime.hold(name));
                for _ in 0..EVENTS {
                    runtime.run_until_idle();
                    runtime.advance(Duration::from_millis(1));
                }
                assert_eq!(fates(&reported), [], "{what}, {instances} instances, {tries} tries");
                last.iter().for_each(|name| runtime.resume(name));
                assert!(runtime.run(), "{what}");
                let failed = EVENTS.div_ceil(3);
                assert_eq!(fates(&reported), [(1, failed, 0, 0)], "{what}, {instances}, {tries}");
            });
        }
    }
}

#[test]
fn events_of_many_groups_that_wait_together_are_handled_in_few_visits() {
    let app = App::new("shared");
    let (numbers, reported) = acked(&app, 0..EVENTS);
    app.connect(numbers, app.sink("picky", picky));
    let plan = Plan::new().threads(1).stage("picky", |s| s.priority(-1));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("picky");
    runtime.run_until_idle();
    runtime.resume("picky");
    assert!(runtime.run());
    let visits = stage(&runtime.snapshot(), "picky").counts.visits;
    assert!(visits < EVENTS / 3, "{visits} visits for {EVENTS} events, most of them alone");
    every_third_failed("shared", &reported);
}

fn pair_fails(window: Window<u64>) -> Result {
    if window.events.contains(&2) { Err(Error::msg("not this one")) } else { Ok(()) }
}

#[test]
fn an_event_in_an_open_window_is_acknowledged_when_what_its_window_led_to_has_ended() {
    watched("windows", || {
        let app = App::new("windows");
        let (numbers, reported) = acked(&app, 0..5);
        let pairs = app.stage("pairs", windows::by_count(2));
        app.connect(numbers, pairs);
        app.connect(pairs, app.sink("sum", pair_fails));
        let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
        runtime.hold("sum");
        runtime.run_until_idle();
        assert_eq!(fates(&reported), [], "handled by the window, and not beyond");
        runtime.resume("sum");
        assert!(runtime.run());
        let expected = [(1, 0, 0, 0), (2, 0, 0, 0), (3, 1, 0, 0), (4, 1, 0, 0), (5, 0, 0, 0)];
        assert_eq!(fates(&reported), expected);
    });
}

/// Of sliding windows of three events, the one that begins with 2 fails.
fn sliding(what: &'static str, build: fn(&App, Port<u64>) -> Port<Window<u64>>) {
    watched(what, move || {
        let app = App::new("sliding");
        let (numbers, reported) = acked(&app, 0..6);
        let windows = build(&app, numbers);
        let last = |window: Window<u64>| {
            if window.events[0] == 2 { Err(Error::msg("the last that 2 is in")) } else { Ok(()) }
        };
        app.connect(windows, app.sink("last", last));
        let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
        assert!(runtime.run(), "{what}");
        let failed = failures(&reported);
        assert_eq!(failed, [0, 0, 1, 1, 1, 0], "{what}: 2, 3 and 4 are in the window that failed");
    });
}

#[test]
fn an_event_of_several_windows_is_acknowledged_with_what_all_of_them_led_to() {
    sliding("by count", |app, numbers| {
        let windows = app.stage("windows", windows::by_count::<u64>(3).sliding(1));
        app.connect(numbers, windows);
        *windows
    });
    sliding("by time", |app, numbers| {
        let time = |n: &u64| i64::try_from(*n).unwrap();
        let ms = Duration::from_millis;
        let windows = app.stage("windows", windows::by_time(time, ms(3)).sliding(ms(1)));
        app.connect(numbers, windows);
        windows.windows
    });
}

#[test]
fn what_open_windows_held_is_cancelled_by_a_stop() {
    watched("stop", || {
        let app = App::new("stop");
        let (numbers, reported) = acked(&app, 0..5);
        let triples = app.stage("triples", windows::by_count::<u64>(3));
        // The input does not end, and so neither do the windows.
        let (sender, never) = app.input::<u64>("never");
        app.connect(numbers, triples);
        app.connect(never, triples);
        app.connect(triples, app.sink("sink", |_: Window<u64>| ()));
        let running = app.start(&Plan::new().threads(2)).unwrap();
        until("all are gathered", || {
            let snapshot = running.snapshot();
            let sink = stage(&snapshot, "sink").counts.handled;
            (stage(&snapshot, "triples").counts.handled, sink) == (5, 1)
        });
        let _ = running.stop();
        drop(sender);
        let cancelled: Vec<_> = fates(&reported).into_iter().map(|(.., gone)| gone).collect();
        assert_eq!(cancelled, [0, 0, 0, 1, 1]);
    });
}

/// Sends pairs; the pair with 3 makes it panic, with the event before it in hand.
#[derive(Clone, Default)]
struct Pairs(Option<Held<u64>>);

impl Stage for Pairs {
    type In = u64;
    type Ports = Out<u64>;
    const STATEFUL: bool = true;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        assert!(*n != 3, "with an event in hand");
        let held = n.hold();
        match self.0.take() {
            None => self.0 = Some(held),
            Some(first) => {
                let owed = Obligation::all([first.obligation, held.obligation]);
                out.send_for(owed, first.event + held.event);
                if first.event == 4 {
                    return Err(Error::msg("after it was sent"));
                }
            }
        }
        Ok(())
    }
}

#[test]
fn what_a_handler_held_has_failed_if_it_fails() {
    watched("pairs", || {
        let app = App::new("pairs");
        let (numbers, reported) = acked(&app, 0..8);
        let pairs = app.stage("pairs", Pairs::default());
        app.connect(numbers, pairs);
        app.connect(pairs, app.sink("sink", |_: u64| ()));
        let plan = Plan::new().stage("pairs", |s| s.on_panic(OnPanic::Reset));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        assert!(runtime.run());
        // 0 and 1 make a pair; 2 is dropped with the handler that 3 has made panic; of 4 and 5 what was
        // sent is taken back; 6 and 7 make a pair.
        // 5 counts for itself and for what was held of it.
        let failed = failures(&reported);
        assert_eq!(failed, [0, 0, 1, 1, 1, 2, 0, 0]);
    });
}

#[test]
fn each_event_of_a_batch_is_owed_what_became_of_the_batch() {
    watched("batch", || {
        let app = App::new("batch");
        let (numbers, reported) = acked(&app, 0..6);
        let sum = |all: Vec<u64>, out: &mut Out<u64>| {
            out.send(all.iter().sum());
            if all.contains(&1) { Err(Error::msg("this batch")) } else { Ok(()) }
        };
        let sums = app.stage("sums", batched(2, HOUR, sum));
        let sink =
            app.sink("sink", |sum: u64| if sum == 5 { Err(Error::msg("5")) } else { Ok(()) });
        app.connect(numbers, sums);
        app.connect(sums, sink);
        let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
        assert!(runtime.run());
        let failed = failures(&reported);
        assert_eq!(failed, [1, 1, 1, 1, 0, 0]);
    });
}

#[test]
fn events_with_different_deadlines_share_a_visit_and_each_sees_its_own() {
    watched("deadlines", || {
        let app = App::new("deadlines");
        let (sender, numbers) = app.input::<u64>("numbers");
        #[derive(Clone)]
        struct See(Arc<Mutex<Vec<u128>>>);
        impl Stage for See {
            type In = u64;
            type Ports = ();
            fn handle(&mut self, n: Ev<'_, u64>, _: &mut (), cx: &Cx) -> Result {
                let left = cx.deadline().map(|at| at.duration_since(cx.ingress()).as_millis());
                assert_eq!(left, Some(u128::from(*n)));
                self.0.lock().unwrap().extend(left);
                Ok(())
            }
        }
        let seen = Arc::new(Mutex::new(Vec::new()));
        let pass = app.map("pass", |n: u64| n);
        app.connect(numbers, pass);
        app.connect(pass, app.stage("see", See(seen.clone())));
        let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
        for ms in 1..=50 {
            sender.clone().within(Duration::from_millis(ms)).try_send(ms).unwrap();
        }
        sender.close();
        assert!(runtime.run());
        assert_eq!(*seen.lock().unwrap(), (1..=50).collect::<Vec<_>>());
        let visits = stage(&runtime.snapshot(), "see").counts.visits;
        assert!(visits < 20, "{visits} visits for 50 events");
    });
}

#[test]
fn of_events_in_one_chunk_admission_sheds_those_whose_deadline_is_too_near() {
    watched("shed", || {
        let app = App::new("shed");
        let (sender, numbers) = app.input::<u64>("numbers");
        let (pass, work) = (app.map("pass", |n: u64| n), app.sink("work", |_: u64| ()));
        app.connect(numbers, pass);
        app.connect(pass, work);
        let plan = Plan::new().stage("work", |s| s.admission(Choice::new("deadline")));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.hold("pass");
        let near = sender.clone().within(Duration::from_millis(1));
        let far = sender.clone().within(HOUR);
        for n in 0..20 {
            if n % 2 == 0 { &near } else { &far }.try_send(n).unwrap();
        }
        runtime.advance(Duration::from_millis(2));
        runtime.resume("pass");
        sender.close();
        assert!(runtime.run());
        let counts = stage(&runtime.snapshot(), "work").counts;
        assert_eq!(
            (counts.handled, counts.shed_on_entry() + counts.shed_later()),
            (10, 10),
            "{counts:?}"
        );
    });
}

/// A source of one pull: all its events are one group.
struct Once(Option<std::ops::Range<u64>>, Reported);

impl Source for Once {
    type Item = u64;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u64>, _: Demand) -> Result<Pull> {
        self.0.take().into_iter().flatten().for_each(|n| out.send(n));
        Ok(Pull::End)
    }
    fn settled(&mut self, settled: Settled) {
        self.1.lock().unwrap().push(settled);
    }
}

#[test]
fn results_that_wait_for_a_retry_in_an_ordered_stage_are_still_owed() {
    watched("ordered", || {
        let app = App::new("ordered");
        let reported = Reported::default();
        let source = Once(Some(0..4), reported.clone());
        let numbers = app.source("numbers", move || source);
        #[derive(Clone)]
        struct Fails;
        impl Stage for Fails {
            type In = u64;
            type Ports = Out<u64>;
            fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, cx: &Cx) -> Result {
                out.send(*n);
                let fails = *n == 1 || (*n == 2 && cx.attempt() == 1);
                if fails { Err(Error::msg("1 always, 2 at first")) } else { Ok(()) }
            }
        }
        let work = app.stage("work", Fails).ordered();
        app.connect(numbers, work);
        app.connect(work, app.sink("sink", picky)); // 0 and 3
        let retry = Retry::new(2, Duration::from_millis(1));
        let plan = Plan::new().stage("work", |s| s.instances(2).retry(retry));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        assert!(runtime.run());
        assert_eq!(fates(&reported), [(1, 3, 0, 0)], "1, and what came of 0 and 3");
    });
}

/// Holds all, and lets none of it go.
#[derive(Clone, Default)]
struct Hoards(Vec<Held<u64>>);

impl Stage for Hoards {
    type In = u64;
    type Ports = ();
    const STATEFUL: bool = true;
    fn handle(&mut self, n: Ev<'_, u64>, (): &mut (), _: &Cx) -> Result {
        self.0.push(n.hold());
        Ok(())
    }
    fn finish(&mut self, (): &mut (), _: &Cx) -> Result {
        let even = self.0.extract_if(.., |held| held.event.is_multiple_of(2));
        even.for_each(|held| held.obligation.settle());
        Err(Error::msg("the others are not dealt with"))
    }
}

#[test]
fn what_a_handler_never_dealt_with_has_failed() {
    watched("hoards", || {
        let app = App::new("hoards");
        let (numbers, reported) = acked(&app, 0..4);
        app.connect(numbers, app.stage("hoards", Hoards::default()));
        let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
        runtime.run();
        let failed = failures(&reported);
        assert_eq!(failed, [0, 1, 0, 1]);
    });
}

/// Gives as much as it is asked for, and counts the pulls that it has not heard of.
struct Eager {
    left: u64,
    under_way: u64,
    most: Arc<Mutex<u64>>,
}

impl Source for Eager {
    type Item = u64;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u64>, demand: Demand) -> Result<Pull> {
        self.under_way += 1;
        let mut most = self.most.lock().unwrap();
        *most = self.under_way.max(*most);
        for _ in 0..demand.events {
            self.left -= 1;
            out.send(self.left);
            if self.left == 0 {
                return Ok(Pull::End);
            }
        }
        Ok(Pull::More)
    }
    fn settled(&mut self, _: Settled) {
        self.under_way -= 1;
    }
}

#[test]
fn a_source_that_always_waits_for_room_hears_what_has_settled() {
    watched("eager", || {
        let most = Arc::<Mutex<u64>>::default();
        let app = App::new("eager");
        let source = Eager { left: 2_000, under_way: 0, most: most.clone() };
        let numbers = app.source("numbers", move || source);
        app.connect(numbers, app.sink("sink", |_: u64| ()));
        let plan = Plan::new().threads(1).stage("sink", |s| s.capacity(4).batch(1));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        assert!(runtime.run());
        let most = *most.lock().unwrap();
        assert!(most < 20, "{most} pulls had settled, or were under way, and were not reported");
    });
}

#[test]
fn an_event_that_sends_without_end_fails_and_returns() {
    watched("flood", || {
        let app = App::new("flood");
        let numbers = app.source("numbers", || 0..2_u64);
        let flood = app.process("flood", |n: u64, out: &mut Out<u64>| {
            let sent = out.send_all(&mut (n..), 10_000);
            assert_eq!(sent, 10_000);
        });
        app.connect(numbers, flood);
        app.connect(flood, app.sink("sink", |_: u64| ()));
        let plan = Plan::new().stage("flood", |s| s.emit_max(100));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        assert!(runtime.run());
        assert_eq!(stage(&runtime.snapshot(), "flood").counts.failed, 2);
    });
}

/// Gives its one pull once it may.
struct Later(Once, Arc<AtomicBool>);

impl Source for Later {
    type Item = u64;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u64>, demand: Demand) -> Result<Pull> {
        if !self.1.load(SeqCst) {
            return Ok(Pull::After(Duration::from_millis(1)));
        }
        self.0.pull(out, demand)
    }
    fn settled(&mut self, settled: Settled) {
        self.0.settled(settled);
    }
}

/// Where several instances share a stage, and its handler is quick, a visit takes its events one by one:
/// what one of them owes is not that of the next.
#[test]
fn a_failure_in_a_quick_stage_in_place_leaves_the_others_of_its_pull_owed() {
    watched("tray", || {
        const FIRST: u64 = 1_000_000;
        const BEFORE: u64 = 20_000;
        let app = App::new("tray");
        let (reported, may) = (Reported::default(), Arc::<AtomicBool>::default());
        let source = Later(Once(Some(FIRST..FIRST + 100), reported.clone()), may.clone());
        let numbers = app.source("numbers", move || source);
        let before = app.source("before", || 0..BEFORE);
        let fails = |n: u64| if n >= FIRST { Err(Error::msg("late or soon")) } else { Ok(()) };
        let work = app.map_in_place(
            "work",
            move |n: &mut u64| {
                if n.is_multiple_of(10) { fails(*n) } else { Ok(()) }
            },
        );
        app.connect(before, work);
        app.connect(numbers, work);
        app.connect(work, app.sink("sink", fails));
        let plan = Plan::new().threads(2).stage("work", |s| s.instances(2));
        let running = app.start(&plan).unwrap();
        until("its pace is known", || stage(&running.snapshot(), "work").counts.handled == BEFORE);
        may.store(true, SeqCst);
        let summary = ends("tray", running);
        assert_eq!(failures(&reported), [100], "each failed, here or there\n{summary}");
    });
}

#[test]
fn whoever_is_dropped_with_a_running_program_has_been_told() {
    watched("dropped", || {
        let app = App::new("dropped");
        let (numbers, reported) = acked(&app, 0..5);
        let waits = app.sink("waits", |_: u64| Err::<(), _>(Error::msg("later")));
        app.connect(numbers, waits);
        let plan = Plan::new().stage("waits", |s| s.retry(Retry::new(2, HOUR)));
        let running = app.start(&plan).unwrap();
        until("all have come", || stage(&running.snapshot(), "waits").counts.arrived == 5);
        drop(running);
        let expected: Vec<_> = (1..=5).map(|group| (group, 0, 0, 1)).collect();
        assert_eq!(fates(&reported), expected);
    });
}

#[test]
fn what_is_still_held_elsewhere_when_a_program_has_stopped_is_reported_once_as_cancelled() {
    watched("elsewhere", || {
        #[derive(Clone, Default)]
        struct Elsewhere(Arc<Mutex<Vec<Held<u64>>>>);
        impl Stage for Elsewhere {
            type In = u64;
            type Ports = ();
            fn handle(&mut self, n: Ev<'_, u64>, (): &mut (), _: &Cx) -> Result {
                self.0.lock().unwrap().push(n.hold());
                Ok(())
            }
        }
        let app = App::new("elsewhere");
        let (numbers, reported) = acked(&app, 0..5);
        let elsewhere = Elsewhere::default();
        app.connect(numbers, app.stage("elsewhere", elsewhere.clone()));
        let running = app.start(&Plan::new()).unwrap();
        until("all are held", || elsewhere.0.lock().unwrap().len() == 5);
        elsewhere.0.lock().unwrap().pop().unwrap().obligation.settle();
        let _ = running.stop();
        let fates_then = fates(&reported);
        let cancelled: Vec<_> = fates_then.iter().map(|(.., cancelled)| *cancelled).collect();
        assert_eq!(cancelled, [1, 1, 1, 1, 0]);
        elsewhere.0.lock().unwrap().clear();
        assert_eq!(fates(&reported), fates_then, "nothing is reported twice");
    });
}

#[test]
fn an_event_that_closes_a_window_of_others_does_not_answer_for_them() {
    watched("closes", || {
        let app = App::new("closes");
        let (sender, others) = app.input::<u64>("others");
        let (reported, may) = (Reported::default(), Arc::<AtomicBool>::default());
        let source = Later(Once(Some(5_000..5_001), reported.clone()), may.clone());
        let numbers = app.source("numbers", move || source);
        let time = |n: &u64| i64::try_from(*n).unwrap();
        let windows = app.stage("windows", windows::by_time(time, Duration::from_secs(1)));
        let first = |window: Window<u64>| match window.start {
            0 => Err(Error::msg("the first")),
            _ => Ok(()),
        };
        app.connect(others, windows);
        app.connect(numbers, windows);
        app.connect(windows.windows, app.sink("sink", first));
        let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
        (0..3).for_each(|n| sender.try_send(n).unwrap());
        sender.close();
        runtime.run_until_idle();
        may.store(true, SeqCst);
        assert!(runtime.run());
        assert_eq!(stage(&runtime.snapshot(), "sink").counts.failed, 1);
        assert_eq!(failures(&reported), [0], "its own window was handled");
    });
}

#[test]
fn events_with_deadlines_of_their_own_keep_them_when_they_are_replayed() {
    watched("replayed", || {
        let app = App::new("replayed");
        let (sender, numbers) = app.input::<u64>("numbers");
        #[derive(Clone)]
        struct Once(Arc<AtomicBool>, Arc<Mutex<Vec<bool>>>);
        impl Stage for Once {
            type In = u64;
            type Ports = ();
            fn handle(&mut self, _: Ev<'_, u64>, (): &mut (), cx: &Cx) -> Result {
                if !self.0.load(SeqCst) {
                    return Err(Error::msg("not yet"));
                }
                self.1.lock().unwrap().push(cx.deadline().is_some());
                Ok(())
            }
        }
        let (may, seen) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<bool>>>::default());
        app.connect(numbers, app.stage("work", Once(may.clone(), seen.clone())));
        let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
        for ms in 1..=6 {
            sender.clone().within(Duration::from_millis(ms)).try_send(ms).unwrap();
        }
        runtime.run_until_idle();
        may.store(true, SeqCst);
        assert_eq!(runtime.control().replay("work", 10).unwrap(), 6);
        sender.close();
        assert!(runtime.run());
        assert_eq!(*seen.lock().unwrap(), [true; 6]);
    });
}
