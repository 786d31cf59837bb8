//! Stalls of the machine: a virtual processor that its host lets wait for some milliseconds. They
//! have nothing to do with the program that runs, and a few of them decide what the 99th percentile
//! is, or which of two equals is slower. Measured on a machine of two such processors: some five a
//! second of 2 to 5 ms while both are busy, next to none while they are busy half of the time.
//!
//! A watch is a thread on each processor, before which every other must step back, that sleeps for a
//! millisecond at a time. If it wakes up much later, its processor was away. What ordinary threads do
//! to each other, those of other programs included, it does not see: that is in the measurement.
//! A run in which the machine stalled is made again, a few times; the least disturbed counts.
//!
//! Where such threads are not allowed (they need the rights of root), no run is made again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

const TICK: Duration = Duration::from_millis(1);
/// Waking up takes 50 µs at most; who is later than this was away.
const LATE: Duration = Duration::from_micros(300);
/// A run of which more was lost, all processors together, is made again, ...
const LOST_MAX: f64 = 0.002;
/// ... up to so many times in all, ...
const TRIES: u32 = 8;
/// ... unless it was this long: hardly any such run is without, and they weigh little in it.
const LONG: Duration = Duration::from_millis(500);

/// Runs there were, made again, and kept although the machine stalled.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    runs: AtomicU64,
    again: AtomicU64,
    stalled: AtomicU64,
}

/// Of this process.
pub(crate) static TALLY: Tally =
    Tally { runs: AtomicU64::new(0), again: AtomicU64::new(0), stalled: AtomicU64::new(0) };

impl Tally {
    /// `12 of 300 runs were made again because the machine stalled, ...`, if there were any.
    pub(crate) fn tell(&self) -> Option<String> {
        let [runs, again, stalled] =
            [&self.runs, &self.again, &self.stalled].map(|count| count.load(Relaxed));
        (again > 0).then(|| {
            format!(
                "The machine stalled: {again} runs were made again, of {runs} that count; {stalled} of these it disturbed too."
            )
        })
    }
}

/// Threads that watch the processors until it is dropped.
pub(crate) struct Watch {
    lost_ns: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Watch {
    /// Begins to watch; sees nothing where it may not.
    pub(crate) fn new() -> Watch {
        let mut watch =
            Watch { lost_ns: Arc::default(), over: Arc::default(), threads: Vec::new() };
        for processor in core_affinity::get_core_ids().unwrap_or_default() {
            let (lost_ns, over) = (Arc::clone(&watch.lost_ns), Arc::clone(&watch.over));
            let (tell, told) = mpsc::channel();
            let thread = thread::spawn(move || {
                let ready = core_affinity::set_for_current(processor) && goes_first();
                // Nobody listens only if `new` has panicked.
                let _ = tell.send(ready);
                while ready && !over.load(Relaxed) {
                    let late = nap();
                    if late > LATE {
                        lost_ns.fetch_add(late.as_nanos() as u64, Relaxed);
                    }
                }
            });
            watch.threads.push(thread);
            if told.recv() != Ok(true) {
                break; // drop ends those that could
            }
        }
        watch
    }

    /// The run, made again while the machine stalls in it: the least disturbed of them.
    pub(crate) fn undisturbed<S>(&self, mut run: impl FnMut() -> S) -> S {
        let mut attempt = || {
            let (before, began) = (self.lost_ns.load(Relaxed), Instant::now());
            let sample = run();
            let (lost_ns, took) = (self.lost_ns.load(Relaxed) - before, began.elapsed());
            let lost = if took < LONG { lost_ns as f64 / took.as_nanos() as f64 } else { 0.0 };
            (lost, sample)
        };
        TALLY.runs.fetch_add(1, Relaxed);
        let mut best = attempt();
        for _ in 1..TRIES {
            if best.0 <= LOST_MAX {
                return best.1;
            }
            TALLY.again.fetch_add(1, Relaxed);
            let other = attempt();
            if other.0 < best.0 {
                best = other;
            }
        }
        TALLY.stalled.fetch_add(u64::from(best.0 > LOST_MAX), Relaxed);
        best.1
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // one that panicked saw nothing
        }
    }
}

/// Has this thread run before all ordinary ones; returns whether it may.
fn goes_first() -> bool {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    ThreadPriorityValue::try_from(1_u8).is_ok_and(|lowest| {
        let priority = ThreadPriority::Crossplatform(lowest);
        set_thread_priority_and_policy(thread_native_id(), priority, policy).is_ok()
    })
}

/// Sleeps for a tick; says how much longer it was.
fn nap() -> Duration {
    let began = Instant::now();
    thread::sleep(TICK);
    began.elapsed().saturating_sub(TICK)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch whose processors are away for so many milliseconds in each run.
    fn runs(away_ms: &[u64]) -> (u64, u64) {
        let watch = Watch { lost_ns: Arc::default(), over: Arc::default(), threads: Vec::new() };
        let mut made = 0;
        let kept = watch.undisturbed(|| {
            let away = away_ms.get(made).copied().unwrap_or(0);
            watch.lost_ns.fetch_add(away * 1_000_000, Relaxed);
            thread::sleep(Duration::from_millis(5));
            made += 1;
            away
        });
        (kept, made as u64)
    }

    #[test]
    fn a_run_is_made_again_until_one_is_undisturbed() {
        assert_eq!(runs(&[]), (0, 1));
        assert_eq!(runs(&[3, 0, 9]), (0, 2));
    }

    #[test]
    fn of_runs_that_all_were_disturbed_the_least_counts() {
        assert_eq!(runs(&[5, 9, 2, 4, 5, 6, 7, 8, 0]), (2, 8));
    }

    #[test]
    fn watching_ends_with_the_watch() {
        let over = {
            let watch = Watch::new();
            Arc::clone(&watch.over)
        };
        assert!(over.load(Relaxed));
        assert_eq!(Arc::strong_count(&over), 1, "no thread is left");
    }
}
