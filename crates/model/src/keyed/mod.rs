//! Keyed stages: events with one key are handled in order, one at a time, and those of different keys side by side.
//!
//! 1. this file: what a program implements ([`KeyedStage`]), and what the runtime asks of it ([`Keys`]);
//! 2. `directory`: which lane a key has;
//! 3. `lane`: one key, with its state and timers;
//! 4. `handler`: how a keyed stage becomes a handler (`stage::Handler`) that the runtime calls.
//!
//! Invariant: keys are computed, hashed and compared off every lock, since all three are the program's code.

mod directory;
mod lane;
mod handler;

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::Deref;

pub use handler::{IsKeyed, Keyed, KeyedFn};
pub use lane::{LaneRef, OwnedLoan};

use crate::error::Result;
use crate::event::{Ev, Time};
use crate::port::Ports;
use crate::stage::Cx;
use directory::Directory;

/// An event handler with state for each key.
///
/// Events with one key are handled in the order of their arrival and never two at once, across retries too; events
/// of different keys run side by side, as many as the plan has instances and threads. A key that fails, waits or
/// does not return holds up no other key.
///
/// ```
/// # mod comporta { pub use comporta_model::{error::Result, event::Ev, keyed::{KeyedCx, KeyedStage}, port::Out}; }
/// use comporta::{Ev, KeyedCx, KeyedStage, Out, Result};
///
/// /// Numbers the visits of each user.
/// #[derive(Clone)]
/// struct Visits;
///
/// impl KeyedStage for Visits {
///     type In = String;
///     type Key = String;
///     type State = u64;
///     type Ports = Out<(String, u64)>;
///
///     fn key(&self, user: &String) -> String {
///         user.clone()
///     }
///
///     fn handle(
///         &mut self,
///         visits: &mut u64,
///         user: Ev<'_, String>,
///         out: &mut Self::Ports,
///         _cx: &KeyedCx<'_, String>,
///     ) -> Result {
///         *visits += 1;
///         out.send((user.take(), *visits));
///         Ok(())
///     }
/// }
/// ```
///
/// `app.stage("visits", Visits)` adds it to a program; `app.keyed(name, key, |state, event, out| ...)` is the short
/// form. A key without state costs nothing while it has no events. A key with state costs the state and some
/// hundred bytes, until the state is [forgotten](KeyedCx::forget) or expires (`idle` and `keys_max` of the plan).
pub trait KeyedStage: Clone + Send + Sync + 'static {
    /// The type of its events.
    type In: Send + 'static;
    /// What events have in common that must be handled in order.
    type Key: Hash + Eq + Send + Sync + 'static;
    /// What is kept for each key.
    type State: Default + Send + 'static;
    /// Where it sends: `()`, `Out<T>`, or a struct with `#[derive(Ports)]`.
    type Ports: Ports;

    /// As [`Stage::TAKES`](crate::stage::Stage::TAKES).
    const TAKES: bool = false;

    /// Returns the key of an event. It is called once for each event, by whoever sends it.
    fn key(&self, event: &Self::In) -> Self::Key;

    /// Returns how many events of a key a round serves: 1, unless some keys are to have a larger share. It is called
    /// when the key appears.
    fn weight(&self, key: &Self::Key) -> NonZeroU32 {
        let _ = key;
        NonZeroU32::MIN
    }

    /// Called before the first event of an instance.
    ///
    /// # Errors
    /// An error keeps the program from starting.
    fn init(&mut self, cx: &Cx) -> Result {
        let _ = cx;
        Ok(())
    }

    /// Handles an event. A panic or an error costs this event only: what the call sent, and the timers it set, are
    /// withdrawn, and the event is retried or kept with the reason. The state stays as the call left it.
    ///
    /// # Errors
    /// An error fails the event.
    fn handle(
        &mut self,
        state: &mut Self::State,
        event: Ev<'_, Self::In>,
        out: &mut Self::Ports,
        cx: &KeyedCx<'_, Self::Key>,
    ) -> Result;

    /// Called when a timer that was [set](KeyedCx::set_timer) for `at` is due, and no event of its key is being handled.
    ///
    /// # Errors
    /// An error is reported as a problem of the run; what the call sent is withdrawn.
    fn timer(
        &mut self,
        state: &mut Self::State,
        at: Time,
        out: &mut Self::Ports,
        cx: &KeyedCx<'_, Self::Key>,
    ) -> Result {
        let _ = (state, at, out, cx);
        Ok(())
    }

    /// Called with the state of a key that has had no event for as long as the plan's `idle`, or that had to make room for
    /// others under `keys_max`.
    ///
    /// # Errors
    /// An error is reported as a problem of the run; what the call sent is withdrawn.
    fn expired(
        &mut self,
        state: Self::State,
        out: &mut Self::Ports,
        cx: &KeyedCx<'_, Self::Key>,
    ) -> Result {
        let _ = (state, out, cx);
        Ok(())
    }

    /// Called with the state of each key after the last event of the stage.
    ///
    /// # Errors
    /// An error is reported as a problem of the run; what the call sent is withdrawn.
    fn finish(
        &mut self,
        state: Self::State,
        out: &mut Self::Ports,
        cx: &KeyedCx<'_, Self::Key>,
    ) -> Result {
        let _ = (state, out, cx);
        Ok(())
    }
}

