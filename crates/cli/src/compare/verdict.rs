//! What the runs of one load say: rows from best to worst, and which of them can be told from the
//! best. Pure.
//!
//! A combination is known by the medians of its rounds. Two rows are held against each
//! other round by round, since they ran within moments of each other, so that it does not matter if
//! the machine grows slower. The best has the best median, unless another is surely better in
//! that way. A row is worse if the interval of the
//! median of these ratios, at 95 %, lies on the worse side, and a tie if it does not, or if there
//! are too few rounds to know. One that failed in any round comes last: nobody would choose it.
//! Long because half of it is tests of rankings, which read best beside them.

use comporta_stats::{median, sure_interval};

use super::child::Numbers;
use super::runs::Load;

/// A difference below this is less than what another version of anything on the machine makes.
const WORTH: f64 = 0.02;
/// Where medians are as near as that, but their intervals go further than this, nothing is known.
const SURELY_NEAR: f64 = 0.05;
/// Ties named in a sentence; the rest is counted.
const TIES_NAMED: usize = 3;
/// Rounds below which nothing is known at 95 %.
pub(super) const ROUNDS_MIN: usize = 6;

/// What rows are ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum By {
    #[default]
    Throughput,
    Input,
    Mean,
    P99,
    Cpu,
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
    pub(super) fn word(self) -> &'static str {
        match self {
            By::Throughput => "throughput",
            By::Input => "input",
            By::Mean => "mean",
            By::P99 => "p99",
            By::Cpu => "cpu",
        }
    }

    fn of(self, numbers: &Numbers) -> f64 {
        match self {
            By::Throughput => numbers.events_per_s,
            By::Input => numbers.input_per_s(),
            By::Mean => numbers.mean_s,
            By::P99 => numbers.p99_s,
            By::Cpu => numbers.cpu_per_event_s(),
        }
    }

    /// The events a second that are shown with it.
    pub(super) fn rate(self, numbers: &Numbers) -> f64 {
        if self == By::Input { numbers.input_per_s() } else { numbers.events_per_s }
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
    /// It cannot be told from the best.
    Tie(Versus),
    Worse(Versus),
    /// It failed in a round, or was not run.
    Failed,
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
    /// Where the median of the rate lies; its whole range if there are too few rounds.
    pub(super) per_s: (f64, f64),
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
                _ if versus.is_sure(by, false) => Standing::Worse(versus),
                _ => Standing::Tie(versus),
            };
        }
        Ranking { load, rows }
    }

    pub(super) fn best(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.standing == Standing::Best)
    }

    /// What it comes to, in a sentence or two; `name` is what a combination is called.
    pub(super) fn sentence(&self, name: impl Fn(usize) -> String) -> String {
        let Some(best) = self.best() else {
            return "Nothing came through every round: there is no best.".to_owned();
        };
        let quoted = |row: &Row| format!("`{}`", name(row.combination));
        let best_name = quoted(best);
        let others = self.rows.iter().filter(|row| row.standing != Standing::Failed).skip(1);
        let ties: Vec<&Row> =
            others.clone().filter(|row| matches!(row.standing, Standing::Tie(_))).collect();
        let next = others.clone().find_map(|row| match row.standing {
            Standing::Worse(versus) => Some((row, versus)),
            _ => None,
        });
        if others.clone().next().is_none() {
            return format!("Only {best_name} came through every round: there is nothing to tell.");
        }
        if best.runs < ROUNDS_MIN {
            return format!(
                "{best_name} is ahead, but {} cannot prove it: give `--rounds {ROUNDS_MIN}` or more.",
                crate::counted(best.runs, "round")
            );
        }
        let all = others.filter_map(|row| row.standing.versus());
        let spread = all.clone().map(|versus| off(versus.ratio)).fold(0.0, f64::max);
        let ends = all.filter_map(|versus| versus.interval).flat_map(|(low, high)| [low, high]);
        if spread < WORTH && ends.map(off).fold(0.0, f64::max) < SURELY_NEAR {
            let within = percent(spread);
            return format!(
                "{best_name} is ahead, but all lie within {within}: the choice hardly matters here."
            );
        }
        match (ties.as_slice(), next) {
            ([], Some((row, versus))) => {
                let worth = if off(versus.ratio) < WORTH { ": hardly worth a change" } else { "" };
                let next = quoted(row);
                format!("{best_name} is the best; the next, {next}, has {}{worth}.", versus.told())
            }
            ([tie], _) => format!(
                "{best_name} is ahead, but {} cannot be told from it: take either, or give more rounds.",
                quoted(tie)
            ),
            (_, None) => format!(
                "{best_name} is ahead, but none can be told from it: take any, or give more rounds."
            ),
            (ties, _) => {
                let mut names: Vec<String> =
                    ties.iter().take(TIES_NAMED).map(|row| quoted(row)).collect();
                if let Some(more) = ties.len().checked_sub(TIES_NAMED).filter(|more| *more > 0) {
                    names.push(crate::counted(more, "other"));
                }
                format!(
                    "{best_name} is ahead, but {} cannot be told from it: take any of them, or give more rounds.",
                    listed(&names)
                )
            }
        }
    }
}

