//! What attacks on the control interface broke once.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::policy::{Choice, Entry, Offer, Policy, PolicyControl, Refused};
use comporta::testing::TestRuntime;
use comporta::{App, Out, Plan, StageSet, batched};

use super::{Chain, Made, Puppet, all, ended, id, ids, settings, threads_of};
use crate::seen::{Gate, stage, thread, until};

#[test]
fn an_order_without_the_place_to_restart_at_is_refused() {
    let mut chain = Chain::new(|control| {
        control.use_per_stage_queues()?;
        let long = [id(control, "a"); 100];
        control.set_visit_order(&long)?;
        control.set_restart_at(Some(99))
    });
    let refused = chain.told(|control| {
        let refused = control.set_visit_order(&ids(control, &["b", "a"]));
        control.set_restart_at(None).unwrap();
        let order = ids(control, &["c", "b", "a"]);
        control.set_visit_order(&order).unwrap();
        refused
    });
    assert_eq!(refused, Err(Refused::NoPlace { index: 99, len: 3 }));
    chain.push(0..3);
    assert_eq!(chain.ran().split(' ').count(), 9);
    chain.ends();
}

#[test]
fn private_queues_of_a_cluster_without_stages_do_no_harm() {
    let app = App::new("empty");
    Made::new(|control| {
        control.use_per_stage_queues()?;
        control.set_fire_last_focused(true)?;
        control.set_max_visits(NonZeroUsize::new(1))
    })
    .add(&app, "watcher");
    let numbers = app.source("numbers", || 0..9_u64);
    let sink = app.sink("sink", |_: u64| ());
    app.connect(numbers, sink);
    let none = |side: comporta::ClusterPlan| side.policy("watcher").stages(StageSet::none());
    let mut runtime = TestRuntime::new(app, &Plan::new().cluster("side", none)).unwrap();
    assert!(runtime.run());
    assert!(runtime.problems().is_empty(), "{:?}", runtime.problems());
}

#[test]
fn a_stage_takes_its_tokens_along_from_a_cluster_that_is_left_without_threads() {
    let app = App::new("deserted");
    Made::new(|control| match control.stages() {
        [] => control.kill_threads(control.main_pool(), 1),
        _ => Ok(()),
    })
    .add(&app, "closes");
    let (sender, port) = app.input("in");
    let sink = app.sink("sink", |_: u64| ());
    app.connect(port, sink);
    let plan = Plan::new()
        .cluster("side", |side| side.threads(1).policy("closes").stages(StageSet::of(["sink"])));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.run_until_idle();
    sender.try_send(1).unwrap(); // its token stands with the worker of `side`
    runtime.control().move_stage("sink", "main").unwrap();
    assert_eq!(threads_of(&runtime)[1], 0, "the last worker of `side` leaves");
    drop(sender);
    assert!(runtime.run(), "stalled:\n{}", runtime.snapshot());
    assert_eq!(stage(&runtime.snapshot(), "sink").counts.handled, 1);
}

#[test]
fn threads_asked_for_by_a_pool_that_was_given_up_come_back() {
    let mut chain = Chain::planned(
        |plan| plan.threads(4),
        |control| {
            let (pool, a, b) = (control.new_pool(1)?, id(control, "a"), id(control, "b"));
            control.set_pool(pool, a)?;
            control.steal(a, b, 3)?; // nobody has come yet
            control.set_pool(control.main_pool(), a)?;
            control.kill_threads(pool, 4)
        },
    );
    assert_eq!(threads_of(&chain.runtime), [1]);
    chain.runtime.control().set_policy("main", "stealing").unwrap();
    assert_eq!(threads_of(&chain.runtime), [4]);
    // And the pool, used again, has the threads it is given.
    chain.runtime.control().set_policy("main", Choice::new("seda").with("threads", 3)).unwrap();
    assert_eq!(threads_of(&chain.runtime), [1, 3, 3, 3]);
    chain.push(0..5);
    assert_eq!(chain.ran().split(' ').count(), 15);
    chain.ends();
}

