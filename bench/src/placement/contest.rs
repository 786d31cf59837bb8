//! `cost-aware` against `adaptive` on scenarios drawn by chance (`clusters`, `unseen`): the bar of the published experiment, on each
//! of them.

use super::{Figure, LATENCIES};
use crate::options::Options;
use crate::report::{Report, Table};
use crate::stats::median;
use comporta_sim::Scenario;

const SEEDS: u64 = 3;
const COUNT_QUICK: u64 = 2;
const THEIRS: &str = "adaptive(d=0.25)";
/// What a latency of ours may be at most, as a share of the other's.
pub(super) const RATIO_MAX: f64 = 1.02;
/// The share of the events that are processed without migrations that must be.
const PROCESSED_MIN: f64 = 0.995;

/// What scenarios are drawn from.
pub(super) struct Family {
    /// The name of the case, and the first word of its figures.
    pub(super) name: &'static str,
    /// How many a seed of the bench draws.
    pub(super) count: u64,
    /// The scenario of a number, under a strategy, with the chances of a seed.
    pub(super) draw: fn(u64, &str, u64) -> Scenario,
}

/// The medians of a scenario's seeds.
struct Medians {
    /// Ours by theirs, in the order of [`LATENCIES`].
    latencies: Vec<f64>,
    /// Ours by none.
    processed: f64,
    /// Ours and theirs.
    migrations: [f64; 2],
}

impl Medians {
    fn of(family: &Family, number: u64) -> Self {
        let mut ratios = vec![Vec::new(); LATENCIES.len()];
        let (mut processed, mut migrations) = (Vec::new(), [Vec::new(), Vec::new()]);
        for seed in 1..=SEEDS {
            let run = |strategy| {
                let scenario = (family.draw)(number, strategy, seed);
                comporta_sim::run(&scenario).expect("what is drawn is sound")
            };
            let (ours, theirs, none) = (run(super::settings::OURS), run(THEIRS), run("none"));
            for (ratio, figure) in ratios.iter_mut().zip(LATENCIES) {
                ratio.push(figure.of(&ours) / figure.of(&theirs));
            }
            processed.push(Figure::Processed.of(&ours) / Figure::Processed.of(&none));
            migrations[0].push(Figure::Migrations.of(&ours));
            migrations[1].push(Figure::Migrations.of(&theirs));
        }
        Medians {
            latencies: ratios.iter().map(|ratio| median(ratio)).collect(),
            processed: median(&processed),
            migrations: migrations.map(|all| median(&all)),
        }
    }

    fn hold(&self) -> bool {
        self.latencies.iter().all(|ratio| *ratio <= RATIO_MAX)
            && self.latencies.iter().filter(|ratio| **ratio < 1.0).count() >= 2
            && self.processed >= PROCESSED_MIN
    }
}

pub(super) fn run(family: &Family, options: &Options, report: &mut Report) {
    let Family { name, count, draw } = *family;
    println!("\n{name}: cost-aware against {THEIRS}, medians of {SEEDS} seeds");
    let mut table = Table::new(&[
        "scenario",
        "fast mean",
        "fast p99",
        "slow mean",
        "slow p99",
        "processed",
        "migrations",
        "verdict",
    ]);
    let (mut held, mut worst) = (0_u32, 0.0_f64);
    let first = options.seed.saturating_sub(1) * count;
    let count = if options.quick { COUNT_QUICK } else { count };
    for number in first..first + count {
        let medians = Medians::of(family, number);
        worst = medians.latencies.iter().copied().fold(worst, f64::max);
        held += u32::from(medians.hold());
        let mut row = vec![draw(number, "none", 1).name];
        row.extend(medians.latencies.iter().map(|ratio| format!("{ratio:.3}")));
        row.push(format!("{:.3}", medians.processed));
        row.push(format!("{:.0} / {:.0}", medians.migrations[0], medians.migrations[1]));
        row.push(if medians.hold() { "holds" } else { "MISS" }.to_owned());
        table.row(row);
    }
    table.print();
    report.figure(name, count as f64);
    report.figure(format!("{name}_vs_adaptive"), worst);
    report.figure(format!("{name}_held"), f64::from(held) / count as f64);
}
