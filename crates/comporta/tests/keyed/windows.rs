//! Keyed windows against a plain computation, on random events, shapes, threads and instances.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::{TestRuntime, record};
use comporta::windows::{self, Count, Windowed, Windows};
use comporta::{App, Demand, Out, Plan, Pull, Settled, Source, StartError, Time};
use proptest::prelude::*;

use crate::bounded::run;

const NS: Duration = Duration::from_nanos(1);

/// A key, a time, a value.
type Reading = (u8, u64, u64);
/// Count, sum, least, greatest.
type Figures = (u64, u64, u64, u64);
/// By key and end: the start, and the figures.
type Results = BTreeMap<(u8, u64), (u64, Figures)>;

type Shared<T> = Arc<Mutex<T>>;

#[derive(Clone, Copy, Debug)]
enum Shape {
    Sliding(u64, u64),
    Session(u64),
}

impl Shape {
    fn windows(self) -> Windows {
        match self {
            Shape::Sliding(size, step) => Windows::sliding(size as u32 * NS, step as u32 * NS),
            Shape::Session(gap) => Windows::session(gap as u32 * NS),
        }
    }
}

fn figures(values: &[u64]) -> Figures {
    let (least, greatest) = (values.iter().min().unwrap(), values.iter().max().unwrap());
    (values.len() as u64, values.iter().sum(), *least, *greatest)
}

/// Every window from its definition, of the whole stream at once.
fn plain(shape: Shape, readings: &[Reading]) -> Results {
    let mut by_key: BTreeMap<u8, Vec<(u64, u64)>> = BTreeMap::new();
    for (key, time, value) in readings {
        by_key.entry(*key).or_default().push((*time, *value));
    }
    let mut results = Results::new();
    for (key, mut own) in by_key {
        own.sort_unstable();
        match shape {
            Shape::Sliding(size, step) => {
                let last = own.last().unwrap().0 as i64;
                let (size, step) = (size as i64, step as i64);
                let mut start = -((size / step) * step);
                while start <= last {
                    let inside = |time: i64| start <= time && time < start + size;
                    let values: Vec<u64> =
                        own.iter().filter(|(t, _)| inside(*t as i64)).map(|(_, v)| *v).collect();
                    if !values.is_empty() {
                        let of = (start.max(0) as u64, figures(&values));
                        results.insert((key, (start + size) as u64), of);
                    }
                    start += step;
                }
            }
            Shape::Session(gap) => {
                for session in own.chunk_by(|a, b| b.0 - a.0 < gap) {
                    let values: Vec<u64> = session.iter().map(|(_, value)| *value).collect();
                    let end = session.last().unwrap().0 + gap;
                    results.insert((key, end), (session[0].0, figures(&values)));
                }
            }
        }
    }
    results
}

/// Of readings in the order of their arrival, those that find a watermark at which all their windows are over.
fn split_late(shape: Shape, lateness: u64, readings: &[Reading]) -> (Vec<Reading>, Vec<Reading>) {
    let Shape::Sliding(size, step) = shape else {
        unreachable!("sessions depend on what came before")
    };
    let mut greatest = None;
    readings.iter().partition(|(_, time, _)| {
        let watermark = greatest.map_or(0, |greatest: u64| greatest.saturating_sub(lateness));
        greatest = greatest.max(Some(*time));
        time / step * step + size > watermark
    })
}

fn app(
    shape: Shape,
    lateness: u64,
    readings: Vec<Reading>,
) -> (App, Shared<Results>, Shared<Vec<Reading>>) {
    let (results, late) = (Arc::new(Mutex::new(Results::new())), Arc::new(Mutex::new(Vec::new())));
    let (into, late_into) = (results.clone(), late.clone());
    let app = App::new("windows");
    let source = app.source("readings", move || readings.into_iter());
    let window = app.window(
        "window",
        |reading: &Reading| reading.0,
        |reading: &Reading| Time::from_nanos(reading.1),
        shape.windows().lateness(lateness as u32 * NS),
        (
            Count,
            windows::sum(|reading: &Reading| reading.2),
            windows::min(|reading: &Reading| reading.2),
            windows::max(|reading: &Reading| reading.2),
        ),
    );
    let keep = app.sink("keep", move |windowed: Windowed<u8, Figures>| {
        let at = (windowed.key, windowed.end.as_nanos());
        let of = (windowed.start.as_nanos(), windowed.value);
        assert!(into.lock().unwrap().insert(at, of).is_none(), "{windowed:?} twice");
        assert!(!windowed.early);
    });
    let keep_late =
        app.sink("late", move |reading: Reading| late_into.lock().unwrap().push(reading));
    app.connect(source, window);
    app.connect(window.windows, keep);
    app.connect(window.late, keep_late);
    (app, results, late)
}

