//! Where time comes from: the machine's clock, or a virtual one that a test moves. And what the
//! machine has of processors.

use crate::sync::{AtomicU64, Relaxed, thread_local};
use comporta_model::event::Time;
use std::cell::Cell;
use std::time::Duration;

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

/// The CPU time that this thread has used, where the system reports it and it is not a model's. A system call.
fn thread_cpu_time() -> Option<Duration> {
    #[cfg(all(target_os = "linux", not(shuttle)))]
    {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let (secs, nanos) = (u64::try_from(used.tv_sec).ok()?, u32::try_from(used.tv_nsec).ok()?);
        Some(Duration::new(secs, nanos))
    }
    #[cfg(not(all(target_os = "linux", not(shuttle))))]
    None
}

thread_local! {
    static VIRTUAL_CPU: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A handler that a test gives time to has used so much CPU time, on this thread.
pub(crate) fn add_virtual_cpu_time(spent: Duration) {
    VIRTUAL_CPU.with(|used| used.set(used.get() + spent));
}

/// The moment at which a program started. `Instant` reads the same clock, but a subtraction of two of them costs
/// more than the reading.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct Start {
    ns: u64,
}

#[cfg(target_os = "linux")]
impl Start {
    fn now() -> Self {
        Start { ns: monotonic_ns() }
    }

    #[inline]
    fn elapsed_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.ns)
    }
}

/// Nanoseconds since some moment in the past; good for 584 years.
#[cfg(target_os = "linux")]
#[inline]
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// The moment at which a program started.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct Start(std::time::Instant);

#[cfg(not(target_os = "linux"))]
impl Start {
    fn now() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the one place time comes from")]
        Start(std::time::Instant::now())
    }

    #[inline]
    fn elapsed_ns(&self) -> u64 {
        let elapsed = self.0.elapsed();
        // Cheaper than `as_nanos`, which works in 128 bits; good for 584 years.
        elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos())
    }
}

/// The clock of one program.
#[derive(Debug)]
pub(crate) enum Clock {
    /// The machine's, from the start of the program.
    Real(Start),
    /// Moved by hand.
    Virtual(AtomicU64),
}

impl Clock {
    pub(crate) fn real() -> Self {
        Clock::Real(Start::now())
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
            Clock::Real(start) => Time::from_nanos(start.elapsed_ns()),
            Clock::Virtual(now) => Time::from_nanos(now.load(Relaxed)),
        }
    }

    /// The CPU time that this thread has used, where that is known: of the machine, or of handlers that a test gives
    /// time to. A system call, if the clock is real.
    pub(crate) fn thread_cpu_time(&self) -> Option<Duration> {
        match self {
            Clock::Real(_) => thread_cpu_time(),
            Clock::Virtual(_) => Some(VIRTUAL_CPU.with(Cell::get)),
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

/// The numbers of the processors that this process may run on; none where the system does not report them.
fn affinity() -> Vec<usize> {
    #[cfg(all(target_os = "linux", not(shuttle)))]
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        return (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
    }
    Vec::new()
}

/// Moves this thread to another of the processors that it may run on, and leaves it as free to move as it was. Returns
/// whether it did.
pub(crate) fn move_over() -> bool {
    #[cfg(all(target_os = "linux", not(shuttle)))]
    {
        use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};
        let Ok(all) = sched_getaffinity(None) else { return false };
        let mut others = all;
        others.unset(sched_getcpu());
        if others.count() == 0 || sched_setaffinity(None, &others).is_err() {
            return false;
        }
        let _ = sched_setaffinity(None, &all); // as it was, so it is allowed
        true
    }
    #[cfg(not(all(target_os = "linux", not(shuttle))))]
    false
}

/// How busy the processors that this process may run on are, from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct CpuMeter {
    /// Their numbers; none where the system does not report them.
    on: Vec<usize>,
    busy: u64,
    all: u64,
    /// What it said last, for looks that come too soon after each other to tell.
    said: u32,
}

impl CpuMeter {
    /// One whose first look is at what is used from now on.
    pub(crate) fn begin() -> Self {
        let mut meter = CpuMeter { on: affinity(), ..CpuMeter::default() };
        meter.look(&stat());
        meter.said = 0;
        meter
    }

