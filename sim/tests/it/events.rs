//! Events: none is lost, none passes twice, and the same seed gives the same bytes.

use comporta_sim::published::{Reading, Workload, cost, experiment};
use comporta_sim::rates::{Arrivals, Rates};
use comporta_sim::scenario::{Operator, Scenario, Window};
use comporta_sim::{Outcome, run};

use crate::line;

#[test]
fn every_event_comes_to_its_end_once() {
    let mut scenario = line(2, &[0, 1], 100.0, 0.001);
    scenario.operators[0].rates = Some(Rates::steady(100.0).then(50.0, 0.0, 0.0));
    scenario.duration = 60.0;
    let outcome = run(&scenario).unwrap();
    assert!(outcome.offered > 4_000);
    assert_eq!(outcome.processed, outcome.offered);
    assert_eq!(outcome.fast.count, outcome.offered);
    assert_eq!(outcome.slow.count, outcome.offered);
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let bytes = |strategy: &str, seed| {
        let workload = Workload::Varied(Reading::HighFirst);
        let mut scenario = experiment(workload, strategy.into(), seed, cost(1.3));
        scenario.duration = 130.0;
        format!("{:?}", run(&scenario).unwrap())
    };
    for strategy in ["none", "random", "adaptive", "cost-aware"] {
        assert_eq!(bytes(strategy, 1), bytes(strategy, 1), "{strategy}");
    }
    assert_ne!(bytes("random", 1), bytes("random", 2));
}

#[test]
fn all_strategies_of_a_seed_are_offered_the_same_events() {
    let offered = |strategy: &str| {
        let workload = Workload::Varied(Reading::LowFirst);
        let mut scenario = experiment(workload, strategy.into(), 3, cost(1.3));
        scenario.duration = 100.0;
        run(&scenario).unwrap().offered
    };
    assert_eq!(offered("none"), offered("random"));
    assert_eq!(offered("none"), offered("cost-aware"));
}

#[test]
fn a_source_sends_when_the_scenario_says_it_does() {
    let mut scenario = line(2, &[0, 1], 40.0, 0.001);
    scenario.duration = 30.0;
    scenario.operators.insert(1, Operator::source("second", 0, Rates::steady(60.0)));
    scenario.operators[2].inputs = vec![0, 1];
    scenario.operators[3].inputs = vec![2];
    let arrivals = [scenario.arrivals(0), scenario.arrivals(1)];
    let offered = run(&scenario).unwrap().offered;
    assert_eq!(arrivals.iter().map(Vec::len).sum::<usize>() as u64, offered);
    assert!(arrivals[0].is_sorted() && arrivals[0] != arrivals[1]);
}

#[test]
fn what_one_replica_fails_the_other_brings() {
    let mut scenario = line(2, &[0, 1], 200.0, 0.001);
    scenario.duration = 100.0;
    scenario.operators[0].rates = Some(Rates::steady(200.0).then(90.0, 0.0, 0.0));
    scenario.operators[1].fails = 0.1;
    let outcome = run(&scenario).unwrap();
    // Lost only what both failed: one in a hundred.
    let lost = (outcome.offered - outcome.processed) as f64 / outcome.offered as f64;
    assert!((0.005..0.015).contains(&lost), "{lost}");
    let failed = outcome.failed as f64 / outcome.offered as f64;
    assert!((0.18..0.22).contains(&failed), "{failed}");
}

#[test]
fn the_first_copy_counts_for_the_fast_replica_and_the_last_for_the_slow_one() {
    let mut scenario = line(2, &[0, 1], 50.0, 0.010);
    scenario.duration = 20.0;
    scenario.operators[0].arrivals = Arrivals::Even;
    scenario.nodes[2].speed = 0.5; // b takes twice as long
    let Outcome { fast, slow, .. } = run(&scenario).unwrap();
    assert!((fast.mean_ms - 10.0).abs() < 0.01, "{fast:?}");
    assert!((slow.mean_ms - 20.0).abs() < 0.01, "{slow:?}");
}

#[test]
fn the_latency_of_a_window_is_that_of_its_last_event() {
    let mut scenario = line(1, &[0], 10.0, 0.005);
    scenario.duration = 100.5;
    scenario.operators[0].arrivals = Arrivals::Even;
    scenario.operators[1].window = Some(Window { size: 10, slide: 10 });
    let outcome = run(&scenario).unwrap();
    assert_eq!(outcome.fast.count, 100);
    // A tenth of a second between events; the window took a second to fill, and 5 ms to end.
    assert!((outcome.fast.mean_ms - 5.0).abs() < 0.01, "{:?}", outcome.fast);
}

