//! Handlers that wait hold neither a thread nor an instance; what is promised of events holds for those in
//! flight: order, retries, limits, acknowledgement, one fate each.
//! Long because one world of things to wait for serves all of it.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use comporta::testing::{TestRuntime, record};
use comporta::{
    App, AsyncCx, AsyncStage, AsyncStageMut, Cx, Demand, Emissions, Ended, Error, OnPanic, Out,
    Plan, Ports, Pull, Reason, Result, Running, Settled, Source,
};

use crate::bounded::{ends, handled, stage, under_every_policy, until, watched};

const SECOND: Duration = Duration::from_secs(1);

/// What events in flight wait for: each is let go, from outside, by its number.
#[derive(Clone, Default)]
struct World(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    wakers: HashMap<u64, Waker>,
    ready: Vec<u64>,
    all_ready: bool,
    polled_elsewhere: usize,
}

impl World {
    async fn answer(self, n: u64) -> u64 {
        poll_fn(|cx| {
            let mut waiting = self.0.lock().unwrap();
            let thread = std::thread::current();
            let ours = thread.name().is_some_and(|name| name.starts_with("waiting-main-"));
            waiting.polled_elsewhere += usize::from(!ours);
            if waiting.all_ready || waiting.ready.contains(&n) {
                waiting.wakers.remove(&n);
                return Poll::Ready(());
            }
            waiting.wakers.insert(n, cx.waker().clone());
            Poll::Pending
        })
        .await;
        n
    }

    /// How many wait.
    fn waiting(&self) -> usize {
        self.0.lock().unwrap().wakers.len()
    }

    fn let_go(&self, n: u64) {
        let mut waiting = self.0.lock().unwrap();
        waiting.ready.push(n);
        let waker = waiting.wakers.remove(&n);
        drop(waiting);
        waker.into_iter().for_each(Waker::wake);
    }

    fn let_all_go(&self) {
        let mut waiting = self.0.lock().unwrap();
        waiting.all_ready = true;
        let wakers = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        wakers.into_values().for_each(Waker::wake);
    }

    fn polled_elsewhere(&self) -> usize {
        self.0.lock().unwrap().polled_elsewhere
    }
}

type Seen<T> = Arc<Mutex<Vec<T>>>;

/// `numbers -> ask -> end`; what arrived at the end is in the list.
fn asking(numbers: u64, ordered: bool, world: &World) -> (App, Seen<u64>) {
    let app = App::new("waiting");
    let source = app.source("numbers", move || 0..numbers);
    let of = world.clone();
    let ask = app.map_async("ask", move |n: u64| of.clone().answer(n));
    let ask = if ordered { ask.ordered() } else { ask };
    let seen = Seen::<u64>::default();
    let see = seen.clone();
    let end = app.sink("end", move |n: u64| see.lock().unwrap().push(n));
    app.connect(source, ask);
    app.connect(ask, end);
    (app, seen)
}

fn sorted(seen: &Seen<u64>) -> Vec<u64> {
    let mut all = seen.lock().unwrap().clone();
    all.sort_unstable();
    all
}

#[test]
fn events_in_flight_hold_neither_a_thread_nor_an_instance() {
    fn case(plan: Plan, label: &str) {
        const MOST: usize = 40;
        const NUMBERS: u64 = 60;
        let world = World::default();
        let (app, seen) = asking(NUMBERS, false, &world);
        let running = app.start(&plan.stage("ask", |ask| ask.instances(MOST))).unwrap();
        until(label, || world.waiting() == MOST);
        let now = running.snapshot();
        let ask = stage(&now, "ask");
        assert_eq!((ask.in_flight, ask.instances), (MOST, MOST), "{label}");
        assert!(now.adds_up(), "{label}: {now}");
        world.let_go(1);
        until(label, || *seen.lock().unwrap() == [1]);
        world.let_all_go();
        let summary = ends(label, running);
        assert_eq!(summary.ended, Ended::Complete);
        assert!(sorted(&seen).into_iter().eq(0..NUMBERS), "{label}: {summary}");
        assert!(summary.snapshot.adds_up(), "{label}: {summary}");
        assert_eq!(world.polled_elsewhere(), 0, "{label}: polled by a thread that is no worker's");
    }
    under_every_policy(case);
}

#[test]
fn with_one_instance_an_event_begins_when_the_one_before_it_has_ended() {
    watched("one at a time", || {
        let world = World::default();
        let (app, seen) = asking(50, false, &world);
        let running = app.start(&Plan::new().threads(2)).unwrap();
        for n in 0..50 {
            until("it waits", || world.waiting() == 1);
            world.let_go(n);
            until("it has arrived", || seen.lock().unwrap().last() == Some(&n));
        }
        let _ = ends("one at a time", running);
    });
}

