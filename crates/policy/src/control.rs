//! What a policy may see and do: five groups of methods (queues, pools, monitoring, scheduling,
//! instances), after the programming interface for overload control of LEDA; the names used there
//! stand with each. Every call is checked at once and changes nothing if it is refused.
//! Long because each of the methods says what it means, when it takes effect and what it refuses.

use std::num::NonZeroUsize;
use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::graph::{Kind, StageId};
use comporta_model::plan::WhenFull;

/// A pool of threads: how many are in its stages at once at most, and are there for them whatever
/// other pools do. Which threads of the cluster they are does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u32);

/// A timer of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerId(pub u32);

/// One stage or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    /// Every stage of the cluster.
    All,
    /// This one.
    Stage(StageId),
}

/// What a policy knows of a stage beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageInfo {
    /// By which it is called.
    pub id: StageId,
    /// Its name.
    pub name: String,
    /// Whether it is a source, an input or a stage with a queue.
    pub kind: Kind,
    /// How many stages lie before it, on the longest way that does not turn back.
    pub depth: usize,
    /// Whether it may have one instance only.
    pub stateful: bool,
    /// Whether the program says that what it sends leaves in the order its events came.
    pub ordered: bool,
    /// Whether the plan, or a person since, says how many instances it has, or the program, of a
    /// stateful one.
    pub instances_said: bool,
    /// Whether the plan, or a person since, says how many events its queue holds.
    pub capacity_said: bool,
    /// How many events its queue must hold at least: as many as it is handed at once.
    pub capacity_min: usize,
}

impl StageInfo {
    /// A stage as described; for mocks.
    #[must_use]
    pub fn new(id: StageId, name: impl Into<String>, kind: Kind, depth: usize) -> Self {
        StageInfo {
            id,
            name: name.into(),
            kind,
            depth,
            stateful: false,
            ordered: false,
            instances_said: false,
            capacity_said: false,
            capacity_min: 1,
        }
    }

    /// Whether events wait in front of it.
    #[must_use]
    pub fn has_queue(&self) -> bool {
        self.kind == Kind::Stage
    }
}

/// Why a call was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A stage of another cluster, or none at all.
    #[error("stage {stage} is not in the cluster `{cluster}`")]
    NotInCluster {
        /// The stage: its name, or its number if it has none.
        stage: String,
        /// The cluster of the policy.
        cluster: String,
    },
    /// A pool of another cluster, or none at all.
    #[error("there is no pool {0} in this cluster")]
    NoPool(u32),
    /// Sources and inputs have no queue.
    #[error("`{0}` has no queue")]
    NoQueue(String),
    /// Which queues are used is fixed before events flow.
    #[error("which queues are used is fixed once, in `start`")]
    Started,
    /// The visit order needs per-stage queues.
    #[error("`{0}` needs per-stage queues: call `use_per_stage_queues` in `start`")]
    NeedsPerStageQueues(&'static str),
    /// An order without stages.
    #[error("a visit order names at least one stage")]
    EmptyOrder,
    /// An index past the end of the visit order.
    #[error("the visit order has {len} places: there is no place {index}")]
    NoPlace {
        /// The index, from 0.
        index: usize,
        /// Places in the order.
        len: usize,
    },
    /// A number out of its range.
    #[error("{what} is {given}: use {expected}")]
    OutOfRange {
        /// What.
        what: String,
        /// What was asked for.
        given: usize,
        /// What it may be.
        expected: String,
    },
    /// A pool with stages keeps a thread.
    #[error("pool `{pool}` has {threads} threads and stages to run: {less} cannot go")]
    NoThreadLeft {
        /// The name of the pool.
        pool: String,
        /// Threads it has.
        threads: usize,
        /// How many were to go.
        less: usize,
    },
    /// More instances than a stage may have, or fewer than one.
    #[error("`{stage}` has {instances} instances and cannot have {wanted}")]
    Instances {
        /// The stage.
        stage: String,
        /// Instances it has.
        instances: usize,
        /// How many there would be.
        wanted: usize,
    },
    /// The runtime could not do it.
    #[error("{0}")]
    Failed(String),
}

