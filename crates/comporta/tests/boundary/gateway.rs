//! A request through a gateway has one outcome, whatever becomes of the events it leads to, and leaves nothing
//! behind.
//! Long because every way a request can end is here, told by the same few functions.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::windows;
use comporta::{
    App, AsyncCx, AsyncStage, Client, Cx, Emissions, Ended, Error, Ev, Gateway, GatewaySnapshot,
    Obligation, Out, Plan, Refusal, Result, Retry, Shed, Stage, WhenFull, batched,
};

use crate::bounded::{
    BOUND, Gate, THREADS, Way, ends, stage, thread, under_policies, until, watched,
};

const HOUR: Duration = Duration::from_secs(3_600);

type Outcome = std::result::Result<u64, Refusal<u64>>;
type Asked<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// A request that has been sent, and has not been answered.
fn ask(client: &Client<u64, u64>, n: u64) -> Asked<'_> {
    let mut asked: Asked<'_> = Box::pin(client.request(n));
    assert_eq!(poll(&mut asked), Poll::Pending);
    asked
}

fn failed(stage: &str, reason: &str) -> Outcome {
    Err(Refusal::Failed { stage: Some(stage.to_owned()), reason: reason.to_owned() })
}

fn gateway(runtime: &TestRuntime) -> GatewaySnapshot {
    let snapshot = runtime.snapshot();
    assert!(snapshot.adds_up(), "{snapshot}");
    let of = |name: &str| snapshot.stage(name).unwrap().gateway.unwrap();
    assert_eq!(of("ask"), of("ask-replies"), "both ends show the same");
    of("ask")
}