#[test]
fn results_of_an_ordered_stage_leave_in_order_across_awaits() {
    fn case(plan: Plan, label: &str) {
        const NUMBERS: u64 = 300;
        const MOST: usize = 7;
        let world = World::default();
        let (app, seen) = asking(NUMBERS, true, &world);
        let running = app.start(&plan.stage("ask", |ask| ask.instances(MOST))).unwrap();
        let mut gone = 0;
        while gone < NUMBERS {
            let together = (NUMBERS - gone).min(MOST as u64);
            until(label, || world.waiting() == together as usize);
            (gone..gone + together).rev().for_each(|n| world.let_go(n));
            gone += together;
        }
        let summary = ends(label, running);
        assert!(seen.lock().unwrap().iter().copied().eq(0..NUMBERS), "{label}: {summary}");
        assert!(summary.snapshot.adds_up(), "{label}: {summary}");
    }
    under_every_policy(case);
}

/// Counts the events it was handed, and waits with its count in hand.
struct Counter {
    world: World,
    count: u64,
    entered: Arc<AtomicBool>,
}

impl AsyncStageMut for Counter {
    type In = u64;
    type Ports = Out<u64>;
    async fn handle(&mut self, n: u64, out: &mut Emissions<Out<u64>>, _: &AsyncCx) -> Result {
        assert!(!self.entered.swap(true, SeqCst), "two events at once");
        self.count += 1;
        self.world.clone().answer(n).await;
        out.send(self.count);
        self.entered.store(false, SeqCst);
        Ok(())
    }
    fn finish(&mut self, out: &mut Out<u64>, _: &Cx) -> Result {
        out.send(1_000 + self.count);
        Ok(())
    }
}

#[test]
fn a_stateful_stage_handles_one_event_at_a_time_across_awaits() {
    watched("stateful", || {
        let world = World::default();
        let app = App::new("waiting");
        let numbers = app.source("numbers", || 0..20_u64);
        let entered = Arc::default();
        let counter = app.stage("counter", Counter { world: world.clone(), count: 0, entered });
        let seen = Seen::<u64>::default();
        let see = seen.clone();
        let end = app.sink("end", move |n: u64| see.lock().unwrap().push(n));
        app.connect(numbers, counter);
        app.connect(counter, end);
        let refused = Plan::new().stage("counter", |counter| counter.instances(2));
        assert!(app.rehearse(&refused).is_err(), "a stateful stage has one instance");
        let running = app.start(&Plan::new().threads(4)).unwrap();
        for n in 0..20 {
            until("it waits", || world.waiting() == 1);
            world.let_go(n);
        }
        let summary = ends("stateful", running);
        let expected = (1..=20).chain([1_020]);
        assert!(seen.lock().unwrap().iter().copied().eq(expected), "{summary}");
    });
}

struct Bomb;
impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_panic_before_in_or_after_a_poll_costs_one_event() {
    fn case(plan: Plan, label: &str) {
        let world = World::default();
        let app = App::new("waiting");
        let numbers = app.source("numbers", || 0..100_u64);
        let of = world.clone();
        let ask = app.try_map_async("ask", move |n: u64| {
            assert_ne!(n % 10, 1, "not begun");
            let answer = of.clone().answer(n);
            async move {
                let _bomb = (n % 10 == 2).then(|| Bomb);
                assert_ne!(n % 10, 3, "not polled");
                let n = answer.await;
                assert_ne!(n % 10, 4, "not answered");
                let _bomb = (n % 10 == 5).then(|| Bomb);
                if n % 10 == 6 { Err(Error::msg("no")) } else { Ok(n) }
            }
        });
        let seen = Seen::<u64>::default();
        let see = seen.clone();
        app.connect(numbers, ask);
        app.connect(ask, app.sink("end", move |n: u64| see.lock().unwrap().push(n)));
        let running = app.start(&plan.stage("ask", |ask| ask.instances(8))).unwrap();
        world.let_all_go();
        let summary = ends(label, running);
        let expected: Vec<u64> = (0..100).filter(|n| !(1..7).contains(&(n % 10))).collect();
        assert_eq!(sorted(&seen), expected, "{label}: {summary}");
        let counts = stage(&summary.snapshot, "ask").counts;
        assert_eq!((counts.handled, counts.failed), (40, 60), "{label}: {summary}");
        assert!(summary.snapshot.adds_up(), "{label}: {summary}");
    }
    under_every_policy(case);
}

#[test]
fn a_bomb_in_flight_that_a_stop_drops_costs_nothing_else() {
    watched("bombs", || {
        let world = World::default();
        let app = App::new("waiting");
        let numbers = app.source("numbers", || 0..10_u64);
        let of = world.clone();
        let ask = app.sink_async("ask", move |n: u64| {
            let answer = of.clone().answer(n);
            async move {
                let _bomb = Bomb;
                answer.await;
            }
        });
        app.connect(numbers, ask);
        let running = app.start(&Plan::new().stage("ask", |ask| ask.instances(10))).unwrap();
        until("all wait", || world.waiting() == 10);
        let summary = running.stop();
        let counts = stage(&summary.snapshot, "ask").counts;
        assert_eq!((counts.handled, counts.cancelled), (0, 10), "{summary}");
        assert!(summary.snapshot.adds_up(), "{summary}");
        world.let_all_go(); // nobody is there any more
    });
}