/// Keeps [`PolicyControl`] to the clusters of this workspace, so that it can be given more methods.
#[doc(hidden)]
pub mod sealed {
    /// Implemented beside [`PolicyControl`](super::PolicyControl).
    pub trait Sealed {}
}

/// The cluster of a policy: what it can see of it, and do to it.
///
/// Reading methods say what is so at this moment. The others take effect with the next event each
/// thread takes, unless they say otherwise; events in hand are finished first, and none is lost.
///
/// The trait is sealed: a program calls it and tries policies on a [`Mock`](crate::mock::Mock), but does
/// not implement it.
pub trait PolicyControl: sealed::Sealed {
    // --- what there is

    /// The time now.
    fn now(&self) -> Time;
    /// The stages of the cluster, in the order of the pipeline: sources first.
    fn stages(&self) -> &[StageInfo];
    /// The pool the cluster has by itself, with the threads the plan gives it. Every stage is in
    /// it when the policy starts.
    fn main_pool(&self) -> PoolId;
    /// Says why the policy does what it does next: shown with what it did.
    fn explain(&mut self, why: String);

    // --- 1. queues (leda)

    /// `usePrivateQueues`: threads visit the queues of the stages in the
    /// [visit order](Self::set_visit_order), rather than taking events from one queue. The first order
    /// is that of the pipeline.
    ///
    /// # Errors
    /// After `start`: which queues are used is fixed before events flow.
    fn use_per_stage_queues(&mut self) -> Result<(), Refused>;
    /// Not of LEDA: each thread has a ready queue of its own and takes from others when it is
    /// empty. Faster than one queue on many threads. While a stage has a priority, threads take from
    /// one queue all the same, whose order is exact.
    ///
    /// # Errors
    /// After `start`.
    fn use_per_worker_queues(&mut self) -> Result<(), Refused>;
    /// `setQueueCapacity`: how many events wait at a stage at most. Below what waits now, all that
    /// wait stay, and none is admitted until there is room.
    ///
    /// # Errors
    /// Zero, less than the stage is [handed at once](StageInfo::capacity_min), or a stage without
    /// a queue.
    fn set_queue_capacity(&mut self, stage: StageId, max: usize) -> Result<(), Refused>;
    /// `getQueueCapacity`.
    ///
    /// # Errors
    /// A stage without a queue.
    fn queue_capacity(&self, stage: StageId) -> Result<usize, Refused>;
    /// Not of LEDA: what happens to an event that arrives at a full queue, instead of what the plan says
    /// of the queue; those who wait already are let in first. What the plan says of a connector holds
    /// for what comes by it all the same.
    ///
    /// # Errors
    /// A stage without a queue.
    fn set_when_full(&mut self, stage: StageId, when_full: WhenFull) -> Result<(), Refused>;
    /// `disableQueue`: events that arrive are shed, with reason `disabled`, until it is enabled, and so
    /// are those that wait outside. What is in the queue is handled.
    ///
    /// # Errors
    /// A stage without a queue.
    fn disable_queue(&mut self, stage: StageId) -> Result<(), Refused>;
    /// `enableQueue`.
    ///
    /// # Errors
    /// A stage without a queue.
    fn enable_queue(&mut self, stage: StageId) -> Result<(), Refused>;
    /// `queueIsEnabled`.
    ///
    /// # Errors
    /// A stage without a queue.
    fn queue_is_enabled(&self, stage: StageId) -> Result<bool, Refused>;

    // --- 2. pools

