//! Methods of the third group: what a policy sees, and when it is called.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::policy::{Kind, Policy, Refused, StageId, Time, TimerId, WhenFull};
use comporta::testing::TestRuntime;
use comporta::{App, Plan, Shed};

use super::{Chain, Made, Puppet, ended, id, ids};
use crate::seen::{Gate, counts, until};

#[test]
fn stages_stand_in_the_order_of_the_pipeline_and_say_what_they_are() {
    let mut chain = Chain::new(|_| Ok(()));
    let (stages, main) = chain.told(|control| (control.stages().to_vec(), control.main_pool()));
    let shown: Vec<_> = stages.iter().map(|s| (s.name.as_str(), s.kind, s.depth)).collect();
    let expected = [
        ("in", Kind::Input, 0),
        ("a", Kind::Stage, 1),
        ("b", Kind::Stage, 2),
        ("c", Kind::Stage, 3),
    ];
    assert_eq!(shown, expected);
    assert_eq!(main.0, 0);
}

#[test]
fn timers_are_due_every_so_often_until_the_policy_is_replaced() {
    /// Notes which timer was due, and when.
    #[derive(Clone)]
    struct Timed(Arc<Mutex<Vec<(u32, u64)>>>);
    impl Policy for Timed {
        fn start(
            &mut self,
            control: &mut dyn comporta::policy::PolicyControl,
        ) -> Result<(), Refused> {
            control.add_timer(Duration::from_millis(2))?;
            control.add_timer(Duration::from_millis(5)).map(drop)
        }
        fn on_timer(
            &mut self,
            timer: TimerId,
            control: &mut dyn comporta::policy::PolicyControl,
        ) -> Result<(), Refused> {
            self.0.lock().unwrap().push((timer.0, control.now().as_nanos() / 1_000_000));
            Ok(())
        }
    }
    let app = App::new("timed");
    let timed = Timed(Arc::default());
    let seen = timed.0.clone();
    let offer =
        comporta::policy::Offer { name: "timed", aliases: &[], about: "", cites: "", params: &[] };
    app.register_policy(comporta::policy::Entry::new(offer, move |_| timed.clone()));
    let (_push, port) = app.input::<u64>("in");
    let sink = app.sink("sink", |_: u64| ());
    app.connect(port, sink);
    let mut runtime = TestRuntime::new(app, &Plan::new().policy("timed")).unwrap();
    runtime.advance(Duration::from_millis(7));
    assert_eq!(*seen.lock().unwrap(), [(0, 2), (0, 4), (1, 5), (0, 6)]);
    runtime.control().set_policy("main", "single").unwrap();
    runtime.advance(Duration::from_secs(60));
    assert_eq!(seen.lock().unwrap().len(), 4);
}

#[test]
fn a_timer_under_a_millisecond_or_one_too_many_is_refused() {
    let mut chain = Chain::new(|_| Ok(()));
    let (short, made, more) = chain.told(|control| {
        let short = control.add_timer(Duration::from_micros(999)).unwrap_err();
        let hour = Duration::from_secs(3600);
        let made = std::iter::from_fn(|| control.add_timer(hour).ok()).take(5000).count();
        (short, made, control.add_timer(hour).unwrap_err())
    });
    let expected = "the time between two calls, in microseconds, is 999: use at least 1000";
    assert_eq!(short.to_string(), expected);
    assert_eq!(made, 1_023, "the puppet has one");
    assert_eq!(more.to_string(), "the number of timers is 1025: use at most 1024");
    chain.ends();
}

#[test]
fn the_machine_says_how_many_cpus_it_has_and_how_busy_they_are() {
    let mut chain = Chain::new(|_| Ok(()));
    let (cpus, usage, now) =
        chain.told(|control| (control.cpus(), control.cpu_usage(), control.now()));
    assert!(cpus >= 1 && usage <= 100, "{cpus} {usage}");
    assert_eq!(now, Time::from_nanos(1_000_000), "time is the program's");
}

