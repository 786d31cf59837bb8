//! What readers and attackers found.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::{TestRuntime, record};
use comporta::{
    App, AsyncCx, AsyncKeyedStage, Emissions, Error, Ev, EventTime, KeyedCx, KeyedStage, OnFailure,
    Out, Plan, Result, Time, WhenFull,
};

use crate::bounded::complete;

/// Sums the events of each key, and sends the sum at the end.
#[derive(Clone)]
struct Sums;

impl KeyedStage for Sums {
    type In = u64;
    type Key = u64;
    type State = u64;
    type Ports = Out<(u64, u64)>;

    fn key(&self, n: &u64) -> u64 {
        n % 50
    }

    fn handle(
        &mut self,
        sum: &mut u64,
        n: Ev<'_, u64>,
        _: &mut Self::Ports,
        cx: &KeyedCx<'_, u64>,
    ) -> Result {
        if *n == u64::MAX {
            cx.forget();
        } else {
            *sum += *n;
        }
        Ok(())
    }

    fn finish(&mut self, sum: u64, out: &mut Self::Ports, cx: &KeyedCx<'_, u64>) -> Result {
        out.send((*cx.key(), sum));
        Ok(())
    }
}

#[test]
fn the_state_of_keys_outlives_instances_that_leave() {
    const N: u64 = 20_000;
    let sums = Arc::new(Mutex::new(BTreeMap::new()));
    let into = sums.clone();
    let app = App::new("resized");
    let numbers = app.source("numbers", || 0..N);
    let sum = app.stage("sum", Sums);
    let keep = app.sink("keep", move |(key, sum): (u64, u64)| {
        assert!(into.lock().unwrap().insert(key, sum).is_none(), "{key} is finished twice");
    });
    app.connect(numbers, sum);
    app.connect(sum, keep);
    let running = app.start(&Plan::new().threads(2).stage("sum", |s| s.instances(8))).unwrap();
    let control = running.control();
    for instances in [2, 8, 1, 5].into_iter().cycle().take(40) {
        let _ = control.set_instances("sum", instances);
        std::thread::yield_now();
    }
    let _ = complete(running);
    let wanted: BTreeMap<u64, u64> =
        (0..50).map(|key| (key, (0..N).filter(|n| n % 50 == key).sum())).collect();
    assert_eq!(*sums.lock().unwrap(), wanted);
}