/// Yields `n` times before it is ready, waking itself from inside of its poll.
async fn yields(mut n: usize) {
    poll_fn(|cx| {
        if n == 0 {
            return Poll::Ready(());
        }
        n -= 1;
        cx.waker().wake_by_ref();
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn a_future_that_wakes_itself_is_polled_again() {
    fn case(plan: Plan, label: &str) {
        let app = App::new("waiting");
        let numbers = app.source("numbers", || 0..2_000_usize);
        let wait = app.map_async("wait", |n: usize| async move {
            yields(n % 4).await;
            n
        });
        app.connect(numbers, wait);
        app.connect(wait, app.sink("end", |_: usize| ()));
        let running = app.start(&plan.stage("wait", |wait| wait.instances(10))).unwrap();
        let summary = ends(label, running);
        assert_eq!(stage(&summary.snapshot, "end").counts.handled, 2_000, "{label}: {summary}");
    }
    under_every_policy(case);
}

#[test]
fn events_go_round_through_handlers_that_wait_and_never_stall() {
    fn case(plan: Plan, label: &str) {
        let app = App::new("waiting");
        let ping = app.try_map_async("ping", |n: u32| async move {
            yields(1).await;
            if n == 3_000 { Err(Error::msg("the last")) } else { Ok(n + 1) }
        });
        let ping = ping.autostart(0);
        let pong = app.map_async("pong", |n: u32| async move {
            yields(n as usize % 2).await;
            n
        });
        app.connect(ping, pong);
        app.connect(pong, ping);
        let plan = plan.every(|stage| stage.capacity(2));
        let summary = ends(label, app.start(&plan).unwrap());
        assert_eq!(stage(&summary.snapshot, "pong").counts.handled, 3_000, "{label}: {summary}");
    }
    under_every_policy(case);
}

/// Stages that wait, and a sibling that does not.
#[test]
fn a_hundred_thousand_wait_while_a_sibling_works_at_full_speed() {
    watched("many", || {
        const MANY: usize = 100_000;
        let world = World::default();
        let app = App::new("waiting");
        let numbers = app.source("numbers", || 0..MANY as u64);
        let of = world.clone();
        let wait = app.sink_async("wait", move |n: u64| {
            let answer = of.clone().answer(n);
            async move {
                answer.await;
            }
        });
        let (sender, begin) = app.input::<()>("begin");
        let others = app.flat_map("others", |(): ()| 0..1_000_000_u64);
        let work = app.sink("work", |_: u64| ());
        app.connect(numbers, wait);
        app.connect(begin, others);
        app.connect(others, work);
        let plan = Plan::new().threads(2).stage("wait", |wait| wait.instances(MANY));
        let running = app.start(&plan).unwrap();
        until("all wait", || world.waiting() == MANY);
        sender.send(()).unwrap();
        until("the sibling is done", || handled(&running, "work") == 1_000_000);
        assert_eq!(world.waiting(), MANY);
        drop(sender);
        world.let_all_go();
        let summary = ends("many", running);
        assert_eq!(stage(&summary.snapshot, "wait").counts.handled, MANY as u64);
    });
}

// --- on virtual time

/// `numbers -> wait -> end`, each number being how many seconds it waits.
fn sleepers(seconds: Vec<u64>) -> App {
    let app = App::new("waiting");
    let numbers = app.source("numbers", move || seconds.into_iter());
    let wait = app.stage("wait", Sleeper);
    app.connect(numbers, wait);
    app
}

struct Sleeper;

impl AsyncStage for Sleeper {
    type In = u64;
    type Ports = Out<u64>;
    async fn handle(&self, s: u64, out: &mut Emissions<Out<u64>>, cx: &AsyncCx) -> Result {
        cx.sleep(s as u32 * SECOND).await;
        out.send(s);
        Ok(())
    }
}

#[test]
fn sleeps_pass_in_virtual_time() {
    let app = App::new("waiting");
    let numbers = app.source("numbers", || [3, 1, 2].into_iter());
    let wait = app.stage("wait", Sleeper);
    app.connect(numbers, wait);
    let seen = record(&app, wait);
    let plan = Plan::new().stage("wait", |wait| wait.instances(3));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.run_until_idle();
    assert!(seen.take().is_empty());
    runtime.advance(SECOND);
    assert_eq!(seen.take(), [1]);
    runtime.advance(5 * SECOND);
    assert_eq!(seen.take(), [2, 3]);
    assert!(runtime.is_ended());
    let waited = runtime.snapshot().stage("wait").unwrap().waited;
    assert_eq!(waited, 6 * SECOND);
}

#[test]
fn a_handler_over_its_timeout_is_dropped_and_tried_as_the_plan_says() {
    let app = sleepers(vec![1, 5, 2]);
    let plan = Plan::new().stage("wait", |wait| {
        wait.instances(3).timeout(3 * SECOND).tries(2).backoff(SECOND).jitter(false)
    });
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.advance(4 * SECOND);
    let counts = runtime.snapshot().stage("wait").unwrap().counts;
    assert_eq!((counts.handled, counts.retried, counts.failed), (2, 1, 0));
    assert!(!runtime.is_ended());
    runtime.advance(10 * SECOND);
    let counts = runtime.snapshot().stage("wait").unwrap().counts;
    assert_eq!((counts.handled, counts.retried, counts.failed), (2, 1, 1));
    assert!(runtime.is_ended());
    let failures = runtime.control().failures("wait").unwrap();
    assert_eq!(failures[0].reason, Reason::TimedOut(3 * SECOND));
    assert_eq!((failures[0].attempts, failures[0].partial), (2, false));
}

#[test]
fn a_deadline_that_passes_ends_a_handler_without_another_try() {
    let app = sleepers(vec![1, 5]);
    let plan = Plan::new()
        .stage("numbers", |numbers| numbers.deadline(2 * SECOND))
        .stage("wait", |wait| wait.instances(3).timeout(3 * SECOND).tries(9));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.advance(10 * SECOND);
    let counts = runtime.snapshot().stage("wait").unwrap().counts;
    assert_eq!((counts.handled, counts.retried, counts.failed), (1, 0, 1));
    let failures = runtime.control().failures("wait").unwrap();
    assert_eq!(failures[0].reason, Reason::Deadline);
}

#[test]
fn an_event_that_failed_at_its_deadline_is_handled_when_it_is_replayed() {
    // Deadlines that events share, and those of their own.
    for events in [&[(5, 2)][..], &[(1, 2), (5, 2), (6, 3)]] {
        let app = App::new("waiting");
        let (sender, numbers) = app.input::<u64>("numbers");
        let wait = app.stage("wait", Sleeper).retain();
        app.connect(numbers, wait);
        let seen = record(&app, wait);
        let plan = Plan::new().stage("wait", |wait| wait.instances(3));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        for (number, within) in events {
            sender.clone().within(*within * SECOND).try_send(*number).unwrap();
        }
        runtime.advance(10 * SECOND);
        let failures = runtime.control().failures("wait").unwrap();
        assert!(failures.iter().all(|failure| failure.reason == Reason::Deadline), "{failures:?}");
        assert_eq!(runtime.control().replay("wait", 9).unwrap(), failures.len());
        runtime.advance(10 * SECOND);
        let all: Vec<_> = events.iter().map(|(number, _)| *number).collect();
        assert_eq!(seen.take(), all);
    }
}

#[test]
fn a_timeout_is_of_stages_that_wait() {
    let app = App::new("waiting");
    let numbers = app.source("numbers", || 0..1_u64);
    app.connect(numbers, app.sink("end", |_: u64| ()));
    let refused = app.rehearse(&Plan::new().stage("end", |end| end.timeout(SECOND))).unwrap_err();
    let expected =
        "`end` has no timeout: its handler does not wait, and cannot be stopped while it runs";
    assert!(refused[0].to_string().contains(expected), "{}", refused[0]);
}

#[test]
fn under_srpt_the_order_of_visits_is_that_of_a_synchronous_stage() {
    fn order(waits: bool) -> Vec<(&'static str, u64)> {
        let seen = Seen::<(&'static str, u64)>::default();
        let app = App::new("waiting");
        let numbers = app.source("numbers", || 0..40_u64);
        let mut from = numbers;
        for name in ["first", "second", "third"] {
            let see = seen.clone();
            from = if waits {
                let see = move |n: u64| see.lock().unwrap().push((name, n));
                *app.map_async(name, move |n: u64| {
                    see(n);
                    async move { n }
                })
                .with(|stage| app.connect(from, *stage))
            } else {
                let see = move |n: u64| see.lock().unwrap().push((name, n));
                *app.map(name, move |n: u64| {
                    see(n);
                    n
                })
                .with(|stage| app.connect(from, *stage))
            };
        }
        app.connect(from, app.sink("end", |_: u64| ()));
        let plan = Plan::new().policy("srpt").threads(1).every(|stage| stage.batch(1).capacity(4));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        assert!(runtime.run());
        drop(runtime); // its handlers hold the list too
        Arc::into_inner(seen).map(|seen| seen.into_inner().unwrap()).unwrap_or_default()
    }
    let synchronous = order(false);
    assert_eq!(synchronous.len(), 120);
    assert_eq!(order(true), synchronous);
}

/// So that a handle can be used in the middle of an expression.
trait With: Sized {
    fn with(self, call: impl FnOnce(&Self)) -> Self {
        call(&self);
        self
    }
}
impl<T> With for T {}

// --- what it sends before it returns

/// Flushes `n` events, one at a time, then fails if it was told to.
struct Flushing {
    fails: bool,
}

impl AsyncStage for Flushing {
    type In = u64;
    type Ports = Out<u64>;
    const FLUSHES: bool = true;
    async fn handle(&self, n: u64, out: &mut Emissions<Out<u64>>, _: &AsyncCx) -> Result {
        for i in 0..n {
            out.send(i);
            out.flush().await?;
        }
        out.send(n);
        if self.fails { Err(Error::msg("in the end")) } else { Ok(()) }
    }
}

fn flushing(numbers: std::ops::Range<u64>, fails: bool) -> (App, Seen<u64>) {
    let app = App::new("waiting");
    let numbers = app.source("numbers", move || numbers);
    let flush = app.stage("flush", Flushing { fails });
    let seen = Seen::<u64>::default();
    let see = seen.clone();
    app.connect(numbers, flush);
    app.connect(flush, app.sink("end", move |n: u64| see.lock().unwrap().push(n)));
    (app, seen)
}

#[test]
fn what_was_flushed_has_moved_on_and_a_failure_afterwards_is_partial() {
    let (app, seen) = flushing(3..4, true);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2], "what was not flushed is withdrawn");
    let failures = runtime.control().failures("flush").unwrap();
    assert!(failures[0].partial);
    assert!(runtime.snapshot().adds_up());
}

#[test]
fn a_flush_waits_for_room_and_loses_nothing() {
    fn case(plan: Plan, label: &str) {
        let (app, seen) = flushing(0..60, false);
        let plan =
            plan.stage("flush", |flush| flush.instances(5)).stage("end", |end| end.capacity(1));
        let summary = ends(label, app.start(&plan).unwrap());
        assert_eq!(seen.lock().unwrap().len(), (1..=60).sum::<usize>(), "{label}: {summary}");
        assert!(summary.snapshot.adds_up(), "{label}: {summary}");
    }
    under_every_policy(case);
}

#[test]
fn a_stage_that_does_not_say_that_it_flushes_cannot_and_an_ordered_one_is_refused() {
    struct Unsaid;
    impl AsyncStage for Unsaid {
        type In = u64;
        type Ports = Out<u64>;
        async fn handle(&self, n: u64, out: &mut Emissions<Out<u64>>, _: &AsyncCx) -> Result {
            out.send(n);
            out.flush().await
        }
    }
    let app = App::new("waiting");
    let numbers = app.source("numbers", || 0..1_u64);
    let flush = app.stage("flush", Unsaid);
    app.connect(numbers, flush);
    app.connect(flush, app.sink("end", |_: u64| ()));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    let failures = runtime.control().failures("flush").unwrap();
    assert!(failures[0].to_string().contains("const FLUSHES"), "{}", failures[0]);

    let app = App::new("waiting");
    let numbers = app.source("numbers", || 0..1_u64);
    let flush = app.stage("flush", Flushing { fails: false }).ordered();
    app.connect(numbers, flush);
    app.connect(flush, app.sink("end", |_: u64| ()));
    let refused = app.check().unwrap_err().to_string();
    assert!(refused.contains("`flush` is ordered and cannot flush"), "{refused}");

    let app = App::new("waiting");
    let numbers = app.source("numbers", || 0..1_u64);
    app.connect(numbers, app.sink_async("end", |_: u64| async {}).blocking());
    let refused = app.check().unwrap_err().to_string();
    assert!(refused.contains("`end` is asynchronous and blocking"), "{refused}");
}

#[derive(Ports)]
struct Two {
    even: Out<u64>,
    odd: Out<u64>,
}

struct Split;

impl AsyncStage for Split {
    type In = u64;
    type Ports = Two;
    async fn handle(&self, n: u64, out: &mut Emissions<Two>, _: &AsyncCx) -> Result {
        for i in 0..n {
            if i % 2 == 0 {
                out.even.send(i);
            } else {
                out.odd.send(i);
            }
            yields(1).await;
        }
        Ok(())
    }
}

#[test]
fn ports_that_lead_to_one_queue_keep_the_order_in_which_they_were_sent_to() {
    watched("two ports", || {
        let app = App::new("waiting");
        let numbers = app.source("numbers", || 10..11_u64);
        let split = app.stage("split", Split);
        let seen = Seen::<u64>::default();
        let see = seen.clone();
        let end = app.sink("end", move |n: u64| see.lock().unwrap().push(n));
        app.connect(numbers, split);
        app.connect(split.even, end);
        app.connect(split.odd, end);
        let _ = ends("two ports", app.start(&Plan::new()).unwrap());
        assert!(seen.lock().unwrap().iter().copied().eq(0..10), "{seen:?}");
    });
}

#[test]
fn a_flood_fails_its_event() {
    let app = App::new("waiting");
    let numbers = app.source("numbers", || [5, 100_000, 7].into_iter());
    let split = app.stage("split", Split);
    app.connect(numbers, split);
    app.connect(split.even, app.sink("even", |_: u64| ()));
    app.connect(split.odd, app.sink("odd", |_: u64| ()));
    let plan = Plan::new().stage("split", |split| split.emit_max(100));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.run());
    let failures = runtime.control().failures("split").unwrap();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].reason, Reason::Flood(100));
    assert_eq!(runtime.snapshot().stage("even").unwrap().counts.handled, 3 + 4);
}

