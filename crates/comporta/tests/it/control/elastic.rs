//! Elastic stages on the real runtime: that threads follow load and are used, beside which policies a stage of a plan is
//! elastic, and what becomes of it when the policy is replaced. The rules themselves are tested in `crates/policy`.

use std::sync::mpsc::channel;
use std::time::Duration;

use comporta::policy::Choice;
use comporta::testing::{Dice, ServiceTime, TestRuntime};
use comporta::{App, Control, Plan, PolicyWarning, StageSet};

use crate::seen::{stage, until};

/// `numbers` -> `work`, whose handlers take two milliseconds -> `store`.
fn program(events: u64) -> App {
    let app = App::new("elastic");
    let numbers = app.source("numbers", move || 0..events);
    let work = app.map("work", |n: u64| {
        let (_open, never) = channel::<()>();
        let _ = never.recv_timeout(Duration::from_millis(2)); // the work
        n
    });
    let work = work.keyed(|n: &u64| n % 100);
    let store = app.sink("store", |_: u64| ());
    app.connect(numbers, work);
    app.connect(work, store);
    app
}

fn quick(controller: &str) -> Choice {
    let (deadline, sample) = (Duration::from_millis(500), Duration::from_millis(50));
    let choice = Choice::new(controller).with("deadline", deadline).with("sample", sample);
    choice.with("threads_max", 8).with("cpu_max", 100_000) // whatever else the host does
}

/// The threads of the pool that `work` has to itself, as decisions report them.
fn reported(control: &Control) -> Vec<usize> {
    let decisions = control.decisions("main").unwrap();
    let counts = decisions.iter().filter_map(|decision| {
        let count = decision.did.strip_prefix("pool `main-")?.split("has ").nth(1)?;
        count.split(' ').next()?.parse().ok()
    });
    counts.collect()
}

#[test]
fn threads_of_a_stage_follow_its_load_whether_the_policy_or_the_plan_says_so() {
    let rated = |plan: Plan| plan.threads(1).stage("numbers", |s| s.rate(2_000.0));
    for controller in ["elastic", "ds2"] {
        let plans = [
            rated(Plan::new().policy(quick(controller))),
            rated(Plan::new().stage("work", |work| work.elastic(quick(controller)))),
        ];
        for plan in plans {
            let running = program(u64::MAX).start(&plan).unwrap();
            let control = running.control();
            until(|| reported(&control).iter().any(|threads| *threads >= 3));
            let decisions = control.decisions("main").unwrap();
            let is_pool = |did: &str| did.starts_with("pool `main-");
            let grown = decisions.iter().find(|decision| is_pool(&decision.did));
            let why = grown.and_then(|decision| decision.why.clone()).unwrap_or_default();
            assert!(why.starts_with("`work`: "), "{why}");
            let summary = running.stop();
            assert!(summary.snapshot.adds_up(), "{}", summary.snapshot);
        }
    }
}

#[test]
fn many_keys_of_which_few_are_known_bound_nothing() {
    for keys in [200, 1_000, 4_141] {
        let app = App::new("keys");
        let mut dice = Dice::new(keys as u64);
        let numbers = std::iter::repeat_with(move || dice.below(keys));
        let numbers = app.source("numbers", || comporta::sources::paced(50.0, numbers));
        let work = app.sink("work", |_: usize| ()).keyed(|key| *key);
        app.connect(numbers, work);
        let plan = Plan::new().threads(1);
        let plan = plan.stage("work", |work| work.capacity(100_000).elastic("elastic"));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        runtime.service_time("work", ServiceTime::waiting(Duration::from_millis(80)));
        runtime.advance(Duration::from_secs(60));
        let decisions = runtime.control().decisions("main").unwrap();
        let why = decisions.iter().filter_map(|decision| decision.why.as_deref());
        let why: Vec<_> = why.filter(|why| why.contains("queue")).collect();
        assert!(!why.is_empty() && !why.iter().any(|why| why.contains("hot key")), "{why:?}");
    }
}

