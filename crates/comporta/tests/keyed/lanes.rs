//! Order, exclusion and parallelism, whatever a key does.

use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use comporta::{App, Error, Out, Plan, Result};

use crate::bounded::{complete, run};

/// Notes which events each key saw; two at once of one key are a fault.
#[derive(Clone, Default)]
pub(crate) struct Watch {
    inside: Arc<Mutex<HashSet<u64>>>,
    seen: Arc<Mutex<BTreeMap<u64, Vec<u64>>>>,
}

impl Watch {
    pub(crate) fn enter(&self, key: u64) {
        assert!(self.inside.lock().unwrap().insert(key), "two events of key {key} at once");
    }

    pub(crate) fn leave(&self, key: u64, handled: Option<u64>) {
        self.seen.lock().unwrap().entry(key).or_default().extend(handled);
        self.inside.lock().unwrap().remove(&key);
    }

    /// Each key has seen its own of `0..n`, in order.
    pub(crate) fn assert_in_order(&self, n: u64, keys: u64) {
        let seen = self.seen.lock().unwrap();
        for key in 0..keys {
            let own = (0..n).filter(|n| n % keys == key);
            let seen = seen.get(&key).map_or(&[][..], Vec::as_slice);
            assert!(seen.iter().copied().eq(own), "key {key}: {seen:?}");
        }
    }
}

const POLICIES: [&str; 4] = ["stealing", "single", "srpt", "seda"];

#[test]
fn each_key_is_handled_in_order_and_never_twice_at_once_under_every_policy() {
    const N: u64 = 3_000;
    for policy in POLICIES {
        for threads in [1, 2, 4, 8] {
            for (keys, capacity) in [(1, 64), (7, 1), (7, 1_024), (1_000, 64)] {
                let watch = Watch::default();
                let of = watch.clone();
                let app = App::new("keys");
                let numbers = app.source("numbers", move || 0..N);
                let work = app.sink("work", move |n: u64| {
                    of.enter(n % keys);
                    of.leave(n % keys, Some(n));
                });
                app.connect(numbers, work.keyed(move |n| n % keys));
                let plan = Plan::new().threads(threads).policy(policy);
                let plan = plan.stage("work", |work| work.instances(4).capacity(capacity));
                let summary = run(app, &plan);
                assert_eq!(summary.snapshot.stage("work").unwrap().counts.handled, N, "{policy}");
                watch.assert_in_order(N, keys);
            }
        }
    }
}

/// A key whose hash says nothing.
#[derive(PartialEq, Eq)]
struct Alike(u64);

impl Hash for Alike {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(0);
    }
}

#[test]
fn three_keys_of_one_hash_run_three_at_a_time() {
    let all = Arc::new(Barrier::new(3));
    let app = App::new("alike");
    let numbers = app.source("numbers", || 0..30_u64);
    let work = app.sink("work", move |_: u64| {
        all.wait();
    });
    app.connect(numbers, work.keyed(|n| Alike(n % 3)));
    let _ = run(app, &Plan::new().threads(3).stage("work", |work| work.instances(3)));
}

#[test]
fn a_key_keeps_its_order_across_retries_and_holds_up_no_other() {
    const N: u64 = 400;
    let watch = Watch::default();
    let (of, failed) = (watch.clone(), Arc::new(Mutex::new(HashSet::new())));
    let app = App::new("retries");
    let numbers = app.source("numbers", || 0..N);
    let work = app.sink("work", move |n: u64| -> Result {
        of.enter(n % 4);
        let fails = n % 5 == 2 && failed.lock().unwrap().insert(n);
        of.leave(n % 4, (!fails).then_some(n));
        if fails { Err(Error::msg("once")) } else { Ok(()) }
    });
    app.connect(numbers, work.keyed(|n| n % 4));
    let wait = Duration::from_micros(50);
    let plan = Plan::new().threads(2);
    let plan = plan.stage("work", |work| work.instances(2).tries(3).backoff(wait));
    let summary = run(app, &plan);
    let counts = summary.snapshot.stage("work").unwrap().counts;
    assert_eq!((counts.handled, counts.failed, counts.retried), (N, 0, N / 5), "{summary}");
    watch.assert_in_order(N, 4);
}

#[test]
fn keys_that_are_stuck_or_poisoned_hold_up_no_healthy_one() {
    const KEYS: u64 = 1_000;
    let (open, shut) = std::sync::mpsc::channel::<()>();
    let shut = Arc::new(Mutex::new(shut));
    let (done, healthy) = std::sync::mpsc::channel();
    let app = App::new("stuck");
    let numbers = app.source("numbers", || 0..3 * KEYS);
    let work = app.sink("work", move |n: u64| -> Result {
        match n % KEYS {
            0 | 1 => {
                let _ = shut.lock().unwrap().recv(); // until the test is over
            }
            2 => return Err(Error::msg("poisoned")),
            _ => drop(done.send(n)),
        }
        Ok(())
    });
    app.connect(numbers, work.keyed(|n| n % KEYS));
    let plan = Plan::new().threads(2).stuck_after(Duration::from_millis(20));
    let plan = plan.stage("work", |work| work.instances(8).capacity(4 * KEYS as usize).tries(100));
    let plan = plan.stage("work", |work| work.backoff(Duration::from_secs(3_600)));
    let running = app.start(&plan).unwrap();
    for _ in 0..3 * (KEYS - 3) {
        healthy.recv_timeout(crate::bounded::BOUND).expect("a healthy key waits for a sick one");
    }
    drop(open);
    let summary = running.stop();
    assert!(summary.snapshot.adds_up(), "{summary}");
}