/// A gateway `ask` around what `build` puts between its ends, run by hand.
fn by_hand(
    plan: &Plan,
    build: impl FnOnce(&App, Gateway<'_, u64, u64>),
) -> (TestRuntime, Client<u64, u64>) {
    let app = App::new("asked");
    let gateway = app.gateway::<u64, u64>("ask");
    let client = gateway.client.clone();
    build(&app, gateway);
    (TestRuntime::new(app, plan).unwrap(), client)
}

/// The same around one stage `work`.
fn around(plan: &Plan, work: fn(u64) -> Result<u64>) -> (TestRuntime, Client<u64, u64>) {
    by_hand(plan, |app, gateway| {
        let work = app.try_map("work", work);
        app.connect(gateway.requests, work);
        app.connect(work, gateway.replies);
    })
}

#[test]
fn a_reply_comes_back_through_every_kind_of_stage() {
    let (mut runtime, client) = by_hand(&Plan::new().every(|s| s.batch(2)), |app, gateway| {
        let one = app.map("one", |n: u64| n + 1);
        let two = app.map_in_place("two", |n: &mut u64| *n *= 2).ordered();
        let three = app.process("three", |n: u64, out: &mut Out<u64>| out.send(n * 10));
        let four = app.filter("four", |n: &u64| *n > 0).stateful();
        app.connect(gateway.requests, one);
        app.connect(one, two);
        app.connect(two, three);
        app.connect(three, four);
        app.connect(four, gateway.replies);
    });
    let mut asked: Vec<_> = (0..100).map(|n| ask(&client, n)).collect();
    runtime.run_until_idle();
    for (n, asked) in (0..).zip(&mut asked) {
        assert_eq!(poll(asked), Poll::Ready(Ok((n + 1) * 20)));
    }
    let seen = gateway(&runtime);
    assert_eq!((seen.requests, seen.replied, seen.in_flight), (100, 100, 0));
}

#[test]
fn of_two_replies_the_first_is_returned_and_the_other_is_counted() {
    let (mut runtime, client) = by_hand(&Plan::new(), |app, gateway| {
        let slow = app.map("slow", |n: u64| n + 1);
        let fast = app.map("fast", |n: u64| n + 2);
        app.connect(gateway.requests, slow);
        app.connect(gateway.requests, fast);
        app.connect(slow, gateway.replies);
        app.connect(fast, gateway.replies);
    });
    runtime.hold("slow");
    let mut asked = ask(&client, 0);
    runtime.run_until_idle();
    assert_eq!(poll(&mut asked), Poll::Ready(Ok(2)));
    drop(asked);
    runtime.resume("slow");
    runtime.run_until_idle();
    let seen = gateway(&runtime);
    assert_eq!((seen.replied, seen.unclaimed, seen.abandoned), (1, 1, 0));
    let slow = runtime.snapshot().stage("slow").unwrap().counts;
    assert_eq!(slow.handled, 1, "what an answered request led to is handled");
}

#[test]
fn a_request_is_answered_by_the_branch_that_does_not_fail() {
    let (mut runtime, client) = by_hand(&Plan::new(), |app, gateway| {
        let bad = app.try_map("bad", |_: u64| Err::<u64, _>(Error::msg("bad")));
        let good = app.map("good", |n: u64| n);
        app.connect(gateway.requests, bad);
        app.connect(gateway.requests, good);
        app.connect(bad, gateway.replies);
        app.connect(good, gateway.replies);
    });
    runtime.hold("good");
    let mut asked = ask(&client, 7);
    runtime.run_until_idle();
    assert_eq!(poll(&mut asked), Poll::Pending, "there may be a reply yet");
    runtime.resume("good");
    runtime.run_until_idle();
    assert_eq!(poll(&mut asked), Poll::Ready(Ok(7)));
}

#[test]
fn a_request_that_fails_is_told_where_and_why() {
    let (mut runtime, client) = around(&Plan::new(), |n| match n {
        0 => Err(Error::msg("no zeros")),
        1 => panic!("no ones"),
        n => Ok(n),
    });
    assert_eq!(runtime.complete(client.request(0)), Some(failed("work", "no zeros")));
    let Some(Err(Refusal::Failed { stage, reason })) = runtime.complete(client.request(1)) else {
        panic!("it did not fail")
    };
    assert_eq!(stage.as_deref(), Some("work"));
    assert!(reason.ends_with("no ones"), "{reason}");
    assert_eq!(runtime.complete(client.request(2)), Some(Ok(2)));
    // Of events that share a chunk, each is told its own.
    let mut asked: Vec<_> = (0..4).map(|n| ask(&client, n * 2)).collect();
    runtime.run_until_idle();
    let told: Vec<_> = asked.iter_mut().map(poll).collect();
    let ok = |n| Poll::Ready(Ok(n));
    assert_eq!(told, [Poll::Ready(failed("work", "no zeros")), ok(2), ok(4), ok(6)]);
}

#[test]
fn a_request_is_tried_again_like_any_event() {
    let plan = Plan::new().stage("work", |s| s.retry(Retry::new(3, Duration::from_secs(1))));
    let (mut runtime, client) = around(&plan, Ok);
    runtime.fail_next("work", "once");
    runtime.fail_next("work", "twice");
    assert_eq!(runtime.complete(client.request(5)), Some(Ok(5)));
    (0..3).for_each(|_| runtime.fail_next("work", "for good"));
    assert_eq!(runtime.complete(client.request(6)), Some(failed("work", "for good")));
}

#[test]
fn a_request_given_up_is_not_tried_again() {
    let plan = Plan::new().stage("work", |s| s.retry(Retry::new(9, HOUR).jitter(false)));
    for (ordered, waits) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut runtime, client) = by_hand(&plan, |app, gateway| {
            let work = if waits {
                app.map_async("work", |n: u64| async move { n })
            } else {
                app.map("work", |n: u64| n)
            };
            let work = if ordered { work.ordered() } else { work };
            app.connect(gateway.requests, work);
            app.connect(work, gateway.replies);
        });
        let case = format!("ordered: {ordered}, waits: {waits}");
        runtime.fail_next("work", "at first");
        let asked = ask(&client, 1);
        let mut other = ask(&client, 2);
        runtime.run_until_idle();
        drop(asked);
        runtime.advance(2 * HOUR);
        assert_eq!(poll(&mut other), Poll::Ready(Ok(2)), "{case}");
        let counts = runtime.snapshot().stage("work").unwrap().counts;
        assert_eq!((counts.handled, counts.shed(Shed::Abandoned)), (1, 1), "{case}");
        assert_eq!(gateway(&runtime).in_flight, 0);
    }
}

