//! Prepare: a step for each event of a keyed stage that needs no order, such as decoding it. It is made ahead, for several
//! events at once, in an ordered stage in front of the keyed one. Before: the runtime's `App::prepared`. After: `handler`.
//!
//! Invariants: an event comes to its lane whether its step succeeded ahead or not. One whose step did not, or whose
//! value a failed call has used up, is prepared in its lane: there the step fails as the handler does.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{EventTime, KeyedCx, KeyedStage};
use crate::error::Result;
use crate::event::{Ev, Time};
use crate::port::Out;
use crate::stage::{Cx, Stage};

/// An event on its way to a keyed stage, with what was prepared of it.
///
/// Only the event is copied, written and read: a copy is prepared again.
pub struct Prepared<I, P> {
    event: I,
    value: Option<P>,
}

impl<I, P> Prepared<I, P> {
    /// Creates an event of which nothing has been prepared: its stage does so.
    #[must_use]
    pub fn new(event: I) -> Self {
        Prepared { event, value: None }
    }

    /// Returns the event as it came.
    #[must_use]
    pub fn event(&self) -> &I {
        &self.event
    }

    /// Returns the event as it came.
    #[must_use]
    pub fn into_event(self) -> I {
        self.event
    }

    /// Makes the step ahead. A failure is left to the lane of the event, where it has its place in the order.
    fn ahead(event: I, prepare: impl Fn(&I) -> Result<P>) -> Self {
        let value = match catch_unwind(AssertUnwindSafe(|| prepare(&event))) {
            Ok(Ok(value)) => Some(value),
            Ok(Err(error)) => {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(error)));
                None
            }
            Err(panic) => {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
                None
            }
        };
        Prepared { event, value }
    }
}

impl<I: Clone, P> Clone for Prepared<I, P> {
    fn clone(&self) -> Self {
        Prepared::new(self.event.clone())
    }
}

impl<I: fmt::Debug, P> fmt::Debug for Prepared<I, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Prepared").field(&self.event).finish()
    }
}

impl<I: Serialize, P> Serialize for Prepared<I, P> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.event.serialize(serializer)
    }
}

impl<'de, I: Deserialize<'de>, P> Deserialize<'de> for Prepared<I, P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        I::deserialize(deserializer).map(Prepared::new)
    }
}

/// The stage that makes the step ahead. It fails no event.
pub struct Ahead<I, P, PF> {
    prepare: PF,
    of: PhantomData<fn(I) -> P>,
}

impl<I, P, PF> Ahead<I, P, PF> {
    /// A stage that makes this step.
    pub fn new(prepare: PF) -> Self {
        Ahead { prepare, of: PhantomData }
    }
}

impl<I, P, PF: Clone> Clone for Ahead<I, P, PF> {
    fn clone(&self) -> Self {
        Ahead::new(self.prepare.clone())
    }
}

impl<I, P, PF> fmt::Debug for Ahead<I, P, PF> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ahead")
    }
}

impl<I, P, PF> Stage for Ahead<I, P, PF>
where
    I: Send + 'static,
    P: Send + 'static,
    PF: Fn(&I) -> Result<P> + Send + 'static,
{
    type In = I;
    type Ports = Out<Prepared<I, P>>;

    fn handle(&mut self, event: Ev<'_, I>, out: &mut Self::Ports, _: &Cx) -> Result {
        out.send(Prepared::ahead(event.take(), &self.prepare));
        Ok(())
    }
}

/// A keyed stage whose events are prepared.
pub struct Preparing<S, I, KF, PF> {
    stage: S,
    key: KF,
    prepare: PF,
    of: PhantomData<fn(I)>,
}

impl<S, I, KF, PF> Preparing<S, I, KF, PF> {
    /// The stage, the key of an event as it comes, and the step.
    pub fn new(stage: S, key: KF, prepare: PF) -> Self {
        Preparing { stage, key, prepare, of: PhantomData }
    }
}

impl<S: Clone, I, KF: Clone, PF: Clone> Clone for Preparing<S, I, KF, PF> {
    fn clone(&self) -> Self {
        Preparing::new(self.stage.clone(), self.key.clone(), self.prepare.clone())
    }
}

impl<S, I, KF, PF> fmt::Debug for Preparing<S, I, KF, PF> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Preparing")
    }
}

impl<S, I, KF, PF> KeyedStage for Preparing<S, I, KF, PF>
where
    S: KeyedStage,
    I: Send + 'static,
    KF: Fn(&I) -> S::Key + Clone + Send + Sync + 'static,
    PF: Fn(&I) -> Result<S::In> + Clone + Send + Sync + 'static,
{
    type In = Prepared<I, S::In>;
    type Key = S::Key;
    type State = S::State;
    type Ports = S::Ports;
    const BOUNDS_ITSELF: bool = S::BOUNDS_ITSELF;

    fn key(&self, event: &Self::In) -> S::Key {
        (self.key)(&event.event)
    }

    fn weight(&self, key: &S::Key) -> NonZeroU32 {
        self.stage.weight(key)
    }

    fn key_name(&self, key: &S::Key) -> Option<String> {
        self.stage.key_name(key)
    }

    fn event_time(&self) -> Option<EventTime> {
        self.stage.event_time()
    }

    fn time(&self, event: &Self::In) -> Option<Time> {
        event.value.as_ref().and_then(|value| self.stage.time(value))
    }

    fn init(&mut self, cx: &Cx) -> Result {
        self.stage.init(cx)
    }

    fn handle(
        &mut self,
        state: &mut S::State,
        mut event: Ev<'_, Self::In>,
        out: &mut S::Ports,
        cx: &KeyedCx<'_, S::Key>,
    ) -> Result {
        let Prepared { event, value } = &mut *event;
        if value.is_none() {
            *value = Some((self.prepare)(event)?);
        }
        self.stage.handle(state, Ev::lend_of(value, cx.origin()), out, cx)
    }

    fn timer(
        &mut self,
        state: &mut S::State,
        at: Time,
        out: &mut S::Ports,
        cx: &KeyedCx<'_, S::Key>,
    ) -> Result {
        self.stage.timer(state, at, out, cx)
    }

    fn event_timer(
        &mut self,
        state: &mut S::State,
        at: Time,
        out: &mut S::Ports,
        cx: &KeyedCx<'_, S::Key>,
    ) -> Result {
        self.stage.event_timer(state, at, out, cx)
    }

    fn expired(&mut self, state: S::State, out: &mut S::Ports, cx: &KeyedCx<'_, S::Key>) -> Result {
        self.stage.expired(state, out, cx)
    }

    fn finish(&mut self, state: S::State, out: &mut S::Ports, cx: &KeyedCx<'_, S::Key>) -> Result {
        self.stage.finish(state, out, cx)
    }
}