#[test]
fn a_policy_with_pools_of_its_own_is_refused_beside_an_elastic_stage() {
    let elastic = |policy| Plan::new().policy(policy).stage("work", |work| work.elastic("elastic"));
    for policy in ["seda", "seda-dynamic", "thread-stealing", "elastic", "ds2"] {
        let refused = program(9).rehearse(&elastic(policy)).unwrap_err()[0].to_string();
        assert!(refused.contains("the policy gives `work` a pool of its own"), "{refused}");
        assert!(program(9).start(&elastic(policy)).is_err(), "{policy}");
    }
    // While a program runs, the policy before goes on, and the stage stays elastic.
    let mut runtime = TestRuntime::new(program(9), &elastic("stealing")).unwrap();
    let refused = runtime.control().set_policy("main", "seda").unwrap_err().to_string();
    assert!(refused.contains("leaves stages in the main pool"), "{refused}");
    let pools = runtime.snapshot().pools;
    assert_eq!(pools.iter().map(|pool| &*pool.policy.name).collect::<Vec<_>>(), ["stealing"; 2]);
    assert!(runtime.run() && runtime.snapshot().adds_up());
}

#[test]
fn another_policy_has_the_same_elastic_stages_from_their_least_threads_on() {
    let plan = Plan::new()
        .threads(2)
        .stage("work", |work| work.elastic(Choice::new("ds2").with("threads_min", 3)));
    let mut runtime = TestRuntime::new(program(200), &plan.every(|s| s.batch(1))).unwrap();
    for policy in ["single", "cohort", "dbr", "srpt", "stealing"] {
        runtime.control().set_policy("main", policy).unwrap();
        let threads: Vec<_> = runtime.snapshot().pools.iter().map(|pool| pool.threads).collect();
        assert_eq!(threads, [2, 3], "{policy}");
        assert_eq!(stage(&runtime.snapshot(), "work").instances, 16, "{policy}");
        for _ in 0..5 {
            runtime.step();
        }
    }
    assert!(runtime.run() && runtime.snapshot().adds_up(), "{}", runtime.snapshot());
}

#[test]
fn only_a_stage_without_keys_and_order_is_warned_of() {
    let plan = Plan::new()
        .stage("work", |s| s.elastic("elastic"))
        .stage("store", |s| s.elastic("elastic"));
    let warnings = program(9).rehearse(&plan).unwrap();
    let [PolicyWarning::ElasticOrder { stage, instances, .. }] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert_eq!((stage.as_str(), *instances), ("store", 16));
}

#[test]
fn decisions_on_the_threads_of_a_stage_have_the_name_of_its_controller() {
    let plan = Plan::new().threads(2).policy("srpt").stage("work", |work| work.elastic("ds2"));
    let runtime = TestRuntime::new(program(9), &plan).unwrap();
    let decisions = runtime.control().decisions("main").unwrap();
    let of = |name: &str| decisions.iter().filter(|one| one.policy == name).count();
    assert_eq!((of("ds2"), of("ds2") + of("srpt")), (3, decisions.len()), "{decisions:?}");
    let shown = decisions.iter().find(|one| one.did.starts_with("a new pool")).unwrap().to_string();
    assert!(shown.starts_with("0.000 s: ds2 (start): a new pool"), "{shown}");
}

#[test]
fn a_stage_moves_only_where_it_can_be_elastic() {
    let ds2 = || Choice::new("ds2").with("threads_min", 3);
    let policies = [("seda", None), ("srpt", Some(2))];
    for (policy, bound) in policies {
        let plan = Plan::new().threads(1).stage("work", |work| work.elastic(ds2()));
        let plan =
            plan.stage("store", |store| if bound.is_some() { store.elastic("ds2") } else { store });
        let plan = plan.cluster("side", |side| {
            let side = side.threads(2).policy(policy).stages(StageSet::of(["store"]));
            if let Some(bound) = bound { side.elastic_threads(bound) } else { side }
        });
        let mut runtime = TestRuntime::new(program(50), &plan).unwrap();
        runtime.step();
        let before = pools(&runtime);
        let refused = runtime.control().move_stage("work", "side").unwrap_err().to_string();
        assert!(refused.starts_with("the policy did not start: "), "{refused}");
        assert_eq!(pools(&runtime), before, "nothing has changed");
        assert!(runtime.problems().is_empty(), "{:?}", runtime.problems());
        assert!(runtime.run() && runtime.snapshot().adds_up(), "{}", runtime.snapshot());
    }
}

/// Every pool: its cluster, its policy, its threads and its stages.
fn pools(runtime: &TestRuntime) -> Vec<(String, String, usize, Vec<String>)> {
    let pools = runtime.snapshot().pools.into_iter();
    pools.map(|pool| (pool.cluster, pool.policy.name, pool.threads, pool.stages)).collect()
}
