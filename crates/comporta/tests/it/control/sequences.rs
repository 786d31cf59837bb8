//! The order in which each policy of the library visits stages, as published: an event for each
//! visit, on one thread unless it is about threads. `in` -> `a` -> `b` -> `c`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{App, Choice, Plan, Sender};

use super::{Log, ended, handled, logs, threads_of};
use crate::seen::stage;

struct Pipe {
    runtime: TestRuntime,
    sender: Sender<u64>,
    log: Log,
}

fn choice(policy: &str) -> Choice {
    policy.parse().unwrap()
}

fn pipe(policy: &str, instances: usize) -> Pipe {
    let app = App::new("pipe");
    let log = Log::default();
    let (sender, port) = app.input("in");
    let a = app.map("a", logs(&log, "a"));
    let b = app.map("b", logs(&log, "b"));
    let c = app.map("c", logs(&log, "c"));
    app.connect(port, a);
    app.connect(a, b);
    app.connect(b, c);
    let plan = Plan::new().threads(1).policy(choice(policy));
    let runtime = TestRuntime::new(app, &plan.every(|s| s.batch(1).instances(instances))).unwrap();
    Pipe { runtime, sender, log }
}

impl Pipe {
    fn push(&self, events: std::ops::Range<u64>) {
        events.for_each(|n| self.sender.send(n).unwrap());
    }

    fn ran(&mut self) -> String {
        self.runtime.run_until_idle();
        self.log.take()
    }

    /// What these policies do to three events that come together.
    fn three(policy: &str, instances: usize) -> String {
        let mut pipe = pipe(policy, instances);
        pipe.push(0..3);
        pipe.ran()
    }
}

#[test]
fn single_takes_events_as_they_are_paired_with_an_instance() {
    // With an instance for each, first come first served over all stages.
    assert_eq!(Pipe::three("single", 3), "a0 a1 a2 b0 b1 b2 c0 c1 c2");
    // With one, an event stands in line from when the instance is free.
    assert_eq!(Pipe::three("single", 1), "a0 b0 a1 c0 b1 a2 c1 b2 c2");
}

#[test]
fn srpt_takes_the_event_that_is_nearest_to_its_end() {
    for policy in ["srpt", "srpt-private(events=1)"] {
        assert_eq!(Pipe::three(policy, 3), "a0 b0 c0 a1 b1 c1 a2 b2 c2", "{policy}");
        let mut pipe = pipe(policy, 3);
        pipe.runtime.hold("b");
        pipe.push(0..2);
        pipe.ran();
        pipe.push(2..3);
        pipe.runtime.resume("b");
        assert_eq!(pipe.ran(), "b0 c0 b1 c1 a2 b2 c2", "{policy}");
    }
}

#[test]
fn srpt_private_stays_while_events_last_and_returns_to_the_last_stage() {
    assert_eq!(Pipe::three("srpt-private", 1), "a0 a1 a2 b0 b1 b2 c0 c1 c2");
    let mut pipe = pipe("srpt-private", 1);
    for name in ["b", "c"] {
        pipe.runtime.hold(name);
    }
    pipe.push(0..2);
    pipe.ran();
    pipe.runtime.resume("b");
    pipe.ran(); // two at c, which is held
    pipe.push(2..4);
    pipe.runtime.resume("c");
    assert_eq!(pipe.ran(), "c0 c1 a2 a3 b2 b3 c2 c3");
}

#[test]
fn cohort_goes_there_and_back_and_stays_while_events_last() {
    let mut pipe = pipe("cohort", 1);
    pipe.push(0..2);
    assert_eq!(pipe.ran(), "a0 a1 b0 b1 c0 c1");
    // Two wait at each stage: there (a, b, c); then back over b, which got two more, and to the end.
    for name in ["a", "b", "c"] {
        pipe.runtime.hold(name);
    }
    for (resumed, events) in [("", 2..4), ("a", 4..6)] {
        pipe.push(events);
        if !resumed.is_empty() {
            pipe.runtime.resume(resumed);
        }
        pipe.runtime.run_until_idle();
        pipe.runtime.hold("a");
    }
    pipe.log.take();
    for name in ["b", "c", "a"] {
        pipe.runtime.resume(name);
    }
    assert_eq!(pipe.ran(), "b2 b3 b4 b5 c2 c3 c4 c5");
}

