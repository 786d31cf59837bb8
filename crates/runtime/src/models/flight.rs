//! Models of events in flight: a wake-up that comes from another thread, from the poll itself or too late,
//! while workers park and poll flights; their results in order; a stop at any moment.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use comporta_model::async_stage::{AsyncCx, AsyncStage, Emissions};
use comporta_model::error::Result;
use comporta_model::plan::Plan;
use comporta_model::port::Out;
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use super::{Seen, explore, handled, in_order, start, summary};
use crate::app::App;

/// What events wait for: a thread lets them go one by one, as they come.
#[derive(Clone, Default)]
struct World(Arc<(Mutex<Waiting>, Condvar)>);

#[derive(Default)]
struct Waiting {
    wakers: BTreeMap<u32, Waker>,
    ready: Vec<u32>,
    closed: bool,
}

impl World {
    async fn answer(self, n: u32) -> u32 {
        poll_fn(|cx| {
            let (waiting, came) = &*self.0;
            let mut waiting = waiting.lock().unwrap();
            if waiting.ready.contains(&n) {
                return Poll::Ready(n);
            }
            waiting.wakers.insert(n, cx.waker().clone());
            came.notify_one();
            Poll::Pending
        })
        .await
    }

    /// Lets `n` go, one by one, the latest first.
    fn let_go(&self, n: usize) {
        let (waiting, came) = &*self.0;
        for _ in 0..n {
            let mut waiting = waiting.lock().unwrap();
            let waker = loop {
                if waiting.closed {
                    return;
                }
                if let Some((n, waker)) = waiting.wakers.pop_last() {
                    waiting.ready.push(n);
                    break waker;
                }
                waiting = came.wait(waiting).unwrap();
            };
            drop(waiting);
            waker.wake();
        }
    }

    fn close(&self) {
        self.0.0.lock().unwrap().closed = true;
        self.0.1.notify_all();
    }
}

/// `source -> ask -> end`, three events.
fn asking(ordered: bool, world: &World, seen: &Seen<u32>) -> App {
    let app = App::new("flight");
    let source = app.source("source", || 0..3u32);
    let of = world.clone();
    let ask = app.map_async("ask", move |n: u32| of.clone().answer(n));
    let ask = if ordered { ask.ordered() } else { ask };
    let see = seen.clone();
    let end = app.sink("end", move |n: u32| see.see(n));
    app.connect(source, ask);
    app.connect(ask, end);
    app
}

fn plan(in_flight: usize) -> Plan {
    let plan = Plan::new().threads(2).stage("ask", |ask| ask.instances(in_flight));
    plan.stage("end", |end| end.capacity(1))
}

fn all_are_answered(in_flight: usize) {
    let (world, seen) = (World::default(), Seen::new());
    let app = asking(false, &world, &seen);
    let waker = thread::spawn({
        let world = world.clone();
        move || world.let_go(3)
    });
    let _ = summary(app, &plan(in_flight));
    waker.join().unwrap();
    let mut all = seen.all();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2]);
}

#[test]
fn a_wake_up_is_never_lost() {
    explore(|| all_are_answered(1));
    explore(|| all_are_answered(2));
    explore(|| all_are_answered(3));
}

#[test]
fn results_of_flights_leave_in_order() {
    explore(|| {
        let (world, seen) = (World::default(), Seen::new());
        let app = asking(true, &world, &seen);
        let waker = thread::spawn({
            let world = world.clone();
            move || world.let_go(3)
        });
        let _ = summary(app, &plan(3));
        waker.join().unwrap();
        in_order(&seen.all(), &[0], 3);
    });
}

#[test]
fn a_future_that_wakes_itself_is_polled_again_also_if_another_is_polled_meanwhile() {
    explore(|| {
        let app = App::new("flight");
        let source = app.source("source", || 0..3u32);
        let ask = app.map_async("ask", |n: u32| {
            let mut left = 2;
            poll_fn(move |cx| {
                if left == 0 {
                    return Poll::Ready(n);
                }
                left -= 1;
                cx.waker().wake_by_ref();
                Poll::Pending
            })
        });
        let end = app.sink("end", |_: u32| ());
        app.connect(source, ask);
        app.connect(ask, end);
        let summary = summary(app, &plan(2));
        assert_eq!(handled(&summary, "end"), 3);
    });
}

#[test]
fn a_stop_at_any_moment_leaves_no_flight_uncounted() {
    explore(|| {
        let (world, seen) = (World::default(), Seen::new());
        let app = asking(false, &world, &seen);
        let waker = thread::spawn({
            let world = world.clone();
            move || world.let_go(2)
        });
        let (running, _) = start(app, &plan(3));
        let summary = running.stop();
        world.close();
        waker.join().unwrap();
        assert!(summary.snapshot.adds_up(), "{summary}");
        let held = summary.snapshot.stages.iter().map(|stage| stage.queued + stage.in_flight);
        assert_eq!(held.sum::<usize>(), 0, "{summary}");
    });
}

/// Sends its event twice, each time by itself.
struct Twice;

impl AsyncStage for Twice {
    type In = u32;
    type Ports = Out<u32>;
    const FLUSHES: bool = true;
    async fn handle(&self, n: u32, out: &mut Emissions<Out<u32>>, _: &AsyncCx) -> Result {
        out.send(n);
        out.flush().await?;
        out.send(n);
        Ok(())
    }
}

#[test]
fn a_flight_that_flushed_goes_on_when_that_found_room() {
    explore(|| {
        let app = App::new("flight");
        let source = app.source("source", || 0..3u32);
        let ask = app.stage("ask", Twice);
        let end = app.sink("end", |_: u32| ());
        app.connect(source, ask);
        app.connect(ask, end);
        let summary = summary(app, &plan(2));
        assert_eq!(handled(&summary, "end"), 6);
    });
}

#[test]
fn flights_that_two_threads_wake_at_once_are_all_polled() {
    explore(|| {
        let (world, seen) = (World::default(), Seen::new());
        let app = asking(false, &world, &seen);
        let wakers = [2, 1].map(|n| {
            let world = world.clone();
            thread::spawn(move || world.let_go(n))
        });
        let _ = summary(app, &plan(3));
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
        let mut all = seen.all();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    });
}
