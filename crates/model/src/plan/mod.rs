//! The plan: how a graph is run. Nothing in it is needed; everything in it can be left out.
//!
//! 1. `words`: what settings are made of.
//! 2. `set`: which stages a cluster has.
//! 3. `choice`: what is chosen by name, with parameters: policies, admission.
//! 4. here: `Plan`, what a program or a file says.
//! 5. `defaults`: what holds where nothing is said.
//! 6. `validate`: checks a plan against a graph and gives the `Settings` the runtime obeys, in which
//!    nothing is left to interpret.
//! 7. `fault`: what can be wrong with it.

mod words;
mod set;
mod choice;
pub mod defaults;
mod validate;
mod fault;

pub use choice::{Catalogue, Choice, Offer, Param, ParamKind, ParamSpec, validate_choice};
pub use fault::{PlanFault, in_range, nearest, no_stage};
pub use set::{SetFault, StageSet};
pub use validate::{
    ClusterSettings, Settings, StageSettings, capacity_allowed, has_queue, instances_allowed,
    spaced, threads_allowed,
};
pub use words::{OnPanic, Retry, WhenFull};

use std::collections::BTreeMap;
use std::time::Duration;

/// A part of a plan: a struct of settings that may be said, with a method that says each. What is
/// chosen by name is last, and may be said by its name alone.
macro_rules! part {
    (
        $(#[$about:meta])* $part:ident {
            $( $(#[$doc:meta])* $name:ident: $type:ty, )*
        }
        $( chosen { $(#[$choice_doc:meta])* $choice:ident } )?
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        #[non_exhaustive]
        #[must_use]
        pub struct $part {
            $( $(#[$doc])* pub $name: Option<$type>, )*
            $( $(#[$choice_doc])* pub $choice: Option<Choice>, )?
        }

        impl $part {
            $(
                $(#[$doc])*
                pub fn $name(mut self, $name: $type) -> Self {
                    self.$name = Some($name);
                    self
                }
            )*
            $(
                $(#[$choice_doc])*
                pub fn $choice(mut self, $choice: impl Into<Choice>) -> Self {
                    self.$choice = Some($choice.into());
                    self
                }
            )?

            /// This, and what it leaves unsaid from `base`.
            pub fn over(self, base: &Self) -> Self {
                $part {
                    $( $name: self.$name.or_else(|| base.$name.clone()), )*
                    $( $choice: self.$choice.or_else(|| base.$choice.clone()), )?
                }
            }
        }
    };
}

part! {
    /// What a plan says of one stage.
    StagePlan {
        /// How many run at once at most; 1 by default.
        instances: usize,
        /// How many events its queue holds; 1,024 by default.
        capacity: usize,
        /// What happens when the queue is full; `Block` by default.
        when_full: WhenFull,
        /// Higher is served sooner; 0 by default.
        priority: i32,
        /// How many events one visit takes at most; 512 by default. 1 gives the published
        /// policies' exact order.
        batch: usize,
        /// How often an event is tried in all; once by default.
        tries: u32,
        /// The wait before the second try, doubling with each further one; none by default.
        backoff: Duration,
        /// The longest wait before another try; a minute by default.
        backoff_max: Duration,
        /// Whether each wait is shortened by chance, to no less than half; it is by default.
        jitter: bool,
        /// How many events one event, or the end of an instance, may emit before it fails;
        /// 1,048,576 by default. Looked at when a chunk is full, so up to 512 more may pass.
        emit_max: usize,
        /// How many failed events are kept for inspection and replay; 1,000 by default.
        failures_max: usize,
        /// What becomes of the state after a panic; it is kept by default.
        on_panic: OnPanic,
        /// Of a source: how many events a second it sends at most; no bound by default.
        ///
        /// The n-th event is due n / rate seconds after the first, whether the program can take it
        /// or not, and how long it is in the program counts from then: an event that a full queue
        /// kept outside is late. An event that the source itself did not have in time is due when
        /// the source has it.
        rate: f64,
        /// Whether a stub stands in for it: the stage is not made, and its events are dropped and
        /// count as handled. None does by default.
        stub: bool,
        /// Of a source or an input: how much what it sends matters to admission, the higher the
        /// more; 0 by default.
        tier: u8,
        /// Of a source or an input: within which time of entering the program what it sends, and
        /// all it leads to, should be done; without end by default.
        deadline: Duration,
        /// Of a gateway: how many requests may wait for their replies at once; 10,000 by default. Others are
        /// given back.
        in_flight: usize,
    }
    chosen {
        /// Who is let into the queue; everybody for whom there is room by default.
        admission
    }
}

impl StagePlan {
    /// How often a failing event is tried, and the waits in between.
    pub fn retry(self, retry: Retry) -> Self {
        let waits = self.backoff(retry.backoff).backoff_max(retry.backoff_max);
        waits.tries(retry.tries).jitter(retry.jitter)
    }
}

part! {
    /// What a plan says of a cluster: stages that share threads and a policy.
    ClusterPlan {
        /// How many threads it has: one by default, and one per CPU for the cluster that takes
        /// the rest.
        threads: usize,
        /// Which stages it has. One cluster may leave this unsaid: it takes what the others leave.
        stages: StageSet,
    }
    chosen {
        /// How they choose what to do next.
        policy
    }
}

part! {
    /// What a plan says of a connector.
    ConnectorPlan {
        /// What happens to an event that comes this way when the queue is full; as the queue has
        /// it by default.
        when_full: WhenFull,
    }
}

/// How a graph is run. What is said of one stage goes before what is said of
/// [`every`](Plan::every) stage, and that before the defaults.
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
    /// By name.
    pub clusters: BTreeMap<String, ClusterPlan>,
    /// What holds for every stage of which nothing else is said.
    pub every: StagePlan,
    /// By name.
    pub stages: BTreeMap<String, StagePlan>,
    /// By name: `from -> to`, where `from` may be `stage.port`.
    pub connectors: BTreeMap<String, ConnectorPlan>,
    /// How long a drain may take; 10 seconds by default.
    pub drain: Option<Duration>,
    /// After how long in one handler call a worker counts as stuck; 5 seconds by default.
    pub stuck_after: Option<Duration>,
    /// How many threads blocking stages have; 16 by default.
    pub blocking_threads: Option<usize>,
}

impl Plan {
    /// The default plan: one cluster with a thread per CPU, everything bounded.
    pub fn new() -> Self {
        Plan::default()
    }

    /// How many threads the cluster `main` has; as many as CPUs by default.
    pub fn threads(self, threads: usize) -> Self {
        self.cluster(defaults::CLUSTER, |main| main.threads(threads))
    }

    /// The policy of the cluster `main`.
    pub fn policy(self, policy: impl Into<Choice>) -> Self {
        self.cluster(defaults::CLUSTER, |main| main.policy(policy))
    }

    /// What holds for a cluster: stages that share threads and a policy.
    pub fn cluster(
        mut self,
        name: impl Into<String>,
        say: impl FnOnce(ClusterPlan) -> ClusterPlan,
    ) -> Self {
        say_of(&mut self.clusters, name.into(), say);
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
        say_of(&mut self.stages, name.into(), say);
        self
    }

    /// What holds for a connector, named `from -> to`; where `from` has several ports, one of them
    /// is `from.port`.
    pub fn connector(
        mut self,
        name: impl Into<String>,
        say: impl FnOnce(ConnectorPlan) -> ConnectorPlan,
    ) -> Self {
        say_of(&mut self.connectors, spaced(&name.into()), say);
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

    /// How many threads the cluster `blocking` has, which runs the stages that the program declares blocking;
    /// 16 by default. So many of their handlers can wait at once.
    pub fn blocking_threads(mut self, threads: usize) -> Self {
        self.blocking_threads = Some(threads);
        self
    }

    /// This plan, and what it leaves unsaid from `base`, setting by setting.
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
