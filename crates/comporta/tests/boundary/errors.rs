//! The error port: what fails for good goes on through the graph, from every kind of stage, and is counted,
//! bounded, ordered and acknowledged as any other event.

use std::collections::VecDeque;
use std::future::{pending, ready};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use comporta::testing::{TestRuntime, record};
use comporta::{
    App, AsyncCx, AsyncStage, Cx, Demand, Emissions, Error, Ev, Failed, GraphWarning, Out, Plan,
    Port, Ports, Pull, Reason, Result, Retry, Settled, Shed, Source, Stage, WhenFull, batched,
};

use crate::bounded::{THREADS, ends, stage, taken, watched};

const EVENTS: u64 = 100;
const HOUR: Duration = Duration::from_secs(3_600);

fn picky(n: u64) -> Result<u64> {
    if n.is_multiple_of(3) { Err(Error::msg(format!("not {n}"))) } else { Ok(n) }
}

fn fail_all(n: u64) -> Result<u64> {
    Err(Error::msg(n.to_string()))
}

#[derive(Clone)]
struct Picky;
impl Stage for Picky {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        out.send(*n); // withdrawn, if it fails
        picky(*n).map(drop)
    }
}

/// Waits a moment before it answers, so that its events are in flight.
struct Waits;
impl AsyncStage for Waits {
    type In = u64;
    type Ports = Out<u64>;
    async fn handle(&self, n: u64, out: &mut Emissions<Out<u64>>, cx: &AsyncCx) -> Result {
        cx.sleep(Duration::from_nanos(1)).await;
        out.send(picky(n)?);
        Ok(())
    }
}

/// Joins a stage `picky` of some kind to where its events come from, where they go, and where they fail to.
type Kind = fn(&App, Port<u64>, &Joined);

/// Where the events of `picky` go.
#[derive(Clone, Default)]
struct Joined {
    sent: Arc<Mutex<Vec<u64>>>,
    failed: Arc<Mutex<Vec<Failed<u64>>>>,
}

impl Joined {
    fn ends(&self, app: &App, sent: Option<Port<u64>>, failed: Port<Failed<u64>>) {
        let seen = self.failed.clone();
        let dead = move |failed: Failed<u64>| seen.lock().unwrap().push(failed);
        app.connect(failed, app.sink("dead", dead));
        if let Some(sent) = sent {
            let seen = self.sent.clone();
            app.connect(sent, app.sink("end", move |n: u64| seen.lock().unwrap().push(n)));
        }
    }
}

const KINDS: [(&str, Kind); 10] = [
    ("a type", |app, numbers, to| {
        let picky = app.stage("picky", Picky);
        app.connect(numbers, picky);
        to.ends(app, Some(*picky), picky.errors());
    }),
    ("a closure", |app, numbers, to| {
        let picky = app.try_map("picky", picky);
        app.connect(numbers, picky);
        to.ends(app, Some(*picky), picky.errors());
    }),
    ("a panic", |app, numbers, to| {
        let picky = app.map("picky", |n: u64| picky(n).unwrap());
        app.connect(numbers, picky);
        to.ends(app, Some(*picky), picky.errors());
    }),
    ("in place", |app, numbers, to| {
        let picky = app.map_in_place("picky", |n: &mut u64| picky(*n).map(drop));
        app.connect(numbers, picky);
        to.ends(app, Some(*picky), picky.errors());
    }),
    ("ordered", |app, numbers, to| {
        let picky = app.try_map("picky", picky).ordered();
        app.connect(numbers, picky);
        to.ends(app, Some(*picky), picky.errors());
    }),
    ("stateful", |app, numbers, to| {
        let picky = app.stage("picky", Picky).stateful();
        app.connect(numbers, picky);
        to.ends(app, Some(*picky), picky.errors());
    }),
    ("blocking", |app, numbers, to| {
        let picky = app.try_map("picky", picky).blocking();
        app.connect(numbers, picky);
        to.ends(app, Some(*picky), picky.errors());
    }),
    ("ready at once", |app, numbers, to| {
        let picky = app.try_map_async("picky", |n| ready(picky(n)));
        app.connect(numbers, picky);
        to.ends(app, Some(*picky), picky.errors());
    }),
    ("in flight", |app, numbers, to| {
        let picky = app.stage("picky", Waits);
        app.connect(numbers, picky);
        to.ends(app, Some(*picky), picky.errors());
    }),
    ("in flight, in order", |app, numbers, to| {
        let picky = app.stage("picky", Waits).ordered();
        app.connect(numbers, picky);
        to.ends(app, Some(*picky), picky.errors());
    }),
];