impl Standing {
    fn versus(self) -> Option<Versus> {
        match self {
            Standing::Best | Standing::Failed => None,
            Standing::Tie(versus) | Standing::Worse(versus) => Some(versus),
        }
    }
}

impl Versus {
    /// Whether it is surely better, or surely worse.
    fn is_sure(self, by: By, better: bool) -> bool {
        let above = by.more_is_better() == better;
        self.interval.is_some_and(|(low, high)| if above { low > 1.0 } else { high < 1.0 })
    }

    /// `12 % less (9 % to 15 %)`, `2.3 times as much (2.1 to 2.6)`.
    fn told(self) -> String {
        let of = |ratio: f64| if self.ratio >= 2.0 { times(ratio) } else { percent(off(ratio)) };
        let what = match self.ratio {
            ratio if ratio >= 2.0 => "times as much",
            ratio if ratio >= 1.0 => "more",
            _ => "less",
        };
        let interval = self.interval.map(|(low, high)| {
            let (a, b) = if self.ratio < 1.0 { (high, low) } else { (low, high) };
            format!(" ({} to {})", of(a), of(b))
        });
        format!("{} {what}{}", of(self.ratio), interval.unwrap_or_default())
    }

    /// `-12 % (-15 to -9)`.
    pub(super) fn short(self) -> String {
        let signed = |ratio: f64| {
            let text = format!("{:+.*}", places(off(ratio)), (ratio - 1.0) * 100.0);
            if text.trim_start_matches(['+', '-', '0', '.']).is_empty() {
                "0".to_owned()
            } else {
                text
            }
        };
        if self.ratio >= 2.0 {
            let (low, high) = self.interval.unwrap_or((self.ratio, self.ratio));
            return format!("x {} ({} to {})", times(self.ratio), times(low), times(high));
        }
        let interval =
            self.interval.map(|(low, high)| format!(" ({} to {})", signed(low), signed(high)));
        format!("{} %{}", signed(self.ratio), interval.unwrap_or_default())
    }
}

/// How far a ratio is from 1.
fn off(ratio: f64) -> f64 {
    (ratio - 1.0).abs()
}

fn places(share: f64) -> usize {
    usize::from(share < 0.099_5)
}

fn percent(share: f64) -> String {
    format!("{:.*} %", places(share), share * 100.0)
}

fn times(ratio: f64) -> String {
    format!("{ratio:.*}", usize::from(ratio < 9.95))
}

/// `a`, `b` and `c`.
fn listed(names: &[String]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        names => names.join(", "),
    }
}

