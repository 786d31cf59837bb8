//! What each controller is chosen for, seen on the real runtime: on threads where they matter, else on
//! virtual time.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{App, Plan, PolicyWarning, Shed};

use super::{STALLED, ended, handled};
use crate::admission::choice;
use crate::seen::{Gate, NOBODY_STANDS_IN, stage, until};

/// Where handlers meet: so many must be there at once before any of them goes on.
#[derive(Clone)]
struct Meeting(Arc<(Mutex<usize>, Condvar)>, usize);

impl Meeting {
    fn of(n: usize) -> Self {
        Meeting(Arc::default(), n)
    }

    /// Waits for the others; returns `false` if they do not come.
    fn join(&self) -> bool {
        let (came, all) = &*self.0;
        let mut came = came.lock().unwrap();
        *came += 1;
        all.notify_all();
        let came = all.wait_timeout_while(came, STALLED, |came| *came < self.1).unwrap();
        !came.1.timed_out()
    }
}

/// Runs so many events through a stage under a policy, and returns whether its handlers were all in it
/// at once.
fn at_once(events: u64, policy: &str) -> bool {
    let app = App::new("at once");
    let met = Arc::new(Mutex::new(true));
    let (meeting, all_met) = (Meeting::of(events as usize), met.clone());
    let numbers = app.source("numbers", move || 0..events);
    let work = app.sink("work", move |_: u64| {
        let here = meeting.join();
        *all_met.lock().unwrap() &= here;
    });
    app.connect(numbers, work);
    let plan = Plan::new().threads(1).policy(choice(policy));
    let plan = plan.stuck_after(NOBODY_STANDS_IN);
    let summary = ended(app.start(&plan.every(|s| s.batch(1))).unwrap(), policy);
    assert_eq!(handled(&summary.snapshot, "work"), events);
    *met.lock().unwrap()
}

#[test]
fn a_stage_of_seda_uses_all_its_threads_without_being_told_to() {
    assert!(at_once(4, "seda(threads=4)"));
}

#[test]
fn threads_that_seda_dynamic_adds_are_used() {
    // It begins with two, and every millisecond it finds some to do it adds one.
    assert!(at_once(6, "seda-dynamic(every=1ms, above=0)"));
}

#[test]
fn with_shed_every_stage_of_seda_sheds_what_finds_it_full_and_without_it_none() {
    for (policy, expected) in
        [("seda(capacity=3)", [0, 0]), ("seda(capacity=3, shed=true)", [7, 2])]
    {
        let app = App::new("shed");
        let (sender, port) = app.input::<u64>("in");
        let first = app.map("first", |n: u64| n);
        let last = app.sink("last", |_: u64| ());
        app.connect(port, first);
        app.connect(first, last);
        let plan = Plan::new().policy(choice(policy)).every(|s| s.batch(1));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.hold("first");
        runtime.hold("last");
        // Ten come to a stage that holds three, and then two more go on to one that holds one more.
        let took = (0..10).filter(|n| sender.try_send(*n).is_ok()).count();
        assert_eq!(
            took,
            if expected[0] == 0 { 3 } else { 10 },
            "{policy}: given back, or taken and shed"
        );
        for _ in 0..2 {
            runtime.resume("first");
            runtime.run_until_idle();
            runtime.hold("first");
            (0..2).for_each(|n| _ = sender.try_send(n));
        }
        let shed = |name| stage(&runtime.snapshot(), name).counts.shed(Shed::Newest);
        assert_eq!([shed("first"), shed("last")], expected, "{policy}");
        ["first", "last"].iter().for_each(|name| runtime.resume(name));
        drop(sender);
        assert!(runtime.run() && runtime.snapshot().adds_up(), "{}", runtime.snapshot());
    }
}

