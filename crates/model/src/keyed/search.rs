//! The lanes of events that came together, looked for together: their keys are hashed, then each shard of the directory is
//! locked once, shared with other senders, to take out a candidate for each key, and then keys are compared.
//! Before: `keys`. After: `directory`, for keys that are new or have their hash in common with others.
//! Invariants: the program's code runs while no shard is locked; a thread that waits for a shard has locked no other.

use std::hash::Hash;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLockReadGuard};

use super::directory::{Directory, SHARDS, Shard, index};
use super::lane::Lane;

/// Lanes of a shard that are likely in a cache: with those of the others, a megabyte.
const CACHED_MAX: usize = 512;

/// Storage for searches that is kept: about as many senders search at once.
const SPARE_MAX: usize = 16;

/// Keys of events that came together, whose lanes are looked for.
pub(super) struct Search<K, S> {
    sought: Vec<Sought<K, S>>,
    next: usize,
}

/// A key whose lane is looked for.
struct Sought<K, S> {
    /// None if it cannot be had.
    key: Option<K>,
    hash: u64,
    /// A lane of a key with this hash.
    candidate: Option<Arc<Lane<K, S>>>,
}

impl<K, S> Search<K, S> {
    /// Adds a key, with its hash.
    #[inline]
    pub(super) fn add(&mut self, key: K, hash: u64) {
        self.sought.push(Sought { key: Some(key), hash, candidate: None });
    }

    /// The next key cannot be had.
    pub(super) fn add_none(&mut self) {
        self.sought.push(Sought { key: None, hash: 0, candidate: None });
    }
}

/// Shards that a search has locked.
struct Held<'a, K, S> {
    directory: &'a Directory<K, S>,
    shards: [Option<RwLockReadGuard<'a, Shard<K, S>>>; SHARDS],
}

impl<K, S> Held<'_, K, S> {
    /// The shard of a hash. It is waited for only when no other is held: others may wait the other way round.
    #[inline(always)] // each event comes here
    fn shard(&mut self, hash: u64) -> &Shard<K, S> {
        let at = index(hash);
        if self.shards[at].is_none() {
            self.lock(at);
        }
        self.shards[at].as_ref().expect("it was just locked")
    }

    #[inline(never)]
    fn lock(&mut self, at: usize) {
        let shard = &self.directory.shards[at];
        let free = shard.try_read().ok();
        if free.is_none() {
            self.shards = Default::default();
        }
        let wait = || shard.read().unwrap_or_else(PoisonError::into_inner);
        self.shards[at] = Some(free.unwrap_or_else(wait));
    }
}

