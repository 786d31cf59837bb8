//! Migrations: the five steps, and that nothing is lost in them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use comporta_placement::{
    Choice, Entry, NodeId, Offer, Reason, Registry, Resource, Round, Strategy, View, strategies,
};
use comporta_sim::rates::{Arrivals, Rates};
use comporta_sim::scenario::{Operator, Scenario, Window};
use comporta_sim::{Outcome, run_with};

use crate::line;

/// Migrates whatever it can, in every round, anywhere.
struct Restless(usize);

fn reason() -> Reason {
    let word = || "restless".to_owned();
    Reason { signal: word(), rule: word(), effect: word() }
}

impl Strategy for Restless {
    fn migrations_max(&self) -> usize {
        3
    }

    fn decide(&mut self, view: &View, round: &mut Round<'_>) {
        for (replica, _) in view.replicas() {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let to = NodeId((self.0 >> 33) % view.nodes.len());
            let _ = round.migrate(replica, to, reason());
        }
    }
}

/// Migrates the one replica that is not pinned to the last node, in the first round.
struct Once(AtomicUsize);

impl Strategy for Once {
    fn migrations_max(&self) -> usize {
        1
    }

    fn decide(&mut self, view: &View, round: &mut Round<'_>) {
        let Some((replica, _)) = view.replicas().find(|(_, replica)| !replica.pinned) else {
            return;
        };
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            round.migrate(replica, NodeId(view.nodes.len() - 1), reason()).unwrap();
        }
    }
}

/// As [`Once`], and keeps what it was shown.
struct Watched(Once, Arc<Mutex<Vec<View>>>);

impl Strategy for Watched {
    fn migrations_max(&self) -> usize {
        1
    }

    fn decide(&mut self, view: &View, round: &mut Round<'_>) {
        self.1.lock().unwrap().push(view.clone());
        self.0.decide(view, round);
    }
}

/// What the manager was shown, of a run in which the first replica migrates in the first round.
fn views(scenario: Scenario) -> Vec<View> {
    let views = Arc::new(Mutex::new(Vec::new()));
    let shown = Arc::clone(&views);
    run_as(scenario, move || Watched(Once(AtomicUsize::new(0)), Arc::clone(&shown)));
    let mut views = views.lock().unwrap();
    std::mem::take(&mut *views)
}

fn run_as<S: Strategy + 'static>(
    mut scenario: Scenario,
    make: impl Fn() -> S + Send + Sync + 'static,
) -> Outcome {
    let offer = Offer { name: "tried", ..strategies_offer() };
    let mut registry = Registry::new();
    registry.add(Entry::new(offer, move |_, _| make()));
    scenario.strategy = Choice::new("tried");
    run_with(&scenario, &registry, &mut |_| {}).unwrap()
}

fn strategies_offer() -> Offer {
    let _ = strategies::NoMigrations;
    let registry = Registry::new();
    let none = registry.entries().find(|entry| entry.offer.name == "none");
    none.map(|entry| entry.offer).unwrap()
}

#[test]
fn migrations_at_any_time_lose_no_event_and_handle_none_twice() {
    for (replicas, seed, policy) in [
        (&[0][..], 1, None),
        (&[0, 1], 2, None),
        (&[0, 1, 2], 3, Some("cohort")),
        (&[0, 2], 4, Some("lrb")),
    ] {
        let mut scenario = line(4, replicas, 300.0, 0.003);
        scenario.seed = seed;
        scenario.network_latency = 0.02; // much is on its way
        scenario.period = 1.0;
        scenario.create = 0.3;
        scenario.operators[0].rates = Some(Rates::steady(300.0).then(200.0, 0.0, 0.0));
        scenario.duration = 260.0;
        // A second operator behind, which migrates too.
        scenario.operators.insert(
            2,
            Operator { cost: 0.002, state: 1e6, ..Operator::new("after", vec![1, 3], vec![1]) },
        );
        scenario.operators[3].inputs = vec![2];
        for node in &mut scenario.nodes {
            (node.network, node.policy) = (1e7, policy.map(Into::into));
        }
        let outcome = run_as(scenario, || Restless(0));
        let ended = outcome.migrations.iter().filter(|record| record.ended_s.is_some()).count();
        assert!(ended > 50, "{ended} migrations");
        assert_eq!(outcome.processed, outcome.offered, "{replicas:?}");
        assert_eq!(outcome.total.count, outcome.offered, "{replicas:?}");
    }
}

#[test]
fn copying_state_takes_as_long_as_the_link_needs() {
    let mut scenario = line(2, &[0], 100.0, 0.001);
    scenario.duration = 60.0;
    scenario.operators[0].arrivals = Arrivals::Even;
    scenario.operators[1].state = 5e7;
    scenario.nodes[1].network = 1e7; // 5 s
    let outcome = run_as(scenario, || Once(AtomicUsize::new(0)));
    let [record] = outcome.migrations.as_slice() else { panic!("{:?}", outcome.migrations) };
    let (paused, ended) = (record.paused_s.unwrap(), record.ended_s.unwrap());
    // Decided after 10 s, created half a second later, paused within a few events.
    assert!((paused - 10.55).abs() < 0.05, "{paused}");
    assert!((ended - paused - 5.0).abs() < 0.05, "{}", ended - paused);
    assert!((outcome.fast.max_ms - 5_000.0).abs() < 60.0, "{:?}", outcome.fast);
}

