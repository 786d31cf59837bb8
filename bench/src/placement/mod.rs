//! `placement`: the dissertation's experiment in virtual time, full length: 13 sources, 13 workers of two
//! replicas on six nodes, 13 sinks, 600 s, under each strategy.
//!
//! 1. `settings`   what is run: strategies and what was published of them
//! 2. `figures`    tables and SVG figures beside the published ones
//! 3. `contest`    ours against theirs on scenarios drawn by chance: `clusters`, and `unseen`, a wider family
//! 4. `model`      the simulator itself: closed formulas, speed
//! 5. `reality`    one node of it against Comporta
//!
//! Runs of one seed are paired: all strategies are offered the same events. Nothing is timed but the simulator
//! (`events_per_s`), so the figures of a seed are the same on every machine. `--rounds` is the number of seeds
//! (default 5; 30, as published, take six times as long). What an event costs is fixed in
//! `comporta_sim::published` before anything is run, and varied in the table of sensitivity.

mod settings;
mod figures;
mod contest;
mod clusters;
mod unseen;
mod model;
mod reality;

use crate::options::Options;
use crate::report::{Bar, Limit, Report, Table};
use crate::stats::median;
use comporta_sim::published::{self, Reading, Workload};
use comporta_sim::{Latency, Outcome};
use contest::Family;
use settings::{SETTINGS, Setting};
use std::collections::BTreeMap;

pub(crate) const ABOUT: &str = "adaptive placement: the published experiment in virtual time";

const BARS: &[Bar] = &[
    Bar {
        name: "adaptive_mean_cut",
        limit: Limit::AtLeast(0.7),
        about: "fast replica, best d, the worse reading: the share of the mean latency without migrations that is saved",
    },
    Bar { name: "adaptive_p99_cut", limit: Limit::AtLeast(0.6), about: "the same of p99" },
    Bar {
        name: "slow_p99_vs_random",
        limit: Limit::AtMost(0.85),
        about: "slow replica, the same d: p99 against the random strategy's",
    },
    Bar { name: "migrations_vs_random", limit: Limit::AtMost(0.5), about: "the same: migrations" },
    Bar {
        name: "ours_vs_adaptive",
        limit: Limit::AtMost(1.02),
        about: "cost-aware against adaptive at its best d: the worst of mean and p99, fast and slow, both readings",
    },
    Bar {
        name: "ours_better_in",
        limit: Limit::AtLeast(2.0),
        about: "of these four, those in which it is better (the worse reading)",
    },
    Bar {
        name: "ours_processed",
        limit: Limit::AtLeast(0.995),
        about: "events processed, against no migrations",
    },
    Bar {
        name: "clusters_vs_adaptive",
        limit: Limit::AtMost(contest::RATIO_MAX),
        about: "clusters drawn by chance: the worst of mean and p99, fast and slow, on any of them",
    },
    Bar {
        name: "clusters_held",
        limit: Limit::AtLeast(1.0),
        about: "the share of them on which that holds, two of the four are better, and no events are lost",
    },
    Bar {
        name: "unseen_held",
        limit: Limit::AtLeast(0.9),
        about: "programs drawn by chance from a wider family: the share of them on which the same holds",
    },
    Bar {
        name: "mm1_error",
        limit: Limit::AtMost(0.02),
        about: "sim: the worst error against M/M/1, M/M/4 and M/D/1 at loads of 0.5, 0.8 and 0.95",
    },
    Bar {
        name: "comporta_error",
        limit: Limit::AtMost(0.1),
        about: "sim: the mean of three stages against Comporta itself, loads of 0.5 and 0.8",
    },
    Bar {
        name: "events_per_s",
        limit: Limit::AtLeast(1e6),
        about: "sim: things that happen a second, on one core, six nodes",
    },
    Bar {
        name: "cost_1000_vs_6",
        limit: Limit::AtMost(3.0),
        about: "sim: time per thing that happens, 1,000 nodes against 6",
    },
];

const CLUSTERS: Family =
    Family { name: "clusters", count: clusters::COUNT, draw: clusters::cluster };
const UNSEEN: Family = Family { name: "unseen", count: unseen::COUNT, draw: unseen::program };

const SEEDS: usize = 5;
const SEEDS_QUICK: usize = 2;
/// Seconds of a quick run: two periods, the second of which overloads a node.
const DURATION_QUICK_S: f64 = 120.0;

