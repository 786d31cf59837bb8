//! What the clock of a node is behind ours, learnt from the stamps of its messages.
//!
//! A latency is the difference of two moments that two nodes wrote down, and their clocks may differ by an hour. A
//! message arrives later than its stamp by what the node's clock is behind, and by how long the message was under way. The least
//! difference has the least delay in it, which is nearly the same for all nodes: it cancels where two clocks are compared.
//!
//! Clocks drift, so the least is forgotten after `HALF_NS` to twice that; one that drifts by 100 µs a second, which is
//! much, is so mistaken by 6 ms at most. A clock may be set. One that was set ahead shows at once: no message
//! arrives before it left. One that was set back looks like a message that was held up, until none comes
//! sooner for `CONFIRM_NS`. While that is open, and for `SETTLE_NS` after a clock was set, nothing is known of it: latencies of those seconds
//! were measured by two clocks at once.

use comporta_model::event::Time;

/// The least delay is that of the last half minute, and of the one before.
const HALF_NS: u64 = 30_000_000_000;
/// A difference that jumps by more than this is that of a clock that was set, or of a message that was held up.
const STEP_NS: i128 = 1_000_000_000;
/// How long messages must look late before a clock counts as set back.
const CONFIRM_NS: u64 = 3_000_000_000;
/// How long latencies are left out after a clock was set.
const SETTLE_NS: u64 = 2_000_000_000;

/// What a node's clock is behind ours, delay included.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    current: Option<Least>,
    /// The least of the half minute before.
    before_ns: Option<i128>,
    /// Messages in a row that look late.
    late: Option<Least>,
    set: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Least {
    since: Time,
    ns: i128,
}

impl Clock {
    /// Learns from a message that was stamped by the clock, and arrived by ours.
    pub(crate) fn learn(&mut self, stamp: Time, arrived: Time) {
        let ns = i128::from(arrived.as_nanos()) - i128::from(stamp.as_nanos());
        let one = Least { since: arrived, ns };
        let (Some(behind), Some(current)) = (self.behind_ns(), self.current) else {
            self.current = Some(one);
            return;
        };
        if ns > behind + STEP_NS {
            self.is_late(one);
            return;
        }
        self.late = None;
        if ns < behind - STEP_NS {
            self.set_to(one);
            return;
        }
        let passed = passed_ns(current.since, arrived);
        if passed < HALF_NS {
            self.current = Some(Least { ns: current.ns.min(ns), ..current });
        } else {
            self.before_ns = (passed < 2 * HALF_NS).then_some(current.ns);
            self.current = Some(one);
        }
    }

    fn is_late(&mut self, one: Least) {
        let late = self.late.map_or(one, |late| Least { ns: late.ns.min(one.ns), ..late });
        self.late = Some(late);
        if passed_ns(late.since, one.since) >= CONFIRM_NS {
            self.set_to(Least { since: one.since, ..late });
        }
    }

    fn set_to(&mut self, least: Least) {
        *self = Clock { current: Some(least), set: Some(least.since), ..Clock::default() };
    }

    fn behind_ns(&self) -> Option<i128> {
        let current = self.current?.ns;
        Some(self.before_ns.map_or(current, |before| before.min(current)))
    }

    /// What it is behind in nanoseconds, or `None` while that is not known.
    pub(crate) fn known_ns(&self, now: Time) -> Option<i128> {
        let settles = self.set.is_some_and(|set| passed_ns(set, now) < SETTLE_NS);
        if settles || self.late.is_some() { None } else { self.behind_ns() }
    }
}

fn passed_ns(from: Time, to: Time) -> u64 {
    to.as_nanos().saturating_sub(from.as_nanos())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DELAY_MS: u64 = 2;

    /// A message each second from `from` to `to`, of a clock that is so many milliseconds behind. Returns what is known after each.
    fn seconds(
        clock: &mut Clock,
        from: u64,
        to: u64,
        behind_ms: impl Fn(u64) -> i64,
    ) -> Vec<Option<f64>> {
        let hour = 3_600_000_i64;
        let one = |second: u64| {
            let true_ms = hour + second as i64 * 1000;
            let stamp = Time::ZERO + Duration::from_millis((true_ms - behind_ms(second)) as u64);
            let arrived = Time::ZERO + Duration::from_millis(true_ms as u64 + DELAY_MS);
            clock.learn(stamp, arrived);
            clock.known_ns(arrived).map(|ns| ns as f64 / 1e6 - DELAY_MS as f64)
        };
        (from..to).map(one).collect()
    }

    #[test]
    fn a_clock_that_drifts_is_followed() {
        // 100 µs a second slow, over an hour: 360 ms.
        let known = seconds(&mut Clock::default(), 0, 3600, |second| second as i64 / 10);
        let last = known.last().unwrap().unwrap();
        assert!((last - 359.9).abs() <= 6.1, "{last}");
    }

    #[test]
    fn a_clock_that_is_set_back_by_seconds_is_learnt_anew_and_unknown_meanwhile() {
        let mut clock = Clock::default();
        seconds(&mut clock, 0, 100, |_| 0);
        let known = seconds(&mut clock, 100, 110, |_| 5_000);
        assert!(known.iter().all(|ms| ms.is_none_or(|ms| ms == 5_000.0)), "{known:?}");
        assert_eq!(known.iter().filter(|ms| ms.is_some()).count(), 5, "{known:?}");
    }

    #[test]
    fn a_clock_that_is_set_ahead_is_learnt_at_once_and_settles() {
        let mut clock = Clock::default();
        seconds(&mut clock, 0, 100, |_| 0);
        let known = seconds(&mut clock, 100, 104, |_| -3_600_000);
        assert_eq!(known, [None, None, Some(-3_600_000.0), Some(-3_600_000.0)]);
    }

    #[test]
    fn a_message_that_was_held_up_changes_nothing() {
        let mut clock = Clock::default();
        seconds(&mut clock, 0, 10, |_| 0);
        assert_eq!(seconds(&mut clock, 10, 12, |_| 40_000), [None, None]);
        assert_eq!(seconds(&mut clock, 12, 13, |_| 0), [Some(0.0)]);
    }

    #[test]
    fn what_was_learnt_before_a_long_silence_is_forgotten() {
        let mut clock = Clock::default();
        seconds(&mut clock, 0, 10, |_| 0);
        assert_eq!(seconds(&mut clock, 100, 101, |_| 500), [Some(500.0)]);
    }
}
