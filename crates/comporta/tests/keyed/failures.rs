//! Keys that are held by an event that failed: order or liveness, as the plan says.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use comporta::testing::TestRuntime;
use comporta::{App, Error, OnFailure, Out, Plan, Result};

use crate::bounded::run;

type Seen = Arc<Mutex<Vec<u64>>>;

/// Events `0..n` of three keys, of which `bad` fails while the switch is on.
fn app(n: u64, bad: u64, on: Arc<Mutex<bool>>) -> (App, Seen) {
    let seen = Seen::default();
    let into = seen.clone();
    let app = App::new("held");
    let numbers = app.source("numbers", move || 0..n);
    let work = app.sink("work", move |n: u64| -> Result {
        if n == bad && *on.lock().unwrap() {
            return Err(Error::msg("bad"));
        }
        into.lock().unwrap().push(n);
        Ok(())
    });
    app.connect(numbers, work.retain().keyed(|n| n % 3));
    (app, seen)
}

fn held() -> Plan {
    Plan::new().stage("work", |work| work.instances(2).on_failure(OnFailure::HoldKey))
}

#[test]
fn a_key_goes_on_behind_an_event_that_failed_unless_the_plan_holds_it() {
    let (app, seen) = app(30, 4, Arc::new(Mutex::new(true)));
    let summary = run(app, &Plan::new().stage("work", |work| work.instances(2)));
    assert_eq!(summary.snapshot.stage("work").unwrap().counts.failed, 1);
    assert_eq!(seen.lock().unwrap().len(), 29);
}

#[test]
fn what_stands_behind_a_held_event_when_no_more_can_come_is_set_aside_in_order() {
    for threads in [1, 2, 4] {
        let (app, seen) = app(30, 4, Arc::new(Mutex::new(true)));
        let summary = run(app, &held().threads(threads));
        let counts = summary.snapshot.stage("work").unwrap().counts;
        assert_eq!((counts.handled, counts.failed), (21, 9), "{summary}");
        let mut own: Vec<u64> =
            seen.lock().unwrap().iter().copied().filter(|n| n % 3 == 1).collect();
        own.sort_unstable();
        assert_eq!(own, [1], "nothing overtakes the event that failed");
    }
}

/// A closure takes its events: whoever has a key held is to be able to replay what holds it.
#[test]
fn an_event_that_holds_its_key_can_be_replayed_although_a_closure_took_it() {
    let on = Arc::new(AtomicBool::new(true));
    let fails = on.clone();
    let app = App::new("held");
    let (sender, numbers) = app.input::<u64>("numbers");
    let work = app.keyed(
        "work",
        |n: &u64| n % 3,
        move |seen: &mut u64, n: u64, _: &mut Out<u64>| -> Result {
            if n == 1 && fails.load(Relaxed) {
                return Err(Error::msg("bad"));
            }
            *seen += n;
            Ok(())
        },
    );
    app.connect(numbers, work);
    let mut runtime = TestRuntime::new(app, &held()).unwrap();
    for n in [1, 4, 7] {
        sender.try_send(n).unwrap();
    }
    assert!(!runtime.run(), "two wait for the one that failed");
    on.store(false, Relaxed);
    assert_eq!(runtime.control().replay("work", 10), Ok(1));
    runtime.run_until_idle();
    assert_eq!(runtime.snapshot().stage("work").unwrap().counts.handled, 3);
}

#[test]
fn a_replayed_event_is_handled_before_those_that_waited_for_it() {
    let on = Arc::new(Mutex::new(true));
    let (sender, seen) = {
        let seen = Seen::default();
        let (into, switch) = (seen.clone(), on.clone());
        let app = App::new("replay");
        let (sender, numbers) = app.input::<u64>("numbers");
        let work = app.sink("work", move |n: u64| -> Result {
            if n == 4 && *switch.lock().unwrap() {
                return Err(Error::msg("bad"));
            }
            into.lock().unwrap().push(n);
            Ok(())
        });
        app.connect(numbers, work.retain().keyed(|n| n % 3));
        let mut runtime = TestRuntime::new(app, &held()).unwrap();
        for n in 0..12 {
            sender.try_send(n).unwrap();
        }
        assert!(!runtime.run(), "events wait for a held one");
        let own = |seen: &Seen| -> Vec<u64> {
            seen.lock().unwrap().iter().copied().filter(|n| n % 3 == 1).collect()
        };
        assert_eq!(own(&seen), [1]);
        *on.lock().unwrap() = false;
        assert_eq!(runtime.control().replay("work", 9), Ok(1));
        runtime.run();
        assert_eq!(own(&seen), [1, 4, 7, 10]);
        // Held again, and let go by whoever takes the failure away.
        *on.lock().unwrap() = true;
        sender.try_send(4).unwrap();
        sender.try_send(1).unwrap();
        runtime.run();
        assert_eq!(own(&seen), [1, 4, 7, 10]);
        let taken = runtime.control().take_failures::<u64>("work").unwrap();
        assert_eq!(taken[0].1, Some(4));
        runtime.run();
        (sender, own(&seen))
    };
    assert_eq!(seen, [1, 4, 7, 10, 1]);
    drop(sender);
}

#[test]
fn a_drain_gives_up_held_keys_that_fill_their_queue() {
    let seen = Seen::default();
    let into = seen.clone();
    let app = App::new("crowded");
    let numbers = app.source("numbers", || 0..600_u64);
    let pass = app.map("pass", |n: u64| n);
    let work = app.sink("work", move |n: u64| -> Result {
        if n == 4 {
            return Err(Error::msg("bad"));
        }
        into.lock().unwrap().push(n);
        Ok(())
    });
    app.connect(numbers, pass);
    app.connect(pass, work.retain().keyed(|n| n % 3));
    let plan = held().threads(2).stage("pass", |pass| pass.capacity(4));
    let plan = plan.stage("work", |work| work.capacity(8));
    let running = app.start(&plan).unwrap();
    let full = || {
        // A single place that is free is not granted: senders are woken for a quarter of the queue.
        let snapshot = running.snapshot();
        let work = snapshot.stage("work").unwrap();
        work.queued >= 7 && work.outboxed > 0
    };
    crate::attacks::eventually(full, "held events fill the queue");
    let summary = running.drain_within(std::time::Duration::from_secs(10));
    assert_eq!(summary.ended, comporta::Ended::Drained, "{summary}");
    assert!(summary.snapshot.adds_up(), "{summary}");
    let own: Vec<u64> = seen.lock().unwrap().iter().copied().filter(|n| n % 3 == 1).collect();
    assert_eq!(own, [1], "nothing overtakes the event that failed");
    let counts = summary.snapshot.stage("work").unwrap().counts;
    assert_eq!(counts.failed + counts.handled, counts.arrived, "{summary}");
}
