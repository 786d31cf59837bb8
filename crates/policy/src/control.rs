//! The interface of policies: five groups of methods (queues, pools, monitoring, scheduling, instances),
//! after the programming interface for overload control of LEDA, whose names are given with each. Every
//! call is checked at once, and changes nothing if it is refused.
//! Long because each method documents its meaning, when it takes effect and what it refuses.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::graph::{Kind, StageId};
use comporta_model::plan::WhenFull;

/// A pool of threads. It bounds how many threads are in its stages at once, and that many are available to
/// it whatever other pools do. They may be any threads of the cluster.
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
    /// One stage.
    Stage(StageId),
}

/// Properties of a stage that do not change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageInfo {
    /// Its number.
    pub id: StageId,
    /// Its name.
    pub name: String,
    /// Whether it is a source, an input or a stage with a queue.
    pub kind: Kind,
    /// The number of stages before it, on the longest path without a cycle.
    pub depth: usize,
    /// Whether it can have only one instance.
    pub stateful: bool,
    /// Whether its results leave in the order in which its events arrived.
    pub ordered: bool,
    /// Whether its events have keys, and those of one key are handled in order, one at a time.
    pub keyed: bool,
    /// Whether its handlers wait without a thread: its instances are events in flight.
    pub waits: bool,
    /// Whether the number of its instances is fixed: by the plan, by `Control` since, or because it is
    /// stateful.
    pub instances_said: bool,
    /// Whether the plan, or a person since, says how many events its queue holds.
    pub capacity_said: bool,
    /// How many events its queue must hold at least: as many as it is handed at once.
    pub capacity_min: usize,
}

impl StageInfo {
    /// Creates the description of a stage, for mocks.
    #[must_use]
    pub fn new(id: StageId, name: impl Into<String>, kind: Kind, depth: usize) -> Self {
        StageInfo {
            id,
            name: name.into(),
            kind,
            depth,
            stateful: false,
            ordered: false,
            keyed: false,
            waits: false,
            instances_said: false,
            capacity_said: false,
            capacity_min: 1,
        }
    }

    /// Returns `true` if it has a queue.
    #[must_use]
    pub fn has_queue(&self) -> bool {
        self.kind == Kind::Stage
    }
}

/// What a stage has done since the program began, all of it at one moment. See
/// [`sample`](PolicyControl::sample).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageSample {
    /// Events that came, as [`input_count`](PolicyControl::input_count) counts them.
    pub arrived: u64,
    /// Events that were handled or failed.
    pub processed: u64,
    /// Events that wait for an instance, as [`queue_size`](PolicyControl::queue_size) counts them.
    pub queued: usize,
    /// Instances; 0 of a stage that has ended.
    pub instances: usize,
    /// Instances that are not paired with an event.
    pub free: usize,
    /// Time spent in its visits that have ended, by all threads together.
    pub busy: Duration,
    /// CPU time of these visits; `None` where the system does not report it. It is an estimate from those visits that were
    /// measured, so it may be less than in the sample before.
    pub cpu: Option<Duration>,
}

/// What one key of a keyed stage did. See [`key_loads`](PolicyControl::key_loads).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLoad {
    /// A number of the key, the same in every reading while the key has events.
    pub key: u64,
    /// Events of it that came.
    pub arrived: u64,
    /// Events of it that were handled or failed.
    pub handled: u64,
}

