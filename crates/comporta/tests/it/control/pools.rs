//! Methods of the second group: pools, their threads and their stages.

use std::sync::{Arc, Mutex};

use comporta::policy::PoolId;
use comporta::{App, Plan};

use super::{Chain, Made, ended, handled, id, settings, threads, threads_of};

#[test]
fn a_new_pool_has_threads_and_no_stages_and_runs_those_that_are_put_there() {
    let mut chain = Chain::new(|_| Ok(()));
    let (main, pool) = chain.told(|control| {
        let pool = control.new_pool(2).unwrap();
        assert_eq!(threads(control, pool), 2);
        let main = control.main_pool();
        assert!(control.stages().iter().all(|stage| control.pool_of(stage.id) == Ok(main)));
        control.set_pool(pool, id(control, "b")).unwrap();
        assert_eq!(control.pool_of(id(control, "b")), Ok(pool));
        assert_eq!(control.pool_of(id(control, "a")), Ok(main));
        (main, pool)
    });
    assert_ne!(main, pool);
    assert_eq!(threads_of(&chain.runtime), [1, 2]);
    chain.push(0..4);
    assert_eq!(chain.ran().split(' ').count(), 12);
    chain.runtime.control().set_policy("main", "single").unwrap();
    assert_eq!(threads_of(&chain.runtime), [1], "the pool is given up");
    chain.ends();
}

/// Each of `stages` has a pool of its own with so many threads.
fn apart(app: &App, stages: &'static [(&'static str, usize)]) {
    Made::new(move |control| {
        for (name, threads) in stages {
            let pool = control.new_pool(*threads)?;
            control.set_pool(pool, id(control, name))?;
        }
        Ok(())
    })
    .add(app, "apart");
}

#[test]
fn no_more_threads_than_a_pool_has_are_in_its_stages_at_once() {
    let app = App::new("crews");
    apart(&app, &[("a", 1), ("b", 2)]);
    let numbers = app.source("numbers", || 0..600_u64);
    // How many are in each now, and were at most.
    let most = [Arc::new(Mutex::new((0, 0))), Arc::new(Mutex::new((0, 0)))];
    let here = |stage: usize| {
        let most = most[stage].clone();
        move |n: u64| {
            {
                let mut most = most.lock().unwrap();
                most.0 += 1;
                most.1 = most.1.max(most.0);
            }
            std::thread::yield_now();
            most.lock().unwrap().0 -= 1;
            n
        }
    };
    let a = app.map("a", here(0));
    let b = app.map("b", here(1));
    let c = app.map("c", |n: u64| n);
    app.connect(numbers, a);
    app.connect(a, b);
    app.connect(b, c);
    let plan = Plan::new()
        .threads(4)
        .policy("apart")
        .every(|s| s.batch(4).capacity(9))
        .stage("a", |s| s.instances(4))
        .stage("b", |s| s.instances(4));
    let summary = ended(app.start(&plan).unwrap(), "apart");
    assert_eq!(handled(&summary.snapshot, "c"), 600);
    assert_eq!(most[0].lock().unwrap().1, 1);
    assert!(most[1].lock().unwrap().1 <= 2);
}

#[test]
fn a_pool_whose_handlers_all_wait_keeps_no_other_from_its_threads() {
    let app = App::new("waits");
    apart(&app, &[("stuck", 2), ("goes", 1)]);
    let gate = crate::seen::Gate::default();
    let at = gate.clone();
    let (first, slow) = app.input::<u64>("slow");
    let (second, quick) = app.input::<u64>("quick");
    let stuck = app.sink("stuck", move |_: u64| at.pass());
    let goes = app.sink("goes", |_: u64| ());
    app.connect(slow, stuck);
    app.connect(quick, goes);
    let plan = Plan::new()
        .threads(1)
        .policy("apart")
        .stuck_after(crate::seen::NOBODY_STANDS_IN)
        .every(|s| s.batch(1))
        .stage("stuck", |s| s.instances(5));
    let running = app.start(&plan).unwrap();
    (0..5).for_each(|n| first.send(n).unwrap());
    gate.wait_for(2);
    // All threads of the one pool wait; the other's are as good as if nothing had happened.
    (0..50).for_each(|n| second.send(n).unwrap());
    crate::seen::until(|| handled(&running.snapshot(), "goes") == 50);
    assert_eq!(handled(&running.snapshot(), "stuck"), 0);
    gate.open();
    drop((first, second));
    let summary = ended(running, "apart");
    assert_eq!(handled(&summary.snapshot, "stuck"), 5);
}

#[test]
fn threads_are_added_and_killed_and_counted_at_once() {
    let mut chain = Chain::planned(|plan| plan.threads(3), |_| Ok(()));
    let seen = chain.told(|control| {
        let main = control.main_pool();
        let mut seen = vec![threads(control, main)];
        control.add_threads(main, 4).unwrap();
        seen.push(threads(control, main));
        control.kill_threads(main, 6).unwrap();
        seen.push(threads(control, main));
        control.kill_threads(main, 0).unwrap();
        control.add_threads(main, 0).unwrap();
        seen.push(threads(control, main));
        seen
    });
    assert_eq!(seen, [3, 7, 1, 1]);
    assert_eq!(threads_of(&chain.runtime), [1]);
    chain.push(0..3);
    assert_eq!(chain.ran().split(' ').count(), 9);
    chain.runtime.control().set_policy("main", "single").unwrap();
    assert_eq!(threads_of(&chain.runtime), [3]);
    chain.ends();
}

