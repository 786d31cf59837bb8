//! What the runs of one load say: rows from best to worst, and which of them can be told from the
//! best. Pure. `told` puts it into words.
//!
//! A combination is known by the medians of its rounds. Two rows are held against each
//! other round by round, since they ran within moments of each other, so that it does not matter if
//! the machine grows slower. The best has the best median, unless another is surely better in
//! that way. A row is worse if the interval of the
//! median of these ratios, at 95 %, lies on the worse side, and a tie if it does not. Where there are
//! too few rounds to know, nothing is proven. A combination that failed in any round comes last.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use comporta_stats::{median, sure_interval};

use super::child::Numbers;
use super::runs::Load;

/// Rounds below which nothing is known at 95 %.
pub(super) const ROUNDS_MIN: usize = 6;

/// What rows are ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum By {
    #[default]
    Throughput,
    Input,
    Mean,
    P99,
    Cpu,
}

impl ValueEnum for By {
    fn value_variants<'a>() -> &'a [Self] {
        &[By::Throughput, By::Input, By::Mean, By::P99, By::Cpu]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.word()))
    }
}

impl By {
    pub(super) fn name(self) -> &'static str {
        match self {
            By::Throughput => "throughput",
            By::Input => "events taken in",
            By::Mean => "mean time in the program",
            By::P99 => "99th percentile of the time in the program",
            By::Cpu => "processor time per event",
        }
    }

    /// As on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            By::Throughput => "throughput",
            By::Input => "input",
            By::Mean => "mean",
            By::P99 => "p99",
            By::Cpu => "cpu",
        }
    }

    pub(super) fn of(self, numbers: &Numbers) -> f64 {
        match self {
            By::Throughput => numbers.events_per_s,
            By::Input => numbers.input_per_s(),
            By::Mean => numbers.mean_s,
            By::P99 => numbers.p99_s,
            By::Cpu => numbers.cpu_per_event_s(),
        }
    }

    /// Whether it is a time, in seconds, and not events per second.
    pub(super) fn is_time(self) -> bool {
        !self.more_is_better()
    }

    fn more_is_better(self) -> bool {
        matches!(self, By::Throughput | By::Input)
    }

    /// Whether the first is better than the second; what is not known is worse than all.
    fn better(self, a: f64, b: f64) -> std::cmp::Ordering {
        let known = a.is_nan().cmp(&b.is_nan());
        let order = if self.more_is_better() { b.total_cmp(&a) } else { a.total_cmp(&b) };
        known.then(order)
    }
}

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) combination: usize,
    pub(super) round: usize,
    pub(super) end: Result<Numbers, String>,
}

/// How a row stands against the best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Standing {
    Best,
    /// There are too few rounds to know.
    NotProven(Versus),
    /// It cannot be told from the best.
    Tie(Versus),
    Worse(Versus),
    /// It failed in a round, or was not run.
    Failed,
}

impl Standing {
    /// As table, chart and JSON call it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Standing::Best => "best",
            Standing::NotProven(_) => "not proven",
            Standing::Tie(_) => "tie",
            Standing::Worse(_) => "worse",
            Standing::Failed => "failed",
        }
    }

    /// Whether it may be as good as the best.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Standing::NotProven(_) | Standing::Tie(_))
    }

    /// Against the best, if it can be held against it.
    pub(super) fn versus(self) -> Option<Versus> {
        match self {
            Standing::NotProven(versus) | Standing::Tie(versus) | Standing::Worse(versus) => {
                Some(versus)
            }
            Standing::Best | Standing::Failed => None,
        }
    }
}

/// A row's figure as a share of the best one's, and its interval if there are rounds enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Versus {
    pub(super) ratio: f64,
    pub(super) interval: Option<(f64, f64)>,
}

/// A combination, over all of its rounds.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) combination: usize,
    pub(super) standing: Standing,
    /// Medians, figure by figure; nothing if no round succeeded.
    pub(super) medians: Option<Numbers>,
    /// Where the median of the figure lies that is compared; its whole range if there are too few rounds.
    pub(super) interval: (f64, f64),
    pub(super) runs: usize,
    /// Why rounds failed.
    pub(super) failed: Vec<String>,
}

/// All rows of one load, from best to worst.
#[derive(Clone, Debug)]
pub(super) struct Ranking {
    pub(super) load: Load,
    pub(super) rows: Vec<Row>,
}

