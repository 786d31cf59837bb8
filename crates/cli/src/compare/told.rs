//! A ranking in words: which row is ahead, whether that is certain, and whether it matters. Pure. Before: `verdict`.

use super::verdict::{ROUNDS_MIN, Ranking, Row, Standing, Versus};
use crate::counted;

/// A difference below this is less than what another version of anything on the machine makes.
const WORTH: f64 = 0.02;
/// Where medians are as near as that, but their intervals go further than this, nothing is known.
const SURELY_NEAR: f64 = 0.05;
/// Ties named in a sentence; the rest is counted.
const TIES_NAMED: usize = 3;

impl Ranking {
    /// What it comes to, in a sentence or two; `name` is what a combination is called.
    pub(super) fn sentence(&self, name: impl Fn(usize) -> String) -> String {
        let Some(best) = self.best() else {
            return "Nothing came through every round: there is no best.".to_owned();
        };
        let quoted = |row: &Row| format!("`{}`", name(row.combination));
        let best_name = quoted(best);
        let others = self.rows.iter().filter(|row| row.standing != Standing::Failed).skip(1);
        let ties: Vec<&Row> = others.clone().filter(|row| row.standing.is_open()).collect();
        let next = others.clone().find_map(|row| match row.standing {
            Standing::Worse(versus) => Some((row, versus)),
            _ => None,
        });
        if self.rows.len() == 1 {
            return format!("{best_name} alone was compared: there is nothing to compare it with.");
        }
        if others.clone().next().is_none() {
            return format!("Only {best_name} came through every round: there is nothing to tell.");
        }
        if best.runs < ROUNDS_MIN {
            return format!(
                "{best_name} is ahead, but {} cannot prove it: give `--rounds {ROUNDS_MIN}` or more.",
                counted(best.runs, "round")
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
                    names.push(counted(more, "other"));
                }
                format!(
                    "{best_name} is ahead, but {} cannot be told from it: take any of them, or give more rounds.",
                    listed(&names)
                )
            }
        }
    }
}

impl Versus {
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

#[cfg(test)]
mod tests {
    use super::super::verdict::tests::{A, ranking, runs, times};
    use super::super::verdict::{By, Run};
    use super::*;

    fn sentence(runs: &[Run]) -> String {
        ranking(By::Throughput, runs).sentence(|at| ["a", "b", "c"][at].to_owned())
    }

    #[test]
    fn a_sentence_says_who_is_best_and_whether_that_is_worth_anything() {
        let say = |factors: &[f64]| {
            let figures: Vec<Vec<f64>> = factors.iter().map(|f| times(*f)).collect();
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
            sentence(&runs(&[A, &even, &times(0.7)])),
            "`a` is ahead, but `b` cannot be told from it: take either, or give more rounds."
        );
        assert_eq!(
            sentence(&runs(&[A, &even, &even.map(|n| n * 0.99)])),
            "`a` is ahead, but none can be told from it: take any, or give more rounds."
        );
        let many: Vec<Vec<f64>> =
            (0..6).map(|n| even.map(|even| even - f64::from(n)).to_vec()).collect();
        let last = times(0.5);
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
    fn what_did_not_come_through_is_told() {
        let mut runs = runs(&[A, &times(3.0)]);
        runs[8].end = Err("the disk is full".to_owned());
        assert_eq!(sentence(&runs), "Only `a` came through every round: there is nothing to tell.");
        assert_eq!(
            sentence(&runs[..6]),
            "`a` alone was compared: there is nothing to compare it with."
        );
        runs.iter_mut().for_each(|run| run.end = Err("gone".to_owned()));
        assert_eq!(sentence(&runs), "Nothing came through every round: there is no best.");
    }

    #[test]
    fn shares_have_a_digit_behind_the_point_only_where_it_counts() {
        let short = |ratio, low, high| Versus { ratio, interval: Some((low, high)) }.short();
        assert_eq!(short(0.88, 0.85, 0.912), "-12 % (-15 to -8.8)");
        assert_eq!(short(0.997, 0.96, 1.012), "-0.3 % (-4.0 to +1.2)");
        assert_eq!(short(1.0, 1.0, 1.1), "0 % (0 to +10)");
        assert_eq!(Versus { ratio: 1.25, interval: None }.short(), "+25 %");
        assert_eq!(Versus { ratio: 1.25, interval: None }.told(), "25 % more");
        let twice = Versus { ratio: 2.5, interval: Some((2.0, 3.0)) };
        assert_eq!(twice.short(), "x 2.5 (2.0 to 3.0)");
        assert_eq!(twice.told(), "2.5 times as much (2.0 to 3.0)");
    }
}
