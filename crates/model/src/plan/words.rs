//! The types of settings: what happens at a full queue, how often a failing event is tried, what happens
//! to the state of an instance after a panic.

use std::fmt;
use std::time::Duration;

use crate::error::Advice;

/// What happens to an event that arrives at a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The sender waits for room, and handles nothing meanwhile.
    #[default]
    Block,
    /// The event is returned to a sender that can take it back (a `Sender`, or `try_send` of a port);
    /// otherwise it is shed.
    Reject,
    /// The event is shed.
    DropNewest,
    /// The oldest event in the queue is shed in its favour.
    DropOldest,
}

impl WhenFull {
    /// Every choice, with its name.
    pub const ALL: &'static [(WhenFull, &'static str)] = &[
        (WhenFull::Block, "block"),
        (WhenFull::Reject, "reject"),
        (WhenFull::DropNewest, "drop-newest"),
        (WhenFull::DropOldest, "drop-oldest"),
    ];
}

/// The word that plans use.
impl fmt::Display for WhenFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(f, WhenFull::ALL, *self)
    }
}

/// What happens to a key of a keyed stage when one of its events has failed for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The event is set aside, and the key goes on with the next.
    #[default]
    GoOn,
    /// The key waits until the event is replayed, or taken away. Other keys go on. Events that still wait when no more
    /// can come are set aside behind it, in order.
    HoldKey,
}

impl OnFailure {
    /// Every choice, with its name.
    pub const ALL: &'static [(OnFailure, &'static str)] =
        &[(OnFailure::GoOn, "go-on"), (OnFailure::HoldKey, "hold-key")];
}

/// The word that plans use.
impl fmt::Display for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(f, OnFailure::ALL, *self)
    }
}

/// The word that plans use.
impl fmt::Display for OnPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(f, OnPanic::ALL, *self)
    }
}

fn shown<T: PartialEq>(f: &mut fmt::Formatter<'_>, all: &[(T, &str)], word: T) -> fmt::Result {
    all.iter().filter(|(known, _)| *known == word).try_for_each(|(_, name)| f.pad(name))
}

/// How often an event that failed is retried, and how long the instance waits before each retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// The number of tries, the first included.
    pub tries: u32,
    /// The wait before the second try; it doubles with each further one.
    pub backoff: Duration,
    /// The longest wait.
    pub backoff_max: Duration,
    /// Whether each wait is shortened at random, to no less than half, so that events that failed together
    /// are not retried together.
    pub jitter: bool,
}

impl Retry {
    /// Creates a retry of `tries` tries, the first included, with a wait of `backoff` before the second, which
    /// doubles up to a minute (or up to `backoff`, if that is longer), and with jitter.
    #[must_use]
    pub fn new(tries: u32, backoff: Duration) -> Self {
        let backoff_max = backoff.max(Duration::from_secs(60));
        Retry { tries, backoff, backoff_max, jitter: true }
    }

    /// Sets the longest wait.
    #[must_use]
    pub fn backoff_max(self, backoff_max: Duration) -> Self {
        Retry { backoff_max, ..self }
    }

    /// Sets whether each wait is shortened at random.
    #[must_use]
    pub fn jitter(self, jitter: bool) -> Self {
        Retry { jitter, ..self }
    }

    /// Returns the wait before the next try of an event that failed with this advice after `attempt` tries,
    /// or `None` if it is not retried. `dice` is a random number, which shortens the wait.
    #[must_use]
    pub fn wait(&self, attempt: u32, advice: Advice, dice: u64) -> Option<Duration> {
        let usual = self.wait_after(attempt)?;
        match advice {
            Advice::Permanent => None,
            Advice::After(wait) => Some(wait.min(self.backoff_max)),
            Advice::Usual if self.jitter => {
                let share = 0.5 + 0.5 * (mixed(dice) >> 11) as f64 / (1_u64 << 53) as f64;
                Some(usual.mul_f64(share))
            }
            Advice::Usual => Some(usual),
        }
    }

    /// Returns the wait after `attempt` tries without jitter, or `None` if all tries are used up.
    #[must_use]
    pub fn wait_after(&self, attempt: u32) -> Option<Duration> {
        if attempt >= self.tries {
            return None;
        }
        let doubled = 1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        Some(self.backoff.saturating_mul(doubled).min(self.backoff_max))
    }
}

/// Splitmix64: spreads numbers that are alike.
fn mixed(dice: u64) -> u64 {
    let mut z = dice.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Default for Retry {
    /// One try.
    fn default() -> Self {
        Retry::new(1, Duration::ZERO)
    }
}

/// What happens to the state of an instance after its handler panicked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPanic {
    /// The state stays as the handler left it.
    #[default]
    Keep,
    /// The instance is made again.
    Reset,
}

impl OnPanic {
    /// Every choice, with its name.
    pub const ALL: &'static [(OnPanic, &'static str)] =
        &[(OnPanic::Keep, "keep"), (OnPanic::Reset, "reset")];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_bound_and_tries_run_out() {
        let retry =
            Retry::new(4, Duration::from_millis(50)).backoff_max(Duration::from_millis(150));
        let waits: Vec<_> = (1..=4).map(|n| retry.wait_after(n).map(|d| d.as_millis())).collect();
        assert_eq!(waits, [Some(50), Some(100), Some(150), None]);
    }

    #[test]
    fn words_are_shown_as_plans_spell_them() {
        assert_eq!(
            format!("{} {:>7}", WhenFull::DropNewest, OnPanic::Reset),
            "drop-newest   reset"
        );
    }

    #[test]
    fn jitter_shortens_a_wait_to_no_less_than_half_and_spreads_it() {
        let retry = Retry::new(2, Duration::from_secs(1));
        let waits: Vec<_> = (0..1_000).filter_map(|n| retry.wait(1, Advice::Usual, n)).collect();
        assert!(waits.iter().all(|wait| (500..=1_000).contains(&wait.as_millis())));
        for tenth in 5..10 {
            let within = waits.iter().filter(|wait| wait.as_millis() / 100 == tenth);
            assert!(within.count() > 100, "of 200 expected");
        }
        let exact = retry.jitter(false);
        assert_eq!(exact.wait(1, Advice::Usual, 7), Some(Duration::from_secs(1)));
        assert_eq!(retry.wait(2, Advice::Usual, 7), None);
    }

    #[test]
    fn an_error_may_end_the_tries_or_say_the_wait_up_to_the_longest() {
        let retry = Retry::new(3, Duration::from_secs(1));
        assert_eq!(retry.wait(1, Advice::Permanent, 7), None);
        let after = |secs| retry.wait(1, Advice::After(Duration::from_secs(secs)), 7);
        assert_eq!(after(5), Some(Duration::from_secs(5)));
        assert_eq!(after(500), Some(Duration::from_secs(60)), "the plan's longest");
        assert_eq!(retry.wait(3, Advice::After(Duration::ZERO), 7), None, "the tries are used up");
    }
}
