//! The busiest keys of a keyed stage, at a cost that does not grow with the number of keys: the stream summary of
//! Space-Saving (Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data streams, 2005).
//! Before: `inlet`, with the events of each key that came, and `settle`, with those that were handled. After: snapshots, and
//! policies.
//!
//! Nothing is counted until somebody looks for the first time; from then on, each parcel and each visit takes one leaf lock.
//! Invariants: at most [`TRACKED`] keys are known. A key that is not known has had no more events than the known one with
//! the fewest, which is at most one in `TRACKED` of all that came. What is known of a key has been exact since it became known.

use std::collections::HashMap;
use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::keyed::LaneRef;
use comporta_policy::KeyLoad;

/// Keys that are known: each that has more than one in so many of all events is.
pub(crate) const TRACKED: usize = 64;

/// Keys that a snapshot shows by each measure.
const SHOWN: usize = 5;

/// What is known of a key.
#[derive(Clone, Debug)]
pub(crate) struct Known<L> {
    pub(crate) lane: L,
    /// How many events came, at most; so many of them may have been of other keys.
    pub(crate) arrived: u64,
    pub(crate) error: u64,
    /// Since when it is known, and what was handled, and for how long, since.
    pub(crate) since: Time,
    pub(crate) handled: u64,
    pub(crate) busy: Duration,
    /// What was reported of it to a policy; `None` if it became known in the place of another since.
    reported: Option<Reported>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    arrived: u64,
    handled: u64,
}

/// What the keys of a stage are known by.
pub(crate) trait LaneId: Clone {
    fn id(&self) -> u64;
}

impl LaneId for LaneRef {
    fn id(&self) -> u64 {
        LaneRef::id(self)
    }
}

pub(crate) struct TopKeys<L> {
    known: Vec<Known<L>>,
    by_id: HashMap<u64, usize>,
}

impl<L: LaneId> TopKeys<L> {
    pub(crate) fn new() -> Self {
        TopKeys { known: Vec::with_capacity(TRACKED), by_id: HashMap::with_capacity(TRACKED) }
    }

    /// So many events of a key came. Returns the lane of one that is not known any more.
    pub(crate) fn arrived(&mut self, lane: &L, n: u64, now: Time) -> Option<L> {
        let id = lane.id();
        if let Some(at) = self.by_id.get(&id) {
            self.known[*at].arrived += n;
            return None;
        }
        let fewest = (self.known.len() == TRACKED)
            .then(|| (0..TRACKED).min_by_key(|at| self.known[*at].arrived))
            .flatten();
        let error = fewest.map_or(0, |at| self.known[at].arrived);
        let reported = fewest.is_none().then(Reported::default);
        let (handled, busy) = (0, Duration::ZERO);
        let lane = lane.clone();
        let new = Known { lane, arrived: error + n, error, since: now, handled, busy, reported };
        let Some(at) = fewest else {
            self.by_id.insert(id, self.known.len());
            self.known.push(new);
            return None;
        };
        let gone = std::mem::replace(&mut self.known[at], new).lane;
        self.by_id.remove(&gone.id());
        self.by_id.insert(id, at);
        Some(gone)
    }

    /// So many events of a key were handled, or failed.
    pub(crate) fn handled(&mut self, lane: &L, n: u64, busy: Duration) {
        if let Some(at) = self.by_id.get(&lane.id()) {
            let known = &mut self.known[*at];
            known.handled += n;
            known.busy += busy;
        }
    }

    /// Those that have most waiting, as `queued` says, handled most, or took longest: some by each measure.
    pub(crate) fn shown(&self, queued: impl Fn(&L) -> usize) -> Vec<(Known<L>, usize)> {
        let queued: Vec<usize> = self.known.iter().map(|known| queued(&known.lane)).collect();
        let mut shown = Vec::new();
        let mut add = |measure: &dyn Fn(usize) -> u128| {
            let mut all: Vec<usize> = (0..self.known.len()).filter(|at| measure(*at) > 0).collect();
            all.sort_by_key(|at| std::cmp::Reverse(measure(*at)));
            shown.extend(all.into_iter().take(SHOWN));
        };
        add(&|at| queued[at] as u128);
        add(&|at| u128::from(self.known[at].handled));
        add(&|at| self.known[at].busy.as_nanos());
        shown.sort_unstable();
        shown.dedup();
        shown.sort_by_key(|at| std::cmp::Reverse((queued[*at], self.known[*at].handled)));
        shown.into_iter().map(|at| (self.known[at].clone(), queued[at])).collect()
    }

