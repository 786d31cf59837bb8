//! The plan: how a graph is run. Nothing in it is needed; everything in it can be left out.
//! `Plan` is what a program or a file says; `Plan::settle` checks it against a graph and gives the
//! `Settings` the runtime obeys, in which nothing is left to interpret.
//! Long because each setting stands here four times: said, defaulted, checked, settled.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::graph::{Graph, Kind, StageSpec};

/// What happens to an event that arrives at a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The sender waits: it handles nothing more until there is room.
    #[default]
    Block,
    /// The sender gets it back where it can take it (`try_send`, a push handle); else it is shed.
    Reject,
    /// It is shed.
    DropNewest,
    /// The oldest in the queue is shed in its favour.
    DropOldest,
}

/// How a pool chooses what to do next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Each worker has a queue of its own and takes from others when it is empty. Priorities are
    /// kept in four bands, approximately.
    #[default]
    Stealing,
    /// One queue, first come first served, stage priorities first.
    Single,
    /// One queue; the deeper a stage lies in the graph, the sooner it is served: shortest
    /// remaining processing time.
    Srpt,
}

impl Policy {
    /// Every policy, with its names and what it does.
    pub const ALL: &'static [(Policy, &'static [&'static str], &'static str)] = &[
        (Policy::Stealing, &["stealing", "default"], "a queue per worker, and stealing"),
        (Policy::Single, &["single", "fifo"], "one queue, first come first served"),
        (Policy::Srpt, &["srpt"], "one queue, the stage nearest to the end first"),
    ];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Policy::ALL.iter().find(|(policy, ..)| policy == self);
        f.write_str(known.map_or("?", |(_, names, _)| names[0]))
    }
}

impl FromStr for Policy {
    type Err = PlanFault;
    fn from_str(name: &str) -> Result<Self, PlanFault> {
        let found = Policy::ALL.iter().find(|(_, names, _)| names.contains(&name));
        found.map(|(policy, ..)| *policy).ok_or_else(|| PlanFault::NoPolicy {
            name: name.to_owned(),
            near: nearest(name, Policy::ALL.iter().flat_map(|(_, names, _)| names.iter().copied())),
        })
    }
}

/// How often an event that failed is tried again, and how long the instance waits before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Tries in all, the first included.
    pub tries: u32,
    /// The wait before the second try; it doubles with each further one.
    pub backoff: Duration,
    /// The longest wait.
    pub backoff_max: Duration,
}

impl Retry {
    /// `tries` in all, `backoff` before the second, doubling up to a minute.
    #[must_use]
    pub fn new(tries: u32, backoff: Duration) -> Self {
        Retry { tries, backoff, backoff_max: Duration::from_secs(60) }
    }

    /// The wait after `attempt` tries, or nothing when they are used up.
    #[must_use]
    pub fn wait_after(&self, attempt: u32) -> Option<Duration> {
        if attempt >= self.tries {
            return None;
        }
        let doubled = 1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        Some(self.backoff.saturating_mul(doubled).min(self.backoff_max))
    }
}

/// What becomes of an instance's state when its handler panicked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPanic {
    /// It stays as the handler left it.
    #[default]
    Keep,
    /// The instance is made anew.
    Reset,
}

/// What a plan says of one stage.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct StagePlan {
    instances: Option<usize>,
    capacity: Option<usize>,
    when_full: Option<WhenFull>,
    priority: Option<i32>,
    batch: Option<usize>,
    retry: Option<Retry>,
    emit_max: Option<usize>,
    failures_max: Option<usize>,
    on_panic: Option<OnPanic>,
}

