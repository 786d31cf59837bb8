//! Keyed stages: events with one key are handled in order, one at a time, and those of different keys side by side.
//!
//! 1. this file: what a program implements ([`KeyedStage`]);
//! 2. `keys`: what the runtime asks of it for the events that come ([`Keys`]);
//! 3. `directory`: which lane a key has, and `search`: which lanes the keys of a chunk have;
//! 4. `lane`: one key, with its state, and `timers`: its timers;
//! 5. `loan`: its state, lent to a call;
//! 6. `time`: how event time goes on;
//! 7. `names`: what people call keys;
//! 8. `prepare`: a step for each event that needs no order;
//! 9. `handler`: how a keyed stage becomes a handler (`stage::Handler`) that the runtime calls.
//!
//! Invariant: keys are computed, hashed and compared off every lock, since all three are the program's code.

mod keys;
mod search;
mod directory;
mod lane;
mod timers;
mod loan;
mod time;
mod names;
mod prepare;
mod handler;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::ops::Deref;

pub use handler::{IsKeyed, Keyed, KeyedFn};
pub use keys::{AnyKeys, Failed, Keys, ordered_by};
pub(crate) use keys::{Keying, KeysBy};
pub use lane::LaneRef;
pub use loan::OwnedLoan;
pub use prepare::{Ahead, Prepared, Preparing};
pub use time::EventTime;
pub use timers::{AlarmId, Clock, EventAlarm};

use crate::error::Result;
use crate::event::{Ev, Time};
use crate::port::Ports;
use crate::stage::Cx;

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
