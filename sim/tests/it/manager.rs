//! What the manager sees, and what it makes of it.

use comporta_sim::published::{Reading, Workload, cost, experiment};
use comporta_sim::rates::{Arrivals, Rates};
use comporta_sim::scenario::{Node, Operator, Scenario, Window};
use comporta_sim::{Outcome, run};

use crate::line;

fn published(strategy: &str, change: impl Fn(&mut Scenario)) -> Outcome {
    let workload = Workload::Varied(Reading::HighFirst);
    let mut scenario = experiment(workload, strategy.into(), 1, cost(1.3));
    scenario.duration = 150.0;
    change(&mut scenario);
    run(&scenario).unwrap()
}

fn migrations(outcome: &Outcome) -> Vec<(String, String, String)> {
    let text = |record: &comporta_sim::Migration| {
        (record.replica.clone(), record.from.clone(), record.to.clone())
    };
    outcome.migrations.iter().map(text).collect()
}

#[test]
fn clocks_that_differ_by_an_hour_change_no_decision() {
    for strategy in ["adaptive", "cost-aware"] {
        let right = published(strategy, |_| {});
        assert!(!right.migrations.is_empty());
        for hour in [3600.0, -3600.0] {
            let wrong = published(strategy, |scenario| {
                for (at, node) in scenario.nodes.iter_mut().enumerate() {
                    node.clock_ahead = hour * at as f64;
                }
            });
            assert_eq!(migrations(&right), migrations(&wrong), "{strategy}, {hour}");
        }
    }
}

#[test]
fn a_silent_node_neither_gives_nor_takes_once_a_period_has_passed() {
    for strategy in ["adaptive", "random", "cost-aware"] {
        let outcome = published(strategy, |scenario| scenario.nodes[4].silent_from = Some(20.0));
        let later = outcome.migrations.iter().filter(|record| record.at_s > 31.0);
        let touched = later.filter(|record| record.from == "vm6" || record.to == "vm6").count();
        assert_eq!(touched, 0, "{strategy}");
        assert!(!outcome.migrations.is_empty());
    }
}

/// Two workers on node a, which soon has too little of something for both; b and c are empty.
fn crowded(strategy: &str, change: impl Fn(&mut Operator)) -> Scenario {
    let mut scenario = line(3, &[0], 0.0, 0.0);
    scenario.operators.clear();
    scenario.duration = 120.0;
    scenario.strategy = strategy.into();
    for name in ["x", "y"] {
        let at = scenario.operators.len();
        let rates = Rates::steady(40.0).then(15.0, 10.0, 100.0);
        let source = Operator::source(format!("source-{name}"), 0, rates);
        let mut worker = Operator::new(name, vec![1], vec![at]);
        change(&mut worker);
        let sink = Operator::new(format!("sink-{name}"), vec![0], vec![at + 1]);
        scenario.operators.extend([source, worker, sink]);
    }
    scenario
}

#[test]
fn an_operator_that_wants_too_much_of_a_disk_is_migrated() {
    // 6.56 ms at the disk: both want 0.5 of it at first, then 1.3.
    for strategy in ["adaptive", "random", "cost-aware"] {
        let outcome = run(&crowded(strategy, |worker| worker.writes = 256e3)).unwrap();
        assert!(!outcome.migrations.is_empty(), "{strategy}");
        assert!(
            outcome.migrations.iter().all(|record| record.from == "a"),
            "{:?}",
            migrations(&outcome)
        );
    }
}

