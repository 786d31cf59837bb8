//! The directory of a keyed stage: which lane a key has. Before: the inlet of the stage, which asks for the lanes of
//! events off the stage's lock. After: `lane`.
//!
//! Keys are compared by their `Eq`, which is the program's, and so never under a lock: a candidate with the same hash is
//! taken out, compared, and the next one asked for. Keys with equal hashes have lanes of their own. The lanes of events that
//! come together are looked for together (`search`).
//! Invariants: a key has one lane at a time; a lane is removed only when nobody else holds it and it has no state.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::atomic::{Ordering::Acquire, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use foldhash::quality::SeedableRandomState;

use super::lane::{Lane, LaneRef, Typed};
use super::search::Search;

/// A power of two: enough for senders on as many processors to meet seldom.
pub(super) const SHARDS: usize = 16;

/// Lanes by key.
pub(super) struct Directory<K, S> {
    /// Seeded at random when it is first asked, unless this is a test.
    hasher: OnceLock<SeedableRandomState>,
    pub(super) shards: [RwLock<Shard<K, S>>; SHARDS],
    /// Storage for searches.
    pub(super) spare: Mutex<Vec<Search<K, S>>>,
}

pub(super) struct Shard<K, S> {
    lanes: HashMap<u64, Bucket<K, S>, PassThrough>,
    /// How often a lane was removed: who looks through a bucket begins anew.
    removed: u64,
}

/// The lanes of the keys with one hash; more than one hardly ever.
enum Bucket<K, S> {
    One(Arc<Lane<K, S>>),
    Many(Vec<Arc<Lane<K, S>>>),
}

impl<K, S> Bucket<K, S> {
    #[inline]
    fn get(&self, at: usize) -> Option<&Arc<Lane<K, S>>> {
        match self {
            Bucket::One(lane) => (at == 0).then_some(lane),
            Bucket::Many(lanes) => lanes.get(at),
        }
    }

    fn push(&mut self, lane: Arc<Lane<K, S>>) {
        match self {
            Bucket::One(first) => *self = Bucket::Many(vec![first.clone(), lane]),
            Bucket::Many(lanes) => lanes.push(lane),
        }
    }
}

/// The keys are hashes already.
#[derive(Clone, Copy, Default)]
struct PassThrough;

#[derive(Default)]
struct Passed(u64);

impl BuildHasher for PassThrough {
    type Hasher = Passed;
    fn build_hasher(&self) -> Passed {
        Passed::default()
    }
}

impl Hasher for Passed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("hashes are written as numbers");
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl<K, S> Shard<K, S> {
    /// Hashes that have lanes.
    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    #[inline]
    pub(super) fn get(&self, hash: u64, at: usize) -> Option<&Arc<Lane<K, S>>> {
        self.lanes.get(&hash)?.get(at)
    }

    fn insert(&mut self, lane: Arc<Lane<K, S>>) {
        match self.lanes.entry(lane.hash()) {
            std::collections::hash_map::Entry::Occupied(mut bucket) => bucket.get_mut().push(lane),
            std::collections::hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Bucket::One(lane));
            }
        }
    }

    /// Whether this lane is there.
    fn has(&self, lane: Typed<'_, K, S>) -> bool {
        (0..).map_while(|at| self.get(lane.hash(), at)).any(|held| lane.is(held))
    }

    /// Removes a lane. Returns the directory's hold on it, to be dropped outside of the lock.
    fn remove(&mut self, lane: Typed<'_, K, S>) -> Option<Arc<Lane<K, S>>> {
        let hash = lane.hash();
        let bucket = self.lanes.get_mut(&hash)?;
        self.removed += 1;
        let own = |held: &Arc<Lane<K, S>>| lane.is(held);
        match bucket {
            Bucket::One(held) if own(held) => match self.lanes.remove(&hash) {
                Some(Bucket::One(held)) => Some(held),
                _ => None,
            },
            Bucket::One(_) => None,
            Bucket::Many(lanes) => {
                let at = lanes.iter().position(own)?;
                let held = lanes.remove(at);
                if lanes.is_empty() {
                    self.lanes.remove(&hash);
                }
                Some(held)
            }
        }
    }
}