macro_rules! say {
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => { impl StagePlan { $(
        $(#[$doc])*
        pub fn $name(mut self, $name: $type) -> Self { self.$name = Some($name); self }
    )* } };
}

say! {
    /// How many run at once at most; 1 by default.
    instances: usize,
    /// How many events its queue holds; 1,024 by default.
    capacity: usize,
    /// What happens when the queue is full; `Block` by default.
    when_full: WhenFull,
    /// Higher is served sooner; 0 by default.
    priority: i32,
    /// How many events one visit takes at most. 1 gives the published policies' exact order.
    batch: usize,
    /// How often a failing event is tried.
    retry: Retry,
    /// How many events one event, or the end of an instance, may emit before it fails; 1,048,576
    /// by default. Looked at when a chunk is full, so up to 256 more may pass.
    emit_max: usize,
    /// How many failed events are kept for inspection and replay; 1,000 by default.
    failures_max: usize,
    /// What becomes of the state after a panic.
    on_panic: OnPanic,
}

/// What a plan says of a pool of threads.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct PoolPlan {
    threads: Option<usize>,
    policy: Option<Policy>,
    stages: Vec<String>,
}

impl PoolPlan {
    /// How many threads it has.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// How they choose what to do next.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Which stages it serves.
    pub fn stages<S: Into<String>>(mut self, stages: impl IntoIterator<Item = S>) -> Self {
        self.stages.extend(stages.into_iter().map(Into::into));
        self
    }
}

/// How a graph is run. What is said of one stage goes before what is said of
/// [`every`](Plan::every) stage, and that before the defaults.
///
/// ```
/// # mod comporta { pub use comporta_model::plan::{Plan, Policy, PoolPlan, Retry, WhenFull}; }
/// use std::time::Duration;
/// use comporta::{Plan, Policy, PoolPlan, Retry, WhenFull};
///
/// let plan = Plan::new()
///     .threads(4)
///     .policy("srpt".parse()?)
///     .every(|stage| stage.capacity(10_000))
///     .stage("resize", |resize| resize.instances(4).retry(Retry::new(3, Duration::from_millis(50))))
///     .stage("log", |log| log.when_full(WhenFull::DropOldest).priority(-1))
///     .pool("disk", PoolPlan::default().threads(2).policy(Policy::Single).stages(["store"]));
/// # let _ = plan;
/// # Ok::<(), comporta_model::plan::PlanFault>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Plan {
    main: PoolPlan,
    pools: BTreeMap<String, PoolPlan>,
    every: StagePlan,
    stages: BTreeMap<String, StagePlan>,
    drain: Option<Duration>,
    stuck_after: Option<Duration>,
}

impl Plan {
    /// The default plan: one pool with a thread per CPU, everything bounded.
    pub fn new() -> Self {
        Plan::default()
    }

    /// How many threads the main pool has; as many as CPUs by default.
    pub fn threads(mut self, threads: usize) -> Self {
        self.main.threads = Some(threads);
        self
    }

    /// The policy of the main pool.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.main.policy = Some(policy);
        self
    }

    /// A pool beside the main one, with threads and stages of its own.
    pub fn pool(mut self, name: impl Into<String>, pool: PoolPlan) -> Self {
        self.pools.insert(name.into(), pool);
        self
    }

    /// What holds for every stage of which nothing else is said.
    pub fn every(mut self, say: impl FnOnce(StagePlan) -> StagePlan) -> Self {
        self.every = say(self.every);
        self
    }

    /// What holds for one stage.
    pub fn stage(
        mut self,
        name: impl Into<String>,
        say: impl FnOnce(StagePlan) -> StagePlan,
    ) -> Self {
        let entry = self.stages.entry(name.into()).or_default();
        *entry = say(std::mem::take(entry));
        self
    }

    /// How long a drain may take; 10 seconds by default.
    pub fn drain(mut self, deadline: Duration) -> Self {
        self.drain = Some(deadline);
        self
    }

    /// After how long in one handler call a worker counts as stuck, is named in a warning and
    /// stood in for; 5 seconds by default.
    pub fn stuck_after(mut self, limit: Duration) -> Self {
        self.stuck_after = Some(limit);
        self
    }
}