    /// One for a test, whose processors have been used so much by now.
    pub(crate) fn begin_at(ticks: Ticks) -> Self {
        CpuMeter { busy: ticks.busy, all: ticks.all, ..CpuMeter::default() }
    }

    /// How many processors it is about.
    pub(crate) fn processors(&self) -> usize {
        if self.on.is_empty() { cpus() } else { self.on.len() }
    }

    /// The share of them that was used since this was last asked, 0 to 100. 0 where the system does
    /// not report it.
    pub(crate) fn usage(&mut self) -> u32 {
        self.look(&stat());
        self.said
    }

    fn look(&mut self, stat: &str) {
        if let Some(ticks) = parse_stat(stat, &self.on) {
            self.usage_at(ticks);
        }
    }

    /// As [`usage`](Self::usage), of processors that have been used so much by now.
    pub(crate) fn usage_at(&mut self, Ticks { busy, all }: Ticks) -> u32 {
        let (used, passed) = (busy.saturating_sub(self.busy), all.saturating_sub(self.all));
        if let Some(share) = (used * 100).checked_div(passed) {
            self.said = share.min(100) as u32;
            (self.busy, self.all) = (busy, all);
        }
        self.said
    }
}

/// What the system reports of its processors.
fn stat() -> String {
    std::fs::read_to_string("/proc/stat").unwrap_or_default()
}

/// Ticks of some processors, of whatever length: in which they were busy, and in all.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    pub(crate) busy: u64,
    pub(crate) all: u64,
}

/// What `/proc/stat` says of these processors; of all, if none is named.
fn parse_stat(text: &str, on: &[usize]) -> Option<Ticks> {
    let mut sum = None;
    for line in text.lines() {
        let Some((name, ticks)) = line.split_once(' ') else { continue };
        let Some(number) = name.strip_prefix("cpu") else { continue };
        let counts = match number.parse() {
            Ok(number) => on.contains(&number),
            Err(_) => number.is_empty() && on.is_empty(),
        };
        if !counts {
            continue;
        }
        let ticks: Vec<u64> =
            ticks.split_whitespace().map_while(|n| n.parse().ok()).take(8).collect();
        let all: u64 = ticks.iter().sum();
        let idle: u64 = ticks.get(3..5)?.iter().sum(); // idle, and waiting for a disk
        let sum = sum.get_or_insert_with(Ticks::default);
        sum.busy += all - idle;
        sum.all += all;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 5 20 700 30 1 2 3 0 0\ncpu0 50 2 10 350 15 0 1 1 0 0\n\
                        cpu1 50 3 10 350 15 1 1 2 0 0\nintr 7 0 0 0 0 0\n";

    #[test]
    fn ticks_are_those_of_the_processors_that_may_be_used() {
        let ticks = |on: &[usize]| parse_stat(STAT, on).map(|Ticks { busy, all }| (busy, all));
        assert_eq!(ticks(&[]), Some((131, 861)));
        assert_eq!(ticks(&[0]), Some((64, 429)));
        assert_eq!(ticks(&[0, 1]), Some((131, 861)));
        assert_eq!(ticks(&[7]), None);
        assert_eq!(parse_stat("", &[]), None);
        assert_eq!(parse_stat("cpu  1 2\n", &[]), None);
    }

    #[test]
    fn the_first_look_is_at_what_was_used_since_the_meter_began() {
        let mut meter = CpuMeter { on: vec![0], ..CpuMeter::default() };
        meter.look("cpu0 9000 0 0 1000 0 0 0 0\n"); // busy to 90 %, before it began
        meter.said = 0;
        meter.look("cpu0 9000 0 0 1000 0 0 0 0\n");
        assert_eq!(meter.said, 0, "no time has passed");
        meter.look("cpu0 9025 0 0 1075 0 0 0 0\n");
        assert_eq!(meter.said, 25);
    }

    #[test]
    fn the_usage_of_this_machine_is_a_share() {
        let mut meter = CpuMeter::begin();
        assert!(meter.processors() >= 1);
        assert!(meter.usage() <= 100 && meter.usage() <= 100);
    }
}
