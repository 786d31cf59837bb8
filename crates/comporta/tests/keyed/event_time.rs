//! Event time: watermarks, event timers, late events, inputs that are idle or have ended.

use std::time::Duration;

use comporta::testing::{KeyedTester, Recorder, TestRuntime, record};
use comporta::{App, Error, Ev, EventTime, KeyedCx, KeyedStage, Out, Plan, Result, Sender, Time};

use crate::bounded::run;

const MS: Duration = Duration::from_millis(1);

/// What the stage tells of itself.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum Told {
    /// An event of this time, and whether it was late.
    Event(u64, u64, bool),
    /// A timer of this key and time.
    Timer(u64, u64),
    /// The state of this key at the end.
    Finish(u64),
}
use Told::{Event, Finish, Timer};

/// Sets a timer for the end of the ten milliseconds that an event belongs to. Events are a key and a time.
#[derive(Clone)]
struct Tens(EventTime);

impl KeyedStage for Tens {
    type In = (u64, u64);
    type Key = u64;
    type State = u64;
    type Ports = Out<Told>;

    fn key(&self, event: &(u64, u64)) -> u64 {
        event.0
    }

    fn event_time(&self) -> Option<EventTime> {
        Some(self.0)
    }

    fn time(&self, event: &(u64, u64)) -> Option<Time> {
        Some(Time::from_millis(event.1))
    }

    fn handle(
        &mut self,
        events: &mut u64,
        event: Ev<'_, (u64, u64)>,
        out: &mut Out<Told>,
        cx: &KeyedCx<'_, u64>,
    ) -> Result {
        *events += 1;
        let (key, time) = *event;
        out.send(Event(key, time, cx.is_late()));
        if !cx.is_late() {
            cx.set_event_timer(Time::from_millis(time / 10 * 10 + 10));
        }
        Ok(())
    }

    fn event_timer(
        &mut self,
        _: &mut u64,
        at: Time,
        out: &mut Out<Told>,
        cx: &KeyedCx<'_, u64>,
    ) -> Result {
        assert!(at <= cx.watermark(), "before its time");
        out.send(Timer(*cx.key(), at.as_millis()));
        if at == Time::from_millis(670) {
            return Err(Error::msg("a timer that fails"));
        }
        if at == Time::from_millis(990) {
            cx.set_event_timer(at + 10 * MS); // for ever, if it fired after the end too
        }
        Ok(())
    }

    fn finish(&mut self, _: u64, out: &mut Out<Told>, cx: &KeyedCx<'_, u64>) -> Result {
        out.send(Finish(*cx.key()));
        Ok(())
    }
}

type Input = Sender<(u64, u64)>;

fn start(time: EventTime) -> (TestRuntime, Input, Input, Recorder<Told>) {
    let app = App::new("event-time");
    let (one, first) = app.input::<(u64, u64)>("one");
    let (two, second) = app.input::<(u64, u64)>("two");
    let pass = app.map("pass", |event: (u64, u64)| event);
    let tens = app.stage("tens", Tens(time));
    app.connect(first, tens);
    app.connect(second, pass);
    app.connect(pass, tens);
    app.connect(tens, app.sink("end", |_: Told| ()));
    let told = record(&app, tens);
    (TestRuntime::new(app, &Plan::new()).unwrap(), one, two, told)
}

#[test]
fn the_slowest_input_holds_the_watermark_until_it_ends() {
    let (mut runtime, one, two, told) = start(EventTime::new());
    one.send((1, 5)).unwrap();
    one.send((1, 100)).unwrap();
    two.send((2, 9)).unwrap();
    runtime.run_until_idle();
    assert_eq!(told.take(), [Event(1, 5, false), Event(1, 100, false), Event(2, 9, false)]);
    two.send((2, 11)).unwrap();
    runtime.run_until_idle();
    assert_eq!(told.take()[1..], [Timer(1, 10), Timer(2, 10)]);
    let event_time = runtime.snapshot().stage("tens").unwrap().event_time.unwrap();
    assert_eq!((event_time.watermark, event_time.late), (Time::from_millis(11), 0));
    drop(two);
    runtime.run_until_idle();
    assert_eq!(told.take(), [Timer(2, 20)]);
    drop(one);
    assert!(runtime.run());
    let mut rest = told.take();
    rest.sort_by_key(|told| format!("{told:?}"));
    assert_eq!(rest, [Finish(1), Finish(2), Timer(1, 110)]);
}

