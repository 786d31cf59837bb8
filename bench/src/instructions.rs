//! Counts instructions with valgrind: this program again, in processes that do one operation so many
//! times. The difference between many and few leaves the start of the process out. It is exact to a few
//! instructions, whatever else the machine does; those of the kernel are not counted.

use std::env;
use std::process::Command;

/// What can be counted: done so many times by `run`.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(u64),
}

/// Tells a process of ours what to do: `OPERATION:TIMES`.
const VARIABLE: &str = "COMPORTA_BENCH_COUNT";

/// If this is a process that is counted, does what is counted.
pub(crate) fn is_counted_process(operations: &[Operation]) -> bool {
    let Ok(what) = env::var(VARIABLE) else { return false };
    let operation = what.split_once(':').and_then(|(name, times)| {
        let operation = operations.iter().find(|operation| operation.name == name)?;
        Some((operation, times.parse().ok()?))
    });
    if let Some((operation, times)) = operation {
        (operation.run)(times);
    }
    true
}

/// The instructions of one operation of a bench, by the difference between doing it `few` and ten times as
/// often more. Returns nothing where there is no valgrind, or it did not count.
pub(crate) fn each(bench: &str, name: &str, few: u64) -> Option<f64> {
    let many = few * 11;
    let (few_total, many_total) = (total(bench, name, few)?, total(bench, name, many)?);
    Some((many_total - few_total) / (many - few) as f64)
}

fn total(bench: &str, name: &str, times: u64) -> Option<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe().ok()?)
        .arg(bench)
        .env(VARIABLE, format!("{name}:{times}"))
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let told = String::from_utf8_lossy(&output.stderr);
    told.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}