/// The reason why a call was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The stage belongs to another cluster or does not exist.
    NotInCluster {
        /// The stage: its name, or its number if it has none.
        stage: String,
        /// The cluster of the policy.
        cluster: String,
    },
    /// The pool belongs to another cluster or does not exist.
    NoPool(u32),
    /// Sources and inputs have no queue.
    NoQueue(String),
    /// The kind of queues is fixed before events flow.
    Started,
    /// The visit order needs per-stage queues.
    NeedsPerStageQueues(&'static str),
    /// The visit order is empty.
    EmptyOrder,
    /// The index is past the end of the visit order.
    NoPlace {
        /// The index, from 0.
        index: usize,
        /// Places in the order.
        len: usize,
    },
    /// A number is out of range.
    OutOfRange {
        /// What the number is.
        what: String,
        /// The number given.
        given: usize,
        /// The numbers allowed.
        expected: String,
    },
    /// A pool with stages keeps a thread.
    NoThreadLeft {
        /// The name of the pool.
        pool: String,
        /// Threads it has.
        threads: usize,
        /// The number of threads to be removed.
        less: usize,
    },
    /// The stage would have too many instances, or none.
    Instances {
        /// The stage.
        stage: String,
        /// Instances it has.
        instances: usize,
        /// The number that it would have.
        wanted: usize,
    },
    /// The runtime failed, for the given reason.
    Failed(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NotInCluster { stage, cluster } => {
                write!(f, "stage {stage} is not in the cluster `{cluster}`")
            }
            Refused::NoPool(pool) => write!(f, "there is no pool {pool} in this cluster"),
            Refused::NoQueue(name) => write!(f, "`{name}` has no queue"),
            Refused::Started => f.write_str("which queues are used is fixed once, in `start`"),
            Refused::NeedsPerStageQueues(call) => {
                write!(f, "`{call}` needs per-stage queues: call `use_per_stage_queues` in `start`")
            }
            Refused::EmptyOrder => f.write_str("a visit order names at least one stage"),
            Refused::NoPlace { index, len } => {
                write!(f, "the visit order has {len} places: there is no place {index}")
            }
            Refused::OutOfRange { what, given, expected } => {
                write!(f, "{what} is {given}: use {expected}")
            }
            Refused::NoThreadLeft { pool, threads, less } => {
                let s = if *threads == 1 { "" } else { "s" };
                write!(
                    f,
                    "pool `{pool}` has {threads} thread{s} and stages to run: {less} cannot go"
                )
            }
            Refused::Instances { stage, instances, wanted } => {
                let s = if *instances == 1 { "" } else { "s" };
                write!(f, "`{stage}` has {instances} instance{s} and cannot have {wanted}")
            }
            Refused::Failed(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Refused {}

/// Seals [`PolicyControl`], so that methods can be added.
#[doc(hidden)]
pub mod sealed {
    /// Implemented beside [`PolicyControl`](super::PolicyControl).
    pub trait Sealed {}
}

/// The cluster of a policy: what the policy can read and change.
///
/// Reading methods return the present state. The others take effect with the next event that each thread
/// takes, unless they say otherwise; events in hand are finished first, and none is lost. Every method that
/// takes a stage or a pool refuses one that does not exist or belongs to another cluster.
///
/// The trait is sealed: programs call it, and test policies on a [`Mock`](crate::mock::Mock), but do not
/// implement it.
pub trait PolicyControl: sealed::Sealed {
    // --- what there is

    /// Returns the time since the start of the program.
    fn now(&self) -> Time;
    /// Returns the stages of the cluster, in the order of the pipeline: sources first.
    fn stages(&self) -> &[StageInfo];
    /// Returns the pool that the cluster has by itself, with the threads of the plan. Every stage is in it
    /// when the policy starts.
    fn main_pool(&self) -> PoolId;
    /// Records the reason of the next decision, which is shown with it.
    fn explain(&mut self, why: String);
    /// Records a decision that changes nothing, such as that no thread is added because none would help.
    fn record(&mut self, did: String);
    /// Names who takes the decisions that follow in this call: a controller that the policy contains, or that is beside
    /// it. It is the policy otherwise.
    fn decide_as(&mut self, name: &str);

    // --- 1. queues (leda)

    /// `usePrivateQueues`: makes threads visit the queues of the stages in the
    /// [visit order](Self::set_visit_order), instead of taking events from one queue. The first order is
    /// that of the pipeline.
    ///
    /// # Errors
    /// Refused after `start`, because the kind of queues is fixed before events flow.
    fn use_per_stage_queues(&mut self) -> Result<(), Refused>;
    /// Not of LEDA: each thread has a ready queue of its own and takes from others when it is
    /// empty. Faster than one queue on many threads. While a stage has a priority, threads take from
    /// one queue all the same, whose order is exact.
    ///
    /// # Errors
    /// Refused after `start`.
    fn use_per_worker_queues(&mut self) -> Result<(), Refused>;
    /// `setQueueCapacity`: sets the most events that wait at a stage. If more wait now they stay, and none is
    /// admitted until there is room.
    ///
    /// # Errors
    /// Refused if `max` is zero or less than [`StageInfo::capacity_min`], or if the stage has no queue.
    fn set_queue_capacity(&mut self, stage: StageId, max: usize) -> Result<(), Refused>;
    /// `getQueueCapacity`: returns the most events that wait at a stage.
    ///
    /// # Errors
    /// Refused if the stage has no queue.
    fn queue_capacity(&self, stage: StageId) -> Result<usize, Refused>;
    /// Not of LEDA: what happens to an event that arrives at a full queue, instead of what the plan says
    /// of the queue; those who wait already are let in first. What the plan says of a connector holds
    /// for what comes by it all the same.
    ///
    /// # Errors
    /// Refused if the stage has no queue.
    fn set_when_full(&mut self, stage: StageId, when_full: WhenFull) -> Result<(), Refused>;
    /// `disableQueue`: sheds events that arrive, with reason `disabled`, until the queue is enabled, and those
    /// that wait outside. Events in the queue are handled.
    ///
    /// # Errors
    /// Refused if the stage has no queue.
    fn disable_queue(&mut self, stage: StageId) -> Result<(), Refused>;
    /// `enableQueue`: lets the queue take events again.
    ///
    /// # Errors
    /// Refused if the stage has no queue.
    fn enable_queue(&mut self, stage: StageId) -> Result<(), Refused>;
    /// `queueIsEnabled`: returns `true` if the queue takes events.
    ///
    /// # Errors
    /// Refused if the stage has no queue.
    fn queue_is_enabled(&self, stage: StageId) -> Result<bool, Refused>;

    // --- 2. pools

    /// `pool.new`: makes a pool with `threads` threads and no stages.
    ///
    /// # Errors
    /// Refused if there would be too many threads or pools.
    fn new_pool(&mut self, threads: usize) -> Result<PoolId, Refused>;
    /// `setPool`: moves a stage to a pool.
    ///
    /// # Errors
    /// Refused if the pool has no threads.
    fn set_pool(&mut self, pool: PoolId, stage: StageId) -> Result<(), Refused>;
    /// `pool.add`: adds `n` threads.
    ///
    /// # Errors
    /// Refused if there would be too many threads.
    fn add_threads(&mut self, pool: PoolId, n: usize) -> Result<(), Refused>;
    /// `pool.kill`: retires `n` threads; each finishes the event in hand.
    ///
    /// # Errors
    /// Refused if the pool has fewer threads, or has stages and would have no thread left.
    fn kill_threads(&mut self, pool: PoolId, n: usize) -> Result<(), Refused>;
    /// `getPool`: returns the pool of a stage.
    ///
    /// # Errors
    /// Refused for a stage of another cluster.
    fn pool_of(&self, stage: StageId) -> Result<PoolId, Refused>;
    /// `getThreadsCount`: returns how many threads a pool is meant to have: starting threads count, retiring
    /// ones do not.
    ///
    /// # Errors
    /// Refused for an unknown pool.
    fn threads(&self, pool: PoolId) -> Result<usize, Refused>;

    // --- 3. monitoring

    /// `addTimer`: calls [`on_timer`](crate::Policy::on_timer) at an interval of `every`, until the policy is
    /// replaced. Returns the number of the timer.
    ///
    /// # Errors
    /// Refused if `every` is less than a millisecond, or if there would be more than 1,024 timers.
    fn add_timer(&mut self, every: Duration) -> Result<TimerId, Refused>;
    /// `getCpusCount`: returns the number of processors that this process may run on.
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
    /// Refused for a stage of another cluster.
    fn queue_size(&self, stage: StageId) -> Result<usize, Refused>;
    /// `getProcessedCount`: returns the number of events that the stage has handled or failed since its
    /// statistics were reset; for a source, the number of events sent.
    ///
    /// # Errors
    /// Refused for a stage of another cluster.
    fn processed_count(&self, stage: StageId) -> Result<u64, Refused>;
    /// `getInputCount`: returns the number of events that came to the stage since its statistics were reset,
    /// including those that were shed or rejected. An event that waits outside a full queue counts when it
    /// enters. For a source, the number of events sent.
    ///
    /// # Errors
    /// Refused for a stage of another cluster.
    fn input_count(&self, stage: StageId) -> Result<u64, Refused>;
    /// `resetStatistics`: restarts the counts of a stage at 0, for this policy. The counters of the program
    /// do not change.
    ///
    /// # Errors
    /// Refused for a stage of another cluster.
    fn reset_statistics(&mut self, stage: StageId) -> Result<(), Refused>;
    /// Not of LEDA: returns what a stage has done since the program began, at one moment, so that its numbers fit
    /// each other. [`reset_statistics`](Self::reset_statistics) does not change them. CPU time is measured from the first
    /// call on, on a sample of the visits.
    ///
    /// # Errors
    /// Refused for a stage of another cluster.
    fn sample(&self, stage: StageId) -> Result<StageSample, Refused>;
    /// Not of LEDA: returns what the keys of a keyed stage did since this was last asked: those that did most, `most` of them
    /// at most, the hottest first. Keys are counted from the first call on, of which 64 are followed: those with more than
    /// one in 64 of all events are among them. Empty for a stage without keys.
    ///
    /// # Errors
    /// Refused for a stage of another cluster.
    fn key_loads(&mut self, stage: StageId, most: usize) -> Result<Vec<KeyLoad>, Refused>;
    /// `fireLastFocused`, `doNotFireLastFocused`: sets whether
    /// [`on_last_focused`](crate::Policy::on_last_focused) is called. It is called when the first thread
    /// reaches the last place of the visit order, and again after as many further arrivals there as there
    /// are threads: once per round of all threads. In a round without an event it is called once, and then
    /// the thread sleeps.
    ///
    /// # Errors
    /// `true` is refused without per-stage queues.
    fn set_fire_last_focused(&mut self, fire: bool) -> Result<(), Refused>;

    // --- 4. scheduling

    /// `visitOrder`: sets the order in which every thread of the cluster visits the stages; a stage may have
    /// several places. A thread stays at a place while events last (see
    /// [`set_max_events_when_focused`](Self::set_max_events_when_focused); at a source, for one batch), then
    /// goes to the next place, and from the last to the first. Stages that the order omits are visited after
    /// it, so that none is forgotten. One order serves all pools: a thread that comes to a stage whose pool
    /// is full goes on to the next place, and the stage is visited as soon as a thread has left its pool. The
    /// order takes effect when a thread has finished its visit, even if it has not changed: the thread
    /// starts at the first place.
    ///
    /// # Errors
    /// Refused without per-stage queues, if the order is empty or names a stage of another cluster, or if it
    /// has too few places for the one to [restart at](Self::set_restart_at).
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
    /// A place is refused without per-stage queues, or if the order does not have it.
    fn set_restart_at(&mut self, index: Option<usize>) -> Result<(), Refused>;
    /// `steal`: requests `n` threads of the pool of `from` for the pool of `to`. A thread goes after the event
    /// in hand; a request for more goes to the end of the line, so that several requests are served evenly.
    /// A pool that has stages keeps one thread: the rest of a request waits until the pool has more threads
    /// or no stages.
    ///
    /// # Errors
    /// Refused for a stage of another cluster.
    fn steal(&mut self, to: StageId, from: StageId, n: usize) -> Result<(), Refused>;
    /// `setPriority`: sets the priority of a stage. In one ready queue, events of stages with a higher
    /// priority come first.
    ///
    /// # Errors
    /// Refused for a stage of another cluster.
    fn set_priority(&mut self, stage: StageId, priority: i32) -> Result<(), Refused>;
    /// `getPriority`: returns the priority of a stage.
    ///
    /// # Errors
    /// Refused for a stage of another cluster.
    fn priority(&self, stage: StageId) -> Result<i32, Refused>;
    /// `maxEventsWhenFocused`: sets the most events that a thread processes in a visit. Groups are never
    /// split: the group that reaches the bound ends the visit.
    ///
    /// # Errors
    /// Refused without per-stage queues, or if `n` is 0.
    fn set_max_events_when_focused(&mut self, focus: Focus, n: usize) -> Result<(), Refused>;
    /// Not of LEDA: sets the color of a stage; stages of one color never run at once (Zeldovich et al. 2003).
    /// `None` removes it.
    ///
    /// # Errors
    /// Refused for a stage of another cluster.
    fn set_color(&mut self, stage: StageId, color: Option<u32>) -> Result<(), Refused>;

    // --- 5. instances

    /// `instances.add`: adds `n` instances. Nothing happens at a stage that has ended.
    ///
    /// # Errors
    /// Refused for a stateful stage or a source, or if there would be too many instances.
    fn add_instances(&mut self, stage: StageId, n: usize) -> Result<(), Refused>;
    /// `instances.kill`: retires `n` instances: free ones first, others after the event in hand.
    ///
    /// # Errors
    /// Refused if no instance would be left.
    fn kill_instances(&mut self, stage: StageId, n: usize) -> Result<(), Refused>;
    /// `getInstancesCount`: returns the number of instances, without those that are being retired; 0 for a
    /// stage that has ended.
    ///
    /// # Errors
    /// Refused for a stage of another cluster.
    fn instances(&self, stage: StageId) -> Result<usize, Refused>;
    /// `getFreeInstancesCount`: returns the number of instances that are not paired with an event. One that
    /// waits for a thread to handle its event is not free, nor is one that waits for room to send.
    ///
    /// # Errors
    /// Refused for a stage of another cluster.
    fn free_instances(&self, stage: StageId) -> Result<usize, Refused>;
}
