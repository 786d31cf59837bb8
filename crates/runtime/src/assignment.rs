//! Which pool runs a stage, and what workers know of its visits before they make one.

use comporta_model::graph::{Kind, StageSpec};
use comporta_model::plan::{StageSettings, WhenFull};

use crate::core::Core;
use crate::path::moving::{KEY_NS, pays_to_move};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Relaxed, SeqCst};
use crate::threads::LONG_VISIT;
use crate::workers::WorkerGroup;

/// Which pool runs a stage, and how; changed while events flow.
pub(crate) struct Assignment {
    /// The pool that runs it, and that pool's cluster: see [`placed`].
    pub(crate) place: AtomicU64,
    /// 0: none.
    pub(crate) color: AtomicU32,
    pub(crate) is_source: bool,
    /// Its visits take long.
    pub(crate) slow: AtomicBool,
    /// Its visits always may take long: it is a blocking stage, and no test.
    blocking: bool,
    /// Its visits take longer than to move their events to another processor, as far as is known.
    pays_to_move: AtomicBool,
    /// They do whatever is known: it is a blocking stage, or a test, where visits take no time.
    pays_always: bool,
    /// What it costs to move the keys of an event, of its own and of those it sends to.
    keys_ns: u64,
    /// What the plan says, and what a person has said since. A policy changes what holds, never
    /// this; the next policy begins with it.
    pub(crate) base: Mutex<Base>,
}

impl Assignment {
    pub(crate) fn new(stage: &StageSettings, spec: &StageSpec, keys: usize, tested: bool) -> Self {
        let blocking = spec.blocking && !tested;
        Assignment {
            place: AtomicU64::new(placed(stage.cluster, stage.cluster)),
            color: AtomicU32::new(0),
            is_source: spec.kind == Kind::Source,
            slow: AtomicBool::new(blocking),
            pays_to_move: AtomicBool::new(true),
            pays_always: spec.blocking || tested,
            keys_ns: keys as u64 * KEY_NS,
            blocking,
            base: Mutex::new(Base {
                cluster: stage.cluster,
                priority: stage.priority,
                capacity: stage.capacity,
                capacity_said: stage.capacity_said,
                when_full: stage.when_full,
                enabled: true,
                instances: stage.instances,
                instances_said: stage.instances_said,
            }),
        }
    }
}

impl Assignment {
    /// Whether a visit by a worker of `workers` needs no more than its token: no color and no pool, and it is not known to
    /// take long.
    #[inline]
    pub(crate) fn is_free(&self, workers: &WorkerGroup) -> bool {
        let here = !workers.is_pooled() && cluster_of(&self.place) == workers.cluster;
        here && self.color.load(Relaxed) == 0 && !self.slow.load(Relaxed)
    }

    /// Whether a visit usually takes longer than it takes to move its events to another processor.
    #[inline]
    pub(crate) fn pays_to_move(&self) -> bool {
        self.pays_to_move.load(Relaxed)
    }
}

/// A pool and its cluster as one number, so that they are read at once: every visit asks for the cluster.
pub(crate) fn placed(pool: usize, cluster: usize) -> u64 {
    (cluster as u64) << 32 | pool as u64
}

/// The cluster of a pool that was [`placed`].
#[inline]
pub(crate) fn cluster_of(place: &AtomicU64) -> usize {
    (place.load(SeqCst) >> 32) as usize
}

/// Whether an event that usually takes so many nanoseconds takes long.
#[inline]
pub(crate) fn is_slow(usual_ns: u64) -> bool {
    usual_ns > LONG_VISIT.as_nanos() as u64
}

/// How a stage runs where no policy says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    pub(crate) cluster: usize,
    pub(crate) priority: i32,
    pub(crate) capacity: usize,
    /// The plan, or a person since, says how many.
    pub(crate) capacity_said: bool,
    pub(crate) when_full: WhenFull,
    pub(crate) enabled: bool,
    pub(crate) instances: usize,
    /// The plan, or a person since, says how many.
    pub(crate) instances_said: bool,
}

impl Core {
    /// Whether visits to a stage usually take long.
    #[inline]
    pub(crate) fn is_slow(&self, stage: u32) -> bool {
        self.assignments[stage as usize].slow.load(Relaxed)
    }

    /// An event of a stage usually takes so many nanoseconds.
    #[cold]
    pub(crate) fn set_pace(&self, stage: u32, usual_ns: u64) {
        let Assignment { slow, blocking, .. } = &self.assignments[stage as usize];
        slow.store(is_slow(usual_ns) || *blocking, Relaxed);
    }

    /// Whether a visit to a stage usually takes longer than it takes to move its events to another processor.
    #[inline]
    pub(crate) fn pays_to_move(&self, stage: u32) -> bool {
        self.assignments[stage as usize].pays_to_move()
    }

    /// What it costs to move an event of a stage, which itself costs `event_ns`, with its keys.
    #[inline]
    pub(crate) fn move_ns(&self, stage: u32, event_ns: u64) -> u64 {
        self.assignments[stage as usize].keys_ns + event_ns
    }

    /// To have another worker make a visit usually saves so much time, with so many events, which cost so much to move.
    /// Returns whether that pays.
    pub(crate) fn set_visit_time(
        &self,
        stage: u32,
        saves_ns: u64,
        events: usize,
        move_ns: u64,
    ) -> bool {
        let Assignment { pays_to_move: flag, pays_always, .. } = &self.assignments[stage as usize];
        let pays = *pays_always || pays_to_move(saves_ns, events, move_ns);
        if flag.load(Relaxed) != pays {
            flag.store(pays, Relaxed);
        }
        pays
    }
}
