//! `keyed`: stages with a lane and state for each key.
//!
//! 1. `load`          events, how their keys are spread, and what every entrant must find
//! 2. `instructions`  an event through a keyed stage, against a hash-map update and a hop
//! 3. `waiting`       handlers that sleep, against bare threads that do
//! 4. `throughput`    state for each key, against the peers of `peers::keyed`
//! 5. `cold`          how long a cold key waits beside a hot one, in steps

pub(crate) mod load;
mod instructions;
mod waiting;
mod throughput;
mod cold;

use crate::instructions::is_counted_process;
use crate::options::Options;
use crate::report::{Bar, Limit, Report};

pub(crate) const ABOUT: &str = "keyed stages: order and state for each key, against maps by hand";

const BARS: &[Bar] = &[
    Bar {
        name: "instructions_vs_map",
        limit: Limit::AtMost(2.0),
        about: "an event through a keyed stage, against a hash-map update and a hop, the worse of 1,000 and 1,000,000 keys",
    },
    Bar {
        name: "allocations_per_event",
        limit: Limit::AtMost(0.001),
        about: "allocations of an event whose key has state, the worse of 1,000 and 1,000,000 keys",
    },
    Bar {
        name: "speedup_waiting",
        limit: Limit::AtLeast(0.95),
        about: "handlers of 5 ms on 64 threads, 1,000 keys, against 64 threads that sleep",
    },
    Bar {
        name: "vs_best_peer",
        limit: Limit::AtLeast(1.0),
        about: "events a second, 1,000 keys, uniform, against the best peer",
    },
    Bar {
        name: "vs_best_peer_zipf",
        limit: Limit::AtLeast(1.0),
        about: "the same, keys by Zipf's law",
    },
    Bar {
        name: "vs_best_peer_1m",
        limit: Limit::AtLeast(1.0),
        about: "events a second, 1,000,000 keys, uniform, against the best peer",
    },
    Bar {
        name: "vs_best_peer_1m_zipf",
        limit: Limit::AtLeast(1.0),
        about: "the same, keys by Zipf's law",
    },
    Bar {
        name: "cold_key_wait",
        limit: Limit::AtMost(2.0),
        about: "p99 wait of cold keys beside a hot one, against the same with the hot key's events spread evenly",
    },
];

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("keyed", options, BARS);
    if is_counted_process(&instructions::OPERATIONS) {
        return report;
    }
    if options.takes_case("instructions") {
        instructions::run(&mut report);
    }
    if options.takes_case("waiting") {
        waiting::run(options, &mut report);
    }
    throughput::run(options, &mut report);
    if options.takes_case("cold") {
        cold::run(options, &mut report);
    }
    report.close();
    report
}