// --- who waits for an event

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
        let Some(event) = self.events.pop_front() else { return Ok(Pull::AfterAck) };
        out.send(event);
        Ok(if self.events.is_empty() { Pull::End } else { Pull::More })
    }
    fn settled(&mut self, settled: Settled) {
        self.reported.lock().unwrap().push(settled);
    }
}

fn acked(ordered: bool, world: &World) -> (App, Reported) {
    let app = App::new("waiting");
    let reported = Reported::default();
    let source = Acked { events: (0..4).collect(), reported: reported.clone() };
    let numbers = app.source("numbers", move || source);
    let of = world.clone();
    let ask = app.map_async("ask", move |n: u64| of.clone().answer(n));
    let ask = if ordered { ask.ordered() } else { ask };
    app.connect(numbers, ask);
    app.connect(ask, app.sink("end", |_: u64| ()));
    (app, reported)
}

fn four_wait(app: App, world: &World) -> Running {
    let running = app.start(&Plan::new().stage("ask", |ask| ask.instances(4))).unwrap();
    until("all wait", || world.waiting() == 4);
    running
}

#[test]
fn a_source_hears_of_an_event_when_its_handler_has_returned() {
    watched("acknowledged", || {
        for ordered in [false, true] {
            let world = World::default();
            let (app, reported) = acked(ordered, &world);
            let running = four_wait(app, &world);
            assert!(reported.lock().unwrap().is_empty());
            world.let_go(0);
            until("the first is reported", || reported.lock().unwrap().len() == 1);
            world.let_all_go();
            let _ = ends("acknowledged", running);
            let reported = reported.lock().unwrap();
            assert_eq!(reported.len(), 4);
            assert!(reported.iter().all(Settled::is_clean));
        }
    });
}

