//! What each controller is chosen for, seen on the real runtime: on threads where they matter, else on
//! virtual time.

use std::sync::{Arc, Condvar, Mutex};

use comporta::testing::TestRuntime;
use comporta::{App, Plan, PolicyWarning, Shed};

use super::{STALLED, ended, handled};
use crate::seen::{Gate, stage, until};

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
    let plan = Plan::new().threads(1).policy(crate::admission::choice(policy));
    let summary = ended(app.start(&plan.every(|s| s.batch(1))).unwrap(), &policy);
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
        let plan = Plan::new().policy(crate::admission::choice(policy)).every(|s| s.batch(1));
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
    let plan = |policy| Plan::new().policy(crate::admission::choice(policy));
    for (policy, expected) in [
        ("seda(threads=4)", [4, 3, 1, 1, 4]),
        ("seda-dynamic", [10, 3, 1, 1, 10]),
        ("thread-stealing", [10, 3, 1, 1, 10]),
        ("single", [1, 3, 1, 1, 1]),
    ] {
        let plan = plan(policy).stage("planned", |s| s.instances(3));
        let given_up: Vec<_> = program()
            .rehearse(&plan)
            .unwrap()
            .into_iter()
            .map(|warning| match warning {
                PolicyWarning::OrderGivenUp { stage, instances, .. } => (stage, instances),
                other => panic!("{other}"),
            })
            .collect();
        let mut runtime = TestRuntime::new(program(), &plan).unwrap();
        assert_eq!(instances(&runtime), expected, "{policy}");
        let more = ["plain", "store"].map(|name| (name.to_owned(), expected[0]));
        assert_eq!(given_up, if expected[0] > 1 { more.to_vec() } else { Vec::new() }, "{policy}");
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
fn the_master_combines_while_every_worker_is_busy() {
    let app = App::new("master");
    let gate = Gate::default();
    let at = gate.clone();
    let parts = app.source("parts", || 1..=10_u64);
    let solve = app.map("solve", move |n: u64| {
        if n > 8 {
            at.pass(); // the last two parts keep both workers
        }
        n * n
    });
    let total = Arc::new(Mutex::new(0));
    let into = total.clone();
    let combine = app.sink("combine", move |n: u64| *into.lock().unwrap() += n).stateful();
    app.connect(parts, solve);
    app.connect(solve, combine);
    let plan = Plan::new().threads(2).policy("master-worker").every(|s| s.batch(1));
    let running = app.start(&plan.stage("solve", |s| s.instances(2))).unwrap();
    gate.wait_for(2);
    until(|| *total.lock().unwrap() == (1..=8).map(|n| n * n).sum::<u64>());
    gate.open();
    let _ = ended(running, &"master-worker");
    assert_eq!(*total.lock().unwrap(), 385);
}
