//! Methods of the fourth group: the visit order and its rules, stealing threads, priorities, colors.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use comporta::policy::{Focus, PolicyControl, Refused, StageId};
use comporta::testing::TestRuntime;
use comporta::{App, Plan, StageSet, batched};

use super::{Chain, Log, Made, Puppet, all, ended, handled, id, ids, threads, threads_of};

/// Under per-stage queues, with this order.
fn ordered(names: &'static [&'static str]) -> Chain {
    Chain::new(move |control| {
        control.use_per_stage_queues()?;
        control.set_visit_order(&ids(control, names))
    })
}

#[test]
fn threads_visit_stages_in_the_order_they_are_told() {
    let mut chain = ordered(&["c", "b", "a"]);
    chain.push(0..2);
    assert_eq!(chain.ran(), "a0 a1 b0 b1 c0 c1");
    // A new order holds from the next visit, from its first place.
    chain
        .told(|control| {
            control.set_visit_order(&ids(control, &["a", "c", "b"]))?;
            control.set_max_events_when_focused(Focus::All, 1)
        })
        .unwrap();
    chain.push(2..4);
    assert_eq!(chain.ran(), "a2 b2 a3 c2 b3 c3");
    chain.ends();
}

#[test]
fn what_an_order_leaves_out_is_visited_after_it() {
    let mut chain = ordered(&["b"]);
    chain.push(0..2);
    assert_eq!(chain.ran(), "a0 a1 b0 b1 c0 c1");
    chain.ends();
}

#[test]
fn a_visit_ends_after_as_many_events_as_are_allowed() {
    let mut chain = Chain::new(|control| {
        control.use_per_stage_queues()?;
        control.set_max_events_when_focused(Focus::All, 1)?;
        control.set_max_events_when_focused(Focus::Stage(id(control, "b")), 2)
    });
    chain.push(0..4);
    assert_eq!(chain.ran(), "a0 b0 c0 a1 b1 c1 a2 b2 c2 a3 b3 c3");
    chain.runtime.hold("b");
    chain.push(4..8);
    chain.runtime.run_until_idle();
    chain.log.take();
    chain.runtime.resume("b");
    assert_eq!(chain.ran(), "b4 b5 c4 b6 b7 c5 c6 c7");
    let refused =
        chain.told(|control| control.set_max_events_when_focused(Focus::All, 0).unwrap_err());
    assert_eq!(refused.to_string(), "the number of events of a visit is 0: use at least 1");
    chain.ends();
}

#[test]
fn a_group_is_handed_over_whole_and_ends_the_visit_that_it_brings_past_the_bound() {
    let app = App::new("groups");
    let log = Log::default();
    Made::new(|control| {
        control.use_per_stage_queues()?;
        control.set_max_events_when_focused(Focus::Stage(id(control, "few")), 1)?;
        control.set_max_events_when_focused(Focus::Stage(id(control, "more")), 6)
    })
    .add(&app, "bounded");
    let hour = Duration::from_secs(3_600);
    let (sender, port) = app.input::<u64>("in");
    let groups = |name: &'static str| {
        let log = log.clone();
        batched(4, hour, move |group: Vec<u64>, _: &mut ()| log.note(name, group.len()))
    };
    let few = app.stage("few", groups("few"));
    let more = app.stage("more", groups("more"));
    app.connect(port, few);
    app.connect(port, more);
    let mut runtime = TestRuntime::new(app, &Plan::new().threads(1).policy("bounded")).unwrap();
    (0..12).for_each(|n| sender.send(n).unwrap());
    runtime.run_until_idle();
    // One group passes a bound of 1; of a bound of 6, two groups: the first leaves it unreached.
    assert_eq!(log.take(), "few4 more4 more4 few4 more4 few4");
}

#[test]
fn after_a_success_threads_go_where_they_are_told() {
    let mut chain = Chain::new(|control| {
        control.use_per_stage_queues()?;
        control.set_max_events_when_focused(Focus::All, 1)?;
        control.set_visit_order(&ids(control, &["c", "b", "a"]))?;
        control.set_restart_at(Some(0))
    });
    chain.push(0..3);
    assert_eq!(chain.ran(), "a0 b0 c0 a1 b1 c1 a2 b2 c2", "each to its end first");
    chain.told(|control| control.set_restart_at(None)).unwrap();
    chain.push(3..5);
    assert_eq!(chain.ran(), "a3 b3 a4 c3 b4 c4");
    let refused = chain.told(|control| control.set_restart_at(Some(3)).unwrap_err());
    assert_eq!(refused, Refused::NoPlace { index: 3, len: 3 });
    assert_eq!(refused.to_string(), "the visit order has 3 places: there is no place 3");
    chain.ends();
}

