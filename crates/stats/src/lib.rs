//! Medians, paired ratios and their confidence intervals: pure functions of samples and a seed.
//! Ratios are taken within a round (ours and the peer ran moments apart), then summarised over
//! the rounds. Used by `comporta-bench` and by the command `compare`.
//!
//! There are two intervals of a median. [`Ratio`] has a percentile bootstrap, deterministic by its
//! seed, for the 15 rounds and more of a benchmark; for 6 to 10 rounds it would be too narrow (for 7 it
//! covers 87.5 % instead of 95 %). [`sure_interval`] uses ranks: it is valid for any number of rounds, and
//! returns `None` if there are too few.

/// Resamples of the bootstrap: the 2.5 % tails then rest on 100 values each.
const RESAMPLES: usize = 4000;
const CONFIDENCE: f64 = 0.95;

/// SplitMix64: small, seeded, and good enough for shuffles and resampling.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Creates a generator; the same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// Returns a random number.
    #[expect(clippy::should_implement_trait, reason = "it has no end, so it is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number in `0..bound`; the bias of the remainder is below 2^-50 for the sizes used here.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Shuffles the items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Returns the `q`-quantile, interpolated between neighbours, or NaN if there are no samples.
#[must_use]
pub fn quantile(samples: &[f64], q: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, q)
}

/// Returns the median, or NaN if there are no samples.
#[must_use]
pub fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = q * last as f64;
    let below = place.floor() as usize;
    let above = place.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// The ratio of ours to a peer, round by round.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// The ratio of each round.
    pub rounds: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// The low end of the 95 % interval of the median.
    pub low: f64,
    /// The high end.
    pub high: f64,
}

impl Ratio {
    /// Pairs the samples of the same round. Both slices hold one value per round.
    ///
    /// # Panics
    /// Panics if their lengths differ.
    #[must_use]
    pub fn paired(ours: &[f64], peer: &[f64], seed: u64) -> Ratio {
        assert_eq!(ours.len(), peer.len(), "every peer runs once in every round");
        let rounds: Vec<f64> = ours.iter().zip(peer).map(|(our, peer)| our / peer).collect();
        let (low, high) = interval_of_median(&rounds, seed);
        Ratio { median: median(&rounds), low, high, rounds }
    }
}

/// A percentile-bootstrap confidence interval of the median.
fn interval_of_median(samples: &[f64], seed: u64) -> (f64, f64) {
    if samples.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    let mut dice = Dice::new(seed);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let resample: Vec<f64> =
                samples.iter().map(|_| samples[dice.below(samples.len())]).collect();
            median(&resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    (quantile_of_sorted(&medians, tail), quantile_of_sorted(&medians, 1.0 - tail))
}

/// Returns an interval that contains the median of the distribution with a confidence of at least 95 %, whatever
/// the distribution: from the k-th smallest sample to the k-th largest. Returns `None` for fewer than 6 samples.
///
/// ```
/// use comporta_stats::sure_interval;
///
/// assert_eq!(sure_interval(&[4.0, 2.0, 6.0, 1.0, 5.0]), None);
/// assert_eq!(sure_interval(&[4.0, 2.0, 6.0, 1.0, 5.0, 3.0]), Some((1.0, 6.0)));
/// // Of nine, one may be far off on either side.
/// assert_eq!(sure_interval(&[9.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 4.0, 0.1]), Some((2.0, 4.0)));
/// ```
#[must_use]
pub fn sure_interval(samples: &[f64]) -> Option<(f64, f64)> {
    // The chance that at most `below` of n fall below the median, by a fair coin for each.
    let n = samples.len();
    let (mut ways, mut chance) = (0.5_f64.powi(i32::try_from(n).ok()?), 0.0);
    let mut rank = 0;
    for below in 0..n {
        chance += ways;
        if chance > (1.0 - CONFIDENCE) / 2.0 {
            break;
        }
        rank = below + 1;
        ways *= (n - below) as f64 / (below + 1) as f64;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    (rank > 0).then(|| (sorted[rank - 1], sorted[n - rank]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn quantiles_interpolate_and_end_at_the_extremes() {
        let samples = [10.0, 0.0, 20.0, 30.0, 40.0];
        assert_eq!(quantile(&samples, 0.0), 0.0);
        assert_eq!(quantile(&samples, 1.0), 40.0);
        assert_eq!(quantile(&samples, 0.1), 4.0);
    }

    #[test]
    fn ratio_pairs_rounds_so_shared_noise_cancels() {
        // The machine is ten times slower in the second round; ours is twice the peer in each.
        let ratio = Ratio::paired(&[200.0, 20.0, 180.0], &[100.0, 10.0, 90.0], 1);
        assert_eq!((ratio.median, ratio.low, ratio.high), (2.0, 2.0, 2.0));
    }

    #[test]
    fn interval_encloses_the_median_and_stays_within_the_samples() {
        let samples: Vec<f64> = (1..=15).map(f64::from).collect();
        let (low, high) = interval_of_median(&samples, 7);
        assert!(low <= 8.0 && 8.0 <= high);
        assert!(low >= 1.0 && high <= 15.0);
        assert!(low > 1.0 && high < 15.0, "15 rounds say more than their range");
    }

    #[test]
    fn interval_narrows_with_more_rounds() {
        let wide = |n: usize| {
            let mut dice = Dice::new(3);
            let samples: Vec<f64> = (0..n).map(|_| dice.below(1000) as f64).collect();
            let (low, high) = interval_of_median(&samples, 5);
            high - low
        };
        assert!(wide(400) < wide(12));
    }

    #[test]
    fn same_seed_gives_the_same_interval() {
        let samples: Vec<f64> = (0..9).map(f64::from).collect();
        assert_eq!(interval_of_median(&samples, 42), interval_of_median(&samples, 42));
    }

    #[test]
    fn the_ranks_of_a_sure_interval_are_those_of_the_sign_test() {
        let rank = |n: u32| {
            let samples: Vec<f64> = (1..=n).map(f64::from).collect();
            sure_interval(&samples).map_or(0, |(low, _)| low as u32)
        };
        // From tables of the sign test, two-sided, 5 %.
        let table = [(5, 0), (6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (15, 4), (17, 5), (20, 6)];
        for (n, expected) in table {
            assert_eq!(rank(n), expected, "{n}");
        }
        assert_eq!((sure_interval(&[]), sure_interval(&[1.0])), (None, None));
    }

    #[test]
    fn shuffle_keeps_every_item() {
        let mut items: Vec<usize> = (0..20).collect();
        Dice::new(9).shuffle(&mut items);
        assert_ne!(items, (0..20).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..20).collect::<Vec<_>>());
    }
}
