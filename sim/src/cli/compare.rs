//! Strategies on the same events: each seed is run under all of them, and each is set against the first by
//! the median of the ratios.

use comporta_sim::{Outcome, Scenario, show};
use comporta_stats::{median, sure_interval};

use super::{Failure, simulate};

/// A figure and how it is called.
type Figure = (&'static str, fn(&Outcome) -> f64);

const FIGURES: [Figure; 5] = [
    ("fast mean", |outcome| outcome.fast.mean_ms),
    ("fast p99", |outcome| outcome.fast.p99_ms),
    ("slow mean", |outcome| outcome.slow.mean_ms),
    ("slow p99", |outcome| outcome.slow.p99_ms),
    ("processed", |outcome| outcome.processed as f64),
];

pub(super) fn compare(
    scenario: &Scenario,
    strategies: &[String],
    seeds: u64,
) -> Result<String, Failure> {
    let mut all: Vec<Vec<Outcome>> = Vec::new();
    for strategy in strategies {
        let outcomes = (0..seeds).map(|seed| {
            let seed = scenario.seed + seed;
            let strategy = strategy.as_str().into();
            simulate(&Scenario { seed, strategy, ..scenario.clone() }, false)
        });
        all.push(outcomes.collect::<Result<_, _>>()?);
    }
    let mut text = show::summary(&all.concat());
    let (first, others) = all.split_first().expect("at least one strategy was asked for");
    for (outcomes, strategy) in others.iter().zip(&strategies[1..]) {
        text += &format!("\n{strategy} against {}, medians of {seeds} seeds:\n", strategies[0]);
        for (name, figure) in FIGURES {
            let pairs = outcomes.iter().zip(first);
            let ratios = pairs.map(|(a, b)| figure(a) / figure(b));
            let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
            if ratios.is_empty() {
                text += &format!("  {name:<10} -\n"); // nothing was measured
                continue;
            }
            let interval = sure_interval(&ratios)
                .map_or(String::new(), |(low, high)| format!("  [{low:.3} .. {high:.3}]"));
            text += &format!("  {name:<10} {:.3}{interval}\n", median(&ratios));
        }
    }
    Ok(text)
}