#[test]
fn a_request_that_leads_to_no_reply_is_told_so() {
    let (mut runtime, client) = by_hand(&Plan::new(), |app, gateway| {
        let odd = app.filter("odd", |n: &u64| n % 2 == 1);
        app.connect(gateway.requests, odd);
        app.connect(odd, gateway.replies);
    });
    assert_eq!(runtime.complete(client.request(2)), Some(Err(Refusal::NoReply)));
    assert_eq!(runtime.complete(client.request(3)), Some(Ok(3)));
}

#[test]
fn one_reply_answers_all_requests_of_a_batch_and_of_a_window() {
    let (mut runtime, client) = by_hand(&Plan::new(), |app, gateway| {
        let sum = batched(4, HOUR, |ns: Vec<u64>, out: &mut Out<u64>| out.send(ns.iter().sum()));
        let sum = app.stage("sum", sum);
        app.connect(gateway.requests, sum);
        app.connect(sum, gateway.replies);
    });
    let mut asked: Vec<_> = (0..4).map(|n| ask(&client, n)).collect();
    runtime.run_until_idle();
    assert!(asked.iter_mut().all(|asked| poll(asked) == Poll::Ready(Ok(6))));

    let (mut runtime, client) = by_hand(&Plan::new(), |app, gateway| {
        let pairs = app.stage("pairs", windows::by_count(3));
        let sum = app.map("sum", |w: windows::Window<u64>| w.events.iter().sum::<u64>());
        app.connect(gateway.requests, pairs);
        app.connect(pairs, sum);
        app.connect(sum, gateway.replies);
    });
    let mut asked: Vec<_> = (0..3).map(|n| ask(&client, n)).collect();
    runtime.run_until_idle();
    assert!(asked.iter_mut().all(|asked| poll(asked) == Poll::Ready(Ok(3))));
    assert_eq!(gateway(&runtime).replied, 3);
}

#[test]
fn a_batch_of_some_requests_that_are_given_up_answers_the_others() {
    let (mut runtime, client) = by_hand(&Plan::new(), |app, gateway| {
        let count = batched(3, HOUR, |ns: Vec<u64>, out: &mut Out<u64>| out.send(ns.len() as u64));
        let count = app.stage("count", count);
        app.connect(gateway.requests, count);
        app.connect(count, gateway.replies);
    });
    let (mut one, two) = (ask(&client, 1), ask(&client, 2));
    drop(two);
    let mut three = ask(&client, 3);
    runtime.run_until_idle();
    assert_eq!(poll(&mut one), Poll::Ready(Ok(2)));
    assert_eq!(poll(&mut three), Poll::Ready(Ok(2)));
}

#[test]
fn a_reply_that_cannot_be_copied_answers_one_request_and_no_more() {
    struct Single(u64);
    let app = App::new("asked");
    let gateway = app.gateway_local::<u64, Single>("ask");
    let sum = batched(2, Duration::from_secs(1), |ns: Vec<u64>, out: &mut Out<Single>| {
        out.send(Single(ns.iter().sum()));
    });
    let sum = app.stage("sum", sum);
    app.connect(gateway.requests, sum);
    app.connect_local(sum, gateway.replies);
    let client = gateway.client;
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    let alone = runtime.complete(client.request(4)).unwrap();
    assert_eq!(alone.map(|single| single.0), Ok(4));
    let mut one = Box::pin(client.request(1));
    assert!(poll(&mut one).is_pending());
    let two = runtime.complete(client.request(2)).unwrap().map(|single| single.0);
    let Err(Refusal::Failed { stage, reason }) = two else { panic!("it was answered") };
    assert_eq!(stage.as_deref(), Some("ask-replies"));
    assert!(reason.contains("2 requests"), "{reason}");
    assert!(matches!(poll(&mut one), Poll::Ready(Err(Refusal::Failed { .. }))));
}

