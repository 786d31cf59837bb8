//! Fair rounds, `lane_max`, state that expires, keys that leave nothing behind.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{App, Ev, KeyedCx, KeyedStage, Out, Plan, Result};

/// Keys with the given weights, whose events are noted in the order in which they are handled.
#[derive(Clone)]
struct Weighted {
    weights: &'static [u32],
    seen: Arc<Mutex<Vec<usize>>>,
}

impl KeyedStage for Weighted {
    type In = usize;
    type Key = usize;
    type State = ();
    type Ports = ();

    fn key(&self, key: &usize) -> usize {
        *key
    }

    fn weight(&self, key: &usize) -> NonZeroU32 {
        NonZeroU32::new(self.weights[*key]).unwrap()
    }

    fn handle(
        &mut self,
        (): &mut (),
        key: Ev<'_, usize>,
        (): &mut (),
        _: &KeyedCx<'_, usize>,
    ) -> Result {
        self.seen.lock().unwrap().push(*key);
        Ok(())
    }
}

fn served(weights: &'static [u32], arrivals: &'static [usize], batch: usize) -> Vec<usize> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let app = App::new("rounds");
    let keys = app.source("keys", move || arrivals.iter().copied());
    let work = app.stage("work", Weighted { weights, seen: seen.clone() });
    app.connect(keys, work);
    let plan = Plan::new().stage("work", |work| work.batch(batch));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("work");
    runtime.run();
    runtime.resume("work");
    assert!(runtime.run());
    let seen = seen.lock().unwrap();
    seen.clone()
}

#[test]
fn a_round_serves_every_key_once_before_any_is_served_twice() {
    let arrivals = &[0, 0, 0, 0, 0, 1, 2, 0, 1];
    for batch in [1, 2, 3, 512] {
        assert_eq!(served(&[1, 1, 1], arrivals, batch), [0, 1, 2, 0, 1, 0, 0, 0, 0], "{batch}");
    }
}

#[test]
fn a_key_with_more_weight_has_a_larger_share_of_each_round() {
    let arrivals = &[0, 0, 0, 0, 0, 1, 1, 1, 1, 1];
    for batch in [8, 512] {
        assert_eq!(served(&[3, 1], arrivals, batch), [0, 0, 0, 1, 0, 0, 1, 1, 1, 1], "{batch}");
    }
}

#[test]
fn a_key_that_has_as_many_events_as_it_may_sheds_its_own_and_no_others() {
    let app = App::new("lane-max");
    let numbers = app.source("numbers", || (0..100_u64).map(|n| if n < 90 { 0 } else { n }));
    let work = app.sink("work", |_: u64| ());
    app.connect(numbers, work.keyed(|n| *n));
    let mut runtime = TestRuntime::new(app, &Plan::new().stage("work", |w| w.lane_max(7))).unwrap();
    runtime.hold("work");
    runtime.run();
    runtime.resume("work");
    assert!(runtime.run());
    let snapshot = runtime.snapshot();
    let work = snapshot.stage("work").unwrap();
    assert_eq!(work.counts.handled, 7 + 10);
    assert_eq!(work.counts.shed(comporta::Shed::LaneFull), 83);
    assert!(snapshot.adds_up());
}

/// Counts the events of each key, and sends the count when the state expires.
#[derive(Clone)]
struct Counting;

impl KeyedStage for Counting {
    type In = u64;
    type Key = u64;
    type State = u64;
    type Ports = Out<(u64, u64)>;

    fn key(&self, key: &u64) -> u64 {
        *key
    }

    fn handle(
        &mut self,
        count: &mut u64,
        _: Ev<'_, u64>,
        _: &mut Self::Ports,
        _: &KeyedCx<'_, u64>,
    ) -> Result {
        *count += 1;
        Ok(())
    }

    fn expired(&mut self, count: u64, out: &mut Self::Ports, cx: &KeyedCx<'_, u64>) -> Result {
        out.send((*cx.key(), count));
        Ok(())
    }
}

/// The program, its input, and what expired.
fn counting(
    plan: impl FnOnce(comporta::StagePlan) -> comporta::StagePlan,
) -> (TestRuntime, comporta::Sender<u64>, comporta::testing::Recorder<(u64, u64)>) {
    let app = App::new("expiry");
    let (sender, keys) = app.input::<u64>("keys");
    let count = app.stage("count", Counting);
    app.connect(keys, count);
    let expired = comporta::testing::record(&app, count);
    (TestRuntime::new(app, &Plan::new().stage("count", plan)).unwrap(), sender, expired)
}

#[test]
fn state_that_no_event_asks_for_expires_and_may_send() {
    let minute = Duration::from_secs(60);
    let (mut runtime, sender, expired) = counting(|count| count.idle(10 * minute));
    for key in [1, 2, 1] {
        sender.try_send(key).unwrap();
    }
    runtime.run_until_idle();
    runtime.advance(9 * minute);
    sender.try_send(1).unwrap();
    runtime.run_until_idle();
    assert_eq!(expired.take(), []);
    runtime.advance(minute);
    runtime.run_until_idle();
    assert_eq!(expired.take(), [(2, 1)], "the other was used a minute ago");
    runtime.advance(9 * minute);
    runtime.run_until_idle();
    assert_eq!(expired.take(), [(1, 3)]);
    assert_eq!(runtime.control().key_state::<u64, u64>("count", &1), Ok(None));
}

