//! Which pool runs a stage, and what workers know of its visits before they make one.

use comporta_model::graph::{Kind, StageSpec};
use comporta_model::plan::{StageSettings, WhenFull};

use crate::core::Core;
use crate::path::moving::{KEY_NS, VisitTime};
use crate::sync::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Mutex, Relaxed, SeqCst};
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
    /// They do, or those that follow from them do together.
    pays_to_take: AtomicBool,
    /// What another worker saves by making a visit and those that follow from it, without what it costs to move the events,
    /// in nanoseconds.
    chain_ns: AtomicI64,
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
            pays_to_take: AtomicBool::new(true),
            chain_ns: AtomicI64::new(0),
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

    /// Whether it pays another worker to take a token of a stage: to make a visit, and those that follow from it.
    #[inline]
    pub(crate) fn pays_to_take(&self, stage: u32) -> bool {
        self.assignments[stage as usize].pays_to_take.load(Relaxed)
    }

    /// Visits to a stage usually are like this one. Returns whether it pays to have another worker make them.
    pub(crate) fn set_visit_time(&self, stage: u32, visit: VisitTime) -> bool {
        let assignment = &self.assignments[stage as usize];
        let visit = VisitTime { keys_ns: assignment.keys_ns, ..visit };
        let pays = assignment.pays_always || visit.pays();
        let ahead_ns = self.ahead_ns(stage);
        let takes = pays || ahead_ns > visit.moves_ns();
        let chain_ns = visit.saves_ns().saturating_add(ahead_ns);
        assignment.chain_ns.store(chain_ns, Relaxed);
        for (flag, to) in [(&assignment.pays_to_move, pays), (&assignment.pays_to_take, takes)] {
            if flag.load(Relaxed) != to {
                flag.store(to, Relaxed);
            }
        }
        pays
    }

    /// What is saved by making the visits that follow from one to this stage elsewhere: by the longest of the chains that
    /// begin there, since others may join it again. Nothing is known of cycles.
    fn ahead_ns(&self, stage: u32) -> i64 {
        let cluster = self.workers_of(stage);
        if self.wiring.cycle(stage).is_some() {
            return 0;
        }
        let ahead = self.wiring.leads_to(stage).filter(|to| self.workers_of(to.0) == cluster);
        ahead.map(|to| self.assignments[to.index()].chain_ns.load(Relaxed)).max().unwrap_or(0)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::app::App;
    use crate::env::Clock;
    use comporta_model::plan::Plan;

    /// A source, `LAYERS` layers of two stages each of which leads to both of the next, and a sink.
    fn layers() -> crate::sync::Arc<Core> {
        let app = App::new("layers");
        let mut ports = vec![app.source("source", || 0..1_u64)];
        for layer in 0..LAYERS {
            let next = [0, 1].map(|n| app.map(format!("stage{layer}-{n}"), |n: u64| n));
            ports.into_iter().for_each(|port| app.round_robin(port, next));
            ports = next.map(|stage| *stage).to_vec();
        }
        let sink = app.sink("sink", |_: u64| ());
        ports.into_iter().for_each(|port| app.connect(port, sink));
        app.build(&Plan::new(), Clock::real(), false).expect("a valid graph")
    }

    const LAYERS: i64 = 70;

    /// From the end to the beginning: visits of one event that take so long.
    fn all_take(core: &Core, takes_ns: u64) {
        let visit = VisitTime { takes_ns, side_by_side: 1, events: 1, event_ns: 10, keys_ns: 0 };
        for stage in (0..core.assignments.len() as u32).rev() {
            core.set_visit_time(stage, visit);
        }
    }

    #[test]
    fn a_chain_counts_once_however_often_it_parts_and_meets_again() {
        let core = layers();
        all_take(&core, 2_005);
        assert_eq!(core.assignments[0].chain_ns.load(Relaxed), 5 * (LAYERS + 2));
        assert!(core.pays_to_take(0) && !core.pays_to_move(0), "as the source of a long chain");
        let sink = core.assignments.len() as u32 - 1;
        assert!(!core.pays_to_take(sink), "its events would have to be moved for little");
    }

    #[test]
    fn trivial_stages_stay_together_however_many_they_are() {
        let core = layers();
        all_take(&core, 1_900);
        assert_eq!(core.assignments[0].chain_ns.load(Relaxed), -100 * (LAYERS + 2));
        assert!((0..core.assignments.len() as u32).all(|stage| !core.pays_to_take(stage)));
    }

    #[test]
    fn a_visit_that_takes_long_saves_no_more_than_a_bound() {
        let core = layers();
        all_take(&core, u64::MAX);
        assert!(core.assignments[0].chain_ns.load(Relaxed) > 0);
    }
}