#[test]
fn an_order_that_is_set_again_sends_threads_to_its_first_place() {
    let ran = |again: bool| {
        let app = App::new("again");
        let log = Log::default();
        Made::new(|control| {
            control.use_per_stage_queues()?;
            control.set_max_events_when_focused(Focus::All, 1)?;
            control.set_fire_last_focused(true)
        })
        .on_last_focused(move |control| {
            let order = all(control);
            if again { control.set_visit_order(&order) } else { Ok(()) }
        })
        .add(&app, "again");
        let senders = ["a", "b", "c"].map(|name| {
            let (sender, port) = app.input::<u64>(format!("in-{name}"));
            app.connect(port, app.map(name, super::logs(&log, name)));
            sender
        });
        let plan = Plan::new().threads(1).policy("again").every(|s| s.batch(1));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        for (sender, events) in senders.iter().zip([4, 3, 0]) {
            (0..events).for_each(|n| sender.send(n).unwrap());
        }
        runtime.run_until_idle();
        log.take()
    };
    // On its way from `b` to `a` a thread passes the last place.
    assert_eq!(ran(false), "a0 b0 a1 b1 a2 b2 a3");
    assert_eq!(ran(true), "a0 b0 a1 a2 b1 a3 b2");
}

#[test]
fn visits_are_counted_and_zero_ends_it() {
    let calls = Arc::new(AtomicUsize::new(0));
    let called = calls.clone();
    let app = App::new("visits");
    Made::new(|control| {
        control.use_per_stage_queues()?;
        control.set_max_visits(NonZeroUsize::new(3))
    })
    .on_max_visits(move |control| {
        if called.fetch_add(1, SeqCst) == 4 {
            control.set_max_visits(None)?;
        }
        Ok(())
    })
    .add(&app, "visits");
    let (sender, port) = app.input("in");
    let sink = app.sink("sink", |_: u64| ());
    app.connect(port, sink);
    let mut runtime = TestRuntime::new(app, &Plan::new().threads(1).policy("visits")).unwrap();
    let mut seen = Vec::new();
    for n in 0..12 {
        sender.send(n).unwrap();
        runtime.run_until_idle(); // the one place with an event, and once without
        seen.push(calls.load(SeqCst));
    }
    assert_eq!(seen, [0, 1, 2, 2, 3, 4, 4, 5, 5, 5, 5, 5]);
}

#[test]
fn an_order_of_nothing_or_with_a_stage_of_another_cluster_is_refused_and_nothing_changes() {
    let app = App::new("two");
    let log = super::Log::default();
    let puppet = Puppet::add(&app, |control| control.use_per_stage_queues());
    let (sender, port) = app.input("in");
    let a = app.map("a", super::logs(&log, "a"));
    let b = app.map("b", super::logs(&log, "b"));
    let far = app.map("far", super::logs(&log, "f"));
    app.connect(port, a);
    app.connect(a, b);
    app.connect(b, far);
    let plan = Plan::new()
        .threads(1)
        .policy("puppet")
        .every(|s| s.batch(1))
        .cluster("side", |side| side.stages(StageSet::of(["far"])));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    let refused = puppet.told(&mut runtime, |control| {
        assert!(control.stages().iter().all(|stage| stage.name != "far"));
        let (a, b, far) = (id(control, "a"), id(control, "b"), StageId(3));
        [
            control.set_visit_order(&[b, far, a]),
            control.set_visit_order(&[]),
            control.set_visit_order(&[StageId(77)]),
            control.set_priority(far, 1),
            control.steal(far, a, 1),
            control.steal(a, far, 1),
            control.set_color(far, Some(1)),
            control.set_pool(control.main_pool(), far),
            control.set_queue_capacity(far, 5),
            control.add_instances(far, 1),
            control.set_max_events_when_focused(Focus::Stage(far), 1),
            control.priority(far).map(drop),
        ]
    });
    let refused = refused.map(|refused| refused.unwrap_err().to_string());
    assert_eq!(refused[0], "stage `far` is not in the cluster `main`");
    assert_eq!(refused[1], "a visit order names at least one stage");
    assert_eq!(refused[2], "stage 77 is not in the cluster `main`");
    assert!(refused[3..].iter().all(|why| *why == refused[0]), "{refused:?}");
    (0..2).for_each(|n| sender.send(n).unwrap());
    runtime.run_until_idle();
    let order: Vec<String> =
        log.take().split(' ').filter(|done| !done.starts_with('f')).map(String::from).collect();
    assert_eq!(order.join(" "), "a0 a1 b0 b1");
}