/// The outcomes of a workload: by strategy, one for each seed.
pub(super) struct Runs(BTreeMap<&'static str, Vec<Outcome>>);

impl Runs {
    pub(super) fn of(&self, setting: &str) -> &[Outcome] {
        self.0.get(setting).map_or(&[], Vec::as_slice)
    }

    /// The figures of a strategy, in the order of seeds.
    pub(super) fn figures(&self, setting: &str, figure: Figure) -> Vec<f64> {
        self.of(setting).iter().map(|outcome| figure.of(outcome)).collect()
    }

    pub(super) fn median(&self, setting: &str, figure: Figure) -> f64 {
        median(&self.figures(setting, figure))
    }

    /// The median over the seeds of one strategy's figure by another's.
    pub(super) fn ratio(&self, ours: &str, theirs: &str, figure: Figure) -> f64 {
        let pairs = self.figures(ours, figure).into_iter().zip(self.figures(theirs, figure));
        median(&pairs.map(|(a, b)| a / b).collect::<Vec<f64>>())
    }
}

#[derive(Clone, Copy)]
pub(super) enum Figure {
    FastMean,
    FastP99,
    SlowMean,
    SlowP99,
    Migrations,
    Processed,
}

/// What is judged of a strategy: fast and slow, mean and p99.
pub(super) const LATENCIES: [Figure; 4] =
    [Figure::FastMean, Figure::FastP99, Figure::SlowMean, Figure::SlowP99];

impl Figure {
    pub(super) fn of(self, outcome: &Outcome) -> f64 {
        let Outcome { fast, slow, .. } = outcome;
        let mean = |latency: &Latency| latency.mean_ms;
        match self {
            Figure::FastMean => mean(fast),
            Figure::FastP99 => fast.p99_ms,
            Figure::SlowMean => mean(slow),
            Figure::SlowP99 => slow.p99_ms,
            Figure::Migrations => outcome.migrations.len() as f64,
            Figure::Processed => outcome.processed as f64,
        }
    }
}

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("placement", options, BARS);
    let seeds = match (options.rounds_said, options.quick) {
        (Some(rounds), _) => rounds,
        (None, true) => SEEDS_QUICK,
        (None, false) => SEEDS,
    };
    println!(
        "seeds: {seeds}; an event costs {:.3} ms",
        published::cost(published::HOTTEST_WANTS) * 1e3
    );
    report.figure("seeds", seeds as f64);
    report.figure("cost_ms", published::cost(published::HOTTEST_WANTS) * 1e3);
    let mut readings = Vec::new();
    for reading in Reading::ALL {
        let name = match reading {
            Reading::HighFirst => "varied, worker 13 high first",
            Reading::LowFirst => "varied, worker 13 low first",
        };
        if options.takes_case(name) {
            let workload = Workload::Varied(reading);
            let runs = run_all(options, workload, seeds, published::HOTTEST_WANTS, &SETTINGS);
            figures::tables(name, &runs, seeds, &mut report);
            readings.push((name, runs));
        }
    }
    if options.takes_case("steady") {
        let runs = run_all(options, Workload::Steady, seeds, published::HOTTEST_WANTS, &SETTINGS);
        figures::tables("steady", &runs, seeds, &mut report);
    }
    if let Some((name, runs)) = readings.first() {
        figures::pictures(name, runs);
    }
    judge_published(&readings, &mut report);
    judge_ours(&readings, &mut report);
    if options.takes_case("sensitivity") {
        sensitivity(options, seeds.min(SEEDS));
    }
    if options.takes_case("clusters") {
        contest::run(&CLUSTERS, options, &mut report);
    }
    if options.takes_case("unseen") {
        contest::run(&UNSEEN, options, &mut report);
    }
    if options.takes_case("model") {
        model::check(options, &mut report);
    }
    if options.takes_case("reality") {
        reality::check(options, &mut report);
    }
    report.close();
    report
}

fn run_all(
    options: &Options,
    workload: Workload,
    seeds: usize,
    hottest: f64,
    settings: &'static [Setting],
) -> Runs {
    let mut runs = Runs(BTreeMap::new());
    for setting in settings {
        for seed in 1..=seeds as u64 {
            eprint!("\r{:<28} seed {seed} of {seeds}   ", setting.strategy);
            let cost = published::cost(hottest);
            let seed = options.seed * 1000 + seed;
            let mut scenario = published::experiment(workload, setting.strategy.into(), seed, cost);
            if options.quick {
                scenario.duration = DURATION_QUICK_S;
            }
            let outcome = comporta_sim::run(&scenario).expect("the published experiment is sound");
            runs.0.entry(setting.strategy).or_default().push(outcome);
        }
    }
    eprint!("\r{:60}\r", "");
    runs
}

/// The setting of `adaptive` with one migration a round whose fast mean is least: the "best d".
fn best(runs: &Runs) -> &'static str {
    let limited = SETTINGS.iter().filter(|setting| setting.is_limited_adaptive());
    let mean = |setting: &&Setting| runs.median(setting.strategy, Figure::FastMean);
    let best = limited.min_by(|a, b| mean(a).total_cmp(&mean(b)));
    best.map_or("", |setting| setting.strategy)
}

