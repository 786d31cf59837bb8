//! Handlers that wait, with state for each key. Before: `mod.rs`, `keyed`. After: `flight`, which polls their futures.
//! Invariant: the state is with the future of one event, or in its lane, where it is back when the future is dropped.

use std::fmt;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::flight::{Flight, Waiting, Waits, flight};
use super::{AsyncCx, Emissions};
use crate::error::Result;
use crate::keyed::{Keying, Keys, KeysBy, LaneRef, OwnedLoan};
use crate::kind;
use crate::port::Ports;
use crate::stage::IntoStage;

/// An event handler that waits without holding a thread, with state for each key: [`AsyncStage`](super::AsyncStage) and
/// [`KeyedStage`](crate::keyed::KeyedStage) in one.
///
/// Events with one key are handled in the order of their arrival, one after the other, across awaits and retries. Events
/// of different keys wait side by side, up to `instances` of the plan.
///
/// ```
/// # mod comporta { pub use comporta_model::{async_stage::{AsyncCx, AsyncKeyedStage, Emissions}, error::Result, port::Out}; }
/// use std::time::Duration;
/// use comporta::{AsyncCx, AsyncKeyedStage, Emissions, Out, Result};
///
/// /// Lets each user through once a second.
/// struct Calm;
///
/// impl AsyncKeyedStage for Calm {
///     type In = String;
///     type Key = String;
///     type State = u64;
///     type Ports = Out<(String, u64)>;
///
///     fn key(&self, user: &String) -> String {
///         user.clone()
///     }
///
///     async fn handle(
///         &self,
///         visits: &mut u64,
///         user: String,
///         out: &mut Emissions<Self::Ports>,
///         cx: &AsyncCx,
///     ) -> Result {
///         if *visits > 0 {
///             cx.sleep(Duration::from_secs(1)).await;
///         }
///         *visits += 1;
///         out.send((user, *visits));
///         Ok(())
///     }
/// }
/// ```
///
/// `app.stage("calm", Calm)` makes it a stage of a program. Its state is dropped at the end.
pub trait AsyncKeyedStage: Send + Sync + 'static {
    /// The type of its events.
    type In: Send + 'static;
    /// What events have in common that must be handled in order.
    type Key: Hash + Eq + Send + Sync + 'static;
    /// What is kept for each key.
    type State: Default + Send + 'static;
    /// Where it sends: `()`, `Out<T>`, or a struct with `#[derive(Ports)]`.
    type Ports: Ports;

    /// Returns the key of an event. It is called once for each event, by whoever sends it.
    fn key(&self, event: &Self::In) -> Self::Key;

    /// As [`KeyedStage::weight`](crate::keyed::KeyedStage::weight).
    fn weight(&self, key: &Self::Key) -> NonZeroU32 {
        let _ = key;
        NonZeroU32::MIN
    }

    /// Handles one event. A panic or an error costs this event only; the state stays as the call left it. The future may
    /// be dropped at any `await`, as that of [`AsyncStage::handle`](super::AsyncStage::handle).
    ///
    /// # Errors
    /// Whatever keeps this event from being handled.
    fn handle(
        &self,
        state: &mut Self::State,
        event: Self::In,
        out: &mut Emissions<Self::Ports>,
        cx: &AsyncCx,
    ) -> impl Future<Output = Result> + Send;
}

/// A keyed stage that several futures share, and its keys.
pub struct SharedKeyed<S: AsyncKeyedStage> {
    stage: Arc<S>,
    keys: Arc<dyn Keys<S::In>>,
}

impl<S: AsyncKeyedStage> Clone for SharedKeyed<S> {
    fn clone(&self) -> Self {
        SharedKeyed { stage: self.stage.clone(), keys: self.keys.clone() }
    }
}

impl<S: AsyncKeyedStage> fmt::Debug for SharedKeyed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKeyed")
    }
}

impl<S: AsyncKeyedStage> Waits for SharedKeyed<S> {
    type In = S::In;
    type Ports = S::Ports;
    type Kind = kind::KeyedWaiting<S::In, S::Ports>;
    const STATEFUL: bool = false;
    const FLUSHES: bool = false;

    fn keys(&self) -> Option<Arc<dyn Keys<S::In>>> {
        Some(self.keys.clone())
    }

    fn expire(&self, lane: &LaneRef) {
        drop(OwnedLoan::<S::Key, S::State>::new(lane.clone()).take());
    }

    fn flight(&self) -> Box<dyn Flight<S::In, S::Ports>> {
        let SharedKeyed { stage, keys } = self.clone();
        flight(false, move |event, mut out: Emissions<S::Ports>, mut cx: AsyncCx| {
            let stage = stage.clone();
            let lane: LaneRef = cx.take_lane().unwrap_or_else(|| keys.lane_of(&event));
            async move {
                let mut loan = OwnedLoan::<S::Key, S::State>::new(lane);
                let result = stage.handle(loan.state(), event, &mut out, &cx).await;
                drop(loan);
                (out, result)
            }
        })
    }
}

/// What the stage says of its keys.
struct KeysOf<S>(Arc<S>);

impl<S: AsyncKeyedStage> Keying<S::In, S::Key> for KeysOf<S> {
    fn key(&self, event: &S::In) -> S::Key {
        self.0.key(event)
    }

    fn weight(&self, key: &S::Key) -> NonZeroU32 {
        self.0.weight(key)
    }
}

/// Marks types that implement [`AsyncKeyedStage`].
#[derive(Debug)]
pub struct IsAsyncKeyed;

impl<S: AsyncKeyedStage> IntoStage<IsAsyncKeyed> for S {
    type Handler = Waiting<SharedKeyed<S>>;
    fn into_handler(self) -> Self::Handler {
        let stage = Arc::new(self);
        let keys = KeysBy::<S::In, S::Key, S::State, _>::new(KeysOf(stage.clone()));
        Waiting::new(SharedKeyed { stage, keys: Arc::new(keys) })
    }
}