/// Which shard a hash belongs to. The tables go by the lowest and the highest bits.
#[inline]
pub(super) fn index(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

impl<K: Hash + Eq + Send + Sync + 'static, S: Send + 'static> Directory<K, S> {
    pub(super) fn new() -> Self {
        let shard = |_| RwLock::new(Shard { lanes: HashMap::default(), removed: 0 });
        let (hasher, spare) = Default::default();
        Directory { hasher, shards: std::array::from_fn(shard), spare }
    }

    /// Has keys hashed alike in every run, before the first is: lanes are taken out in an order that goes by their hashes, and a
    /// test is to do the same twice.
    pub(super) fn hash_alike(&self) {
        let _ = self.hasher.set(SeedableRandomState::fixed());
    }

    #[inline]
    fn shard(&self, hash: u64) -> RwLockReadGuard<'_, Shard<K, S>> {
        self.shards[index(hash)].read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn shard_mut(&self, hash: u64) -> RwLockWriteGuard<'_, Shard<K, S>> {
        self.shards[index(hash)].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What hashes keys. It calls the program's code.
    #[inline]
    pub(super) fn hasher(&self) -> &SeedableRandomState {
        self.hasher.get_or_init(SeedableRandomState::random)
    }

    /// The lane of a key; `weight` is asked for that of a new one.
    #[inline(always)] // each event comes here
    pub(super) fn lane(&self, key: K, weight: impl Fn(&K) -> NonZeroU32) -> Arc<Lane<K, S>> {
        let hash = self.hasher().hash_one(&key);
        let first = self.shard(hash).get(hash, 0).cloned();
        match first {
            Some(lane) if *lane.key() == key => lane,
            other => self.lane_beside(other, key, hash, weight),
        }
    }

    /// The lane of a key that is not `other`'s, which has the same hash, if there is one.
    #[cold]
    #[inline(never)]
    pub(super) fn lane_beside(
        &self,
        other: Option<Arc<Lane<K, S>>>,
        key: K,
        hash: u64,
        weight: impl Fn(&K) -> NonZeroU32,
    ) -> Arc<Lane<K, S>> {
        if let Some(other) = other {
            self.retire(LaneRef::of(other));
        }
        self.lane_anew(key, hash, weight)
    }

    /// As [`lane`](Self::lane), of a key that is new or has its hash in common with another.
    #[cold]
    #[inline(never)]
    pub(super) fn lane_anew(
        &self,
        key: K,
        hash: u64,
        weight: impl Fn(&K) -> NonZeroU32,
    ) -> Arc<Lane<K, S>> {
        let mut at = 0;
        let mut removed = None;
        let mut new_weight = None;
        loop {
            let candidate = {
                let mut shard = self.shard_mut(hash);
                if removed.replace(shard.removed).is_some_and(|before| before != shard.removed) {
                    at = 0;
                }
                match (shard.get(hash, at), new_weight) {
                    (Some(lane), _) => Some(lane.clone()),
                    (None, None) => None,
                    (None, Some(weight)) => {
                        let lane = Arc::new(Lane::new(key, hash, weight));
                        shard.insert(lane.clone());
                        return lane;
                    }
                }
            };
            match candidate {
                Some(lane) if *lane.key() == key => return lane,
                Some(other) => {
                    self.retire(LaneRef::of(other));
                    at += 1;
                }
                None => new_weight = Some(weight(&key)),
            }
        }
    }

    /// The lane of a key, if it has one.
    pub(super) fn find(&self, key: &K) -> Option<Arc<Lane<K, S>>> {
        let hash = self.hasher().hash_one(key);
        let (mut at, mut removed) = (0, None);
        loop {
            let lane = {
                let shard = self.shard(hash);
                if removed.replace(shard.removed).is_some_and(|before| before != shard.removed) {
                    at = 0;
                }
                shard.get(hash, at)?.clone()
            };
            if lane.key() == key {
                return Some(lane);
            }
            self.retire(LaneRef::of(lane));
            at += 1;
        }
    }

    /// Keys that have a lane.
    pub(super) fn len(&self) -> usize {
        let len = |shard: &RwLock<Shard<K, S>>| {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard
                .lanes
                .values()
                .map(|bucket| match bucket {
                    Bucket::One(_) => 1,
                    Bucket::Many(lanes) => lanes.len(),
                })
                .sum::<usize>()
        };
        self.shards.iter().map(len).sum()
    }
}

impl<K: Hash + Eq + Send + Sync + 'static, S: Send + 'static> Directory<K, S> {
    /// Somebody is done with a lane: who had its last event, or looked at it. Unless it has state, or somebody else holds
    /// it, who will come here too, the directory forgets it.
    pub(super) fn retire(&self, lane: LaneRef) {
        let Some(typed) = lane.typed::<K, S>().filter(|_| !lane.has_state()) else { return };
        let mut shard = self.shard_mut(typed.hash());
        if !shard.has(typed) {
            return drop(shard); // before the lane, which may be the last hold on what is the program's
        }
        // The directory and the caller hold it, and nobody else can get at it but through this shard.
        let alone = lane.count() == 2;
        // What others did with it before they let go of it is seen from here on.
        fence(Acquire);
        let forgotten = if alone && !lane.has_state() { shard.remove(typed) } else { None };
        if forgotten.is_none() {
            drop(lane); // under the lock, so that the last of several who let go finds itself alone; the directory keeps it
        }
        drop(shard);
        drop(forgotten);
    }

    /// Takes out the lanes of a part of the keys, if there are any: nobody handles events of them any more.
    pub(super) fn take_some(&self) -> Option<impl Iterator<Item = LaneRef> + use<K, S>> {
        let lanes = self.shards.iter().find_map(|shard| {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.removed += 1;
            Some(std::mem::take(&mut shard.lanes)).filter(|lanes| !lanes.is_empty())
        })?;
        Some(lanes.into_values().flat_map(|bucket| {
            let (one, many) = match bucket {
                Bucket::One(lane) => (Some(lane), Vec::new()),
                Bucket::Many(lanes) => (None, lanes),
            };
            one.into_iter().chain(many).map(LaneRef::of)
        }))
    }
}