fn row(by: By, combination: usize, runs: &[Run]) -> Row {
    let of = runs.iter().filter(|run| run.combination == combination);
    let good: Vec<&Numbers> = of.clone().filter_map(|run| run.end.as_ref().ok()).collect();
    let failed: Vec<String> = of.clone().filter_map(|run| run.end.clone().err()).collect();
    let per_s: Vec<f64> = good.iter().map(|numbers| by.rate(numbers)).collect();
    let range = || {
        let least = per_s.iter().copied().fold(f64::INFINITY, f64::min);
        (least, per_s.iter().copied().fold(0.0, f64::max))
    };
    Row {
        combination,
        standing: Standing::Failed,
        medians: medians(&good),
        per_s: sure_interval(&per_s).unwrap_or_else(range),
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

    fn ranking(by: By, runs: &[Run]) -> Ranking {
        let mut combinations: Vec<usize> = runs.iter().map(|run| run.combination).collect();
        combinations.dedup();
        Ranking::of(Load::Max, by, &combinations, runs)
    }

    fn sentence(runs: &[Run]) -> String {
        ranking(By::Throughput, runs).sentence(|at| ["a", "b", "c"][at].to_owned())
    }

    const A: &[f64] = &[1000.0, 1010.0, 990.0, 1005.0, 995.0, 1000.0];

    #[test]
    fn rows_are_ranked_and_what_every_round_agrees_on_is_told_from_the_best() {
        let b = A.map_by(|n| n * 0.8);
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
        assert_eq!(versus.short(), "-20 % (-20 to -20)");
    }

    trait MapBy {
        fn map_by(&self, f: impl Fn(f64) -> f64) -> Vec<f64>;
    }
    impl MapBy for [f64] {
        fn map_by(&self, f: impl Fn(f64) -> f64) -> Vec<f64> {
            self.iter().map(|n| f(*n)).collect()
        }
    }

    #[test]
    fn where_less_is_better_the_least_comes_first() {
        let runs = runs(&[A, &A.map_by(|n| n * 2.5)]);
        for by in [By::Mean, By::P99, By::Cpu] {
            let ranking = ranking(by, &runs);
            assert_eq!(ranking.rows[0].combination, 1, "{by:?}");
            let Standing::Worse(versus) = ranking.rows[1].standing else { panic!("{ranking:?}") };
            assert_eq!(versus.short(), "x 2.5 (2.5 to 2.5)");
            assert_eq!(versus.told(), "2.5 times as much (2.5 to 2.5)");
        }
    }

    #[test]
    fn one_that_failed_once_comes_last_and_never_wins() {
        let mut runs = runs(&[A, &A.map_by(|n| n * 3.0)]);
        runs[8].end = Err("the disk is full".to_owned());
        let ranking = ranking(By::Throughput, &runs);
        assert_eq!(ranking.rows[0].combination, 0);
        assert_eq!(ranking.rows[1].standing, Standing::Failed);
        assert_eq!((ranking.rows[1].runs, ranking.rows[1].failed.len()), (6, 1));
        assert!(ranking.rows[1].medians.is_some(), "what is known of it is shown");
        assert_eq!(sentence(&runs), "Only `a` came through every round: there is nothing to tell.");
        runs.iter_mut().for_each(|run| run.end = Err("gone".to_owned()));
        assert_eq!(sentence(&runs), "Nothing came through every round: there is no best.");
        assert!(self::ranking(By::Throughput, &runs).best().is_none());
    }

    #[test]
    fn a_sentence_says_who_is_best_and_whether_that_is_worth_anything() {
        let say = |factors: &[f64]| {
            let figures: Vec<Vec<f64>> = factors.iter().map(|f| A.map_by(|n| n * f)).collect();
            let figures: Vec<&[f64]> = figures.iter().map(Vec::as_slice).collect();
            sentence(&runs(&figures))
        };
        assert_eq!(
            say(&[1.0, 0.875, 0.5]),
            "`a` is the best; the next, `b`, has 12 % less (12 % to 12 %)."
        );
        assert_eq!(
            say(&[0.99, 0.5, 1.0]),
            "`c` is the best; the next, `a`, has 1.0 % less (1.0 % to 1.0 %): hardly worth a change."
        );
        assert_eq!(
            say(&[1.0, 0.99, 0.985]),
            "`a` is ahead, but all lie within 1.5 %: the choice hardly matters here."
        );
        let even = [1020.0, 980.0, 1015.0, 960.0, 990.0, 985.0];
        assert_eq!(
            sentence(&runs(&[A, &even, &A.map_by(|n| n * 0.7)])),
            "`a` is ahead, but `b` cannot be told from it: take either, or give more rounds."
        );
        assert_eq!(
            sentence(&runs(&[A, &even, &even.map(|n| n * 0.99)])),
            "`a` is ahead, but none can be told from it: take any, or give more rounds."
        );
        let many: Vec<Vec<f64>> =
            (0..6).map(|n| even.map(|even| even - f64::from(n)).to_vec()).collect();
        let last = A.map_by(|n| n * 0.5);
        let figures: Vec<&[f64]> =
            [A].into_iter().chain(many.iter().map(Vec::as_slice)).chain([&*last]).collect();
        let told = ranking(By::Throughput, &runs(&figures)).sentence(|at| at.to_string());
        assert_eq!(
            told,
            "`0` is ahead, but `1`, `2`, `3` and 3 others cannot be told from it: take any of them, or give more rounds."
        );
        let few = [&A[..2], &[500.0, 500.0]];
        assert_eq!(
            sentence(&runs(&few)),
            "`a` is ahead, but 2 rounds cannot prove it: give `--rounds 6` or more."
        );
    }

    #[test]
    fn five_rounds_are_too_few_and_of_nine_one_may_be_an_outlier() {
        let b = A.map_by(|n| n * 0.5);
        let five = ranking(By::Throughput, &runs(&[&A[..5], &b[..5]]));
        assert!(matches!(five.rows[1].standing, Standing::Tie(Versus { interval: None, .. })));
        let nine = |odd: f64| {
            let a = [1000.0; 9];
            let mut b = [900.0; 9];
            b[4] = odd;
            ranking(By::Throughput, &runs(&[&a, &b])).rows[1].standing
        };
        assert!(matches!(nine(5000.0), Standing::Worse(_)));
    }

    #[test]
    fn shares_have_a_digit_behind_the_point_only_where_it_counts() {
        let short = |ratio, low, high| Versus { ratio, interval: Some((low, high)) }.short();
        assert_eq!(short(0.88, 0.85, 0.912), "-12 % (-15 to -8.8)");
        assert_eq!(short(0.997, 0.96, 1.012), "-0.3 % (-4.0 to +1.2)");
        assert_eq!(short(1.0, 1.0, 1.1), "0 % (0 to +10)");
        assert_eq!(Versus { ratio: 1.25, interval: None }.short(), "+25 %");
        assert_eq!(Versus { ratio: 1.25, interval: None }.told(), "25 % more");
    }
}