#[test]
fn the_order_and_its_rules_need_private_queues() {
    let mut chain = Chain::new(|_| Ok(()));
    let refused = chain.told(|control| {
        let a = id(control, "a");
        [
            control.set_visit_order(&[a]),
            control.set_restart_at(Some(0)),
            control.set_max_visits(NonZeroUsize::new(1)),
            control.set_fire_last_focused(true),
            control.set_max_events_when_focused(Focus::All, 1),
        ]
    });
    let needed = [
        "set_visit_order",
        "set_restart_at",
        "set_max_visits",
        "set_fire_last_focused",
        "set_max_events_when_focused",
    ];
    for (refused, method) in refused.into_iter().zip(needed) {
        assert_eq!(refused, Err(Refused::NeedsPerStageQueues(method)));
    }
    chain.ends();
}

#[test]
fn stages_of_a_higher_priority_come_first() {
    let mut chain = Chain::new(|control| {
        control.set_priority(id(control, "c"), 2)?;
        control.set_priority(id(control, "b"), 1)
    });
    chain.push(0..2);
    assert_eq!(chain.ran(), "a0 b0 c0 a1 b1 c1");
    let seen = chain.told(|control| {
        control.set_priority(id(control, "a"), 9).unwrap();
        ids(control, &["in", "a", "b", "c"])
            .into_iter()
            .map(|stage| control.priority(stage).unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(seen, [0, 9, 1, 2]);
    chain.push(2..4);
    assert_eq!(chain.ran(), "a2 a3 b2 c2 b3 c3");
    chain.runtime.control().set_policy("main", "single").unwrap();
    assert!(chain.runtime.snapshot().stages.iter().all(|stage| stage.priority == 0));
    chain.ends();
}

/// Stages `a`, `b`, `c` each with a pool, and so many threads.
fn apart(counts: [usize; 3]) -> Chain {
    Chain::new(move |control| {
        for (name, n) in ["a", "b", "c"].into_iter().zip(counts) {
            let pool = control.new_pool(n)?;
            control.set_pool(pool, id(control, name))?;
        }
        Ok(())
    })
}

#[test]
fn a_pool_takes_threads_from_another_and_both_count_at_once() {
    let mut chain = apart([1, 4, 1]);
    let seen = chain.told(|control| {
        let (a, b) = (id(control, "a"), id(control, "b"));
        control.steal(a, b, 2).unwrap();
        control.steal(a, b, 0).unwrap();
        control.steal(a, a, 5).unwrap(); // they have them already
        ids(control, &["a", "b"]).map_threads(control)
    });
    assert_eq!(seen, [3, 2]);
    assert_eq!(threads_of(&chain.runtime), [1, 3, 2, 1]);
    // A pool with stages keeps a thread: what it cannot give waits in line until it can.
    let seen = chain.told(|control| {
        let [a, b, c] = ["a", "b", "c"].map(|name| id(control, name));
        let mut seen = Vec::new();
        let mut look = |control: &dyn PolicyControl| {
            seen.push(ids(control, &["a", "b", "c"]).map_threads(control));
        };
        control.steal(a, b, 3).unwrap();
        control.steal(c, b, 1).unwrap();
        look(control);
        control.add_threads(control.pool_of(b).unwrap(), 2).unwrap();
        look(control);
        control.set_pool(control.main_pool(), b).unwrap();
        look(control);
        seen
    });
    assert_eq!(seen[0], [4, 1, 1], "one of three, and none of one");
    assert_eq!(seen[1], [5, 1, 2], "one each, in turn");
    assert_eq!(seen[2], [6, 1, 2], "the pool that `b` left gives its last");
    assert_eq!(threads_of(&chain.runtime), [1, 6, 2], "and is gone");
    chain.push(0..5);
    assert_eq!(chain.ran().split(' ').count(), 15);
    chain.ends();
}

trait MapThreads {
    fn map_threads(self, control: &dyn PolicyControl) -> Vec<usize>;
}

impl MapThreads for Vec<StageId> {
    fn map_threads(self, control: &dyn PolicyControl) -> Vec<usize> {
        let of = |stage: StageId| threads(control, control.pool_of(stage).unwrap());
        self.into_iter().map(of).collect()
    }
}

#[test]
fn stages_of_one_color_never_run_at_once_and_others_do() {
    let app = App::new("colored");
    let (inside, both) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    Made::new(|control| {
        for stage in ids(control, &["a", "b"]) {
            control.set_color(stage, Some(3))?;
        }
        control.set_color(id(control, "c"), Some(4))?;
        control.set_color(id(control, "c"), None)
    })
    .add(&app, "colors");
    let numbers = app.source("numbers", || 0..3_000_u64);
    let alone = |_: &'static str| {
        let (inside, both) = (inside.clone(), both.clone());
        move |n: u64| {
            if inside.fetch_add(1, SeqCst) > 0 {
                both.fetch_add(1, SeqCst);
            }
            std::thread::yield_now();
            inside.fetch_sub(1, SeqCst);
            n
        }
    };
    let a = app.map("a", alone("a"));
    let b = app.map("b", alone("b"));
    let c = app.map("c", |n: u64| n);
    app.connect(numbers, a);
    app.connect(a, b);
    app.connect(b, c);
    let plan = Plan::new().threads(4).policy("colors").every(|s| s.instances(3).batch(2));
    let plan = plan.stage("numbers", |s| s.batch(2));
    let summary = ended(app.start(&plan).unwrap(), "colors");
    assert_eq!(both.load(SeqCst), 0);
    assert_eq!(super::handled(&summary.snapshot, "c"), 3_000);
    assert!(summary.snapshot.adds_up() && summary.problems.is_empty(), "{summary}");
}

#[test]
fn what_a_policy_did_is_shown_with_why() {
    let mut chain = Chain::new(|control| {
        control.explain("the end is near".to_owned());
        control.set_priority(id(control, "c"), 1)?;
        control.set_queue_capacity(id(control, "b"), 7)
    });
    let decisions = chain.runtime.control().decisions("main").unwrap();
    let shown: Vec<String> = decisions.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "0.000 s: puppet (start): `c` has priority 1, because the end is near",
            "0.000 s: puppet (start): the queue of `b` holds 7",
        ]
    );
    chain
        .told(|control| {
            for n in 1..1_000 {
                control.set_priority(id(control, "c"), n)?;
            }
            Ok::<_, Refused>(())
        })
        .unwrap();
    assert!(chain.runtime.control().decisions("main").unwrap().len() <= 256);
    chain.ends();
}

