//! `saturation`: what too little of one resource does to latency: the five studies of the dissertation's section 3.1 in the
//! model with their published parameters, and four of them, shortened, on this machine.
//!
//! 1. `model`   the studies in virtual time
//! 2. `machine` CPU, memory bandwidth and disk for real
//! 3. `network` a link of 100 Kbit/s for real
//!
//! Beside each latency stands the utilisation that a scheduler by thresholds would look at. All of them show in
//! latency; no single utilisation shows them all.

mod model;
mod machine;
mod network;

use crate::options::Options;
use crate::report::{Report, Table};

pub(crate) const ABOUT: &str =
    "what too little of one resource does to latency, in the model and here";

/// What a study found of one scenario.
pub(super) struct Point {
    pub(super) study: &'static str,
    pub(super) setting: String,
    pub(super) mean_ms: f64,
    pub(super) p99_ms: f64,
    /// Shares of CPU, memory, disk and network that were used; `None` where it was not measured.
    pub(super) used: [Option<f64>; 4],
}

const RESOURCES: [&str; 4] = ["CPU", "memory", "disk", "network"];
/// A share above which a threshold would have been crossed.
const THRESHOLD: f64 = 0.75;

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("saturation", options, &[]);
    if options.case() == Some(network::INSIDE) {
        network::run_inside(machine::duration(options));
        return report;
    }
    if options.takes_case("model") {
        println!("In the model, with the published parameters");
        show("model", &model::points(options), &mut report);
    }
    if options.takes_case("machine") {
        println!("\nOn this machine, shortened");
        let mut points = machine::points(options);
        match network::points(options) {
            Ok(network) => points.extend(network),
            Err(error) => println!("No network study, which needs a network namespace: {error}"),
        }
        show("machine", &points, &mut report);
        println!("Not here: memory, which needs a machine of one gigabyte with a swap area.");
    }
    report.close();
    report
}

fn show(case: &str, points: &[Point], report: &mut Report) {
    let mut table = Table::new(&[
        "study",
        "setting",
        "mean ms",
        "p99 ms",
        "CPU",
        "memory",
        "disk",
        "network",
        "would be seen by",
    ]);
    for point in points {
        let share = |used: Option<f64>| {
            used.map_or("-".to_owned(), |used| format!("{:.0} %", used * 100.0))
        };
        // The base of a study is its first point.
        let base = points.iter().find(|other| other.study == point.study);
        let worse = base.is_some_and(|base| point.mean_ms > 1.5 * base.mean_ms);
        let crossed: Vec<&str> = RESOURCES
            .iter()
            .zip(point.used)
            .filter(|(_, used)| used.is_some_and(|used| used > THRESHOLD))
            .map(|(name, _)| *name)
            .collect();
        let seen = match (worse, crossed.is_empty()) {
            (true, true) => "latency alone".to_owned(),
            (true, false) => format!("latency, {}", crossed.join(", ")),
            (false, true) => "nothing to see".to_owned(),
            (false, false) => format!("{} alone", crossed.join(", ")),
        };
        let [cpu, memory, disk, network] = point.used.map(share);
        table.row([
            point.study.to_owned(),
            point.setting.clone(),
            format!("{:.2}", point.mean_ms),
            format!("{:.2}", point.p99_ms),
            cpu,
            memory,
            disk,
            network,
            seen,
        ]);
        let name = format!("{} {}", point.study, point.setting);
        report.detail(case, &name, &[("mean_ms", point.mean_ms), ("p99_ms", point.p99_ms)]);
    }
    table.print();
}
