//! An event as a handler sees it (`Ev`), what travels with it (`Meta`), and the group through
//! which a source learns that everything an event led to has settled (`AckGroup`).
//! Invariant of a group: its count reaches zero once, after the last event it covers settled.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Duration;

#[cfg(shuttle)]
use shuttle::sync::atomic::AtomicU64; // its interleavings are explored with the runtime's
#[cfg(not(shuttle))]
use std::sync::atomic::AtomicU64;

use serde::{Serialize, de::DeserializeOwned};

/// What `connect` asks of an event, so that any plan may separate the two stages or make the
/// queue between them durable. `connect_local` asks for `Send` only.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel on every connector",
    note = "`connect` asks for serde's `Serialize` and `Deserialize`, `Clone` and `Send`; `connect_local` asks for `Send` only, and keeps the two stages in one process"
)]
pub trait Event: Serialize + DeserializeOwned + Clone + Send + 'static {}
#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Clone + Send + 'static> Event for T {}

/// A moment on the runtime's clock: nanoseconds since the program started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The start of the program.
    pub const ZERO: Time = Time(0);

    /// The moment `ns` nanoseconds after the start.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Time(ns)
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not.
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

/// An event lent to a handler: read it through the reference, or [`take`](Ev::take) it to move it on.
/// The runtime still has what was not taken, and can retry it or set it aside.
pub struct Ev<'a, T> {
    slot: &'a mut Option<T>,
}

const LENT: &str = "an event is lent only while its slot holds one, and `take` consumes the loan";

impl<'a, T> Ev<'a, T> {
    /// Lends what `slot` holds. Panics if it is empty.
    #[inline]
    #[must_use]
    pub fn lend(slot: &'a mut Option<T>) -> Self {
        assert!(slot.is_some(), "{LENT}");
        Ev { slot }
    }

    /// Moves the event out. If the handler fails afterwards the event itself can be neither
    /// retried nor replayed, unless the stage says [`retain`](crate::graph::StageSpec::retain).
    #[inline]
    #[must_use]
    pub fn take(self) -> T {
        self.slot.take().expect(LENT)
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

/// What a chunk of events carries beside the events.
#[derive(Clone, Debug, Default)]
pub struct Meta {
    /// When the oldest of them entered the program.
    pub ingress: Time,
    /// When the oldest of them came to the queue they are in.
    pub enqueued: Time,
    /// When they stop being of use, if ever.
    pub deadline: Option<Time>,
    /// How much they matter: the higher, the longer a stage whose admission looks at it lets them
    /// in. What they lead to has the same. 0 where nothing is said; 255 is what stages send when
    /// they finish.
    pub tier: u8,
    /// Whom to tell when all they led to has settled.
    pub ack: Option<Arc<AckGroup>>,
    /// The worker that sent them, and so has them in its cache; 0 if none. Only a hint.
    pub home: u32,
}

impl Meta {
    /// Chunks whose events entered further apart than this are not mixed: it bounds the error of
    /// a latency computed from a chunk's one ingress time.
    pub const INGRESS_SPREAD_NS: u64 = 100_000;

    /// The same where somebody decides by how long events have waited: there, a wait of half a
    /// service time counts, and service may take ten microseconds.
    pub const GUARDED_SPREAD_NS: u64 = 5_000;

    /// Whether events of the two may share a chunk, if they entered the program, and came to the
    /// queue, no further apart than this.
    #[inline]
    #[must_use]
    pub fn mixes_with(&self, other: &Meta, spread_ns: u64) -> bool {
        let same_group = match (&self.ack, &other.ack) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        same_group
            && self.deadline == other.deadline
            && self.tier == other.tier
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

/// How the events of a group ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// Number given by the source.
    pub group: u64,
    /// Events that failed for good.
    pub failed: u64,
    /// Events shed by a queue or a controller.
    pub shed: u64,
    /// Events cancelled by a stop.
    pub cancelled: u64,
}

impl Settled {
    /// Whether every event the group led to was handled.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.failed == 0 && self.shed == 0 && self.cancelled == 0
    }
}

/// How an event left a queue, as far as its group is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// By a handler that returned.
    Handled,
    /// Set aside, its tries used up.
    Failed,
    /// Shed.
    Shed,
    /// Cancelled by a stop.
    Cancelled,
}

/// Counts the unsettled events that descend from one pull of a source.
pub struct AckGroup {
    number: u64,
    pending: AtomicU64,
    failed: AtomicU64,
    shed: AtomicU64,
    cancelled: AtomicU64,
    done: Box<dyn Fn(Settled) + Send + Sync>,
    joined: Option<Joined>,
}

/// Several groups whose events are handled together.
struct Joined {
    /// Each group, and how many of the events are its own.
    parts: Vec<(Arc<AckGroup>, u64)>,
    /// What the events lead to belongs to all of them.
    outputs: Arc<AckGroup>,
}

impl AckGroup {
    /// A group held open by its creator, who calls [`settle`](Self::settle) once with one
    /// `Handled` event when everything of it has been emitted.
    pub fn open(number: u64, done: impl Fn(Settled) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(AckGroup {
            number,
            pending: AtomicU64::new(1),
            failed: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            done: Box::new(done),
            joined: None,
        })
    }

