//! The futures of events, and how stages that wait become handlers. Before: `mod.rs`. After: the runtime,
//! which polls, and keeps what waits.
//! Invariant: a flight holds the future of one event, or none; it is used again for the next.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{Allow, AsyncCx, AsyncStage, AsyncStageMut, Emissions, Exchange};
use crate::error::Result;
use crate::keyed::{Keys, LaneRef};
use crate::kind::{self, Kind};
use crate::port::Ports;
use crate::stage::{Cx, Handler, IntoStage};

/// An event that is handled by a future; used again for the next one when it has ended.
pub trait Flight<T, P>: Send {
    /// Begins with an event; one that was begun before has ended.
    fn begin(&mut self, event: T, cx: AsyncCx);

    /// Polls the future. What it sent goes to `out` when it is ready.
    fn poll(&mut self, waker: &Waker, out: &mut P) -> Poll<Result>;

    /// Moves what the handler flushed to `out`. Returns whether it did flush.
    fn take_flushed(&mut self, out: &mut P) -> bool;
}

/// The one kind of [`Flight`]: `make` begins the future.
struct FlightOf<M, F, P: Ports> {
    make: M,
    /// Boxed, so that it does not move; kept for the next event.
    future: Pin<Box<Option<F>>>,
    emissions: Option<Emissions<P>>,
    exchange: Arc<Exchange<P>>,
    flushes: bool,
}

impl<T, P, M, F> Flight<T, P> for FlightOf<M, F, P>
where
    P: Ports,
    M: Fn(T, Emissions<P>, AsyncCx) -> F + Send,
    F: Future<Output = (Emissions<P>, Result)> + Send,
{
    fn begin(&mut self, event: T, cx: AsyncCx) {
        let mut emissions = self.emissions.take().unwrap_or_else(|| {
            let new = Emissions::new(self.flushes);
            self.exchange = new.0.exchange.clone();
            new
        });
        emissions.allow(cx.emit_max);
        self.future.as_mut().set(None);
        let future = (self.make)(event, emissions, cx);
        self.future.as_mut().set(Some(future));
    }

    fn poll(&mut self, waker: &Waker, out: &mut P) -> Poll<Result> {
        let Some(future) = self.future.as_mut().as_pin_mut() else { return Poll::Ready(Ok(())) };
        let Poll::Ready((mut emissions, result)) = future.poll(&mut Context::from_waker(waker))
        else {
            return Poll::Pending;
        };
        self.future.as_mut().set(None);
        let flushed = self.exchange.lock().ports.take(); // by a flush that was not waited for
        if let Some(mut flushed) = flushed {
            out.append(&mut flushed);
        }
        out.append(&mut emissions.0.ports);
        self.emissions = Some(emissions);
        Poll::Ready(result)
    }

    fn take_flushed(&mut self, out: &mut P) -> bool {
        let flushed = self.exchange.lock().ports.take();
        flushed.is_some_and(|mut flushed| {
            out.each(&mut Allow(usize::MAX)); // it was found not to be too much when it was flushed
            out.append(&mut flushed);
            true
        })
    }
}

pub(super) fn flight<T, P, M, F>(flushes: bool, make: M) -> Box<dyn Flight<T, P>>
where
    T: Send + 'static,
    P: Ports,
    M: Fn(T, Emissions<P>, AsyncCx) -> F + Send + 'static,
    F: Future<Output = (Emissions<P>, Result)> + Send + 'static,
{
    let emissions = Emissions::new(flushes);
    let exchange = emissions.0.exchange.clone();
    let future = Box::pin(None);
    Box::new(FlightOf { make, future, emissions: Some(emissions), exchange, flushes })
}

/// What makes the flights of a stage.
pub trait Waits: Clone + Send + Sync + 'static {
    /// What it takes.
    type In: Send + 'static;
    /// Where it sends.
    type Ports: Ports;
    /// One event at a time.
    const STATEFUL: bool;
    /// As [`AsyncStage::FLUSHES`].
    const FLUSHES: bool;
    /// As [`Handler::Kind`].
    type Kind: Kind<Item = Self::In, Ports = Self::Ports>;

    /// As [`Handler::keys`].
    fn keys(&self) -> Option<Arc<dyn Keys<Self::In>>> {
        None
    }

    /// The state of a lane has expired: it is dropped.
    fn expire(&self, lane: &LaneRef) {
        let _ = lane;
    }

    /// A new flight.
    fn flight(&self) -> Box<dyn Flight<Self::In, Self::Ports>>;

    /// As [`Stage::finish`](crate::stage::Stage::finish).
    ///
    /// # Errors
    /// As there.
    fn finish(&mut self, out: &mut Self::Ports, cx: &Cx) -> Result {
        let _ = (out, cx);
        Ok(())
    }
}

/// A stage that several futures share.
pub struct Shared<S>(Arc<S>);

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<S> fmt::Debug for Shared<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl<S: AsyncStage> Waits for Shared<S> {
    type In = S::In;
    type Ports = S::Ports;
    type Kind = kind::Waiting<S::In, S::Ports>;
    const STATEFUL: bool = false;
    const FLUSHES: bool = S::FLUSHES;

    fn flight(&self) -> Box<dyn Flight<S::In, S::Ports>> {
        let stage = self.0.clone();
        flight(S::FLUSHES, move |event, mut out: Emissions<S::Ports>, cx: AsyncCx| {
            let stage = stage.clone();
            async move {
                let result = stage.handle(event, &mut out, &cx).await;
                (out, result)
            }
        })
    }
}

/// A stage that one future has at a time, and that comes back when the future is dropped.
pub struct Lent<S>(Arc<Mutex<Option<S>>>);

