//! Whole programs on real threads: everything arrives, in order, and the counts add up.

use std::time::Duration;

use comporta::{
    App, Choice, Cx, Ended, Error, Ev, Out, Plan, Result, Shed, Snapshot, Stage, WhenFull,
};

use crate::seen::{Gate, NOBODY_STANDS_IN, collector, ends, run, stage, taken, until};

/// Runs `numbers` -> `a` -> `b` -> `c`, and says what came out.
fn chain(plan: &Plan) -> Vec<u64> {
    let app = App::new("chain");
    let (seen, see) = collector();
    let numbers = app.source("numbers", || 0..5_000u64);
    let a = app.map("a", |n: u64| n + 1);
    let b = app.map("b", |n: u64| n * 2);
    let c = app.sink("c", see);
    app.connect(numbers, a);
    app.connect(a, b);
    app.connect(b, c);
    let summary = app.run(plan).unwrap();
    assert_eq!(summary.ended, Ended::Complete);
    assert!(summary.snapshot.adds_up(), "{summary}");
    taken(&seen)
}

#[test]
fn a_chain_of_single_instances_keeps_order_under_every_policy_and_capacity() {
    for policy in ["stealing", "single", "srpt"] {
        for (capacity, batch) in [(1, 1), (1, 256), (7, 3), (1024, 256)] {
            for threads in [1, 2, 4] {
                let plan = Plan::new()
                    .threads(threads)
                    .policy(policy)
                    .every(|s| s.capacity(capacity).batch(batch));
                let expected = (0..5_000).map(|n| (n + 1) * 2);
                let run =
                    format!("{policy}, capacity {capacity}, batch {batch}, {threads} threads");
                assert!(chain(&plan).into_iter().eq(expected), "{run}");
            }
        }
    }
}

/// Passes a number on, less one, until it is zero.
#[derive(Clone)]
struct Pass(u64);
impl Stage for Pass {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        self.0 += 1;
        if *n > 0 {
            out.send(*n - 1);
        }
        Ok(())
    }
}

#[test]
fn two_stateful_stages_pass_one_event_to_and_fro_a_million_times() {
    for threads in [1, 2, 4, 8] {
        let app = App::new("pingpong");
        let ping = app.stage("ping", Pass(0)).stateful().autostart(1_000_000);
        let pong = app.stage("pong", Pass(0)).stateful();
        app.connect(ping, pong);
        app.connect(pong, ping);
        let summary = run(app, &Plan::new().threads(threads));
        assert_eq!(summary.ended, Ended::Complete);
        assert_eq!(handled(&summary.snapshot), 1_000_001);
        assert!(summary.snapshot.adds_up(), "{summary}");
    }
}

fn handled(snapshot: &Snapshot) -> u64 {
    snapshot.stages.iter().map(|stage| stage.counts.handled).sum()
}

fn shed_by_the_cycle(snapshot: &Snapshot) -> u64 {
    snapshot.stages.iter().map(|stage| stage.counts.shed(Shed::Cycle)).sum()
}

#[test]
fn an_amplifying_cycle_sheds_with_reason_cycle_and_goes_on() {
    for (threads, batch) in [(1, 1), (2, 256), (4, 16)] {
        let app = App::new("amplify");
        let source = app.source("source", || 0..2_000u32);
        let a = app.flat_map("a", |n: u32| vec![n + 1; if n.is_multiple_of(3) { 3 } else { 1 }]);
        let b = app.flat_map("b", |n: u32| vec![n * 3 % 1_000; 2]);
        app.connect(source, a);
        app.connect(a, b);
        app.connect(b, a);
        let plan = Plan::new().threads(threads).every(|s| s.capacity(8).batch(batch));
        let running = app.start(&plan).unwrap();
        // It never ends by itself, for it makes more than it takes; it must never stall either.
        until(|| shed_by_the_cycle(&running.snapshot()) > 1_000);
        let before = handled(&running.snapshot());
        until(|| handled(&running.snapshot()) > before + 10_000);
        let summary = running.stop();
        assert!(summary.snapshot.adds_up(), "{summary}");
    }
}

