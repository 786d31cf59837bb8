//! The simulator itself: queues against the closed formulas, and how fast it is.

use crate::options::Options;
use crate::report::{Report, Table};
use crate::stats::median;
use comporta_sim::published::{self, Reading, Workload};
use comporta_sim::queueing::{md1, mm1, mmc};
use comporta_sim::rates::Rates;
use comporta_sim::run;
use comporta_sim::scenario::{Node, Operator, Scenario, Service};
use std::time::Instant;

const SERVICE_S: f64 = 0.002;
/// Core-seconds that a queue runs for, at each load: waits at 0.95 are correlated over minutes.
const LOADS: [(f64, f64); 3] = [(0.5, 20_000.0), (0.8, 50_000.0), (0.95, 400_000.0)];
const WARM_UP_S: f64 = 200.0;
const CORES: usize = 4;
/// Times that each speed is measured; the median counts.
const TIMES: usize = 5;

pub(super) fn check(options: &Options, report: &mut Report) {
    formulas(options, report);
    speed(options, report);
}

fn formulas(options: &Options, report: &mut Report) {
    println!("\nOne node against the closed formulas: mean time in the system");
    let mut table = Table::new(&["queue", "load", "formula ms", "model ms", "error %"]);
    let mut worst = 0.0_f64;
    for (load, seconds) in LOADS {
        let queues = [
            ("M/M/1", 1, Service::Exponential, mm1(load, SERVICE_S)),
            ("M/D/1", 1, Service::Fixed, md1(load, SERVICE_S)),
            ("M/M/4", CORES, Service::Exponential, mmc(CORES as u32, load, SERVICE_S)),
        ];
        for (name, cores, service, formula) in queues {
            let seconds = if options.quick { seconds / 20.0 } else { seconds };
            let model = queue_s(cores, load, seconds, service, options.seed);
            let error = model / formula - 1.0;
            worst = worst.max(error.abs());
            table.row([
                name.to_owned(),
                format!("{load}"),
                format!("{:.3}", formula * 1e3),
                format!("{:.3}", model * 1e3),
                format!("{:+.2}", error * 100.0),
            ]);
        }
    }
    table.print();
    report.figure("mm1_error", worst);
}

fn queue_s(cores: usize, load: f64, seconds: f64, service: Service, seed: u64) -> f64 {
    let mut scenario = Scenario::new("queue");
    (scenario.network_latency, scenario.seed) = (0.0, seed);
    scenario.warm_up = WARM_UP_S;
    scenario.duration = seconds / cores as f64 + WARM_UP_S;
    scenario.nodes = ["ends", "node"].map(|name| Node { network: 1e15, ..Node::new(name) }).into();
    scenario.nodes[1].cores = cores;
    let rate = load * cores as f64 / SERVICE_S;
    scenario.operators = vec![
        Operator::source("source", 0, Rates::steady(rate)),
        Operator { cost: SERVICE_S, service, ..Operator::new("worker", vec![1], vec![0]) },
        Operator::new("sink", vec![0], vec![1]),
    ];
    run(&scenario).expect("a queue is sound").fast.mean_ms / 1e3
}

/// The published experiment, and the same a hundred and more times side by side: strategies included.
fn speed(options: &Options, report: &mut Report) {
    println!("\nSpeed of the simulator, one core, strategy `adaptive`");
    let few = published::experiment(
        Workload::Varied(Reading::HighFirst),
        "adaptive".into(),
        options.seed,
        published::cost(published::HOTTEST_WANTS),
    );
    let few = Scenario { duration: if options.quick { 30.0 } else { 120.0 }, ..few };
    let many =
        Scenario { duration: if options.quick { 2.0 } else { 12.0 }, ..copies(&few, 1000 / 6 + 1) };
    let mut table = Table::new(&["nodes", "million a second", "ns each"]);
    let mut each = Vec::new();
    for (nodes, scenario) in [("6", &few), ("1,002", &many)] {
        let mut costs = Vec::new();
        for _ in 0..TIMES {
            let began = Instant::now();
            let events = run(scenario).expect("the published experiment is sound").events;
            costs.push(began.elapsed().as_secs_f64() / events as f64);
        }
        let cost = median(&costs);
        table.row([nodes.to_owned(), format!("{:.2}", 1e-6 / cost), format!("{:.0}", cost * 1e9)]);
        each.push(cost);
    }
    table.print();
    report.figure("events_per_s", 1.0 / each[0]);
    report.figure("cost_1000_vs_6", each[1] / each[0]);
}

/// A scenario several times, side by side.
fn copies(of: &Scenario, count: usize) -> Scenario {
    let mut all = Scenario { nodes: Vec::new(), operators: Vec::new(), ..of.clone() };
    for copy in 0..count {
        let (nodes, operators) = (all.nodes.len(), all.operators.len());
        for node in &of.nodes {
            all.nodes.push(Node { name: format!("{}-{copy}", node.name), ..node.clone() });
        }
        for operator in &of.operators {
            all.operators.push(Operator {
                name: format!("{}-{copy}", operator.name),
                nodes: operator.nodes.iter().map(|node| node + nodes).collect(),
                inputs: operator.inputs.iter().map(|input| input + operators).collect(),
                ..operator.clone()
            });
        }
    }
    all
}
