//! Timers of keys on the program's clock: when they fire, in which order, and what takes them back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::{Recorder, TestRuntime, record};
use comporta::{App, Error, Ev, KeyedCx, KeyedStage, Out, Plan, Result, Sender, Time};

use crate::bounded::{complete, run};
use crate::lanes::Watch;

/// What an event asks for, of the key it names.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// Timers at these milliseconds.
    Set(Vec<u64>),
    Clear(u64),
    /// As `Set`, and then the call fails.
    SetAndFail(u64),
    /// As `Set`; when it fires it sets the next, so much later.
    Every(u64, u64),
    Forget,
    Nothing,
}

/// Sends the key and the time of each timer that fires.
#[derive(Clone)]
struct Timers;

impl KeyedStage for Timers {
    type In = (u64, Ask);
    type Key = u64;
    type State = Option<u64>;
    type Ports = Out<(u64, Time)>;

    fn key(&self, event: &Self::In) -> u64 {
        event.0
    }

    fn handle(
        &mut self,
        every: &mut Option<u64>,
        event: Ev<'_, Self::In>,
        _: &mut Self::Ports,
        cx: &KeyedCx<'_, u64>,
    ) -> Result {
        match &event.1 {
            Ask::Set(times) => times.iter().for_each(|ms| cx.set_timer(Time::from_millis(*ms))),
            Ask::Clear(ms) => cx.clear_timer(Time::from_millis(*ms)),
            Ask::SetAndFail(ms) => {
                cx.set_timer(Time::from_millis(*ms));
                return Err(Error::msg("in vain"));
            }
            Ask::Every(first, then) => {
                *every = Some(*then);
                cx.set_timer(Time::from_millis(*first));
            }
            Ask::Forget => cx.forget(),
            Ask::Nothing => {}
        }
        Ok(())
    }

    fn timer(
        &mut self,
        every: &mut Option<u64>,
        at: Time,
        out: &mut Self::Ports,
        cx: &KeyedCx<'_, u64>,
    ) -> Result {
        assert!(at <= cx.now(), "before its time");
        out.send((*cx.key(), at));
        if let Some(ms) = every {
            cx.set_timer(at + Duration::from_millis(*ms));
        }
        if at == Time::from_millis(666) {
            return Err(Error::msg("a timer that fails"));
        }
        Ok(())
    }

    fn finish(&mut self, _: Self::State, out: &mut Self::Ports, cx: &KeyedCx<'_, u64>) -> Result {
        out.send((*cx.key(), Time::MAX));
        Ok(())
    }
}

type Fired = Recorder<(u64, Time)>;

fn start(plan: &Plan) -> (TestRuntime, Sender<(u64, Ask)>, Fired) {
    let app = App::new("timers");
    let (sender, events) = app.input::<(u64, Ask)>("events");
    let timers = app.stage("timers", Timers);
    app.connect_local(events, timers);
    app.connect(timers, app.sink("end", |_: (u64, Time)| ()));
    let fired = record(&app, timers);
    (TestRuntime::new(app, plan).unwrap(), sender, fired)
}

fn ms(fired: &Recorder<(u64, Time)>) -> Vec<(u64, u64)> {
    fired.take().into_iter().map(|(key, at)| (key, at.as_millis())).collect()
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn timers_fire_once_each_and_in_the_order_of_their_times() {
    let (mut runtime, sender, fired) = start(&Plan::new());
    sender.send((1, Ask::Set(vec![30, 10, 20, 10]))).unwrap();
    sender.send((2, Ask::Set(vec![15]))).unwrap();
    runtime.advance(millis(9));
    assert_eq!(ms(&fired), []);
    runtime.advance(millis(100));
    assert_eq!(ms(&fired), [(1, 10), (2, 15), (1, 20), (1, 30)]);
    runtime.advance(millis(100));
    assert_eq!(ms(&fired), []);
}

#[test]
fn a_timer_that_is_taken_back_or_set_by_a_call_that_fails_does_not_fire() {
    let (mut runtime, sender, fired) = start(&Plan::new());
    sender.send((1, Ask::Set(vec![10, 20]))).unwrap();
    sender.send((1, Ask::Clear(10))).unwrap();
    sender.send((1, Ask::SetAndFail(15))).unwrap();
    sender.send((2, Ask::Set(vec![10]))).unwrap();
    sender.send((2, Ask::Forget)).unwrap();
    runtime.advance(millis(100));
    assert_eq!(ms(&fired), [(1, 20)]);
}

#[test]
fn a_timer_that_sets_itself_again_goes_on_and_one_that_fails_takes_back_what_it_sent_and_set() {
    let (mut runtime, sender, fired) = start(&Plan::new());
    sender.send((1, Ask::Every(10, 5))).unwrap();
    runtime.advance(millis(22));
    assert_eq!(ms(&fired), [(1, 10), (1, 15), (1, 20)]);
    sender.send((2, Ask::Every(666, 1))).unwrap();
    runtime.advance(millis(1_000));
    assert!(ms(&fired).iter().all(|(key, _)| *key == 1));
    assert_eq!(runtime.problems(), ["`timers`: a timer failed: a timer that fails"]);
}

#[test]
fn timers_that_are_behind_when_they_are_set_fire_at_once() {
    let (mut runtime, sender, fired) = start(&Plan::new());
    runtime.advance(millis(100));
    sender.send((1, Ask::Set((1..=200).collect()))).unwrap();
    runtime.run_until_idle();
    let all: Vec<_> = (1..=100).map(|at| (1, at)).collect(); // more than a visit fires
    assert_eq!(ms(&fired), all);
}

#[test]
fn ten_thousand_keys_fire_at_one_instant() {
    const KEYS: u64 = 10_000;
    let (mut runtime, sender, fired) = start(&Plan::new().every(|stage| stage.capacity(20_000)));
    for key in 0..KEYS {
        sender.send((key, Ask::Set(vec![50]))).unwrap();
    }
    runtime.advance(millis(49));
    assert_eq!(ms(&fired), []);
    let before = runtime.snapshot().stage("timers").unwrap().counts.visits;
    runtime.advance(millis(1));
    let mut keys: Vec<u64> = ms(&fired).into_iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(0..KEYS));
    let visits = runtime.snapshot().stage("timers").unwrap().counts.visits - before;
    assert!(visits < KEYS / 100, "{visits} visits");
}