/// Every third number came to `dead`, after so many tries, and all others to `end`; in order if `ordered`.
fn every_third_is_dead(what: &str, to: &Joined, tries: u32, ordered: bool) {
    let (mut sent, mut failed) = (taken(&to.sent), taken(&to.failed));
    if !ordered {
        sent.sort_unstable();
        failed.sort_unstable_by_key(|failed| failed.event);
    }
    let all = (0..EVENTS).partition::<Vec<_>, _>(|n| n.is_multiple_of(3));
    assert_eq!(sent, all.1, "{what}");
    let events: Vec<_> = failed.iter().filter_map(|failed| failed.event).collect();
    assert_eq!(events, all.0, "{what}");
    for failed in failed {
        assert_eq!((&*failed.stage, failed.attempts), ("picky", tries), "{what}");
        let reason = failed.reason.to_string();
        assert!(reason.contains(&format!("not {}", failed.event.unwrap())), "{what}: {reason}");
    }
}

#[test]
fn what_fails_for_good_goes_on_from_every_kind_of_stage() {
    for (kind, build) in KINDS {
        for (batch, tries) in [(1, 1), (7, 3), (256, 1), (256, 2)] {
            let what = format!("{kind}, batches of {batch}, {tries} tries");
            let app = App::new("picky");
            let to = Joined::default();
            build(&app, app.source("numbers", || 0..EVENTS), &to);
            let retry = Retry::new(tries, Duration::from_secs(1));
            let plan = Plan::new().every(|s| s.batch(batch).retry(retry));
            let instances = if batch == 7 && kind != "stateful" { 3 } else { 1 };
            let plan = plan.stage("picky", |s| s.instances(instances));
            let mut runtime = TestRuntime::new(app, &plan).unwrap();
            assert!(runtime.run(), "{what}");
            let snapshot = runtime.snapshot();
            assert!(snapshot.adds_up(), "{what}: {snapshot}");
            let picky = &stage(&snapshot, "picky").counts;
            let counted = (picky.handled, picky.failed, picky.emitted, picky.retried);
            assert_eq!(counted, (66, 34, 100, 34 * u64::from(tries - 1)), "{what}");
            assert_eq!(stage(&snapshot, "dead").counts.handled, 34, "{what}");
            every_third_is_dead(&what, &to, tries, kind.contains("order") || batch == 1);
            let kept = runtime.control().failures("picky").unwrap();
            assert!(kept.len() == 34 && kept.iter().all(|failure| !failure.replayable), "{what}");
        }
    }
}

#[test]
fn nothing_is_lost_on_threads_when_the_queue_of_errors_is_full() {
    for (kind, build) in KINDS {
        for threads in THREADS {
            let what = format!("{kind}, {threads} threads");
            let label = what.clone();
            watched(&what, move || {
                let app = App::new("picky");
                let to = Joined::default();
                build(&app, app.source("numbers", || 0..EVENTS), &to);
                let plan = Plan::new().threads(threads).stage("dead", |s| s.capacity(1));
                let instances = if kind == "stateful" { 1 } else { 4 };
                let plan = plan.stage("picky", |s| s.instances(instances));
                let summary = ends(&label, app.start(&plan).unwrap());
                assert!(summary.snapshot.adds_up(), "{label}: {}", summary.snapshot);
                every_third_is_dead(&label, &to, 1, kind.contains("order"));
            });
        }
    }
}

#[test]
fn a_group_that_fails_sends_each_of_its_events_and_a_sink_can_fail_too() {
    let app = App::new("groups");
    let numbers = app.source("numbers", || 0..9_u64);
    let add =
        app.stage("add", batched(3, HOUR, |group: Vec<u64>, _: &mut ()| picky(group[0]).map(drop)));
    let odd = app.source("odd", || [3_u64, 4].into_iter());
    let last = app.sink("last", |n: u64| picky(n).map(drop));
    app.connect(numbers, add);
    app.connect(odd, last);
    app.connect(last.errors(), app.sink("dead", |_: Failed<u64>| ()));
    let seen = [record(&app, add.errors()), record(&app, last.errors())];
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    let events = seen.map(|seen| seen.take().iter().filter_map(|f| f.event).collect::<Vec<_>>());
    assert_eq!(events, [(0..9).collect(), vec![3]], "0, 3 and 6 are first in their groups");
    let snapshot = runtime.snapshot();
    assert_eq!(
        stage(&snapshot, "last").latency.count(),
        1,
        "a sink with an error port is the end of an event's way"
    );
}

/// Takes its event before it fails.
#[derive(Clone)]
struct Takes;
impl Stage for Takes {
    type In = u64;
    type Ports = ();
    fn handle(&mut self, n: Ev<'_, u64>, _: &mut (), _: &Cx) -> Result {
        fail_all(n.take()).map(drop)
    }
}