#[test]
fn events_that_wait_are_handled_before_the_timers_that_came_after_them() {
    // All of it stands in the queue before the first visit.
    let (mut runtime, one, two, told) = start(EventTime::new().lateness(5 * MS));
    drop(two);
    runtime.run_until_idle();
    for event in [(1, 3), (1, 12), (2, 14), (1, 8), (1, 15), (1, 9), (1, 2), (2, 100), (1, 101)] {
        one.send(event).unwrap();
    }
    drop(one);
    assert!(runtime.run());
    let of_one = |told: &Told| matches!(told, Event(1, ..) | Timer(1, _) | Finish(1));
    let one: Vec<Told> = told.take().into_iter().filter(of_one).collect();
    assert_eq!(
        one,
        [
            Event(1, 3, false),
            Event(1, 12, false),
            Event(1, 8, true), // behind 14 by 6
            Event(1, 15, false),
            Timer(1, 10), // which 15 brought about
            Event(1, 9, true),
            Event(1, 2, true),
            Timer(1, 20), // which key 2 brought about
            Event(1, 101, false),
            Timer(1, 110),
            Finish(1),
        ]
    );
    assert_eq!(runtime.snapshot().stage("tens").unwrap().event_time.unwrap().late, 3);
}

#[test]
fn idle_inputs_hold_nothing_back_and_the_last_timer_waits_for_no_event() {
    let (mut runtime, one, _two, told) = start(EventTime::new().idle(50 * MS).lateness(2 * MS));
    one.send((1, 5)).unwrap();
    runtime.advance(49 * MS);
    assert_eq!(told.take(), [Event(1, 5, false)]);
    runtime.advance(MS); // all are idle: at 3, and on with the clock
    runtime.advance(6 * MS);
    assert_eq!(told.take(), []);
    runtime.advance(MS);
    assert_eq!(told.take(), [Timer(1, 10)]);
}

#[test]
fn an_event_timer_that_fails_costs_what_it_sent_and_no_event() {
    let (mut runtime, one, two, told) = start(EventTime::new());
    drop(two);
    runtime.run_until_idle();
    for event in [(1, 665), (1, 671), (1, 700)] {
        one.send(event).unwrap();
    }
    runtime.run_until_idle();
    let seen = told.take();
    let events = [Event(1, 665, false), Event(1, 671, false), Event(1, 700, false)];
    assert_eq!(seen[..3], events);
    assert_eq!(seen[3..], [Timer(1, 680)]);
    assert_eq!(runtime.problems(), ["`tens`: a timer failed: a timer that fails"]);
}

#[test]
fn timers_that_set_themselves_again_end_with_the_stream() {
    let app = App::new("ends");
    let events = app.source("events", || [(1_u64, 985_u64)].into_iter());
    let tens = app.stage("tens", Tens(EventTime::new()));
    app.connect(events, tens);
    app.connect(tens, app.sink("end", |_: Told| ()));
    let told = record(&app, tens);
    let _ = run(app, &Plan::new());
    assert_eq!(told.take(), [Event(1, 985, false), Timer(1, 990), Finish(1)]);
}

#[test]
fn many_keys_of_one_instant_all_send_their_window() {
    const KEYS: u64 = 20_000;
    let app = App::new("many");
    let events = app.source("events", || (0..KEYS).map(|key| (key, 1)).chain([(0, 50)]));
    let count = app.window(
        "count",
        |event: &(u64, u64)| event.0,
        |event: &(u64, u64)| Time::from_millis(event.1),
        comporta::windows::Windows::tumbling(10 * MS),
        comporta::windows::Count,
    );
    let sum = app.sink("sum", |_: comporta::windows::Windowed<u64, u64>| ());
    app.connect(events, count);
    app.connect(count.windows, sum);
    let plan = Plan::new().threads(2).stage("count", |count| count.instances(2));
    let summary = run(app, &plan);
    assert_eq!(summary.snapshot.stage("sum").unwrap().counts.handled, KEYS + 1);
}

#[test]
fn a_keyed_stage_is_tested_by_itself() {
    let mut tester = KeyedTester::new(Tens(EventTime::new()));
    tester.send((1, 5)).unwrap();
    tester.send((2, 15)).unwrap();
    tester.advance_watermark(Time::from_millis(12));
    tester.send((1, 7)).unwrap();
    let told: Vec<Told> = tester.out.drain().collect();
    assert_eq!(told, [Event(1, 5, false), Event(2, 15, false), Timer(1, 10), Event(1, 7, true)]);
    assert_eq!(tester.with_state(&1, |state| state.copied()), Some(2));
    assert_eq!(tester.set_state(1, 7), Some(2));
    tester.finish().unwrap();
    assert_eq!(tester.out.drain().count(), 2);
}
