//! What an idle stage holds: the heap of a started program of 10,000 stages that was never pushed
//! into, less that of one of 1,000, by stage; and the same of resident memory, for information.
//! Taken once: the heap figure repeats to within a byte, since nothing in it depends on time.
//! Invariant: the smaller program lives until the larger is measured, so that resident pages are
//! not counted to one and used by the other; what building left free is counted all the same.

use super::program::Program;
use crate::alloc;
use crate::report::{Report, Table};
use std::fs;

const FEW: usize = 1_000;
const MANY: usize = 10_000;

/// Measures and tells; `shape` is the program but for its stages.
pub(super) fn run(shape: Program, report: &mut Report) {
    let few = idle(Program { stages: FEW, ..shape });
    let many = idle(Program { stages: MANY, ..shape });
    let per_stage = |figure: fn(&Idle) -> f64| (figure(&many) - figure(&few)) / (MANY - FEW) as f64;
    let (heap, rss) = (per_stage(|idle| idle.heap), per_stage(|idle| idle.rss));
    println!("\nmemory: started and idle");
    let mut table = Table::new(&["stages", "heap KiB", "resident KiB"]);
    for (stages, idle) in [(FEW, &few), (MANY, &many)] {
        let kib = |bytes: f64| format!("{:.0}", bytes / 1024.0);
        table.row([stages.to_string(), kib(idle.heap), kib(idle.rss)]);
        let figures = [("heap_bytes", idle.heap), ("rss_bytes", idle.rss)];
        report.detail("memory", &stages.to_string(), &figures);
    }
    table.print();
    println!("an idle stage: {heap:.0} bytes of heap, {rss:.0} resident");
    report.figure("bytes_per_idle_stage", heap);
    report.figure("rss_bytes_per_idle_stage", rss);
}

/// A program that is up, and what it took.
struct Idle {
    heap: f64,
    rss: f64,
    _program: (comporta::Sender<crate::load::Event64>, comporta::Running),
}

fn idle(program: Program) -> Idle {
    let before = resident_bytes();
    let (program, heap) = alloc::held(|| program.idle());
    Idle { heap: heap as f64, rss: resident_bytes() - before, _program: program }
}

/// Resident memory of this process; NaN where `/proc` is absent. From `status` and not `statm`,
/// which says the same in pages of a size it does not say.
fn resident_bytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").ok();
    status.as_deref().and_then(resident_kib).map_or(f64::NAN, |kib| kib * 1024.0)
}

fn resident_kib(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_its_line() {
        let status = "Name:\tbench\nVmHWM:\t    9000 kB\nVmRSS:\t    4096 kB\nThreads:\t3\n";
        assert_eq!(resident_kib(status), Some(4096.0));
        assert_eq!(resident_kib("Name:\tbench\n"), None);
    }
}
