//! An event as a handler borrows it (`Ev`) or keeps it (`Held`), and the data that the events of a chunk
//! share (`Meta`). Obligations are in `ack`, data of single events in `column`.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::ack::{AckGroup, Obligation};
use crate::column::Duty;

/// The bound of `connect` on events, so that a plan may separate the two stages or make the queue between
/// them durable. `connect_local` requires only `Send`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel on every connector",
    note = "`connect` asks for serde's `Serialize` and `Deserialize`, `Clone` and `Send`; `connect_local` asks for `Send` only, and keeps the two stages in one process"
)]
pub trait Event: Serialize + DeserializeOwned + Clone + Send + 'static {}
#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Clone + Send + 'static> Event for T {}

/// A moment on the runtime's clock: nanoseconds since the program started. Event times
/// ([`KeyedStage::time`](crate::keyed::KeyedStage::time)) are nanoseconds since any moment that the program chooses.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(u64);

impl Time {
    /// The start of the program.
    pub const ZERO: Time = Time(0);
    /// The greatest time there is.
    pub const MAX: Time = Time(u64::MAX);

    /// Returns the moment `ns` nanoseconds after the start.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Time(ns)
    }

    /// Returns the nanoseconds since the start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the moment `ms` milliseconds after the start.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Time(ms.saturating_mul(1_000_000))
    }

    /// Returns the whole milliseconds since the start.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Returns the time from `earlier` until this moment, or zero if `earlier` is later.
    #[inline]
    #[must_use]
    pub const fn duration_since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Time {
    type Output = Time;
    fn add(self, wait: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The moment before, by this much; no earlier than [`Time::ZERO`].
impl std::ops::Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, by: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// An event borrowed by a handler. Read it through the reference, or [`take`](Ev::take) it to own it. The
/// runtime can retry and keep an event that was not taken.
pub struct Ev<'a, T> {
    slot: &'a mut Option<T>,
    origin: Option<&'a Origin>,
}

/// Where the event that a handler is lent comes from: behind [`Cx`](crate::stage::Cx).
#[derive(Debug, Default)]
pub(crate) struct Origin {
    pub(crate) ingress: Cell<Time>,
    pub(crate) tier: Cell<u8>,
    pub(crate) deadline: Cell<Option<Time>>,
    ack: RefCell<Option<Arc<AckGroup>>>,
    /// Whether there is a deadline or a group.
    owes: Cell<bool>,
}

impl Origin {
    #[inline]
    pub(crate) fn set_duty(&self, duty: &Duty) {
        self.owes.set(duty.ack.is_some() || duty.deadline.is_some());
        self.deadline.set(duty.deadline);
        let mut ack = self.ack.borrow_mut();
        if ack.is_some() || duty.ack.is_some() {
            ack.clone_from(&duty.ack);
        }
    }

    /// Nothing is owed.
    #[inline(always)]
    pub(crate) fn set_free(&self) {
        if self.owes.get() {
            self.set_duty(&Duty::default());
        }
    }

    pub(crate) fn duty(&self) -> Duty {
        Duty { deadline: self.deadline.get(), ack: self.ack.borrow().clone() }
    }
}

/// An event that a handler keeps beyond its call, together with its obligation: a source that waits for the
/// event waits until its results have been handled too.
///
/// ```
/// # mod comporta { pub use comporta_model::{ack::Obligation, error::Result, event::{Ev, Held}, port::Out, stage::{Cx, Stage}}; }
/// use comporta::{Cx, Ev, Held, Obligation, Out, Result, Stage};
///
/// /// Sends pairs.
/// #[derive(Clone, Default)]
/// struct Pairs {
///     first: Option<Held<u64>>,
/// }
///
/// impl Stage for Pairs {
///     type In = u64;
///     type Ports = Out<(u64, u64)>;
///     const STATEFUL: bool = true;
///
///     fn handle(&mut self, event: Ev<'_, u64>, out: &mut Self::Ports, _: &Cx) -> Result {
///         let event = event.hold();
///         match self.first.take() {
///             None => self.first = Some(event),
///             Some(first) => {
///                 let owed = Obligation::all([first.obligation, event.obligation]);
///                 out.send_for(owed, (first.event, event.event));
///             }
///         }
///         Ok(())
///     }
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Held<T> {
    /// The event.
    pub event: T,
    /// Its obligation.
    pub obligation: Obligation,
}

const LENT: &str = "an event is lent only while its slot holds one, and `take` consumes the loan";

impl<'a, T> Ev<'a, T> {
    /// Borrows the event in `slot`.
    ///
    /// # Panics
    /// Panics if `slot` is empty.
    #[inline]
    #[must_use]
    pub fn lend(slot: &'a mut Option<T>) -> Self {
        assert!(slot.is_some(), "{LENT}");
        Ev { slot, origin: None }
    }

    /// As [`lend`](Self::lend), of an event that came through the runtime.
    #[inline(always)]
    pub(crate) fn lend_of(slot: &'a mut Option<T>, origin: &'a Origin) -> Self {
        Ev { origin: Some(origin), ..Ev::lend(slot) }
    }

    /// Moves the event out. If the handler fails afterwards, the event can be neither retried nor replayed,
    /// unless the stage is declared with [`retain`](crate::graph::StageSpec::retain).
    #[inline]
    #[must_use]
    pub fn take(self) -> T {
        self.slot.take().expect(LENT)
    }

    /// Moves the event out, as [`take`](Self::take) does, together with its obligation. A source that waits
    /// for acknowledgement waits until the obligation is [settled](crate::ack::Obligation::settle), or the
    /// events that it was [sent on](crate::port::Out::send_for) with have been handled. A held event that
    /// is dropped counts as failed.
    #[inline]
    #[must_use]
    pub fn hold(self) -> Held<T> {
        let group = self.origin.and_then(|origin| origin.ack.borrow().clone());
        let obligation = Obligation::of(group.as_ref());
        Held { event: self.take(), obligation }
    }
}

impl<T> Deref for Ev<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.slot.as_ref().expect(LENT)
    }
}