#[test]
fn what_is_shed_is_told_by_whom_and_why() {
    for (when_full, reason) in [
        (WhenFull::DropNewest, Shed::Newest),
        (WhenFull::DropOldest, Shed::Oldest),
        (WhenFull::Reject, Shed::Rejected),
    ] {
        let plan = Plan::new().stage("late", |s| s.capacity(1).when_full(when_full));
        let (mut runtime, client) = by_hand(&plan, |app, gateway| {
            let early = app.map("early", |n: u64| n);
            let late = app.map("late", |n: u64| n);
            app.connect(gateway.requests, early);
            app.connect(early, late);
            app.connect(late, gateway.replies);
        });
        runtime.hold("late");
        let mut asked = [ask(&client, 0), ask(&client, 1)];
        runtime.run_until_idle();
        let shed = usize::from(reason != Shed::Oldest);
        let told = Refusal::Shed { stage: "late".to_owned(), reason };
        assert_eq!(poll(&mut asked[shed]), Poll::Ready(Err(told)), "{when_full:?}");
        runtime.resume("late");
        runtime.run_until_idle();
        assert_eq!(poll(&mut asked[1 - shed]), Poll::Ready(Ok(1 - shed as u64)), "{when_full:?}");
    }
}

#[test]
fn a_request_that_cannot_begin_is_given_back() {
    let plan = Plan::new().stage("ask", |s| s.in_flight(2));
    let (mut runtime, client) = around(&plan, Ok);
    let one = ask(&client, 1);
    let mut two = ask(&client, 2);
    assert_eq!(runtime.complete(client.request(3)), Some(Err(Refusal::Rejected(3))));
    drop(one);
    let mut three = ask(&client, 3);
    runtime.run_until_idle();
    assert_eq!((poll(&mut two), poll(&mut three)), (Poll::Ready(Ok(2)), Poll::Ready(Ok(3))));
    let seen = gateway(&runtime);
    assert_eq!((seen.requests, seen.rejected, seen.abandoned), (3, 1, 1));

    let plan = Plan::new().stage("work", |s| s.capacity(1).when_full(WhenFull::Reject));
    let (mut runtime, client) = around(&plan, Ok);
    let _one = ask(&client, 1);
    let full = runtime.complete(client.request(2)).unwrap().unwrap_err();
    assert_eq!(full, Refusal::Rejected(2));
    assert_eq!(full.into_request(), Some(2));
    client.close();
    assert_eq!(runtime.complete(client.request(3)), Some(Err(Refusal::Closed(3))));
    assert_eq!(client.request_blocking(4), Err(Refusal::WouldBlock(4)), "in a test it would hang");
    assert_eq!(gateway(&runtime).requests, 1);

    let plan = Plan::new()
        .stage("work", |s| s.admission("capacity(max=1)".parse::<comporta::Choice>().unwrap()));
    let (mut runtime, client) = around(&plan, Ok);
    let _one = ask(&client, 1);
    let refused = runtime.complete(client.request(2));
    assert_eq!(refused, Some(Err(Refusal::Refused(2, Shed::Capacity))));
}

#[test]
fn a_request_waits_for_room_and_is_answered() {
    let plan = Plan::new().stage("work", |s| s.capacity(1));
    let (mut runtime, client) = around(&plan, Ok);
    let mut asked: Vec<_> = (0..10).map(|n| ask(&client, n)).collect();
    for _ in 0..20 {
        runtime.run_until_idle();
        asked.retain_mut(|asked| poll(asked).is_pending());
    }
    assert!(asked.is_empty());
    assert_eq!(gateway(&runtime).replied, 10);
}