impl Ranking {
    /// The rows of these combinations, which share a load.
    pub(super) fn of(load: Load, by: By, combinations: &[usize], runs: &[Run]) -> Self {
        let mut rows: Vec<Row> = combinations.iter().map(|at| row(by, *at, runs)).collect();
        let figure = |row: &Row| row.medians.as_ref().map_or(f64::NAN, |numbers| by.of(numbers));
        let sound = |row: &Row| row.failed.is_empty() && !figure(row).is_nan();
        rows.sort_by(|a, b| sound(b).cmp(&sound(a)).then_with(|| by.better(figure(a), figure(b))));
        let count = rows.iter().filter(|row| sound(row)).count();
        let against = |row: &Row, best: &Row| versus(by, row.combination, best.combination, runs);
        // It may go round, since it is no order: as often as there are rows is often enough.
        for _ in 1..count {
            let better = (1..count).find(|at| against(&rows[*at], &rows[0]).is_sure(by, true));
            let Some(at) = better else { break };
            rows[..=at].rotate_right(1);
        }
        for at in 0..count {
            let versus = against(&rows[at], &rows[0]);
            rows[at].standing = match at {
                0 => Standing::Best,
                _ if versus.interval.is_none() => Standing::NotProven(versus),
                _ if versus.is_sure(by, false) => Standing::Worse(versus),
                _ => Standing::Tie(versus),
            };
        }
        Ranking { load, rows }
    }

    pub(super) fn best(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.standing == Standing::Best)
    }
}

impl Versus {
    /// Whether it is surely better, or surely worse.
    fn is_sure(self, by: By, better: bool) -> bool {
        let above = by.more_is_better() == better;
        self.interval.is_some_and(|(low, high)| if above { low > 1.0 } else { high < 1.0 })
    }
}

fn row(by: By, combination: usize, runs: &[Run]) -> Row {
    let of = runs.iter().filter(|run| run.combination == combination);
    let good: Vec<&Numbers> = of.clone().filter_map(|run| run.end.as_ref().ok()).collect();
    let failed: Vec<String> = of.clone().filter_map(|run| run.end.clone().err()).collect();
    let figures = good.iter().map(|numbers| by.of(numbers));
    let figures: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
    let range = || {
        let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
        (least, figures.iter().copied().fold(0.0, f64::max))
    };
    Row {
        combination,
        standing: Standing::Failed,
        medians: medians(&good),
        interval: sure_interval(&figures).unwrap_or_else(range),
        runs: of.count(),
        failed,
    }
}

/// The median of each figure.
fn medians(of: &[&Numbers]) -> Option<Numbers> {
    let figure = |figure: fn(&Numbers) -> f64| {
        let all: Vec<f64> = of.iter().map(|numbers| figure(numbers)).collect();
        median(&all)
    };
    let cpu: Option<Vec<f64>> = of.iter().map(|numbers| numbers.cpu_s).collect();
    (!of.is_empty()).then(|| Numbers {
        elapsed_s: figure(|n| n.elapsed_s),
        events_in: figure(|n| n.events_in as f64) as u64,
        events_out: figure(|n| n.events_out as f64) as u64,
        events_per_s: figure(|n| n.events_per_s),
        mean_s: figure(|n| n.mean_s),
        deviation_s: figure(|n| n.deviation_s),
        p50_s: figure(|n| n.p50_s),
        p90_s: figure(|n| n.p90_s),
        p99_s: figure(|n| n.p99_s),
        max_s: figure(|n| n.max_s),
        shed: figure(|n| n.shed as f64) as u64,
        cpu_s: cpu.map(|all| median(&all)),
    })
}