#[test]
fn instances_follow_the_threads_unless_somebody_says_otherwise() {
    let program = || {
        let app = App::new("said");
        let numbers = app.source("numbers", || 0..9_u64);
        let plain = app.map("plain", |n: u64| n);
        let planned = app.map("planned", |n: u64| n);
        let state = app.map("state", |n: u64| n).stateful();
        let order = app.map("order", |n: u64| n).ordered();
        let store = app.sink("store", |_: u64| ());
        app.connect(numbers, plain);
        app.connect(plain, planned);
        app.connect(planned, state);
        app.connect(state, order);
        app.connect(order, store);
        app
    };
    let names = ["plain", "planned", "state", "order", "store"];
    let instances =
        |runtime: &TestRuntime| names.map(|name| stage(&runtime.snapshot(), name).instances);
    let plan = |policy| Plan::new().policy(choice(policy));
    for (policy, expected) in [
        ("seda(threads=4)", [4, 3, 1, 1, 4]),
        ("seda-dynamic", [10, 3, 1, 1, 10]),
        ("thread-stealing", [10, 3, 1, 1, 10]),
        ("elastic", [16, 3, 1, 1, 16]),
        ("ds2(threads_max=4)", [4, 3, 1, 1, 4]),
        ("single", [1, 3, 1, 1, 1]),
    ] {
        let plan = plan(policy).stage("planned", |s| s.instances(3));
        let (mut given_up, mut idle) = (Vec::new(), Vec::new());
        for warning in program().rehearse(&plan).unwrap() {
            match warning {
                PolicyWarning::OrderGivenUp { stage, instances, .. } => {
                    given_up.push((stage, instances));
                }
                PolicyWarning::IdleThreads { stage, threads, instances, .. } => {
                    idle.push((stage, threads, instances));
                }
                other => panic!("{other}"),
            }
        }
        let mut runtime = TestRuntime::new(program(), &plan).unwrap();
        assert_eq!(instances(&runtime), expected, "{policy}");
        let more = ["plain", "store"].map(|name| (name.to_owned(), expected[0]));
        assert_eq!(given_up, if expected[0] > 1 { more.to_vec() } else { Vec::new() }, "{policy}");
        // A stateful stage can have no more.
        let threads = if policy == "seda(threads=4)" { 4 } else { 2 };
        let less = [("planned".to_owned(), threads, 3), ("order".to_owned(), threads, 1)];
        let less = less.into_iter().filter(|(_, threads, instances)| threads > instances);
        // Threads of elastic stages are one to begin with, and what cannot use more is in the main pool.
        let fits = matches!(policy, "single" | "elastic" | "ds2(threads_max=4)");
        let less: Vec<_> = if fits { Vec::new() } else { less.collect() };
        assert_eq!(idle, less, "{policy}");
        // What a person says since holds under the next policy too; the plan's word does as well.
        runtime.control().set_instances("plain", 2).unwrap();
        runtime.control().set_policy("main", "seda(threads=5)").unwrap();
        assert_eq!(instances(&runtime), [2, 3, 1, 1, 5]);
        runtime.control().set_policy("main", "single").unwrap();
        assert_eq!(instances(&runtime), [2, 3, 1, 1, 1]);
        assert!(runtime.run());
    }
    // `every` says it of all stages.
    let runtime =
        TestRuntime::new(program(), &plan("seda(threads=4)").every(|s| s.instances(1))).unwrap();
    assert_eq!(instances(&runtime), [1; 5]);
}

#[test]
fn a_capacity_that_somebody_says_holds_under_seda_too() {
    let app = App::new("said");
    let numbers = app.source("numbers", || 0..9_u64);
    let plain = app.map("plain", |n: u64| n);
    let planned = app.map("planned", |n: u64| n);
    let store = app.sink("store", |_: u64| ());
    app.connect(numbers, plain);
    app.connect(plain, planned);
    app.connect(planned, store);
    let plan = Plan::new().policy("seda").stage("planned", |s| s.capacity(1_024));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    let capacities = |runtime: &TestRuntime| {
        ["plain", "planned", "store"].map(|name| stage(&runtime.snapshot(), name).capacity)
    };
    assert_eq!(capacities(&runtime), [100, 1_024, 100]);
    runtime.control().set_capacity("store", 7).unwrap();
    runtime.control().set_policy("main", choice("seda-dynamic(capacity=50)")).unwrap();
    assert_eq!(capacities(&runtime), [50, 1_024, 7]);
    assert!(runtime.run());
}

#[test]
fn the_master_combines_while_every_worker_is_busy() {
    let app = App::new("master");
    let gate = Gate::default();
    let (at, before) = (gate.clone(), gate.clone());
    let parts = app.source("parts", || 1..=10_u64);
    let solve = app.map("solve", move |n: u64| {
        if n > 8 {
            at.pass(); // the last two parts keep both workers
        }
        n * n
    });
    let total = Arc::new(Mutex::new(0));
    let into = total.clone();
    let combine = app.sink("combine", move |n: u64| {
        before.wait_for(2); // nothing is combined before
        *into.lock().unwrap() += n;
    });
    let combine = combine.stateful();
    app.connect(parts, solve);
    app.connect(solve, combine);
    // One of the masters divides while the other combines.
    let policy = choice("master-worker(masters=2)");
    let plan = Plan::new().threads(2).policy(policy).every(|s| s.batch(1));
    let plan = plan.stuck_after(NOBODY_STANDS_IN).stage("solve", |s| s.instances(2));
    let running = app.start(&plan).unwrap();
    gate.wait_for(2);
    until(|| *total.lock().unwrap() == (1..=8).map(|n| n * n).sum::<u64>());
    gate.open();
    let _ = ended(running, "master-worker");
    assert_eq!(*total.lock().unwrap(), 385);
}

