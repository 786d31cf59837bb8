//! From every policy to every other while events flow: nothing is lost, what one instance sends
//! another comes in order, and the plan's values are back when the default one is installed again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use comporta::policy::{Choice, Registry};
use comporta::testing::TestRuntime;
use comporta::{App, Ended, Out, Plan, Running, Snapshot, StageRef};

use super::attack::Dice;
use super::settings;
use crate::seen::{stage, until};

/// Beside each policy with its defaults: some with parameters, and timers that are often due.
const MORE: [&str; 10] = [
    "seda(threads=3, capacity=2, instances=4)",
    "seda-dynamic(every=1ms, above=1, threads_min=1, threads_max=3, instances=3)",
    "thread-stealing(threads=2, every=1ms, instances=4)",
    "elastic(deadline=10ms, sample=1ms, threads_max=3)",
    "ds2(deadline=10ms, sample=1ms, threads_max=3, energy=true)",
    "cohort-bounded(events=1)",
    "lrb(slots_per_stage=9)",
    "srpt-private(events=2)",
    "master-worker(masters=2)",
    "color(colors=a=1 c=1 sink=2)",
];

pub(super) fn choices() -> Vec<Choice> {
    let offered = Registry::new().offers().into_iter().map(|offer| Choice::new(offer.name));
    offered.chain(MORE.iter().map(|choice| choice.parse().unwrap())).collect()
}

/// `numbers` -> `first` -> `a` -> `b` (three instances) and `c`, a copy each -> `sink`; endless.
/// `first` and `a` have one instance whatever policies say, and must see all numbers in turn.
struct Flow {
    app: App,
    plan: Plan,
    disorder: Arc<AtomicBool>,
    sum: Arc<AtomicU64>,
}

fn flow() -> Flow {
    let app = App::new("pairs");
    let (disorder, sum) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let numbers = app.source("numbers", || 0..u64::MAX);
    let first = ordered(&app, "first", &disorder);
    let a = ordered(&app, "a", &disorder);
    let b = app.map("b", |n: u64| n);
    let c = app.map("c", |n: u64| n);
    let sink = {
        let sum = sum.clone();
        app.sink("sink", move |n: u64| _ = sum.fetch_add(n, SeqCst))
    };
    app.connect(numbers, first);
    app.connect(first, a);
    app.connect(a, b);
    app.connect(a, c);
    app.connect(b, sink);
    app.connect(c, sink);
    let plan = Plan::new()
        .threads(2)
        .every(|s| s.capacity(6).batch(2))
        .stage("b", |s| s.instances(3).priority(1))
        .stage("c", |s| s.capacity(9).priority(-2));
    Flow { app, plan, disorder, sum }
}

/// A stage of one instance that must see every number in turn.
fn ordered<'a>(
    app: &'a App,
    name: &str,
    disorder: &Arc<AtomicBool>,
) -> StageRef<'a, u64, Out<u64>> {
    let (disorder, next) = (disorder.clone(), Arc::new(AtomicU64::new(0)));
    let stage = app.map(name, move |n: u64| {
        disorder.fetch_or(next.swap(n + 1, SeqCst) != n, SeqCst);
        n
    });
    stage.stateful()
}

impl Flow {
    fn check(disorder: &AtomicBool, sum: &AtomicU64, snapshot: &Snapshot, what: &str) {
        assert!(!disorder.load(SeqCst), "{what}: out of order");
        assert!(snapshot.adds_up(), "{what}:\n{snapshot}");
        let sent = stage(snapshot, "numbers").counts.emitted;
        assert_eq!(stage(snapshot, "sink").counts.handled, 2 * sent, "{what}:\n{snapshot}");
        assert_eq!(sum.load(SeqCst), sent * (sent.saturating_sub(1)), "{what}");
    }
}

#[test]
fn every_policy_gives_way_to_every_other_step_by_step() {
    let choices = choices();
    for (from, seed) in choices.iter().zip(0u64..) {
        let Flow { app, plan, disorder, sum } = flow();
        let mut runtime = TestRuntime::new(app, &plan).unwrap().seeded(seed);
        let dice = &mut Dice::new(seed);
        let control = runtime.control();
        for to in &choices {
            let what = format!("{from} to {to}");
            let some = |runtime: &mut TestRuntime, dice: &mut Dice| {
                for _ in 0..3 {
                    (0..dice.below(12)).for_each(|_| _ = runtime.step());
                }
            };
            control.set_policy("main", from.clone()).unwrap_or_else(|why| panic!("{what}: {why}"));
            some(&mut runtime, dice);
            control.set_policy("main", to.clone()).unwrap_or_else(|why| panic!("{what}: {why}"));
            some(&mut runtime, dice);
            assert!(runtime.snapshot().adds_up(), "{what}:\n{}", runtime.snapshot());
            assert!(runtime.problems().is_empty(), "{what}: {:?}", runtime.problems());
        }
        control.set_policy("main", "stealing").unwrap();
        runtime.close();
        assert!(runtime.run(), "from {from}: stalled\n{}", runtime.snapshot());
        Flow::check(&disorder, &sum, &runtime.snapshot(), &format!("from {from}"));
    }
}

#[test]
fn the_plans_values_are_back_after_every_policy() {
    for choice in choices() {
        let Flow { app, plan, .. } = flow();
        let mut runtime = TestRuntime::new(app, &plan).unwrap().seeded(9);
        let planned = settings(&runtime.snapshot());
        runtime.control().set_policy("main", choice.clone()).unwrap();
        (0..300).for_each(|_| _ = runtime.step());
        runtime.control().set_policy("main", "stealing").unwrap();
        (0..200).for_each(|_| _ = runtime.step()); // who had something in hand has finished it
        assert_eq!(settings(&runtime.snapshot()), planned, "{choice}");
    }
}

#[test]
fn every_policy_gives_way_to_every_other_on_threads() {
    let choices = choices();
    let Flow { app, plan, disorder, sum } = flow();
    let running = app.start(&plan).unwrap();
    let planned = settings(&running.snapshot());
    let control = running.control();
    let handled = || stage(&running.snapshot(), "sink").counts.handled;
    for from in &choices {
        for to in &choices {
            for policy in [from, to] {
                control.set_policy("main", policy.clone()).unwrap();
                let before = handled();
                moves_on(|| handled() > before + 5, &format!("{from} to {to}"), &running);
            }
        }
    }
    control.set_policy("main", "stealing").unwrap();
    until(|| settings(&running.snapshot()) == planned);
    let summary = running.drain();
    assert_eq!(summary.ended, Ended::Drained, "{summary}");
    assert!(summary.problems.is_empty(), "{summary}");
    Flow::check(&disorder, &sum, &summary.snapshot, "all pairs");
}

/// Waits until `done`; says so if that does not come.
fn moves_on(done: impl Fn() -> bool, what: &str, running: &Running) {
    // Each look takes a lock for each stage: this is many seconds.
    for _ in 0..20_000_000_u64 {
        if done() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{what}: stalled\n{}\n{:?}", running.snapshot(), running.snapshot().pools);
}
