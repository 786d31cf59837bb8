//! A mock cluster for tests of policies: a test sets its readings, and every change is recorded, or refused as
//! [`PolicyControl`](crate::PolicyControl) says.
//!
//! Nothing runs in it. A steal moves its threads at once, and a killed thread is gone at once; queues hold as
//! many events as the test sets, and callbacks come when the test fires them.
//!
//! ```
//! use comporta_policy::mock::Mock;
//! use comporta_policy::{PolicyControl, Policy, Refused, TimerId};
//! use std::time::Duration;
//!
//! /// Sheds on entry while more than a hundred events wait inside.
//! struct Limit;
//!
//! impl Policy for Limit {
//!     fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
//!         control.add_timer(Duration::from_millis(100)).map(|_| ())
//!     }
//!
//!     fn on_timer(&mut self, _: TimerId, control: &mut dyn PolicyControl) -> Result<(), Refused> {
//!         let stages = control.stages().to_vec();
//!         let Some(first) = stages.iter().find(|stage| stage.has_queue()) else { return Ok(()) };
//!         let mut queued = 0;
//!         for stage in &stages {
//!             queued += control.queue_size(stage.id)?;
//!         }
//!         if queued > 100 {
//!             control.explain(format!("queued {queued} > 100"));
//!             control.disable_queue(first.id)
//!         } else {
//!             control.enable_queue(first.id)
//!         }
//!     }
//! }
//!
//! let mut mock = Mock::new().source("clients").stage("parse").stage("reply");
//! let mut policy = Limit;
//! mock.start(&mut policy).unwrap();
//! assert_eq!(mock.take_log(), ["add_timer 100ms"]);
//!
//! mock.at_mut("reply").queued = 120;
//! mock.fire_timer(&mut policy, TimerId(0)).unwrap();
//! assert_eq!(mock.take_log(), ["disable_queue parse"]);
//! assert_eq!(mock.explained(), ["queued 120 > 100"]);
//!
//! mock.at_mut("reply").queued = 7;
//! mock.fire_timer(&mut policy, TimerId(0)).unwrap();
//! assert!(mock.at("parse").enabled);
//! assert!(mock.refused().is_empty());
//! ```

mod control;

use std::num::NonZeroUsize;
use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::graph::{Kind, StageId};
use comporta_model::plan::{WhenFull, defaults};

use crate::control::{KeyLoad, PoolId, Refused, StageInfo, TimerId};
use crate::policy::Policy;
use crate::steal_queue::StealQueue;

/// The number of the first stage: not 0, so that a policy that takes a stage's place for its number
/// is found out.
const FIRST_ID: u32 = 10;
/// Threads of the main pool, unless the test says otherwise.
const THREADS: usize = 4;

/// A mock cluster, with a record of what a policy did to it.
#[derive(Clone, Debug)]
pub struct Mock {
    cluster: String,
    infos: Vec<StageInfo>,
    /// Beside `infos`.
    stages: Vec<MockStage>,
    /// Threads of each pool; the first is the main one.
    pools: Vec<usize>,
    steals: StealQueue,
    now: Time,
    cpus: usize,
    cpu_usage: u32,
    started: bool,
    queues: Queues,
    order: Vec<StageId>,
    restart: Option<usize>,
    timers: Vec<Duration>,
    last_focused: bool,
    visits_max: Option<NonZeroUsize>,
    log: Vec<String>,
    explained: Vec<String>,
    recorded: Vec<String>,
    refused: Vec<String>,
    /// How many threads more the system gives.
    threads_left: Option<usize>,
}

/// A stage of a [`Mock`]: readings set by a test, and settings made by a policy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MockStage {
    /// Events that wait for an instance. Set by the test.
    pub queued: usize,
    /// Events that arrived since the statistics were reset. Set by the test.
    pub arrived: u64,
    /// Events processed since then. Set by the test.
    pub processed: u64,
    /// Instances that are paired with an event, and not free. Set by the test.
    pub busy: usize,
    /// Time spent in its visits so far. Set by the test.
    pub busy_time: Duration,
    /// CPU time of its visits so far, if the system reports it. Set by the test.
    pub cpu_time: Option<Duration>,
    /// What its keys did since the policy last asked; empty after each reading. Set by the test.
    pub keys: Vec<KeyLoad>,
    /// What arrived and was processed before the statistics were reset.
    before: (u64, u64),
    /// The number of instances.
    pub instances: usize,
    /// The capacity of its queue.
    pub capacity: usize,
    /// What happens when the queue is full.
    pub when_full: WhenFull,
    /// Whether the queue takes events.
    pub enabled: bool,
    /// Its priority.
    pub priority: i32,
    /// Its color.
    pub color: Option<u32>,
    /// Its pool.
    pub pool: PoolId,
    /// The most events of a visit, if that was set.
    pub events_max: Option<usize>,
}

impl MockStage {
    fn new() -> Self {
        MockStage {
            queued: 0,
            arrived: 0,
            processed: 0,
            busy: 0,
            busy_time: Duration::ZERO,
            cpu_time: None,
            keys: Vec::new(),
            before: (0, 0),
            instances: 1,
            capacity: defaults::CAPACITY,
            when_full: WhenFull::default(),
            enabled: true,
            priority: 0,
            color: None,
            pool: PoolId(0),
            events_max: None,
        }
    }
}