#[test]
fn at_the_end_of_the_stream_timers_that_are_set_do_not_fire_and_finish_is_called() {
    let (mut runtime, sender, fired) = start(&Plan::new());
    sender.send((1, Ask::Set(vec![10]))).unwrap();
    sender.send((2, Ask::Nothing)).unwrap();
    drop(sender);
    assert!(runtime.run());
    let mut finished = fired.take();
    finished.sort_unstable();
    assert_eq!(finished, [(1, Time::MAX), (2, Time::MAX)]);
    assert!(runtime.now() < Time::from_millis(10), "the end waits for no timer");
}

/// A timer and an event of a key at once are a fault.
#[derive(Clone)]
struct Watched {
    watch: Watch,
    fired: Arc<Mutex<u64>>,
}

impl KeyedStage for Watched {
    type In = u64;
    type Key = u64;
    type State = u64;
    type Ports = ();

    fn key(&self, n: &u64) -> u64 {
        n % 10
    }

    fn handle(
        &mut self,
        set: &mut u64,
        n: Ev<'_, u64>,
        (): &mut (),
        cx: &KeyedCx<'_, u64>,
    ) -> Result {
        self.watch.enter(*cx.key());
        cx.set_timer(cx.now());
        *set += 1;
        std::thread::yield_now();
        self.watch.leave(*cx.key(), Some(*n));
        Ok(())
    }

    fn timer(&mut self, _: &mut u64, _: Time, (): &mut (), cx: &KeyedCx<'_, u64>) -> Result {
        self.watch.enter(*cx.key());
        *self.fired.lock().unwrap() += 1;
        std::thread::yield_now();
        self.watch.leave(*cx.key(), None);
        Ok(())
    }
}

#[test]
fn a_timer_never_runs_beside_an_event_of_its_key() {
    const N: u64 = 5_000;
    for threads in [1, 2, 4] {
        let stage = Watched { watch: Watch::default(), fired: Arc::default() };
        let (watch, fired) = (stage.watch.clone(), stage.fired.clone());
        let app = App::new("beside");
        let (sender, numbers) = app.input::<u64>("numbers");
        app.connect(numbers, app.stage("watched", stage));
        let plan = Plan::new().threads(threads).stage("watched", |stage| stage.instances(threads));
        let running = app.start(&plan).unwrap();
        (0..N).for_each(|n| sender.send(n).unwrap());
        sender.close();
        let _ = complete(running);
        watch.assert_in_order(N, 10);
        assert!(*fired.lock().unwrap() <= N);
    }
}

#[test]
fn timers_fire_on_threads_too() {
    let app = App::new("threads");
    let (sender, events) = app.input::<(u64, Ask)>("events");
    let timers = app.stage("timers", Timers);
    let (seen, all) = std::sync::mpsc::channel();
    app.connect_local(events, timers);
    app.connect(
        timers,
        app.sink("end", move |(key, _): (u64, Time)| {
            let _ = seen.send(key);
        }),
    );
    let plan = Plan::new().threads(2).stage("timers", |timers| timers.instances(2));
    let running = app.start(&plan).unwrap();
    (0..100).for_each(|key| sender.send((key, Ask::Set(vec![1, 2]))).unwrap());
    for _ in 0..200 {
        all.recv_timeout(crate::bounded::BOUND).expect("a timer does not fire");
    }
    sender.close();
    let _ = complete(running);
}

#[test]
fn a_program_with_timers_to_come_ends_when_its_events_do() {
    let app = App::new("ends");
    let events = app.source("events", || (0..100_u64).map(|key| (key, Ask::Set(vec![3_600_000]))));
    let timers = app.stage("timers", Timers);
    app.connect_local(events, timers);
    app.connect(timers, app.sink("end", |_: (u64, Time)| ()));
    let summary = run(app, &Plan::new().threads(2));
    assert_eq!(summary.snapshot.stage("end").unwrap().counts.handled, 100);
}

#[test]
fn a_timer_is_no_use_of_a_key_that_is_idle() {
    let (mut runtime, sender, fired) =
        start(&Plan::new().stage("timers", |timers| timers.idle(millis(10_000))));
    sender.try_send((1, Ask::Every(1_000, 1_000))).unwrap();
    sender.try_send((2, Ask::Every(1_700, 700))).unwrap();
    runtime.run_until_idle();
    for _ in 0..300 {
        runtime.advance(millis(100));
        runtime.run_until_idle();
    }
    let fired = ms(&fired);
    for key in [1, 2] {
        let last = fired.iter().filter(|(of, _)| *of == key).map(|(_, ms)| *ms).max();
        assert!(last >= Some(9_000) && last <= Some(10_000), "key {key}: {fired:?}");
    }
}