    /// A group for events of several groups that are handled together, as one: so many of each. Its
    /// events are settled together; what they lead to is reported to every group.
    #[must_use]
    pub fn join_all(parts: Vec<(Arc<AckGroup>, u64)>) -> Arc<Self> {
        let groups: Vec<_> = parts.iter().map(|(group, _)| group.clone()).collect();
        groups.iter().for_each(|group| group.join(1));
        let outputs = AckGroup::open(0, move |settled| {
            groups.iter().for_each(|group| group.settle_like(&settled));
        });
        Arc::new(AckGroup {
            number: 0,
            pending: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            done: Box::new(|_| ()),
            joined: Some(Joined { parts, outputs }),
        })
    }

    /// The group of what its events lead to, if that is not itself.
    #[must_use]
    pub fn joined_outputs(self: &Arc<Self>) -> Option<Arc<Self>> {
        self.joined.as_ref().map(|joined| joined.outputs.clone())
    }

    /// One of its events stands for all that was settled elsewhere.
    fn settle_like(&self, settled: &Settled) {
        self.failed.fetch_add(settled.failed, AcqRel);
        self.shed.fetch_add(settled.shed, AcqRel);
        self.cancelled.fetch_add(settled.cancelled, AcqRel);
        self.settle(1, Fate::Handled);
    }

    /// `n` more events belong to it. The caller holds an unsettled event of the group, so the
    /// count cannot have reached zero.
    pub fn join(&self, n: u64) {
        self.pending.fetch_add(n, AcqRel);
    }

    /// `n` of its events ended.
    pub fn settle(&self, n: u64, fate: Fate) {
        if n == 0 {
            return;
        }
        if let Some(Joined { parts, outputs }) = &self.joined {
            parts.iter().for_each(|(group, n)| group.settle(*n, fate));
            return outputs.settle(1, Fate::Handled);
        }
        match fate {
            Fate::Handled => 0,
            Fate::Failed => self.failed.fetch_add(n, AcqRel),
            Fate::Shed => self.shed.fetch_add(n, AcqRel),
            Fate::Cancelled => self.cancelled.fetch_add(n, AcqRel),
        };
        if self.pending.fetch_sub(n, AcqRel) == n {
            (self.done)(Settled {
                group: self.number,
                failed: self.failed.load(Acquire),
                shed: self.shed.load(Acquire),
                cancelled: self.cancelled.load(Acquire),
            });
        }
    }
}

impl fmt::Debug for AckGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AckGroup")
            .field("number", &self.number)
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_lent_event_stays_unless_taken() {
        let mut slot = Some(String::from("a"));
        assert_eq!(Ev::lend(&mut slot).len(), 1);
        assert!(slot.is_some());
        assert_eq!(Ev::lend(&mut slot).take(), "a");
        assert!(slot.is_none());
    }

    #[test]
    fn a_group_settles_once_and_tells_what_went_wrong() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let group = AckGroup::open(7, {
            let told = told.clone();
            move |settled| told.lock().unwrap().push(settled)
        });
        group.join(3);
        group.settle(2, Fate::Handled);
        group.settle(1, Fate::Handled); // the creator lets go
        assert!(told.lock().unwrap().is_empty());
        group.settle(1, Fate::Failed);
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].group, told[0].failed), (7, 1));
        assert!(!told[0].is_clean());
    }
}
