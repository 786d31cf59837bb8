//! A source of events. The runtime pulls it when there is room downstream, so that a source never runs
//! ahead of its program; a source without events returns how long to wait.

use std::fmt;
use std::time::Duration;

use crate::ack::Settled;
use crate::error::{Error, Result};
use crate::event::Time;
use crate::port::Out;

/// What follows a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// The source may have more events now.
    More,
    /// The source has no events before this time has passed.
    After(Duration),
    /// The source has no events until a group has settled.
    AfterAck,
    /// The source has ended.
    End,
}

/// A source of events.
pub trait Source: Send + 'static {
    /// The type of its events.
    type Item: Send + 'static;

    /// Whether [`settled`](Self::settled) is called. Each pull is then a group.
    const ACKNOWLEDGED: bool = false;

    /// Sends at most `demand.events` events to `out`. Returns what follows. A call should not block, since it
    /// occupies a worker.
    ///
    /// # Errors
    /// An error ends the source, and the run reports it.
    fn pull(&mut self, out: &mut Out<Self::Item>, demand: Demand) -> Result<Pull>;

    /// Called when everything that the events of one pull led to has settled; not for a pull that sent
    /// none. `settled.group` is the [`Demand::group`] of that pull.
    fn settled(&mut self, settled: Settled) {
        let _ = settled;
    }
}

/// The request of the runtime to a pull.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Demand {
    /// The most events to send.
    pub events: usize,
    /// The time now.
    pub now: Time,
    /// The number of the acknowledgement group of this pull.
    pub group: u64,
}

impl Demand {
    /// A demand; the runtime makes these.
    #[must_use]
    pub fn new(events: usize, now: Time, group: u64) -> Self {
        Demand { events, now, group }
    }
}

/// An iterator as a source.
pub struct Iter<I>(I);

impl<I> Iter<I> {
    /// The iterator as a source.
    pub fn new(iterator: I) -> Self {
        Iter(iterator)
    }
}

impl<I> fmt::Debug for Iter<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Iter")
    }
}

impl<I> Source for Iter<I>
where
    I: Iterator + Send + 'static,
    I::Item: Send + 'static,
{
    type Item = I::Item;

    #[inline]
    fn pull(&mut self, out: &mut Out<I::Item>, demand: Demand) -> Result<Pull> {
        if out.send_all(&mut self.0, demand.events) < demand.events {
            return Ok(Pull::End);
        }
        Ok(Pull::More)
    }
}

/// Conversion into a source: a [`Source`], any iterator, or a `Result` of either. `Marker` is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no source of events",
    note = "return an iterator, a `Source`, or a `Result` of one"
)]
pub trait IntoSource<Marker> {
    /// The source it becomes.
    type Source: Source;
    /// Converts it into a source.
    ///
    /// # Errors
    /// Returns an error if the source cannot be opened.
    fn into_source(self) -> Result<Self::Source>;
}

/// Marks types that implement [`Source`].
#[derive(Debug)]
pub struct IsSource;
/// Marks iterators.
#[derive(Debug)]
pub struct IsIterator;
/// Marks results.
#[derive(Debug)]
pub struct IsResult<M>(std::marker::PhantomData<M>);

impl<S: Source> IntoSource<IsSource> for S {
    type Source = S;
    fn into_source(self) -> Result<S> {
        Ok(self)
    }
}

impl<I> IntoSource<IsIterator> for I
where
    I: Iterator + Send + 'static,
    I::Item: Send + 'static,
{
    type Source = Iter<I>;
    fn into_source(self) -> Result<Iter<I>> {
        Ok(Iter(self))
    }
}

impl<S: IntoSource<M>, E: Into<Error>, M> IntoSource<IsResult<M>> for std::result::Result<S, E> {
    type Source = S::Source;
    fn into_source(self) -> Result<S::Source> {
        self.map_err(Into::into)?.into_source()
    }
}
