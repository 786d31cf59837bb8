//! Which way an event goes: connectors as the program declares them, and as one port of one sender uses
//! them. Used by `emit`.

use std::any::Any;

use comporta_model::graph::StageId;
use comporta_model::keyed::Keys;
use comporta_model::plan::WhenFull;

use crate::stage::lanes::KeyedQueue;
use crate::sync::{Arc, AtomicUsize, Relaxed};
use crate::user;

/// Chooses an end by the event.
pub(crate) type KeyFn<T> = Arc<dyn Fn(&T) -> u64 + Send + Sync>;

/// A connector as the program declared it, with its type.
pub(crate) struct Edge<T> {
    pub(crate) to: Vec<StageId>,
    pub(crate) route: Route<T>,
    pub(crate) copy: Option<fn(&T) -> T>,
}

/// A connector of whichever type.
pub(crate) trait AnyEdge: Any + Send + Sync {
    /// The same connector from the replica of this number of its stage: it leads there, to one of these by the keys of the
    /// stage if `keys` are given.
    fn replica(&self, number: usize, to: Vec<StageId>, keys: Option<&AnyParts>)
    -> Box<dyn AnyEdge>;
}

impl<T: 'static> AnyEdge for Edge<T> {
    fn replica(
        &self,
        number: usize,
        to: Vec<StageId>,
        keys: Option<&AnyParts>,
    ) -> Box<dyn AnyEdge> {
        if let Some(keys) = keys.and_then(|parts| parts.downcast_ref::<KeyedParts<T>>()) {
            let keys = keys.keys.clone();
            // A key that cannot be had is the failure of its event, and not of whoever sends it: some replica says so.
            let route = move |event: &T| user::call(|| keys.route(event)).unwrap_or(0);
            let route = Route::ByKey(Arc::new(route));
            return Box::new(Edge { to, route, copy: self.copy });
        }
        // Each begins with another, so that few events do not all go to one.
        let turns = || Route::RoundRobin(Arc::new(AtomicUsize::new(1 + number)));
        let route = match &self.route {
            Route::First if to.len() > 1 => turns(),
            Route::First => Route::First,
            Route::RoundRobin(_) => turns(),
            Route::ByKey(key) => Route::ByKey(key.clone()),
        };
        Box::new(Edge { to, route, copy: self.copy })
    }
}

/// What makes a stage keyed.
pub(crate) struct KeyedParts<T> {
    pub(crate) keys: Arc<dyn Keys<T>>,
    pub(crate) queue: KeyedQueue<T>,
}

/// Those of whichever type.
pub(crate) type AnyParts = dyn Any + Send + Sync;

pub(crate) enum Route<T> {
    First,
    /// All senders take turns together: a push that is given up has had its turn.
    RoundRobin(Arc<AtomicUsize>),
    ByKey(KeyFn<T>),
}

impl<T> Clone for Route<T> {
    fn clone(&self) -> Self {
        match self {
            Route::First => Route::First,
            Route::RoundRobin(begun) => Route::RoundRobin(begun.clone()),
            Route::ByKey(key) => Route::ByKey(key.clone()),
        }
    }
}

/// A hash that is the same in every process, so that a key finds the same end after a restart.
pub(crate) fn key_hash<K: std::hash::Hash>(key: &K) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Sees a copy of what a port sends; for tests.
pub(crate) type Tap<T> = Arc<dyn Fn(&T) + Send + Sync>;

/// Which of so many ends a key with this hash goes to.
pub(crate) fn end_of(hash: u64, ends: usize) -> usize {
    usize::try_from(hash % ends as u64).unwrap_or(0)
}

/// A connector of one port of one instance.
pub(super) struct Wire<T> {
    pub(super) route: Route<T>,
    /// Its ends as declared.
    pub(super) ends: Vec<End>,
}

/// The outlet that an end of a connector uses, and what happens when there is no room.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) outlet: usize,
    pub(super) rule: Option<WhenFull>,
}

impl<T> Wire<T> {
    /// The end that an event goes to.
    pub(super) fn choose(&self, event: &T) -> End {
        let ends = self.ends.len();
        let at = match &self.route {
            Route::First => 0,
            Route::RoundRobin(turn) => turn.fetch_add(1, Relaxed) % ends,
            Route::ByKey(key) => end_of(key(event), ends),
        };
        self.ends[at]
    }
}