/// A mistake in a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanFault {
    /// A stage that is not there.
    #[error("the program has no stage `{name}`{}", hint(near))]
    NoStage {
        /// The name.
        name: String,
        /// The nearest one that is there.
        near: Option<String>,
    },
    /// A policy that is not there.
    #[error("there is no policy `{name}`{}", hint(near))]
    NoPolicy {
        /// The name.
        name: String,
        /// The nearest one that is there.
        near: Option<String>,
    },
    /// A pool that is not there.
    #[error("the plan has no pool `{name}`{}", hint(near))]
    NoPool {
        /// The name.
        name: String,
        /// The nearest one that is there.
        near: Option<String>,
    },
    /// A number out of its range.
    #[error("{what} is {value}: use {expected}")]
    OutOfRange {
        /// What.
        what: String,
        /// What it is.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// More instances than a stage may have.
    #[error("the stage `{name}` is stateful and has one instance: it cannot have {instances}")]
    Stateful {
        /// The stage.
        name: String,
        /// How many were asked for.
        instances: usize,
    },
    /// A stage in two pools.
    #[error("the stage `{name}` is in the pools `{a}` and `{b}`: a stage is in one pool")]
    TwoPools {
        /// The stage.
        name: String,
        /// One pool.
        a: String,
        /// The other.
        b: String,
    },
    /// A setting that the kind of stage has no use for.
    #[error("`{name}` is a {kind} and has no {what}")]
    NotForKind {
        /// The stage.
        name: String,
        /// What it is.
        kind: &'static str,
        /// What was said of it.
        what: &'static str,
    },
    /// A batch that never fits.
    #[error("the stage `{name}` is handed {batch} events at once, but its queue holds {capacity}")]
    BatchOverCapacity {
        /// The stage.
        name: String,
        /// Events in a batch.
        batch: usize,
        /// Events in the queue.
        capacity: usize,
    },
}

fn hint(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!(": did you mean `{near}`?")).unwrap_or_default()
}

/// The candidate most like `name`, if any is alike.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let scored = candidates.into_iter().map(|c| (strsim::jaro_winkler(name, c), c));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score > 0.7).map(|(_, near)| near.to_owned())
}

/// Everything the runtime needs to know of one stage.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StageSettings {
    /// Instances.
    pub instances: usize,
    /// Places in the queue.
    pub capacity: usize,
    /// What happens when it is full.
    pub when_full: WhenFull,
    /// Its priority.
    pub priority: i32,
    /// Events per visit at most.
    pub batch: usize,
    /// Tries.
    pub retry: Retry,
    /// Events one event may emit.
    pub emit_max: usize,
    /// Failed events kept.
    pub failures_max: usize,
    /// State after a panic.
    pub on_panic: OnPanic,
    /// The number of its pool.
    pub pool: usize,
}

/// Everything the runtime needs to know of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolSettings {
    /// Its name.
    pub name: String,
    /// Its threads.
    pub threads: usize,
    /// Its policy.
    pub policy: Policy,
}

/// A plan that fits its graph.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// For each stage of the graph.
    pub stages: Vec<StageSettings>,
    /// The main pool first.
    pub pools: Vec<PoolSettings>,
    /// How long a drain may take.
    pub drain: Duration,
    /// When a handler counts as stuck.
    pub stuck_after: Duration,
}

/// The defaults, in one place.
pub mod defaults {
    use std::time::Duration;
    /// Places in a queue: four full chunks, so that a producer and a consumer overlap, and small
    /// enough that a pipeline's queues stay in a core's second-level cache.
    pub const CAPACITY: usize = 1_024;
    /// Events per visit at most: one chunk.
    pub const BATCH: usize = 256;
    /// Events one event may emit.
    pub const EMIT_MAX: usize = 1 << 20;
    /// Failed events kept per stage.
    pub const FAILURES_MAX: usize = 1_000;
    /// Time for a drain.
    pub const DRAIN: Duration = Duration::from_secs(10);
    /// When a handler counts as stuck.
    pub const STUCK_AFTER: Duration = Duration::from_secs(5);
    /// The most threads of a pool: a bound against slips, far above any use.
    pub const THREADS_MAX: usize = 1_024;
    /// The most instances of a stage, likewise.
    pub const INSTANCES_MAX: usize = 1 << 20;
}

