//! A lane: one key of a keyed stage, with its state and its timers. The runtime knows it as a [`LaneRef`].
//! Before: `directory`, which makes it. After: the queue of the stage, which serves one lane in one place at a time.
//!
//! Invariant: the state is borrowed by the one call that handles an event of the lane, or belongs to the one flight that
//! does. A lane that is being visited has no other visit, so nobody ever waits for a state, and one that comes back never
//! meets another.

use std::any::Any;
use std::fmt;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::timers::{AlarmId, Clock, EventAlarm, Timers};
use crate::event::Time;

/// A lane, without its types. Clones are the same lane.
#[derive(Clone)]
pub struct LaneRef(Arc<LaneOf<dyn AnyOwn>>);

/// One key of a keyed stage: what all lanes have, and what is of its types. The former is in front, where those who do not
/// know the types find it without a call.
pub(super) struct LaneOf<O: ?Sized> {
    common: Common,
    own: O,
}

/// A lane with its types.
pub(super) type Lane<K, S> = LaneOf<Own<K, S>>;

/// What the runtime may ask of a lane whose types it does not know.
trait AnyOwn: Any + Send + Sync {
    fn next_alarm(&self) -> Option<Time>;
    fn event_alarm(&self, watermark: Time) -> EventAlarm;
    fn first_timer(&self, of: Clock) -> Option<Time>;
    fn set_alarm(&self, of: Clock, alarm: Option<AlarmId>) -> Option<AlarmId>;
}

/// What all lanes have.
struct Common {
    /// Where the queue keeps what it knows of the lane; `NO_SLOT` while it knows nothing.
    slot: AtomicU32,
    weight: NonZeroU32,
    /// Whether its state is worth keeping when no event is there.
    has_state: AtomicBool,
    /// Whether it has ever had a timer, and one by the program's clock.
    timed: AtomicBool,
    timed_by_clock: AtomicBool,
    /// When its first event timer is due, in nanoseconds; the end of time if it has none. As its timers have it, for those
    /// who would not lock them for nothing.
    event_due: AtomicU64,
    /// When it was last visited, in nanoseconds.
    used: AtomicU64,
    /// The runtime looks after its state from time to time.
    watched: AtomicBool,
    /// No key could be had for its events.
    keyless: bool,
}

const NO_SLOT: u32 = u32::MAX;

impl Common {
    fn new(weight: NonZeroU32, keyless: bool) -> Self {
        Common {
            slot: AtomicU32::new(NO_SLOT),
            weight,
            has_state: AtomicBool::new(false),
            timed: AtomicBool::new(false),
            timed_by_clock: AtomicBool::new(false),
            event_due: AtomicU64::new(Time::MAX.as_nanos()),
            used: AtomicU64::new(0),
            watched: AtomicBool::new(false),
            keyless,
        }
    }
}

impl Common {
    #[inline]
    fn slot(&self) -> Option<u32> {
        Some(self.slot.load(Relaxed)).filter(|slot| *slot != NO_SLOT)
    }

    /// Whether an event timer may be due.
    #[inline]
    fn is_due(&self, watermark: Time) -> bool {
        self.event_due.load(Relaxed) <= watermark.as_nanos()
    }
}

impl PartialEq for LaneRef {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.0).cast::<()>(), Arc::as_ptr(&other.0).cast::<()>())
    }
}

impl fmt::Debug for LaneRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LaneRef")
    }
}

impl LaneRef {
    /// The lane of events whose key cannot be had.
    pub(super) fn keyless() -> Self {
        let common = Common::new(NonZeroU32::MIN, true);
        LaneRef(Arc::new(LaneOf { common, own: Own::<(), ()>::new((), 0) }))
    }

    pub(super) fn of<K: Send + Sync + 'static, S: Send + 'static>(lane: Arc<Lane<K, S>>) -> Self {
        LaneRef(lane)
    }