#[test]
fn an_event_that_was_taken_is_there_only_if_a_copy_was_kept() {
    for retain in [false, true] {
        let app = App::new("takes");
        let takes = app.stage("takes", Takes);
        let takes = if retain { takes.retain() } else { takes };
        app.connect(app.source("numbers", || 7..8_u64), takes);
        let seen = record(&app, takes.errors());
        let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
        assert!(runtime.run());
        let event = retain.then_some(7);
        assert_eq!(seen.take(), [Failed::new("takes", event, Reason::Error("7".to_owned()))]);
    }
}

// --- bounds

#[test]
fn a_full_queue_of_errors_holds_up_the_stage() {
    let app = App::new("full");
    let work = app.try_map("work", fail_all);
    let dead = app.sink_async("dead", |_: Failed<u64>| pending::<()>());
    app.connect(app.source("numbers", || 0..1_000_u64), work);
    app.connect(work.errors(), dead);
    app.connect(work, app.sink("end", |_: u64| ()));
    let plan = Plan::new().stage("dead", |dead| dead.capacity(3)).stage("work", |s| s.instances(2));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.run_until_idle();
    let snapshot = runtime.snapshot();
    assert!(snapshot.adds_up(), "{snapshot}");
    let failed = stage(&snapshot, "work").counts.failed;
    // One in flight, a queue full, and what each instance saw room for and one more.
    assert!((4..=1 + 3 + 2 * 4).contains(&failed), "{snapshot}");
}

#[test]
fn a_plan_says_what_happens_when_the_queue_of_errors_is_full() {
    let app = App::new("full");
    let work = app.try_map("work", fail_all);
    let dead = app.sink_async("dead", |_: Failed<u64>| pending::<()>());
    app.connect(app.source("numbers", || 0..100_u64), work);
    app.connect(work.errors(), dead);
    app.connect(work, app.sink("end", |_: u64| ()));
    let plan = Plan::new().stage("dead", |dead| dead.capacity(3));
    let plan = plan.connector("work.errors -> dead", |c| c.when_full(WhenFull::DropNewest));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.run_until_idle();
    let snapshot = runtime.snapshot();
    assert!(snapshot.adds_up(), "{snapshot}");
    assert_eq!(stage(&snapshot, "work").counts.failed, 100);
    assert!(stage(&snapshot, "dead").counts.shed(Shed::Newest) >= 96, "{snapshot}");
}

/// Led back, errors are a cycle: `fix` makes an even number of an odd one, which `work` does not take.
#[test]
fn errors_led_back_are_a_cycle_and_it_ends() {
    for threads in THREADS {
        watched("a cycle of errors", move || {
            let app = App::new("again");
            let work = app.try_map("work", |n: u64| match n % 2 {
                0 => Ok(n),
                _ => Err(Error::msg("odd")),
            });
            let fix = app.filter_map("fix", |failed: Failed<u64>| failed.event.map(|n| n + 1));
            app.connect(app.source("numbers", || 0..1_000_u64), work);
            app.connect(work.errors(), fix);
            app.connect(fix, work);
            app.connect(work, app.sink("end", |n: u64| assert!(n.is_multiple_of(2))));
            let warnings = app.check().unwrap();
            let cycle = GraphWarning::Cycle(vec!["work".into(), "fix".into()]);
            assert!(warnings.contains(&cycle), "{warnings:?}");
            let plan = Plan::new().threads(threads).every(|s| s.capacity(2));
            let summary = ends("a cycle of errors", app.start(&plan).unwrap());
            assert!(summary.snapshot.adds_up(), "{}", summary.snapshot);
            let of = |name| stage(&summary.snapshot, name).counts;
            let shed = of("work").shed(Shed::Cycle) + of("fix").shed(Shed::Cycle);
            assert_eq!(of("end").handled + shed, 1_000, "{}", summary.snapshot);
        });
    }
}

#[derive(Ports)]
struct Own {
    good: Out<u64>,
    errors: Out<u64>,
}

#[derive(Clone)]
struct OwnErrors;
impl Stage for OwnErrors {
    type In = u64;
    type Ports = Own;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Own, _: &Cx) -> Result {
        out.good.send(*n);
        out.errors.send(*n);
        Ok(())
    }
}

#[test]
fn a_port_of_its_own_called_errors_is_refused_beside_the_error_port() {
    let app = App::new("twice");
    let work = app.stage("work", OwnErrors);
    app.connect(app.source("numbers", || 0..1_u64), work);
    app.connect(work.errors, app.sink("own", |_: u64| ()));
    assert!(app.check().is_ok());
    app.connect(work.errors(), app.sink("dead", |_: Failed<u64>| ()));
    let message = app.check().unwrap_err().to_string();
    assert!(message.contains("`work.errors` would name two ports"), "{message}");
}

