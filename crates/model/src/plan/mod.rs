//! The plan: how a graph is run. Every setting is optional.
//!
//! 1. `words`: the types of settings.
//! 2. `set`: sets of stages.
//! 3. `duration`: durations, read and shown.
//! 4. `choice`: choices by name, with parameters: policies, admission controllers.
//! 5. here: `Plan`, as a program or a file gives it.
//! 6. `defaults`: the value of every setting that is not given.
//! 7. `validate`: checks a plan against a graph and returns the `Settings` of the runtime, in which
//!    nothing is left to interpret; `elastic` and `replicable`: what it may say of elastic stages and of replicas.
//! 8. `fault`: the mistakes of a plan.

mod words;
mod set;
mod duration;
mod key;
mod choice;
pub mod defaults;
mod validate;
mod elastic;
mod replicable;
mod fault;

pub use choice::{Catalogue, Choice, Offer, Param, ParamKind, ParamSpec, validate_choice};
pub use duration::{parse_duration, show_duration};
pub use fault::{PlanFault, in_range, nearest, no_stage};
pub use key::{bare, quoted};
pub use set::{SetFault, StageSet};
pub use validate::{
    ClusterSettings, Settings, StageSettings, capacity_allowed, has_queue, instances_allowed,
    spaced, threads_allowed,
};
pub use words::{OnFailure, OnPanic, Retry, WhenFull};

use std::collections::BTreeMap;
use std::time::Duration;