#[test]
fn the_way_of_cohort_back_leads_over_the_stages_between() {
    // One event for each visit shows the way: a, b, c, b, and again.
    let mut pipe = pipe("cohort-bounded(events=1)", 1);
    pipe.push(0..4);
    assert_eq!(pipe.ran(), "a0 b0 c0 a1 b1 c1 a2 b2 c2 a3 b3 c3");
    for name in ["a", "b", "c"] {
        pipe.runtime.hold(name);
    }
    pipe.push(4..8);
    pipe.runtime.run_until_idle();
    pipe.runtime.resume("a");
    pipe.runtime.run_until_idle(); // four at b
    pipe.push(8..10);
    pipe.runtime.hold("a");
    pipe.runtime.run_until_idle(); // two at a
    pipe.log.take();
    for name in ["c", "a", "b"] {
        pipe.runtime.resume(name);
    }
    assert_eq!(pipe.ran(), "a8 b4 c4 b5 a9 b6 c5 b7 b8 c6 b9 c7 c8 c9");
}

#[test]
fn cohort_bounded_goes_on_after_so_many_events() {
    let mut pipe = pipe("cohort-bounded(events=2)", 1);
    pipe.push(0..5);
    assert_eq!(pipe.ran(), "a0 a1 b0 b1 c0 c1 a2 a3 b2 b3 c2 c3 a4 b4 c4");
}

#[test]
fn lrb_makes_the_order_from_what_arrived_when_the_last_stage_is_come_to() {
    let app = App::new("lrb");
    let log = Log::default();
    let inputs = ["s1", "s2", "s3"].map(|name| {
        let (sender, port) = app.input(format!("in-{name}"));
        let log = log.clone();
        let sink = app.sink(name, move |n: u64| log.note(name, n));
        app.connect(port, sink);
        sender
    });
    let plan = Plan::new().threads(1).policy("lrb").every(|s| s.batch(1));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    let order = |runtime: &TestRuntime| {
        let decisions = runtime.control().decisions("main").unwrap();
        let mut orders = decisions.iter().filter(|d| d.did.starts_with("the visit order is"));
        orders.next_back().map(|d| (d.did.clone(), d.why.clone())).unwrap()
    };
    assert_eq!(order(&runtime).0, "the visit order is `s1`, `s2`, `s3`");
    runtime.run_until_idle();
    runtime.advance(Duration::from_secs(1)); // what is done is remembered again
    for (input, events) in inputs.iter().zip([5, 3, 2]) {
        (0..events).for_each(|n| input.send(n).unwrap());
    }
    runtime.run_until_idle();
    // As published: shares of 50, 30 and 20 % over nine slots.
    let (did, why) = order(&runtime);
    let published = ["s1", "s2", "s1", "s2", "s1", "s2", "s1", "s3", "s1", "s3"];
    let published = published.map(|name| format!("`{name}`")).join(", ");
    assert_eq!(did, format!("the visit order is {published}"));
    assert_eq!(why.unwrap(), "arrived and visits s1 5: 5, s2 3: 3, s3 2: 2");
    assert_eq!(log.take(), "s10 s11 s12 s13 s14 s20 s21 s22 s30 s31");
}

#[test]
fn dbr_goes_to_the_slowest_stage_first() {
    let mut pipe = pipe("dbr", 1);
    pipe.runtime.run_until_idle();
    pipe.runtime.advance(Duration::from_secs(1));
    // Much arrives at `b` and nothing is processed there: it is the bottleneck.
    pipe.runtime.hold("b");
    pipe.push(0..4);
    pipe.ran();
    let decisions = pipe.runtime.control().decisions("main").unwrap();
    let last = decisions.last().unwrap();
    assert!(last.why.as_ref().unwrap().starts_with("service rates "), "{last}");
    pipe.push(4..6);
    pipe.runtime.resume("b");
    let ran = pipe.ran();
    assert!(ran.starts_with("b0 b1 b2 b3 "), "{ran}");
}

#[test]
fn seda_has_a_pool_for_each_stage_and_each_stage_its_own_threads() {
    let pipe = pipe("seda(threads=3)", 1);
    assert_eq!(threads_of(&pipe.runtime), [1, 3, 3, 3]);
    for name in ["a", "b", "c"] {
        assert_eq!(stage(&pipe.runtime.snapshot(), name).capacity, 100);
    }
    assert_eq!(stages_by_pool(&pipe)[1..], [["a"], ["b"], ["c"]]);
}