#[test]
fn what_a_migration_copies_is_not_taken_for_events() {
    for network in [1e8, 1e7] {
        // 0.5 s, within one second; 5 s, over several.
        let mut scenario = line(2, &[0], 100.0, 0.001);
        scenario.duration = 40.0;
        scenario.operators[0].arrivals = Arrivals::Even;
        scenario.operators[1].state = 5e7;
        scenario.nodes[1].network = network;
        let views = views(scenario);
        let worker = &views.last().unwrap().replicas[1];
        assert!(worker.migrated.is_some());
        assert!(worker.backlog <= 2.0, "one is on its way at most: {}", worker.backlog);
        let event = worker.per_event.unwrap();
        for resource in [Resource::Received, Resource::Sent] {
            assert!(event[resource] < 2.0 * 200.0, "{resource}: {}", event[resource]);
        }
        let seconds = views.iter().flat_map(|view| &view.replicas[1].seconds);
        let most = seconds.map(|second| second.usage[Resource::Received]).fold(0.0, f64::max);
        assert!(most < 10.0 * 100.0 * 200.0, "{most} bytes in a second");
    }
}

#[test]
fn a_replica_works_off_what_its_successor_was_not_sent_before_it_pauses() {
    // 150 events a second for 10 s on a core that does 100: some 500 wait, 5 s of work.
    let mut scenario = line(2, &[0], 150.0, 0.010);
    scenario.operators[0].arrivals = Arrivals::Even;
    scenario.operators[1].parallel = Some(1);
    scenario.duration = 60.0;
    let outcome = run_as(scenario, || Once(AtomicUsize::new(0)));
    let paused = outcome.migrations[0].paused_s.unwrap();
    assert!((paused - 10.55 - 5.3).abs() < 0.2, "{paused}");
}

#[test]
fn a_tumbling_window_is_migrated_at_its_end_without_state() {
    let mut scenario = line(2, &[0], 100.0, 0.001);
    scenario.operators[0].arrivals = Arrivals::Even;
    scenario.operators[1].window = Some(Window { size: 300, slide: 300 });
    scenario.duration = 60.0;
    let outcome = run_as(scenario.clone(), || Once(AtomicUsize::new(0)));
    assert_eq!(outcome.migrations[0].bytes, 0.0);
    assert!(
        (outcome.migrations[0].paused_s.unwrap() - 12.0).abs() < 0.1,
        "{:?}",
        outcome.migrations[0]
    );
    // A sliding one always has state.
    scenario.operators[1].window = Some(Window { size: 300, slide: 100 });
    let outcome = run_as(scenario.clone(), || Once(AtomicUsize::new(0)));
    assert!(outcome.migrations[0].bytes >= 200.0 * 200.0, "{:?}", outcome.migrations[0]);
    // One that does not end in time is migrated with what it has.
    scenario.operators[1].window = Some(Window { size: 30_000, slide: 30_000 });
    let outcome = run_as(scenario, || Once(AtomicUsize::new(0)));
    assert!(outcome.migrations[0].bytes > 200.0 * 2_000.0, "{:?}", outcome.migrations[0]);
}

#[test]
fn a_migration_that_the_run_ends_in_is_recorded_without_an_end() {
    let mut scenario = line(2, &[0], 10.0, 0.001);
    scenario.duration = 10.2;
    let outcome = run_as(scenario, || Once(AtomicUsize::new(0)));
    assert_eq!(outcome.migrations[0].ended_s, None);
}

#[test]
fn memory_that_others_hold_is_counted_once() {
    let mut scenario = line(2, &[0], 1.0, 0.0);
    scenario.duration = 11.0;
    (scenario.nodes[1].memory, scenario.nodes[1].memory_taken) = (1e9, 4e8);
    scenario.operators[1].memory = 1e8;
    let node = &views(scenario)[0].nodes[1];
    let free = node.capacity.memory - node.usage.unwrap()[Resource::Memory];
    assert_eq!(free, 5e8);
}

#[test]
fn latencies_are_right_by_a_clock_that_has_drifted_by_far_more() {
    // The worker's latency is from a moment on `ends` to one on b, whose clock is slow by 100 µs a second.
    let mut scenario = line(2, &[0], 20.0, 0.001);
    scenario.duration = 1_000.0;
    scenario.nodes[2].clock_rate = 0.9999;
    scenario.operators[2].nodes = vec![2];
    let views = views(scenario);
    let worker = &views.last().unwrap().replicas[1];
    let latencies = worker.latencies_ms();
    assert_eq!(latencies.len(), 10);
    assert!(latencies.iter().all(|ms| (ms - 1.0).abs() < 6.1), "{latencies:?}");
}

#[test]
fn nodes_that_fall_silent_during_a_copy_lose_no_event() {
    // Copies take two seconds; both nodes fall silent in the middle of one, and never speak again.
    let mut scenario = line(3, &[0, 1], 200.0, 0.003);
    scenario.operators[0].rates = Some(Rates::steady(200.0).then(60.0, 0.0, 0.0));
    (scenario.period, scenario.create, scenario.duration) = (1.0, 0.3, 100.0);
    scenario.operators[1].state = 2e7;
    for node in &mut scenario.nodes {
        (node.network, node.silent_from) = (1e7, Some(21.3));
    }
    let outcome = run_as(scenario, || Restless(0));
    let under_way = outcome
        .migrations
        .iter()
        .filter(|record| record.at_s < 21.3 && record.ended_s.is_some_and(|ended| ended > 21.3));
    assert!(under_way.count() > 0, "{:?}", outcome.migrations);
    assert!(outcome.migrations.iter().all(|record| record.at_s < 32.0), "nothing is known later");
    assert_eq!(outcome.processed, outcome.offered);
    assert_eq!(outcome.total.count, outcome.offered);
}
