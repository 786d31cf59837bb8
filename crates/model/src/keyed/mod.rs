//! Keyed stages: events with one key are handled in order, one at a time, and those of different keys side by side.
//!
//! 1. this file: what a program implements ([`KeyedStage`]), and what the runtime asks of it ([`Keys`]);
//! 2. `directory`: which lane a key has;
//! 3. `lane`: one key, with its state and timers;
//! 4. `loan`: its state, lent to a call;
//! 5. `time`: how event time goes on;
//! 6. `names`: what people call keys;
//! 7. `prepare`: a step for each event that needs no order;
//! 8. `handler`: how a keyed stage becomes a handler (`stage::Handler`) that the runtime calls.
//!
//! Invariant: keys are computed, hashed and compared off every lock, since all three are the program's code.

mod directory;
mod lane;
mod loan;
mod time;
mod names;
mod prepare;
mod handler;

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::Deref;

pub use handler::{IsKeyed, Keyed, KeyedFn};
pub use lane::{AlarmId, Clock, EventAlarm, LaneRef};
pub use loan::OwnedLoan;
pub use prepare::{Ahead, Prepared, Preparing};
pub use time::EventTime;

use crate::column::Columns;
use crate::error::Result;
use crate::event::{Ev, Time};
use crate::port::Ports;
use crate::stage::Cx;
use directory::Directory;