#[test]
fn a_sliding_window_sends_as_often_as_it_slides() {
    let mut scenario = line(2, &[0, 1], 10.0, 0.001);
    scenario.duration = 100.55;
    scenario.operators[0].arrivals = Arrivals::Even;
    scenario.operators[1].window = Some(Window { size: 20, slide: 5 });
    // 1,005 events: windows end with the 20th, 25th, … 1,005th.
    assert_eq!(run(&scenario).unwrap().processed, 198);
}

/// `x` and `y` take from the source, and `join` from both; all have two replicas.
fn diamond() -> Scenario {
    let mut scenario = line(2, &[0, 1], 100.0, 0.001);
    scenario.operators[0].rates = Some(Rates::steady(100.0).then(20.0, 0.0, 0.0));
    scenario.duration = 30.0;
    scenario.operators.truncate(1);
    let operator =
        |name, inputs| Operator { cost: 0.002, ..Operator::new(name, vec![1, 2], inputs) };
    scenario.operators.push(operator("x", vec![0]));
    scenario.operators.push(Operator { cost: 0.001, ..operator("y", vec![0]) });
    scenario.operators.push(operator("join", vec![1, 2]));
    scenario
}

#[test]
fn two_events_that_one_led_to_along_two_ways_both_arrive_once() {
    let mut scenario = diamond();
    scenario.operators.push(Operator::new("sink", vec![0], vec![3]));
    let outcome = run(&scenario).unwrap();
    assert!(outcome.offered > 1_500);
    assert_eq!(outcome.processed, 2 * outcome.offered);
    // And where such ways part and meet again.
    let after = |name: &str, inputs| Operator::new(name, vec![1, 2], inputs);
    scenario.operators.truncate(4);
    scenario.operators.extend([after("v", vec![3]), after("w", vec![3]), after("all", vec![4, 5])]);
    scenario.operators.push(Operator::new("sink", vec![0], vec![6]));
    assert_eq!(run(&scenario).unwrap().processed, 4 * outcome.offered);
}

#[test]
fn a_window_counts_the_events_of_all_inputs() {
    let mut scenario = diamond();
    scenario.operators[3].window = Some(Window { size: 50, slide: 50 });
    scenario.operators.push(Operator::new("sink", vec![0], vec![3]));
    let outcome = run(&scenario).unwrap();
    assert_eq!(outcome.processed, 2 * outcome.offered / 50);
}

#[test]
fn a_window_ends_although_an_event_before_it_was_lost() {
    // A quarter is lost before the window, the events that would end it by their numbers among them.
    let mut scenario = line(1, &[0], 100.0, 0.0);
    scenario.duration = 100.0;
    scenario.operators[1].fails = 0.25;
    let window = Window { size: 10, slide: 10 };
    let gather = Operator { window: Some(window), ..Operator::new("gather", vec![1], vec![1]) };
    scenario.operators.insert(2, gather);
    scenario.operators[3].inputs = vec![2];
    let outcome = run(&scenario).unwrap();
    assert!(outcome.failed > 2_000);
    assert_eq!(outcome.processed, (outcome.offered - outcome.failed) / 10);
}

#[test]
fn an_event_that_a_sink_fails_is_not_processed() {
    let mut scenario = line(1, &[0], 100.0, 0.0);
    scenario.operators[0].rates = Some(Rates::steady(100.0).then(20.0, 0.0, 0.0));
    scenario.duration = 30.0;
    scenario.operators[2].fails = 0.5;
    let outcome = run(&scenario).unwrap();
    assert!(outcome.failed > 500);
    assert_eq!(outcome.processed + outcome.failed, outcome.offered);
}

#[test]
fn events_of_two_sources_are_told_apart() {
    let mut scenario = line(2, &[0, 1], 40.0, 0.001);
    scenario.duration = 30.0;
    let second = Operator::source("second", 0, Rates::steady(60.0).then(20.0, 0.0, 0.0));
    scenario.operators[0].rates = Some(Rates::steady(40.0).then(20.0, 0.0, 0.0));
    scenario.operators.insert(1, second);
    scenario.operators[2].inputs = vec![0, 1];
    scenario.operators[3].inputs = vec![2];
    let outcome = run(&scenario).unwrap();
    assert_eq!(outcome.processed, outcome.offered);
}
