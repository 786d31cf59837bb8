//! Runs a program and shows it: progress while it runs, a summary at its end.
//!
//! 1. `run`: the life of a run; waits for its end, for signals and for time at once.
//! 2. `signals`: the meaning of signals.
//! 3. `pace`: rates, queues and bottlenecks, from snapshots.
//! 4. `progress`: the picture of a moment, as lines.
//! 5. `terminal`: draws them in place, below what the program prints.
//! 6. `failures`: failed events, written to a file while it runs.
//! 7. `report`: the results of a run.
//! 8. `summary`: the report as text.
//! 9. `json`: the report as JSON.
//! 10. `table`, `units`: columns that fit, and numbers people can read.
//! 11. `exit`: the exit codes.
//!
//! All that makes text is a pure function of snapshots, time and width; only `run`, `signals` and
//! `terminal` touch the world.

mod run;
pub(crate) mod signals;
mod pace;
pub(crate) mod progress;
pub(crate) mod terminal;
mod failures;
mod report;
mod summary;
mod json;
pub(crate) mod table;
pub(crate) mod units;
mod exit;
#[cfg(test)]
mod samples;

use std::path::PathBuf;
use std::time::Duration;

pub use exit::{EXIT_CODES, Exit, exit_codes};
pub use run::run;
pub(crate) use run::{now, print, print_last, refused, unwritten};
pub(crate) use terminal::{colours, wide};

/// How a run is shown, and for how long it lasts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether one JSON object is printed on the last line of standard output, in place of the summary.
    pub json: bool,
    /// Whether the decisions of policies are printed after the summary, with their reasons.
    pub explain: bool,
    /// Whether the busiest keys of keyed stages are counted, and reported at the end.
    pub keys: bool,
    /// Whether only problems are printed.
    pub quiet: bool,
    /// The file to which failed events are written, a line of JSON each.
    pub failures: Option<PathBuf>,
    /// The time after which the program is drained.
    pub limit: Option<Duration>,
    /// When progress is shown.
    pub progress: When,
}

/// When progress is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// If standard error is a terminal, and neither `json` nor `quiet` is set.
    #[default]
    Auto,
    /// Always; without a terminal, as a line every few seconds.
    Always,
    /// Never.
    Never,
}
