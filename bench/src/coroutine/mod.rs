//! `coroutine`: the event scheduler. What a switch, a new coroutine and a step cost; what a suspended
//! coroutine holds; an echo server against those of others.
//!
//! 1. `micro`         nanoseconds of the single operations, beside what they are made of
//! 2. `instructions`  the same in instructions, counted by valgrind in processes of their own
//! 3. `memory`        what 10,000 suspended coroutines hold
//! 4. `echo`          100 connections, against the servers of `peers::echo`

mod micro;
mod instructions;
mod memory;
mod echo;

use crate::instructions::is_counted_process;
use crate::options::Options;
use crate::report::{Bar, Limit, Report};

pub(crate) const ABOUT: &str = "the event scheduler: switch, step, memory, and an echo server";

const BARS: &[Bar] = &[
    Bar {
        name: "step_instructions",
        limit: Limit::AtMost(3.0),
        about: "a step, against a bare switch and one result of epoll, in instructions",
    },
    Bar {
        name: "bytes_suspended",
        limit: Limit::AtMost(16.0 * 1024.0),
        about: "resident bytes of a coroutine suspended 10 calls deep, once 256 KiB deep",
    },
    Bar {
        name: "echo_vs_tokio",
        limit: Limit::AtLeast(0.9),
        about: "echoes a second of 100 connections, one thread, against tokio's",
    },
];

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("coroutine", options, BARS);
    if is_counted_process(&micro::OPERATIONS) {
        return report;
    }
    if options.takes_case("memory") {
        // First: what others left behind would be counted too.
        memory::run(&mut report);
    }
    if options.takes_case("micro") {
        micro::run(options, &mut report);
    }
    if options.takes_case("instructions") {
        instructions::run(&mut report);
    }
    if options.takes_case("echo") {
        echo::run(options, &mut report);
    }
    report.close();
    report
}