#[test]
fn a_source_hears_of_an_event_that_failed_after_it_had_waited() {
    watched("failed", || {
        for ordered in [false, true] {
            let world = World::default();
            let app = App::new("waiting");
            let reported = Reported::default();
            let source = Acked { events: (0..4).collect(), reported: reported.clone() };
            let numbers = app.source("numbers", move || source);
            let of = world.clone();
            let ask = app.try_map_async("ask", move |n: u64| {
                let answer = of.clone().answer(n);
                async move {
                    let n = answer.await;
                    if n % 2 == 1 { Err(Error::msg("odd")) } else { Ok(n) }
                }
            });
            let ask = if ordered { ask.ordered() } else { ask };
            app.connect(numbers, ask);
            app.connect(ask, app.sink("end", |_: u64| ()));
            let running = four_wait(app, &world);
            world.let_all_go();
            let _ = ends("failed", running);
            let mut reported = reported.lock().unwrap().clone();
            reported.sort_unstable_by_key(|settled| settled.group);
            let failed: Vec<u64> = reported.iter().map(|settled| settled.failed).collect();
            assert_eq!(failed, [0, 1, 0, 1], "ordered: {ordered}");
        }
    });
}

#[test]
fn a_stop_and_a_drain_in_vain_cancel_what_is_in_flight_and_its_source_hears_of_it() {
    watched("stopped", || {
        for (ordered, drained) in [(false, false), (true, false), (false, true), (true, true)] {
            let world = World::default();
            let (app, reported) = acked(ordered, &world);
            let running = four_wait(app, &world);
            world.let_go(0);
            until("the first is reported", || reported.lock().unwrap().len() == 1);
            let summary = if drained {
                running.drain_within(Duration::from_millis(20))
            } else {
                running.stop()
            };
            assert!(summary.snapshot.adds_up(), "{summary}");
            let counts = stage(&summary.snapshot, "ask").counts;
            assert_eq!((counts.handled, counts.cancelled), (1, 3), "{summary}");
            let cancelled: u64 = reported.lock().unwrap().iter().map(|told| told.cancelled).sum();
            assert_eq!(cancelled, 3);
            world.let_all_go(); // nobody is there any more
        }
    });
}

