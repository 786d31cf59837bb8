//! The keys of a keyed stage, as the runtime asks for them: which lanes the events that come belong to, and when they
//! happened. Before: the inlet of the stage. After: `directory`.
//! Invariant: an event whose key cannot be had, because the program's code panicked, has the lane of those events.

use std::any::{Any, TypeId};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use foldhash::quality::SeedableRandomState;

use super::directory::Directory;
use super::{EventTime, KeyedStage, LaneRef, names};
use crate::column::Columns;
use crate::event::Time;

/// The keys of a stage, without their types.
pub trait AnyKeys: Send + Sync {
    /// The lane of a key, if the key is of the right type and has one. It calls the program's code.
    fn find(&self, key: &dyn Any) -> Option<LaneRef>;

    /// The lane of a key, made if there is none, if the key is of the right type. It calls the program's code.
    fn lane(&self, key: Box<dyn Any>) -> Option<LaneRef>;

    /// A hash of a key by which its replica is chosen, if the key is of the right type. It calls the program's code.
    fn route_of(&self, key: &dyn Any) -> Option<u64>;

    /// Has keys hashed alike in every run, for tests. Called before the first key comes.
    fn hash_alike(&self);

    /// The types of keys and of their state.
    fn types(&self) -> (TypeId, TypeId);

    /// The number of keys that have events or state.
    fn count(&self) -> usize;

    /// What people call the key of a lane, if it has a name. It calls the program's code.
    fn name(&self, lane: &LaneRef) -> Option<String>;
}

/// Is shown what the program's code raised when the lane of an event was asked for.
pub type Failed<'a> = dyn FnMut(Box<dyn Any + Send>) + 'a;

/// The keys of a stage that takes `T`, without their types.
pub trait Keys<T>: AnyKeys {
    /// The lane of an event. It calls the program's code; if that panics, the event belongs to
    /// [`keyless`](Self::keyless).
    fn lane_of(&self, event: &T) -> LaneRef;

    /// The lane of events whose key cannot be had.
    fn keyless(&self) -> LaneRef;

    /// As [`AnyKeys::route_of`], of the key of an event.
    fn route(&self, event: &T) -> u64;

    /// Keys of the same kind, for another replica of the stage: it has none yet.
    fn replica(&self) -> Arc<dyn Keys<T>>;

    /// How event time goes on, if the stage has event time.
    fn event_time(&self) -> Option<EventTime> {
        None
    }

    /// Adds the lanes of these events, and when they happened if the stage has event time. It calls the program's code; an
    /// event for which that panics belongs to [`keyless`](Self::keyless), and `failed` is shown what was raised.
    fn lanes_of(&self, slots: &[Option<T>], into: &mut Columns, failed: &mut Failed<'_>);

    /// A lane has no events any more: it is forgotten unless it has state. Drops what the program made.
    fn retire(&self, lane: LaneRef);

    /// Takes out some lanes, for good. Returns `false` if there are none.
    fn take_some(&self, into: &mut Vec<LaneRef>) -> bool;
}

/// What a program says of the keys of its events.
pub(crate) trait Keying<T, K: 'static>: Send + Sync {
    fn key(&self, event: &T) -> K;

    fn weight(&self, _: &K) -> NonZeroU32 {
        NonZeroU32::MIN
    }

    fn name(&self, key: &K) -> Option<String> {
        names::usual(key)
    }

    /// Asked once.
    fn event_time(&self) -> Option<EventTime> {
        None
    }

    fn time(&self, _: &T) -> Option<Time> {
        None
    }
}

impl<S: KeyedStage> Keying<S::In, S::Key> for S {
    #[inline]
    fn key(&self, event: &S::In) -> S::Key {
        KeyedStage::key(self, event)
    }

    fn weight(&self, key: &S::Key) -> NonZeroU32 {
        KeyedStage::weight(self, key)
    }

    fn name(&self, key: &S::Key) -> Option<String> {
        self.key_name(key)
    }

    fn event_time(&self) -> Option<EventTime> {
        KeyedStage::event_time(self)
    }

    #[inline]
    fn time(&self, event: &S::In) -> Option<Time> {
        KeyedStage::time(self, event)
    }
}

/// Keys by a function.
struct ByFn<F>(F);

impl<T, K: 'static, F: Fn(&T) -> K + Send + Sync> Keying<T, K> for ByFn<F> {
    fn key(&self, event: &T) -> K {
        (self.0)(event)
    }
}

/// [`Keys`] as a program says, with state `S`.
pub(crate) struct KeysBy<T, K, S, B> {
    by: Arc<B>,
    pub(super) directory: Directory<K, S>,
    keyless: LaneRef,
    pub(super) event_time: Option<EventTime>,
    of: PhantomData<fn(T)>,
}