/// A part of a plan: a struct of optional settings, with a setter for each. The last ones are choices by
/// name, whose setters also take the name alone.
macro_rules! part {
    (
        $(#[$about:meta])* $part:ident {
            $( $(#[$doc:meta])* $name:ident: $type:ty, )*
        }
        $( chosen { $( $(#[$choice_doc:meta])* $choice:ident, )* } )?
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        #[non_exhaustive]
        #[must_use]
        pub struct $part {
            $( $(#[$doc])* pub $name: Option<$type>, )*
            $( $( $(#[$choice_doc])* pub $choice: Option<Choice>, )* )?
        }

        impl $part {
            $(
                $(#[$doc])*
                pub fn $name(mut self, $name: $type) -> Self {
                    self.$name = Some($name);
                    self
                }
            )*
            $( $(
                $(#[$choice_doc])*
                pub fn $choice(mut self, $choice: impl Into<Choice>) -> Self {
                    self.$choice = Some($choice.into());
                    self
                }
            )* )?

            /// Fills in the settings that are not given from `base`.
            pub fn over(self, base: &Self) -> Self {
                $part {
                    $( $name: self.$name.or_else(|| base.$name.clone()), )*
                    $( $( $choice: self.$choice.or_else(|| base.$choice.clone()), )* )?
                }
            }
        }
    };
}

part! {
    /// The settings of a stage.
    StagePlan {
        /// The most instances that run at once; 1 by default. For a stage whose handlers wait, the most
        /// events in flight.
        instances: usize,
        /// How many replicas of the stage there are; 1 by default. Each has a queue, instances and counts of its own, and
        /// what else the plan says of the stage holds for each. Replicas of one number that follow one another are
        /// joined one to one: from a source in parts to the end, threads then share nothing, but events may
        /// overtake each other.
        replicas: usize,
        /// The capacity of its queue, in events; 1,024 by default.
        capacity: usize,
        /// What happens when the queue is full; `Block` by default.
        when_full: WhenFull,
        /// The priority, of which a higher one is served sooner; 0 by default.
        priority: i32,
        /// The most events that one visit takes; 512 by default. 1 gives the published policies' exact
        /// order.
        batch: usize,
        /// How often an event is tried, the first try included; once by default.
        tries: u32,
        /// The wait before the second try, which doubles with each further one; none by default.
        backoff: Duration,
        /// The longest wait before another try; a minute by default.
        backoff_max: Duration,
        /// Whether each wait is shortened at random, to no less than half; `true` by default.
        jitter: bool,
        /// The most events that one event, or the end of an instance, may emit before it fails;
        /// 1,048,576 by default. It is checked when a chunk is full, so that up to 512 more may pass.
        emit_max: usize,
        /// The most failed events that are kept for inspection and replay; 1,000 by default.
        failures_max: usize,
        /// For a keyed stage, the most events that one key may have in its queue; unlimited by default. Further
        /// events of the key are shed with the reason `lane-full`, so that a key that is stuck, held or hot cannot fill
        /// the queue.
        lane_max: usize,
        /// For a keyed stage, how long the state of a key is kept that has no events; forever by default.
        idle: Duration,
        /// For a keyed stage, the most keys without events whose state is kept; unlimited by default. Beyond it, the
        /// state of the key that was used longest ago expires.
        keys_max: usize,
        /// For a keyed stage, what happens to a key whose event has failed for good; it goes on by default.
        on_failure: OnFailure,
        /// For a stage whose handlers wait, how long one try at an event may take; unlimited by default.
        timeout: Duration,
        /// What happens to the state of an instance after a panic; it is kept by default.
        on_panic: OnPanic,
        /// For a source, the most events that it sends per second; unlimited by default.
        ///
        /// The n-th event is due n / rate seconds after the first, whether the program can take it or not, and its
        /// latency counts from then: an event that a full queue kept outside is late. An event that the source
        /// itself did not have in time is due when the source has it.
        rate: f64,
        /// Whether the stage is replaced by a stub, which drops its events and counts them as handled;
        /// `false` by default.
        stub: bool,
        /// For a source or an input, how important its events are to admission controllers, from 0 to
        /// 255 (most important); 0 by default.
        tier: u8,
        /// For a source or an input, the time, from entering, within which an event and everything that it
        /// leads to should be handled; unlimited by default.
        deadline: Duration,
        /// Of a gateway: how many requests may wait for their replies at once; 10,000 by default. Others are
        /// given back.
        in_flight: usize,
    }
    chosen {
        /// The admission controller of the queue; none by default.
        admission,
        /// The controller of its threads, `elastic` or `ds2`: the stage has a pool of its own, whose threads follow
        /// its load; none by default.
        elastic,
    }
}

impl StagePlan {
    /// Sets how often a failing event is tried, and the waits in between.
    pub fn retry(self, retry: Retry) -> Self {
        let waits = self.backoff(retry.backoff).backoff_max(retry.backoff_max);
        waits.tries(retry.tries).jitter(retry.jitter)
    }
}

part! {
    /// The settings of a cluster: stages that share threads and a policy.
    ClusterPlan {
        /// The number of threads: one by default, and one per CPU for the cluster that names no stages.
        threads: usize,
        /// Its stages. One cluster may omit them: it has every stage that no other cluster names.
        stages: StageSet,
        /// The most threads that its elastic stages have together; by default each has its own bound only.
        elastic_threads: usize,
    }
    chosen {
        /// The policy of the cluster.
        policy,
    }
}

part! {
    /// The settings of a connector.
    ConnectorPlan {
        /// What happens to an event of this connector when the queue is full; by default as for the
        /// queue.
        when_full: WhenFull,
    }
}

/// How a graph is run. Settings of one stage override those of [`every`](Plan::every) stage, which
/// override the defaults.
///
/// ```
/// # mod comporta { pub use comporta_model::plan::{Plan, Retry, StageSet, WhenFull}; }
/// use std::time::Duration;
/// use comporta::{Plan, Retry, StageSet, WhenFull};
///
/// let plan = Plan::new()
///     .threads(4)
///     .policy("srpt")
///     .every(|stage| stage.capacity(10_000))
///     .stage("resize", |s| s.instances(4).retry(Retry::new(3, Duration::from_millis(50))))
///     .stage("log", |log| log.when_full(WhenFull::DropOldest).priority(-1))
///     .connector("resize -> preview", |way| way.when_full(WhenFull::DropNewest))
///     .cluster("disk", |disk| disk.threads(2).stages(StageSet::of(["store", "log"])));
/// # let _ = plan;
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
#[must_use]
pub struct Plan {
    /// Clusters, by name.
    pub clusters: BTreeMap<String, ClusterPlan>,
    /// Settings of every stage whose own settings do not differ.
    pub every: StagePlan,
    /// Stages, by name.
    pub stages: BTreeMap<String, StagePlan>,
    /// Connectors, by name: `from -> to`, where `from` may be `stage.port`.
    pub connectors: BTreeMap<String, ConnectorPlan>,
    /// How long a drain may take; 10 seconds by default.
    pub drain: Option<Duration>,
    /// The time after which a handler call counts as stuck; 5 seconds by default.
    pub stuck_after: Option<Duration>,
    /// How many threads blocking stages have; 16 by default.
    pub blocking_threads: Option<usize>,
}

impl Plan {
    /// Returns the default plan: one cluster with a thread per CPU, everything bounded.
    pub fn new() -> Self {
        Plan::default()
    }

    /// Sets the number of threads of the cluster `main`; one per CPU by default.
    pub fn threads(self, threads: usize) -> Self {
        self.cluster(defaults::CLUSTER, |main| main.threads(threads))
    }

    /// Sets the policy of the cluster `main`.
    pub fn policy(self, policy: impl Into<Choice>) -> Self {
        self.cluster(defaults::CLUSTER, |main| main.policy(policy))
    }

    /// Sets the settings of a cluster: stages that share threads and a policy.
    pub fn cluster(
        mut self,
        name: impl Into<String>,
        say: impl FnOnce(ClusterPlan) -> ClusterPlan,
    ) -> Self {
        say_of(&mut self.clusters, name.into(), say);
        self
    }

    /// Sets the settings of every stage whose own settings do not differ.
    pub fn every(mut self, say: impl FnOnce(StagePlan) -> StagePlan) -> Self {
        self.every = say(self.every);
        self
    }

    /// Sets the settings of a stage.
    pub fn stage(
        mut self,
        name: impl Into<String>,
        say: impl FnOnce(StagePlan) -> StagePlan,
    ) -> Self {
        say_of(&mut self.stages, name.into(), say);
        self
    }

    /// Sets the settings of a connector, named `from -> to`; if `from` has several ports, one of them is
    /// `from.port`.
    pub fn connector(
        mut self,
        name: impl Into<String>,
        say: impl FnOnce(ConnectorPlan) -> ConnectorPlan,
    ) -> Self {
        say_of(&mut self.connectors, spaced(&name.into()), say);
        self
    }

    /// Sets how long a drain may take; 10 seconds by default.
    pub fn drain(mut self, deadline: Duration) -> Self {
        self.drain = Some(deadline);
        self
    }

    /// Sets the time after which a handler call counts as stuck: a warning names the stage, and another
    /// worker stands in. The default is 5 seconds.
    pub fn stuck_after(mut self, limit: Duration) -> Self {
        self.stuck_after = Some(limit);
        self
    }

    /// How many threads the cluster `blocking` has, which runs the stages that the program declares blocking;
    /// 16 by default. So many of their handlers can wait at once.
    pub fn blocking_threads(mut self, threads: usize) -> Self {
        self.blocking_threads = Some(threads);
        self
    }

    /// Fills in the settings that this plan does not give from `base`.
    pub fn over(self, base: &Plan) -> Plan {
        Plan {
            clusters: merge(self.clusters, &base.clusters, ClusterPlan::over),
            every: self.every.over(&base.every),
            stages: merge(self.stages, &base.stages, StagePlan::over),
            connectors: merge(self.connectors, &base.connectors, ConnectorPlan::over),
            drain: self.drain.or(base.drain),
            stuck_after: self.stuck_after.or(base.stuck_after),
            blocking_threads: self.blocking_threads.or(base.blocking_threads),
        }
    }
}

fn say_of<P: Default>(parts: &mut BTreeMap<String, P>, name: String, say: impl FnOnce(P) -> P) {
    let part = parts.entry(name).or_default();
    *part = say(std::mem::take(part));
}

fn merge<P: Clone + Default>(
    mut parts: BTreeMap<String, P>,
    base: &BTreeMap<String, P>,
    over: impl Fn(P, &P) -> P,
) -> BTreeMap<String, P> {
    for (name, below) in base {
        say_of(&mut parts, name.clone(), |part| over(part, below));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_on_top_goes_before_what_lies_below_setting_by_setting() {
        let base = Plan::new()
            .threads(2)
            .drain(Duration::from_secs(1))
            .stage("a", |a| a.instances(2).priority(7));
        let top = Plan::new().threads(8).stage("a", |a| a.instances(3));
        let both = top.over(&base);
        assert_eq!(both.clusters["main"].threads, Some(8));
        assert_eq!(both.drain, Some(Duration::from_secs(1)));
        assert_eq!((both.stages["a"].instances, both.stages["a"].priority), (Some(3), Some(7)));
    }
}