/// The best `adaptive` of each reading against the others; of each figure, the worse of the two counts.
fn judge_published(readings: &[(&str, Runs)], report: &mut Report) {
    if readings.is_empty() {
        return;
    }
    let bests: Vec<&str> = readings.iter().map(|(_, runs)| best(runs)).collect();
    report.text("best_d", &bests.join("; "));
    for (name, figure) in published_figures(readings) {
        report.figure(name, figure);
    }
}

fn published_figures(readings: &[(&str, Runs)]) -> [(&'static str, f64); 4] {
    let worst = |against: &str, figure| {
        let ratios = readings.iter().map(|(_, runs)| runs.ratio(best(runs), against, figure));
        ratios.fold(0.0_f64, f64::max)
    };
    [
        ("adaptive_mean_cut", 1.0 - worst("none", Figure::FastMean)),
        ("adaptive_p99_cut", 1.0 - worst("none", Figure::FastP99)),
        ("slow_p99_vs_random", worst("random", Figure::SlowP99)),
        ("migrations_vs_random", worst("random", Figure::Migrations)),
    ]
}

/// Ours against the best `adaptive` of each reading; the worse of the two counts.
fn judge_ours(readings: &[(&str, Runs)], report: &mut Report) {
    let (mut worst, mut better, mut processed) = (0.0_f64, LATENCIES.len(), f64::INFINITY);
    for (_, runs) in readings {
        let ratios = LATENCIES.map(|figure| runs.ratio(settings::OURS, best(runs), figure));
        worst = ratios.iter().copied().fold(worst, f64::max);
        better = better.min(ratios.iter().filter(|ratio| **ratio < 1.0).count());
        processed = processed.min(runs.ratio(settings::OURS, "none", Figure::Processed));
    }
    if !readings.is_empty() {
        report.figure("ours_vs_adaptive", worst);
        report.figure("ours_better_in", better as f64);
        report.figure("ours_processed", processed);
    }
}

/// What an event costs is not published: how much depends on it.
fn sensitivity(options: &Options, seeds: usize) {
    println!("\nSensitivity: the share of its capacity that the hottest node wants (1.3 above)");
    let mut table = Table::new(&[
        "hottest",
        "strategy",
        "fast mean ms",
        "p99 ms",
        "slow mean ms",
        "p99 ms",
        "migrations",
    ]);
    for hottest in [0.9, 1.1, 1.3, 1.5, 1.7] {
        let workload = Workload::Varied(Reading::HighFirst);
        let runs = run_all(options, workload, seeds.min(3), hottest, &settings::FEW);
        for setting in &settings::FEW {
            let latencies = LATENCIES.map(|figure| runs.median(setting.strategy, figure));
            let cells = latencies.map(|value| format!("{value:.1}"));
            let migrations = format!("{:.0}", runs.median(setting.strategy, Figure::Migrations));
            let mut row = vec![format!("{hottest:.1}"), setting.strategy.to_owned()];
            row.extend(cells);
            row.push(migrations);
            table.row(row);
        }
    }
    table.print();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What came of a strategy whose fast and slow latencies, mean and p99, were all this long.
    fn outcome(latency_ms: f64) -> Outcome {
        let latency = Latency { mean_ms: latency_ms, p99_ms: latency_ms, ..Latency::default() };
        Outcome {
            scenario: String::new(),
            strategy: String::new(),
            seed: 1,
            duration_s: 1.0,
            nodes: Vec::new(),
            offered: 1,
            processed: 1,
            failed: 0,
            fast: latency,
            slow: latency,
            total: latency,
            migrations: Vec::new(),
            node_changes: Vec::new(),
            node_seconds: 1.0,
            rounds: 1,
            moments: Vec::new(),
            events: 1,
        }
    }

    /// A reading in which `adaptive` takes this long at its best, and `none` and `random` take 100 ms.
    fn reading(best_ms: f64) -> Runs {
        let latency = |setting: &Setting| match setting.strategy {
            "none" | "random" => 100.0,
            "adaptive(d=0.5)" => best_ms,
            _ => 99.0,
        };
        let runs = SETTINGS.iter().map(|one| (one.strategy, vec![outcome(latency(one))]));
        Runs(runs.collect())
    }

    #[test]
    fn of_both_readings_the_worse_counts_whichever_is_first() {
        for readings in [[10.0, 40.0], [40.0, 10.0]] {
            let readings = readings.map(|ms| ("", reading(ms)));
            let figures: BTreeMap<&str, f64> = published_figures(&readings).into_iter().collect();
            assert!((figures["adaptive_mean_cut"] - 0.6).abs() < 1e-9, "{figures:?}");
            assert!((figures["adaptive_p99_cut"] - 0.6).abs() < 1e-9, "{figures:?}");
            assert!((figures["slow_p99_vs_random"] - 0.4).abs() < 1e-9, "{figures:?}");
        }
    }
}