impl<T, K, S, B> KeysBy<T, K, S, B>
where
    K: Hash + Eq + Send + Sync + 'static,
    S: Send + 'static,
    B: Keying<T, K>,
{
    pub(crate) fn new(by: B) -> Self {
        KeysBy::sharing(Arc::new(by))
    }

    fn sharing(by: Arc<B>) -> Self {
        let (directory, keyless) = (Directory::new(), LaneRef::keyless());
        let event_time = by.event_time();
        KeysBy { by, directory, keyless, event_time, of: PhantomData }
    }
}

impl<T, K, S, B> fmt::Debug for KeysBy<T, K, S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeysBy")
    }
}

impl<T, K, S, B> Keys<T> for KeysBy<T, K, S, B>
where
    T: 'static,
    K: Hash + Eq + Send + Sync + 'static,
    S: Send + 'static,
    B: Keying<T, K> + 'static,
{
    #[inline]
    fn lane_of(&self, event: &T) -> LaneRef {
        LaneRef::of(self.directory.lane(self.by.key(event), |key| self.by.weight(key)))
    }

    fn keyless(&self) -> LaneRef {
        self.keyless.clone()
    }

    fn route(&self, event: &T) -> u64 {
        route(&self.by.key(event))
    }

    fn replica(&self) -> Arc<dyn Keys<T>> {
        Arc::new(KeysBy::<T, K, S, B>::sharing(self.by.clone()))
    }

    fn event_time(&self) -> Option<EventTime> {
        self.event_time
    }

    fn lanes_of(&self, slots: &[Option<T>], into: &mut Columns, failed: &mut Failed<'_>) {
        let (lanes, times) = into.lanes_and_times_mut();
        let timed = self.event_time.is_some();
        let (hasher, mut search) = (self.directory.hasher(), self.directory.search());
        let mut events = slots.iter().flatten();
        loop {
            let asked = catch_unwind(AssertUnwindSafe(|| {
                for event in &mut events {
                    let time = if timed { self.by.time(event) } else { None };
                    let key = self.by.key(event);
                    let hash = hasher.hash_one(&key);
                    search.add(key, hash);
                    if timed {
                        times.extend(time, 1);
                    }
                }
            }));
            let Err(panic) = asked else { break };
            search.add_none();
            times.extend(None, usize::from(timed));
            failed(panic);
        }
        self.directory.take_candidates(&mut search);
        let weight = |key: &K| self.by.weight(key);
        loop {
            let found = catch_unwind(AssertUnwindSafe(|| {
                while let Some(lane) = self.directory.next_lane(&mut search, weight) {
                    lanes.push(Some(lane.map_or_else(|| self.keyless.clone(), LaneRef::of)));
                }
            }));
            let Err(panic) = found else { break };
            lanes.push(Some(self.keyless.clone()));
            failed(panic);
        }
        self.directory.end(search);
    }

    fn retire(&self, lane: LaneRef) {
        self.directory.retire(lane);
    }

    fn take_some(&self, into: &mut Vec<LaneRef>) -> bool {
        self.directory.take_some().map(|lanes| into.extend(lanes)).is_some()
    }
}

impl<T, K, S, B> AnyKeys for KeysBy<T, K, S, B>
where
    K: Hash + Eq + Send + Sync + 'static,
    S: Send + 'static,
    B: Keying<T, K>,
{
    fn find(&self, key: &dyn Any) -> Option<LaneRef> {
        self.directory.find(key.downcast_ref()?).map(LaneRef::of)
    }

    fn lane(&self, key: Box<dyn Any>) -> Option<LaneRef> {
        let key = key.downcast().ok()?;
        Some(LaneRef::of(self.directory.lane(*key, |key| self.by.weight(key))))
    }

    fn route_of(&self, key: &dyn Any) -> Option<u64> {
        key.downcast_ref::<K>().map(route)
    }

    fn hash_alike(&self) {
        self.directory.hash_alike();
    }

    fn types(&self) -> (TypeId, TypeId) {
        (TypeId::of::<K>(), TypeId::of::<S>())
    }

    fn count(&self) -> usize {
        self.directory.len()
    }

    fn name(&self, lane: &LaneRef) -> Option<String> {
        lane.typed::<K, S>().and_then(|lane| self.by.name(lane.key()))
    }
}

/// The same for all senders, and in every run.
fn route<K: Hash>(key: &K) -> u64 {
    SeedableRandomState::fixed().hash_one(key)
}

/// Keys that mean order and exclusion only: there is no state.
pub fn ordered_by<T, K>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> impl Keys<T>
where
    T: 'static,
    K: Hash + Eq + Send + Sync + 'static,
{
    KeysBy::<T, K, (), _>::new(ByFn(key))
}
