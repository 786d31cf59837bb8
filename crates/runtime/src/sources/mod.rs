//! Ready-made sources. Any iterator is a source too: `app.source("n", || 0..10)`.
//!
//! | source | events |
//! |---|---|
//! | an iterator | its items; an iterator that blocks, as over a channel, blocks its worker |
//! | [`lines`], [`lines_of`] | the lines of a file, of standard input, of a socket |
//! | [`follow`] | the lines of a growing file, across rotation |
//! | [`receiver`] | those sent through a channel of the standard library |
//! | `stream` (feature `stream`) | the items of any `futures::Stream` |
//! | `tokio_receiver` (feature `tokio`) | those sent through a `tokio::sync::mpsc` channel |
//! | [`paced`] | the items of an iterator, at a given rate |
//! | [`every`] | ticks at a given interval |
//!
//! A channel of `crossbeam` is an iterator: `app.source("jobs", || receiver.into_iter())`.

mod lines;
mod follow;
mod receiver;
#[cfg(any(feature = "stream", feature = "tokio"))]
mod polled;

use std::time::Duration;

use comporta_model::error::{Error, Result};
use comporta_model::event::Time;
use comporta_model::port::Out;
use comporta_model::source::{Demand, Pull, Source};

#[cfg(feature = "scheduler")]
pub use crate::coroutine::{Emitter, scheduler};
pub use follow::{Follow, follow};
pub use lines::{LINE_MAX, Lines, LongLine, lines, lines_of};
#[cfg(any(feature = "stream", feature = "tokio"))]
pub use polled::Polled;
#[cfg(feature = "stream")]
pub use polled::stream;
#[cfg(feature = "tokio")]
pub use polled::tokio_receiver;
pub use receiver::{Receiver, receiver};

/// Returns a source of the items of an iterator, `per_second` of them on average. Each is sent when it is
/// due; one that is late is sent at once, so that the mean rate holds.
pub fn paced<I: Iterator>(per_second: f64, events: I) -> Paced<I> {
    Paced { events, gap_ns: 1e9 / per_second, start: None, sent: 0 }
}

/// A source at a given rate; see [`paced`].
#[derive(Debug)]
#[must_use = "a source gives nothing until a program pulls it: `app.source(name, || source)`"]
pub struct Paced<I> {
    events: I,
    gap_ns: f64,
    start: Option<Time>,
    sent: u64,
}

impl<I> Source for Paced<I>
where
    I: Iterator + Send + 'static,
    I::Item: Send + 'static,
{
    type Item = I::Item;

    fn pull(&mut self, out: &mut Out<I::Item>, demand: Demand) -> Result<Pull> {
        if !(self.gap_ns.is_finite() && self.gap_ns > 0.0) {
            return Err(Error::msg("a paced source needs a rate above zero"));
        }
        let start = *self.start.get_or_insert(demand.now);
        for _ in 0..demand.events {
            let due = start + Duration::from_nanos((self.sent as f64 * self.gap_ns) as u64);
            if due > demand.now {
                return Ok(Pull::After(due.duration_since(demand.now)));
            }
            match self.events.next() {
                Some(event) => out.send(event),
                None => return Ok(Pull::End),
            }
            self.sent += 1;
        }
        Ok(Pull::More)
    }
}

/// Returns a source of the numbers 0, 1, 2, ..., one every `gap`, the first after one gap. A tick that could
/// not be sent in time is skipped, not sent late: the number tells how many gaps have passed.
pub fn every(gap: Duration) -> Ticks {
    Ticks { gap, start: None, next: 0 }
}

/// A source of ticks; see [`every`].
#[derive(Debug)]
#[must_use = "a source gives nothing until a program pulls it: `app.source(name, || source)`"]
pub struct Ticks {
    gap: Duration,
    start: Option<Time>,
    next: u64,
}

impl Source for Ticks {
    type Item = u64;

    fn pull(&mut self, out: &mut Out<u64>, demand: Demand) -> Result<Pull> {
        let gap = u64::try_from(self.gap.as_nanos()).unwrap_or(u64::MAX);
        if gap == 0 {
            return Err(Error::msg("a timer needs a gap above zero"));
        }
        let start = *self.start.get_or_insert(demand.now);
        let passed = demand.now.duration_since(start).as_nanos() as u64 / gap;
        if passed > self.next {
            out.send(passed - 1);
            self.next = passed;
        }
        let due = start + Duration::from_nanos(gap.saturating_mul(self.next + 1));
        Ok(Pull::After(due.duration_since(demand.now)))
    }
}