/// What waits in a full pool goes on by the priorities that hold then, not by those it came with.
#[test]
fn a_priority_holds_for_what_waits_in_a_full_pool_already() {
    let app = App::new("ranked");
    Made::new(|control| {
        let pool = control.new_pool(1)?;
        for stage in ids(control, &["busy", "low", "high"]) {
            control.set_pool(pool, stage)?;
        }
        Ok(())
    })
    .add(&app, "apart");
    let (gate, log) = (crate::seen::Gate::default(), Log::default());
    let at = gate.clone();
    let sink = |name: &'static str| {
        let (sender, port) = app.input::<u64>(format!("to_{name}"));
        let log = log.clone();
        app.connect(port, app.sink(name, move |n: u64| log.note(name, n)));
        sender
    };
    let (low, high, main) = (sink("low"), sink("high"), sink("main"));
    let (busy, port) = app.input::<u64>("to_busy");
    app.connect(port, app.sink("busy", move |_: u64| at.pass()));
    let plan = Plan::new().threads(1).policy("apart").every(|s| s.batch(1));
    let running = app.start(&plan.stuck_after(crate::seen::NOBODY_STANDS_IN)).unwrap();
    busy.send(0).unwrap();
    gate.wait_for(1);
    // The only other worker takes what comes: one may overtake another, so that both have come to the pool only when some
    // that were sent after them, one by one, have been handled.
    low.send(0).unwrap();
    high.send(0).unwrap();
    for n in 0..9 {
        main.send(n).unwrap();
        crate::seen::until(|| handled(&running.snapshot(), "main") == n + 1);
    }
    running.control().set_priority("high", 5).unwrap();
    gate.open();
    drop((low, high, main, busy));
    let summary = ended(running, "apart");
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert!(log.take().ends_with("main8 high0 low0"));
}

#[test]
fn what_a_policy_did_is_told_in_its_own_numbers_and_by_stage() {
    let chain = Chain::new(|control| {
        control.use_per_stage_queues()?;
        let (a, b) = (id(control, "a"), id(control, "b"));
        control.set_max_events_when_focused(Focus::Stage(b), 3)?;
        control.set_max_events_when_focused(Focus::All, 4)?;
        control.set_color(a, Some(0))?;
        control.set_color(b, None)?;
        control.add_instances(a, 1)
    });
    let decisions = chain.runtime.control().decisions("main").unwrap();
    let told: Vec<&str> = decisions.iter().map(|decision| decision.did.as_str()).collect();
    for did in [
        "a visit to `b` takes 3 events at most",
        "a visit takes 4 events at most",
        "`a` has color 0",
        "`b` has no color",
        "`a` has 2 instances: its events may overtake each other",
    ] {
        assert!(told.contains(&did), "{did}: {told:?}");
    }
    chain.ends();
}