#[test]
fn a_round_is_not_held_while_a_migration_is_under_way() {
    let outcome = published("adaptive(d=0.25)", |scenario| scenario.create = 25.0);
    let times: Vec<f64> = outcome.migrations.iter().map(|record| record.at_s).collect();
    assert!(times.len() >= 2, "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 25.0), "{times:?}");
    // Of fourteen, each migration but the last takes two at least.
    assert!(outcome.rounds <= 14 - 2 * (times.len() as u64 - 1), "{} rounds", outcome.rounds);
}

#[test]
fn adaptive_and_cost_aware_cut_the_latency_of_an_overloaded_node() {
    let base = published("none", |_| {}).fast.mean_ms;
    for strategy in ["adaptive(d=0.25)", "cost-aware"] {
        let mean = published(strategy, |_| {}).fast.mean_ms;
        assert!(mean < base / 3.0, "{strategy}: {mean} against {base}");
    }
}

#[test]
fn a_node_that_stands_by_is_asked_for_and_released_again() {
    let mut scenario = Scenario::new("elastic");
    scenario.duration = 400.0;
    scenario.boot = 20.0;
    scenario.nodes = ["ends", "a", "spare"].map(Node::new).to_vec();
    scenario.nodes[0].reserved = true;
    (scenario.nodes[2].standby, scenario.nodes[2].elastic) = (true, true);
    let rates = Rates::steady(200.0).then(50.0, 10.0, 900.0).then(200.0, 10.0, 200.0);
    for name in ["x", "y"] {
        let at = scenario.operators.len();
        let source = Operator::source(format!("source-{name}"), 0, rates.clone());
        let worker = Operator { cost: 0.002, ..Operator::new(name, vec![1], vec![at]) };
        let sink = Operator::new(format!("sink-{name}"), vec![0], vec![at + 1]);
        scenario.operators.extend([source, worker, sink]);
    }
    scenario.strategy = "cost-aware".into();
    let outcome = run(&scenario).unwrap();
    let changes: Vec<bool> = outcome.node_changes.iter().map(|change| change.added).collect();
    assert_eq!(changes, [true, false], "{:?}", outcome.node_changes);
    assert!(outcome.node_seconds < 400.0 * 3.0 - 100.0);
    scenario.strategy = "none".into();
    assert!(outcome.fast.p99_ms < run(&scenario).unwrap().fast.p99_ms);
}

#[test]
fn an_empty_node_that_is_silent_takes_nothing() {
    for strategy in ["adaptive", "random", "cost-aware"] {
        let mut scenario = crowded(strategy, |worker| worker.cost = 0.025);
        scenario.nodes[2].silent_from = Some(0.0);
        let outcome = run(&scenario).unwrap();
        assert!(!outcome.migrations.is_empty(), "{strategy}");
        assert!(
            outcome.migrations.iter().all(|record| record.to != "b"),
            "{:?}",
            migrations(&outcome)
        );
    }
}

#[test]
fn chatty_operators_are_brought_together() {
    let mut scenario = line(2, &[0], 100.0, 0.0001);
    scenario.network_latency = 0.005;
    scenario.duration = 60.0;
    scenario.operators[0].arrivals = Arrivals::Even;
    let after = Operator { cost: 0.0001, ..Operator::new("after", vec![2], vec![1]) };
    scenario.operators.insert(2, after);
    scenario.operators[3].inputs = vec![2];
    scenario.strategy = "cost-aware".into();
    let outcome = run(&scenario).unwrap();
    let last = &outcome.moments[55];
    let first = &outcome.moments[5];
    assert!(last.fast_ms < first.fast_ms, "{first:?} {last:?}");
}

/// A change to a sound scenario, and a part of what is told of it.
type Refused = (fn(&mut Scenario), &'static str);

const REFUSED: [Refused; 18] = [
    (|scenario| scenario.nodes[1].memory_taken = 2e9, "others leave it some of its memory"),
    (|scenario| scenario.nodes[1].memory_taken = -1.0, "others leave it some of its memory"),
    (|scenario| scenario.nodes[1].seek = -0.004, "`seek` is not negative"),
    (|scenario| scenario.nodes[1].seek = f64::NAN, "`seek` is not negative"),
    (|scenario| scenario.nodes[1].clock_ahead = 1e12, "its clock is wrong by less"),
    (
        |scenario| scenario.nodes[1].background = Rates::steady(1.0).then(5.0, 1.0, -1.0),
        "no rate is negative",
    ),
    (|scenario| scenario.operators[0].rates = Some(Rates::steady(-1.0)), "no rate is negative"),
    (|scenario| scenario.nodes[1].clock_rate = 0.0, "its clock goes 0.5 to 2"),
    (|scenario| scenario.nodes[1].download = Some(0.0), "network are more than 0"),
    (|scenario| scenario.operators[2].inputs = vec![1, 1], "it takes from an operator once"),
    (|scenario| scenario.operators[0].cost = 0.001, "a source sends, and does nothing else"),
    (
        |scenario| scenario.operators[2].window = Some(Window { size: 2, slide: 2 }),
        "no operator takes what its windows send",
    ),
    (ways_that_double, "65536 ways from sources"),
    (|scenario| scenario.period = 1e-10, "`period` is at least 1 s"),
    (
        |scenario| scenario.operators[0].rates = Some(Rates::steady(1e300)),
        "events a second at most",
    ),
    (|scenario| scenario.nodes[1].name = "ends".to_owned(), "another node has this name"),
    (|scenario| scenario.operators[1].name = "sink".to_owned(), "another operator has this name"),
    (|scenario| scenario.nodes[1].policy = Some("seda".into()), "a node of the model has not"),
];

/// Two operators that take from two, forty times.
fn ways_that_double(scenario: &mut Scenario) {
    let mut inputs = vec![1];
    for pair in 0..40 {
        let at = scenario.operators.len();
        for name in ["x", "y"] {
            let operator = Operator::new(format!("{name}{pair}"), vec![1], inputs.clone());
            scenario.operators.push(operator);
        }
        inputs = vec![at, at + 1];
    }
}

#[test]
fn a_scenario_that_cannot_be_run_is_refused_with_what_is_wrong() {
    let mut scenario = line(2, &[0, 0], 1.0, 0.0);
    scenario.operators[1].fails = 2.0;
    scenario.nodes[0].cores = 65;
    let told = run(&scenario).unwrap_err().to_string();
    for part in ["never share a node", "`fails` is a share", "1 to 64 cores"] {
        assert!(told.contains(part), "{told}");
    }
    for (change, told) in REFUSED {
        let mut scenario = line(1, &[0], 1.0, 0.0);
        change(&mut scenario);
        let error = run(&scenario).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    let mut scenario = line(1, &[0], 1.0, 0.0);
    scenario.strategy = "adaptve".into();
    assert!(run(&scenario).unwrap_err().to_string().contains("adaptive"));
}