// --- what is owed

/// One event a pull, each a group of its own.
struct Acked {
    events: VecDeque<u64>,
    reported: Arc<Mutex<Vec<Settled>>>,
}

impl Source for Acked {
    type Item = u64;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u64>, _: Demand) -> Result<Pull> {
        let Some(event) = self.events.pop_front() else { return Ok(Pull::End) };
        out.send(event);
        Ok(Pull::More)
    }
    fn settled(&mut self, settled: Settled) {
        self.reported.lock().unwrap().push(settled);
    }
}

/// Fails what has failed at 0, 30, 60 and 90, an hour later.
struct Dead;
impl AsyncStage for Dead {
    type In = Failed<u64>;
    type Ports = ();
    async fn handle(&self, dead: Failed<u64>, _: &mut Emissions<()>, cx: &AsyncCx) -> Result {
        cx.sleep(HOUR).await;
        if dead.event.unwrap().is_multiple_of(30) { Err(Error::msg("again")) } else { Ok(()) }
    }
}

type Sends = fn(&App, Port<u64>) -> Port<Failed<u64>>;

#[test]
fn a_source_is_told_when_what_failed_has_settled_and_how() {
    let kinds: [(&str, Sends); 4] = [
        ("a closure", |app, numbers| {
            let work = app.sink("work", |n: u64| picky(n).map(drop));
            app.connect(numbers, work);
            work.errors()
        }),
        ("in place", |app, numbers| {
            let work = app.map_in_place("work", |n: &mut u64| picky(*n).map(drop));
            app.connect(numbers, work);
            app.connect(work, app.sink("end", |_: u64| ()));
            work.errors()
        }),
        ("ordered", |app, numbers| {
            let work = app.try_map("work", picky).ordered();
            app.connect(numbers, work);
            app.connect(work, app.sink("end", |_: u64| ()));
            work.errors()
        }),
        ("ready at once", |app, numbers| {
            let work = app.try_map_async("work", |n| ready(picky(n)));
            app.connect(numbers, work);
            app.connect(work, app.sink("end", |_: u64| ()));
            work.errors()
        }),
    ];
    for ((kind, build), batch) in kinds.into_iter().flat_map(|kind| [(kind, 1), (kind, 64)]) {
        let app = App::new("acked");
        let reported = Arc::<Mutex<Vec<Settled>>>::default();
        let source = Acked { events: (0..EVENTS).collect(), reported: reported.clone() };
        let failed = build(&app, app.source("acked", move || source));
        app.connect(failed, app.stage("dead", Dead));
        let plan = Plan::new().every(|s| s.batch(batch)).stage("dead", |s| s.instances(100));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.run_until_idle();
        let early: Vec<_> = taken(&reported).iter().map(|told| (told.group, told.failed)).collect();
        let good = (0..EVENTS).filter(|n| !n.is_multiple_of(3)).map(|n| (n + 1, 0));
        assert_eq!(early, good.collect::<Vec<_>>(), "{kind}, batches of {batch}");
        assert!(runtime.run());
        let mut late: Vec<_> =
            taken(&reported).iter().map(|told| (told.group, told.failed)).collect();
        late.sort_unstable();
        let dead = (0..EVENTS).filter(|n| n.is_multiple_of(3));
        let dead = dead.map(|n| (n + 1, u64::from(n.is_multiple_of(30))));
        assert_eq!(late, dead.collect::<Vec<_>>(), "{kind}, batches of {batch}");
    }
}

#[test]
fn a_client_of_a_gateway_gets_the_reply_that_is_made_of_a_failure() {
    let app = App::new("asked");
    let gateway = app.gateway::<u64, u64>("ask");
    let client = gateway.client.clone();
    let work = app.try_map("work", picky);
    let excuse = app.map("excuse", |failed: Failed<u64>| failed.event.unwrap() + 1_000);
    app.connect(gateway.requests, work);
    app.connect(work, gateway.replies);
    app.connect(work.errors(), excuse);
    app.connect(excuse, gateway.replies);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    let mut asked: Vec<_> = (0..6).map(|n| Box::pin(client.request(n))).collect();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(asked.iter_mut().all(|asked| asked.as_mut().poll(&mut cx).is_pending()));
    runtime.run_until_idle();
    for (n, asked) in (0..).zip(&mut asked) {
        let reply = if n % 3 == 0 { n + 1_000 } else { n };
        assert_eq!(asked.as_mut().poll(&mut cx), Poll::Ready(Ok(reply)));
    }
}
