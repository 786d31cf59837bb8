//! Why an event failed, and a failed event on its way through the graph: what a stage sends through its error
//! port.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why an event failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reason {
    /// The handler returned an error.
    Error(String),
    /// The handler panicked; where, if known.
    Panic(String, Option<String>),
    /// It emitted more than the plan's `emit_max`.
    Flood(usize),
    /// Its handler waited longer than the plan's `timeout`.
    TimedOut(Duration),
    /// Its deadline passed while its handler waited.
    Deadline,
}

impl std::error::Error for Reason {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Error(message) => f.write_str(message),
            Reason::Panic(message, Some(place)) => write!(f, "panic at {place}: {message}"),
            Reason::Panic(message, None) => write!(f, "panic: {message}"),
            Reason::Flood(max) => write!(f, "emitted more than {max} events (emit_max)"),
            Reason::TimedOut(limit) => write!(f, "timed-out after {limit:?} (timeout)"),
            Reason::Deadline => f.write_str("its deadline passed"),
        }
    }
}

/// An event that has failed for good, as the error port of a stage sends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failed<T> {
    /// The event. `None` if the handler took it and no copy was kept.
    pub event: Option<T>,
    /// Why it failed.
    pub reason: Reason,
    /// How often it was tried.
    pub attempts: u32,
    /// The name of the stage that failed it.
    pub stage: String,
    /// Whether part of what it sent was [flushed](crate::async_stage::Emissions::flush), and so not withdrawn.
    pub partial: bool,
}

impl<T> Failed<T> {
    /// Creates an event that failed at its first try, for tests of stages that take such events.
    #[must_use]
    pub fn new(stage: impl Into<String>, event: Option<T>, reason: Reason) -> Self {
        Failed { event, reason, attempts: 1, stage: stage.into(), partial: false }
    }
}

/// The stage, the reason and the number of tries.
impl<T> fmt::Display for Failed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.stage, self.reason)?;
        match self.attempts {
            0 | 1 => Ok(()),
            attempts => write!(f, " ({attempts} tries)"),
        }
    }
}
