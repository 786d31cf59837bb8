//! The dissertation's experiment (section 4.2 to 4.4, appendix A): 13 sources, 13 workers of two replicas
//! on six nodes, 13 sinks, 600 seconds.
//!
//! What it does not say is fixed here beforehand:
//! - **The cost of an event.** The hottest node (virtual machine 6, in the periods 2 and 7: 2,900 events a second by the tables, and it has four
//!   cores) wants 1.3 of its capacity: 1.793 ms an event. All six together then want 0.82 and 0.67 of theirs in those
//!   two periods, 0.75 on average, and 0.58 over the whole run. It is always the same, as a busy loop is.
//! - **The ramp.** Rates change gradually, says the text: here within 10 s.
//! - **Arrivals** are Poisson; events have 200 bytes.
//! - **Workers have no state** (section 5.2) and use all cores of a node, because one core could not do 600 events a second at that cost.
//!
//! The table of worker 13 is damaged: its first and its last period are one high and one low, and which is which cannot
//! be read. Both readings can be run.

use comporta_placement::Choice;

use crate::rates::Rates;
use crate::scenario::{Node, Operator, Scenario};

/// Tables A.2 to A.13 for the workers 1 to 12: `A` for alta, high, and `B` for baixa, low.
const TABLES: [&str; 12] = [
    "AABBAAABBB",
    "ABBBAAAABB",
    "BABABBBAAA",
    "ABBABABAAB",
    "ABBBABBBAB",
    "AAABABABBB",
    "BAABBAAAAB",
    "AABABBBBBB",
    "BAAABBBBAA",
    "BABBBBABBA",
    "BBAABBBBAB",
    "BAABABAAAA",
];
/// Table 4.4: the workers on the virtual machines 6 to 11; the second replica of each is where it stands second.
const WORKERS: [&[usize]; 6] = [
    &[1, 7, 13, 6, 12],
    &[2, 8, 1, 7, 13],
    &[3, 9, 2, 8],
    &[4, 10, 3, 9],
    &[5, 11, 4, 10],
    &[6, 12, 5, 11],
];
/// Seconds of a period of the tables.
const PERIOD_S: f64 = 60.0;
/// Seconds that a change of rate takes.
const RAMP_S: f64 = 10.0;
/// What high is above low, in events a second.
const HIGH: f64 = 500.0;
/// Events a second on the hottest node, by the tables.
const HOTTEST: f64 = 2900.0;
/// Cores of a worker's node.
const CORES: usize = 4;

/// The two ways to read the table of worker 13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// High first, low last.
    HighFirst,
    /// Low first, high last.
    LowFirst,
}

impl Reading {
    /// Both.
    pub const ALL: [Reading; 2] = [Reading::HighFirst, Reading::LowFirst];

    fn table(self) -> &'static str {
        match self {
            Reading::HighFirst => "AABBBBABBB",
            Reading::LowFirst => "BABBBBABBA",
        }
    }
}

/// The rates of the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// 50 or 100 events a second (table A.1).
    Steady,
    /// Between that and 500 more, by the tables.
    Varied(Reading),
}

/// Core-seconds that an event takes, so that the hottest node wants this share of its capacity.
#[must_use]
pub fn cost(hottest: f64) -> f64 {
    hottest * CORES as f64 / HOTTEST
}

/// The share of its capacity that the hottest node wants, unless another is given.
pub const HOTTEST_WANTS: f64 = 1.3;

fn rates(worker: usize, workload: Workload) -> Rates {
    let low = if worker % 2 == 1 { 100.0 } else { 50.0 };
    let Workload::Varied(reading) = workload else { return Rates::steady(low) };
    let table = TABLES.get(worker - 1).copied().unwrap_or(reading.table());
    let level = |letter| if letter == 'A' { low + HIGH } else { low };
    let levels: Vec<f64> = table.chars().map(level).collect();
    Rates::levels(&levels, PERIOD_S, RAMP_S)
}

