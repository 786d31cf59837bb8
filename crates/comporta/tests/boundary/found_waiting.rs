//! What somebody found who wrote programs to break handlers that wait, gateways and what stands around them.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use comporta::testing::{TestRuntime, record};
use comporta::{
    App, AsyncCx, AsyncStage, Client, Emissions, Error, Failed, Out, Plan, Refusal, Result, Retry,
    Snapshot,
};

use crate::bounded::{BOUND, STUCK_AFTER, ends, stage, thread, under_every_policy, until};

const SECOND: Duration = Duration::from_secs(1);

/// Is woken, and waits on, so many times.
async fn yields(mut n: usize) {
    poll_fn(|cx| {
        if n == 0 {
            return Poll::Ready(());
        }
        n -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// What handlers wait for until it is opened.
#[derive(Clone, Default)]
struct Door(Arc<(AtomicBool, Mutex<Vec<Waker>>)>);

impl Door {
    async fn pass(self) {
        poll_fn(|cx| {
            self.0.1.lock().unwrap().push(cx.waker().clone());
            if self.0.0.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn open(&self) {
        self.0.0.store(true, SeqCst);
        let waiting = std::mem::take(&mut *self.0.1.lock().unwrap());
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Sends each number back four times, one smaller: a crawler that finds four links on every page.
struct Crawl;

impl AsyncStage for Crawl {
    type In = u64;
    type Ports = Out<u64>;
    async fn handle(&self, depth: u64, out: &mut Emissions<Out<u64>>, cx: &AsyncCx) -> Result {
        cx.sleep(Duration::from_micros(100)).await;
        (0..4).filter(|_| depth > 0).for_each(|_| out.send(depth - 1));
        Ok(())
    }
}

/// When the instances that poll all wait for room in the queue of their own stage, no flight can act any more, although
/// it counts as one that can: the cycle is never found to be stuck, and the program never ends. (The same stage without
/// the sleep sheds with reason `cycle` and ends.)
#[test]
fn a_cycle_that_grows_through_a_handler_that_waits_never_stalls() {
    fn case(plan: Plan, label: &str) {
        let app = App::new("crawling");
        let crawl = app.stage("crawl", Crawl).autostart(4);
        app.connect(crawl, crawl);
        let plan = plan.stage("crawl", |crawl| crawl.instances(50).capacity(2));
        let summary = ends(label, app.start(&plan).unwrap());
        assert!(summary.snapshot.adds_up(), "{label}: {summary}");
    }
    under_every_policy(case);
}

/// `gateway -> wait -> replies`, with requests that are to be answered within so long.
fn answering(within: Duration) -> (App, Client<u64, u64>) {
    let app = App::new("late");
    let gateway = app.gateway::<u64, u64>("gateway");
    let wait = app.map_async("wait", |n: u64| async move {
        if n > 0 {
            std::future::pending::<()>().await;
        }
        n
    });
    app.connect(gateway.requests, wait);
    app.connect(wait, gateway.replies);
    let client = gateway.client.within(within);
    (app, client)
}

/// The alarm of a client and the time limit of a handler are due at one moment, and a request may be late before
/// anybody takes it. Whoever notices first, it is the deadline that the client is told of: it had not given up.
#[test]
fn a_request_that_is_late_is_refused_for_its_deadline_whoever_notices_first() {
    for (within, n) in [(Duration::ZERO, 0), (Duration::ZERO, 1), (Duration::from_millis(1), 1)] {
        let (app, client) = answering(within);
        let running = app.start(&Plan::new().threads(2)).unwrap();
        for _ in 0..50 {
            assert_eq!(client.request_blocking(n), Err(Refusal::Deadline), "{within:?}");
        }
        drop(client);
        let summary = ends("late requests", running);
        let counts = summary.snapshot.stage("gateway").unwrap().gateway.unwrap();
        assert_eq!((counts.requests, counts.expired, counts.in_flight), (50, 50, 0));
        assert!(summary.snapshot.adds_up(), "{summary}");
    }
    let (app, client) = answering(Duration::from_secs(5));
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert_eq!(runtime.complete(client.request(1)), Some(Err(Refusal::Deadline)));
}

/// An event of a plain input passes a request that waits in the same ordered stage. What the request owes was still in
/// the ports of the instance that had polled it, and went with the result of the other: a stranger's reply.
#[test]
fn in_an_ordered_stage_no_event_answers_a_request_that_waits_beside_it() {
    let app = App::new("mixed");
    let gateway = app.gateway::<u64, u64>("gateway");
    let (sender, plain) = app.input::<u64>("plain");
    let door = Door::default();
    let way = door.clone();
    let ask = app.map_async("ask", move |n: u64| {
        let way = way.clone();
        async move {
            if n == 100 {
                yields(3).await;
                way.pass().await;
            }
            n
        }
    });
    let ask = ask.ordered();
    let small = app.filter("small", |n: &u64| *n < 100); // the request leads to no reply
    app.connect(gateway.requests, ask);
    app.connect(plain, ask);
    app.connect(ask, small);
    app.connect(small, gateway.replies);
    let client = gateway.client;
    let plan = Plan::new().threads(1).stage("ask", |ask| ask.instances(10));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    let mut request = Box::pin(client.request(100));
    assert!(request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    runtime.run_until_idle();
    sender.try_send(7).unwrap();
    runtime.run_until_idle();
    door.open();
    assert_eq!(runtime.complete(request), Some(Err(Refusal::NoReply)));
}

/// A token that was made for a flight which wakes itself was used to begin events, also when no more results might
/// wait behind the oldest.
#[test]
fn results_that_wait_behind_the_oldest_are_bounded_while_others_wake_themselves() {
    const MOST: usize = 4;
    let app = App::new("ordered");
    let numbers = app.source("numbers", || 0..u64::MAX);
    let (door, polls) = (Door::default(), Arc::new(AtomicUsize::new(0)));
    let (way, count) = (door.clone(), polls.clone());
    let ask = app.map_async("ask", move |n: u64| {
        let (way, count) = (way.clone(), count.clone());
        async move {
            if n == 0 {
                way.clone().pass().await;
            }
            while n == 1 && !way.0.0.load(SeqCst) {
                count.fetch_add(1, SeqCst);
                yields(1).await;
            }
            n
        }
    });
    let ask = ask.ordered();
    app.connect(numbers, ask);
    app.connect(ask, app.sink("end", |_: u64| ()));
    let plan = Plan::new().threads(1).stage("ask", |ask| ask.instances(MOST));
    let running = app.start(&plan).unwrap();
    until("polls", || polls.load(SeqCst) > 10_000);
    let in_flight = stage(&running.snapshot(), "ask").in_flight;
    door.open();
    assert!(in_flight <= 5 * MOST, "{in_flight} events of an ordered stage of {MOST}");
    assert!(running.drain().snapshot.adds_up());
}

/// Flights that fail in one visit stop at the room of the error port, as those that send do.
#[test]
fn flights_that_fail_together_keep_to_the_room_of_the_error_port() {
    const EVENTS: usize = 200;
    let app = App::new("errors");
    let numbers = app.source("numbers", || 0..EVENTS as u64);
    let door = Door::default();
    let way = door.clone();
    let fail = app.try_map_async("fail", move |n: u64| {
        let way = way.clone();
        async move {
            way.pass().await;
            if n < u64::MAX { Err(Error::msg("no")) } else { Ok(n) }
        }
    });
    app.connect(numbers, fail);
    app.connect(fail, app.sink("end", |_: u64| ()));
    app.connect(fail.errors(), app.sink("dead", |_: Failed<u64>| ()));
    let plan = Plan::new()
        .threads(1)
        .stage("fail", |fail| fail.instances(EVENTS))
        .stage("dead", |dead| dead.capacity(1));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("dead");
    runtime.run_until_idle();
    door.open();
    runtime.run_until_idle();
    let dead = runtime.snapshot().stage("dead").unwrap().clone();
    assert!(dead.outboxed <= 4, "{} events beyond the room for one", dead.outboxed);
    runtime.resume("dead");
    assert!(runtime.run());
    assert_eq!(runtime.snapshot().stage("dead").unwrap().counts.handled, EVENTS as u64);
}

/// The first event begins flushes and gives them up, each within `emit_max`; then it waits.
struct GivesUp;

impl AsyncStage for GivesUp {
    type In = u64;
    type Ports = Out<u64>;
    const FLUSHES: bool = true;
    async fn handle(&self, n: u64, out: &mut Emissions<Out<u64>>, cx: &AsyncCx) -> Result {
        if n > 0 {
            yields(1).await;
            out.send(n);
            return Ok(());
        }
        for _ in 0..3 {
            (0..40).for_each(|_| out.send(0));
            let mut flush = Box::pin(out.flush());
            poll_fn(|cx| {
                let _ = flush.as_mut().poll(cx);
                Poll::Ready(())
            })
            .await;
        }
        cx.sleep(SECOND).await;
        Ok(())
    }
}

/// Together they were a flood, of which nobody was told: events were dropped, and another event failed for it.
#[test]
fn flushes_that_were_given_up_lose_nothing_and_fail_no_other_event() {
    let app = App::new("flushes");
    let numbers = app.source("numbers", || 0..5_u64);
    let flush = app.stage("flush", GivesUp);
    app.connect(numbers, flush);
    let seen = record(&app, flush);
    let plan = Plan::new().threads(1).stage("flush", |flush| flush.emit_max(50).instances(5));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.run());
    let (zeros, mut others): (Vec<_>, Vec<_>) = seen.take().into_iter().partition(|n| *n == 0);
    others.sort_unstable();
    let failures = runtime.control().failures("flush").unwrap();
    assert_eq!(others, [1, 2, 3, 4], "{failures:?}");
    // What was flushed first has moved on; the rest is more than the event may send, and it has failed for that.
    assert_eq!((zeros.len(), failures.len()), (40, 1), "{failures:?}");
    assert!(failures[0].partial);
}

/// Polls a flush twice at once, as combinators with wakers of their own may.
struct PollsTwice;

impl AsyncStage for PollsTwice {
    type In = u64;
    type Ports = Out<u64>;
    const FLUSHES: bool = true;
    async fn handle(&self, n: u64, out: &mut Emissions<Out<u64>>, _: &AsyncCx) -> Result {
        out.send(n);
        let mut flush = Box::pin(out.flush());
        let mut early = false;
        poll_fn(|cx| {
            early = flush.as_mut().poll(cx).is_ready() || flush.as_mut().poll(cx).is_ready();
            Poll::Ready(())
        })
        .await;
        if early { Err(Error::msg("flushed, and nothing was sent")) } else { flush.await }
    }
}

#[test]
fn a_flush_has_not_returned_before_it_was_sent_however_often_it_is_polled() {
    let app = App::new("flushes");
    let numbers = app.source("numbers", || 0..10_u64);
    let flush = app.stage("flush", PollsTwice);
    app.connect(numbers, flush);
    app.connect(flush, app.sink("end", |_: u64| ()));
    let mut runtime = TestRuntime::new(app, &Plan::new().every(|stage| stage.capacity(1))).unwrap();
    assert!(runtime.run());
    assert_eq!(runtime.control().failures("flush").unwrap(), []);
    assert_eq!(runtime.snapshot().stage("end").unwrap().counts.handled, 10);
}

/// A waker that does not return before it is let go.
struct Stuck(Mutex<Option<Receiver<()>>>);

impl Wake for Stuck {
    fn wake(self: Arc<Self>) {
        let until = self.0.lock().unwrap().take();
        if let Some(until) = until {
            let _ = until.recv();
        }
    }
}

#[test]
fn a_waker_that_does_not_return_keeps_no_other_client_from_its_deadline() {
    let (app, client) = answering(SECOND);
    let plan = Plan::new().stuck_after(STUCK_AFTER).stage("wait", |wait| wait.instances(10));
    let running = app.start(&plan).unwrap();
    let (let_go, until) = channel();
    let waker = Waker::from(Arc::new(Stuck(Mutex::new(Some(until)))));
    let hasty = client.clone().within(Duration::from_millis(1));
    let mut first = Box::pin(hasty.request(1));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let later = client.within(Duration::from_millis(50));
    let (tell, told) = channel();
    let other = thread(move || tell.send(later.request_blocking(2)));
    let outcome = told.recv_timeout(BOUND);
    drop(let_go);
    assert_eq!(outcome, Ok(Err(Refusal::Deadline)));
    drop(first);
    drop(running.stop());
    let _ = other.join();
}

#[test]
fn a_request_that_waits_for_room_at_a_stop_is_counted_as_cancelled() {
    const REQUESTS: u64 = 6;
    for _ in 0..20 {
        let app = App::new("stopped");
        // Declared before the gateway, and so stopped before it.
        let wait = app.map_async("wait", |n: u64| async move {
            std::future::pending::<()>().await;
            n
        });
        let gateway = app.gateway::<u64, u64>("gateway");
        app.connect(gateway.requests, wait);
        app.connect(wait, gateway.replies);
        let client = gateway.client;
        let running = app.start(&Plan::new().stage("wait", |wait| wait.capacity(1))).unwrap();
        let ask = |n| {
            let client = client.clone();
            thread(move || client.request_blocking(n))
        };
        let clients: Vec<_> = (0..REQUESTS).map(ask).collect();
        let counts = |snapshot: &Snapshot| stage(snapshot, "gateway").gateway.unwrap();
        until("six wait", || counts(&running.snapshot()).in_flight == 6);
        let summary = running.stop();
        for client in clients {
            assert_eq!(client.join().unwrap(), Err(Refusal::Cancelled));
        }
        // A client that has yet to hear of it is still in flight in the snapshot of the stop.
        let counts = counts(&summary.snapshot);
        let told = counts.cancelled + counts.in_flight as u64;
        assert_eq!((told, counts.abandoned), (REQUESTS, 0), "{counts:?}");
    }
}

#[test]
fn an_event_whose_deadline_passes_before_it_is_tried_again_fails_then() {
    let app = App::new("late");
    let numbers = app.source("numbers", || 0..2_u64);
    let fail = app.try_map_async("fail", |n: u64| async move {
        yields(n as usize).await;
        if n < 2 { Err(Error::msg("no")) } else { Ok(n) }
    });
    app.connect(numbers, fail);
    app.connect(fail, app.sink("end", |_: u64| ()));
    let hour = 3600 * SECOND;
    let plan = Plan::new()
        .stage("numbers", |numbers| numbers.deadline(SECOND))
        .stage("fail", |fail| fail.instances(2).retry(Retry::new(3, hour).backoff_max(hour)));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.advance(SECOND);
    let counts = runtime.snapshot().stage("fail").unwrap().counts;
    assert_eq!((counts.retried, counts.failed), (2, 2), "an hour before they would be tried again");
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

/// The closure of a stage is dropped with the program, after its instances: what it panics with came out of `run`, or
/// ended a thread.
#[test]
fn a_stage_that_panics_when_it_is_dropped_at_the_end_costs_nothing() {
    for waits in [true, false].repeat(20) {
        let app = App::new("bombs");
        let numbers = app.source("numbers", || 0..5_u64);
        let bomb = Arc::new(Bomb);
        let hold = move |_: &u64| drop(Arc::downgrade(&bomb));
        if waits {
            let end = app.sink_async("end", move |n: u64| {
                hold(&n);
                async {}
            });
            app.connect(numbers, end);
        } else {
            app.connect(numbers, app.sink("end", move |n: u64| hold(&n)));
        }
        let running = app.start(&Plan::new()).unwrap();
        let control = running.control();
        let summary = ends("bombs", running);
        assert_eq!(stage(&summary.snapshot, "end").counts.handled, 5, "{summary}");
        drop(control); // the last that holds the run
    }
}
