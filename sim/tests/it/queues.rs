//! One node against the closed formulas.

use comporta_sim::queueing::{md1, mm1, mmc};
use comporta_sim::rates::Rates;
use comporta_sim::run;
use comporta_sim::scenario::{Node, Operator, Service};

use crate::line;

/// Loads, core-seconds to run, and how close it must be. Waits at 0.95 are correlated over minutes; the bench
/// `placement` runs it for long enough to hold 2 % there too.
const LOADS: [(f64, f64, f64); 3] =
    [(0.5, 1_000.0, 0.02), (0.8, 4_000.0, 0.02), (0.95, 10_000.0, 0.05)];

fn mean_s(cores: usize, load: f64, seconds: f64, service: Service) -> f64 {
    let (cost, warm_up) = (0.002, 100.0);
    let mut scenario = line(1, &[0], load * cores as f64 / cost, cost);
    scenario.duration = seconds / cores as f64 + warm_up;
    scenario.warm_up = warm_up;
    scenario.nodes[1].cores = cores;
    scenario.operators[1].service = service;
    run(&scenario).unwrap().fast.mean_ms / 1e3
}

fn assert_close(model: f64, formula: f64, within: f64, what: &str) {
    let error = model / formula - 1.0;
    assert!(
        error.abs() < within,
        "{what}: {model} against {formula}, off by {:.2} %",
        error * 100.0
    );
}

#[test]
fn one_exponential_server_waits_as_mm1() {
    for (load, seconds, within) in LOADS {
        let model = mean_s(1, load, seconds, Service::Exponential);
        assert_close(model, mm1(load, 0.002), within, &format!("M/M/1 at {load}"));
    }
}

#[test]
fn one_fixed_server_waits_as_md1() {
    for (load, seconds, within) in LOADS {
        let model = mean_s(1, load, seconds, Service::Fixed);
        assert_close(model, md1(load, 0.002), within, &format!("M/D/1 at {load}"));
    }
}

#[test]
fn several_exponential_servers_wait_as_mmc() {
    for cores in [2, 4, 8] {
        for (load, seconds, within) in LOADS {
            let model = mean_s(cores, load, seconds, Service::Exponential);
            let formula = mmc(cores as u32, load, 0.002);
            assert_close(model, formula, within, &format!("M/M/{cores} at {load}"));
        }
    }
}

#[test]
fn a_server_of_mixed_services_waits_as_pollaczek_and_khinchine_say() {
    // As many events of 2 ms as of 2 ms on average by chance: E[S²] is 1.5 of E[S]². Turns are taken without regard to
    // how long an event takes, so the mean wait is that of one queue.
    let (service, load) = (0.002, 0.8);
    let mut scenario = line(1, &[0], load / service / 2.0, service);
    (scenario.duration, scenario.warm_up) = (4_100.0, 100.0);
    scenario.nodes[1].cores = 1;
    scenario.operators[1].service = Service::Exponential;
    scenario.operators.push(Operator::source("second", 0, Rates::steady(load / service / 2.0)));
    scenario.operators.push(Operator { cost: service, ..Operator::new("fixed", vec![1], vec![3]) });
    scenario.operators.push(Operator::new("end", vec![0], vec![4]));
    let model = run(&scenario).unwrap().fast.mean_ms / 1e3;
    let wait = load / service * 1.5 * service * service / (2.0 * (1.0 - load));
    assert_close(model, service + wait, 0.02, "M/G/1");
}

#[test]
fn two_servers_in_a_row_take_as_long_as_each_alone() {
    // Burke: what leaves M/M/1 is Poisson.
    let mut scenario = line(1, &[0], 250.0, 0.002);
    (scenario.duration, scenario.warm_up) = (4_100.0, 100.0);
    scenario.nodes.push(Node { network: 1e15, ..Node::new("second") });
    (scenario.nodes[1].cores, scenario.nodes[2].cores) = (1, 1);
    scenario.operators[1].service = Service::Exponential;
    let after = Operator { cost: 0.003, ..Operator::new("after", vec![2], vec![1]) };
    scenario.operators.insert(2, Operator { service: Service::Exponential, ..after });
    scenario.operators[3].inputs = vec![2];
    let model = run(&scenario).unwrap().total.mean_ms / 1e3;
    assert_close(model, mm1(0.5, 0.002) + mm1(0.75, 0.003), 0.02, "M/M/1 twice");
}