/// An event handler with state for each key.
///
/// Events with one key are handled in the order of their arrival and never two at once, across retries too; events
/// of different keys run side by side, as many as the plan has instances and threads. A key that fails or waits holds up
/// no other key; one that does not return holds up those whose events were handled just before it in the same visit,
/// which is one event where handlers take longer than 20 µs.
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
/// form. A key without state costs nothing while it has no events. A key with state costs the state and about
/// two hundred bytes, until the state is [forgotten](KeyedCx::forget) or expires (`idle` and `keys_max` of the plan).
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

    /// As `Stage::BOUNDS_ITSELF`.
    #[doc(hidden)]
    const BOUNDS_ITSELF: bool = false;

    /// Returns the key of an event. It is called once for each event, by whoever sends it.
    fn key(&self, event: &Self::In) -> Self::Key;

    /// Returns how many events of a key a round serves: 1, unless some keys are to have a larger share. It is called
    /// when the key appears.
    fn weight(&self, key: &Self::Key) -> NonZeroU32 {
        let _ = key;
        NonZeroU32::MIN
    }

    /// Returns what people call a key, for snapshots: by default the key itself if it is a number or a text, and nothing
    /// otherwise. It is called when somebody looks at the busiest keys of the stage.
    fn key_name(&self, key: &Self::Key) -> Option<String> {
        names::usual(key)
    }

    /// Returns how event time goes on, if the stage has event time. It is called once, when the stage is added to a
    /// program.
    fn event_time(&self) -> Option<EventTime> {
        None
    }

    /// Returns when an event happened: nanoseconds since any moment, the same for all events. An event without a time is
    /// never late, and moves no watermark. It is called by whoever sends the event, and before the event is handled.
    fn time(&self, event: &Self::In) -> Option<Time> {
        let _ = event;
        None
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
    /// It is called once for each timer, in the order of their times, as soon after `at` as a thread is free.
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

    /// Called when the watermark has come to `at`, for which a timer was [set](KeyedCx::set_event_timer): after the
    /// events of its key that came before the watermark did, and before those that came after. When all inputs have
    /// ended, all event timers that are set fire; those set from then on do not.
    ///
    /// # Errors
    /// An error is reported as a problem of the run; what the call sent is withdrawn.
    fn event_timer(
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

    /// Called with the state of each key after the last event of the stage. Timers on the program's clock that are
    /// still set then do not fire.
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

/// The context of a handler of a keyed stage: that of its instance ([`Cx`]), the key, its timers, and event time.
pub struct KeyedCx<'a, K> {
    cx: &'a Cx,
    key: &'a K,
    /// Timers to be set, or taken back, if the call succeeds.
    timers: RefCell<Vec<Change>>,
    forget: Cell<bool>,
    late: bool,
}

/// A timer to be set, or taken back.
#[derive(Clone, Copy, Debug)]
struct Change {
    of: Clock,
    at: Time,
    set: bool,
}

impl<'a, K> KeyedCx<'a, K> {
    fn new(cx: &'a Cx, key: &'a K) -> Self {
        KeyedCx { cx, key, timers: RefCell::default(), forget: Cell::new(false), late: false }
    }

    /// Whether the call asked for anything that is done when it has succeeded.
    #[inline]
    fn asks(&mut self) -> bool {
        !self.timers.get_mut().is_empty() || self.forget.get()
    }

    fn change(&self, of: Clock, at: Time, set: bool) {
        self.timers.borrow_mut().push(Change { of, at, set });
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &'a K {
        self.key
    }

    /// Has [`KeyedStage::timer`] called for this key at `at`, on the program's clock ([`Cx::now`]). Two timers of a key
    /// for the same moment are one. A key with a timer is kept as one with state is.
    pub fn set_timer(&self, at: Time) {
        self.change(Clock::Program, at, true);
    }

    /// Takes a timer back; one that is not set is ignored.
    pub fn clear_timer(&self, at: Time) {
        self.change(Clock::Program, at, false);
    }

    /// Has [`KeyedStage::event_timer`] called for this key when the watermark has come to `at`: at once if it has. An
    /// event timer that sets one for its own time, or an earlier one, sets none. Without
    /// [event time](KeyedStage::event_time) it never fires.
    pub fn set_event_timer(&self, at: Time) {
        self.change(Clock::Events, at, true);
    }

    /// Takes an event timer back; one that is not set is ignored.
    pub fn clear_event_timer(&self, at: Time) {
        self.change(Clock::Events, at, false);
    }

    /// Returns how far event time had come when the event that is being handled arrived; in a timer, how far it has
    /// come. Events of earlier times are not expected any more. [`Time::ZERO`] until it is known, and in a stage
    /// without [event time](KeyedStage::event_time).
    #[must_use]
    pub fn watermark(&self) -> Time {
        self.cx.watermark()
    }

    /// Returns `true` if the event that is being handled is late: of a time before the watermark.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.late
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

    /// What people call the key of a lane, if it has a name. It calls the program's code.
    fn name(&self, lane: &LaneRef) -> Option<String>;
}

/// The keys of a stage that takes `T`, without their types.
pub trait Keys<T>: AnyKeys {
    /// The lane of an event. It calls the program's code; if that panics, the event belongs to
    /// [`keyless`](Self::keyless).
    fn lane_of(&self, event: &T) -> LaneRef;

    /// The lane of events whose key cannot be had.
    fn keyless(&self) -> LaneRef;

    /// How event time goes on, if the stage has event time.
    fn event_time(&self) -> Option<EventTime> {
        None
    }

    /// When an event happened. It calls the program's code.
    fn time_of(&self, event: &T) -> Option<Time> {
        let _ = event;
        None
    }

    /// Adds the lanes of these events, from the one at `next` on, and when they happened if the stage has event time.
    /// After a panic, `next` is behind the event whose key or time cannot be had; nothing was added for it.
    fn lanes_of(&self, slots: &[Option<T>], next: &mut usize, into: &mut Columns) {
        let timed = self.event_time().is_some();
        let (lanes, times) = into.lanes_and_times_mut();
        while let Some(slot) = slots.get(*next) {
            *next += 1;
            if let Some(event) = slot {
                let lane = self.lane_of(event);
                if timed {
                    times.extend(self.time_of(event), 1);
                }
                lanes.push(Some(lane));
            }
        }
    }

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
    times: Option<Times<T>>,
    name: NameFn<K>,
    of: PhantomData<fn(T)>,
}

type NameFn<K> = Box<dyn Fn(&K) -> Option<String> + Send + Sync>;

/// When events happened, and how event time goes on.
struct Times<T> {
    rules: EventTime,
    of: TimeFn<T>,
}

type TimeFn<T> = Box<dyn Fn(&T) -> Option<Time> + Send + Sync>;

impl<T, K: Hash + Eq + 'static, S, F, W> KeysBy<T, K, S, F, W> {
    pub(crate) fn new(key: F, weight: W) -> Self {
        let (directory, keyless) = (Directory::new(), LaneRef::keyless());
        let name: NameFn<K> = Box::new(|key| names::usual(key));
        KeysBy { key, weight, directory, keyless, times: None, name, of: PhantomData }
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
    #[inline]
    fn lane_of(&self, event: &T) -> LaneRef {
        LaneRef::of(self.directory.lane((self.key)(event), &self.weight))
    }

    fn keyless(&self) -> LaneRef {
        self.keyless.clone()
    }

    fn event_time(&self) -> Option<EventTime> {
        self.times.as_ref().map(|times| times.rules)
    }

    fn time_of(&self, event: &T) -> Option<Time> {
        self.times.as_ref().and_then(|times| (times.of)(event))
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

    fn name(&self, lane: &LaneRef) -> Option<String> {
        lane.typed::<K, S>().and_then(|lane| (self.name)(lane.key()))
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