    /// The lane with its types, if they are these.
    #[inline]
    pub(super) fn typed<K: 'static, S: 'static>(&self) -> Option<Typed<'_, K, S>> {
        let own: &dyn Any = &self.0.own;
        own.downcast_ref().map(|own| Typed { common: &self.0.common, own })
    }

    /// A number of it, the same as long as somebody holds it.
    #[must_use]
    pub fn id(&self) -> u64 {
        Arc::as_ptr(&self.0).cast::<()>().addr() as u64
    }

    /// How many hold it.
    pub(super) fn count(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Where its queue keeps it, if it does. Read and written under the lock of the stage.
    #[inline]
    #[must_use]
    pub fn slot(&self) -> Option<u32> {
        self.0.common.slot()
    }

    /// Notes where its queue keeps it.
    #[inline]
    pub fn set_slot(&self, slot: u32) {
        self.0.common.slot.store(slot, Relaxed);
    }

    /// How many of its events a round serves.
    #[inline]
    #[must_use]
    pub fn weight(&self) -> NonZeroU32 {
        self.0.common.weight
    }

    /// Whether its events have no key.
    #[inline]
    #[must_use]
    pub fn is_keyless(&self) -> bool {
        self.0.common.keyless
    }

    /// Whether it has state, or timers, and so must be kept while it has no events.
    #[inline]
    #[must_use]
    pub fn has_state(&self) -> bool {
        self.0.common.has_state.load(Relaxed)
    }

    /// When it was last visited.
    #[must_use]
    pub fn used(&self) -> Time {
        Time::from_nanos(self.0.common.used.load(Relaxed))
    }

    /// A visit to it is over, for events of it if `used`. Returns when the runtime is to look at its timers, if it has not
    /// been asked to yet.
    #[inline]
    #[must_use]
    pub fn visited(&self, now: Time, used: bool) -> Option<Time> {
        let common = &self.0.common;
        if used {
            common.used.store(now.as_nanos(), Relaxed);
        }
        if common.timed_by_clock.load(Relaxed) { self.0.own.next_alarm() } else { None }
    }

    /// A visit to it is over, after which it has no events. Returns whether that is all: it has state to keep, and has
    /// never had a timer.
    #[inline]
    #[must_use]
    pub fn rests(&self, now: Time) -> bool {
        let common = &self.0.common;
        common.used.store(now.as_nanos(), Relaxed);
        common.has_state.load(Relaxed) && !common.timed.load(Relaxed)
    }

    /// Its queue keeps it no more.
    #[inline]
    pub fn leave(&self) {
        self.0.common.slot.store(NO_SLOT, Relaxed);
    }

    /// Whether somebody looks after its state; from now on somebody does, or not.
    pub fn watch(&self, watched: bool) -> bool {
        self.0.common.watched.swap(watched, Relaxed)
    }

    /// A copy of its state, if it has any. No visit has the lane.
    #[must_use]
    pub fn state<K: 'static, S: Clone + 'static>(&self) -> Option<S> {
        self.typed::<K, S>().and_then(|lane| lane.lend().peek().cloned())
    }

    /// Replaces its state. Returns the one before. No visit has the lane.
    pub fn set_state<K: 'static, S: 'static>(&self, state: S) -> Option<S> {
        self.typed::<K, S>().and_then(|lane| lane.lend().put(state))
    }

    /// When the runtime is to look at its event timers, if it has not been asked to yet.
    #[inline]
    #[must_use]
    pub fn event_alarm(&self, watermark: Time) -> EventAlarm {
        match self.0.common.timed.load(Relaxed) {
            true => self.0.own.event_alarm(watermark),
            false => EventAlarm::None,
        }
    }

    /// The runtime looks at its timers then, or not at all; it was asked to. Returns the alarm before, which is not needed
    /// any more.
    pub fn set_alarm(&self, of: Clock, alarm: Option<AlarmId>) -> Option<AlarmId> {
        if self.0.common.timed.load(Relaxed) { self.0.own.set_alarm(of, alarm) } else { None }
    }

    /// Its first timer.
    #[must_use]
    pub fn first_timer(&self, of: Clock) -> Option<Time> {
        if self.0.common.timed.load(Relaxed) { self.0.own.first_timer(of) } else { None }
    }

    /// Its first event timer, if the watermark has come to it.
    #[inline]
    #[must_use]
    pub fn first_due(&self, watermark: Time) -> Option<Time> {
        let due = self.0.common.is_due(watermark);
        if due { self.first_timer(Clock::Events).filter(|due| *due <= watermark) } else { None }
    }
}

