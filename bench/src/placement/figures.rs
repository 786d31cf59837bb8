//! Tables beside what was published, and figures like the document's (4.14 and 4.15), in `target/placement`.

use super::settings::{OURS, SETTINGS, Setting};
use super::{Figure, Runs};
use crate::report::{Report, Table};
use comporta_sim::show::{self, Bars, Group};
use std::path::Path;

fn beside(figure: f64, published: Option<f64>, digits: usize) -> String {
    match published {
        Some(published) => format!("{figure:.digits$} ({published:.digits$})"),
        None => format!("{figure:.digits$}"),
    }
}

pub(super) fn tables(case: &str, runs: &Runs, seeds: usize, report: &mut Report) {
    println!("\n{case}: medians of {seeds} seeds, in ms (published, where it was)");
    let steady = case == "steady";
    let mut table = Table::new(&[
        "strategy",
        "fast mean",
        "fast p99",
        "slow mean",
        "slow p99",
        "migrations",
        "processed",
    ]);
    for setting in &SETTINGS {
        let published = |value: Option<f64>| if steady { None } else { value };
        let median = |figure| runs.median(setting.strategy, figure);
        let share = runs.ratio(setting.strategy, "none", Figure::Processed);
        table.row([
            setting.strategy.to_owned(),
            beside(median(Figure::FastMean), published(setting.fast.map(|fast| fast.0)), 1),
            beside(median(Figure::FastP99), published(setting.fast.map(|fast| fast.1)), 0),
            format!("{:.1}", median(Figure::SlowMean)),
            beside(median(Figure::SlowP99), published(setting.slow_p99), 0),
            beside(median(Figure::Migrations), published(setting.migrations), 0),
            beside(share, published(setting.processed), 4),
        ]);
        report.detail(
            case,
            setting.strategy,
            &[
                ("fast_mean_ms", median(Figure::FastMean)),
                ("fast_p99_ms", median(Figure::FastP99)),
                ("slow_mean_ms", median(Figure::SlowMean)),
                ("slow_p99_ms", median(Figure::SlowP99)),
                ("migrations", median(Figure::Migrations)),
                ("processed", median(Figure::Processed)),
            ],
        );
    }
    table.print();
}

/// Two figures of bars, and a timeline of the first seed of three strategies. What cannot be written is reported.
pub(super) fn pictures(case: &str, runs: &Runs) {
    let folder = Path::new("target/placement");
    let fast = |setting: &Setting, mean: bool| setting.fast.map(|f| if mean { f.0 } else { f.1 });
    let slow = |setting: &Setting, mean: bool| setting.slow_p99.filter(|_| !mean);
    let figures = [
        (
            "fast",
            "fast replica",
            Figure::FastP99,
            Figure::FastMean,
            &fast as &dyn Fn(&Setting, bool) -> Option<f64>,
        ),
        ("slow", "slow replica", Figure::SlowP99, Figure::SlowMean, &slow),
    ];
    let mut pictures = Vec::new();
    for (file, which, p99, mean, published) in figures {
        let groups = |figure: Figure, is_mean: bool| -> Vec<Group> {
            let group = |setting: &Setting| {
                let all = runs.figures(setting.strategy, figure);
                let least = all.iter().copied().fold(f64::INFINITY, f64::min);
                let most = all.iter().copied().fold(0.0, f64::max);
                Group {
                    name: setting.short.to_owned(),
                    ours: setting.strategy == OURS,
                    figure_ms: (runs.median(setting.strategy, figure), least, most),
                    published_ms: published(setting, is_mean),
                }
            };
            SETTINGS.iter().map(group).collect()
        };
        let bars = Bars {
            title: format!("Latency of the {which}, {case}"),
            about: "median of the seeds, whiskers from the least to the most; red: published"
                .to_owned(),
            panels: [
                ("p99".to_owned(), groups(p99, false)),
                ("mean".to_owned(), groups(mean, true)),
            ],
        };
        pictures.push((format!("{file}.svg"), show::bars(&bars)));
    }
    for (file, strategy) in [("none", "none"), ("adaptive", "adaptive(d=0.25)"), ("ours", OURS)] {
        if let Some(outcome) = runs.of(strategy).first() {
            pictures.push((format!("timeline-{file}.svg"), show::timeline(outcome)));
        }
    }
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        pictures.iter().try_for_each(|(file, svg)| std::fs::write(folder.join(file), svg))
    };
    match write() {
        Ok(()) => println!("\n{} figures in {}", pictures.len(), folder.display()),
        Err(error) => eprintln!("no figures: {}: {error}", folder.display()),
    }
}