/// Checks a number against a range, naming it.
///
/// # Errors
/// When it is outside.
pub fn in_range(
    what: impl FnOnce() -> String,
    value: usize,
    max: usize,
    expected: &'static str,
) -> Result<usize, PlanFault> {
    if value == 0 || value > max {
        return Err(PlanFault::OutOfRange { what: what(), value: value.to_string(), expected });
    }
    Ok(value)
}

/// How many instances a stage may have.
///
/// # Errors
/// When it may not have that many.
pub fn instances_allowed(stage: &StageSpec, instances: usize) -> Result<usize, PlanFault> {
    let what = || format!("the number of instances of `{}`", stage.name);
    let instances = in_range(what, instances, defaults::INSTANCES_MAX, "1 to 1,048,576")?;
    if (stage.stateful || stage.kind != Kind::Stage) && instances > 1 {
        return Err(PlanFault::Stateful { name: stage.name.to_string(), instances });
    }
    Ok(instances)
}

/// Whether a stage has a queue: sources and inputs have none.
///
/// # Errors
/// When it has not.
pub fn has_queue(stage: &StageSpec) -> Result<(), PlanFault> {
    let kind = match stage.kind {
        Kind::Stage => return Ok(()),
        Kind::Source => "source",
        Kind::Input => "input",
    };
    Err(PlanFault::NotForKind { name: stage.name.to_string(), kind, what: "queue" })
}

/// Whether a batched stage's queue can hold a batch.
///
/// # Errors
/// When it cannot.
pub fn batch_fits(stage: &StageSpec, capacity: usize) -> Result<(), PlanFault> {
    match stage.batched {
        Some((batch, _)) if batch > capacity => {
            let name = stage.name.to_string();
            Err(PlanFault::BatchOverCapacity { name, batch, capacity })
        }
        _ => Ok(()),
    }
}