/// A chain behind an endless source, in which queues of four block: `slow` handles an event in each
/// tick, and the others whatever they can.
struct Jam(TestRuntime);

impl Jam {
    const TICK: Duration = Duration::from_millis(10);

    fn new() -> Self {
        let app = App::new("jam");
        let numbers = app.source("numbers", || 0..u64::MAX);
        let first = app.map("first", |n: u64| n);
        let slow = app.map("slow", |n: u64| n);
        let last = app.sink("last", |_: u64| ());
        app.connect(numbers, first);
        app.connect(first, slow);
        app.connect(slow, last);
        let plan = Plan::new().threads(2).policy("single").every(|s| s.batch(1).capacity(4));
        let mut jam = Jam(TestRuntime::new(app, &plan).unwrap());
        jam.0.hold("slow");
        jam.tick(50); // every queue before it is full
        jam
    }

    fn tick(&mut self, times: usize) {
        for _ in 0..times {
            let handled = |runtime: &TestRuntime| handled(&runtime.snapshot(), "slow");
            let before = handled(&self.0);
            self.0.run_until_idle();
            self.0.resume("slow");
            while handled(&self.0) == before {
                assert!(self.0.step());
            }
            self.0.hold("slow");
            self.0.advance(Self::TICK);
        }
    }

    fn threads_for(&self, name: &str) -> usize {
        let pools = self.0.snapshot().pools;
        pools.iter().find(|pool| pool.stages == [name]).unwrap().threads
    }
}

#[test]
fn where_queues_block_the_stage_that_holds_up_the_others_takes_a_thread() {
    let mut jam = Jam::new();
    jam.0.control().set_policy("main", choice("thread-stealing(every=1s)")).unwrap();
    assert_eq!(["first", "slow", "last"].map(|name| jam.threads_for(name)), [2, 2, 2]);
    jam.tick(150);
    assert_eq!(["first", "slow", "last"].map(|name| jam.threads_for(name)), [2, 3, 1]);
}

#[test]
fn where_queues_block_threads_visit_the_stage_that_holds_up_the_others_first() {
    let mut jam = Jam::new();
    jam.0.control().set_policy("main", "dbr").unwrap();
    jam.tick(20);
    let decisions = jam.0.control().decisions("main").unwrap();
    let mut orders = decisions.iter().rev().filter(|it| it.did.starts_with("the visit order is"));
    let order = &orders.next().unwrap().did;
    assert!(order.starts_with("the visit order is `slow`"), "{order}");
}

#[test]
fn a_thread_that_a_slow_stage_stole_is_used() {
    let app = App::new("steal");
    let (sender, port) = app.input::<u64>("in");
    let (quick, quick_port) = app.input::<u64>("quick");
    let (meeting, met) = (Meeting::of(3), Arc::new(Mutex::new(Vec::new())));
    let into = met.clone();
    // Two begin, and wait for a third: until then nothing is processed.
    let slow = app.sink("slow", move |_: u64| {
        let all = meeting.join();
        into.lock().unwrap().push(all);
    });
    let fast = app.sink("fast", |_: u64| ());
    app.connect(port, slow);
    app.connect(quick_port, fast);
    let plan = Plan::new().threads(1).policy(choice("thread-stealing(every=1ms)"));
    let plan = plan.stuck_after(NOBODY_STANDS_IN).every(|s| s.batch(1));
    let running = app.start(&plan).unwrap();
    (0..3).for_each(|n| sender.send(n).unwrap());
    until(|| {
        quick.send(0).unwrap(); // so that `fast` has a rate
        met.lock().unwrap().len() == 3
    });
    drop((sender, quick));
    let _ = ended(running, "thread-stealing");
    assert_eq!(*met.lock().unwrap(), [true; 3]);
}

#[test]
fn stages_of_different_colors_run_side_by_side() {
    let app = App::new("colors");
    let (sender, port) = app.input::<u64>("in");
    let (meeting, met) = (Meeting::of(2), Arc::new(Mutex::new(Vec::new())));
    for name in ["red", "blue"] {
        let (meeting, into) = (meeting.clone(), met.clone());
        let stage = app.sink(name, move |_: u64| {
            let both = meeting.join();
            into.lock().unwrap().push(both);
        });
        app.connect(port, stage);
    }
    let plan = Plan::new().threads(2).policy("color").stuck_after(NOBODY_STANDS_IN);
    let running = app.start(&plan).unwrap();
    sender.send(0).unwrap();
    drop(sender);
    let _ = ended(running, "color");
    assert_eq!(*met.lock().unwrap(), [true; 2]);
}
