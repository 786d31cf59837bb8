//! Closures that filter, or may fail: the stages behind `App::filter`, `App::try_map` and
//! `App::try_flat_map`. Those that cannot fail are in [`stage`](crate::stage).
//! Invariant: a closure that borrows its event leaves it in its slot if it fails, so that the event
//! can be retried and replayed.

use std::fmt;
use std::marker::PhantomData;

use crate::error::Result;
use crate::event::Ev;
use crate::port::Out;
use crate::stage::{Cx, Many, One, Stage};

/// A closure that says of a borrowed event whether it is sent on.
pub struct Filtered<F, I> {
    keep: F,
    of: PhantomData<fn(I)>,
}

impl<F, I> Filtered<F, I> {
    /// The closure as a stage.
    pub fn new(keep: F) -> Self {
        Filtered { keep, of: PhantomData }
    }
}

impl<F: Clone, I> Clone for Filtered<F, I> {
    fn clone(&self) -> Self {
        Filtered::new(self.keep.clone())
    }
}

impl<F, I> fmt::Debug for Filtered<F, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filtered")
    }
}

impl<F, I> Stage for Filtered<F, I>
where
    F: FnMut(&I) -> bool + Send + 'static,
    I: Send + 'static,
{
    type In = I;
    type Ports = Out<I>;
    #[inline]
    fn handle(&mut self, event: Ev<'_, I>, out: &mut Out<I>, _: &Cx) -> Result {
        if (self.keep)(&event) {
            out.send(event.take());
        }
        Ok(())
    }
}

/// A closure that takes an event and returns what to send, or an error.
pub struct TryMapped<F, I, O, Shape> {
    call: F,
    of: PhantomData<fn(I) -> (O, Shape)>,
}

impl<F, I, O, Shape> TryMapped<F, I, O, Shape> {
    /// The closure as a stage.
    pub fn new(call: F) -> Self {
        TryMapped { call, of: PhantomData }
    }
}

impl<F: Clone, I, O, Shape> Clone for TryMapped<F, I, O, Shape> {
    fn clone(&self) -> Self {
        TryMapped::new(self.call.clone())
    }
}

impl<F, I, O, Shape> fmt::Debug for TryMapped<F, I, O, Shape> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TryMapped")
    }
}

impl<F, I, O> Stage for TryMapped<F, I, O, One>
where
    F: FnMut(I) -> Result<O> + Send + 'static,
    I: Send + 'static,
    O: Send + 'static,
{
    type In = I;
    type Ports = Out<O>;
    const TAKES: bool = true;
    #[inline]
    fn handle(&mut self, event: Ev<'_, I>, out: &mut Out<O>, _: &Cx) -> Result {
        out.send((self.call)(event.take())?);
        Ok(())
    }
}

impl<F, I, O> Stage for TryMapped<F, I, O, Many>
where
    F: FnMut(I) -> Result<O> + Send + 'static,
    I: Send + 'static,
    O: IntoIterator + 'static,
    O::Item: Send + 'static,
{
    type In = I;
    type Ports = Out<O::Item>;
    const TAKES: bool = true;
    #[inline]
    fn handle(&mut self, event: Ev<'_, I>, out: &mut Out<O::Item>, _: &Cx) -> Result {
        for emitted in (self.call)(event.take())? {
            out.send(emitted);
        }
        Ok(())
    }
}