#[test]
fn a_client_gives_up_at_its_deadline_and_nothing_is_done_for_it_any_more() {
    let plan = Plan::new().stage("ask", |s| s.deadline(Duration::from_secs(10)));
    let (mut runtime, client) = around(&plan, Ok);
    runtime.hold("work");
    let mut asked = ask(&client, 1);
    let brief = client.clone().within(Duration::from_secs(1));
    let mut hasty = ask(&brief, 2);
    let patient = client.clone().within(HOUR);
    let mut late = ask(&patient, 3);
    runtime.advance(Duration::from_secs(2));
    assert_eq!(poll(&mut hasty), Poll::Ready(Err(Refusal::Deadline)));
    assert_eq!(poll(&mut asked), Poll::Pending);
    runtime.advance(Duration::from_secs(8));
    assert_eq!(poll(&mut asked), Poll::Ready(Err(Refusal::Deadline)));
    runtime.resume("work");
    runtime.run_until_idle();
    assert_eq!(poll(&mut late), Poll::Ready(Ok(3)));
    let work = runtime.snapshot().stage("work").unwrap().counts;
    assert_eq!((work.handled, work.shed(Shed::Abandoned)), (1, 2));
    let seen = gateway(&runtime);
    assert_eq!((seen.replied, seen.expired, seen.abandoned, seen.in_flight), (1, 2, 0, 0));
}

#[test]
fn a_client_gives_up_at_its_deadline_while_it_waits_for_room() {
    let plan = Plan::new().stage("ask", |s| s.deadline(HOUR)).stage("work", |s| s.capacity(1));
    let (mut runtime, client) = around(&plan, Ok);
    runtime.hold("work");
    let mut asked: Vec<_> = (0..3).map(|n| ask(&client, n)).collect();
    runtime.advance(2 * HOUR);
    assert!(asked.iter_mut().all(|asked| poll(asked) == Poll::Ready(Err(Refusal::Deadline))));
    let work = runtime.snapshot().stage("work").unwrap().clone();
    assert_eq!((work.queued, work.outboxed, work.counts.shed(Shed::Abandoned)), (1, 0, 2));
}

#[test]
fn a_graph_that_never_replies_ends_at_the_deadline() {
    /// Keeps what it is handed.
    #[derive(Clone, Default)]
    struct Keeps(Vec<Obligation>);
    impl Stage for Keeps {
        type In = u64;
        type Ports = Out<u64>;
        const STATEFUL: bool = true;
        fn handle(&mut self, n: Ev<'_, u64>, _: &mut Out<u64>, _: &Cx) -> Result {
            self.0.push(n.hold().obligation);
            Ok(())
        }
    }
    let build = |app: &App, gateway: Gateway<'_, u64, u64>| {
        let keeps = app.stage("keeps", Keeps::default());
        app.connect(gateway.requests, keeps);
        app.connect(keeps, gateway.replies);
    };
    let (mut runtime, client) = by_hand(&Plan::new().stage("ask", |s| s.deadline(HOUR)), build);
    assert_eq!(runtime.complete(client.request(1)), Some(Err(Refusal::Deadline)));
    assert_eq!(runtime.now().as_nanos(), HOUR.as_nanos() as u64);
    let (mut runtime, client) = by_hand(&Plan::new(), build);
    assert_eq!(runtime.complete(client.request(1)), None, "it would wait for ever");
    let mut asked = ask(&client, 2);
    drop(runtime);
    assert_eq!(poll(&mut asked), Poll::Ready(Err(Refusal::Cancelled)));
}

#[test]
fn what_a_handler_drops_has_failed() {
    let (mut runtime, client) = by_hand(&Plan::new(), |app, gateway| {
        struct Drops;
        impl Stage for Drops {
            type In = u64;
            type Ports = Out<u64>;
            fn handle(&mut self, n: Ev<'_, u64>, _: &mut Out<u64>, _: &Cx) -> Result {
                drop(n.hold());
                Ok(())
            }
        }
        let drops = app.stage_with("drops", |_: &Cx| Ok(Drops));
        app.connect(gateway.requests, drops);
        app.connect(drops, gateway.replies);
    });
    let told = runtime.complete(client.request(1)).unwrap().unwrap_err();
    assert!(matches!(told, Refusal::Failed { stage: None, .. }), "{told}");
}

