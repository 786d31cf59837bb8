//! The workers of a cluster, which share their work, whichever pool (`pool.rs`) it belongs to: who they
//! are, who is to leave, and what each is doing.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use comporta_model::event::Time;

use crate::path::ready::Local;
use crate::path::shared::Shared;
use crate::sleep::{Awake, Sleep, Woken};
use crate::sync::{
    Acquire, Arc, AtomicBool, AtomicU32, AtomicU64, CachePadded, Mutex, Relaxed, Release, SeqCst,
};

/// The threads of a cluster.
pub(crate) struct WorkerGroup {
    pub(crate) cluster: usize,
    pub(crate) name: String,
    pub(crate) shared: CachePadded<Shared>,
    pub(crate) sleep: CachePadded<Sleep>,
    /// Workers have per-worker ready queues, and steal.
    per_worker_queues: AtomicBool,
    /// There are several pools, which have to be entered and left.
    pooled: AtomicBool,
    /// The policy asks for the CPU time of visits.
    measures_cpu: AtomicBool,
    roster: CachePadded<Mutex<Roster>>,
    /// Rises with every change of the workers; workers compare it once per visit.
    epoch: AtomicU64,
}

#[derive(Default)]
struct Roster {
    members: Arc<Vec<Arc<WorkerHandle>>>,
    made: usize,
}

/// One worker, as others see it.
pub(crate) struct WorkerHandle {
    /// Its cluster.
    pub(crate) group: usize,
    pub(crate) number: usize,
    pub(crate) local: CachePadded<Local>,
    pub(crate) woken: Arc<Woken>,
    pub(crate) leaving: AtomicBool,
    /// Since when it has been in one visit (nanoseconds; 0 if in none), with `AWAY` if that is known, or
    /// found by the clock, to take long; to which stage.
    since: AtomicU64,
    pub(crate) stage: AtomicU32,
    /// What its visit has not begun, if others may have it.
    tray: Mutex<Option<(u32, AnyTray)>>,
    /// It stands in for a stuck one.
    pub(crate) stand_in: bool,
}

/// The tray of a visit, whatever its type.
pub(crate) type AnyTray = Arc<dyn Any + Send + Sync>;

const AWAY: u64 = 1 << 63;

impl WorkerHandle {
    /// It begins a visit, which may be known to take long.
    pub(crate) fn begin(&self, stage: u32, now: Time, long: bool) {
        self.stage.store(stage, Relaxed);
        let since = now.as_nanos() | 1; // never 0, and centuries below `AWAY`
        self.since.store(if long { since | AWAY } else { since }, SeqCst);
    }

    /// It has ended its visit. Returns whether that was known, or found, to take long.
    pub(crate) fn end(&self) -> bool {
        self.since.swap(0, SeqCst) & AWAY != 0
    }

    /// Shows what its visit has not begun, so that it can be taken back; or that there is nothing.
    pub(crate) fn set_tray(&self, tray: Option<(u32, AnyTray)>) {
        *self.tray.lock() = tray;
    }

    /// What its visit has not begun, and the stage it is of.
    pub(crate) fn tray(&self) -> Option<(u32, AnyTray)> {
        self.tray.lock().clone()
    }

    /// Whether the visit it is in is known, or was found, to take long.
    pub(crate) fn is_away(&self) -> bool {
        self.since.load(Relaxed) & AWAY != 0
    }

    /// Whether it is in a visit: then it comes to its queue afterwards.
    pub(crate) fn is_in_visit(&self) -> bool {
        self.since.load(SeqCst) > 0
    }

    /// For how long it has been in one visit.
    pub(crate) fn in_visit(&self, now: Time) -> Option<Duration> {
        let since = self.since.load(Relaxed) & !AWAY;
        (since > 0).then(|| now.duration_since(Time::from_nanos(since)))
    }

    /// Whether the visit it is in takes longer than this, and nobody knew: says so once.
    pub(crate) fn note_long(&self, now: Time, long: Duration) -> bool {
        let since = self.since.load(SeqCst);
        let is_long =
            since > 0 && since < AWAY && now.duration_since(Time::from_nanos(since)) > long;
        is_long && self.since.compare_exchange(since, since | AWAY, SeqCst, SeqCst).is_ok()
    }
}

