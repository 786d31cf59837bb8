//! Where time comes from: the machine's clock, or a virtual one that a test moves. And what the
//! machine has of processors.

use crate::sync::{AtomicU64, Relaxed};
use comporta_model::event::Time;
use std::time::{Duration, Instant};

/// Processors that this process may use.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The processor this thread runs on, where the system reports it and it is not a model's.
pub(crate) fn processor() -> Option<usize> {
    #[cfg(all(target_os = "linux", not(shuttle)))]
    return Some(rustix::thread::sched_getcpu());
    #[cfg(not(all(target_os = "linux", not(shuttle))))]
    None
}

/// The clock of one program.
#[derive(Debug)]
pub(crate) enum Clock {
    /// The machine's, from the start of the program.
    Real(Instant),
    /// Moved by hand.
    Virtual(AtomicU64),
}

impl Clock {
    pub(crate) fn real() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the one place time comes from")]
        Clock::Real(Instant::now())
    }

    pub(crate) fn virtual_at_zero() -> Self {
        Clock::Virtual(AtomicU64::new(0))
    }

    /// Whether it moves by itself.
    pub(crate) fn is_real(&self) -> bool {
        matches!(self, Clock::Real(_))
    }

    #[inline]
    pub(crate) fn now(&self) -> Time {
        match self {
            Clock::Real(start) => {
                let elapsed = start.elapsed();
                // Cheaper than `as_nanos`, which works in 128 bits; good for 584 years.
                Time::from_nanos(
                    elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos()),
                )
            }
            Clock::Virtual(now) => Time::from_nanos(now.load(Relaxed)),
        }
    }

    /// Moves a virtual clock forward; a real one moves by itself.
    pub(crate) fn advance(&self, by: Duration) {
        if let Clock::Virtual(now) = self {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            now.store(now.load(Relaxed).saturating_add(by), Relaxed);
        }
    }
}

/// How busy the CPUs of the machine are, from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct CpuMeter {
    busy: u64,
    all: u64,
    /// What it said last, for looks that come too soon after each other to tell.
    said: u32,
}

impl CpuMeter {
    /// The share of all CPUs that was used since this was last asked, 0 to 100; since the machine
    /// started, the first time. 0 where the system does not report it.
    pub(crate) fn usage(&mut self) -> u32 {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        if let Some((busy, all)) = parse_stat(&text) {
            let (used, passed) = (busy.saturating_sub(self.busy), all.saturating_sub(self.all));
            if let Some(share) = (used * 100).checked_div(passed) {
                self.said = share.min(100) as u32;
                (self.busy, self.all) = (busy, all);
            }
        }
        self.said
    }
}

/// Of the first line of `/proc/stat`: ticks that CPUs were busy, and all ticks.
fn parse_stat(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|n| n.parse().ok()).take(8).collect();
    let all: u64 = ticks.iter().sum();
    let idle: u64 = ticks.get(3..5)?.iter().sum(); // idle, and waiting for a disk
    Some((all - idle, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_are_read_as_the_kernel_writes_them() {
        let text = "cpu  100 5 20 700 30 1 2 3 0 0\ncpu0 50 2 10 350 15 0 1 1 0 0\n";
        assert_eq!(parse_stat(text), Some((131, 861)));
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("cpu  1 2\n"), None);
    }

    #[test]
    fn the_usage_of_this_machine_is_a_share() {
        let mut meter = CpuMeter::default();
        assert!(meter.usage() <= 100 && meter.usage() <= 100);
    }
}