#[test]
fn instances_killed_while_busy_are_as_planned_again_under_the_next_policy() {
    let app = App::new("busy");
    let puppet = Puppet::add(&app, |_| Ok(()));
    let numbers = app.source("numbers", || 0..40_u64);
    let work = app.map("work", |n: u64| n);
    let sink = app.sink("sink", |_: u64| ());
    app.connect(numbers, work);
    app.connect(work, sink);
    let plan = Plan::new()
        .policy("puppet")
        .every(|s| s.batch(1))
        .stage("work", |s| s.instances(4))
        .stage("sink", |s| s.capacity(1));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("sink");
    runtime.run_until_idle();
    assert_eq!(stage(&runtime.snapshot(), "work").idle, 0, "all wait for room");
    let seen = puppet.told(&mut runtime, |control| {
        let work = id(control, "work");
        control.kill_instances(work, 3).unwrap();
        let killed = control.instances(work).unwrap();
        let refused = control.kill_instances(work, 1).is_err();
        control.add_instances(work, 1).unwrap();
        (killed, refused, control.instances(work).unwrap())
    });
    assert_eq!(seen, (1, true, 2), "those that leave after their event do not count");
    runtime.control().set_policy("main", "single").unwrap();
    runtime.resume("sink");
    assert!(runtime.run_until_idle() > 0);
    assert!(runtime.problems().is_empty(), "{:?}", runtime.problems());
    assert!(runtime.run());
}

#[test]
fn planned_instances_stay_when_the_policy_that_killed_some_has_gone() {
    let app = App::new("busy");
    let puppet = Puppet::add(&app, |_| Ok(()));
    let (sender, port) = app.input("in");
    let work = app.map("work", |n: u64| n);
    let sink = app.sink("sink", |_: u64| ());
    app.connect(port, work);
    app.connect(work, sink);
    let plan = Plan::new()
        .policy("puppet")
        .every(|s| s.batch(1))
        .stage("work", |s| s.instances(4))
        .stage("sink", |s| s.capacity(1));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("sink");
    (0..20).for_each(|n| sender.send(n).unwrap());
    runtime.run_until_idle();
    assert_eq!(stage(&runtime.snapshot(), "work").idle, 0, "all wait for room");
    puppet.told(&mut runtime, |control| control.kill_instances(id(control, "work"), 3)).unwrap();
    runtime.control().set_policy("main", "single").unwrap();
    runtime.resume("sink");
    runtime.run_until_idle();
    assert_eq!(stage(&runtime.snapshot(), "work").instances, 4);
}

#[test]
fn a_main_pool_that_a_person_gave_threads_takes_stages_again() {
    let mut chain = Chain::planned(
        |plan| plan.threads(2),
        |control| {
            let pool = control.new_pool(1)?;
            for stage in control.stages().to_vec() {
                control.set_pool(pool, stage.id)?;
            }
            control.kill_threads(control.main_pool(), 2)
        },
    );
    chain.runtime.control().set_threads("main", 3).unwrap();
    chain.told(|control| control.set_pool(control.main_pool(), id(control, "b"))).unwrap();
    chain.push(0..3);
    assert_eq!(chain.ran().split(' ').count(), 9);
    chain.ends();
}

/// Two threads that find nothing, and a policy that turns the order round at each end.
#[test]
fn a_policy_that_changes_its_order_at_every_end_lets_idle_threads_sleep() {
    let app = App::new("idle");
    let (turns, beats) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (turned, beat) = (turns.clone(), beats.clone());
    Made::new(|control| {
        control.use_per_stage_queues()?;
        control.add_timer(Duration::from_millis(1))?;
        control.set_fire_last_focused(true)
    })
    .on_last_focused(move |control| {
        let mut order = all(control);
        if turned.fetch_add(1, SeqCst) % 2 == 0 {
            order.reverse();
        }
        control.set_visit_order(&order)
    })
    .on_timer(move |_| {
        beat.fetch_add(1, SeqCst);
        Ok(())
    })
    .add(&app, "turner");
    let (sender, port) = app.input("in");
    let a = app.map("a", |n: u64| n);
    let b = app.sink("b", |_: u64| ());
    app.connect(port, a);
    app.connect(a, b);
    let running = app.start(&Plan::new().threads(3).policy("turner")).unwrap();
    sender.send(1).unwrap();
    until(|| stage(&running.snapshot(), "b").counts.handled == 1);
    // The clock beats on while they sleep.
    let past = |n: usize| until(|| beats.load(SeqCst) >= n);
    past(20);
    let before = turns.load(SeqCst);
    past(60);
    let turns = turns.load(SeqCst) - before;
    assert!(turns < 100, "{turns} calls while the clock beat 40 times and there was nothing to do");
    drop(sender);
    assert!(ended(running, "turner").snapshot.adds_up());
}