impl<T> DerefMut for Ev<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.slot.as_mut().expect(LENT)
    }
}

impl<T: fmt::Debug> fmt::Debug for Ev<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Display> fmt::Display for Ev<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The data that the events of a chunk share.
#[derive(Clone, Debug, Default)]
pub struct Meta {
    /// When the oldest of them entered the program.
    pub ingress: Time,
    /// When the oldest of them came to the queue they are in.
    pub enqueued: Time,
    /// The deadline and acknowledgement of each of them, unless a column has them for each.
    pub duty: Duty,
    /// How important they are to admission controllers, from 0 (the default) to 255. Events that they
    /// lead to have the same tier; events that a stage sends in `finish` have 255.
    pub tier: u8,
    /// The worker that sent them, and so has them in its cache; 0 if none. Only a hint.
    pub home: u32,
}

impl Meta {
    /// Chunks whose events entered further apart than this are not mixed: it bounds the error of
    /// a latency computed from a chunk's one ingress time.
    pub const INGRESS_SPREAD_NS: u64 = 100_000;

    /// The same for a queue with an admission controller, which decides by waiting times: there, a wait of half a
    /// service time counts, and service may take ten microseconds.
    pub const GUARDED_SPREAD_NS: u64 = 5_000;

    /// Whether events of the two may share a chunk, if they entered the program, and came to the
    /// queue, no further apart than this.
    #[inline]
    #[must_use]
    pub fn mixes_with(&self, other: &Meta, spread_ns: u64) -> bool {
        self.tier == other.tier
            && self.ingress.0.abs_diff(other.ingress.0) <= Self::INGRESS_SPREAD_NS
            && self.enqueued.0.abs_diff(other.enqueued.0) <= spread_ns
    }

    /// Takes account of `other`'s events having joined.
    #[inline]
    pub fn absorb(&mut self, other: &Meta) {
        self.ingress = self.ingress.min(other.ingress);
        self.enqueued = self.enqueued.min(other.enqueued);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lent_event_stays_unless_taken() {
        let mut slot = Some(String::from("a"));
        assert_eq!(Ev::lend(&mut slot).len(), 1);
        assert!(slot.is_some());
        assert_eq!(Ev::lend(&mut slot).take(), "a");
        assert!(slot.is_none());
    }
}