#[test]
fn master_worker_has_threads_of_their_own_for_what_brings_work_in() {
    let pipe = pipe("master-worker(masters=2)", 1);
    assert_eq!(threads_of(&pipe.runtime), [1, 2]);
    assert_eq!(stages_by_pool(&pipe)[0], ["a", "b", "c"], "the workers share one queue");
    assert_eq!(Pipe::three("master-worker", 3), "a0 a1 a2 b0 b1 b2 c0 c1 c2");
}

/// The stages of each pool.
fn stages_by_pool(pipe: &Pipe) -> Vec<Vec<String>> {
    pipe.runtime.snapshot().pools.into_iter().map(|pool| pool.stages).collect()
}

#[test]
fn the_threads_of_seda_dynamic_follow_the_queue_every_two_seconds() {
    let mut pipe = pipe("seda-dynamic", 12);
    assert_eq!(threads_of(&pipe.runtime), [1, 2, 2, 2]);
    pipe.runtime.hold("b");
    pipe.push(0..80);
    pipe.runtime.run_until_idle();
    let second = |pipe: &mut Pipe| {
        pipe.runtime.advance(Duration::from_secs(1));
        threads_of(&pipe.runtime)[2]
    };
    let grown: Vec<usize> = (0..20).map(|_| second(&mut pipe)).collect();
    assert_eq!(grown, [2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 10, 10, 10]);
    pipe.runtime.resume("b");
    pipe.runtime.run_until_idle();
    let shrunk: Vec<usize> = (0..20).map(|_| second(&mut pipe)).collect();
    assert_eq!(shrunk, [10, 9, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 2, 2, 2]);
    assert_eq!(threads_of(&pipe.runtime), [1, 2, 2, 2], "the others stayed");
}

#[test]
fn every_ten_seconds_the_slowest_stage_takes_a_thread_from_the_fastest() {
    let mut pipe = pipe("thread-stealing(threads=3)", 10);
    assert_eq!(threads_of(&pipe.runtime), [1, 3, 3, 3]);
    let ten = |pipe: &mut Pipe, events: std::ops::Range<u64>| {
        pipe.runtime.hold("b");
        pipe.push(events);
        pipe.runtime.advance(Duration::from_millis(9_999));
        let before = threads_of(&pipe.runtime);
        pipe.runtime.advance(Duration::from_millis(1));
        (before, threads_of(&pipe.runtime))
    };
    // All that arrived at `a` is processed, of `b` nothing, and nothing arrived at `c`, which counts
    // as nothing processed. The two slowest are `b` and `c`; `a` is the fastest, `c` the second.
    let (before, after) = ten(&mut pipe, 0..20);
    assert_eq!(before, [1, 3, 3, 3], "not before");
    assert_eq!(after, [1, 2, 4, 3]);
    assert_eq!(ten(&mut pipe, 20..40).1, [1, 1, 5, 3], "again, while it has two");
    assert_eq!(ten(&mut pipe, 40..60).1, [1, 1, 5, 3], "it keeps one");
    pipe.runtime.resume("b");
    assert_eq!(pipe.ran().split(' ').filter(|done| done.starts_with('c')).count(), 60);
}

#[test]
fn colors_run_one_at_a_time_and_different_ones_side_by_side() {
    let app = App::new("colors");
    // How many of `a` and `b`, which share a color, are inside; and of all.
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let alone = || {
        let (inside, most) = (inside.clone(), most.clone());
        move |n: u64| {
            most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::yield_now();
            inside.fetch_sub(1, SeqCst);
            n
        }
    };
    let numbers = app.source("numbers", || 0..2_000_u64);
    let a = app.map("a", alone());
    let b = app.map("b", alone());
    let c = app.map("c", |n: u64| n);
    app.connect(numbers, a);
    app.connect(a, b);
    app.connect(b, c);
    let plan = Plan::new().threads(4).policy(choice("color(colors=a=5 b=5 c=6)"));
    let plan = plan.every(|s| s.instances(3).batch(2));
    let summary = ended(app.start(&plan).unwrap(), "color");
    assert_eq!(most.load(SeqCst), 1);
    assert_eq!(handled(&summary.snapshot, "c"), 2_000);
}
