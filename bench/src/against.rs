//! One build against another: the same bench of two binaries, in turn, pair by pair, so that a change
//! can be judged on a machine whose speed drifts. What is compared is every figure that the bench gives
//! of ours; what the peers did is left out.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::options::Options;
use crate::report::{Table, show_ratio};
use crate::stats::{Ratio, median};

/// The figures of one run, by name.
type Figures = BTreeMap<String, f64>;

/// Runs `bench` of this binary and of `other`, `options.rounds` times each, and prints the ratios.
///
/// # Errors
/// A binary that cannot be run, or that prints no JSON.
pub(crate) fn run(bench: &str, other: &Path, options: &Options) -> Result<(), String> {
    let this = std::env::current_exe().map_err(|error| format!("this binary: {error}"))?;
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for pair in 0..options.rounds {
        eprintln!("pair {} of {}", pair + 1, options.rounds);
        // Each goes first in every other pair.
        let mut runs = [(&*this, &mut ours), (other, &mut others)];
        if pair % 2 == 1 {
            runs.reverse();
        }
        for (binary, figures) in runs {
            figures.push(figures_of(binary, bench, options)?);
        }
    }
    print(&ours, &others, options);
    Ok(())
}

fn figures_of(binary: &Path, bench: &str, options: &Options) -> Result<Figures, String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", binary.display());
    let mut command = Command::new(binary);
    command.args([bench, "--quick", "--json", "--peers", &options.ours, "--threads"]);
    command.arg(options.threads.to_string());
    if let Some(case) = options.case() {
        command.args([OsStr::new("--case"), OsStr::new(case)]);
    }
    let output = command.stderr(Stdio::null()).output().map_err(|error| told(&error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let json: Value = serde_json::from_str(last).map_err(|error| told(&error))?;
    let mut figures = Figures::new();
    for (case, peers) in json["cases"].as_object().into_iter().flatten() {
        for (name, figure) in peers[&options.ours].as_object().into_iter().flatten() {
            if let Some(figure) = figure.as_f64() {
                figures.insert(format!("{case} {name}"), figure);
            }
        }
    }
    for (name, figure) in json.as_object().into_iter().flatten() {
        if let Some(figure) = figure.as_f64().filter(|_| name.ends_with("_median")) {
            figures.insert(name.clone(), figure);
        }
    }
    Ok(figures)
}

fn print(ours: &[Figures], others: &[Figures], options: &Options) {
    let mut table = Table::new(&["figure", "this", "other", "this / other"]);
    for name in ours.first().into_iter().flat_map(Figures::keys) {
        let of = |runs: &[Figures]| -> Option<Vec<f64>> {
            runs.iter().map(|figures| figures.get(name).copied()).collect()
        };
        let (Some(this), Some(other)) = (of(ours), of(others)) else { continue };
        let ratio = Ratio::paired(&this, &other, options.seed);
        if ratio.median.is_finite() {
            let figures = [median(&this), median(&other)].map(|figure| format!("{figure:.4}"));
            let [this, other] = figures;
            table.row([name.clone(), this, other, show_ratio(&ratio)]);
        }
    }
    table.print();
}
