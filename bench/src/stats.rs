//! Medians, paired ratios and their confidence intervals: pure functions of samples and a seed.
//! Ratios are taken within a round (ours and the peer ran moments apart), then summarised over
//! the rounds; the interval is a percentile bootstrap of the median, deterministic by its seed.

/// Resamples of the bootstrap: the 2.5 % tails then rest on 100 values each.
const RESAMPLES: usize = 4000;
const CONFIDENCE: f64 = 0.95;

/// SplitMix64: small, seeded, and good enough for shuffles and resampling.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`; the bias of the remainder is below 2^-50 for the sizes used here.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// The `q`-quantile, interpolated between neighbours. NaN of nothing.
pub(crate) fn quantile(samples: &[f64], q: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, q)
}

pub(crate) fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = q * last as f64;
    let below = place.floor() as usize;
    let above = place.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// Ours over a peer, round by round.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) rounds: Vec<f64>,
    pub(crate) median: f64,
    /// The 95 % interval of the median.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Ratio {
    /// Pairs the samples of the same round. Both slices hold one value per round.
    pub(crate) fn paired(ours: &[f64], peer: &[f64], seed: u64) -> Ratio {
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
    fn shuffle_keeps_every_item() {
        let mut items: Vec<usize> = (0..20).collect();
        Dice::new(9).shuffle(&mut items);
        assert_ne!(items, (0..20).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..20).collect::<Vec<_>>());
    }
}
