//! When the events of a source with a rate are due: the open loop of a load that does not wait for
//! the program. Used by `source`; pure.
//!
//! Event n is due n / rate after the first. One that back-pressure kept outside is sent as soon as
//! there is room, and counts as having entered when it was due, so that the wait outside is seen.
//! What the source itself did not have in time is due when it has it: the schedule begins anew.

use std::time::Duration;

use comporta_model::event::{Meta, Time};

pub(crate) struct Schedule {
    gap_ns: f64,
    /// When the first of `sent` was due; None before the first pull.
    start: Option<Time>,
    sent: u64,
    /// The source had nothing more when it was last pulled.
    idle: bool,
}

impl Schedule {
    pub(crate) fn new(per_second: f64) -> Self {
        Schedule { gap_ns: 1e9 / per_second, start: None, sent: 0, idle: false }
    }

    /// Since when the next event is due, and how many are that may share that time: as many as
    /// events of one chunk may lie apart. Or how long it is until the next one is due.
    pub(crate) fn due(&mut self, now: Time) -> Result<(Time, usize), Duration> {
        let start = *self.start.get_or_insert(now);
        if let Some(wait) = self.wait(now) {
            return Err(wait);
        }
        let mut next = self.at(start, self.sent);
        if std::mem::take(&mut self.idle) {
            (self.start, self.sent, next) = (Some(now), 0, now);
        }
        let spread = now.duration_since(next).as_nanos().min(Meta::INGRESS_SPREAD_NS.into()) as f64;
        Ok((next, (spread / self.gap_ns) as usize + 1))
    }

    /// How long it is until the next event is due, if it is not.
    pub(crate) fn wait(&self, now: Time) -> Option<Duration> {
        let next = self.at(self.start?, self.sent);
        (next > now).then(|| next.duration_since(now))
    }

    /// So many were sent, and whether the source had no more.
    pub(crate) fn sent(&mut self, events: usize, idle: bool) {
        self.sent += events as u64;
        self.idle = idle;
    }

    fn at(&self, start: Time, n: u64) -> Time {
        start + Duration::from_nanos((n as f64 * self.gap_ns) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    fn at_us(us: u64) -> Time {
        Time::from_nanos(us * US)
    }

    fn wait_us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn each_event_is_due_a_gap_after_the_one_before() {
        let mut schedule = Schedule::new(1e3);
        assert_eq!(schedule.due(at_us(5)), Ok((at_us(5), 1)), "the first at once");
        schedule.sent(1, false);
        assert_eq!(schedule.wait(at_us(6)), Some(wait_us(999)));
        assert_eq!(schedule.due(at_us(1_004)), Err(wait_us(1)));
        assert_eq!(schedule.due(at_us(1_005)), Ok((at_us(1_005), 1)));
    }

    #[test]
    fn what_could_not_be_sent_stays_due_and_only_what_was_due_at_nearly_one_time_goes_together() {
        let mut schedule = Schedule::new(1e5); // one every 10 us
        assert_eq!(schedule.due(at_us(0)), Ok((at_us(0), 1)));
        schedule.sent(1, false);
        assert_eq!(schedule.wait(at_us(500)), None, "50 more are due by now");
        assert_eq!(schedule.due(at_us(500)), Ok((at_us(10), 11)));
        schedule.sent(11, false);
        assert_eq!(schedule.due(at_us(500)), Ok((at_us(120), 11)));
        schedule.sent(34, false);
        assert_eq!(schedule.due(at_us(500)), Ok((at_us(460), 5)), "the last of them");
        schedule.sent(5, false);
        assert_eq!(schedule.wait(at_us(500)), Some(wait_us(10)));
    }

    #[test]
    fn what_the_source_did_not_have_is_not_made_up_for() {
        let mut schedule = Schedule::new(1e3);
        assert_eq!(schedule.due(at_us(0)), Ok((at_us(0), 1)));
        schedule.sent(0, true);
        assert_eq!(schedule.due(at_us(70_000)), Ok((at_us(70_000), 1)), "it had nothing so long");
        schedule.sent(1, true);
        assert_eq!(schedule.due(at_us(70_500)), Err(wait_us(500)), "nor is it sooner for that");
        assert_eq!(schedule.due(at_us(90_000)), Ok((at_us(90_000), 1)));
        schedule.sent(1, false);
        assert_eq!(schedule.due(at_us(99_999)), Ok((at_us(91_000), 1)), "it did have that");
    }

    #[test]
    fn gaps_that_are_no_whole_nanoseconds_do_not_add_up_to_a_drift() {
        let mut schedule = Schedule::new(3.0);
        schedule.due(Time::ZERO).unwrap();
        schedule.sent(3_000_000, false);
        assert_eq!(schedule.wait(Time::ZERO), Some(Duration::from_secs(1_000_000)));
    }
}