#[test]
fn a_pool_without_stages_may_lose_all_threads_and_have_some_again() {
    let mut chain = Chain::new(|_| Ok(()));
    let refused = chain.told(|control| {
        let (pool, b) = (control.new_pool(2).unwrap(), id(control, "b"));
        control.kill_threads(pool, 2).unwrap();
        let refused = control.set_pool(pool, b).unwrap_err();
        assert_eq!(control.pool_of(b), Ok(control.main_pool()));
        control.add_threads(pool, 1).unwrap();
        control.set_pool(pool, b).unwrap();
        refused
    });
    assert_eq!(
        refused.to_string(),
        "the number of threads of the pool `main-1` is 0: use at least 1"
    );
    chain.push(0..3);
    assert_eq!(chain.ran().split(' ').count(), 9);
    chain.ends();
}

#[test]
fn killing_more_threads_than_there_are_or_the_last_of_a_pool_with_stages_is_refused() {
    let mut chain = Chain::planned(|plan| plan.threads(2), |_| Ok(()));
    let before = settings(&chain.runtime.snapshot());
    let refused = chain.told(|control| {
        let main = control.main_pool();
        [
            control.kill_threads(main, 3),
            control.kill_threads(main, 2),
            control.kill_threads(PoolId(7), 1),
            control.add_threads(PoolId(7), 1),
            control.set_pool(PoolId(7), id(control, "a")),
            control.threads(PoolId(7)).map(drop),
            control.add_threads(main, 1_023),
            control.new_pool(1_023).map(drop),
            control.pool_of(comporta::policy::StageId(99)).map(drop),
        ]
    });
    let refused = refused.map(|refused| refused.unwrap_err().to_string());
    assert_eq!(
        refused,
        [
            "the number of threads to go from `main` is 3: use at most 2",
            "pool `main` has 2 threads and stages to run: 2 cannot go",
            "there is no pool 7 in this cluster",
            "there is no pool 7 in this cluster",
            "there is no pool 7 in this cluster",
            "there is no pool 7 in this cluster",
            "the number of threads of `main` is 1025: use at most 1024",
            "the number of threads of `main` is 1025: use at most 1024",
            "stage 99 is not in the cluster `main`",
        ]
    );
    assert_eq!(settings(&chain.runtime.snapshot()), before);
    chain.push(0..2);
    assert_eq!(chain.ran().split(' ').count(), 6);
    chain.ends();
}

#[test]
fn pools_are_bounded_and_used_again_by_the_next_policy() {
    let mut chain = Chain::new(|_| Ok(()));
    let made = chain.told(|control| {
        let made = std::iter::from_fn(|| control.new_pool(1).ok()).take(1000).count();
        (made, control.new_pool(1).unwrap_err().to_string())
    });
    // Two for each of the four stages, and 16.
    assert_eq!(made, (24, "the number of pools is 25: use at most 24".to_owned()));
    for _ in 0..50 {
        chain.runtime.control().set_policy("main", "seda").unwrap();
        assert_eq!(threads_of(&chain.runtime), [1, 2, 2, 2]);
        let pools = chain.runtime.snapshot().pools;
        let stages: Vec<_> = pools.iter().map(|pool| pool.stages.join(" ")).collect();
        assert_eq!(stages, ["in", "a", "b", "c"], "each as before");
    }
    chain.ends();
}

#[test]
fn the_threads_of_a_pool_finish_what_they_have_in_hand() {
    // All but one thread go while each has an event in hand.
    let app = App::new("in-hand");
    let gate = crate::seen::Gate::default();
    let at = gate.clone();
    Made::new(|control| control.add_timer(std::time::Duration::from_millis(1)).map(drop))
        .on_timer(|control| {
            let main = control.main_pool();
            match threads(control, main) {
                1 => Ok(()),
                n => control.kill_threads(main, n - 1),
            }
        })
        .add(&app, "killer");
    let numbers = app.source("numbers", || 0..40_u64);
    let work = app.map("work", move |n: u64| {
        at.pass();
        n
    });
    let sink = app.sink("sink", |_: u64| ());
    app.connect(numbers, work);
    app.connect(work, sink);
    let plan = Plan::new()
        .threads(4)
        .policy("killer")
        .every(|s| s.batch(1))
        .stage("work", |s| s.instances(4));
    let running = app.start(&plan).unwrap();
    gate.wait_for(1);
    crate::seen::until(|| running.snapshot().pools[0].threads == 1);
    gate.open();
    let summary = ended(running, "killer");
    assert!(summary.snapshot.adds_up() && summary.problems.is_empty(), "{summary}");
    assert_eq!(handled(&summary.snapshot, "sink"), 40);
}
