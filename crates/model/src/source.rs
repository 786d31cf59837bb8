//! A source: where events come from. The runtime pulls it when there is room downstream, so a
//! source never runs ahead of its program; one that must wait says until when.

use std::fmt;
use std::time::Duration;

use crate::ack::Settled;
use crate::error::{Error, Result};
use crate::event::Time;
use crate::port::Out;

/// What a pull left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// There may be more at once.
    More,
    /// Nothing before this much time has passed.
    After(Duration),
    /// Nothing until a group has settled.
    AfterAck,
    /// Nothing ever again.
    End,
}

/// Where events come from.
pub trait Source: Send + 'static {
    /// What it gives.
    type Item: Send + 'static;

    /// Whether [`settled`](Self::settled) is wanted. Each pull is then a group of its own.
    const ACKNOWLEDGED: bool = false;

    /// Sends at most `demand.events` events to `out` and says what is left. One call should not
    /// block: it holds a worker.
    ///
    /// # Errors
    /// Whatever keeps the source from going on: it ends, and the run reports it.
    fn pull(&mut self, out: &mut Out<Self::Item>, demand: Demand) -> Result<Pull>;

    /// All that the events of one pull led to has settled; a pull that sent none is not reported.
    /// `settled.group` is the number that
    /// [`Demand::group`] had in that pull.
    fn settled(&mut self, settled: Settled) {
        let _ = settled;
    }
}

/// What the runtime asks of a pull.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Demand {
    /// Events wanted at most.
    pub events: usize,
    /// The time now.
    pub now: Time,
    /// The number of the acknowledgement group this pull's events belong to.
    pub group: u64,
}

impl Demand {
    /// A demand; the runtime makes these.
    #[must_use]
    pub fn new(events: usize, now: Time, group: u64) -> Self {
        Demand { events, now, group }
    }
}

/// Every iterator is a source.
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

/// What a program may return when asked to open a source: a [`Source`], any iterator, or a
/// `Result` of either. `Marker` is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no source of events",
    note = "return an iterator, a `Source`, or a `Result` of one"
)]
pub trait IntoSource<Marker> {
    /// The source it becomes.
    type Source: Source;
    /// Becomes a source.
    ///
    /// # Errors
    /// Whatever kept it from being opened.
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