#[test]
fn the_number_in_flight_can_be_changed_while_it_runs() {
    watched("live", || {
        const NUMBERS: u64 = 100;
        let world = World::default();
        let (app, seen) = asking(NUMBERS, false, &world);
        let running = app.start(&Plan::new().threads(2)).unwrap();
        let control = running.control();
        until("one waits", || world.waiting() == 1);
        control.set_instances("ask", 30).unwrap();
        until("thirty wait", || world.waiting() == 30);
        control.set_instances("ask", 7).unwrap();
        // Those in flight stay; none is begun until fewer than seven are left.
        (0..23).for_each(|n| world.let_go(n));
        until("they have ended", || seen.lock().unwrap().len() == 23);
        assert_eq!(world.waiting(), 7);
        world.let_go(23);
        until("one is begun for each that ends", || seen.lock().unwrap().len() == 24);
        until("seven wait", || world.waiting() == 7);
        assert_eq!(stage(&running.snapshot(), "ask").in_flight, 7);
        world.let_all_go();
        let summary = ends("live", running);
        assert_eq!(seen.lock().unwrap().len(), NUMBERS as usize, "{summary}");
    });
}

#[test]
fn a_waker_that_outlives_its_program_does_nothing() {
    watched("outlived", || {
        let kept = Arc::new(Mutex::new(Vec::<Waker>::new()));
        let polls = Arc::new(AtomicUsize::new(0));
        let app = App::new("waiting");
        let numbers = app.source("numbers", || 0..10_u64);
        let (keep, count) = (kept.clone(), polls.clone());
        let wait = app.sink_async("wait", move |_: u64| {
            let (keep, count) = (keep.clone(), count.clone());
            poll_fn(move |cx| {
                keep.lock().unwrap().push(cx.waker().clone());
                count.fetch_add(1, SeqCst);
                Poll::Ready(())
            })
        });
        app.connect(numbers, wait);
        let _ = ends("outlived", app.start(&Plan::new()).unwrap());
        let before = polls.load(SeqCst);
        std::mem::take(&mut *kept.lock().unwrap()).into_iter().for_each(Waker::wake);
        assert_eq!(polls.load(SeqCst), before);
    });
}

