//! How much of the time of a stage's visits is CPU time, measured on a sample of the visits.
//!
//! Every visit is timed by the wall clock anyway. The CPU clock of a thread is a system call, too dear for every
//! visit, so it is read before and after one visit to each stage in a millisecond at most, while a policy asks for
//! samples. Of each stage, not of each worker: one that makes a short visit to one stage and a long one to another, in
//! turn, would always measure the short one. The CPU time of a stage is its visits' time, of which the
//! same part is CPU time as of those that were measured. Not by the CPU time of workers, divided by the time of their visits:
//! a handler that waits and one that computes, on the same worker, would share what only one of them used.
//!
//! Used by `path::work`, which measures, and `cluster_control`, which reads.

use std::time::Duration;

use comporta_model::event::Time;

use crate::env::Clock;
use crate::sync::{AtomicU64, Relaxed};

/// How often a stage is measured: two system calls in this time are below a thousandth of it.
const EVERY: Duration = Duration::from_millis(1);

/// What was measured of the visits of a stage.
#[derive(Debug, Default)]
pub(crate) struct CpuShare {
    visits_ns: AtomicU64,
    cpu_ns: AtomicU64,
    /// A visit that begins before this time is not measured, in nanoseconds.
    not_before_ns: AtomicU64,
}

/// A visit that is being measured.
pub(crate) struct Measured {
    start: Time,
    cpu: Duration,
}

impl Measured {
    /// A visit begins: it is measured if the last of this stage that was began long enough ago, and the system
    /// reports CPU time.
    pub(crate) fn begin(clock: &Clock, start: Time, share: &CpuShare) -> Option<Self> {
        if start.as_nanos() < share.not_before_ns.load(Relaxed) {
            return None;
        }
        share.not_before_ns.store((start + EVERY).as_nanos(), Relaxed);
        Some(Measured { start: clock.now(), cpu: clock.thread_cpu_time()? })
    }

    /// It has ended.
    pub(crate) fn end(self, clock: &Clock, share: &CpuShare) {
        if let Some(cpu) = clock.thread_cpu_time() {
            share.note(clock.now().duration_since(self.start), cpu.saturating_sub(self.cpu));
        }
    }
}

impl CpuShare {
    /// A visit took so much time, and so much CPU time.
    pub(crate) fn note(&self, visit: Duration, cpu: Duration) {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.visits_ns.fetch_add(ns(visit), Relaxed);
        self.cpu_ns.fetch_add(ns(cpu.min(visit)), Relaxed);
    }

    /// The CPU time of visits that took so long; none before any was measured.
    pub(crate) fn of(&self, busy: Duration) -> Option<Duration> {
        let (visits, cpu) = (self.visits_ns.load(Relaxed), self.cpu_ns.load(Relaxed));
        (visits > 0).then(|| busy.mul_f64((cpu as f64 / visits as f64).min(1.0)))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::env::add_virtual_cpu_time;

    #[test]
    fn cpu_time_is_the_measured_part_of_all_visits() {
        let share = CpuShare::default();
        assert_eq!(share.of(Duration::from_secs(1)), None);
        share.note(Duration::from_millis(30), Duration::from_millis(3));
        share.note(Duration::from_millis(10), Duration::from_millis(7));
        assert_eq!(share.of(Duration::from_secs(2)), Some(Duration::from_millis(500)));
    }

    #[test]
    fn a_visit_in_a_millisecond_is_measured_at_most_and_those_to_other_stages_too() {
        let (clock, share, other) =
            (Clock::virtual_at_zero(), CpuShare::default(), CpuShare::default());
        let at = |us: u64| Time::from_nanos(us * 1_000);
        let begins = |us| Measured::begin(&clock, at(us), &share).is_some();
        assert_eq!([0, 999, 1_000, 1_500, 2_500].map(begins), [true, false, true, false, true]);
        assert!(Measured::begin(&clock, at(2_501), &other).is_some());
    }

    #[test]
    fn a_visit_that_computes_has_cpu_time() {
        let (clock, share) = (Clock::real(), CpuShare::default());
        let Some(begin) = clock.thread_cpu_time() else { return };
        let computes = Measured::begin(&clock, clock.now(), &share).unwrap();
        let until = begin + Duration::from_millis(1);
        while clock.thread_cpu_time().unwrap() < until {}
        computes.end(&clock, &share);
        assert!(share.of(Duration::from_secs(1)).unwrap() > Duration::ZERO);
    }

    #[test]
    fn a_visit_on_virtual_time_has_the_cpu_time_that_a_test_gives_it() {
        let (clock, share) = (Clock::virtual_at_zero(), CpuShare::default());
        let visit = Measured::begin(&clock, clock.now(), &share).unwrap();
        clock.advance(Duration::from_millis(50));
        add_virtual_cpu_time(Duration::from_millis(20));
        visit.end(&clock, &share);
        assert_eq!(share.of(Duration::from_secs(1)), Some(Duration::from_millis(400)));
    }
}
