//! How long a handler takes on virtual time, and the generator that its length may be drawn from.
//! Used by `virtual_workers`, which lets the time pass.

use std::fmt;
use std::time::Duration;

/// How long the handler of a stage takes for one event, and what it does meanwhile: it computes, or it waits.
///
/// ```
/// # use comporta_runtime::testing::ServiceTime;
/// # use std::time::Duration;
/// let query = ServiceTime::waiting(Duration::from_millis(50)); // as long for each event
/// let parse = ServiceTime::busy_with(|dice| dice.exponential(Duration::from_micros(300)));
/// ```
pub struct ServiceTime {
    draw: Draw,
    busy: bool,
}

type Draw = Box<dyn FnMut(&mut Dice) -> Duration + Send>;

impl ServiceTime {
    /// Creates one that computes for so long: its time is CPU time too.
    #[must_use]
    pub fn busy(time: Duration) -> Self {
        ServiceTime::busy_with(move |_| time)
    }

    /// Creates one that waits for so long, as for a disk or a reply, and uses no processor.
    #[must_use]
    pub fn waiting(time: Duration) -> Self {
        ServiceTime::waiting_with(move |_| time)
    }

    /// As [`busy`](Self::busy), with a time for each event.
    pub fn busy_with(time: impl FnMut(&mut Dice) -> Duration + Send + 'static) -> Self {
        ServiceTime { draw: Box::new(time), busy: true }
    }

    /// As [`waiting`](Self::waiting), with a time for each event.
    pub fn waiting_with(time: impl FnMut(&mut Dice) -> Duration + Send + 'static) -> Self {
        ServiceTime { draw: Box::new(time), busy: false }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    /// The time that so many events take, one after the other.
    pub(super) fn draw(&mut self, dice: &mut Dice, events: usize) -> Duration {
        (0..events).fold(Duration::ZERO, |sum, _| sum.saturating_add((self.draw)(dice)))
    }
}

impl fmt::Debug for ServiceTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceTime").field("busy", &self.busy).finish_non_exhaustive()
    }
}

/// A generator of random numbers (splitmix64): the same seed gives the same numbers.
#[derive(Clone, Debug, Default)]
pub struct Dice(u64);

impl Dice {
    /// Creates a generator.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// Returns the next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `n`, without `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.roll() % n.max(1) as u64).unwrap_or(0)
    }

    /// Returns a number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a duration of an exponential distribution with this mean.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.unit()).ln())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_their_means_are_right() {
        let (mut one, mut other) = (Dice::new(7), Dice::new(7));
        assert!((0..100).all(|_| one.roll() == other.roll()));
        let n = 100_000;
        let mean = (0..n).map(|_| one.unit()).sum::<f64>() / f64::from(n);
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        let second = Duration::from_secs(1);
        let mean = (0..n).map(|_| one.exponential(second)).sum::<Duration>() / n as u32;
        assert!(mean.abs_diff(second) < Duration::from_millis(20), "{mean:?}");
        assert!((0..100).all(|_| one.below(3) < 3) && one.below(0) == 0);
    }

    #[test]
    fn a_group_takes_the_sum_of_its_events() {
        let mut drawn = 0;
        let mut time = ServiceTime::busy_with(move |_| {
            drawn += 1;
            Duration::from_millis(drawn)
        });
        assert_eq!(time.draw(&mut Dice::new(0), 3), Duration::from_millis(6));
    }
}