// --- what a review found

/// Flushes four times, inside of a cycle whose queues hold one event each.
struct Around;

impl AsyncStage for Around {
    type In = u64;
    type Ports = Out<u64>;
    const FLUSHES: bool = true;
    async fn handle(&self, n: u64, out: &mut Emissions<Out<u64>>, _: &AsyncCx) -> Result {
        for _ in 0..n {
            out.send(0);
            out.flush().await?;
        }
        Ok(())
    }
}

#[test]
fn a_flush_inside_of_a_full_cycle_is_broken_as_every_cycle_is() {
    fn case(plan: Plan, label: &str) {
        let app = App::new("waiting");
        let around = app.stage("around", Around).autostart(8);
        let back = app.map("back", |n: u64| n);
        app.connect(around, back);
        app.connect(back, around);
        let plan = plan.every(|stage| stage.capacity(1));
        let summary = ends(label, app.start(&plan).unwrap());
        assert!(summary.snapshot.adds_up(), "{label}: {summary}");
    }
    under_every_policy(case);
}

/// Begins a flush and gives it up, then flushes again.
struct Hasty;

impl AsyncStage for Hasty {
    type In = u64;
    type Ports = Out<u64>;
    const FLUSHES: bool = true;
    async fn handle(&self, n: u64, out: &mut Emissions<Out<u64>>, _: &AsyncCx) -> Result {
        out.send(n);
        {
            let mut flush = Box::pin(out.flush());
            poll_fn(|cx| {
                let _ = flush.as_mut().poll(cx);
                Poll::Ready(())
            })
            .await;
        }
        out.send(n + 1);
        out.flush().await?;
        out.send(n + 2);
        Ok(())
    }
}

#[test]
fn a_flush_that_was_given_up_loses_nothing() {
    let app = App::new("waiting");
    let numbers = app.source("numbers", || 0..1_u64);
    let hasty = app.stage("hasty", Hasty);
    app.connect(numbers, hasty);
    let seen = record(&app, hasty);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    assert_eq!(seen.take(), [0, 1, 2]);
}

struct Attempts(Seen<(u64, u32)>);

impl AsyncStage for Attempts {
    type In = u64;
    type Ports = ();
    async fn handle(&self, n: u64, _: &mut Emissions<()>, cx: &AsyncCx) -> Result {
        self.0.lock().unwrap().push((n, cx.attempt()));
        if n == 0 {
            cx.sleep(SECOND).await;
            return Err(Error::msg("the first"));
        }
        if n == 1 && cx.attempt() == 1 { Err(Error::msg("once")) } else { Ok(()) }
    }
}

#[test]
fn a_second_try_of_one_event_is_the_first_of_the_next() {
    let seen = Seen::<(u64, u32)>::default();
    let app = App::new("waiting");
    let (sender, numbers) = app.input::<u64>("numbers");
    app.connect(numbers, app.stage("tries", Attempts(seen.clone())));
    let plan = Plan::new()
        .stage("tries", |tries| tries.instances(2).tries(2).backoff(SECOND).jitter(false));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    sender.try_send(0).unwrap();
    runtime.advance(2 * SECOND); // its second try waits
    sender.try_send(1).unwrap();
    runtime.advance(10 * SECOND);
    assert_eq!(*seen.lock().unwrap(), [(0, 1), (0, 2), (1, 1), (1, 2)]);
    let counts = runtime.snapshot().stage("tries").unwrap().counts;
    assert_eq!((counts.handled, counts.failed, counts.retried), (1, 1, 2));
}