/// A worker that calls the policy has an event in hand, and others give it reason to call again
/// and again.
#[test]
fn a_worker_that_calls_the_policy_handles_the_event_it_has_in_hand() {
    let app = App::new("captured");
    let looping = Arc::new(AtomicUsize::new(0));
    let passed = looping.clone();
    Made::new(|control| {
        control.use_per_stage_queues()?;
        control.set_fire_last_focused(true)
    })
    .on_last_focused(move |_| {
        // As long as another worker takes for some rounds, if another works at all.
        let from = passed.load(SeqCst);
        for _ in 0..1_000_000 {
            if passed.load(SeqCst) > from + 50 {
                break;
            }
            std::thread::yield_now();
        }
        Ok(())
    })
    .add(&app, "slow");
    let endless = app.source("endless", || 0..u64::MAX);
    let looped = app.sink("looped", move |_: u64| {
        looping.fetch_add(1, SeqCst);
    });
    app.connect(endless, looped);
    let few = app.source("few", || 0..200_u64);
    let done = app.sink("done", |_: u64| ());
    app.connect(few, done);
    let plan = Plan::new().threads(2).policy("slow").every(|s| s.batch(1).capacity(4));
    let running = app.start(&plan).unwrap();
    let over = || {
        let snapshot = running.snapshot();
        (stage(&snapshot, "done").counts.handled, stage(&snapshot, "looped").counts.handled)
    };
    until(|| over().0 == 200 || over().1 > 400_000);
    assert_eq!(over().0, 200, "the other half of the program handled {}", over().1);
    assert!(running.drain().snapshot.adds_up());
}

#[test]
fn seda_runs_stages_that_are_handed_more_events_than_its_queues_hold() {
    let app = App::new("groups");
    let numbers = app.source("numbers", || 0..1000_u64);
    let group = batched(500, Duration::from_secs(1), |group: Vec<u64>, out: &mut Out<u64>| {
        out.send(group.len() as u64);
    });
    let group = app.stage("group", group);
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let into = sizes.clone();
    let sink = app.sink("sink", move |n: u64| into.lock().unwrap().push(n));
    app.connect(numbers, group);
    app.connect(group, sink);
    let mut runtime = TestRuntime::new(app, &Plan::new().policy("seda")).unwrap();
    assert_eq!(stage(&runtime.snapshot(), "group").capacity, 500);
    assert_eq!(stage(&runtime.snapshot(), "sink").capacity, 100);
    assert!(runtime.run());
    assert_eq!(*sizes.lock().unwrap(), [500, 500]);
}

#[test]
fn a_program_that_waits_for_a_retry_is_not_at_rest_however_often_a_policys_timer_is_due() {
    let app = App::new("patient");
    Made::new(|control| control.add_timer(Duration::from_millis(1)).map(drop)).add(&app, "busy");
    let numbers = app.source("numbers", || 0..3_u64);
    let tries = Arc::new(AtomicUsize::new(0));
    let sink = app.sink("sink", move |_: u64| {
        if tries.fetch_add(1, SeqCst) == 0 { Err(comporta::Error::msg("once")) } else { Ok(()) }
    });
    app.connect(numbers, sink);
    let retry = comporta::Retry::new(2, Duration::from_secs(60));
    let plan = Plan::new().policy("busy").stage("sink", |s| s.retry(retry));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    assert!(runtime.run());
    assert_eq!(stage(&runtime.snapshot(), "sink").counts.handled, 3);
}

#[test]
fn stages_may_wander_through_clusters_that_have_a_pool_for_each() {
    let app = App::new("wander");
    let numbers = app.source("numbers", || 0..50_u64);
    let mut before = numbers;
    let names: Vec<String> = (0..12).map(|n| format!("s{n}")).collect();
    for name in &names {
        let next = app.map(name.clone(), |n: u64| n);
        app.connect(before, next);
        before = *next;
    }
    let mut plan = Plan::new().policy("seda");
    for name in ["c1", "c2", "c3", "c4"] {
        plan = plan.cluster(name, |c| c.policy("seda").stages(StageSet::none()));
    }
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    for cluster in ["c1", "c2", "c3", "c4", "main"] {
        for name in &names {
            runtime.control().move_stage(name, cluster).unwrap();
            runtime.step();
        }
    }
    assert!(runtime.problems().is_empty(), "{:?}", runtime.problems());
    assert!(runtime.run());
}

#[test]
fn a_policy_is_not_called_for_what_it_no_longer_asks_for() {
    let calls = Arc::new(AtomicUsize::new(0));
    let called = calls.clone();
    let app = App::new("spurious");
    Made::new(|control| {
        control.use_per_stage_queues()?;
        control.set_fire_last_focused(true)?;
        control.set_max_visits(NonZeroUsize::new(1))
    })
    .on_last_focused(|control| control.set_max_visits(None)) // both were due
    .on_max_visits(move |_| {
        called.fetch_add(1, SeqCst);
        Ok(())
    })
    .add(&app, "once");
    let sink = app.sink("sink", |_: u64| ());
    let (sender, port) = app.input("in");
    app.connect(port, sink);
    let mut runtime = TestRuntime::new(app, &Plan::new().threads(1).policy("once")).unwrap();
    sender.send(1).unwrap();
    runtime.run_until_idle();
    assert_eq!(calls.load(SeqCst), 0);
}

