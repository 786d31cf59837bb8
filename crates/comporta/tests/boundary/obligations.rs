//! What is owed for an event travels with it: into chunks that it shares with others, through every kind
//! of stage, and with what a window, a batch or a handler of one's own makes of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::windows::{self, Window};
use comporta::{
    App, Choice, Cx, Demand, Error, Ev, Held, Obligation, OnPanic, Out, Plan, Port, Ports, Pull,
    Result, Retry, Settled, Source, Stage, batched,
};

use crate::bounded::{stage, watched};

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
            out.low.send(*n)
        } else {
            out.high.send(*n)
        }
        Ok(())
    }
}

/// Builds the way of the events to the stage that fails some.
type Way = fn(&App, Port<u64>);

const WAYS: [(&str, Way); 8] = [
    ("directly", |app, numbers| app.connect(numbers, app.sink("picky", picky))),
    ("after a map", |app, numbers| {
        let map = app.map("map", |n: u64| n);
        app.connect(numbers, map);
        app.connect(map, app.sink("picky", picky));
    }),
    ("in place", |app, numbers| {
        let pass = app.map_in_place("picky", |n: &mut u64| picky(*n));
        app.connect(numbers, pass);
        app.connect(pass, app.sink("sink", |_: u64| ()));
    }),
    ("in place before it", |app, numbers| {
        let pass = app.map_in_place("pass", |_: &mut u64| ());
        app.connect(numbers, pass);
        app.connect(pass, app.sink("picky", picky));
    }),
    ("through an ordered stage", |app, numbers| {
        let pass = app.map("map", |n: u64| n).ordered();
        app.connect(numbers, pass);
        app.connect(pass, app.sink("picky", picky));
    }),
    ("of an ordered stage", |app, numbers| {
        let pass = app.process("picky", |n: u64, out: &mut Out<u64>| {
            out.send(n);
            picky(n)
        });
        app.connect(numbers, pass.ordered());
        app.connect(pass, app.sink("sink", |_: u64| ()));
    }),
    ("by two ports into one queue", |app, numbers| {
        let two = app.stage("two", Copies);
        let picky = app.sink("picky", picky);
        app.connect(numbers, two);
        app.connect(two.low, picky);
        app.connect(two.high, picky);
    }),
    ("by key", |app, numbers| {
        let map = app.map("map", |n: u64| n);
        let all = ["a", "b", "c"].map(|name| app.sink(name, picky));
        app.connect(numbers, map);
        app.by_key(map, |n: &u64| *n, all);
    }),
];

#[test]
fn events_of_many_groups_share_visits_and_each_has_its_own_fate() {
    for (what, way) in WAYS {
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

#[test]
fn a_gathered_chunk_of_many_groups_is_one_visit() {
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

/// Sliding windows of three, two before it: which the event 2 is in.
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
        let failed: Vec<_> = fates(&reported).into_iter().map(|(_, failed, ..)| failed).collect();
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
        // The source does not end, and so neither do the windows.
        let (sender, never) = app.input::<u64>("never");
        app.connect(numbers, triples);
        app.connect(never, triples);
        app.connect(triples, app.sink("sink", |_: Window<u64>| ()));
        let running = app.start(&Plan::new().threads(2)).unwrap();
        crate::bounded::until("all are gathered", || {
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
        let failed: Vec<_> = fates(&reported).into_iter().map(|(_, failed, ..)| failed).collect();
        assert_eq!((failed[0], failed[1], failed[6], failed[7]), (0, 0, 0, 0), "{failed:?}");
        assert!(failed[3] == 1 && failed[4] > 0 && failed[5] > 0, "{failed:?}");
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
        let failed: Vec<_> = fates(&reported).into_iter().map(|(_, failed, ..)| failed).collect();
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
            (counts.handled, counts.shed_at_door() + counts.shed_later()),
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
