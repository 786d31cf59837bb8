//! Policies of `comporta-policy` on the cores of a node.

use comporta_policy::Registry;
use comporta_sim::rates::{Arrivals, Rates};
use comporta_sim::scenario::{Operator, Scenario};
use comporta_sim::{Outcome, run};

use crate::line;

/// Three stages of 10 ms on a node of one core, to which ten events come at once.
fn burst(policy: Option<&str>) -> Outcome {
    let mut scenario = line(1, &[0], 0.0, 0.010);
    scenario.duration = 10.0;
    scenario.operators[0].rates = Some(Rates::steady(1e6).then(10.5e-6, 0.0, 0.0));
    scenario.operators[0].arrivals = Arrivals::Even;
    for at in [1, 2] {
        let next =
            Operator { cost: 0.010, ..Operator::new(format!("next{at}"), vec![1], vec![at]) };
        scenario.operators.insert(at + 1, next);
    }
    scenario.operators[4].inputs = vec![3];
    (scenario.nodes[1].cores, scenario.nodes[1].policy) = (1, policy.map(Into::into));
    let outcome = run(&scenario).unwrap();
    assert_eq!((outcome.offered, outcome.processed), (10, 10), "{policy:?}");
    outcome
}

fn assert_mean(policy: Option<&str>, expected_ms: f64) {
    let mean = burst(policy).total.mean_ms;
    assert!((mean - expected_ms).abs() < 0.1, "{policy:?}: {mean} ms");
}

#[test]
fn shortest_remaining_first_finishes_one_event_after_another() {
    // 30, 60, … 300 ms, on either kind of queue.
    assert_mean(Some("srpt"), 165.0);
    assert_mean(Some("srpt-private(events=1)"), 165.0);
}

#[test]
fn cohorts_finish_a_stage_before_the_next() {
    // The last stage begins after 200 ms: 210, 220, … 300 ms.
    assert_mean(Some("cohort"), 255.0);
    // Two of the first stage, two of the second, two of the third, and back by the second: 50, 60, 130, 140, …
    assert!(burst(Some("cohort-bounded(events=2)")).total.mean_ms < 220.0);
}

#[test]
fn one_queue_without_priorities_is_taking_turns() {
    let turns = burst(None);
    let single = burst(Some("single"));
    assert_eq!(turns.total, single.total);
}

#[test]
fn every_policy_runs_a_node_or_is_refused_with_the_reason() {
    let mut refused = Vec::new();
    for entry in Registry::new().entries() {
        let name = entry.offer.name;
        let mut scenario = line(2, &[0, 1], 300.0, 0.004);
        scenario.operators[0].rates = Some(Rates::steady(300.0).then(10.0, 0.0, 0.0));
        scenario.duration = 20.0;
        scenario.nodes[1].policy = Some(name.into());
        match run(&scenario) {
            Ok(outcome) => assert_eq!(outcome.processed, outcome.offered, "{name}"),
            Err(error) => {
                let error = error.to_string();
                assert!(
                    error.contains(name) && error.contains("a node of the model has not"),
                    "{error}"
                );
                refused.push(name);
            }
        }
    }
    refused.sort_unstable();
    assert_eq!(refused, ["color", "ds2", "elastic", "seda", "seda-dynamic", "thread-stealing"]);
}

#[test]
fn a_policy_that_is_not_known_is_refused_before_anything_runs() {
    let mut scenario: Scenario = line(1, &[0], 1.0, 0.0);
    scenario.nodes[1].policy = Some("chort".into());
    let error = run(&scenario).unwrap_err().to_string();
    assert!(error.starts_with("a: its policy `chort`") && error.contains("cohort"), "{error}");
}
