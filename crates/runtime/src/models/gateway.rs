//! Models of a request's slot: a reply, its deadline, a stop and the client that goes come at the same moment.
//! Each request has one outcome, whoever waits for it is woken, and the counts of the gateway say so.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use comporta_model::plan::Plan;
use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use super::{dawdle, explore, start};
use crate::app::App;
use crate::core::Core;
use crate::gateway::{Client, Refusal};
use crate::running::Running;
use crate::snapshot::GatewaySnapshot;

const DEADLINE: Duration = Duration::from_secs(1);

/// A gateway whose graph replies so many times.
fn replying(times: usize, deadline: bool) -> (Running, Arc<Core>, Client<u32, u32>) {
    let app = App::new("gateway");
    let gateway = app.gateway::<u32, u32>("gateway");
    let work = app.flat_map("work", move |n: u32| vec![n + 1; times]);
    app.connect(gateway.requests, work);
    app.connect(work, gateway.replies);
    let client = gateway.client;
    let plan = Plan::new().threads(2);
    let plan = if deadline { plan.stage("gateway", |s| s.deadline(DEADLINE)) } else { plan };
    let (running, core) = start(app, &plan);
    (running, core, client)
}

/// The clock: after a while the deadline passes. It sounds what is due until it is stopped.
struct TestClock {
    over: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl TestClock {
    fn start(core: Arc<Core>, after: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let stopped = over.clone();
        let thread = thread::spawn(move || {
            dawdle(after);
            core.clock.advance(DEADLINE);
            while !stopped.load(SeqCst) {
                let mut due = Vec::new();
                core.timers.due(core.clock.now(), &mut due);
                due.into_iter().for_each(|alarm| core.sound(alarm));
                thread::yield_now();
            }
        });
        TestClock { over, thread }
    }

    fn stop(self) {
        self.over.store(true, SeqCst);
        self.thread.join().unwrap();
    }
}

/// The program ends, and has counted one request with one outcome.
fn ended(running: Running) -> GatewaySnapshot {
    let summary = running.wait();
    assert!(summary.snapshot.adds_up(), "{summary}");
    let counts = summary.snapshot.stage("gateway").unwrap().gateway.unwrap();
    assert_eq!((counts.requests, counts.in_flight), (1, 0), "{counts:?}");
    counts
}

#[test]
fn of_a_reply_and_the_deadline_one_is_the_outcome() {
    explore(|| {
        let (running, core, client) = replying(1, true);
        let clock = TestClock::start(core, 30);
        let outcome = client.request_blocking(4);
        clock.stop();
        drop(client);
        let counts = ended(running);
        match outcome {
            Ok(reply) => assert_eq!((reply, counts.replied, counts.expired), (5, 1, 0)),
            Err(Refusal::Deadline) => assert_eq!((counts.replied, counts.expired), (0, 1)),
            // What is late is shed where it is taken, which may be before the clock says so.
            Err(Refusal::Shed { .. }) => assert_eq!((counts.replied, counts.shed), (0, 1)),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn of_two_replies_one_is_the_outcome_and_the_other_is_counted() {
    explore(|| {
        let (running, _, client) = replying(2, false);
        assert_eq!(client.request_blocking(4), Ok(5));
        drop(client);
        let counts = ended(running);
        assert_eq!((counts.replied, counts.unclaimed), (1, 1));
    });
}

#[test]
fn of_a_reply_and_a_stop_one_is_the_outcome() {
    explore(|| {
        let (running, _, client) = replying(1, false);
        let asker = thread::spawn(move || client.request_blocking(4));
        dawdle(30);
        let summary = running.stop();
        let outcome = asker.join().unwrap();
        let counts = summary.snapshot.stage("gateway").unwrap().gateway.unwrap();
        assert!(counts.adds_up() && counts.in_flight == 0, "{counts:?}");
        match outcome {
            Ok(reply) => assert_eq!((reply, counts.replied, counts.cancelled), (5, 1, 0)),
            Err(Refusal::Cancelled) => assert_eq!((counts.replied, counts.cancelled), (0, 1)),
            Err(Refusal::Closed(4)) => assert_eq!(counts.requests, 0),
            other => panic!("{other:?}"),
        }
    });
}

/// Counts its wake-ups, and lets a thread wait for one.
#[derive(Default)]
struct Alarm(Mutex<bool>, Condvar);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }
}

#[test]
fn a_client_that_goes_at_any_moment_is_counted_once() {
    explore(|| {
        let (running, core, client) = replying(1, true);
        let clock = TestClock::start(core, 20);
        let waker = Waker::from(Arc::new(Alarm::default()));
        let outcome = {
            let mut request = pin!(client.request(4));
            let mut cx = Context::from_waker(&waker);
            let first = request.as_mut().poll(&mut cx);
            dawdle(20);
            if first.is_pending() { request.as_mut().poll(&mut cx) } else { first }
        };
        clock.stop();
        drop(client);
        let counts = ended(running);
        match outcome {
            Poll::Ready(Ok(5)) => assert_eq!((counts.replied, counts.abandoned), (1, 0)),
            Poll::Ready(Err(_)) => assert_eq!(counts.expired + counts.shed, 1, "{counts:?}"),
            // It went before it saw what became of its request, which may have had an outcome.
            Poll::Pending => assert_eq!(
                counts.abandoned + counts.replied + counts.expired + counts.shed,
                1,
                "{counts:?}"
            ),
            other @ Poll::Ready(_) => panic!("{other:?}"),
        }
    });
}

#[test]
fn whoever_waits_is_woken_whichever_comes_first() {
    explore(|| {
        let (running, core, client) = replying(1, true);
        let clock = TestClock::start(core, 0);
        let alarm = Arc::new(Alarm::default());
        let waker = Waker::from(alarm.clone());
        let mut request = Box::pin(client.request(4));
        while request.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            // A wake-up that is lost leaves this thread, and with it all, waiting for ever.
            let mut woken = alarm.0.lock().unwrap();
            while !std::mem::take(&mut *woken) {
                woken = alarm.1.wait(woken).unwrap();
            }
        }
        drop(request);
        clock.stop();
        drop(client);
        let _ = ended(running);
    });
}
