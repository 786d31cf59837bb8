//! The exit codes of a process: the only place that knows the numbers.

use std::process::{ExitCode, Termination};

use super::table::wrapped;

/// How a run ended, for the shell. [`exit_codes`] lists what its numbers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "return it from `main`"]
pub enum Exit {
    /// The program completed, or was drained with no event left.
    Done,
    /// The program ran with problems, or could not start.
    Problems,
    /// The arguments, the graph or the plan were refused before anything ran.
    Refused,
    /// The time limit of a drain expired with events left.
    Left,
    /// A signal of this number stopped it at once.
    Stopped(u8),
}

/// Every exit code, with its meaning.
pub const EXIT_CODES: [(u8, &str); 8] = [
    (0, "the program completed, or was asked to end and left no event behind"),
    (
        1,
        "it could not start, a source failed, or another problem was reported; or it completed by itself, but events failed that no error port took",
    ),
    (2, "the arguments, the graph or the plan were refused before anything ran"),
    (3, "the time limit of the drain expired with events left"),
    (129, "a SIGHUP as the second signal stopped it at once"),
    (130, "a second Ctrl-C (SIGINT) stopped it at once"),
    (141, "its standard output was closed (`... | head`)"),
    (143, "a second SIGTERM stopped it at once"),
];

/// The widest line of a meaning: with the code before it, it fits 80 columns.
const MEANING_MAX: usize = 72;

/// The exit codes as a table, for `--help`.
#[must_use]
pub fn exit_codes() -> String {
    let row = |(code, says): &(u8, &str)| {
        let lines = wrapped(says, MEANING_MAX).join("\n       ");
        format!("  {code:>3}  {lines}\n")
    };
    EXIT_CODES.iter().map(row).collect()
}

impl Exit {
    /// The number the shell sees.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Problems => 1,
            Exit::Refused => 2,
            Exit::Left => 3,
            // The shells' own way to tell which signal ended a process.
            Exit::Stopped(signal) => 128_u8.saturating_add(signal),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_1_means_says_which_failed_events_count() {
        let problems = EXIT_CODES.iter().find(|(code, _)| *code == 1).unwrap().1;
        assert!(problems.contains("completed by itself, but events failed"), "{problems}");
    }

    #[test]
    fn every_exit_is_in_the_table_and_the_table_has_no_other() {
        let exits = [
            Exit::Done,
            Exit::Problems,
            Exit::Refused,
            Exit::Left,
            Exit::Stopped(1),
            Exit::Stopped(2),
            Exit::Stopped(13),
            Exit::Stopped(15),
        ];
        assert_eq!(exits.map(Exit::code), EXIT_CODES.map(|(code, _)| code));
        let table = exit_codes();
        let first = table.lines().filter(|line| !line.starts_with("       "));
        assert_eq!(first.count(), EXIT_CODES.len(), "{table}");
        assert!(table.lines().all(|line| line.len() < 80), "{table}");
        assert!(exit_codes().contains("\n  143  a second SIGTERM"));
    }
}