#[test]
fn an_ordered_stage_with_many_instances_keeps_order_at_its_output() {
    for threads in [1, 2, 4] {
        let app = App::new("ordered");
        let (seen, see) = collector();
        let numbers = app.source("numbers", || 0..50_000u64);
        let work = app
            .map("work", |n: u64| {
                for _ in 0..(n % 7) * 50 {
                    std::hint::black_box(n);
                }
                n
            })
            .ordered();
        let sink = app.sink("sink", see);
        app.connect(numbers, work);
        app.connect(work, sink);
        let plan = Plan::new()
            .threads(threads)
            .every(|s| s.capacity(64).batch(5))
            .stage("work", |s| s.instances(4));
        let summary = run(app, &plan);
        assert!(summary.snapshot.adds_up(), "{summary}");
        assert!(taken(&seen).into_iter().eq(0..50_000), "{summary}");
    }
}

#[test]
fn each_rule_at_the_bound_accounts_for_every_event() {
    for rule in [WhenFull::Block, WhenFull::Reject, WhenFull::DropNewest, WhenFull::DropOldest] {
        let app = App::new("rules");
        let numbers = app.source("numbers", || 0..20_000u64);
        let slow = app.sink("slow", |n: u64| {
            for _ in 0..200 {
                std::hint::black_box(n);
            }
        });
        app.connect(numbers, slow);
        let plan = Plan::new().threads(2).stage("slow", |s| s.capacity(16).when_full(rule));
        let summary = run(app, &plan);
        assert!(summary.snapshot.adds_up(), "{rule:?} {summary}");
        let c = stage(&summary.snapshot, "slow").counts;
        assert_eq!((c.offered, c.failed, c.cancelled), (20_000, 0, 0));
        assert_eq!(c.handled + c.shed_on_entry() + c.shed_later(), 20_000);
        if rule == WhenFull::Block {
            assert_eq!(c.handled, 20_000);
        }
    }
}

/// Takes longer over every event than a whole visit should; the first one fails.
#[derive(Clone)]
struct Slow;
impl Stage for Slow {
    type In = u64;
    type Ports = ();
    fn handle(&mut self, n: Ev<'_, u64>, (): &mut (), cx: &Cx) -> Result {
        let start = cx.now();
        while cx.now().duration_since(start) < Duration::from_micros(150) {}
        if *n == 0 { Err(Error::msg("the first")) } else { Ok(()) }
    }
}

#[test]
fn a_failure_does_not_make_a_visit_forget_its_time() {
    let app = App::new("slow");
    let numbers = app.source("numbers", || 0..64u64);
    let slow = app.stage("slow", Slow);
    app.connect(numbers, slow);
    let summary = run(app, &Plan::new().threads(1));
    let counts = summary.snapshot.stage("slow").unwrap().counts;
    assert_eq!((counts.handled, counts.failed), (63, 1));
    // An event a visit, once it has been late; one visit for all if it never looks at the clock.
    assert!(counts.visits > 32, "{} visits", counts.visits);
}

#[test]
fn threads_that_sleep_are_woken_for_what_waits_behind_handlers_that_wait() {
    // More than there are processors: those who are in a visit might be about to come back.
    let threads = 2 + std::thread::available_parallelism().map_or(1, usize::from);
    for policy in ["stealing", "single", "seda(threads=20)"] {
        let app = App::new("meeting");
        let gate = Gate::default();
        let at = gate.clone();
        let (sender, port) = app.input::<usize>("in");
        let meet = app.sink("meet", move |_: usize| at.pass());
        app.connect(port, meet);
        let plan = Plan::new()
            .threads(threads)
            .policy(policy.parse::<Choice>().unwrap())
            .stuck_after(NOBODY_STANDS_IN)
            .every(|s| s.batch(1))
            .stage("meet", |s| s.instances(threads));
        let running = app.start(&plan).unwrap();
        (0..threads).for_each(|n| sender.send(n).unwrap());
        gate.wait_for(threads); // all at once, or never
        gate.open();
        drop(sender);
        let summary = ends(running);
        assert_eq!(stage(&summary.snapshot, "meet").counts.handled, threads as u64, "{policy}");
    }
}