#[test]
fn a_poll_that_does_not_return_holds_no_other_event_that_was_woken() {
    watched("held", || {
        let world = World::default();
        let app = App::new("waiting");
        let numbers = app.source("numbers", || 0..40_u64);
        let (of, others) = (world.clone(), Arc::new(AtomicUsize::new(0)));
        let count = others.clone();
        let wait = app.sink_async("wait", move |n: u64| {
            let (answer, count) = (of.clone().answer(n), count.clone());
            async move {
                answer.await;
                if n == 0 {
                    // It blocks its thread until all others have ended.
                    until("the others have ended", || count.load(SeqCst) == 39);
                }
                count.fetch_add(1, SeqCst);
            }
        });
        app.connect(numbers, wait);
        let plan = Plan::new().threads(2).stage("wait", |wait| wait.instances(40));
        let running = app.start(&plan).unwrap();
        until("all wait", || world.waiting() == 40);
        world.let_all_go();
        let _ = ends("held", running);
    });
}

#[test]
fn events_that_come_are_begun_beside_those_that_wake_themselves() {
    watched("alternate", || {
        let app = App::new("waiting");
        let (sender, numbers) = app.input::<u64>("numbers");
        let done = Arc::new(AtomicBool::new(false));
        let busy = Arc::new(AtomicBool::new(false));
        let (is_done, is_busy) = (done.clone(), busy.clone());
        let wait = app.sink_async("wait", move |n: u64| {
            let (done, busy) = (is_done.clone(), is_busy.clone());
            async move {
                busy.store(true, SeqCst);
                if n == 1 {
                    done.store(true, SeqCst);
                }
                while !done.load(SeqCst) {
                    yields(1).await;
                }
            }
        });
        app.connect(numbers, wait);
        let plan = Plan::new().threads(1).stage("wait", |wait| wait.instances(2));
        let running = app.start(&plan).unwrap();
        sender.send(0).unwrap();
        until("it yields", || busy.load(SeqCst));
        sender.send(1).unwrap();
        drop(sender);
        let _ = ends("alternate", running);
    });
}

struct Quits;

impl AsyncStage for Quits {
    type In = u64;
    type Ports = ();
    async fn handle(&self, n: u64, _: &mut Emissions<()>, cx: &AsyncCx) -> Result {
        cx.quit(n);
        Ok(())
    }
}

#[test]
fn no_event_is_handled_after_a_handler_that_waits_has_quit() {
    let app = App::new("waiting");
    let numbers = app.source("numbers", || 0..100_u64);
    app.connect(numbers, app.stage("quits", Quits));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    runtime.run();
    assert_eq!(runtime.quit_with::<u64>(), Some(0));
    assert_eq!(runtime.snapshot().stage("quits").unwrap().counts.handled, 1);
}

#[test]
fn a_handler_that_panics_with_events_that_panic_when_dropped_costs_one_event() {
    struct Bombs;
    impl AsyncStage for Bombs {
        type In = u64;
        type Ports = Out<Armed>;
        async fn handle(&self, n: u64, out: &mut Emissions<Out<Armed>>, _: &AsyncCx) -> Result {
            out.send(Armed);
            out.send(Armed);
            if n == 1 {
                yields(1).await;
            }
            panic!("with two of them sent");
        }
    }
    struct Armed;
    impl Drop for Armed {
        fn drop(&mut self) {
            panic!("armed");
        }
    }
    watched("bombs", || {
        let app = App::new("waiting");
        let numbers = app.source("numbers", || 0..2_u64);
        let bombs = app.stage("bombs", Bombs);
        app.connect(numbers, bombs);
        app.connect_local(bombs, app.sink("end", |armed: Armed| std::mem::forget(armed)));
        let summary = ends("bombs", app.start(&Plan::new()).unwrap());
        assert_eq!(stage(&summary.snapshot, "bombs").counts.failed, 2, "{summary}");
    });
}

#[test]
fn faults_are_injected_into_every_try() {
    let app = sleepers(vec![1, 1]);
    let plan = Plan::new().stage("wait", |wait| wait.tries(3).backoff(SECOND));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.fail_next("wait", "one");
    runtime.fail_next("wait", "two");
    runtime.advance(60 * SECOND);
    let counts = runtime.snapshot().stage("wait").unwrap().counts;
    assert_eq!((counts.handled, counts.retried, counts.failed), (2, 2, 0));
}

#[test]
fn a_stage_that_waits_cannot_be_reset() {
    let app = sleepers(vec![1]);
    let plan = Plan::new().stage("wait", |wait| wait.on_panic(OnPanic::Reset));
    let refused = app.rehearse(&plan).unwrap_err();
    assert!(refused[0].to_string().contains("cannot be reset"), "{}", refused[0]);
    let every = Plan::new().every(|stage| stage.on_panic(OnPanic::Reset));
    assert!(app.rehearse(&every).is_ok(), "what is said of all holds where it can");
}