/// The kind of queues of a [`Mock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Queues {
    /// One ready queue for each pool.
    One,
    /// The queues of the stages, in the visit order.
    PerStage,
    /// A ready queue for each thread.
    PerWorker,
}

/// Builds a cluster.
impl Mock {
    /// Creates a cluster without stages, with four threads on four CPUs.
    #[must_use]
    pub fn new() -> Self {
        Mock {
            cluster: defaults::CLUSTER.to_owned(),
            infos: Vec::new(),
            stages: Vec::new(),
            pools: vec![THREADS],
            steals: StealQueue::default(),
            now: Time::ZERO,
            cpus: THREADS,
            cpu_usage: 0,
            started: false,
            queues: Queues::One,
            order: Vec::new(),
            restart: None,
            timers: Vec::new(),
            last_focused: false,
            visits_max: None,
            log: Vec::new(),
            explained: Vec::new(),
            recorded: Vec::new(),
            refused: Vec::new(),
            threads_left: None,
        }
    }

    /// Creates a cluster with these stages, in the order of the pipeline.
    #[must_use]
    pub fn cluster(name: &str, infos: Vec<StageInfo>) -> Self {
        let stages = vec![MockStage::new(); infos.len()];
        Mock { cluster: name.to_owned(), infos, stages, ..Mock::new() }
    }

    /// Adds a source.
    #[must_use]
    pub fn source(self, name: &str) -> Self {
        self.add(name, Kind::Source, 0)
    }

    /// Adds an input.
    #[must_use]
    pub fn input(self, name: &str) -> Self {
        self.add(name, Kind::Input, 0)
    }

    /// Adds a stage behind all others.
    #[must_use]
    pub fn stage(self, name: &str) -> Self {
        let depth = self.infos.iter().map(|info| info.depth + 1).max().unwrap_or(0);
        self.add(name, Kind::Stage, depth)
    }

    /// Adds a stage at this depth, beside or between others.
    #[must_use]
    pub fn stage_at(self, name: &str, depth: usize) -> Self {
        self.add(name, Kind::Stage, depth)
    }

    /// Makes a stage stateful.
    ///
    /// # Panics
    /// Panics if there is no stage with this name.
    #[must_use]
    pub fn stateful(mut self, name: &str) -> Self {
        let place = self.place_of(name);
        self.infos[place].stateful = true;
        self.infos[place].instances_said = true;
        self.stages[place].instances = 1;
        self
    }

    /// Makes a stage ordered: its results leave in the order in which its events arrived.
    ///
    /// # Panics
    /// Panics if there is no stage with this name.
    #[must_use]
    pub fn ordered(mut self, name: &str) -> Self {
        let place = self.place_of(name);
        self.infos[place].ordered = true;
        self
    }

    /// Makes a stage keyed: events of one key are handled in order, one at a time.
    ///
    /// # Panics
    /// Panics if there is no stage with this name.
    #[must_use]
    pub fn keyed(mut self, name: &str) -> Self {
        let place = self.place_of(name);
        self.infos[place].keyed = true;
        self
    }

    /// Gives a stage a number of instances, as if the plan had set it.
    ///
    /// # Panics
    /// Panics if there is no stage with this name.
    #[must_use]
    pub fn planned(mut self, name: &str, instances: usize) -> Self {
        let place = self.place_of(name);
        self.infos[place].instances_said = true;
        self.stages[place].instances = instances;
        self
    }

    /// With this stage, which is there already, planned to have a queue of so many places.
    ///
    /// # Panics
    /// If there is no stage of that name.
    #[must_use]
    pub fn planned_capacity(mut self, name: &str, capacity: usize) -> Self {
        let place = self.place_of(name);
        self.infos[place].capacity_said = true;
        self.stages[place].capacity = capacity;
        self
    }

    /// With this stage, which is there already, handed so many events at once: its queue holds as
    /// many at least.
    ///
    /// # Panics
    /// Panics if there is no stage with this name.
    #[must_use]
    pub fn handed_at_once(mut self, name: &str, events: usize) -> Self {
        let place = self.place_of(name);
        self.infos[place].capacity_min = events.max(1);
        self
    }

    /// Sets the number of threads of the main pool.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.pools[0] = threads;
        self
    }

    /// Sets the number of CPUs and their usage in percent.
    #[must_use]
    pub fn with_cpus(mut self, cpus: usize, usage: u32) -> Self {
        self.cpus = cpus;
        self.cpu_usage = usage.min(100);
        self
    }

    fn add(mut self, name: &str, kind: Kind, depth: usize) -> Self {
        let id = StageId(FIRST_ID + self.infos.len() as u32);
        // The order of the pipeline, sources and inputs first.
        let rank = (depth, kind == Kind::Stage);
        let place = self.infos.partition_point(|info| (info.depth, info.has_queue()) <= rank);
        let mut info = StageInfo::new(id, name, kind, depth);
        info.stateful = kind != Kind::Stage;
        info.instances_said = info.stateful;
        self.infos.insert(place, info);
        self.stages.insert(place, MockStage::new());
        self
    }
}