impl<S> Clone for Lent<S> {
    fn clone(&self) -> Self {
        Lent(self.0.clone())
    }
}

impl<S> fmt::Debug for Lent<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lent")
    }
}

impl<S> Lent<S> {
    fn lock(&self) -> MutexGuard<'_, Option<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Loan<S> {
    stage: Option<S>,
    of: Lent<S>,
}

impl<S> Drop for Loan<S> {
    fn drop(&mut self) {
        let stage = self.stage.take();
        let before = std::mem::replace(&mut *self.of.lock(), stage);
        drop(before); // none: it was lent
    }
}

const LENT: &str = "one event at a time: the stage is back when the next one begins";

impl<S: AsyncStageMut> Waits for Lent<S> {
    type In = S::In;
    type Ports = S::Ports;
    type Kind = kind::Waiting<S::In, S::Ports>;
    const STATEFUL: bool = true;
    const FLUSHES: bool = S::FLUSHES;

    fn flight(&self) -> Box<dyn Flight<S::In, S::Ports>> {
        let of = self.clone();
        flight(S::FLUSHES, move |event, mut out: Emissions<S::Ports>, cx: AsyncCx| {
            let stage = of.lock().take();
            let mut loan = Loan { stage, of: of.clone() };
            async move {
                let stage = loan.stage.as_mut().expect(LENT);
                let result = stage.handle(event, &mut out, &cx).await;
                drop(loan);
                (out, result)
            }
        })
    }

    fn finish(&mut self, out: &mut S::Ports, cx: &Cx) -> Result {
        let stage = self.lock().take();
        stage.map_or(Ok(()), |mut stage| stage.finish(out, cx))
    }
}

/// A handler that waits, as the runtime calls it.
pub struct Waiting<W: Waits> {
    stage: W,
    /// Flights that are not in use. A mutex for the sake of `Sync`: it is never locked.
    spare: Mutex<Spare<W>>,
}

type Spare<W> = Vec<Box<dyn Flight<<W as Waits>::In, <W as Waits>::Ports>>>;

/// Flights that an instance keeps for the next events: those of a burst, which end together and make room for as
/// many.
const SPARE_MAX: usize = 256;

impl<W: Waits> Waiting<W> {
    pub(super) fn new(stage: W) -> Self {
        Waiting { stage, spare: Mutex::default() }
    }

    fn spare(&mut self) -> &mut Spare<W> {
        self.spare.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Waits> Clone for Waiting<W> {
    fn clone(&self) -> Self {
        Waiting::new(self.stage.clone())
    }
}

impl<W: Waits> fmt::Debug for Waiting<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiting")
    }
}

impl<W: Waits> Handler for Waiting<W> {
    type Item = W::In;
    type Ports = W::Ports;
    type Kind = W::Kind;
    const STATEFUL: bool = W::STATEFUL;
    const TAKES: bool = true;
    const FLUSHES: bool = W::FLUSHES;

    fn init(&mut self, _: &Cx) -> Result {
        Ok(())
    }

    fn keys(&self) -> Option<Arc<dyn Keys<W::In>>> {
        self.stage.keys()
    }

    fn call(&mut self, slots: &mut [Option<W::In>], out: &mut W::Ports, cx: &Cx) -> Result {
        self.begin(AsyncCx::of(cx), slots, out, cx)
    }

    fn call_in(
        &mut self,
        lane: &LaneRef,
        slots: &mut [Option<W::In>],
        out: &mut W::Ports,
        cx: &Cx,
    ) -> Result {
        self.begin(AsyncCx::of(cx).in_lane(lane.clone()), slots, out, cx)
    }

    fn expire(&mut self, lane: &LaneRef, _: &mut W::Ports, _: &Cx) -> Result {
        self.stage.expire(lane);
        Ok(())
    }

    fn take_flight(&mut self) -> Option<Box<dyn Flight<W::In, W::Ports>>> {
        self.spare().pop()
    }

    fn put_by(&mut self, flight: Box<dyn Flight<W::In, W::Ports>>) {
        if self.spare().len() < SPARE_MAX {
            self.spare().push(flight);
        }
    }

    fn finish(&mut self, out: &mut W::Ports, cx: &Cx) -> Result {
        self.stage.finish(out, cx)
    }
}

impl<W: Waits> Waiting<W> {
    /// Begins with an event, and polls its future once.
    #[inline]
    fn begin(
        &mut self,
        of: AsyncCx,
        slots: &mut [Option<W::In>],
        out: &mut W::Ports,
        cx: &Cx,
    ) -> Result {
        let Some(event) = slots[0].take() else { return Ok(()) };
        let spare = self.spare().pop();
        let mut flight = spare.unwrap_or_else(|| self.stage.flight());
        flight.begin(event, of);
        match cx.with_waker(|waker| flight.poll(waker, out)) {
            Poll::Ready(result) => {
                self.put_by(flight);
                cx.note_quit();
                result
            }
            Poll::Pending => {
                self.spare().push(flight);
                cx.set_waiting(true);
                Ok(())
            }
        }
    }
}

/// Marks types that implement [`AsyncStage`].
#[derive(Debug)]
pub struct IsAsync;

impl<S: AsyncStage> IntoStage<IsAsync> for S {
    type Handler = Waiting<Shared<S>>;
    fn into_handler(self) -> Self::Handler {
        Waiting::new(Shared(Arc::new(self)))
    }
}

/// Marks types that implement [`AsyncStageMut`].
#[derive(Debug)]
pub struct IsAsyncMut;

impl<S: AsyncStageMut> IntoStage<IsAsyncMut> for S {
    type Handler = Waiting<Lent<S>>;
    fn into_handler(self) -> Self::Handler {
        Waiting::new(Lent(Arc::new(Mutex::new(Some(self)))))
    }
}
