//! What a step of the load does to the queueing delay, and how long until it is back.
//!
//! The delay is the mean of those who were begun in a bin. The level before is the median of the
//! bins of the last half of the time before the step. A bin is back when its delay is within twice
//! the level, either way: a controller that has shut almost everybody out has a short queue as
//! well, and an idle worker. How long until it is not over twice the level is noted beside
//! (`under`). The delay is back with the first such bin after which nine tenths of `STAYS` bins are,
//! for a bin or two that the machine spent elsewhere says nothing of a controller. A bin in which
//! nobody was begun is neither.

use super::run::Handled;
use crate::stats::median;
use std::time::Duration;

/// Bins that say whether it stays.
pub(crate) const STAYS: usize = 20;
const TIMES: f64 = 2.0;

/// How long until it was back, with the level before; `None` if it was not within the time watched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Recovery {
    pub(crate) bins: Option<usize>,
    /// Until it was not over, only.
    pub(crate) under: Option<usize>,
    pub(crate) level_ns: f64,
    /// The greatest delay of a bin after the step.
    pub(crate) peak_ns: f64,
}

pub(crate) fn recovery(
    handled: &[Handled],
    bin: Duration,
    before: Duration,
    after: Duration,
) -> Recovery {
    let bins = |span: Duration| (span.as_nanos() / bin.as_nanos()) as usize;
    let (step, end) = (bins(before), bins(before + after));
    let mut sums = vec![(0.0, 0u32); end];
    for one in handled {
        if let Some((sum, n)) = sums.get_mut((one.began / bin.as_nanos() as u64) as usize) {
            *sum += one.began.saturating_sub(one.due) as f64;
            *n += 1;
        }
    }
    let delays: Vec<Option<f64>> =
        sums.iter().map(|&(sum, n)| (n > 0).then(|| sum / f64::from(n))).collect();
    let level = median(&delays[step / 2..step].iter().flatten().copied().collect::<Vec<_>>());
    let after = &delays[step..];
    let under = |delay: f64| delay <= level * TIMES;
    let peak_ns = after.iter().flatten().copied().fold(0.0, f64::max);
    Recovery {
        bins: first_to_stay(after, |delay| under(delay) && delay * TIMES >= level),
        under: first_to_stay(after, under),
        level_ns: level,
        peak_ns,
    }
}

/// How many bins have passed when the first one has from which on it holds.
fn first_to_stay(delays: &[Option<f64>], holds: impl Fn(f64) -> bool) -> Option<usize> {
    let held: Vec<bool> = delays.iter().map(|delay| delay.is_some_and(&holds)).collect();
    let mut runs = held.windows(STAYS);
    let stays = |run: &[bool]| run[0] && run.iter().filter(|held| **held).count() * 10 >= STAYS * 9;
    runs.position(stays).map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// One event a bin, with these delays.
    fn series(delays: &[u64]) -> Vec<Handled> {
        let at = |(bin, delay): (usize, &u64)| {
            let began = bin as u64 * 1_000_000 + 500_000;
            Handled { due: began - delay, began, ended: began, service: 0 }
        };
        delays.iter().enumerate().filter(|(_, delay)| **delay > 0).map(at).collect()
    }

    fn recovered(after: &[u64]) -> Option<usize> {
        let delays = [&[100; 10], after].concat();
        let found = recovery(&series(&delays), MS, MS * 10, MS * after.len() as u32);
        assert_eq!(found.level_ns, 100.0);
        found.bins
    }

    #[test]
    fn a_delay_that_never_left_is_back_with_the_first_bin() {
        assert_eq!(recovered(&[200; 20]), Some(1));
    }

    #[test]
    fn it_is_back_when_it_stays_and_not_before() {
        let short = [&[900, 150, 900, 900, 900][..], &[150; 20]].concat();
        assert_eq!(recovered(&short), Some(6));
        let hiccups = [&[900, 150, 150, 900, 150][..], &[150; 20]].concat();
        assert_eq!(recovered(&hiccups), Some(2));
        assert_eq!(recovered(&[900; 40]), None);
        assert_eq!(recovered(&[150; 19]), None, "too short to know");
    }

    #[test]
    fn a_queue_that_is_short_because_nobody_is_let_in_is_not_back() {
        let delays = [&[100; 10], &[20; 25][..], &[60; 20]].concat();
        let found = recovery(&series(&delays), MS, MS * 10, MS * 45);
        assert_eq!((found.bins, found.under), (Some(26), Some(1)));
    }

    #[test]
    fn a_time_in_which_nobody_was_served_is_not_back() {
        let starved = [&[0; 12][..], &[150; 20]].concat();
        // Two bins of twenty may be missing.
        assert_eq!(recovered(&starved), Some(13));
    }
}