impl Plan {
    /// Checks the plan against a graph, on a machine with so many CPUs.
    ///
    /// # Errors
    /// All the mistakes found.
    pub fn settle(&self, graph: &Graph, cpus: usize) -> Result<Settings, Vec<PlanFault>> {
        let mut faults = Vec::new();
        for name in self.stages.keys() {
            if graph.find(name).is_none() {
                faults.push(no_stage(graph, name));
            }
        }
        let (pools, pool_of) = self.settle_pools(graph, cpus, &mut faults);
        let stages = graph
            .stages
            .iter()
            .zip(pool_of)
            .map(|(spec, pool)| self.settle_stage(spec, pool, &mut faults))
            .collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Settings {
            stages,
            pools,
            drain: self.drain.unwrap_or(defaults::DRAIN),
            stuck_after: self.stuck_after.unwrap_or(defaults::STUCK_AFTER),
        })
    }

    fn settle_pools(
        &self,
        graph: &Graph,
        cpus: usize,
        faults: &mut Vec<PlanFault>,
    ) -> (Vec<PoolSettings>, Vec<usize>) {
        let mut pool_of = vec![0; graph.stages.len()];
        let mut owner: Vec<Option<&str>> = vec![None; graph.stages.len()];
        let mut pools = Vec::new();
        let named = self.pools.iter().map(|(name, pool)| (name.as_str(), pool));
        for (number, (name, pool)) in [("main", &self.main)].into_iter().chain(named).enumerate() {
            let threads = pool.threads.unwrap_or(if number == 0 { cpus.max(1) } else { 1 });
            let what = || format!("the number of threads of the pool `{name}`");
            if let Err(fault) = in_range(what, threads, defaults::THREADS_MAX, "1 to 1,024") {
                faults.push(fault);
            }
            pools.push(PoolSettings {
                name: name.to_owned(),
                threads,
                policy: pool.policy.unwrap_or_default(),
            });
            for stage in &pool.stages {
                let Some(id) = graph.find(stage) else {
                    faults.push(no_stage(graph, stage));
                    continue;
                };
                if let Some(a) = owner[id.index()].replace(name) {
                    let (a, b) = (a.to_owned(), name.to_owned());
                    faults.push(PlanFault::TwoPools { name: stage.clone(), a, b });
                }
                pool_of[id.index()] = number;
            }
        }
        (pools, pool_of)
    }

    fn settle_stage(
        &self,
        spec: &StageSpec,
        pool: usize,
        faults: &mut Vec<PlanFault>,
    ) -> StageSettings {
        let none = StagePlan::default();
        let own = self.stages.get(&*spec.name).unwrap_or(&none);
        let every = &self.every;
        let mut note = |result: Result<usize, PlanFault>| {
            result.unwrap_or_else(|fault| {
                faults.push(fault);
                1
            })
        };
        // What is said of every stage gives way where a stage cannot have it; what is said of one
        // stage by name does not.
        let common = every.instances.filter(|n| instances_allowed(spec, *n).is_ok());
        let instances = note(instances_allowed(spec, own.instances.or(common).unwrap_or(1)));
        let number = |name: &str, said: Option<usize>, default: usize| {
            let what = || format!("{name} of `{}`", spec.name);
            in_range(what, said.unwrap_or(default), usize::MAX, "at least 1")
        };
        let said = own.capacity.or(every.capacity);
        let capacity = note(number("the queue capacity", said, defaults::CAPACITY));
        let batch = note(number("the batch", own.batch.or(every.batch), defaults::BATCH));
        let said = own.emit_max.or(every.emit_max);
        let emit_max = note(number("emit_max", said, defaults::EMIT_MAX));
        let retry = own.retry.or(every.retry).unwrap_or(Retry::new(1, Duration::ZERO));
        note(number("the number of tries", Some(retry.tries as usize), 1));
        if own.capacity.is_some() || own.when_full.is_some() {
            faults.extend(has_queue(spec).err());
        }
        faults.extend(batch_fits(spec, capacity).err());
        StageSettings {
            instances,
            capacity,
            when_full: own.when_full.or(every.when_full).unwrap_or_default(),
            priority: own.priority.or(every.priority).unwrap_or(0),
            batch,
            retry,
            emit_max,
            failures_max: own.failures_max.or(every.failures_max).unwrap_or(defaults::FAILURES_MAX),
            on_panic: own.on_panic.or(every.on_panic).unwrap_or_default(),
            pool,
        }
    }
}

/// The fault of naming a stage that is not there.
#[must_use]
pub fn no_stage(graph: &Graph, name: &str) -> PlanFault {
    let near = nearest(name, graph.stages.iter().map(|stage| &*stage.name));
    PlanFault::NoStage { name: name.to_owned(), near }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_bound_and_tries_run_out() {
        let retry = Retry {
            backoff_max: Duration::from_millis(150),
            ..Retry::new(4, Duration::from_millis(50))
        };
        let waits: Vec<_> = (1..=4).map(|n| retry.wait_after(n).map(|d| d.as_millis())).collect();
        assert_eq!(waits, [Some(50), Some(100), Some(150), None]);
    }

    #[test]
    fn a_policy_is_known_by_all_its_names_and_a_slip_gets_a_hint() {
        assert_eq!("fifo".parse(), Ok(Policy::Single));
        let fault = "strp".parse::<Policy>().unwrap_err();
        assert_eq!(fault.to_string(), "there is no policy `strp`: did you mean `srpt`?");
    }

    #[test]
    fn every_mistake_of_a_plan_is_reported() {
        let graph = Graph::default();
        let plan = Plan::new().threads(0).stage("spilt", |s| s.capacity(0));
        let faults = plan.settle(&graph, 2).unwrap_err();
        let lines: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "the program has no stage `spilt`",
                "the number of threads of the pool `main` is 0: use 1 to 1,024"
            ]
        );
    }
}
