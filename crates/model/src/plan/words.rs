//! The words of a plan: what happens at a full queue, how often a failing event is tried, what
//! becomes of the state after a panic.

use std::time::Duration;

/// What happens to an event that arrives at a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The sender waits: it handles nothing more until there is room.
    #[default]
    Block,
    /// The sender gets it back where it can take it (`try_send` of a port or of an input); else it is shed.
    Reject,
    /// It is shed.
    DropNewest,
    /// The oldest in the queue is shed in its favour.
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

/// How often an event that failed is tried again, and how long the instance waits before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Tries in all, the first included.
    pub tries: u32,
    /// The wait before the second try; it doubles with each further one.
    pub backoff: Duration,
    /// The longest wait.
    pub backoff_max: Duration,
}

impl Retry {
    /// `tries` in all, `backoff` before the second, doubling up to a minute.
    #[must_use]
    pub fn new(tries: u32, backoff: Duration) -> Self {
        Retry { tries, backoff, backoff_max: Duration::from_secs(60) }
    }

    /// The wait after `attempt` tries, or nothing when they are used up.
    #[must_use]
    pub fn wait_after(&self, attempt: u32) -> Option<Duration> {
        if attempt >= self.tries {
            return None;
        }
        let doubled = 1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        Some(self.backoff.saturating_mul(doubled).min(self.backoff_max))
    }
}

impl Default for Retry {
    /// One try.
    fn default() -> Self {
        Retry::new(1, Duration::ZERO)
    }
}

/// What becomes of an instance's state when its handler panicked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPanic {
    /// It stays as the handler left it.
    #[default]
    Keep,
    /// The instance is made anew.
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
        let retry = Retry {
            backoff_max: Duration::from_millis(150),
            ..Retry::new(4, Duration::from_millis(50))
        };
        let waits: Vec<_> = (1..=4).map(|n| retry.wait_after(n).map(|d| d.as_millis())).collect();
        assert_eq!(waits, [Some(50), Some(100), Some(150), None]);
    }
}