/// The experiment, with events of this cost.
#[must_use]
pub fn experiment(workload: Workload, strategy: Choice, seed: u64, cost: f64) -> Scenario {
    let mut nodes: Vec<Node> = (2..=11).map(|machine| Node::new(format!("vm{machine}"))).collect();
    for ends in &mut nodes[..4] {
        (ends.cores, ends.memory, ends.reserved) = (8, 4e9, true);
    }
    // Machines 2 and 3 have the sources 1 to 6 and 7 to 13, machines 4 and 5 the sinks.
    let end = |worker: usize, first: usize| first + usize::from(worker > 6);
    let mut operators: Vec<Operator> = Vec::new();
    for worker in 1..=13 {
        let rates = rates(worker, workload);
        operators.push(Operator::source(format!("source{worker}"), end(worker, 0), rates));
    }
    for worker in 1..=13 {
        let there = |(at, workers): (usize, &&[usize])| workers.contains(&worker).then_some(at + 4);
        let places: Vec<usize> = WORKERS.iter().enumerate().filter_map(there).collect();
        let operator = Operator::new(format!("worker{worker}"), places, vec![worker - 1]);
        operators.push(Operator { cost, ..operator });
    }
    for worker in 1..=13 {
        let inputs = vec![13 + worker - 1];
        operators.push(Operator::new(format!("sink{worker}"), vec![end(worker, 2)], inputs));
    }
    Scenario { nodes, operators, strategy, seed, ..Scenario::new("published") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events a second on each worker node in each period, after its ramp.
    fn wanted(reading: Reading) -> Vec<Vec<f64>> {
        let rate = |worker, period: usize| {
            rates(worker, Workload::Varied(reading)).at((period as f64 + 0.9) * PERIOD_S)
        };
        let node = |workers: &[usize], period| workers.iter().map(|&w| rate(w, period)).sum();
        (0..10).map(|period| WORKERS.iter().map(|w| node(w, period)).collect()).collect()
    }

    #[test]
    fn the_hottest_node_wants_13_and_all_together_075_of_what_they_have() {
        for reading in Reading::ALL {
            let wanted = wanted(reading);
            let hottest = wanted.iter().flatten().copied().fold(0.0, f64::max);
            assert_eq!(hottest, HOTTEST, "{reading:?}");
            let per_s = CORES as f64 / cost(HOTTEST_WANTS);
            assert!((hottest / per_s - 1.3).abs() < 1e-12);
            let all = |period: usize| wanted[period].iter().sum::<f64>() / 6.0 / per_s;
            assert_eq!(wanted[1][0], HOTTEST);
            assert_eq!(wanted[6][0], HOTTEST);
            assert!(((all(1) + all(6)) / 2.0 - 0.75).abs() < 0.005, "{} {}", all(1), all(6));
        }
    }

    #[test]
    fn every_table_has_ten_periods_and_every_worker_two_replicas_apart() {
        for table in TABLES.iter().chain(&[Reading::HighFirst.table(), Reading::LowFirst.table()]) {
            assert_eq!(table.len(), 10);
        }
        let scenario = experiment(Workload::Steady, Choice::new("none"), 1, cost(1.3));
        assert_eq!(scenario.check(), []);
        let workers: Vec<_> =
            scenario.operators.iter().filter(|op| op.name.starts_with("worker")).collect();
        assert!(workers.len() == 13 && workers.iter().all(|worker| worker.nodes.len() == 2));
        // Table 4.4, first row: machine 6 has the workers 1, 7, 13, 6 and 12.
        let on_6: Vec<&str> =
            workers.iter().filter(|w| w.nodes.contains(&4)).map(|w| w.name.as_str()).collect();
        assert_eq!(on_6, ["worker1", "worker6", "worker7", "worker12", "worker13"]);
    }

    #[test]
    fn rates_go_from_50_or_100_to_550_or_600() {
        let varied = Workload::Varied(Reading::HighFirst);
        assert_eq!((rates(1, varied).at(30.0), rates(1, varied).at(150.0)), (600.0, 100.0));
        assert_eq!((rates(2, varied).at(30.0), rates(2, varied).at(100.0)), (550.0, 50.0));
        assert_eq!(
            (rates(1, Workload::Steady).at(9.0), rates(2, Workload::Steady).at(9.0)),
            (100.0, 50.0)
        );
    }
}
