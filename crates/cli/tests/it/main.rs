//! The command line: what it draws, what it shows of a run, what it refuses.
#![expect(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

mod draw;
#[cfg(unix)]
mod show;
mod commands;
mod failures;
#[cfg(unix)]
mod compare;