    /// `pool.new`: a pool with so many threads and no stages.
    ///
    /// # Errors
    /// More threads than there may be, or more pools.
    fn new_pool(&mut self, threads: usize) -> Result<PoolId, Refused>;
    /// `setPool`: the stage is run by as many threads at most as this pool has.
    ///
    /// # Errors
    /// A pool without threads.
    fn set_pool(&mut self, pool: PoolId, stage: StageId) -> Result<(), Refused>;
    /// `pool.add`: so many threads more.
    ///
    /// # Errors
    /// More than there may be.
    fn add_threads(&mut self, pool: PoolId, n: usize) -> Result<(), Refused>;
    /// `pool.kill`: so many threads fewer; each finishes what it has in hand.
    ///
    /// # Errors
    /// More than there are, or all of a pool that has stages.
    fn kill_threads(&mut self, pool: PoolId, n: usize) -> Result<(), Refused>;
    /// `getPool`.
    ///
    /// # Errors
    /// A stage of another cluster.
    fn pool_of(&self, stage: StageId) -> Result<PoolId, Refused>;
    /// `getThreadsCount`: how many threads a pool is to have: those on their way count, those that
    /// leave do not.
    ///
    /// # Errors
    /// An unknown pool.
    fn threads(&self, pool: PoolId) -> Result<usize, Refused>;

    // --- 3. monitoring

    /// `addTimer`: calls [`on_timer`](crate::Policy::on_timer) every so often, until the policy is
    /// replaced.
    ///
    /// # Errors
    /// A duration under a millisecond, or more than 1,024 timers.
    fn add_timer(&mut self, every: Duration) -> Result<TimerId, Refused>;
    /// `getCpusCount`: processors that this process may run on.
    fn cpus(&self) -> usize;
    /// `getCpuUsage`: how much of [these](Self::cpus), by whichever process, was used since this was
    /// last asked, or since the policy began: 0 to 100; 0 where the system does not say.
    fn cpu_usage(&mut self) -> u32;
    /// `getQueueSize`: events that wait at a stage for an instance. An event for which one is free is
    /// paired with it at once, and counts with the instances that are [not
    /// free](Self::free_instances); of a batch that an instance took, all but one event count here. So
    /// `queue_size + instances - free_instances` is what there is to do at the stage, and what is done
    /// but cannot leave yet: results that wait for room, or, at an ordered stage, for their turn. 0 for
    /// a source.
    ///
    /// # Errors
    /// A stage of another cluster.
    fn queue_size(&self, stage: StageId) -> Result<usize, Refused>;
    /// `getProcessedCount`: events the stage has settled since its statistics were reset: handled
    /// or failed; of a source, events it has sent.
    ///
    /// # Errors
    /// A stage of another cluster.
    fn processed_count(&self, stage: StageId) -> Result<u64, Refused>;
    /// `getInputCount`: events that came to the stage since its statistics were reset, whether they
    /// entered its queue, were shed or were rejected. An event that waits outside of a full queue
    /// counts when it enters. Of a source, events it has sent.
    ///
    /// # Errors
    /// A stage of another cluster.
    fn input_count(&self, stage: StageId) -> Result<u64, Refused>;
    /// `resetStatistics`: counts of this stage, as this policy sees them, begin at 0. The counters
    /// of the program stand as they are.
    ///
    /// # Errors
    /// A stage of another cluster.
    fn reset_statistics(&mut self, stage: StageId) -> Result<(), Refused>;
    /// `fireLastFocused`, `doNotFireLastFocused`: whether
    /// [`on_last_focused`](crate::Policy::on_last_focused) is called. It is called when the first of
    /// the threads comes to the last place of the visit order, and again after as many further
    /// arrivals there as there are threads: once for a round of all of them. A round without an
    /// event fires once, and then the thread sleeps.
    ///
    /// # Errors
    /// `true`, without per-stage queues.
    fn set_fire_last_focused(&mut self, fire: bool) -> Result<(), Refused>;

    // --- 4. scheduling