/// Calls a policy.
impl Mock {
    /// Starts a policy.
    ///
    /// # Errors
    /// Returns the error of the policy.
    pub fn start(&mut self, policy: &mut dyn Policy) -> Result<(), Refused> {
        self.started = false;
        self.queues = Queues::One;
        self.order.clear();
        self.steals.clear();
        let outcome = policy.start(self);
        self.started = true;
        outcome
    }

    /// Calls the policy for a timer. The clock does not move.
    ///
    /// # Errors
    /// Returns the error of the policy.
    ///
    /// # Panics
    /// Panics if the policy has no such timer.
    pub fn fire_timer(&mut self, policy: &mut dyn Policy, timer: TimerId) -> Result<(), Refused> {
        assert!((timer.0 as usize) < self.timers.len(), "there is no timer {}", timer.0);
        policy.on_timer(timer, self)
    }

    /// Calls the policy as if a thread had reached the last place of the visit order. Nothing happens unless
    /// [`set_fire_last_focused`](crate::PolicyControl::set_fire_last_focused) is on.
    ///
    /// # Errors
    /// Returns the error of the policy.
    pub fn fire_last_focused(&mut self, policy: &mut dyn Policy) -> Result<(), Refused> {
        if self.last_focused { policy.on_last_focused(self) } else { Ok(()) }
    }

    /// Calls the policy as if the threads had made the visits of
    /// [`set_max_visits`](crate::PolicyControl::set_max_visits). Nothing happens if that is not set.
    ///
    /// # Errors
    /// Returns the error of the policy.
    pub fn fire_max_visits(&mut self, policy: &mut dyn Policy) -> Result<(), Refused> {
        if self.visits_max.is_some() { policy.on_max_visits(self) } else { Ok(()) }
    }

    /// Moves the clock forward.
    pub fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// Returns a stage, to set its readings.
    ///
    /// # Panics
    /// Panics if there is no stage with this name.
    pub fn at_mut(&mut self, name: &str) -> &mut MockStage {
        let place = self.place_of(name);
        &mut self.stages[place]
    }

    /// Has the system give so many threads more, and refuse what is beyond them; `None` gives all.
    pub fn set_threads_left(&mut self, threads: Option<usize>) {
        self.threads_left = threads;
    }

    /// Sets the usage of the CPUs, from 0 to 100.
    pub fn set_cpu_usage(&mut self, percent: u32) {
        self.cpu_usage = percent.min(100);
    }
}

/// Returns what the policy did. The methods of [`PolicyControl`](crate::PolicyControl) can be used too.
impl Mock {
    /// Returns a stage.
    ///
    /// # Panics
    /// Panics if there is no stage with this name.
    #[must_use]
    pub fn at(&self, name: &str) -> &MockStage {
        &self.stages[self.place_of(name)]
    }

    /// Returns every call that changed something, such as `set_queue_capacity parse 100`: the method, the
    /// name of the stage, a pool as `main`, `pool1`, ..., and the numbers.
    #[must_use]
    pub fn log(&self) -> &[String] {
        &self.log
    }

    /// Returns the [log](Self::log) and clears it.
    pub fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// Returns the reasons that the policy gave.
    #[must_use]
    pub fn explained(&self) -> &[String] {
        &self.explained
    }

    /// Returns the [reasons](Self::explained) and clears them.
    pub fn take_explained(&mut self) -> Vec<String> {
        std::mem::take(&mut self.explained)
    }

    /// Returns the decisions that the policy recorded without changing anything.
    #[must_use]
    pub fn recorded(&self) -> &[String] {
        &self.recorded
    }

    /// Returns every call that was refused, with the reason.
    #[must_use]
    pub fn refused(&self) -> &[String] {
        &self.refused
    }

    /// Returns the kind of queues.
    #[must_use]
    pub fn queues(&self) -> Queues {
        self.queues
    }

    /// Returns the visit order, by name; empty without per-stage queues.
    #[must_use]
    pub fn order(&self) -> Vec<&str> {
        self.order.iter().map(|stage| self.name(*stage)).collect()
    }

    /// Returns the place to which a thread goes after a visit that processed an event.
    #[must_use]
    pub fn restart_index(&self) -> Option<usize> {
        self.restart
    }

    /// Returns the interval of each timer; the first belongs to `TimerId(0)`.
    #[must_use]
    pub fn timers(&self) -> &[Duration] {
        &self.timers
    }

    fn place_of(&self, name: &str) -> usize {
        let place = self.infos.iter().position(|info| info.name == name);
        place.unwrap_or_else(|| panic!("the mock has no stage `{name}`"))
    }

    fn name(&self, stage: StageId) -> &str {
        let info = self.infos.iter().find(|info| info.id == stage);
        info.map_or("?", |info| &info.name)
    }
}

impl Default for Mock {
    fn default() -> Self {
        Mock::new()
    }
}
