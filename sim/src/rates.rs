//! Events a second as they change over time: straight lines between points.

use comporta_stats::Dice;

/// A rate over time.
///
/// ```
/// use comporta_sim::rates::Rates;
///
/// let rates = Rates::steady(50.0).then(60.0, 10.0, 550.0);
/// assert_eq!(rates.at(60.0), 50.0);
/// assert_eq!(rates.at(65.0), 300.0);
/// assert_eq!(rates.at(100.0), 550.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// Moments in seconds and rates, in order; before the first and after the last it stays.
    points: Vec<(f64, f64)>,
}

impl Rates {
    /// The same rate at all times.
    #[must_use]
    pub fn steady(rate: f64) -> Self {
        Rates { points: vec![(0.0, rate)] }
    }

    /// From `at` on, within `ramp` seconds, to another rate.
    ///
    /// # Panics
    /// If that is before the end of the last change.
    #[must_use]
    pub fn then(mut self, at: f64, ramp: f64, rate: f64) -> Self {
        let (last, before) = *self.points.last().expect("there is a first point");
        assert!(at >= last && ramp >= 0.0, "changes are in order");
        if at > last {
            self.points.push((at, before));
        }
        self.points.push((at + ramp, rate));
        self
    }

    /// High and low levels of periods of equal length; each change of level takes `ramp` seconds at the
    /// beginning of a period.
    ///
    /// # Panics
    /// If a change takes longer than a period.
    #[must_use]
    pub fn levels(levels: &[f64], period: f64, ramp: f64) -> Self {
        let first = Rates::steady(levels.first().copied().unwrap_or(0.0));
        levels.windows(2).enumerate().fold(first, |rates, (at, pair)| {
            if pair[0] == pair[1] {
                return rates;
            }
            rates.then((at + 1) as f64 * period, ramp, pair[1])
        })
    }

    /// The rate at a moment.
    #[must_use]
    pub fn at(&self, second: f64) -> f64 {
        let next = self.points.partition_point(|(at, _)| *at <= second);
        let Some(&(t0, r0)) = self.points.get(next.wrapping_sub(1)) else {
            return self.points[0].1;
        };
        match self.points.get(next) {
            Some(&(t1, r1)) => r0 + (r1 - r0) * (second - t0) / (t1 - t0),
            None => r0,
        }
    }

    /// The greatest rate.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.points.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    /// Returns `true` if every rate is a finite number that is not negative.
    #[must_use]
    pub fn is_sane(&self) -> bool {
        self.points.iter().all(|(_, rate)| rate.is_finite() && *rate >= 0.0)
    }

    /// Every rate multiplied.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.points.iter_mut().for_each(|(_, rate)| *rate *= factor);
        self
    }

    /// When the next event comes, after `from`, if `events` are expected until then (1 where they
    /// are evenly spaced, exponential where they come by chance). `None` if it never does.
    ///
    /// Solved exactly: over a line from r with slope k, `events = r·t + k·t²/2`.
    fn next(&self, from: f64, events: f64) -> Option<f64> {
        let (mut now, mut left) = (from, events);
        let mut next = self.points.partition_point(|(at, _)| *at <= now);
        loop {
            let rate = self.at(now);
            let Some(&(end, to)) = self.points.get(next) else {
                return (rate > 0.0).then(|| now + left / rate);
            };
            let slope = (to - rate) / (end - now);
            let within = (rate + to) / 2.0 * (end - now);
            if left <= within {
                // The smaller root, in the form that does not cancel for small slopes.
                let root = (rate * rate + 2.0 * slope * left).max(0.0).sqrt();
                return Some((now + 2.0 * left / (rate + root)).min(end));
            }
            left -= within;
            now = end;
            next += 1;
        }
    }
}

impl Rates {
    /// As [`next`](Self::next), in nanoseconds. Never the same moment again, whatever the rate: time
    /// must pass.
    pub(crate) fn next_ns(&self, from_ns: u64, events: f64) -> Option<u64> {
        let next = self.next(from_ns as f64 / 1e9, events)?;
        Some(((next * 1e9).round() as u64).max(from_ns.saturating_add(1)))
    }
}

/// How events follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// By chance, independent of each other.
    Poisson,
    /// Evenly spaced.
    Even,
}

impl Arrivals {
    pub(crate) fn events(self, dice: &mut Dice) -> f64 {
        match self {
            Arrivals::Poisson => exponential(dice),
            Arrivals::Even => 1.0,
        }
    }
}

/// Exponential of mean 1.
pub(crate) fn exponential(dice: &mut Dice) -> f64 {
    -(1.0 - unit(dice)).ln()
}

/// From 0 up to, without, 1.
pub(crate) fn unit(dice: &mut Dice) -> f64 {
    (dice.next() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_events_of_a_steady_rate_are_equally_far_apart() {
        let rates = Rates::steady(4.0);
        assert_eq!(rates.next(0.0, 1.0), Some(0.25));
        assert_eq!(rates.next(0.25, 1.0), Some(0.5));
        assert_eq!(Rates::steady(0.0).next(0.0, 1.0), None);
    }

    #[test]
    fn as_many_events_come_as_the_area_under_the_rate() {
        // 50/s for 60 s, a ramp of 10 s to 550, 550 for 50 s, back to 0 at once.
        let rates = Rates::levels(&[50.0, 550.0], 60.0, 10.0).then(120.0, 0.0, 0.0);
        let (mut now, mut count) = (0.0, 0);
        while let Some(next) = rates.next(now, 1.0) {
            (now, count) = (next, count + 1);
        }
        let area = 50.0 * 60.0 + 300.0 * 10.0 + 550.0 * 50.0;
        assert!((f64::from(count) - area).abs() <= 1.0, "{count} of {area}");
        assert!(now <= 120.0);
    }

    #[test]
    fn a_rate_of_zero_is_waited_out() {
        let rates = Rates::steady(0.0).then(5.0, 0.0, 1.0);
        let next = rates.next(0.0, 1.0).unwrap();
        assert!((next - 6.0).abs() < 1e-9, "{next}");
    }

    #[test]
    fn levels_that_stay_need_no_ramp() {
        let rates = Rates::levels(&[5.0, 5.0, 9.0], 60.0, 10.0);
        assert_eq!(rates.points, [(0.0, 5.0), (120.0, 5.0), (130.0, 9.0)]);
        assert_eq!((rates.at(-1.0), rates.max()), (5.0, 9.0));
    }
}