/// What a lane has of its types.
pub(super) struct Own<K, S> {
    /// `None` only while it is dropped.
    key: Option<K>,
    hash: u64,
    /// A cell for whoever has the lane, and no lock: nobody waits for it.
    state: Mutex<Option<S>>,
    /// Boxed: most lanes have none.
    timers: Mutex<Option<Box<Timers>>>,
}

/// A lane, seen with its types.
pub(super) struct Typed<'a, K, S> {
    common: &'a Common,
    own: &'a Own<K, S>,
}

impl<K, S> Clone for Typed<'_, K, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, S> Copy for Typed<'_, K, S> {}

impl<K: Send + Sync + 'static, S: Send + 'static> AnyOwn for Own<K, S> {
    fn next_alarm(&self) -> Option<Time> {
        self.timers().as_mut()?.program.arm()
    }

    fn event_alarm(&self, watermark: Time) -> EventAlarm {
        let mut timers = self.timers();
        let Some(timers) = &mut *timers else { return EventAlarm::None };
        timers.events.ring(watermark);
        match timers.events.due.first() {
            Some(first) if first <= watermark => EventAlarm::Due,
            _ => timers.events.arm().map_or(EventAlarm::None, EventAlarm::At),
        }
    }

    fn first_timer(&self, of: Clock) -> Option<Time> {
        self.timers().as_mut()?.of(of).due.first()
    }

    fn set_alarm(&self, of: Clock, alarm: Option<AlarmId>) -> Option<AlarmId> {
        let mut timers = self.timers();
        let armed = &mut timers.as_mut()?.of(of).armed;
        std::mem::replace(armed, alarm)
    }
}

impl<K, S> Drop for Own<K, S> {
    /// Whoever lets go of it last need not know that its key and its state are the program's, and may panic.
    fn drop(&mut self) {
        let key = self.key.take();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(key)));
        let _ = catch_unwind(AssertUnwindSafe(|| drop(state)));
    }
}

impl<K, S> Own<K, S> {
    fn new(key: K, hash: u64) -> Self {
        Own { key: Some(key), hash, state: Mutex::default(), timers: Mutex::default() }
    }

    fn timers(&self) -> MutexGuard<'_, Option<Box<Timers>>> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn key(&self) -> &K {
        self.key.as_ref().expect("a lane has its key until it is dropped")
    }
}

impl<K, S> Lane<K, S> {
    pub(super) fn new(key: K, hash: u64, weight: NonZeroU32) -> Self {
        LaneOf { common: Common::new(weight, false), own: Own::new(key, hash) }
    }

    #[inline]
    pub(super) fn key(&self) -> &K {
        self.own.key()
    }

    pub(super) fn hash(&self) -> u64 {
        self.own.hash
    }

    /// As [`LaneRef::slot`].
    #[inline]
    pub(super) fn slot(&self) -> Option<u32> {
        self.common.slot()
    }

    #[inline]
    pub(super) fn typed(&self) -> Typed<'_, K, S> {
        Typed { common: &self.common, own: &self.own }
    }
}

