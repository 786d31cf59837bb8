//! One node against the closed formulas.

use comporta_sim::queueing::{md1, mm1, mmc};
use comporta_sim::run;
use comporta_sim::scenario::Service;

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
