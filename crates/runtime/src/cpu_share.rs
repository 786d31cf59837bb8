//! How much of the time of a stage's visits is CPU time, measured on a sample of the visits.
//!
//! Every visit is timed by the wall clock anyway. The CPU clock of a thread is a system call, too dear for every
//! visit, so a worker reads it before and after one visit in each millisecond at most, while a policy asks for
//! samples; a visit of a millisecond or more is always among them. The CPU time of a stage is its visits' time, of which the
//! same part is CPU time as of those that were measured. Not by the CPU time of workers, divided by the time of their visits:
//! a handler that waits and one that computes, on the same worker, would share what only one of them used.
//!
//! Used by `path::work`, which measures, and `cluster_control`, which reads.

use std::time::Duration;

use comporta_model::event::Time;

use crate::env::Clock;
use crate::sync::{AtomicU64, Relaxed};

/// How often a worker measures: two system calls in this time are below a thousandth of it.
const EVERY: Duration = Duration::from_millis(1);

/// What was measured of the visits of a stage.
#[derive(Debug, Default)]
pub(crate) struct CpuShare {
    visits_ns: AtomicU64,
    cpu_ns: AtomicU64,
}

/// A visit that is being measured.
pub(crate) struct Measured {
    start: Time,
    cpu: Duration,
}

impl Measured {
    /// A visit begins: it is measured if the last that this worker measured began long enough ago, and the
    /// system reports CPU time.
    pub(crate) fn begin(clock: &Clock, start: Time, last: &mut Option<Time>) -> Option<Self> {
        if last.is_some_and(|last| start.duration_since(last) < EVERY) {
            return None;
        }
        *last = Some(start);
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
    fn a_worker_measures_a_visit_in_a_millisecond_at_most() {
        let (clock, mut last) = (Clock::real(), None);
        let at = |us: u64| Time::from_nanos(us * 1_000);
        let mut begins = |us| Measured::begin(&clock, at(us), &mut last).is_some();
        if clock.thread_cpu_time().is_some() {
            assert_eq!(
                [0, 999, 1_000, 1_500, 2_500].map(&mut begins),
                [true, false, true, false, true]
            );
        }
    }

    #[test]
    fn a_visit_that_computes_has_cpu_time() {
        let (clock, share) = (Clock::real(), CpuShare::default());
        let Some(begin) = clock.thread_cpu_time() else { return };
        let computes = Measured::begin(&clock, clock.now(), &mut None).unwrap();
        let until = begin + Duration::from_millis(1);
        while clock.thread_cpu_time().unwrap() < until {}
        computes.end(&clock, &share);
        assert!(share.of(Duration::from_secs(1)).unwrap() > Duration::ZERO);
    }
    #[test]
    fn a_visit_on_virtual_time_has_the_cpu_time_that_a_test_gives_it() {
        let (clock, share) = (Clock::virtual_at_zero(), CpuShare::default());
        let visit = Measured::begin(&clock, clock.now(), &mut None).unwrap();
        clock.advance(Duration::from_millis(50));
        add_virtual_cpu_time(Duration::from_millis(20));
        visit.end(&clock, &share);
        assert_eq!(share.of(Duration::from_secs(1)), Some(Duration::from_millis(400)));
    }
}