/// Round by round, in those in which both came through.
fn versus(by: By, row: usize, best: usize, runs: &[Run]) -> Versus {
    let of = |combination: usize, round: usize| {
        let run = runs.iter().find(|run| run.combination == combination && run.round == round);
        run.and_then(|run| run.end.as_ref().ok()).map(|numbers| by.of(numbers))
    };
    let rounds = runs.iter().filter(|run| run.combination == row).map(|run| run.round);
    let ratios: Vec<f64> = rounds
        .filter_map(|round| Some(of(row, round)? / of(best, round)?))
        .filter(|ratio| ratio.is_finite())
        .collect();
    Versus { ratio: median(&ratios), interval: sure_interval(&ratios) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A run of so many events a second, with times in the program to match.
    pub(in super::super) fn run(combination: usize, round: usize, per_s: f64) -> Run {
        let numbers = Numbers {
            elapsed_s: 2.0,
            events_in: 10_000,
            events_out: 10_000,
            events_per_s: per_s,
            mean_s: 1.0 / per_s,
            deviation_s: 0.5 / per_s,
            p50_s: 0.9 / per_s,
            p90_s: 2.0 / per_s,
            p99_s: 5.0 / per_s,
            max_s: 9.0 / per_s,
            shed: 0,
            cpu_s: Some(1e4 / per_s),
        };
        Run { combination, round, end: Ok(numbers) }
    }

    /// The same machine for all, slower from round to round.
    pub(in super::super) fn runs(figures: &[&[f64]]) -> Vec<Run> {
        let of = |(combination, rounds): (usize, &&[f64])| {
            let run = move |(round, per_s): (usize, &f64)| {
                run(combination, round, *per_s / (1.0 + round as f64))
            };
            rounds.iter().enumerate().map(run).collect::<Vec<_>>()
        };
        figures.iter().enumerate().flat_map(of).collect()
    }

    pub(in super::super) fn ranking(by: By, runs: &[Run]) -> Ranking {
        let mut combinations: Vec<usize> = runs.iter().map(|run| run.combination).collect();
        combinations.dedup();
        Ranking::of(Load::Max, by, &combinations, runs)
    }

    pub(in super::super) const A: &[f64] = &[1000.0, 1010.0, 990.0, 1005.0, 995.0, 1000.0];

    /// `A`, so many times as fast.
    pub(in super::super) fn times(factor: f64) -> Vec<f64> {
        A.iter().map(|n| n * factor).collect()
    }

    #[test]
    fn rows_are_ranked_and_what_every_round_agrees_on_is_told_from_the_best() {
        let b = times(0.8);
        let c = [1020.0, 980.0, 1015.0, 960.0, 990.0, 985.0];
        let runs = runs(&[&b, A, &c]);
        let ranking = ranking(By::Throughput, &runs);
        let order: Vec<usize> = ranking.rows.iter().map(|row| row.combination).collect();
        assert_eq!(order[2], 0);
        assert_eq!(ranking.rows[0].standing, Standing::Best);
        assert!(matches!(ranking.rows[1].standing, Standing::Tie(_)), "{ranking:?}");
        let Standing::Worse(versus) = ranking.rows[2].standing else { panic!("{ranking:?}") };
        let best = order[0];
        assert_eq!(best, 1);
        assert!((versus.ratio - 0.8).abs() < 1e-9, "the drift of the machine cancels: {versus:?}");
    }

    #[test]
    fn where_less_is_better_the_least_comes_first() {
        let runs = runs(&[A, &times(2.5)]);
        for by in [By::Mean, By::P99, By::Cpu] {
            let ranking = ranking(by, &runs);
            assert_eq!(ranking.rows[0].combination, 1, "{by:?}");
            let Standing::Worse(versus) = ranking.rows[1].standing else { panic!("{ranking:?}") };
            assert!((versus.ratio - 2.5).abs() < 1e-9, "{versus:?}");
        }
    }

    #[test]
    fn one_that_failed_once_comes_last_and_never_wins() {
        let mut runs = runs(&[A, &times(3.0)]);
        runs[8].end = Err("the disk is full".to_owned());
        let ranking = ranking(By::Throughput, &runs);
        assert_eq!(ranking.rows[0].combination, 0);
        assert_eq!(ranking.rows[1].standing, Standing::Failed);
        assert_eq!((ranking.rows[1].runs, ranking.rows[1].failed.len()), (6, 1));
        assert!(ranking.rows[1].medians.is_some(), "what is known of it is shown");
        runs.iter_mut().for_each(|run| run.end = Err("gone".to_owned()));
        assert!(self::ranking(By::Throughput, &runs).best().is_none());
    }

    #[test]
    fn five_rounds_are_too_few_and_of_nine_one_may_be_an_outlier() {
        let b = times(0.5);
        let five = ranking(By::Throughput, &runs(&[&A[..5], &b[..5]]));
        assert!(matches!(five.rows[1].standing, Standing::NotProven(_)));
        let nine = |odd: f64| {
            let a = [1000.0; 9];
            let mut b = [900.0; 9];
            b[4] = odd;
            ranking(By::Throughput, &runs(&[&a, &b])).rows[1].standing
        };
        assert!(matches!(nine(5000.0), Standing::Worse(_)));
    }
}