impl<K: Hash + Eq + Send + Sync + 'static, S: Send + 'static> Directory<K, S> {
    /// Begins a search.
    pub(super) fn search(&self) -> Search<K, S> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or(Search { sought: Vec::new(), next: 0 })
    }

    /// Takes out a candidate for each key. It calls no code of the program.
    pub(super) fn take_candidates(&self, search: &mut Search<K, S>) {
        let mut held = Held { directory: self, shards: Default::default() };
        let sought = || search.sought.iter().filter(|sought| sought.key.is_some());
        // Of many lanes, most are in no cache: they are read before they are counted up, since a processor reads several at
        // once, and counts one after the other.
        let many = |sought: &Sought<K, S>| held.shard(sought.hash).len() > CACHED_MAX;
        if sought().next().is_some_and(many) {
            let near = |sought: &Sought<K, S>| held.shard(sought.hash).get(sought.hash, 0)?.slot();
            let _ = black_box(sought().filter_map(near).fold(0, u32::wrapping_add));
        }
        for sought in search.sought.iter_mut().filter(|sought| sought.key.is_some()) {
            sought.candidate = held.shard(sought.hash).get(sought.hash, 0).cloned();
        }
    }

    /// The lane of the next key, if it can be had; `None` at the end. It calls the program's code; after a panic, that was
    /// the lane that cannot be had.
    #[inline(always)] // each event comes here
    pub(super) fn next_lane(
        &self,
        search: &mut Search<K, S>,
        weight: impl Fn(&K) -> NonZeroU32,
    ) -> Option<Option<Arc<Lane<K, S>>>> {
        let sought = search.sought.get_mut(search.next)?;
        search.next += 1;
        let Some(key) = sought.key.take() else { return Some(None) };
        Some(Some(match sought.candidate.take() {
            Some(lane) if *lane.key() == key => lane,
            other => self.lane_beside(other, key, sought.hash, weight),
        }))
    }

    /// Ends a search that has come to its end.
    pub(super) fn end(&self, mut search: Search<K, S>) {
        search.sought.clear();
        search.next = 0;
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_MAX {
            spare.push(search);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::hash::Hasher;
    use std::sync::OnceLock;

    use super::*;
    use crate::column::Columns;
    use crate::keyed::{AnyKeys, Keying, Keys, KeysBy, LaneRef, ordered_by};

    /// What is wrong with a key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Ill {
        Hash,
        Eq,
        Drop,
    }

    thread_local! {
        /// Whether keys that are ill show it.
        static SHOWS: Cell<bool> = const { Cell::new(false) };
    }

    /// A key that has its hash in common with every other.
    #[derive(Debug)]
    struct Same(u32, Option<Ill>);

    impl Same {
        fn suffer(&self, of: Ill) {
            assert!(self.1 != Some(of) || !SHOWS.get(), "{of:?}");
        }
    }

    static KEYS: OnceLock<KeysBy<Event, Same, u8, BySame>> = OnceLock::new();

    struct BySame;
    impl Keying<Event, Same> for BySame {
        fn key(&self, (key, ill): &Event) -> Same {
            Same(*key, *ill)
        }
    }

    /// Nobody holds a shard while the program's code runs.
    fn assert_free() {
        if let Some(keys) = KEYS.get() {
            assert!(keys.directory.shards.iter().all(|shard| shard.try_write().is_ok()));
        }
    }

    impl Hash for Same {
        fn hash<H: Hasher>(&self, _: &mut H) {
            assert_free();
            self.suffer(Ill::Hash);
        }
    }

    impl PartialEq for Same {
        fn eq(&self, other: &Self) -> bool {
            assert_free();
            self.suffer(Ill::Eq);
            other.suffer(Ill::Eq);
            self.0 == other.0
        }
    }
    impl Eq for Same {}

    impl Drop for Same {
        fn drop(&mut self) {
            assert_free();
            self.suffer(Ill::Drop);
        }
    }

    type Event = (u32, Option<Ill>);

    #[test]
    fn keys_that_panic_cost_their_own_event_and_nobody_holds_a_shard_meanwhile() {
        let keys = KEYS.get_or_init(|| KeysBy::new(BySame));
        let known: Vec<LaneRef> = (0..4).map(|key| keys.lane_of(&(key, None))).collect();
        let ill = [
            (0, None),
            (1, Some(Ill::Hash)),
            (1, None),
            (2, Some(Ill::Eq)),
            (2, None),
            (3, Some(Ill::Drop)),
            (3, None),
            (9, None),
            (9, None),
        ];
        let slots: Vec<Option<Event>> = ill.into_iter().map(Some).collect();
        let (mut into, mut failed) = (Columns::default(), 0);
        SHOWS.set(true);
        keys.lanes_of(&slots, &mut into, &mut |_| failed += 1);
        SHOWS.set(false);
        let lanes: Vec<LaneRef> = into.lanes(ill.len()).flatten().collect();
        assert_eq!(failed, 3);
        let (keyless, nine) = (keys.keyless(), keys.lane_of(&(9, None)));
        let [zero, one, two, three] = [0, 1, 2, 3].map(|at| known[at].clone());
        let none = keyless.clone();
        let wanted =
            [zero, keyless.clone(), one, keyless, two, none, three, nine.clone(), nine.clone()];
        assert_eq!(lanes, wanted);
        assert_eq!(keys.count(), 5);
    }

    thread_local! {
        /// What the next comparison of two keys ends.
        static LAST: RefCell<Option<LaneRef>> = const { RefCell::new(None) };
    }

    /// A key that has its hash in common with every other.
    struct Alike(u32);

    type AlikeKeys = KeysBy<u32, Alike, (), ByAlike>;

    static ALIKE: OnceLock<AlikeKeys> = OnceLock::new();

    struct ByAlike;
    impl Keying<u32, Alike> for ByAlike {
        fn key(&self, event: &u32) -> Alike {
            Alike(*event)
        }
    }

    impl Hash for Alike {
        fn hash<H: Hasher>(&self, _: &mut H) {}
    }

    impl PartialEq for Alike {
        fn eq(&self, other: &Self) -> bool {
            if let Some((keys, lane)) = ALIKE.get().zip(LAST.take()) {
                keys.retire(lane);
            }
            self.0 == other.0
        }
    }
    impl Eq for Alike {}

    #[test]
    fn a_lane_whose_last_event_ends_while_it_is_compared_with_another_key_is_forgotten() {
        let keys = ALIKE.get_or_init(|| KeysBy::new(ByAlike));
        let ways: [fn(&AlikeKeys); 3] = [
            |keys| {
                let mut into = Columns::default();
                keys.lanes_of(&[Some(2)], &mut into, &mut |_| unreachable!());
                into.take_lanes().into_iter().for_each(|lane| keys.retire(lane));
            },
            |keys| keys.retire(keys.lane_of(&2)),
            |keys| assert!(keys.find(&Alike(2)).is_none()),
        ];
        for way in ways {
            LAST.set(Some(keys.lane_of(&1)));
            way(keys);
            assert!(LAST.take().is_none(), "the keys were compared");
            assert_eq!(keys.count(), 0);
        }
    }

    #[test]
    fn a_lane_that_was_found_is_kept_until_its_event_has_come() {
        let keys = ordered_by(|n: &u32| *n);
        let slots: Vec<Option<u32>> = (0..40).chain(0..40).map(Some).collect();
        let mut into = Columns::default();
        keys.lanes_of(&slots, &mut into, &mut |_| unreachable!());
        assert_eq!(keys.count(), 40);
        let mut lanes = into.take_lanes();
        assert!((0..40).all(|at| lanes[at] == lanes[at + 40]));
        let (second, first) = (lanes.split_off(40), lanes);
        first.into_iter().for_each(|lane| keys.retire(lane));
        assert_eq!(keys.count(), 40);
        second.into_iter().for_each(|lane| keys.retire(lane));
        assert_eq!(keys.count(), 0);
    }
}
