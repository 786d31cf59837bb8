//! Loads drawn by chance: how often the threads go up after they went down, or down after they went up, once a
//! controller has settled: once the queue for which it first added threads has been worked off.

use super::program::{Accounts, Controller, Gaps, Load, Series, Takes, run as run_load};
use crate::options::Options;
use crate::report::{Report, Table};
use comporta::testing::Dice;
use std::time::Duration;

const LOADS: u64 = 20;
const LOADS_QUICK: u64 = 3;

pub(super) fn run(options: &Options, report: &mut Report) {
    println!(
        "\nreversals: loads drawn by chance, 300 s each; changes of threads as `second:threads`"
    );
    let mut table =
        Table::new(&["load", "in/s", "ms each", "busy threads", "policy", "reversals", "changes"]);
    let loads = if options.quick { LOADS_QUICK } else { LOADS };
    for (family, shifts) in [("reversals", false), ("reversals_shifting", true)] {
        for number in 0..loads {
            let drawn = Drawn::new(options.seed + number, shifts);
            for controller in [Controller::Elastic, Controller::Ds2] {
                let series = run_load(controller, &drawn.load);
                let reversals = reversals(&series);
                report.most(family, reversals as f64);
                report.most(&format!("{family}_{}", controller.name()), reversals as f64);
                table.row(row(number, &drawn, controller, &series));
            }
        }
    }
    table.print();
}

fn row(number: u64, drawn: &Drawn, controller: Controller, series: &Series) -> Vec<String> {
    let changes = series.changes();
    let changes = changes.iter().map(|(at, threads)| format!("{at}:{threads}"));
    let shown = |per_second: f64| format!("{per_second:.1}");
    let busy = |per_second: f64| format!("{:.2}", per_second * drawn.takes_ms / 1e3);
    let pair = |of: &dyn Fn(f64) -> String| match drawn.then {
        None => of(drawn.per_second),
        Some(then) => format!("{} > {}", of(drawn.per_second), of(then)),
    };
    vec![
        number.to_string(),
        pair(&shown),
        format!("{:.1}", drawn.takes_ms),
        pair(&busy),
        controller.name().into(),
        reversals(series).to_string(),
        changes.collect::<Vec<_>>().join(" "),
    ]
}

/// A load, and what it was drawn as.
struct Drawn {
    load: Load,
    per_second: f64,
    /// The rate after half of the time, if it changes then.
    then: Option<f64>,
    takes_ms: f64,
}

impl Drawn {
    /// Messages come by chance, 20 to 200 a second, of 10 to 4,141 accounts, and take a fixed or an exponential time, so that
    /// half a thread to 12 threads are busy. One that shifts goes on at another rate, drawn alike.
    fn new(seed: u64, shifts: bool) -> Self {
        let mut dice = Dice::new(seed);
        let per_second = 20.0 + 180.0 * dice.unit();
        let busy = 0.5 + 11.5 * dice.unit();
        let takes = Duration::from_secs_f64(busy / per_second);
        let gap = |per_second: f64| Duration::from_secs_f64(1.0 / per_second);
        let accounts = Accounts::AtRandom(10 + dice.below(4_132) as u32);
        let fixed = dice.below(2) == 0;
        let then = shifts.then(|| per_second * (0.5 + 11.5 * dice.unit()) / busy);
        let load = Load::every(Duration::from_millis(10));
        let half = Duration::from_secs(load.seconds / 2);
        let load = Load {
            gaps: match then {
                None => Gaps::Exponential(gap(per_second)),
                Some(then) => Gaps::Shifting(gap(per_second), gap(then), half),
            },
            accounts,
            takes: if fixed { Takes::Waiting(takes) } else { Takes::Exponential(takes) },
            seed,
            ..load
        };
        Drawn { load, per_second, then, takes_ms: takes.as_secs_f64() * 1e3 }
    }
}

/// Changes of direction after settling. What a controller does in the second in which it settles belongs to that.
fn reversals(series: &Series) -> usize {
    let changes = series.changes();
    let Some(settled) = settled(series) else { return 0 };
    let threads = |at: u64| match at {
        0 => 1,
        at => series.seconds[at as usize - 1].threads,
    };
    let ups: Vec<(u64, bool)> =
        changes.iter().map(|(at, now)| (*at, *now > threads(at - 1))).collect();
    let from = ups.iter().rposition(|(at, _)| *at <= settled).unwrap_or(0);
    ups[from..].windows(2).filter(|pair| pair[0].1 != pair[1].1).count()
}

/// The first second after threads were added in which less is queued than comes in half a second.
fn settled(series: &Series) -> Option<u64> {
    let (first, _) = series.changes().into_iter().find(|(_, threads)| *threads > 1)?;
    let arrived = |i: usize| series.seconds[i].arrived;
    let came = |i: usize| arrived(i) - i.checked_sub(1).map_or(0, arrived);
    let small = |i: &usize| (series.seconds[*i].queue as f64) < came(*i) as f64 / 2.0;
    (first as usize..series.seconds.len()).find(small).map(|i| i as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::super::program::Second;
    use super::*;

    /// Ten events a second come; of each second, what is queued and how many threads there are.
    fn series(seconds: &[(usize, usize)]) -> Series {
        let second = |(i, (queue, threads)): (usize, &(usize, usize))| Second {
            queue: *queue,
            threads: *threads,
            arrived: 10 * (i as u64 + 1),
            handled: 0,
        };
        Series {
            seconds: seconds.iter().enumerate().map(second).collect(),
            decisions: Vec::new(),
            wall: Duration::ZERO,
        }
    }

    #[test]
    fn changes_are_at_the_seconds_at_which_threads_change() {
        assert_eq!(series(&[(0, 1), (9, 1), (9, 4), (0, 3)]).changes(), [(3, 4), (4, 3)]);
        assert_eq!(series(&[(9, 2), (9, 2)]).changes(), [(1, 2)]);
    }

    #[test]
    fn a_removal_on_settling_is_no_reversal_and_what_follows_is() {
        let settles = [(50, 1), (90, 4), (40, 4), (2, 3)];
        assert_eq!(reversals(&series(&settles)), 0);
        let up = [(50, 1), (90, 4), (40, 4), (2, 3), (30, 3), (60, 5)];
        assert_eq!(reversals(&series(&up)), 1);
        let down_too = [up.as_slice(), &[(0, 5), (0, 2)]].concat();
        assert_eq!(reversals(&series(&down_too)), 2);
        assert_eq!(reversals(&series(&[(50, 1), (90, 1)])), 0, "it never settles");
    }
}
