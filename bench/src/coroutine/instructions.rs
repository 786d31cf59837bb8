//! Counts instructions with valgrind: this program again, in processes that do one operation so many
//! times. The difference between many and few leaves the start of the process out. It is exact to a few
//! instructions, whatever else the machine does; those of the kernel are not counted.
//! Where there is no valgrind the bar is not run.

use super::micro::OPERATIONS;
use crate::report::{Report, Table};
use std::env;
use std::process::Command;

/// Tells a process of ours what to do: `OPERATION:TIMES`.
const VARIABLE: &str = "COMPORTA_BENCH_COUNT";
const FEW: u64 = 1_000;
const MANY: u64 = 11_000;

/// If this is a process that is counted, does what is counted.
pub(super) fn is_counted_process() -> bool {
    let Ok(what) = env::var(VARIABLE) else { return false };
    let operation = what.split_once(':').and_then(|(name, times)| {
        let operation = OPERATIONS.iter().find(|operation| operation.name == name)?;
        Some((operation, times.parse().ok()?))
    });
    if let Some((operation, times)) = operation {
        (operation.run)(times);
    }
    true
}

pub(super) fn run(report: &mut Report) {
    println!("\ninstructions of one operation, in user space");
    let mut table = Table::new(&["operation", "instructions"]);
    let mut counted = Vec::new();
    for operation in &OPERATIONS {
        let Some(each) = each(operation.name) else {
            println!("valgrind is not there, or did not count: this is not run");
            return;
        };
        table.row([operation.name.to_owned(), format!("{each:.1}")]);
        report.figure(format!("{}_instructions_each", operation.name), each);
        counted.push((operation.name, each));
    }
    table.print();
    let of = |name: &str| counted.iter().find(|(other, _)| *other == name).map(|(_, each)| *each);
    let figures = [of("step"), of("bare"), of("write")];
    if let [Some(step), Some(bare), Some(write)] = figures {
        let ratio = (step - write) / (bare - write);
        println!("step over bare, without the write: {ratio:.2}");
        report.figure("step_instructions", ratio);
    }
}

fn each(name: &str) -> Option<f64> {
    let (few, many) = (total(name, FEW)?, total(name, MANY)?);
    Some((many - few) / (MANY - FEW) as f64)
}

fn total(name: &str, times: u64) -> Option<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe().ok()?)
        .arg("coroutine")
        .env(VARIABLE, format!("{name}:{times}"))
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let told = String::from_utf8_lossy(&output.stderr);
    told.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}
