//! The operations of `micro` in instructions. Where there is no valgrind the bar is not run.

use super::micro::OPERATIONS;
use crate::instructions::each;
use crate::report::{Report, Table};

const FEW: u64 = 1_000;

pub(super) fn run(report: &mut Report) {
    println!("\ninstructions of one operation, in user space");
    let mut table = Table::new(&["operation", "instructions"]);
    let mut counted = Vec::new();
    for operation in &OPERATIONS {
        let Some(each) = each("coroutine", operation.name, FEW) else {
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
