//! How long events took from the moment they entered the program until a stage that leads nowhere
//! had handled them: a histogram of bounded size and bounded error.
//! Buckets are log-linear: 16 to each power of two, so that a quantile is off by 1/32 at most.

use std::fmt;
use std::time::Duration;

/// Buckets to each power of two.
const FINE: u32 = 16;
const FINE_BITS: u32 = FINE.trailing_zeros();
/// Enough for all that 64 bits can say in nanoseconds.
const BUCKETS: usize = (64 - FINE_BITS as usize + 1) * FINE as usize;

/// Times taken, counted. It has no buckets until the first is noted.
#[derive(Clone, Default)]
pub struct Latency {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
    squares: f64,
    max_ns: u64,
}

impl Latency {
    /// Notes that `events` events took this long.
    pub(crate) fn note(&mut self, taken: Duration, events: u64) {
        if events == 0 {
            return;
        }
        let ns = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        if self.counts.is_empty() {
            self.counts = vec![0; BUCKETS];
        }
        self.counts[bucket(ns)] += events;
        self.count += events;
        self.sum_ns += u128::from(ns) * u128::from(events);
        self.squares += (ns as f64) * (ns as f64) * events as f64;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Takes account of what another counted.
    pub fn add(&mut self, other: &Latency) {
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
        } else {
            self.counts.iter_mut().zip(&other.counts).for_each(|(own, its)| *own += its);
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.squares += other.squares;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Events counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> Duration {
        let mean = self.sum_ns.checked_div(u128::from(self.count)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The standard deviation.
    #[must_use]
    pub fn deviation(&self) -> Duration {
        if self.count == 0 {
            return Duration::ZERO;
        }
        let (n, sum) = (self.count as f64, self.sum_ns as f64);
        let variance = (self.squares / n - (sum / n) * (sum / n)).max(0.0);
        Duration::from_nanos(variance.sqrt() as u64)
    }

    /// The longest; exact.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// The time that this share of events (0.99 for 99 %) took at most; off by 1/32 of it at most.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (self.count as f64 * share.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(middle(bucket).min(self.max_ns));
            }
        }
        self.max()
    }
}

impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latency")
            .field("count", &self.count)
            .field("mean", &self.mean())
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

fn bucket(ns: u64) -> usize {
    let fine = u64::from(FINE);
    if ns < fine {
        return ns as usize;
    }
    let power = 63 - ns.leading_zeros() - FINE_BITS;
    let within = (ns >> power) - fine;
    (u64::from(power + 1) * fine + within) as usize
}

/// What a bucket stands for.
fn middle(bucket: usize) -> u64 {
    let fine = u64::from(FINE);
    let (power, within) = (bucket as u64 / fine, bucket as u64 % fine);
    match power {
        0 => within,
        _ => {
            let width = 1u64 << (power - 1);
            ((fine + within) << (power - 1)) + width / 2
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_off_by_one_in_thirty_two_at_most() {
        let mut latency = Latency::default();
        // From nanoseconds to hours, unevenly.
        let times: Vec<u64> = (0..4_000u64).map(|n| (n * n * n * 997) % 10_u64.pow(13)).collect();
        times.iter().for_each(|ns| latency.note(Duration::from_nanos(*ns), 1));
        let mut sorted = times;
        sorted.sort_unstable();
        for share in [0.0_f64, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((4_000.0 * share).ceil() as usize).max(1);
            let exact = sorted[rank - 1] as f64;
            let told = latency.quantile(share).as_nanos() as f64;
            assert!((told - exact).abs() <= exact / 32.0 + 1.0, "{share}: {told} for {exact}");
        }
        assert_eq!(latency.max().as_nanos() as u64, sorted[3_999]);
    }

    #[test]
    fn every_time_has_a_bucket_and_buckets_are_in_order() {
        for ns in [0, 1, 15, 16, 17, 31, 32, 1_000, u64::MAX / 2, u64::MAX] {
            assert!(bucket(ns) < BUCKETS, "{ns}");
        }
        let buckets: Vec<_> = (0..100_000).map(bucket).collect();
        assert!(buckets.is_sorted());
    }

    #[test]
    fn what_several_counted_is_as_if_one_had() {
        let (mut a, mut b, mut all) = (Latency::default(), Latency::default(), Latency::default());
        for n in 1..100 {
            let taken = Duration::from_micros(n * n);
            let one = if n % 3 == 0 { &mut a } else { &mut b };
            one.note(taken, n);
            all.note(taken, n);
        }
        a.add(&b);
        assert_eq!((a.count(), a.mean(), a.max()), (all.count(), all.mean(), all.max()));
        assert_eq!(a.quantile(0.9), all.quantile(0.9));
        assert_eq!(a.deviation().as_micros(), all.deviation().as_micros());
        assert_eq!(Latency::default().quantile(0.5), Duration::ZERO);
    }
}