#[test]
fn a_keyed_stage_that_waits_for_room_keeps_the_order_of_each_key() {
    const N: u64 = 2_000;
    let watch = Watch::default();
    let of = watch.clone();
    let app = App::new("room");
    let numbers = app.source("numbers", || 0..N);
    let pass = app.process("pass", |n: u64, out: &mut Out<u64>| out.send(n)).keyed(|n| n % 3);
    let end = app.sink("end", move |n: u64| {
        of.enter(n % 3);
        of.leave(n % 3, Some(n));
    });
    app.connect(numbers, pass);
    app.connect(pass, end.keyed(|n| n % 3));
    let plan = Plan::new().threads(2).stage("pass", |pass| pass.instances(2).capacity(32));
    let _ = run(app, &plan.stage("end", |end| end.capacity(2).instances(2)));
    watch.assert_in_order(N, 3);
}

#[test]
fn an_event_whose_key_panics_fails_and_the_others_do_not() {
    let app = App::new("panics");
    let numbers = app.source("numbers", || 0..100_u64);
    let work = app.sink("work", |_: u64| ());
    app.connect(
        numbers,
        work.keyed(|n| if n % 10 == 3 { panic!("no key for {n}") } else { n % 3 }),
    );
    let summary = run(app, &Plan::new().threads(2).stage("work", |work| work.instances(2)));
    let counts = summary.snapshot.stage("work").unwrap().counts;
    assert_eq!((counts.handled, counts.failed), (90, 10), "{summary}");
}

#[test]
fn threads_that_change_all_the_time_break_neither_order_nor_exclusion() {
    const N: u64 = 20_000;
    let watch = Watch::default();
    let of = watch.clone();
    let app = App::new("live");
    let numbers = app.source("numbers", || 0..N);
    let work = app.sink("work", move |n: u64| {
        of.enter(n % 100);
        std::thread::yield_now();
        of.leave(n % 100, Some(n));
    });
    app.connect(numbers, work.keyed(|n| n % 100));
    let running =
        app.start(&Plan::new().threads(1).stage("work", |work| work.instances(16))).unwrap();
    let control = running.control();
    for threads in [16, 1, 3, 8, 2, 16, 4].into_iter().cycle().take(60) {
        if control.set_threads("main", threads).is_err() {
            break; // it has ended
        }
        let _ = control.set_instances("work", threads);
        std::thread::yield_now();
    }
    let _ = complete(running);
    watch.assert_in_order(N, 100);
}

#[test]
fn stuck_and_poisoned_keys_hold_up_no_healthy_one_while_threads_change_under_every_policy() {
    const KEYS: u64 = 1_000;
    const STUCK: u64 = 16;
    const EACH: u64 = 5;
    let policies: Vec<_> =
        App::new("none").catalogue().policies.iter().map(|offer| offer.name).collect();
    assert!(policies.len() > 5, "{policies:?}");
    for policy in policies {
        let (open, shut) = std::sync::mpsc::channel::<()>();
        let shut = Arc::new(Mutex::new(shut));
        let (done, healthy) = std::sync::mpsc::channel();
        let watch = Watch::default();
        let of = watch.clone();
        let keys = KEYS + STUCK + 1;
        let app = App::new("sick");
        let numbers = app.source("numbers", move || 0..EACH * keys);
        let work = app.sink("work", move |n: u64| -> Result {
            let key = n % keys;
            match key {
                0..STUCK => drop(shut.lock().unwrap().recv()), // until the test is over
                STUCK => return Err(Error::msg("poisoned")),
                _ => {
                    of.enter(key);
                    std::thread::yield_now();
                    of.leave(key, Some(n));
                    let _ = done.send(n);
                }
            }
            Ok(())
        });
        app.connect(numbers, work.keyed(move |n| n % keys));
        let plan = Plan::new().threads(STUCK as usize).policy(policy);
        let plan = plan.stuck_after(Duration::from_millis(20)).stage("work", |work| {
            let work = work.instances(2 * STUCK as usize).capacity((EACH * keys) as usize);
            work.tries(1_000).backoff(Duration::from_millis(5))
        });
        let running = app.start(&plan).unwrap();
        let control = running.control();
        let (mut seen, mut silent) = (0, 0);
        let mut threads = [1, 16, 3, 8].into_iter().cycle();
        while seen < EACH * KEYS {
            match healthy.recv_timeout(Duration::from_millis(10)) {
                Ok(_) if seen % 100 != 0 => seen += 1,
                Ok(_) => {
                    seen += 1;
                    let _ = control.set_threads("main", threads.next().unwrap());
                }
                Err(_) => {
                    silent += 1;
                    let _ = control.set_threads("main", threads.next().unwrap());
                }
            }
            assert!(
                silent < 3_000,
                "{policy}: {seen} of {} healthy events: {running:?}",
                EACH * KEYS
            );
        }
        drop(open);
        let summary = running.stop();
        assert!(summary.snapshot.adds_up(), "{policy}: {summary}");
        let seen = watch.seen.lock().unwrap();
        for key in STUCK + 1..keys {
            let own = (0..EACH).map(|n| n * keys + key);
            assert!(seen[&key].iter().copied().eq(own), "{policy}, key {key}: {:?}", seen[&key]);
        }
    }
}
