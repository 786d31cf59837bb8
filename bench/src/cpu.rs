//! Who used the processor: this process, and everybody else on the machine.
//! `/proc/stat` and `/proc/self/stat` count in the same ticks, so shares need no unit. Where the
//! files are absent (not Linux) every figure is NaN, and nothing else changes.

use std::fs;
use std::ops::{AddAssign, Sub};
use std::time::Duration;

/// Ticks since boot, or a difference of such.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cpu {
    total: f64,
    busy: f64,
    own: f64,
}

impl Cpu {
    pub(crate) fn now() -> Cpu {
        let machine = fs::read_to_string("/proc/stat").ok();
        let process = fs::read_to_string("/proc/self/stat").ok();
        machine
            .as_deref()
            .and_then(machine_ticks)
            .zip(process.as_deref().and_then(process_ticks))
            .map_or(Cpu { total: f64::NAN, busy: f64::NAN, own: f64::NAN }, |(machine, own)| Cpu {
                total: machine.0,
                busy: machine.1,
                own,
            })
    }

    /// Processor time of this process, in milliseconds. Linux shows ticks of 10 ms everywhere.
    pub(crate) fn own_ms(&self) -> f64 {
        const TICK_MS: f64 = 10.0;
        self.own * TICK_MS
    }

    /// Percent of the whole machine used by others. The two files are read moments apart and in
    /// whole ticks, so a quiet machine can come out slightly negative: shown as 0.
    pub(crate) fn others_percent(&self) -> f64 {
        let share = 100.0 * (self.busy - self.own) / self.total;
        if share < 0.0 { 0.0 } else { share }
    }
}

impl Sub for Cpu {
    type Output = Cpu;
    fn sub(self, earlier: Cpu) -> Cpu {
        Cpu {
            total: self.total - earlier.total,
            busy: self.busy - earlier.busy,
            own: self.own - earlier.own,
        }
    }
}

impl AddAssign for Cpu {
    fn add_assign(&mut self, more: Cpu) {
        self.total += more.total;
        self.busy += more.busy;
        self.own += more.own;
    }
}

/// `(total, busy)` from the first line of `/proc/stat`; stolen time counts as busy with others.
fn machine_ticks(text: &str) -> Option<(f64, f64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    // user nice system idle iowait irq softirq steal; guest time is already inside user.
    let ticks: Vec<f64> =
        line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let total: f64 = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((total, total - idle))
}

/// utime + stime from `/proc/self/stat`, threads that have ended included.
fn process_ticks(text: &str) -> Option<f64> {
    // The name in parentheses may hold spaces: count fields after it.
    let rest = &text[text.rfind(')')? + 1..];
    let mut fields = rest.split_whitespace().skip(11);
    let utime: f64 = fields.next()?.parse().ok()?;
    let stime: f64 = fields.next()?.parse().ok()?;
    Some(utime + stime)
}

/// Processor time of all live threads, to the nanosecond: ticks of 10 ms are too coarse for an
/// idle program. Threads that ended are not counted, so use it only while none end.
pub(crate) fn live_threads_time() -> Option<Duration> {
    let mut ns = 0u64;
    for thread in fs::read_dir("/proc/self/task").ok()? {
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        ns += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_line_splits_into_total_and_busy() {
        let text = "cpu  100 0 50 800 20 0 10 20 5 0\ncpu0 1 2 3 4\n";
        assert_eq!(machine_ticks(text), Some((1000.0, 180.0)));
        assert_eq!(machine_ticks("intr 5"), None);
    }

    #[test]
    fn process_line_survives_a_name_with_spaces_and_parentheses() {
        let text = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 1 0";
        assert_eq!(process_ticks(text), Some(42.0));
    }

    #[test]
    fn others_share_leaves_our_own_out() {
        let spent = Cpu { total: 200.0, busy: 150.0, own: 100.0 };
        assert_eq!(spent.others_percent(), 25.0);
        assert_eq!(Cpu { total: 200.0, busy: 99.0, own: 100.0 }.others_percent(), 0.0);
    }
}