/// A waker that is counted, and knows how often it was woken.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_hundred_thousand_requests_that_are_given_up_leave_nothing_behind() {
    const MANY: usize = 100_000;
    static HANDLED: AtomicU64 = AtomicU64::new(0);
    let app = App::new("asked");
    let gateway = app.gateway::<Arc<()>, u64>("ask");
    let work = app.map("work", |_: Arc<()>| HANDLED.fetch_add(1, SeqCst));
    app.connect_local(gateway.requests, work);
    app.connect(work, gateway.replies);
    let client = gateway.client;
    let plan = Plan::new().stage("ask", |s| s.deadline(HOUR));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("work");
    let (carried, counted) = (Arc::new(()), Arc::new(Counted::default()));
    let waker = Waker::from(counted.clone());
    for _ in 0..MANY {
        let mut asked = pin!(client.request(carried.clone()));
        assert!(asked.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let seen = runtime.snapshot().stage("ask").unwrap().gateway.unwrap();
    assert_eq!((seen.requests, seen.abandoned, seen.in_flight), (MANY as u64, MANY as u64, 0));
    runtime.resume("work");
    runtime.run_until_idle();
    assert_eq!(HANDLED.load(SeqCst), 0, "nothing is done for a request that was given up");
    let work = runtime.snapshot().stage("work").unwrap().counts;
    assert_eq!(work.shed(Shed::Abandoned), MANY as u64, "in the queue and in line for it");
    drop(waker);
    assert_eq!((Arc::strong_count(&carried), Arc::strong_count(&counted)), (1, 1));
}

#[test]
fn whoever_waits_is_woken_however_the_request_ends() {
    let outcomes: [(&str, u64); 4] = [("reply", 0), ("failure", 1), ("no reply", 2), ("stop", 3)];
    for (what, n) in outcomes {
        let plan = Plan::new().stage("ask", |s| s.deadline(HOUR));
        let (mut runtime, client) = by_hand(&plan, |app, gateway| {
            let work = app.try_flat_map("work", |n: u64| match n {
                1 => Err(Error::msg("one")),
                2 => Ok(None),
                n => Ok(Some(n)),
            });
            app.connect(gateway.requests, work);
            app.connect(work, gateway.replies);
        });
        let counted = Arc::new(Counted::default());
        let waker = Waker::from(counted.clone());
        let mut cx = Context::from_waker(&waker);
        let mut asked = pin!(client.request(n));
        assert!(asked.as_mut().poll(&mut cx).is_pending());
        if what == "stop" {
            drop(runtime);
        } else {
            runtime.run_until_idle();
        }
        assert_eq!(counted.0.load(SeqCst), 1, "{what}");
        assert!(asked.as_mut().poll(&mut cx).is_ready(), "{what}");
    }
    let plan = Plan::new().stage("ask", |s| s.deadline(HOUR));
    let (mut runtime, client) = around(&plan, Ok);
    runtime.hold("work");
    let counted = Arc::new(Counted::default());
    let waker = Waker::from(counted.clone());
    let mut asked = pin!(client.request(1));
    assert!(asked.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    runtime.advance(HOUR);
    assert_eq!(counted.0.load(SeqCst), 1, "deadline");
}

#[test]
fn a_waker_that_panics_costs_nothing() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("woken");
        }
    }
    let (mut runtime, client) = around(&Plan::new(), Ok);
    let waker = Waker::from(Arc::new(Panics));
    let mut asked = pin!(client.request(1));
    assert!(asked.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    runtime.run_until_idle();
    assert_eq!(asked.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(1)));
    assert_eq!(runtime.snapshot().stage("ask-replies").unwrap().counts.failed, 0);
}

/// A waker that does not return before it may.
struct Blocks {
    woken: AtomicUsize,
    may: Way,
}

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, SeqCst);
        self.may.pass();
    }
}

