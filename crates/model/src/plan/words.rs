//! The words of a plan: what happens at a full queue, how a pool chooses, how often a failing
//! event is tried, what becomes of the state after a panic.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::plan::fault::{PlanFault, nearest};

/// What happens to an event that arrives at a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The sender waits: it handles nothing more until there is room.
    #[default]
    Block,
    /// The sender gets it back where it can take it (`try_send`, a push handle); else it is shed.
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

/// How a pool chooses what to do next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Each worker has a queue of its own and takes from others when it is empty. Priorities are
    /// kept in four bands, approximately.
    #[default]
    Stealing,
    /// One queue, first come first served, stage priorities first.
    Single,
    /// One queue; the deeper a stage lies in the graph, the sooner it is served: shortest
    /// remaining processing time.
    Srpt,
}

impl Policy {
    /// Every policy, with its names and what it does.
    pub const ALL: &'static [(Policy, &'static [&'static str], &'static str)] = &[
        (Policy::Stealing, &["stealing", "default"], "a queue per worker, and stealing"),
        (Policy::Single, &["single", "fifo"], "one queue, first come first served"),
        (Policy::Srpt, &["srpt"], "one queue, the stage nearest to the end first"),
    ];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Policy::ALL.iter().find(|(policy, ..)| policy == self);
        f.write_str(known.map_or("?", |(_, names, _)| names[0]))
    }
}

impl FromStr for Policy {
    type Err = PlanFault;
    fn from_str(name: &str) -> Result<Self, PlanFault> {
        let found = Policy::ALL.iter().find(|(_, names, _)| names.contains(&name));
        found.map(|(policy, ..)| *policy).ok_or_else(|| PlanFault::NoPolicy {
            name: name.to_owned(),
            near: nearest(name, Policy::ALL.iter().flat_map(|(_, names, _)| names.iter().copied())),
        })
    }
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

    #[test]
    fn a_policy_is_known_by_all_its_names_and_a_slip_gets_a_hint() {
        assert_eq!("fifo".parse(), Ok(Policy::Single));
        let fault = "strp".parse::<Policy>().unwrap_err();
        assert_eq!(fault.to_string(), "there is no policy `strp`: did you mean `srpt`?");
    }
}