#[test]
fn persons_who_say_threads_at_once_get_what_the_last_said() {
    let (app, plan) = {
        let app = App::new("threads");
        let numbers = app.source("numbers", || 0..u64::MAX);
        let sink = app.sink("sink", |_: u64| ());
        app.connect(numbers, sink);
        (app, Plan::new().threads(2))
    };
    let running = app.start(&plan).unwrap();
    let before = settings(&running.snapshot());
    let control = running.control();
    std::thread::scope(|scope| {
        for first in 1..4 {
            let control = control.clone();
            scope.spawn(move || {
                for n in 0..300 {
                    control.set_threads("main", 1 + (first + n) % 4).unwrap();
                }
            });
        }
    });
    let threads = running.snapshot().pools[0].threads;
    assert!((1..=4).contains(&threads), "{threads} threads");
    control.set_threads("main", 2).unwrap();
    assert_eq!(settings(&running.snapshot()), before);
    assert!(running.drain().snapshot.adds_up());
}

#[test]
fn a_programs_own_policy_may_have_another_name_of_one_of_the_library() {
    let app = App::new("own");
    Made::new(|control| control.set_priority(id(control, "sink"), 3)).add(&app, "colors");
    let numbers = app.source("numbers", || 0..3_u64);
    let sink = app.sink("sink", |_: u64| ());
    app.connect(numbers, sink);
    let runtime = TestRuntime::new(app, &Plan::new().policy("colors")).unwrap();
    assert_eq!(runtime.snapshot().pools[0].policy.name, "colors");
    assert_eq!(stage(&runtime.snapshot(), "sink").priority, 3);
}

/// A policy, or a controller, whose `Drop` panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

impl Policy for Bomb {
    fn start(&mut self, _: &mut dyn PolicyControl) -> Result<(), Refused> {
        Ok(())
    }
}

impl comporta::policy::admission::Admission for Bomb {}

#[test]
fn a_policy_and_a_controller_that_panic_when_the_program_drops_them_cost_nothing() {
    let app = App::new("bombs");
    let offer = Offer { name: "bomb", aliases: &[], about: "", cites: "", params: &[] };
    app.register_policy(Entry::new(offer, |_| Bomb));
    app.register_admission(comporta::policy::admission::Entry::new(offer, |_| Bomb));
    let numbers = app.source("numbers", || 0..9_u64);
    app.connect(numbers, app.sink("sink", |_: u64| ()));
    let plan = Plan::new().policy("bomb").stage("sink", |s| s.admission(Choice::new("bomb")));
    assert_eq!(app.rehearse(&plan).unwrap(), []);
    let summary = ended(app.start(&plan).unwrap(), "bomb");
    assert_eq!(stage(&summary.snapshot, "sink").counts.handled, 9);
}

/// Instances that are too many leave when their visits end: not while they are wanted again.
#[test]
fn as_many_instances_as_are_wanted_stay_while_others_are_made() {
    let app = App::new("wanted");
    let (visits, making) = (Gate::default(), Gate::default());
    let (visit, make) = (visits.clone(), making.clone());
    let (sender, port) = app.input::<u64>("in");
    let work = app.stage_with("work", move |cx| {
        if cx.instance() == 2 {
            make.pass();
        }
        let visit = visit.clone();
        Ok(move |_: u64, _: &mut Out<u64>| visit.pass())
    });
    app.connect(port, work);
    let plan = Plan::new().threads(2).every(|s| s.batch(1)).stage("work", |s| s.instances(2));
    let running = app.start(&plan).unwrap();
    (0..2).for_each(|n| sender.send(n).unwrap());
    visits.wait_for(2);
    running.control().set_instances("work", 1).unwrap(); // one of the two will leave
    let control = running.control();
    let made = thread(move || control.set_instances("work", 3).unwrap());
    making.wait_for(1);
    visits.open();
    until(|| stage(&running.snapshot(), "work").counts.handled == 2);
    making.open();
    made.join().unwrap();
    assert_eq!(stage(&running.snapshot(), "work").instances, 3);
    drop(sender);
    assert!(ended(running, "wanted").snapshot.adds_up());
}