    /// `visitOrder`: the order in which every thread of the cluster visits the stages, from the
    /// first place on; a stage may have several places. A thread stays while events last (see
    /// [`set_max_events_when_focused`](Self::set_max_events_when_focused); at a source, for one batch) and
    /// then goes to the next place, and from the last to the first. Stages that the order leaves
    /// out are visited after it, so that none is forgotten. One order serves all pools: a thread that
    /// comes to a stage whose pool has all its threads in visits goes on to the next place, and the
    /// stage has a visit as soon as one of them has left. Takes effect when a thread has finished its
    /// visit, also if the order is as before: it begins at the first place.
    ///
    /// # Errors
    /// Without per-stage queues, an empty order, a stage of another cluster, or too few places for
    /// the one to [restart at](Self::set_restart_at).
    fn set_visit_order(&mut self, stages: &[StageId]) -> Result<(), Refused>;
    /// `maxVisits`: calls [`on_max_visits`](crate::Policy::on_max_visits) each time the threads
    /// have come to so many places, empty ones included; several times in a row where they came to
    /// several times as many at once, but at most 64 times for what was not answered yet. `None` ends it.
    ///
    /// # Errors
    /// A number, without per-stage queues.
    fn set_max_visits(&mut self, visits: Option<NonZeroUsize>) -> Result<(), Refused>;
    /// `restartAtIndex`, `doNotRestart`: after a visit that processed at least one event a thread
    /// goes to this place of the order (the first is 0), or to the next with `None`.
    ///
    /// # Errors
    /// A place, without per-stage queues or if the order does not have it.
    fn set_restart_at(&mut self, index: Option<usize>) -> Result<(), Refused>;
    /// `steal`: asks the pool of `from` for so many threads for the pool of `to`. A thread of the
    /// asked pool goes after the event it has in hand; if more are wanted, the request goes to the
    /// end of the line, so that several who ask are served evenly. A pool that has stages keeps a
    /// thread: what it cannot give waits in line until it has more, or its stages have gone.
    ///
    /// # Errors
    /// A stage of another cluster.
    fn steal(&mut self, to: StageId, from: StageId, n: usize) -> Result<(), Refused>;
    /// `setPriority`: where the ready events of a pool stand in one queue, those of stages with a
    /// higher priority come first.
    ///
    /// # Errors
    /// A stage of another cluster.
    fn set_priority(&mut self, stage: StageId, priority: i32) -> Result<(), Refused>;
    /// `getPriority`.
    ///
    /// # Errors
    /// A stage of another cluster.
    fn priority(&self, stage: StageId) -> Result<i32, Refused>;
    /// `maxEventsWhenFocused`: how many events a thread processes at most before it goes on. A stage
    /// that is handed groups is handed them whole: the group that reaches the bound ends the visit.
    ///
    /// # Errors
    /// Without per-stage queues, or 0.
    fn set_max_events_when_focused(&mut self, focus: Focus, n: usize) -> Result<(), Refused>;
    /// Not of LEDA: stages of one color never run at once (Zeldovich et al. 2003); `None` takes
    /// the color away.
    ///
    /// # Errors
    /// A stage of another cluster.
    fn set_color(&mut self, stage: StageId, color: Option<u32>) -> Result<(), Refused>;

    // --- 5. instances

    /// `instances.add`: so many more events of a stage may be handled at once. Nothing happens at a
    /// stage that has ended.
    ///
    /// # Errors
    /// A stateful stage, a source, or more than there may be.
    fn add_instances(&mut self, stage: StageId, n: usize) -> Result<(), Refused>;
    /// `instances.kill`: free ones go first, others after the event they have in hand.
    ///
    /// # Errors
    /// All of them, or more.
    fn kill_instances(&mut self, stage: StageId, n: usize) -> Result<(), Refused>;
    /// `getInstancesCount`: those that leave after the event they have in hand do not count; 0 of a
    /// stage that has ended.
    ///
    /// # Errors
    /// A stage of another cluster.
    fn instances(&self, stage: StageId) -> Result<usize, Refused>;
    /// `getFreeInstancesCount`: those that are not paired with an event. One that waits for a thread
    /// to handle its event is not free, nor is one that waits to send what it has handled.
    ///
    /// # Errors
    /// A stage of another cluster.
    fn free_instances(&self, stage: StageId) -> Result<usize, Refused>;
}
