//! `async`: handlers that wait.
//!
//! 1. `ready`   a future that is ready at once, in instructions, against a hop of tokio's mpsc
//! 2. `wake`    from a wake-up to the handler that waited, against a tokio task
//! 3. `timers`  an I/O-bound stage: 1 ms timers, 1,000 in flight, against `buffer_unordered`
//! 4. `memory`  100,000 handlers that wait

mod ready;
mod wake;
mod timers;
mod memory;

use crate::instructions::is_counted_process;
use crate::options::Options;
use crate::report::{Bar, Limit, Report};

pub(crate) const ABOUT: &str = "handlers that wait: ready at once, woken, many, against tokio";

const BARS: &[Bar] = &[
    Bar {
        name: "ready_vs_tokio",
        limit: Limit::AtMost(2.0),
        about: "an event through a stage whose future is ready, against a hop of tokio's mpsc, in instructions",
    },
    Bar {
        name: "wake_vs_tokio",
        limit: Limit::AtMost(1.5),
        about: "median time from a wake-up to the handler that waited, against a tokio task",
    },
    Bar {
        name: "io_vs_buffer_unordered",
        limit: Limit::AtLeast(0.95),
        about: "events a second through 1 ms timers, 1,000 in flight, against buffer_unordered",
    },
    Bar {
        name: "bytes_per_waiting",
        limit: Limit::AtMost(1_024.0),
        about: "bytes of a handler that waits, beyond its future",
    },
];

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("async", options, BARS);
    if is_counted_process(&ready::OPERATIONS) {
        return report;
    }
    if options.takes_case("memory") {
        memory::run(&mut report);
    }
    if options.takes_case("ready") {
        ready::run(&mut report);
    }
    if options.takes_case("wake") {
        wake::run(options, &mut report);
    }
    if options.takes_case("timers") {
        timers::run(options, &mut report);
    }
    report.close();
    report
}
