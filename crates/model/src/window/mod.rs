//! Windows: stages that gather the events of a stream by count or by event time.
//!
//! | stage | a window is | file |
//! |---|---|---|
//! | [`by_count`] | a number of events, in order of arrival | `count.rs` |
//! | [`by_time`] | the events of a span of event time, in order of event time | `time.rs` |
//!
//! | [`keyed`], [`keyed_on_clock`] | a span of time, of one key: an aggregate of its events is sent | `keyed/` |
//!
//! The first two send the events themselves and have one instance. Keyed windows send what an [`Aggregate`] makes of the
//! events, keep no events, and run side by side, key by key.
//!
//! Both *tumble*: each event is in one window. With `sliding`, a window begins at every step, so that
//! windows overlap and each event is copied into all windows that it belongs to. Incomplete windows are
//! sent when the stream ends. A window has at least one event: empty ones are not sent.
//!
//! These two have one instance under every plan ([`Stage::STATEFUL`]): two would make windows of
//! different events.
//!
//! An event in an open window counts as handled: it is no longer queued or retried. An acknowledged source
//! is notified when the windows of its event have been sent and everything that they led to has been
//! handled. So a source that waits for acknowledgements must send at least as many events as an open window
//! needs. A stop cancels the events in open windows; a drain sends the windows.
//!
//! A size or step of zero, or a step beyond the size, which would lose the events in between, keeps the
//! program from starting, with a message that says which values are valid.
//!
//! [`Stage::STATEFUL`]: crate::stage::Stage::STATEFUL

mod count;
mod ports;
mod time;
mod keyed;
#[cfg(test)]
mod tests;

pub use count::{ByCount, by_count};
pub use keyed::{
    Aggregate, Count, Fold, KeyedWindows, Max, Mean, Min, Sum, Windowed, Windows, fold, keyed,
    keyed_on_clock, max, mean, min, sum,
};
pub use ports::{Timed, TimedRefs};
pub use time::{ByTime, by_time};

use serde::{Deserialize, Serialize};

/// The events of a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window<T> {
    /// Its start: the number of its first event, from 0, or milliseconds of event time.
    pub start: i64,
    /// Its end: the first number, or the first millisecond, that is no longer in it.
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
