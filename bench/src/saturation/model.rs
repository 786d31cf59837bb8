//! The five studies in the model. One source, workers on one node, one sink; the parameters of tables 3.1 to 3.5.
//!
//! What is not published is fixed here: the node has one core where CPU is studied (900 events of 1 ms then
//! nearly fill it), 300 MB of a gigabyte are taken by the system, events have 8 bytes on the network (100 Kbit/s
//! are then reached between 1,000 and 1,500 events a second, as published), a seek takes 4 ms, and a core copies 3 GB/s.

use super::Point;
use crate::options::Options;
use comporta_sim::rates::Rates;
use comporta_sim::scenario::{Node, Operator, Scenario};
use comporta_sim::{Outcome, run};

/// What a study changes from point to point.
struct Setup {
    study: &'static str,
    setting: String,
    rate: f64,
    duration_s: f64,
    workers: usize,
    node: Node,
    worker: Operator,
}

fn worker() -> Operator {
    Operator::new("worker", vec![1], Vec::new())
}

fn setups() -> Vec<Setup> {
    let node = || Node { cores: 1, ..Node::new("node") };
    let mut all = Vec::new();
    for rate in [100.0, 250.0, 500.0, 900.0] {
        all.push(Setup {
            study: "CPU",
            setting: format!("{rate} events/s"),
            rate,
            duration_s: 120.0,
            workers: 1,
            node: node(),
            worker: Operator { cost: 0.001, ..worker() },
        });
    }
    for megabytes in [256.0, 512.0, 768.0] {
        all.push(Setup {
            study: "memory",
            setting: format!("{megabytes} MB of 1 GB"),
            rate: 100.0,
            duration_s: 300.0,
            workers: 1,
            node: Node { memory: 1e9, memory_taken: 3e8, seek: 0.0001, ..node() },
            worker: Operator { cost: 0.001, memory: megabytes * 1e6, touches: 100, ..worker() },
        });
    }
    for workers in [1, 2, 4] {
        all.push(Setup {
            study: "memory bandwidth",
            setting: format!("{workers} operators"),
            rate: 100.0,
            duration_s: 120.0,
            workers,
            node: Node { cores: 4, memory_bandwidth: 3e9, ..node() },
            worker: Operator { copies: 2e6, ..worker() },
        });
    }
    for rate in [500.0, 1000.0, 1500.0] {
        all.push(Setup {
            study: "network",
            setting: format!("{rate} events/s"),
            rate,
            duration_s: 120.0,
            workers: 1,
            node: Node { network: 100e3 / 8.0, ..node() },
            worker: Operator { cost: 0.00025, event_bytes: 8.0, ..worker() },
        });
    }
    for workers in [1, 2] {
        all.push(Setup {
            study: "disk",
            setting: format!("{workers} operators"),
            rate: 10.0,
            duration_s: 120.0,
            workers,
            node: Node { disk: 2e7, ..node() },
            worker: Operator { cost: 0.0005, reads: 256e3, writes: 256e3, ..worker() },
        });
    }
    all
}

pub(super) fn points(options: &Options) -> Vec<Point> {
    setups().iter().map(|setup| point(setup, options)).collect()
}

fn point(setup: &Setup, options: &Options) -> Point {
    let mut scenario = Scenario::new(setup.study);
    scenario.seed = options.seed;
    scenario.duration = if options.quick { setup.duration_s / 10.0 } else { setup.duration_s };
    scenario.nodes = vec![Node::new("ends"), setup.node.clone()];
    for at in 0..setup.workers {
        let rates = Rates::steady(setup.rate);
        let source = Operator::source(format!("source{at}"), 0, rates);
        let bytes = if setup.study == "network" { 8.0 } else { source.event_bytes };
        let first = scenario.operators.len();
        scenario.operators.push(Operator { event_bytes: bytes, ..source });
        let name = format!("worker{at}");
        scenario.operators.push(Operator { name, inputs: vec![first], ..setup.worker.clone() });
        scenario.operators.push(Operator::new(format!("sink{at}"), vec![0], vec![first + 1]));
    }
    let outcome = run(&scenario).expect("a study is sound");
    Point {
        study: setup.study,
        setting: setup.setting.clone(),
        mean_ms: outcome.fast.mean_ms,
        p99_ms: outcome.fast.p99_ms,
        used: used(setup, &outcome),
    }
}

/// Mean CPU of the node as it was measured; the others from what events ask for, as they are offered.
fn used(setup: &Setup, outcome: &Outcome) -> [Option<f64>; 4] {
    let loads: Vec<f64> =
        outcome.moments.iter().filter_map(|moment| moment.loads[1]).map(f64::from).collect();
    let cpu = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
    let (node, worker) = (&setup.node, &setup.worker);
    let all = setup.rate * setup.workers as f64;
    let memory = (node.memory_taken + worker.memory) / node.memory;
    let seeks = f64::from(u8::from(worker.reads > 0.0) + u8::from(worker.writes > 0.0));
    let disk = all * ((worker.reads + worker.writes) / node.disk + seeks * node.seek);
    let network = all * worker.event_bytes / node.network;
    [Some(cpu), Some(memory.min(1.0)), Some(disk.min(1.0)), Some(network.min(1.0))]
}