#[test]
fn beyond_keys_max_the_state_that_was_used_longest_ago_expires() {
    let (mut runtime, sender, expired) = counting(|count| count.keys_max(3));
    for key in [1, 2, 3, 1, 4, 5] {
        runtime.advance(Duration::from_millis(1));
        sender.try_send(key).unwrap();
        runtime.run();
    }
    assert_eq!(expired.take(), [(2, 1), (3, 1)]);
    assert_eq!(runtime.control().key_state::<u64, u64>("count", &1), Ok(Some(2)));
}

#[test]
fn the_state_of_a_key_can_be_read_and_set_from_outside() {
    let (mut runtime, sender, _) = counting(|count| count);
    let control = runtime.control();
    assert_eq!(control.key_state::<u64, u64>("count", &7), Ok(None));
    assert_eq!(control.set_key_state("count", 7_u64, 41_u64), Ok(None));
    sender.try_send(7).unwrap();
    runtime.run();
    assert_eq!(control.key_state::<u64, u64>("count", &7), Ok(Some(42)));
    let wrong = control.key_state::<String, u64>("count", &String::new()).unwrap_err();
    assert!(wrong.to_string().starts_with("`count` has no keys of type"), "{wrong}");
}

/// A key that counts how many of it there are.
#[derive(PartialEq, Eq, Hash)]
struct Known(u64, Token);

#[derive(Clone)]
#[expect(dead_code, reason = "it is counted")]
struct Token(Arc<()>);

impl PartialEq for Token {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Token {}
impl std::hash::Hash for Token {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// Keys and the key function are gone, when the last thread of the program is.
fn assert_alone(there: &Arc<()>) {
    let look = std::time::Duration::from_millis(10);
    for _ in 0..crate::bounded::BOUND.as_millis() / look.as_millis() {
        if Arc::strong_count(there) == 1 {
            return;
        }
        std::thread::park_timeout(look);
    }
    panic!("a key, or the key function, is left");
}

#[test]
fn keys_without_state_leave_nothing_behind() {
    let there = Arc::new(());
    let token = Token(there.clone());
    let app = App::new("churn");
    let (sender, numbers) = app.input::<u64>("numbers");
    let work = app.sink("work", |_: u64| ()).keyed(move |n| Known(*n, token.clone()));
    app.connect(numbers, work);
    let running = app.start(&Plan::new().threads(2).stage("work", |w| w.instances(3))).unwrap();
    for n in 0..20_000 {
        sender.send(n).unwrap();
    }
    drop(sender);
    let summary = crate::bounded::complete(running);
    assert_eq!(summary.snapshot.stage("work").unwrap().counts.handled, 20_000);
    drop(summary);
    assert_alone(&there);
}

#[test]
fn keys_are_forgotten_while_the_program_runs() {
    let there = Arc::new(());
    let token = Token(there.clone());
    let app = App::new("churn");
    let (sender, numbers) = app.input::<u64>("numbers");
    let work = app.sink("work", |_: u64| ()).keyed(move |n| Known(*n, token.clone()));
    app.connect(numbers, work);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    for n in 0..1_000 {
        sender.try_send(n).unwrap();
        runtime.run();
    }
    assert_eq!(Arc::strong_count(&there), 2, "the test's, and the key function's");
}

#[test]
fn state_is_dropped_when_the_program_is_stopped() {
    let there = Arc::new(());
    let token = Token(there.clone());
    let app = App::new("stop");
    let numbers = app.source("numbers", || 0..);
    let work = app.keyed("work", move |n: &u64| Known(n % 100, token.clone()), {
        |seen: &mut Vec<u64>, n: u64, _: &mut ()| seen.push(n)
    });
    app.connect(numbers, work);
    let running = app.start(&Plan::new().threads(2).stage("work", |w| w.instances(3))).unwrap();
    while running.snapshot().stage("work").unwrap().counts.handled < 1_000 {
        std::thread::yield_now();
    }
    let summary = running.stop();
    assert!(summary.snapshot.adds_up(), "{summary}");
    drop(summary);
    assert_alone(&there);
}

#[test]
fn what_is_said_of_keys_is_refused_where_there_are_none() {
    let app = App::new("plain");
    let numbers = app.source("numbers", || 0..3_u64);
    app.connect(numbers, app.sink("work", |_: u64| ()));
    let plan = Plan::new().stage("work", |work| work.lane_max(3).idle(Duration::ZERO));
    let refused = app.start(&plan).unwrap_err().to_string();
    assert!(refused.contains("`work` is not keyed, and so has no `lane_max`"), "{refused}");
    let app = App::new("both");
    let numbers = app.source("numbers", || 0..3_u64);
    app.connect(numbers, app.sink("work", |_: u64| ()).keyed(|n| *n).ordered());
    let refused = app.start(&Plan::new()).unwrap_err().to_string();
    assert!(refused.contains("keyed") && refused.contains("ordered"), "{refused}");
}