impl<'a, K, S> Typed<'a, K, S> {
    #[inline]
    pub(super) fn key(self) -> &'a K {
        self.own.key()
    }

    pub(super) fn hash(self) -> u64 {
        self.own.hash
    }

    /// Whether it is this lane.
    pub(super) fn is(self, other: &Lane<K, S>) -> bool {
        std::ptr::eq(self.own, &raw const other.own)
    }

    /// Its state, for whoever has the lane.
    #[inline]
    pub(super) fn borrow(self) -> MutexGuard<'a, Option<S>> {
        match self.own.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(of_a_panic)) => of_a_panic.into_inner(),
            Err(TryLockError::WouldBlock) => panic!("a lane is visited in one place at a time"),
        }
    }

    /// As [`borrow`](Self::borrow), when the lane has seen its last event: somebody outside may be looking at it just now.
    pub(super) fn borrow_at_last(self) -> MutexGuard<'a, Option<S>> {
        self.own.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `call` with the state, made if there is none, which neither takes it nor changes timers.
    #[inline(always)] // each event comes here
    pub(super) fn with_state<R>(self, call: impl FnOnce(&mut S) -> R) -> R
    where
        S: Default,
    {
        let mut state = self.borrow();
        if state.is_none() {
            *state = Some(S::default());
            // A state without data is the same when it is made anew.
            self.common.has_state.fetch_or(size_of::<S>() > 0, Relaxed);
        }
        call(state.get_or_insert_default())
    }

    /// Whether it has ever had a timer.
    #[inline]
    fn is_timed(self) -> bool {
        self.common.timed.load(Relaxed)
    }

    /// Whether an event timer may be due.
    #[inline]
    pub(super) fn is_due(self, watermark: Time) -> bool {
        self.common.is_due(watermark)
    }

    /// Whether it has timers.
    #[inline]
    fn has_timers(self) -> bool {
        self.is_timed() && self.own.timers().as_ref().is_some_and(|timers| !timers.is_empty())
    }

    /// Takes note of whether it keeps a state.
    #[inline]
    pub(super) fn note_state(self, is_some: bool) {
        // A state without data is the same when it is made anew.
        let keeps = is_some && size_of::<S>() > 0;
        self.common.has_state.store(keeps || self.has_timers(), Relaxed);
    }

    /// Takes out the timer that is due first.
    pub(super) fn take_due(self, of: Clock, now: Time) -> Option<Time> {
        let mut timers = self.own.timers();
        let timers = timers.as_mut()?;
        let due = timers.of(of).take_due(now);
        self.note_due(timers);
        due
    }

    /// As [`take_due`](Self::take_due), by either clock.
    pub(super) fn take_first_due(self, now: Time, watermark: Time) -> Option<(Clock, Time)> {
        let mut timers = self.own.timers();
        let timers = timers.as_mut()?;
        if let Some(at) = timers.program.take_due(now) {
            return Some((Clock::Program, at));
        }
        let at = timers.events.take_due(watermark)?;
        self.note_due(timers);
        Some((Clock::Events, at))
    }

    /// Whether there may be a timer that is due.
    pub(super) fn may_be_due(self, watermark: Time) -> bool {
        self.is_due(watermark) || self.common.timed_by_clock.load(Relaxed)
    }

    /// Sets a timer, or takes it back.
    pub(super) fn set_timer(self, of: Clock, at: Time, set: bool) {
        let mut timers = self.own.timers();
        let timers = timers.get_or_insert_default();
        let due = &mut timers.of(of).due;
        if set {
            self.common.timed.store(true, Relaxed);
            self.common.timed_by_clock.fetch_or(of == Clock::Program, Relaxed);
            due.insert(at);
        } else {
            due.remove(at);
        }
        self.note_due(timers);
    }

    /// Its timers have changed.
    fn note_due(self, timers: &Timers) {
        let first = timers.events.due.first().unwrap_or(Time::MAX);
        self.common.event_due.store(first.as_nanos(), Relaxed);
    }

    /// Takes all timers back.
    pub(super) fn clear_timers(self) {
        // What the runtime was asked for stays: it is not asked again for the same.
        if let Some(timers) = &mut *self.own.timers() {
            timers.program.due.clear();
            timers.events.due.clear();
            self.note_due(timers);
        }
    }
}
