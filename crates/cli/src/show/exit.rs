//! What the process says when it leaves: the only place that knows the numbers.

use std::process::{ExitCode, Termination};

/// How a run ended, for the shell. [`exit_codes`] lists what its numbers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "return it from `main`"]
pub enum Exit {
    /// It came to its end, or was asked to end and everything in it settled.
    Done,
    /// It ran and met problems, or could not start for a reason of its own.
    Problems,
    /// It was refused before anything ran: usage, graph or plan.
    Refused,
    /// The time of a drain was up, and events were left.
    Left,
    /// A signal of this number stopped it at once.
    Stopped(u8),
}

/// Every exit code, and what it says.
pub const EXIT_CODES: [(u8, &str); 8] = [
    (0, "the program came to its end, or was asked to end and everything in it settled"),
    (
        1,
        "it ran and met problems (a source that failed; events that failed, if it came to its own end), or could not start",
    ),
    (2, "it was refused before anything ran: usage, graph or plan"),
    (3, "the time of the drain was up, and events were left"),
    (129, "a SIGHUP as the second signal stopped it at once"),
    (130, "a second Ctrl-C (SIGINT) stopped it at once"),
    (141, "nobody reads its standard output any more (`... | head`)"),
    (143, "a second SIGTERM stopped it at once"),
];

/// The exit codes as a table, for `--help`.
#[must_use]
pub fn exit_codes() -> String {
    EXIT_CODES.iter().map(|(code, says)| format!("  {code:>3}  {says}\n")).collect()
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
        assert_eq!(exit_codes().lines().count(), EXIT_CODES.len());
        assert!(exit_codes().contains("\n  143  a second SIGTERM"));
    }
}