impl WorkerGroup {
    pub(crate) fn new(cluster: usize, name: String, awake: Arc<Awake>) -> Self {
        WorkerGroup {
            cluster,
            name,
            shared: CachePadded::default(),
            sleep: CachePadded::new(Sleep::new(awake)),
            per_worker_queues: AtomicBool::new(false),
            pooled: AtomicBool::new(false),
            measures_cpu: AtomicBool::new(false),
            roster: CachePadded::default(),
            epoch: AtomicU64::new(1),
        }
    }

    /// Returns `true` if its workers have per-worker ready queues.
    pub(crate) fn per_worker_queues(&self) -> bool {
        self.per_worker_queues.load(Acquire)
    }

    pub(crate) fn set_per_worker_queues(&self, per_worker: bool) {
        self.per_worker_queues.store(per_worker, Release);
    }

    /// Whether pools have to be entered. If there is only one, it has as many threads as there are.
    #[inline]
    pub(crate) fn is_pooled(&self) -> bool {
        self.pooled.load(SeqCst)
    }

    pub(crate) fn set_pooled(&self, pooled: bool) {
        self.pooled.store(pooled, SeqCst);
    }

    /// Whether the CPU time of visits is measured.
    #[inline]
    pub(crate) fn measures_cpu(&self) -> bool {
        self.measures_cpu.load(Relaxed)
    }

    pub(crate) fn set_measures_cpu(&self, measures: bool) {
        self.measures_cpu.store(measures, Relaxed);
    }

    pub(crate) fn members(&self) -> Arc<Vec<Arc<WorkerHandle>>> {
        self.roster.lock().members.clone()
    }

    /// Adds a worker; the caller gives it a thread.
    pub(crate) fn add(&self, stand_in: bool) -> Arc<WorkerHandle> {
        let mut roster = self.roster.lock();
        let member = Arc::new(WorkerHandle {
            group: self.cluster,
            number: roster.made,
            local: CachePadded::default(),
            woken: Arc::default(),
            leaving: AtomicBool::new(false),
            since: AtomicU64::new(0),
            stage: AtomicU32::new(0),
            tray: Mutex::default(),
            stand_in,
        });
        roster.made += 1;
        let members = roster.members.iter().cloned().chain([member.clone()]).collect();
        roster.members = Arc::new(members);
        self.sleep.set_workers(roster.members.len());
        self.epoch.fetch_add(1, SeqCst);
        member
    }

    /// Has `n` workers, or stand-ins, leave, the last added first.
    pub(crate) fn retire(&self, n: usize, stand_ins: bool) {
        if n == 0 {
            return;
        }
        let roster = self.roster.lock();
        let staying = roster
            .members
            .iter()
            .rev()
            .filter(|member| !member.leaving.load(SeqCst) && member.stand_in == stand_ins);
        staying.take(n).for_each(|member| member.leaving.store(true, SeqCst));
        drop(roster);
        self.sleep.wake_all();
    }

    /// Rises with every change of the workers.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    /// A member has left.
    pub(crate) fn gone(&self, member: &Arc<WorkerHandle>) {
        let mut roster = self.roster.lock();
        let rest = roster.members.iter().filter(|other| !Arc::ptr_eq(other, member)).cloned();
        roster.members = Arc::new(rest.collect());
        self.sleep.set_workers(roster.members.len());
        self.epoch.fetch_add(1, SeqCst);
    }
}

impl fmt::Debug for WorkerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerGroup")
            .field("name", &self.name)
            .field("tokens", &self.shared.len())
            .field("sleep", &*self.sleep)
            .field("workers", &self.members())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_visit = self.since.load(SeqCst) > 0;
        f.debug_struct("WorkerHandle")
            .field("number", &self.number)
            .field("tokens", &self.local.len())
            .field("leaving", &self.leaving)
            .field("visits", &in_visit.then(|| self.stage.load(Relaxed)))
            .finish_non_exhaustive()
    }
}