fn shapes() -> impl Strategy<Value = Shape> {
    let sliding = (1_u64..40, 1_u64..40).prop_map(|(a, b)| Shape::Sliding(a.max(b), a.min(b)));
    prop_oneof![
        (1_u64..40).prop_map(|size| Shape::Sliding(size, size)),
        sliding,
        (1_u64..40).prop_map(Shape::Session),
    ]
}

/// Readings whose times go back by less than `lateness`, in the order of their arrival.
fn readings(lateness: u64) -> impl Strategy<Value = Vec<Reading>> {
    let one = (0_u8..4, 0_u64..20, 0..lateness.max(1), 0_u64..100);
    prop::collection::vec(one, 0..300).prop_map(move |steps| {
        let mut now = 0;
        let of = |(key, on, back, value): (u8, u64, u64, u64)| {
            now += on;
            (key, now.saturating_sub(back), value)
        };
        steps.into_iter().map(of).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn results_are_exact_under_any_plan_if_no_event_is_late(
        (shape, lateness, readings) in (shapes(), 0_u64..50)
            .prop_flat_map(|(shape, late)| (Just(shape), Just(late), readings(late))),
        threads in 1_usize..=4,
        instances in 1_usize..=4,
        capacity in prop_oneof![Just(1_usize), Just(7), Just(1_024)],
    ) {
        let (app, results, late) = app(shape, lateness, readings.clone());
        let plan = Plan::new().threads(threads);
        let plan = plan.stage("window", |stage| stage.instances(instances).capacity(capacity));
        let summary = run(app, &plan);
        prop_assert_eq!(&*results.lock().unwrap(), &plain(shape, &readings), "{:?}", shape);
        prop_assert!(late.lock().unwrap().is_empty());
        prop_assert!(summary.problems.is_empty(), "{:?}", summary.problems);
    }

    #[test]
    fn late_events_leave_by_their_port_and_the_rest_is_exact(
        (a, b) in (1_u64..40, 1_u64..40),
        lateness in 0_u64..20,
        readings in readings(60),
        threads in 1_usize..=3,
    ) {
        let shape = Shape::Sliding(a.max(b), a.min(b));
        let (app, results, late) = app(shape, lateness, readings.clone());
        let plan = Plan::new().threads(threads);
        let _ = run(app, &plan.stage("window", |stage| stage.instances(threads)));
        let (kept, too_late) = split_late(shape, lateness, &readings);
        let mut seen = late.lock().unwrap().clone();
        let mut wanted = too_late;
        seen.sort_unstable();
        wanted.sort_unstable();
        prop_assert_eq!(seen, wanted);
        // One that is late for some of its windows counts in the others: compare counts over whole windows only where
        // windows do not overlap.
        if a == b {
            prop_assert_eq!(&*results.lock().unwrap(), &plain(shape, &kept));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// The second stage allows no lateness: the first says when its results are complete, however far apart its keys are.
    #[test]
    fn windows_of_windows_are_exact(
        (a, b) in (1_u64..40, 1_u64..40),
        (lateness, readings) in (0_u64..50).prop_flat_map(|late| (Just(late), readings(late))),
        threads in 1_usize..=4,
        capacity in prop_oneof![Just(1_usize), Just(16), Just(1_024)],
    ) {
        let (size, step) = (a.max(b), a.min(b));
        let greatest = Arc::new(Mutex::new(BTreeMap::new()));
        let (into, given) = (greatest.clone(), readings.clone());
        let app = App::new("hottest");
        let source = app.source("readings", move || given.into_iter());
        let count = app.window(
            "count",
            |reading: &Reading| reading.0,
            |reading: &Reading| Time::from_nanos(reading.1),
            Windows::sliding(size as u32 * NS, step as u32 * NS).lateness(lateness as u32 * NS),
            Count,
        );
        let hottest = app.window(
            "hottest",
            |count: &Windowed<u8, u64>| count.end,
            Windowed::time,
            Windows::tumbling(step as u32 * NS),
            windows::max(|count: &Windowed<u8, u64>| (count.value, count.key)),
        );
        let keep = app.sink("keep", move |hot: Windowed<Time, (u64, u8)>| {
            let before = into.lock().unwrap().insert(hot.key.as_nanos(), hot.value);
            assert!(before.is_none(), "{hot:?} twice");
        });
        app.connect(source, count);
        app.connect(count.windows, hottest);
        app.connect(hottest.windows, keep);
        let every = Plan::new().threads(threads).every(|stage| stage.capacity(capacity));
        let plan = every.stage("count", |stage| stage.instances(threads));
        let summary = run(app, &plan.stage("hottest", |stage| stage.instances(threads)));
        let late = summary.snapshot.stage("hottest").unwrap().event_time.unwrap().late;
        prop_assert_eq!(late, 0);
        let mut wanted: BTreeMap<u64, (u64, u8)> = BTreeMap::new();
        for ((key, end), (_, (n, ..))) in plain(Shape::Sliding(size, step), &readings) {
            let best = wanted.entry(end).or_default();
            *best = (*best).max((n, key));
        }
        prop_assert_eq!(&*greatest.lock().unwrap(), &wanted);
    }
}

fn second(n: u32) -> Duration {
    n * Duration::from_secs(1)
}

#[test]
fn windows_on_the_clock_are_sent_when_the_clock_has_come_to_their_end() {
    let app = App::new("clock");
    let (sender, events) = app.input::<u8>("events");
    let windows = Windows::sliding(second(10), second(5));
    let count = app.window_on_clock("count", |key: &u8| *key, windows, Count);
    app.connect(events, count);
    app.connect(count.windows, app.sink("end", |_: Windowed<u8, u64>| ()));
    let sent = record(&app, count.windows);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    runtime.advance(second(2));
    sender.send(1).unwrap();
    runtime.advance(second(5)); // 7
    sender.send(1).unwrap();
    sender.send(2).unwrap();
    let seen = || -> Vec<(u8, u64, u64)> {
        let each = |sent: Windowed<u8, u64>| (sent.key, sent.end.as_millis() / 1_000, sent.value);
        sent.take().into_iter().map(each).collect()
    };
    assert_eq!(seen(), [(1, 5, 1)]);
    runtime.advance(second(4)); // 11
    assert_eq!(seen(), [(1, 10, 2), (2, 10, 1)]);
    runtime.advance(second(100));
    assert_eq!(seen(), [(1, 15, 1), (2, 15, 1)]);
    sender.send(3).unwrap();
    drop(sender);
    assert!(runtime.run());
    assert_eq!(seen(), [(3, 115, 1), (3, 120, 1)]); // what is open at the end is sent then
}

#[test]
fn early_results_come_while_a_window_is_open_and_only_if_it_changed() {
    let app = App::new("early");
    let (sender, events) = app.input::<(u8, u64)>("events");
    let count = app.window(
        "count",
        |event: &(u8, u64)| event.0,
        |event: &(u8, u64)| Time::from_millis(1_000 * event.1),
        Windows::tumbling(second(60)).early(second(1)).idle(second(5)),
        Count,
    );
    app.connect(events, count);
    app.connect(count.windows, app.sink("end", |_: Windowed<u8, u64>| ()));
    let sent = record(&app, count.windows);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    let seen = || -> Vec<(u64, bool)> {
        sent.take().into_iter().map(|sent| (sent.value, sent.early)).collect()
    };
    sender.send((1, 58)).unwrap();
    sender.send((1, 59)).unwrap();
    runtime.advance(second(3));
    assert_eq!(seen(), [(2, true)]);
    sender.send((1, 59)).unwrap();
    runtime.advance(second(1));
    assert_eq!(seen(), [(3, true)]);
    runtime.advance(second(5)); // idle since 8, so at 59; a second later at 60
    assert_eq!(seen(), [(3, false)]);
    runtime.advance(second(100));
    assert_eq!(seen(), []);
}

/// Sends one reading a pull, and notes when it is settled.
struct Acked {
    left: Vec<Reading>,
    settled: Arc<Mutex<u64>>,
}

impl Source for Acked {
    type Item = Reading;
    const ACKNOWLEDGED: bool = true;

    fn pull(&mut self, out: &mut Out<Reading>, _: Demand) -> comporta::Result<Pull> {
        let Some(reading) = self.left.pop() else { return Ok(Pull::After(second(3_600))) };
        out.send(reading);
        Ok(Pull::More)
    }

    fn settled(&mut self, settled: Settled) {
        assert!(settled.is_clean(), "{settled:?}");
        *self.settled.lock().unwrap() += 1;
    }
}

#[test]
fn a_source_is_told_of_an_event_when_the_last_window_that_it_is_in_has_been_handled() {
    let told = Arc::new(Mutex::new(0));
    let source =
        Acked { left: vec![(1, 25, 1), (1, 12, 1), (1, 11, 1), (1, 3, 1)], settled: told.clone() };
    let app = App::new("acked");
    let readings = app.source("readings", move || source);
    let count = app.window(
        "count",
        |reading: &Reading| reading.0,
        |reading: &Reading| Time::from_nanos(reading.1),
        Windows::sliding(10 * NS, 5 * NS),
        Count,
    );
    let end = app.sink("end", |_: Windowed<u8, u64>| ());
    app.connect(readings, count);
    app.connect(count.windows, end);
    let sent = record(&app, count.windows);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    runtime.hold("end");
    runtime.run_until_idle();
    let windows = |sent: Windowed<u8, u64>| (sent.end.as_nanos(), sent.value);
    let seen: Vec<_> = sent.take().into_iter().map(windows).collect();
    assert_eq!(seen, [(5, 1), (10, 1), (15, 2), (20, 2)]);
    assert_eq!(*told.lock().unwrap(), 0); // sent, and not handled
    runtime.resume("end");
    runtime.run_until_idle();
    assert_eq!(*told.lock().unwrap(), 3); // 25 is in windows that are open
    runtime.close();
    assert!(runtime.run());
    assert_eq!(*told.lock().unwrap(), 4);
}

#[test]
fn a_key_that_expires_sends_its_windows_and_a_stop_cancels_them() {
    let app = App::new("expires");
    let (sender, events) = app.input::<u8>("events");
    let windows = Windows::tumbling(second(3_600));
    let count = app.window_on_clock("count", |key: &u8| *key, windows, Count);
    app.connect(events, count);
    app.connect(count.windows, app.sink("end", |_: Windowed<u8, u64>| ()));
    let sent = record(&app, count.windows);
    let plan = Plan::new().stage("count", |count| count.idle(second(60)));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    sender.send(1).unwrap();
    runtime.advance(second(59));
    assert!(sent.take().is_empty());
    runtime.advance(second(2));
    assert_eq!(sent.take().len(), 1);
    sender.send(1).unwrap();
    runtime.run_until_idle();
    drop(runtime); // stopped
    assert!(sent.take().is_empty());
}

/// Such a mistake is found before anything runs, as every other of the graph is.
#[test]
fn windows_that_make_no_sense_are_a_fault_of_the_graph() {
    let secs = Duration::from_secs;
    let faults = [
        (Windows::tumbling(Duration::ZERO), "a window of 0 ns holds nothing: use at least 1"),
        (
            Windows::sliding(secs(1), secs(5)),
            "a step of 5s is beyond the window of 1s: what lies between two windows would be lost",
        ),
    ];
    for (windows, why) in faults {
        let app = App::new("senseless");
        let numbers = app.source("numbers", || 0..3_u64);
        let window =
            app.window("window", |_: &u64| (), |n: &u64| Time::from_nanos(*n), windows, Count);
        app.connect(numbers, window);
        app.connect(window.windows, app.sink("sink", |_: Windowed<(), u64>| ()));
        let Err(StartError::Graph(found)) = app.check() else { panic!("{windows:?} are accepted") };
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, [format!("`window` cannot start: {why}")]);
    }
}
