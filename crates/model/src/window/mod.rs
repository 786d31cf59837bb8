//! Windows: stages that gather the events of a stream into groups that belong together.
//!
//! | stage | a window is | file |
//! |---|---|---|
//! | [`by_count`] | so many events, in order of arrival | `count.rs` |
//! | [`by_time`] | the events of so much event time, in order of event time | `time.rs` |
//!
//! Both *tumble*: each event is in one window. With `sliding` a window begins at every step, so
//! that windows overlap and each event is copied into all that it belongs to. What is incomplete
//! when the stream ends leaves then. A window has at least one event: empty ones are not sent.
//!
//! A windowing stage has one instance, whatever the plan says ([`Stage::STATEFUL`]): two would
//! make windows of different events.
//!
//! An event in a window that is still open counts as handled: its queue and its retries are done with it.
//! A source that waits for it to be acknowledged is told when the windows it is in have been sent, and
//! what they led to has been handled. So a source that holds back until its events are acknowledged must
//! let at least as many through as an open window needs. What a stopped program still held in open windows
//! is gone, and counts as cancelled; a drain sends them.
//!
//! A size or step that makes no sense (none at all, a step beyond the size, which would lose the
//! events in between) keeps the program from starting, with a message that says what would do.
//!
//! [`Stage::STATEFUL`]: crate::stage::Stage::STATEFUL

mod count;
mod time;
#[cfg(test)]
mod tests;

pub use count::{ByCount, by_count};
pub use time::{ByTime, Timed, TimedRefs, by_time};

use serde::{Deserialize, Serialize};

/// Events that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window<T> {
    /// Where it begins: the number of its first event, from 0, or milliseconds of event time.
    pub start: i64,
    /// Where it ends: the first number, or the first millisecond, that is no longer in it.
    pub end: i64,
    /// Its events; at least one.
    pub events: Vec<T>,
}

/// The most windows that may be open at once. Under [`EMIT_MAX`], so that no single event, nor the
/// end, closes more windows than it may send.
///
/// [`EMIT_MAX`]: crate::plan::defaults::EMIT_MAX
pub const OPEN_MAX: u64 = 1_000_000;

/// The same size in steps, rounded up; or why the two do not fit.
fn steps(size: u64, step: u64, unit: &str) -> Result<u64, String> {
    match (size, step) {
        (0, _) => Err(format!("a window of 0 {unit} holds nothing: use at least 1")),
        (_, 0) => Err(format!("a step of 0 {unit} never moves on: use 1 to {size}")),
        _ if step > size => Err(format!(
            "a step of {step} {unit} is beyond the window of {size}: what lies between two windows would be lost"
        )),
        _ => Ok(size.div_ceil(step)),
    }
}
