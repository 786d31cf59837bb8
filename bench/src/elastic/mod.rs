//! `elastic`: threads that follow the load of a stage, in the demonstrations of the dissertation on the IOD middleware
//! (its section 5.3, five minutes each): the published controller (`elastic`), that of DS2 (`ds2`), and `none`.
//!
//! 1. `program`         a producer, and a consumer with a lane for each account; on virtual time or on threads
//! 2. `demonstrations`  matched rates, a burst, busy handlers, hot keys: beside the published figures
//! 3. `reversals`       loads drawn by chance: how often a controller changes its mind
//! 4. `real`            the burst once more, on threads that sleep
//!
//! On virtual time a run is exact, and the same on every machine. Handlers take their time on virtual workers
//! (`TestRuntime::service_time`); everything else is the code that runs in production. Nothing here knows what a policy
//! will do: loads are those that were published, or drawn.

mod program;
mod demonstrations;
mod reversals;
mod real;

use crate::options::Options;
use crate::report::{Bar, Limit, Report};

pub(crate) const ABOUT: &str =
    "threads that follow the load: the published demonstrations in virtual time";

const BARS: &[Bar] = &[
    Bar {
        name: "threads_peak",
        limit: Limit::Exactly(7.0),
        about: "elastic, an event every 10 ms against handlers of 50 ms: the most threads (published: 7)",
    },
    Bar {
        name: "threads_settled",
        limit: Limit::Exactly(6.0),
        about: "the same: threads at the end (published: 6)",
    },
    Bar {
        name: "scale_up_sample",
        limit: Limit::Between(16.0, 17.0),
        about: "the same: the second at which threads are added (by the published rules: 16 or 17)",
    },
    Bar {
        name: "hot_key_threads",
        limit: Limit::Exactly(3.0),
        about: "elastic, bursts of three accounts: the most threads (published: 3)",
    },
    Bar {
        name: "cpu_over",
        limit: Limit::AtMost(0.0),
        about: "elastic and ds2, busy handlers: seconds in which threads could use more CPU than the bound",
    },
    Bar {
        name: "matched_changes",
        limit: Limit::AtMost(0.0),
        about: "elastic and ds2, an event every 50 ms against handlers of 50 ms: changes of threads",
    },
    Bar {
        name: "ds2_changes",
        limit: Limit::AtMost(2.0),
        about: "ds2, an event every 10 ms against handlers of 50 ms: changes of threads",
    },
    Bar {
        name: "ds2_first_is_final",
        limit: Limit::Exactly(1.0),
        about: "the same: whether the first change is to the number of threads at the end",
    },
    Bar {
        name: "reversals",
        limit: Limit::AtMost(1.0),
        about: "elastic and ds2, 20 loads drawn by chance: changes of direction after settling, the worst load",
    },
];

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("elastic", options, BARS);
    demonstrations::run(options, &mut report);
    if options.takes_case("reversals") {
        reversals::run(options, &mut report);
    }
    if options.takes_case("real") {
        real::run(options, &mut report);
    }
    report.close();
    report
}
