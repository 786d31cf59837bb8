//! Models of `stage` (`inlet`, `permits`, `instances`, `settle`): instances, the bound, room, tokens.

use std::time::Duration;

use comporta_model::error::Error;
use comporta_model::plan::{Plan, Retry};
use comporta_model::port::Out;
use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use std::sync::Arc;

use super::{Alone, Seen, check, explore, handled, in_order, run, start};
use crate::app::App;

#[test]
fn two_notifiers_and_two_workers_never_run_one_instance_twice_at_once() {
    explore(|| {
        let app = App::new("instance");
        let (seen, alone) = (Seen::new(), Alone::default());
        let see = seen.clone();
        let (sender, input) = app.input::<u32>("input");
        let sum = app.sink("sum", move |n: u32| {
            alone.pass();
            see.see(n);
        });
        app.connect(input, sum);
        let plan = Plan::new().threads(2).every(|s| s.batch(1));
        let (running, _) = start(app, &plan);
        for base in [0, 10] {
            let sender = sender.clone();
            thread::spawn(move || (base..base + 2).for_each(|n| sender.send(n).unwrap()));
        }
        drop(sender);
        check(&running.wait());
        in_order(&seen.all(), &[0, 10], 2);
    });
}

#[test]
fn three_producers_into_one_place_lose_nothing_keep_order_and_keep_the_bound() {
    explore(|| {
        let app = App::new("block");
        let seen = Seen::new();
        let see = seen.clone();
        let end = app.sink("end", move |n: u32| {
            thread::yield_now();
            see.see(n);
        });
        for (name, base) in [("a", 0), ("b", 10), ("c", 20)] {
            let source = app.source(name, move || base..base + 3);
            app.connect(source, end);
        }
        let plan = Plan::new().threads(2).stage("end", |s| s.capacity(1));
        let (running, core) = start(app, &plan);
        let observer = thread::spawn(move || {
            for _ in 0..3 {
                let snapshot = core.snapshot();
                let end = &snapshot.stages[0];
                assert!(end.queued <= 1 && end.outboxed <= 3 && end.adds_up(), "{snapshot}");
                thread::yield_now();
            }
        });
        check(&running.wait());
        observer.join().unwrap();
        in_order(&seen.all(), &[0, 10, 20], 3);
    });
}

#[test]
fn room_granted_before_the_instance_has_parked_is_not_lost() {
    for policy in ["stealing", "single"] {
        fn model(policy: &'static str) {
            let app = App::new("room");
            let seen = Seen::new();
            let see = seen.clone();
            let source = app.source("source", || 0..2u32);
            let many = app.flat_map("many", |n: u32| n * 3..n * 3 + 3);
            let end = app.sink("end", move |n: u32| see.see(n));
            app.connect(source, many);
            app.connect(many, end);
            let plan = Plan::new().threads(2).policy(policy).every(|s| s.capacity(1));
            run(app, &plan);
            in_order(&seen.all(), &[0], 6);
        }
        match policy {
            "single" => explore(|| model("single")),
            _ => explore(|| model("stealing")),
        }
    }
}

#[test]
fn an_instance_with_two_full_queues_waits_for_one_at_a_time_and_gets_both() {
    explore(|| {
        let app = App::new("fork");
        let source = app.source("source", || 0..3u32);
        let fork = app.map("fork", |n: u32| n);
        app.connect(source, fork);
        let seen = [Seen::new(), Seen::new()];
        for (name, seen) in ["left", "right"].into_iter().zip(&seen) {
            let see = seen.clone();
            let end = app.sink(name, move |n: u32| see.see(n));
            app.connect(fork, end);
        }
        run(app, &Plan::new().threads(2).every(|s| s.capacity(1)));
        seen.iter().for_each(|seen| in_order(&seen.all(), &[0], 3));
    });
}

#[test]
fn while_one_instance_waits_an_hour_the_other_handles_what_arrives() {
    explore(|| {
        let app = App::new("hour");
        let rest = Arc::new((Mutex::new(0), Condvar::new()));
        let tries = Arc::new(AtomicUsize::new(0));
        let source = app.source("source", || 0..4u32);
        let done = rest.clone();
        let work = app.process("work", move |n: u32, _: &mut Out<()>| {
            if n == 0 && tries.fetch_add(1, SeqCst) == 0 {
                return Err(Error::msg("not yet"));
            }
            *done.0.lock().unwrap() += 1;
            done.1.notify_all();
            Ok(())
        });
        let work = work.retain();
        app.connect(source, work);
        let hour = Duration::from_secs(3_600);
        let plan = Plan::new()
            .threads(2)
            .stage("work", |s| s.instances(2).batch(1).retry(Retry::new(2, hour)));
        let (running, core) = start(app, &plan);
        let mut count = rest.0.lock().unwrap();
        while *count < 3 {
            count = rest.1.wait(count).unwrap();
        }
        drop(count);
        // Its turn to wait may not have begun yet: time moves until the timer is there.
        let mut due = Vec::new();
        while due.is_empty() {
            core.clock.advance(hour);
            core.timers.due(core.clock.now(), &mut due);
            thread::yield_now();
        }
        due.into_iter().for_each(|alarm| core.sound(alarm));
        let summary = running.wait();
        check(&summary);
        assert_eq!(handled(&summary, "work"), 4);
    });
}

#[test]
fn instances_that_come_and_go_lose_no_event_and_each_finishes_once() {
    explore(|| {
        let app = App::new("instances");
        let seen = Seen::new();
        let see = seen.clone();
        let source = app.source("source", || 0..4u32);
        let work = app.map("work", |n: u32| n);
        let end = app.sink("end", move |n: u32| see.see(n));
        app.connect(source, work);
        app.connect(work, end);
        let plan = Plan::new().threads(2).every(|s| s.batch(1).capacity(2));
        let (running, _) = start(app, &plan);
        let control = running.control();
        let other = running.control();
        // Refused once the stage has ended.
        let person = thread::spawn(move || {
            let _ = other.set_instances("work", 3);
            let _ = other.set_instances("work", 1);
        });
        let _ = control.set_instances("work", 2);
        let _ = control.set_instances("work", 1);
        person.join().unwrap();
        check(&running.wait());
        let mut all = seen.all();
        all.sort_unstable();
        in_order(&all, &[0], 4);
    });
}