/// A key that counts how many of it there are.
#[derive(Clone)]
struct Counted(u64, #[expect(dead_code, reason = "it is counted")] Arc<()>);

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for Counted {}
impl std::hash::Hash for Counted {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn keys_whose_events_are_shed_on_entry_leave_nothing_behind() {
    for rule in [WhenFull::DropNewest, WhenFull::Reject, WhenFull::DropOldest] {
        let there = Arc::new(());
        let of = there.clone();
        let app = App::new("shed");
        let numbers = app.source("numbers", || 0..500_u64);
        let pass = app.map("pass", |n: u64| n);
        let work = app.sink("work", |_: u64| ()).keyed(move |n| Counted(*n, of.clone()));
        app.connect(numbers, pass);
        app.connect(pass, work);
        let plan = Plan::new().stage("work", |work| work.capacity(3).when_full(rule));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.hold("work");
        runtime.run();
        runtime.resume("work");
        runtime.run();
        let left = Arc::strong_count(&there);
        assert!(left <= 2, "{rule}: the test's, the key function's, and {} keys", left - 2);
    }
}

/// Counts the events of each key.
struct Waiting;

impl AsyncKeyedStage for Waiting {
    type In = u64;
    type Key = u64;
    type State = u64;
    type Ports = ();

    fn key(&self, n: &u64) -> u64 {
        *n
    }

    async fn handle(&self, n: &mut u64, _: u64, _: &mut Emissions<()>, _: &AsyncCx) -> Result {
        *n += 1;
        Ok(())
    }
}

#[test]
fn the_state_of_a_stage_that_waits_expires_too() {
    let app = App::new("expires");
    let (sender, numbers) = app.input::<u64>("numbers");
    let count = app.stage("count", Waiting);
    app.connect(numbers, count);
    let plan = Plan::new().stage("count", |count| count.instances(4).keys_max(2));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    for n in 0..6 {
        runtime.advance(Duration::from_millis(1));
        sender.try_send(n).unwrap();
        assert!(runtime.run_until_idle() < 100, "it visits for ever");
    }
    let state = |n| runtime.control().key_state::<u64, u64>("count", &n).unwrap();
    assert_eq!([0, 3, 4, 5].map(state), [None, None, Some(1), Some(1)]);
}

/// Forgets the state of a key when it is told to.
#[derive(Clone)]
struct Forgetful(Arc<()>);

impl KeyedStage for Forgetful {
    type In = (u64, bool);
    type Key = Counted;
    type State = u64;
    type Ports = ();

    fn key(&self, (n, _): &(u64, bool)) -> Counted {
        Counted(*n, self.0.clone())
    }

    fn handle(
        &mut self,
        state: &mut u64,
        event: Ev<'_, (u64, bool)>,
        (): &mut (),
        cx: &KeyedCx<'_, Counted>,
    ) -> Result {
        *state += 1;
        if !event.1 {
            cx.forget();
        }
        Ok(())
    }
}

#[test]
fn a_key_that_was_forgotten_is_gone_also_where_state_is_looked_after() {
    let there = Arc::new(());
    let app = App::new("forgotten");
    let (sender, numbers) = app.input::<(u64, bool)>("numbers");
    app.connect(numbers, app.stage("work", Forgetful(there.clone())));
    let plan = Plan::new().stage("work", |work| work.idle(Duration::from_secs(1)));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    let before = Arc::strong_count(&there);
    for n in 0..100 {
        for keep in [true, false] {
            sender.try_send((n, keep)).unwrap();
            runtime.run_until_idle();
        }
    }
    runtime.advance(Duration::from_secs(10));
    runtime.run_until_idle();
    assert_eq!(Arc::strong_count(&there), before, "keys are left");
}

#[test]
fn a_held_key_in_a_cycle_and_keys_given_twice_are_refused() {
    let app = App::new("cycle");
    let numbers = app.source("numbers", || 0..3_u64);
    let work = app.map("work", |n: u64| n).keyed(|n| *n);
    app.connect(numbers, work);
    app.connect(work, work);
    let plan = Plan::new().stage("work", |work| work.on_failure(OnFailure::HoldKey));
    let refused = app.start(&plan).unwrap_err().to_string();
    assert!(refused.contains("part of a cycle"), "{refused}");
    let app = App::new("twice");
    let numbers = app.source("numbers", || 0..3_u64);
    let sums = app.stage("sums", Sums).keyed(|n| n % 2);
    app.connect(numbers, sums);
    let _ = record(&app, sums);
    let refused = app.start(&Plan::new()).unwrap_err().to_string();
    assert!(refused.contains("has keys already"), "{refused}");
}

#[test]
fn a_lane_that_waits_to_try_again_keeps_its_cycle_from_being_stuck() {
    let failed = Arc::new(Mutex::new(false));
    let app = App::new("cycle");
    let work = app.process("work", move |(n, key): (u64, u64), out: &mut Out<(u64, u64)>| {
        if n == 7 && !std::mem::replace(&mut *failed.lock().unwrap(), true) {
            return Err(Error::msg("once"));
        }
        if n > 0 {
            out.send((n - 1, key));
        }
        Ok(())
    });
    let work = work.retain().keyed(|(_, key)| *key).autostart((10, 1));
    app.connect(work, work);
    let plan = Plan::new().stage("work", |work| {
        work.capacity(1).instances(2).tries(2).backoff(Duration::from_secs(1))
    });
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.run());
    let snapshot = runtime.snapshot();
    assert_eq!(snapshot.stage("work").unwrap().counts.handled, 11, "{snapshot}");
}

#[test]
fn a_stage_that_lets_events_overtake_each_other_before_a_keyed_one_is_named() {
    let warnings = |plan: &Plan, ordered: bool| -> Vec<String> {
        let app = App::new("overtaken");
        let numbers = app.source("numbers", || 0..9_u64);
        let parse = app.map("parse", |n: u64| n);
        let parse = if ordered { parse.ordered() } else { parse };
        let pass = app.map("pass", |n: u64| n);
        let first = app.map("first", |n: u64| n).keyed(|n| n % 3);
        let second = app.sink("second", |_: u64| ()).keyed(|n| n % 3);
        app.connect(numbers, parse);
        app.connect(parse, pass);
        app.connect(pass, first);
        app.connect(first, second);
        let warnings = app.rehearse(plan).unwrap();
        warnings.iter().map(ToString::to_string).collect()
    };
    let keyed = Plan::new().stage("first", |s| s.instances(4)).stage("second", |s| s.instances(4));
    assert_eq!(warnings(&keyed, false), [""; 0], "keyed stages keep the order of each key");
    let four = keyed.clone().stage("parse", |parse| parse.instances(4));
    assert_eq!(
        warnings(&four, false),
        [
            "events of one key may overtake each other in `parse`, which has 4 instances, before `first` \
          can keep them in order: declare `parse` as `ordered`, or set `stage.parse.instances=1`"
        ]
    );
    assert_eq!(warnings(&four, true), [""; 0]);
    // A policy may say how many instances there are.
    let seda = Plan::new().policy("seda");
    let lost = |warning: &String| warning.contains("before `first`");
    assert!(warnings(&seda, false).iter().any(lost), "{:?}", warnings(&seda, false));
    let overtake = |warning: &String| warning.contains("gives `first`");
    assert!(!warnings(&seda, false).iter().any(overtake), "its keys are in order");
}

/// Sets a timer of each clock, or takes them back. There is no state.
#[derive(Clone)]
struct Alarmed(Arc<()>);

impl KeyedStage for Alarmed {
    type In = (u64, Option<u64>);
    type Key = Counted;
    type State = ();
    type Ports = ();

    fn key(&self, (key, _): &Self::In) -> Counted {
        Counted(*key, self.0.clone())
    }

    fn event_time(&self) -> Option<EventTime> {
        Some(EventTime::new())
    }

    fn handle(
        &mut self,
        (): &mut (),
        event: Ev<'_, Self::In>,
        (): &mut (),
        cx: &KeyedCx<'_, Counted>,
    ) -> Result {
        if let Some(ms) = event.1 {
            cx.set_timer(Time::from_millis(ms));
            cx.set_event_timer(Time::from_millis(ms));
        } else {
            for ms in [500_000, 700_000] {
                cx.clear_timer(Time::from_millis(ms));
                cx.clear_event_timer(Time::from_millis(ms));
            }
        }
        Ok(())
    }
}

#[test]
fn a_key_whose_timers_were_taken_back_is_forgotten_at_once() {
    let there = Arc::new(());
    let app = App::new("taken-back");
    let (sender, numbers) = app.input::<(u64, Option<u64>)>("numbers");
    app.connect(numbers, app.stage("work", Alarmed(there.clone())));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    let before = Arc::strong_count(&there);
    for n in 0..100 {
        // The second is earlier: the alarm of the first is not needed any more.
        for ask in [Some(700_000), Some(500_000)] {
            sender.try_send((n, ask)).unwrap();
            runtime.run_until_idle();
        }
    }
    assert_eq!(Arc::strong_count(&there), before + 100, "a key with timers is kept");
    for n in 0..100 {
        sender.try_send((n, None)).unwrap();
    }
    runtime.run_until_idle();
    assert_eq!(Arc::strong_count(&there), before, "keys are left");
}