    /// What keys did since this was last asked: those that did most, first. A key that took the place of another meanwhile is
    /// left out, since only a part of what it did is known.
    pub(crate) fn loads(&mut self, most: usize) -> Vec<KeyLoad> {
        let load = |known: &mut Known<L>| {
            let now = Reported { arrived: known.arrived, handled: known.handled };
            let before = known.reported.replace(now)?;
            let (arrived, handled) = (now.arrived - before.arrived, now.handled - before.handled);
            Some(KeyLoad { key: known.lane.id(), arrived, handled })
        };
        let mut loads: Vec<KeyLoad> = self.known.iter_mut().filter_map(load).collect();
        loads.retain(|load| load.arrived + load.handled > 0);
        loads.sort_by_key(|load| std::cmp::Reverse(load.handled.max(load.arrived)));
        loads.truncate(most);
        loads
    }

    /// The lanes of all that are known.
    pub(crate) fn lanes(&self) -> Vec<L> {
        self.known.iter().map(|known| known.lane.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl LaneId for u64 {
        fn id(&self) -> u64 {
            *self
        }
    }

    proptest! {
        #[test]
        fn a_key_with_its_share_is_known_and_no_count_is_further_off_than_promised(
            hot in 0..20_u64,
            noise in proptest::collection::vec(0..5_000_u64, 0..4_000),
        ) {
            let mut top = TopKeys::new();
            let mut truth = HashMap::<u64, u64>::new();
            let mut total = 0;
            for (n, key) in noise.into_iter().enumerate() {
                let key = if n % 8 < 2 { key % (hot + 1) } else { key };
                let gone = top.arrived(&key, 1, Time::ZERO);
                prop_assert!(gone.is_none_or(|gone| gone != key));
                *truth.entry(key).or_default() += 1;
                total += 1;
            }
            let bound = total / TRACKED as u64;
            prop_assert!(top.known.len() <= TRACKED && top.by_id.len() == top.known.len());
            for known in &top.known {
                let true_count = truth[&known.lane];
                prop_assert!(known.error <= bound, "{known:?} of {total}");
                prop_assert!(known.arrived - known.error <= true_count, "{known:?}: {true_count}");
                prop_assert!(true_count <= known.arrived, "{known:?}: {true_count}");
            }
            for (key, n) in truth {
                prop_assert!(n <= bound || top.by_id.contains_key(&key), "{key} with {n} of {total}");
            }
        }
    }

    #[test]
    fn a_reading_has_what_each_key_did_since_the_one_before() {
        let mut top = TopKeys::new();
        let count = |key, arrived, handled| KeyLoad { key, arrived, handled };
        assert_eq!(top.arrived(&7, 3, Time::ZERO), None);
        top.handled(&7, 2, Duration::ZERO);
        top.handled(&8, 5, Duration::ZERO); // nobody knows it
        assert_eq!(top.loads(9), [count(7, 3, 2)]);
        assert_eq!(top.loads(9), []);
        top.handled(&7, 1, Duration::ZERO);
        top.arrived(&8, 4, Time::ZERO);
        assert_eq!(top.loads(9), [count(8, 4, 0), count(7, 0, 1)]);
        top.arrived(&8, 1, Time::ZERO);
        top.arrived(&7, 2, Time::ZERO);
        assert_eq!(top.loads(1), [count(7, 2, 0)]);
    }

    #[test]
    fn a_key_that_took_the_place_of_another_is_left_out_of_one_reading() {
        let mut top = TopKeys::new();
        for key in 0..TRACKED as u64 {
            top.arrived(&key, 10, Time::ZERO);
        }
        assert_eq!(top.loads(99).len(), TRACKED);
        assert_eq!(top.arrived(&1_000, 5, Time::ZERO), Some(0));
        top.handled(&1_000, 5, Duration::ZERO);
        assert_eq!(top.loads(99), []);
        top.handled(&1_000, 2, Duration::ZERO);
        assert_eq!(top.loads(99), [KeyLoad { key: 1_000, arrived: 0, handled: 2 }]);
    }

    #[test]
    fn keys_are_shown_that_are_first_by_any_measure() {
        let mut top = TopKeys::new();
        for key in 0..40_u64 {
            top.arrived(&key, 1, Time::ZERO);
            top.handled(&key, key + 1, Duration::from_nanos(if key == 3 { 900 } else { 1 }));
        }
        let queued = |key: &u64| if *key == 11 { 6 } else { 0 };
        let shown: Vec<(u64, usize)> =
            top.shown(queued).into_iter().map(|(known, queued)| (known.lane, queued)).collect();
        assert_eq!(shown[0], (11, 6), "{shown:?}");
        assert!(shown.contains(&(39, 0)) && shown.contains(&(3, 0)), "{shown:?}");
        assert!(shown.len() <= 3 * SHOWN, "{shown:?}");
    }
}
