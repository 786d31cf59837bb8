//! Stages of closures that return futures: for `App::map_async` and its kin. Before: `mod.rs`.

use std::fmt;
use std::marker::PhantomData;

use super::{AsyncCx, AsyncStage, Emissions};
use crate::error::{Outcome, Result};
use crate::port::Out;

/// A closure that returns a future: `Shape` says what is done with its result.
pub struct WaitingFn<F, I, Fut, Shape> {
    call: F,
    of: PhantomData<fn(I) -> (Fut, Shape)>,
}

impl<F, I, Fut, Shape> WaitingFn<F, I, Fut, Shape> {
    /// The closure as a stage.
    pub fn new(call: F) -> Self {
        WaitingFn { call, of: PhantomData }
    }
}

impl<F, I, Fut, Shape> fmt::Debug for WaitingFn<F, I, Fut, Shape> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WaitingFn")
    }
}

/// What the future returns is sent.
#[derive(Debug)]
pub struct SendsResult;
/// What the future returns is sent, unless it is an error.
#[derive(Debug)]
pub struct TriesResult;
/// Nothing is sent.
#[derive(Debug)]
pub struct SendsNothing;

impl<F, I, O, Fut> AsyncStage for WaitingFn<F, I, Fut, SendsResult>
where
    F: Fn(I) -> Fut + Send + Sync + 'static,
    I: Send + 'static,
    O: Send + 'static,
    Fut: Future<Output = O> + Send + 'static,
{
    type In = I;
    type Ports = Out<O>;

    fn handle(
        &self,
        event: I,
        out: &mut Emissions<Out<O>>,
        _: &AsyncCx,
    ) -> impl Future<Output = Result> + Send {
        let result = (self.call)(event);
        async move {
            out.send(result.await);
            Ok(())
        }
    }
}

impl<F, I, O, Fut> AsyncStage for WaitingFn<F, I, Fut, TriesResult>
where
    F: Fn(I) -> Fut + Send + Sync + 'static,
    I: Send + 'static,
    O: Send + 'static,
    Fut: Future<Output = Result<O>> + Send + 'static,
{
    type In = I;
    type Ports = Out<O>;

    fn handle(
        &self,
        event: I,
        out: &mut Emissions<Out<O>>,
        _: &AsyncCx,
    ) -> impl Future<Output = Result> + Send {
        let result = (self.call)(event);
        async move {
            out.send(result.await?);
            Ok(())
        }
    }
}

impl<F, I, R, Fut> AsyncStage for WaitingFn<F, I, Fut, SendsNothing>
where
    F: Fn(I) -> Fut + Send + Sync + 'static,
    I: Send + 'static,
    R: Outcome + 'static,
    Fut: Future<Output = R> + Send + 'static,
{
    type In = I;
    type Ports = ();

    fn handle(
        &self,
        event: I,
        _: &mut Emissions<()>,
        _: &AsyncCx,
    ) -> impl Future<Output = Result> + Send {
        let result = (self.call)(event);
        async move { result.await.into_result() }
    }
}