/// The context of a handler of a keyed stage: that of its instance ([`Cx`]), the key, and its timers.
pub struct KeyedCx<'a, K> {
    cx: &'a Cx,
    key: &'a K,
    /// Timers to be set, or taken back, if the call succeeds.
    timers: RefCell<Vec<(Time, bool)>>,
    forget: Cell<bool>,
}

impl<'a, K> KeyedCx<'a, K> {
    fn new(cx: &'a Cx, key: &'a K) -> Self {
        KeyedCx { cx, key, timers: RefCell::default(), forget: Cell::new(false) }
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &'a K {
        self.key
    }

    /// Has [`KeyedStage::timer`] called for this key at `at`. Two timers of a key for the same moment are one. A key with
    /// a timer is kept as one with state is.
    pub fn set_timer(&self, at: Time) {
        self.timers.borrow_mut().push((at, true));
    }

    /// Takes a timer back; one that is not set is ignored.
    pub fn clear_timer(&self, at: Time) {
        self.timers.borrow_mut().push((at, false));
    }

    /// Forgets the state of this key, and its timers, when the call has returned. The next event of the key finds a
    /// new one.
    pub fn forget(&self) {
        self.forget.set(true);
    }
}

impl<K> Deref for KeyedCx<'_, K> {
    type Target = Cx;
    fn deref(&self) -> &Cx {
        self.cx
    }
}

impl<K> fmt::Debug for KeyedCx<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyedCx").field(self.cx).finish()
    }
}

/// The keys of a stage, without their types.
pub trait AnyKeys: Send + Sync {
    /// The lane of a key, if the key is of the right type and has one. It calls the program's code.
    fn find(&self, key: &dyn Any) -> Option<LaneRef>;

    /// The lane of a key, made if there is none, if the key is of the right type. It calls the program's code.
    fn lane(&self, key: Box<dyn Any>) -> Option<LaneRef>;

    /// The types of keys and of their state.
    fn types(&self) -> (TypeId, TypeId);

    /// The number of keys that have events or state.
    fn count(&self) -> usize;
}

/// The keys of a stage that takes `T`, without their types.
pub trait Keys<T>: AnyKeys {
    /// The lane of an event. It calls the program's code; if that panics, the event belongs to
    /// [`keyless`](Self::keyless).
    fn lane_of(&self, event: &T) -> LaneRef;

    /// The lane of events whose key cannot be had.
    fn keyless(&self) -> LaneRef;

    /// A lane has no events any more: it is forgotten unless it has state. Drops what the program made.
    fn retire(&self, lane: LaneRef);

    /// Takes out some lanes, for good. Returns `false` if there are none.
    fn take_some(&self, into: &mut Vec<LaneRef>) -> bool;
}

/// [`Keys`] by a function.
pub struct KeysBy<T, K, S, F, W> {
    key: F,
    weight: W,
    directory: Directory<K, S>,
    keyless: LaneRef,
    of: PhantomData<fn(T)>,
}

impl<T, K: Hash + Eq, S, F, W> KeysBy<T, K, S, F, W> {
    pub(crate) fn new(key: F, weight: W) -> Self {
        let (directory, keyless) = (Directory::new(), LaneRef::keyless());
        KeysBy { key, weight, directory, keyless, of: PhantomData }
    }
}

impl<T, K, S, F, W> fmt::Debug for KeysBy<T, K, S, F, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeysBy")
    }
}

impl<T, K, S, F, W> Keys<T> for KeysBy<T, K, S, F, W>
where
    K: Hash + Eq + Send + Sync + 'static,
    S: Send + 'static,
    F: Fn(&T) -> K + Send + Sync,
    W: Fn(&K) -> NonZeroU32 + Send + Sync,
{
    fn lane_of(&self, event: &T) -> LaneRef {
        LaneRef::of(self.directory.lane((self.key)(event), &self.weight))
    }

    fn keyless(&self) -> LaneRef {
        self.keyless.clone()
    }

    fn retire(&self, lane: LaneRef) {
        self.directory.retire(lane);
    }

    fn take_some(&self, into: &mut Vec<LaneRef>) -> bool {
        self.directory.take_some().map(|lanes| into.extend(lanes)).is_some()
    }
}

impl<T, K, S, F, W> AnyKeys for KeysBy<T, K, S, F, W>
where
    K: Hash + Eq + Send + Sync + 'static,
    S: Send + 'static,
    F: Send + Sync,
    W: Fn(&K) -> NonZeroU32 + Send + Sync,
{
    fn find(&self, key: &dyn Any) -> Option<LaneRef> {
        self.directory.find(key.downcast_ref()?).map(LaneRef::of)
    }

    fn lane(&self, key: Box<dyn Any>) -> Option<LaneRef> {
        let key = key.downcast().ok()?;
        Some(LaneRef::of(self.directory.lane(*key, &self.weight)))
    }

    fn types(&self) -> (TypeId, TypeId) {
        (TypeId::of::<K>(), TypeId::of::<S>())
    }

    fn count(&self) -> usize {
        self.directory.len()
    }
}

/// Keys that mean order and exclusion only: there is no state.
pub fn ordered_by<T, K>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> impl Keys<T>
where
    T: 'static,
    K: Hash + Eq + Send + Sync + 'static,
{
    KeysBy::<T, K, (), _, _>::new(key, |_: &K| NonZeroU32::MIN)
}