#[test]
fn a_waker_that_does_not_return_stops_no_timer() {
    /// Sleeps, and polls its sleep with a waker of its own if there is one.
    struct Sleeps(Arc<Blocks>);
    impl AsyncStage for Sleeps {
        type In = bool;
        type Ports = ();
        async fn handle(&self, blocks: bool, _: &mut Emissions<()>, cx: &AsyncCx) -> Result {
            let mut sleep = Box::pin(cx.sleep(Duration::from_millis(1)));
            std::future::poll_fn(|context| match blocks {
                true => sleep.as_mut().poll(&mut Context::from_waker(&self.0.clone().into())),
                false => sleep.as_mut().poll(context),
            })
            .await;
            Ok(())
        }
    }
    for of_handler in [false, true] {
        watched("waker", move || {
            let app = App::new("asked");
            let gateway = app.gateway::<u64, u64>("ask");
            let gate = Gate::default();
            let may = gate.way();
            let work = app.map("work", move |n: u64| {
                may.pass();
                n
            });
            app.connect(gateway.requests, work);
            app.connect(work, gateway.replies);
            let client = gateway.client.within(Duration::from_millis(1));
            let blocks = Arc::new(Blocks { woken: AtomicUsize::new(0), may: gate.way() });
            let (sender, events) = app.input::<bool>("events");
            app.connect(events, app.stage("sleeps", Sleeps(blocks.clone())));
            let plan = Plan::new().threads(2).stage("sleeps", |s| s.instances(9));
            let running = app.start(&plan).unwrap();
            let mut asked = Box::pin(client.request(1));
            if of_handler {
                sender.send(true).unwrap();
            } else {
                let waker = blocks.clone().into();
                let polled = asked.as_mut().poll(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
            }
            until("the waker is called", || blocks.woken.load(SeqCst) == 1);
            sender.send(false).unwrap();
            let handled = || stage(&running.snapshot(), "sleeps").counts.handled;
            until("another sleeps and is woken", || handled() == 1);
            gate.open();
            drop(asked);
            let _ = running.stop();
        });
    }
}

/// A program around two stages that runs on threads.
fn started(
    plan: &Plan,
    work: impl Fn(u64) -> u64 + Clone + Send + Sync + 'static,
) -> (comporta::Running, Client<u64, u64>) {
    let app = App::new("asked");
    let gateway = app.gateway::<u64, u64>("ask");
    let work = app.map("work", work).ordered();
    let more = app.map("more", |n: u64| n + 1);
    app.connect(gateway.requests, work);
    app.connect(work, more);
    app.connect(more, gateway.replies);
    let client = gateway.client;
    (app.start(plan).unwrap(), client)
}

#[test]
fn every_client_gets_the_reply_to_its_own_request_under_every_policy() {
    const CLIENTS: u64 = 4;
    const EACH: u64 = 50;
    under_policies(
        |_| true,
        |plan, label| {
            let (running, client) = started(&plan, |n| n * 2);
            let clients: Vec<_> = (0..CLIENTS)
                .map(|of| {
                    let client = client.clone();
                    thread(move || {
                        for n in 0..EACH {
                            let n = of * EACH + n;
                            assert_eq!(client.request_blocking(n), Ok(n * 2 + 1));
                        }
                    })
                })
                .collect();
            clients.into_iter().for_each(|client| client.join().unwrap());
            drop(client);
            let summary = ends(label, running);
            assert_eq!(summary.ended, Ended::Complete, "{label}");
            let seen = stage(&summary.snapshot, "ask").gateway.unwrap();
            assert_eq!((seen.replied, seen.in_flight), (CLIENTS * EACH, 0), "{label}");
        },
    );
}

#[test]
fn requests_in_flight_are_answered_by_a_drain_and_cancelled_by_a_stop() {
    for threads in THREADS {
        for drains in [true, false] {
            watched("drain or stop", move || {
                let gate = Gate::default();
                let way = gate.way();
                let plan = Plan::new().threads(threads);
                let (running, client) = started(&plan, move |n| {
                    way.pass();
                    n
                });
                let asks: Vec<_> = (0..3)
                    .map(|n| {
                        let client = client.clone();
                        thread(move || client.request_blocking(n))
                    })
                    .collect();
                gate.wait_for(1, "a request is handled");
                until("all are in flight", || {
                    stage(&running.snapshot(), "ask").gateway.unwrap().in_flight == 3
                });
                let told: Vec<_> = if drains {
                    running.close();
                    assert_eq!(client.request_blocking(9), Err(Refusal::Closed(9)));
                    gate.open();
                    let told = asks.into_iter().map(|ask| ask.join().unwrap()).collect();
                    assert_eq!(ends("drained", running).ended, Ended::Drained);
                    told
                } else {
                    let stopped = thread(move || running.stop());
                    let told = asks.into_iter().map(|ask| ask.join().unwrap()).collect();
                    gate.open();
                    assert!(stopped.join().unwrap().snapshot.adds_up());
                    told
                };
                for (n, told) in (0..).zip(told) {
                    let expected = if drains { Ok(n + 1) } else { Err(Refusal::Cancelled) };
                    assert_eq!(told, expected, "{threads} threads");
                }
            });
        }
    }
}

#[test]
fn a_blocking_request_ends_at_its_deadline_while_every_worker_is_held() {
    watched("deadline", || {
        let gate = Gate::default();
        let way = gate.way();
        let plan = Plan::new().threads(1).stuck_after(BOUND * 2);
        let (running, client) = started(&plan, move |n| {
            way.pass();
            n
        });
        let client = client.within(Duration::from_millis(20));
        assert_eq!(client.request_blocking(1), Err(Refusal::Deadline));
        gate.open();
        drop(client);
        assert_eq!(ends("after the deadline", running).ended, Ended::Complete);
    });
}

#[test]
fn a_request_before_the_start_and_after_the_end_is_given_back() {
    let app = App::new("asked");
    let gateway = app.gateway::<u64, u64>("ask");
    app.connect(gateway.requests, gateway.replies);
    let client = gateway.client;
    assert_eq!(client.request_blocking(1), Err(Refusal::NotStarted(1)));
    let running = app.start(&Plan::new()).unwrap();
    assert_eq!(client.request_blocking(2), Ok(2));
    client.close();
    let _ = ends("closed", running);
    assert_eq!(client.request_blocking(3), Err(Refusal::Closed(3)));
}

#[test]
fn a_handler_may_ask_another_gateway_without_waiting_on_its_worker() {
    watched("nested", || {
        let (inner, asked) = started(&Plan::new().threads(1), |n| n);
        let (outer, client) =
            started(&Plan::new().threads(1), move |n| match asked.request_blocking(n) {
                Err(Refusal::WouldBlock(n)) => n + 100,
                told => panic!("{told:?}"),
            });
        assert_eq!(client.request_blocking(1), Ok(102));
        drop(client);
        let _ = ends("outer", outer);
        let _ = ends("inner", inner); // its client went with the handler
    });
}

#[test]
fn requests_that_are_dropped_while_they_run_on_threads_have_one_outcome_each() {
    for threads in THREADS {
        watched("dropped", move || {
            let (running, client) = started(&Plan::new().threads(threads), |n| n);
            let asks: Vec<_> = (0..4)
                .map(|_| {
                    let client = client.clone();
                    thread(move || {
                        for n in 0..500 {
                            // Polled once, and dropped wherever it is by then.
                            let mut asked: Asked<'_> = Box::pin(client.request(n));
                            if let Poll::Ready(told) = poll(&mut asked) {
                                assert_eq!(told, Ok(n + 1));
                            }
                            drop(asked);
                        }
                        assert_eq!(client.request_blocking(7), Ok(8));
                    })
                })
                .collect();
            asks.into_iter().for_each(|ask| ask.join().unwrap());
            drop(client);
            let summary = ends("dropped", running);
            let seen = stage(&summary.snapshot, "ask").gateway.unwrap();
            assert!(summary.snapshot.adds_up(), "{summary}");
            assert_eq!((seen.in_flight, seen.requests), (0, 2_004));
            assert_eq!(seen.replied + seen.abandoned, 2_004, "{seen:?}");
        });
    }
}

#[test]
fn a_request_is_a_future_for_any_runtime() {
    fn sendable<T: Send + 'static>(_: &T) {}
    watched("tokio", || {
        let (running, client) = started(&Plan::new().threads(2), |n| n);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let asks: Vec<_> = (0..1_000)
                .map(|n| {
                    let client = client.clone();
                    let ask = async move { client.request(n).await };
                    sendable(&ask);
                    tokio::spawn(ask)
                })
                .collect();
            for (n, ask) in (0..).zip(asks) {
                assert_eq!(ask.await.unwrap(), Ok(n + 1));
            }
        });
        drop(client);
        assert_eq!(ends("tokio", running).ended, Ended::Complete);
    });
}