#[test]
fn counts_of_a_stage_begin_at_zero_when_they_are_reset_and_the_programs_do_not() {
    let mut chain = Chain::new(|_| Ok(()));
    chain.runtime.hold("b");
    chain.runtime.fail_next("a", "asked for");
    chain.push(0..5);
    let read = |control: &mut dyn comporta::policy::PolicyControl| {
        ids(control, &["a", "b", "c"])
            .into_iter()
            .map(|stage| {
                let queued = control.queue_size(stage).unwrap();
                (
                    queued,
                    control.input_count(stage).unwrap(),
                    control.processed_count(stage).unwrap(),
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(chain.told(read), [(0, 5, 5), (3, 4, 0), (0, 0, 0)], "what failed counts too");
    chain
        .told(|control| {
            control.reset_statistics(id(control, "a"))?;
            control.reset_statistics(id(control, "b"))
        })
        .unwrap();
    assert_eq!(chain.told(read), [(0, 0, 0), (3, 0, 0), (0, 0, 0)]);
    chain.runtime.resume("b");
    chain.push(5..6);
    assert_eq!(chain.told(read), [(0, 1, 1), (0, 1, 5), (0, 5, 5)], "a backlog is worked off");
    assert_eq!(counts(&chain.runtime, "a").arrived, 6);
    let far = chain.told(|control| {
        let far = StageId(99);
        [
            control.queue_size(far).map(drop),
            control.input_count(far).map(drop),
            control.processed_count(far).map(drop),
            control.reset_statistics(far),
        ]
    });
    let expected = "stage 99 is not in the cluster `main`";
    assert!(far.iter().all(|far| far.clone().unwrap_err().to_string() == expected), "{far:?}");
    chain.ends();
}

#[test]
fn every_arrival_counts_and_what_waits_outside_does_not() {
    let mut chain = Chain::planned(|plan| plan.stage("b", |s| s.capacity(2)), |_| Ok(()));
    let came =
        |chain: &mut Chain| chain.told(|control| control.input_count(id(control, "b")).unwrap());
    chain.runtime.hold("b");
    chain.push(0..4);
    assert_eq!(came(&mut chain), 2, "one waits with its sender, and one before that");
    chain.told(|control| control.set_when_full(id(control, "b"), WhenFull::DropNewest)).unwrap();
    chain.runtime.resume("b");
    assert_eq!(came(&mut chain), 4, "they have come in");
    chain.runtime.hold("b");
    chain.push(4..10);
    assert_eq!(came(&mut chain), 10, "those that were shed came too");
    assert_eq!(counts(&chain.runtime, "b").shed(Shed::Newest), 4);
    chain.told(|control| control.disable_queue(id(control, "b"))).unwrap();
    chain.push(10..13);
    assert_eq!(came(&mut chain), 13, "to a queue that is shut, too");
    chain.told(|control| control.reset_statistics(id(control, "b"))).unwrap();
    assert_eq!(came(&mut chain), 0);
    chain.ends();
}

#[test]
fn an_event_that_is_given_back_came_and_one_whose_sender_gave_up_did_not() {
    let app = App::new("given back");
    let puppet = Puppet::add(&app, |_| Ok(()));
    let (sender, port) = app.input::<u64>("in");
    let work = app.sink("work", |_: u64| ());
    app.connect(port, work);
    let plan = Plan::new().policy("puppet").stage("work", |s| s.capacity(1));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("work");
    sender.send(0).unwrap();
    assert!(sender.try_send(1).is_err());
    let mut waits = Box::pin(sender.send_async(2));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    let mut came =
        || puppet.told(&mut runtime, |control| control.input_count(id(control, "work")).unwrap());
    assert_eq!(came(), 2);
    drop(waits);
    assert_eq!(came(), 2);
}

#[test]
fn queued_and_busy_are_what_there_is_to_do() {
    let app = App::new("to do");
    let puppet = Puppet::add(&app, |_| Ok(()));
    let (sender, port) = app.input::<u64>("in");
    let work = app.sink("work", |_: u64| ());
    app.connect(port, work);
    let plan = Plan::new().policy("puppet").stage("work", |s| s.instances(4));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    let to_do = |runtime: &mut TestRuntime| {
        puppet.told(runtime, |control| {
            let work = id(control, "work");
            let (queued, free) = (control.queue_size(work), control.free_instances(work));
            (queued.unwrap(), control.instances(work).unwrap() - free.unwrap())
        })
    };
    assert_eq!(to_do(&mut runtime), (0, 0));
    runtime.hold("work");
    sender.send(0).unwrap();
    assert_eq!(to_do(&mut runtime), (0, 1), "an instance is paired with it, and not free");
    (1..10).for_each(|n| sender.send(n).unwrap());
    assert_eq!(to_do(&mut runtime), (6, 4));
    runtime.resume("work");
    assert_eq!(to_do(&mut runtime), (0, 0));
}

#[test]
fn the_events_of_a_batch_in_hand_are_still_to_do() {
    let app = App::new("in hand");
    let seen = Arc::new(Mutex::new(None));
    let into = seen.clone();
    let gate = Gate::default();
    Made::new(|control| control.add_timer(Duration::from_millis(1)).map(drop))
        .on_timer(move |control| {
            let work = id(control, "work");
            let busy = control.instances(work)? - control.free_instances(work)?;
            *into.lock().unwrap() = Some((control.queue_size(work)?, busy));
            Ok(())
        })
        .add(&app, "looks");
    let numbers = app.source("numbers", || 0..100_u64);
    let at = gate.clone();
    let work = app.sink("work", move |_: u64| at.pass());
    app.connect(numbers, work);
    let running = app.start(&Plan::new().threads(2).policy("looks")).unwrap();
    gate.wait_for(1);
    until(|| *seen.lock().unwrap() == Some((99, 1)));
    gate.open();
    assert_eq!(ended(running, "looks").snapshot.stage("work").unwrap().counts.handled, 100);
}

#[test]
fn of_a_source_what_it_sent_counts() {
    let app = App::new("source");
    let puppet = Puppet::add(&app, |_| Ok(()));
    let numbers = app.source("numbers", || 0..7_u64);
    let sink = app.sink("sink", |_: u64| ());
    app.connect(numbers, sink);
    let mut runtime = TestRuntime::new(app, &Plan::new().policy("puppet")).unwrap();
    let seen = puppet.told(&mut runtime, |control| {
        let numbers = id(control, "numbers");
        let queued = control.queue_size(numbers).unwrap();
        (queued, control.input_count(numbers), control.processed_count(numbers))
    });
    assert_eq!(seen, (0, Ok(7), Ok(7)));
}

/// A chain whose policy counts the calls at the last place.
fn counting(threads: usize) -> (Chain, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (last, visits) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let app = App::new("chain");
    let log = super::Log::default();
    let (at_last, at_visits) = (last.clone(), visits.clone());
    Made::new(|control| {
        control.use_per_stage_queues()?;
        control.set_fire_last_focused(true)?;
        control.set_max_visits(NonZeroUsize::new(4))
    })
    .on_last_focused(move |_| {
        at_last.fetch_add(1, SeqCst);
        Ok(())
    })
    .on_max_visits(move |_| {
        at_visits.fetch_add(1, SeqCst);
        Ok(())
    })
    .add(&app, "counting");
    let (sender, port) = app.input("in");
    let a = app.map("a", super::logs(&log, "a"));
    let b = app.map("b", super::logs(&log, "b"));
    let c = app.map("c", super::logs(&log, "c"));
    app.connect(port, a);
    app.connect(a, b);
    app.connect(b, c);
    let plan = Plan::new().threads(threads).policy("counting").every(|s| s.batch(1));
    let runtime = TestRuntime::new(app, &plan).unwrap();
    (Chain { runtime, sender, log, puppet: Puppet::default() }, last, visits)
}

#[test]
fn the_last_place_fires_when_it_is_come_to_and_once_for_an_empty_round() {
    let (mut chain, last, visits) = counting(1);
    assert!(!chain.runtime.step());
    assert_eq!((last.swap(0, SeqCst), visits.swap(0, SeqCst)), (1, 0), "an empty round: 3 places");
    chain.push(0..2);
    let mut fired = Vec::new();
    while chain.runtime.step() {
        fired.push(last.swap(0, SeqCst));
    }
    // a a b b, then c; c; and after them an empty round.
    assert_eq!(fired, [0, 0, 0, 0, 1, 0]);
    assert_eq!(last.load(SeqCst), 1);
    // 3 before; a, b and c; an empty round from a on: 9, of which the fourth and eighth fire.
    assert_eq!(visits.load(SeqCst), 2);
}

#[test]
fn the_last_place_fires_once_for_a_round_of_all_threads() {
    let (mut chain, last, _) = counting(3);
    // Each of the three comes to the end of an empty round in a step: one fires.
    for round in 1..4 {
        assert!(!chain.runtime.step());
        assert_eq!(last.load(SeqCst), round);
    }
}

#[test]
fn firing_can_be_ended_and_needs_private_queues() {
    let mut chain = Chain::new(|_| Ok(()));
    let refused = chain.told(|control| {
        control.set_fire_last_focused(false).unwrap(); // there is nothing to end, which is no fault
        control.set_restart_at(None).unwrap();
        [control.set_fire_last_focused(true), control.set_max_visits(NonZeroUsize::new(3))]
    });
    assert_eq!(refused[0], Err(Refused::NeedsPerStageQueues("set_fire_last_focused")));
    assert_eq!(refused[1], Err(Refused::NeedsPerStageQueues("set_max_visits")));
    let calls = Arc::new(AtomicUsize::new(0));
    let called = calls.clone();
    let app = App::new("once");
    Made::new(|control| {
        control.use_per_stage_queues()?;
        control.set_fire_last_focused(true)
    })
    .on_last_focused(move |control| {
        called.fetch_add(1, SeqCst);
        control.set_fire_last_focused(false)?;
        Ok(())
    })
    .add(&app, "once");
    let (sender, port) = app.input("in");
    let sink = app.sink("sink", |_: u64| ());
    app.connect(port, sink);
    let mut runtime = TestRuntime::new(app, &Plan::new().policy("once")).unwrap();
    for n in 0..20 {
        sender.send(n).unwrap();
        runtime.run_until_idle();
    }
    assert_eq!(calls.load(SeqCst), 1);
}

#[test]
fn what_is_done_for_timers_is_remembered_however_often_something_is_done_for_visits() {
    let ticks = Arc::new(AtomicUsize::new(0));
    let ticked = ticks.clone();
    let app = App::new("often");
    Made::new(|control| {
        control.use_per_stage_queues()?;
        control.set_fire_last_focused(true)?;
        control.add_timer(Duration::from_millis(5)).map(drop)
    })
    .on_last_focused(|control| {
        control.record("a round".to_owned());
        Ok(())
    })
    .on_timer(move |control| {
        control.record(format!("tick {}", ticked.load(SeqCst)));
        ticked.fetch_add(1, SeqCst);
        Ok(())
    })
    .add(&app, "often");
    let numbers = app.source("numbers", || 0..u64::MAX);
    app.connect(numbers, app.sink("sink", |_: u64| ()));
    let running = app.start(&Plan::new().threads(1).policy("often")).unwrap();
    until(|| ticks.load(SeqCst) > 20);
    let decisions = running.control().decisions("main").unwrap();
    let _ = running.stop();
    let remembered = decisions.iter().filter(|decision| decision.did.starts_with("tick"));
    let remembered: Vec<&str> = remembered.map(|decision| &*decision.did).collect();
    let all: Vec<String> = (0..remembered.len()).map(|n| format!("tick {n}")).collect();
    assert!(remembered == all && all.len() >= 20, "{remembered:?}");
}
