//! Checks a plan against a graph, all of it at once, and returns the `Settings` of the runtime.
//! The checks of single settings are used again when one is changed while the program runs.
//! Long because every rule of a plan is here, and tested here.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::time::Duration;

use crate::graph::{Graph, Kind, StageSpec};
use crate::plan::duration::show_duration;
use crate::plan::elastic;
use crate::plan::fault::{PlanFault, in_range, nearest, no_stage, number};
use crate::plan::replicable::{self, Shape};
use crate::plan::{
    Catalogue, Choice, ClusterPlan, Offer, OnFailure, OnPanic, Param, Plan, Retry, StagePlan,
    WhenFull, defaults, validate_choice,
};

/// The settings of a stage, validated.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StageSettings {
    /// Instances.
    pub instances: usize,
    /// Replicas.
    pub replicas: usize,
    /// Whether the plan sets the number, or the stage is stateful. Otherwise a policy may choose it.
    pub instances_said: bool,
    /// Places in the queue.
    pub capacity: usize,
    /// Whether the plan says how many. Otherwise a policy may choose.
    pub capacity_said: bool,
    /// What happens when it is full.
    pub when_full: WhenFull,
    /// Its priority.
    pub priority: i32,
    /// The most events of a visit.
    pub batch: usize,
    /// Tries.
    pub retry: Retry,
    /// Events one event may emit.
    pub emit_max: usize,
    /// Failed events kept.
    pub failures_max: usize,
    /// State after a panic.
    pub on_panic: OnPanic,
    /// How important its events are to admission controllers, if it is a source or an input.
    pub tier: u8,
    /// Events that one key of a keyed stage may have in its queue.
    pub lane_max: Option<NonZeroUsize>,
    /// How long the state of a key without events is kept.
    pub idle: Option<Duration>,
    /// Keys without events whose state is kept.
    pub keys_max: Option<NonZeroUsize>,
    /// What happens to a key whose event has failed.
    pub on_failure: OnFailure,
    /// How long one try at an event may take whose handler waits.
    pub timeout: Option<Duration>,
    /// The time within which these should be handled.
    pub deadline: Option<Duration>,
    /// The most requests in flight, if it is a gateway.
    pub in_flight: usize,
    /// The admission controller of its queue, if it has one.
    pub admission: Option<Choice>,
    /// The controller of its threads, if it is elastic.
    pub elastic: Option<Choice>,
    /// The most events per second of a source; infinite if there is no bound.
    pub rate: f64,
    /// Whether it is replaced by a stub.
    pub stub: bool,
    /// The number of its cluster.
    pub cluster: usize,
}

/// The settings of a cluster, validated.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClusterSettings {
    /// The name of the cluster.
    pub name: String,
    /// Its threads.
    pub threads: usize,
    /// Its policy.
    pub policy: Choice,
    /// The most threads of its elastic stages together.
    pub elastic_threads: Option<NonZeroUsize>,
    /// It is that of blocking stages, whose handlers may wait.
    pub blocking: bool,
}

/// A plan that fits its graph, validated.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// For each stage of the graph.
    pub stages: Vec<StageSettings>,
    /// For each cluster; the one that names no stages is first.
    pub clusters: Vec<ClusterSettings>,
    /// For each connector of the graph and each of its ends, what happens at a full queue, if that differs
    /// from the setting of the queue.
    pub connectors: Vec<Vec<Option<WhenFull>>>,
    /// How long a drain may take.
    pub drain: Duration,
    /// The time after which a handler counts as stuck.
    pub stuck_after: Duration,
}

/// Returns `threads` if a cluster may have that many.
///
/// # Errors
/// Returns a fault if it may not.
pub fn threads_allowed(cluster: &str, threads: usize) -> Result<usize, PlanFault> {
    let what = || format!("the number of threads of `{cluster}`");
    let key = || format!("cluster.{cluster}.threads");
    in_range((what, key), threads, defaults::THREADS_MAX, THREADS)
}

const THREADS: &str = "1 to 1,024";

const INSTANCES: &str = "1 to 16,384";
const RATES: &str = "0.000001 to 1,000,000,000 events a second";

/// Returns `instances` if a stage may have that many.
///
/// # Errors
/// Returns a fault if it may not.
pub fn instances_allowed(stage: &StageSpec, instances: usize) -> Result<usize, PlanFault> {
    let what = || format!("the number of instances of `{}`", stage.name);
    let key = || format!("stage.{}.instances", stage.name);
    let (most, expected) = match stage.waits {
        false => (defaults::INSTANCES_MAX, INSTANCES),
        true => (defaults::IN_FLIGHT_MAX, "1 to 1,048,576"),
    };
    let instances = in_range((what, key), instances, most, expected)?;
    if (stage.stateful || stage.kind != Kind::Stage) && instances > 1 {
        return Err(PlanFault::Stateful { name: stage.name.to_string(), instances });
    }
    Ok(instances)
}

/// Returns `capacity` if the queue of a stage may have it.
///
/// # Errors
/// Returns a fault if it may not, or if the groups of the stage are larger.
pub fn capacity_allowed(stage: &StageSpec, capacity: usize) -> Result<usize, PlanFault> {
    let what = || format!("the queue capacity of `{}`", stage.name);
    let key = || format!("stage.{}.queue.capacity", stage.name);
    let capacity = in_range((what, key), capacity, usize::MAX, "at least 1")?;
    match stage.batched {
        Some((batch, _)) if batch > capacity => {
            let name = stage.name.to_string();
            Err(PlanFault::BatchOverCapacity { name, batch, capacity })
        }
        _ => Ok(capacity),
    }
}

/// A bound that no plan file could spell is none.
fn unlimited(bound: usize) -> usize {
    if i64::try_from(bound).is_ok() { bound } else { usize::MAX }
}

/// Checks that a stage has a queue; sources and inputs have none.
///
/// # Errors
/// Returns a fault if it has none.
pub fn has_queue(stage: &StageSpec) -> Result<(), PlanFault> {
    match stage.kind {
        Kind::Stage => Ok(()),
        _ => Err(not_for_kind(stage, "queue")),
    }
}

fn not_for_kind(stage: &StageSpec, what: &'static str) -> PlanFault {
    let kind = match stage.kind {
        Kind::Stage => "a stage",
        Kind::Source => "a source",
        Kind::Input if stage.gateway => "a gateway",
        Kind::Input => "an input",
    };
    PlanFault::NotForKind { name: stage.name.to_string(), kind, what }
}

/// How many events a second a source may send.
fn rate_allowed(stage: &StageSpec, rate: f64) -> Result<f64, PlanFault> {
    if stage.kind != Kind::Source {
        return Err(not_for_kind(stage, "rate"));
    }
    if is_rate(rate) {
        return Ok(rate);
    }
    Err(PlanFault::OutOfRange {
        what: format!("the rate of `{}`", stage.name),
        value: rate.to_string(),
        expected: RATES,
        key: format!("stage.{}.rate", stage.name),
    })
}

fn is_rate(rate: f64) -> bool {
    (defaults::RATE_MIN..=defaults::RATE_MAX).contains(&rate) || rate == f64::INFINITY
}

/// What is said of every stage, but for what no stage may have: that is a mistake everywhere, and
/// is reported once, also if every stage says something else of itself.
fn allowed_of_every(said: &StagePlan, faults: &mut Vec<PlanFault>) -> StagePlan {
    let mut every = said.clone();
    let mut refuse = |name: &str, key: &str, value: String, expected| {
        let (what, key) = (format!("{name} of every stage"), format!("every.{key}"));
        faults.push(PlanFault::OutOfRange { what, value, expected, key });
    };
    let numbers = [
        (&mut every.instances, "the number of instances", "instances", defaults::INSTANCES_MAX),
        (&mut every.replicas, "the number of replicas", "replicas", defaults::REPLICAS_MAX),
        (&mut every.capacity, "the queue capacity", "queue.capacity", usize::MAX),
        (&mut every.batch, "the batch", "batch", usize::MAX),
        (&mut every.emit_max, "emit_max", "emit_max", usize::MAX),
        (&mut every.in_flight, "the number of requests in flight", "in_flight", usize::MAX),
        (&mut every.lane_max, "lane_max", "queue.lane_max", usize::MAX),
        (&mut every.keys_max, "keys_max", "keys_max", usize::MAX),
    ];
    for (said, name, key, max) in numbers {
        if let Some(value) = said.take_if(|value| *value == 0 || *value > max) {
            let expected = match key {
                "instances" => INSTANCES,
                "replicas" => replicable::EXPECTED,
                _ => "at least 1",
            };
            refuse(name, key, number(value), expected);
        }
    }
    if every.tries.take_if(|tries| *tries == 0).is_some() {
        refuse("the number of tries", "retry.tries", "0".to_owned(), "at least 1");
    }
    let retry = Retry {
        tries: 1,
        backoff: every.backoff.unwrap_or_default(),
        backoff_max: backoff_max(&every),
        jitter: true,
    };
    if retry.backoff > retry.backoff_max {
        (every.backoff, every.backoff_max) = (None, None);
    }
    if every.timeout.take_if(|timeout| timeout.is_zero()).is_some() {
        refuse("the timeout", "timeout", "0s".to_owned(), "more");
    }
    if every.idle.take_if(|idle| idle.is_zero()).is_some() {
        refuse("the time that state is kept", "idle", "0s".to_owned(), "more");
    }
    if every.deadline.take_if(|deadline| deadline.is_zero()).is_some() {
        refuse("the deadline", "deadline", "0s".to_owned(), "more");
    }
    if let Some(rate) = every.rate.take_if(|rate| !is_rate(*rate)) {
        refuse("the rate", "rate", rate.to_string(), RATES);
    }
    if retry.backoff > retry.backoff_max {
        let key = "every.retry.backoff".to_owned();
        faults.push(backoff_over_max("of every stage", retry, key));
    }
    every
}

/// The longest wait before another try. A first wait that is longer than the default makes it longer,
/// too, if nothing else is said.
fn backoff_max(said: &StagePlan) -> Duration {
    let default = Retry::default().backoff_max;
    said.backoff_max.unwrap_or_else(|| default.max(said.backoff.unwrap_or_default()))
}

fn backoff_over_max(of: &str, retry: Retry, key: String) -> PlanFault {
    let told = |time| show_duration(time);
    PlanFault::BackoffOverMax {
        of: of.to_owned(),
        backoff: told(retry.backoff),
        backoff_max: told(retry.backoff_max),
        key,
    }
}

/// The clusters of a plan, validated, and the number of the cluster of each stage.
struct Parts {
    clusters: Vec<ClusterSettings>,
    cluster_of: Vec<usize>,
}

impl Plan {
    /// Checks the plan against a graph, on a machine with `cpus` CPUs.
    ///
    /// # Errors
    /// Returns all mistakes.
    pub fn validate(
        &self,
        graph: &Graph,
        catalogue: &Catalogue,
        cpus: usize,
    ) -> Result<Settings, Vec<PlanFault>> {
        let mut faults = Vec::new();
        let known: HashMap<&str, ()> = graph.stages.iter().map(|s| (&*s.name, ())).collect();
        for name in self.stages.keys().filter(|name| !known.contains_key(name.as_str())) {
            faults.push(no_stage(graph, name, &format!("stage.{name}")));
        }
        let Parts { clusters, cluster_of } =
            self.validate_clusters(graph, catalogue, cpus, &mut faults);
        let connectors = self.validate_connectors(graph, &mut faults);
        let every = allowed_of_every(&self.every, &mut faults);
        let shape = Shape::of(graph);
        let specs = graph.stages.iter().enumerate();
        let stages: Vec<StageSettings> = specs
            .zip(cluster_of)
            .map(|(spec, cluster)| {
                let site = (graph, &shape, catalogue);
                self.validate_stage(site, spec, &every, cluster, &mut faults)
            })
            .collect();
        elastic::bounds_refused(&clusters, &stages, &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Settings {
            stages,
            clusters,
            connectors,
            drain: self.drain.unwrap_or(defaults::DRAIN),
            stuck_after: self.stuck_after.unwrap_or(defaults::STUCK_AFTER),
        })
    }

    // Long because it is one walk over the clusters, in the order in which they take stages.
    fn validate_clusters(
        &self,
        graph: &Graph,
        catalogue: &Catalogue,
        cpus: usize,
        faults: &mut Vec<PlanFault>,
    ) -> Parts {
        let rest = self.rest(faults);
        let mut clusters = Vec::new();
        let mut owner: Vec<Option<usize>> = vec![None; graph.stages.len()];
        let mut open = |name: &str, plan: &ClusterPlan, threads: usize, faults: &mut Vec<_>| {
            let threads = plan.threads.unwrap_or(threads);
            if name.is_empty() || name.chars().any(char::is_control) {
                faults.push(PlanFault::BadClusterName { name: name.to_owned() });
            }
            faults.extend(threads_allowed(name, threads).err());
            let said = plan.policy.clone().unwrap_or_else(|| Choice::new(defaults::POLICY));
            let key = format!("cluster.{name}.policy");
            let offers = &catalogue.policies;
            let policy = chosen("policy", offers, &said, &key, graph, faults);
            let name = name.to_owned();
            let elastic_threads = plan.elastic_threads.and_then(|most| {
                let allowed =
                    elastic::threads_allowed(&name, most).map_err(|fault| faults.push(fault));
                allowed.ok().and_then(NonZeroUsize::new)
            });
            let blocking = false;
            clusters.push(ClusterSettings { name, threads, policy, elastic_threads, blocking });
        };
        let none = ClusterPlan::default();
        let default = (defaults::CLUSTER, &none);
        let (rest_name, rest_plan) = rest.unwrap_or(default);
        open(rest_name, rest_plan, cpus.max(1), faults);
        let named = self.clusters.iter().filter(|(_, plan)| plan.stages.is_some());
        for (number, (name, plan)) in (1..).zip(named) {
            open(name, plan, 1, faults);
            let Some(set) = &plan.stages else { continue };
            let members = match set.members(graph, &format!("cluster.{name}.stages")) {
                Ok(members) => members,
                Err(unknown) => {
                    faults.extend(unknown);
                    continue;
                }
            };
            for id in members {
                if let Some(other) = owner[id.index()].replace(number) {
                    let (a, b) = (cluster_name(self, other), name.clone());
                    let name = graph.stages[id.index()].name.to_string();
                    faults.push(PlanFault::TwoClusters { name, a, b });
                }
            }
        }
        self.take_blocking(graph, catalogue, &mut clusters, &mut owner, faults);
        let left = owner.iter().position(Option::is_none);
        if rest.is_none() && self.clusters.contains_key(defaults::CLUSTER) && left.is_some() {
            // `main` itself names its stages: there is nobody to take the rest.
            let names = owner.iter().zip(&graph.stages).filter(|(owner, _)| owner.is_none());
            let key = format!("cluster.{}.stages", defaults::CLUSTER);
            faults.extend(names.map(|(_, spec)| PlanFault::NoCluster {
                name: spec.name.to_string(),
                key: key.clone(),
            }));
        }
        let mut cluster_of: Vec<usize> = owner.iter().map(|owner| owner.unwrap_or(0)).collect();
        if left.is_none() && !graph.stages.is_empty() {
            match rest {
                Some((name, _)) => {
                    faults.push(PlanFault::EmptyCluster { name: name.to_owned() });
                }
                None => {
                    // Every stage is spoken for: nobody is needed to take the rest.
                    clusters.remove(0);
                    cluster_of.iter_mut().for_each(|cluster| *cluster -= 1);
                }
            }
        }
        self.keep_local_together(graph, &clusters, &cluster_of, faults);
        Parts { clusters, cluster_of }
    }

    /// The stages that the program declares blocking, and no cluster names, are in one of their own.
    fn take_blocking(
        &self,
        graph: &Graph,
        catalogue: &Catalogue,
        clusters: &mut Vec<ClusterSettings>,
        owner: &mut [Option<usize>],
        faults: &mut Vec<PlanFault>,
    ) {
        let stages = graph.stages.iter().zip(owner).filter(|(_, owner)| owner.is_none());
        let mut own = stages.filter(|(spec, _)| spec.blocking).peekable();
        if own.peek().is_none() {
            faults.extend(self.blocking_threads.map(|_| PlanFault::NoBlocking));
            return;
        }
        if self.clusters.contains_key(defaults::BLOCKING) {
            faults.push(PlanFault::BlockingCluster);
        }
        own.for_each(|(_, owner)| *owner = Some(clusters.len()));
        let threads = self.blocking_threads.unwrap_or(defaults::BLOCKING_THREADS);
        let what = || "the number of threads of blocking stages".to_owned();
        let key = || format!("{}.threads", defaults::BLOCKING);
        faults.extend(in_range((what, key), threads, defaults::THREADS_MAX, THREADS).err());
        let said = Choice::new(defaults::POLICY);
        let policy = chosen("policy", &catalogue.policies, &said, "", graph, faults);
        let name = defaults::BLOCKING.to_owned();
        let (elastic_threads, blocking) = (None, true);
        clusters.push(ClusterSettings { name, threads, policy, elastic_threads, blocking });
    }

    /// The one cluster that names no stages.
    fn rest(&self, faults: &mut Vec<PlanFault>) -> Option<(&str, &ClusterPlan)> {
        let mut rests = self.clusters.iter().filter(|(_, plan)| plan.stages.is_none());
        let first = rests.next().map(|(name, plan)| (name.as_str(), plan));
        if let (Some((a, _)), Some((b, _))) = (first, rests.next()) {
            faults.push(PlanFault::TwoRests { a: a.to_owned(), b: b.clone() });
        }
        first
    }

    fn keep_local_together(
        &self,
        graph: &Graph,
        clusters: &[ClusterSettings],
        cluster_of: &[usize],
        faults: &mut Vec<PlanFault>,
    ) {
        for connector in graph.connectors.iter().filter(|connector| connector.local) {
            for to in &connector.to {
                let (a, b) = (cluster_of[connector.from.index()], cluster_of[to.index()]);
                // Blocking stages have threads of their own, and share the process.
                if a != b && !clusters[a].blocking && !clusters[b].blocking {
                    faults.push(PlanFault::LocalApart {
                        from: graph.port_name(connector.from, connector.port),
                        to: graph.stages[to.index()].name.to_string(),
                        a: clusters[a].name.clone(),
                        b: clusters[b].name.clone(),
                    });
                }
            }
        }
    }

    fn validate_connectors(
        &self,
        graph: &Graph,
        faults: &mut Vec<PlanFault>,
    ) -> Vec<Vec<Option<WhenFull>>> {
        let mut rules: Vec<Vec<Option<WhenFull>>> =
            graph.connectors.iter().map(|connector| vec![None; connector.to.len()]).collect();
        if self.connectors.is_empty() {
            return rules;
        }
        // Each end of a connector is known by its port, and by its stage alone.
        let mut ends: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
        for (number, connector) in graph.connectors.iter().enumerate() {
            let port = graph.port_name(connector.from, connector.port);
            let stage = &graph.stages[connector.from.index()].name;
            for (end, to) in connector.to.iter().enumerate() {
                let to = &graph.stages[to.index()].name;
                ends.entry(format!("{port} -> {to}")).or_default().push((number, end));
                if *port != **stage {
                    ends.entry(format!("{stage} -> {to}")).or_default().push((number, end));
                }
            }
        }
        // The more general name first, so that the more exact one has the last word.
        let mut said: Vec<_> = self.connectors.iter().collect();
        said.sort_by_key(|(name, _)| {
            std::cmp::Reverse(ends.get(&spaced(name)).map_or(0, Vec::len))
        });
        for (name, plan) in said {
            match ends.get(&spaced(name)) {
                Some(ends) => {
                    for (number, end) in ends {
                        rules[*number][*end] = plan.when_full.or(rules[*number][*end]);
                    }
                }
                None => faults.push(PlanFault::NoConnector {
                    name: name.clone(),
                    near: nearest(&spaced(name), ends.keys().map(String::as_str)),
                }),
            }
        }
        rules
    }

    // Long because every setting of a stage is checked once, in the order of the keys.
    fn validate_stage(
        &self,
        (graph, shape, catalogue): (&Graph, &Shape, &Catalogue),
        (id, spec): (usize, &StageSpec),
        every: &StagePlan,
        cluster: usize,
        faults: &mut Vec<PlanFault>,
    ) -> StageSettings {
        let none = StagePlan::default();
        let own = self.stages.get(&*spec.name).unwrap_or(&none);
        // A value for every stage does not hold for a stage that cannot have it; a value of the
        // stage itself that it cannot have is a mistake.
        let mut every = match spec.kind {
            Kind::Stage => StagePlan {
                tier: None,
                deadline: None,
                timeout: every.timeout.filter(|_| spec.waits),
                on_panic: every.on_panic.filter(|_| !spec.waits),
                ..every.clone()
            },
            Kind::Source => StagePlan {
                batch: every.batch,
                priority: every.priority,
                replicas: every.replicas,
                rate: every.rate,
                tier: every.tier,
                deadline: every.deadline,
                ..StagePlan::default()
            },
            Kind::Input => StagePlan {
                tier: every.tier,
                deadline: every.deadline,
                in_flight: every.in_flight,
                ..StagePlan::default()
            },
        };
        if !spec.keyed {
            (every.lane_max, every.keys_max, every.idle, every.on_failure) =
                (None, None, None, None);
        }
        every.in_flight = every.in_flight.filter(|_| spec.gateway);
        every.elastic = every.elastic.filter(|_| elastic::why_not(spec, own).is_none());
        every.rate = every.rate.filter(|_| spec.kind == Kind::Source);
        every.instances = every.instances.filter(|n| instances_allowed(spec, *n).is_ok());
        let elastic_said = own.elastic.is_some() || every.elastic.is_some();
        every.replicas = every
            .replicas
            .filter(|_| replicable::why_not(shape, (id, spec), elastic_said).is_none());
        let said = own.clone().over(&every);
        let mut note = |result: Result<usize, PlanFault>| {
            result.unwrap_or_else(|fault| {
                faults.push(fault);
                1
            })
        };
        let number = |name: &str, key: &str, value: usize| {
            let what = || format!("{name} of `{}`", spec.name);
            let key = || format!("stage.{}.{key}", spec.name);
            in_range((what, key), value, usize::MAX, "at least 1")
        };
        let instances = note(instances_allowed(spec, said.instances.unwrap_or(spec.instances)));
        let is_elastic = said.elastic.is_some();
        let replicas = note(replicable::allowed(shape, (id, spec), said.replicas, is_elastic));
        let capacity = said.capacity.map_or(defaults::CAPACITY, unlimited);
        let capacity = note(capacity_allowed(spec, capacity));
        let batch = note(number("the batch", "batch", said.batch.unwrap_or(defaults::BATCH)));
        let emit_max = said.emit_max.map_or(defaults::EMIT_MAX, unlimited);
        let emit_max = note(number("emit_max", "emit_max", emit_max));
        let in_flight = said.in_flight.map_or(defaults::IN_FLIGHT, unlimited);
        let what = "the number of requests in flight";
        let in_flight = note(number(what, "in_flight", in_flight));
        let once = Retry::default();
        let retry = Retry {
            tries: said.tries.unwrap_or(once.tries),
            backoff: said.backoff.unwrap_or(once.backoff),
            backoff_max: backoff_max(&said),
            jitter: said.jitter.unwrap_or(once.jitter),
        };
        note(number("the number of tries", "retry.tries", retry.tries as usize));
        if retry.backoff > retry.backoff_max {
            let key = format!("stage.{}.retry.backoff", spec.name);
            faults.push(backoff_over_max(&format!("of `{}`", spec.name), retry, key));
        }
        if own.capacity.is_some() || own.when_full.is_some() {
            faults.extend(has_queue(spec).err());
        }
        for (said, what) in [(own.tier.is_some(), "tier"), (own.deadline.is_some(), "deadline")] {
            if said && spec.kind == Kind::Stage {
                faults.push(not_for_kind(spec, what));
            }
        }
        if own.in_flight.is_some() && !spec.gateway {
            faults.push(not_for_kind(spec, "in_flight"));
        }
        if said.deadline.is_some_and(|deadline| deadline.is_zero()) {
            faults.push(PlanFault::OutOfRange {
                what: format!("the deadline of what `{}` sends", spec.name),
                value: "0s".to_owned(),
                expected: "more",
                key: format!("stage.{}.deadline", spec.name),
            });
        }
        faults.extend(keyed_refused(spec, own));
        if said.on_failure == Some(OnFailure::HoldKey) && shape.is_cyclic(id) {
            faults.push(PlanFault::OutOfRange {
                what: format!("on_failure of `{}`, which is part of a cycle,", spec.name),
                value: "hold-key".to_owned(),
                expected: "go-on: a cycle that waits for a held key never ends",
                key: format!("stage.{}.on_failure", spec.name),
            });
        }
        faults.extend(timeout_refused(spec, own.timeout));
        if spec.waits && own.on_panic == Some(OnPanic::Reset) {
            let key = format!("stage.{}.on_panic", spec.name);
            faults.push(PlanFault::NoReset { name: spec.name.to_string(), key });
        }
        if own.admission.is_some() && spec.kind != Kind::Stage {
            faults.push(not_for_kind(spec, "admission"));
        }
        let admission = said.admission.as_ref().map(|said| {
            let key = format!("stage.{}.admission", spec.name);
            chosen("admission controller", &catalogue.admissions, said, &key, graph, faults)
        });
        let elastic = elastic::validate(spec, own, &said, catalogue, faults);
        let stub = said.stub.unwrap_or(false);
        if stub && spec.kind != Kind::Stage {
            faults.push(not_for_kind(spec, "stub"));
        }
        let rate = said.rate.map_or(Ok(f64::INFINITY), |rate| rate_allowed(spec, rate));
        StageSettings {
            instances,
            replicas,
            instances_said: said.instances.is_some() || instances_allowed(spec, 2).is_err(),
            capacity,
            capacity_said: said.capacity.is_some(),
            when_full: said.when_full.unwrap_or_default(),
            priority: said.priority.unwrap_or(0),
            batch,
            retry,
            emit_max,
            failures_max: said.failures_max.map_or(defaults::FAILURES_MAX, unlimited),
            on_panic: said.on_panic.unwrap_or_default(),
            lane_max: said.lane_max.map(unlimited).and_then(NonZeroUsize::new),
            idle: said.idle,
            keys_max: said.keys_max.map(unlimited).and_then(NonZeroUsize::new),
            on_failure: said.on_failure.unwrap_or_default(),
            timeout: said.timeout,
            tier: said.tier.unwrap_or(0),
            deadline: said.deadline,
            in_flight,
            admission,
            elastic,
            rate: rate.unwrap_or_else(|fault| {
                faults.push(fault);
                f64::INFINITY
            }),
            stub,
            cluster,
        }
    }
}

/// What is said of the keys of a stage that it cannot have.
fn keyed_refused(spec: &StageSpec, own: &StagePlan) -> Vec<PlanFault> {
    let zero = |said: Option<usize>| said == Some(0);
    let said = [
        ("lane_max", "queue.lane_max", own.lane_max.is_some(), zero(own.lane_max)),
        ("keys_max", "keys_max", own.keys_max.is_some(), zero(own.keys_max)),
        ("idle", "idle", own.idle.is_some(), own.idle.is_some_and(|idle| idle.is_zero())),
        ("on_failure", "on_failure", own.on_failure.is_some(), false),
    ];
    let refused = said.into_iter().filter(|(_, _, is, none)| *none || *is && !spec.keyed);
    let fault = |(what, key, ..): (&'static str, &str, bool, bool)| {
        let key = format!("stage.{}.{key}", spec.name);
        if !spec.keyed {
            return PlanFault::NotKeyed { name: spec.name.to_string(), what, key };
        }
        let (value, expected) = if what == "idle" { ("0s", "more") } else { ("0", "at least 1") };
        let what = format!("{what} of `{}`", spec.name);
        PlanFault::OutOfRange { what, value: value.to_owned(), expected, key }
    };
    refused.map(fault).collect()
}

/// Why a stage cannot have this time limit, if it cannot.
fn timeout_refused(spec: &StageSpec, timeout: Option<Duration>) -> Option<PlanFault> {
    let timeout = timeout?;
    let key = format!("stage.{}.timeout", spec.name);
    if !spec.waits {
        return Some(PlanFault::NoTimeout { name: spec.name.to_string(), key });
    }
    timeout.is_zero().then(|| PlanFault::OutOfRange {
        what: format!("the timeout of `{}`", spec.name),
        value: "0s".to_owned(),
        expected: "more",
        key,
    })
}

/// Validates a choice; what it says of stages by name must be of stages that are there.
fn chosen(
    what: &'static str,
    offers: &[Offer],
    said: &Choice,
    key: &str,
    graph: &Graph,
    faults: &mut Vec<PlanFault>,
) -> Choice {
    let validated = validate_choice(what, offers, said, key).unwrap_or_else(|wrong| {
        faults.extend(wrong);
        said.clone()
    });
    for (param, value) in &validated.params {
        let Param::Stages(stages) = value else { continue };
        for name in stages.keys().filter(|name| graph.find(name).is_none()) {
            faults.push(no_stage(graph, name, &format!("{key}.{param}")));
        }
    }
    validated
}

/// The name of the cluster that was opened under this number.
fn cluster_name(plan: &Plan, number: usize) -> String {
    let mut named = plan.clusters.iter().filter(|(_, plan)| plan.stages.is_some());
    named.nth(number - 1).map(|(name, _)| name.clone()).unwrap_or_default()
}

/// Returns the name of a connector with one blank on each side of its arrow.
#[must_use]
pub fn spaced(name: &str) -> String {
    match name.split_once("->") {
        Some((from, to)) => format!("{} -> {}", from.trim(), to.trim()),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Connector, Route, StageId};
    use crate::plan::StageSet;

    fn graph(local: bool) -> Graph {
        let spec = |name: &str, ports| {
            let kind = if name == "read" { Kind::Source } else { Kind::Stage };
            let stateful = name == "sum";
            StageSpec { stateful, ..StageSpec::new(name, kind, "u32", ports) }
        };
        let joins = |from, port, to| Connector {
            from: StageId(from),
            port,
            to: vec![StageId(to)],
            route: Route::One,
            local,
            again: false,
        };
        Graph {
            name: "g".into(),
            stages: vec![spec("read", &["out"]), spec("split", &["odd", "even"]), spec("sum", &[])],
            connectors: vec![joins(0, 0, 1), joins(1, 0, 2), joins(1, 1, 2)],
            faults: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn catalogue() -> Catalogue {
        let offer = Offer { name: "stealing", aliases: &[], about: "", cites: "", params: &[] };
        Catalogue { policies: vec![offer], ..Catalogue::default() }
    }

    fn mistakes(plan: &Plan) -> Vec<String> {
        let faults = plan.validate(&graph(false), &catalogue(), 2).unwrap_err();
        faults.iter().map(|fault| format!("{}: {fault}", fault.key())).collect()
    }

    #[test]
    fn every_mistake_of_a_plan_is_reported_with_its_key() {
        let plan = Plan::new()
            .threads(0)
            .stage("spilt", |s| s.capacity(0))
            .stage("sum", |s| s.instances(2).tries(0))
            .stage("read", |s| s.capacity(5).rate(0.0).stub(true))
            .stage("split", |s| s.rate(5.0))
            .connector("split.evn -> sum", |c| c.when_full(WhenFull::Reject))
            .cluster("b", |b| b.stages(StageSet::all() - "summ"))
            .cluster("c", |c| c.stages("sum".into()))
            .cluster("d", |d| d.stages("sum".into()));
        assert_eq!(
            mistakes(&plan),
            [
                "stage.spilt: the program has no stage `spilt`: did you mean `split`?",
                "cluster.main.threads: the number of threads of `main` is 0: use 1 to 1,024",
                "cluster.b.stages: the program has no stage `summ`: did you mean `sum`?",
                "cluster.d.stages: the stage `sum` is in the clusters `c` and `d`: a stage is in one cluster",
                "connector.split.evn -> sum: the program has no connector `split.evn -> sum`: did you mean `split.even -> sum`?",
                "stage.read.queue: `read` is a source and has no queue",
                "stage.read.stub: `read` is a source and has no stub",
                "stage.read.rate: the rate of `read` is 0: use 0.000001 to 1,000,000,000 events a second",
                "stage.split.rate: `split` is a stage and has no rate",
                "stage.sum.instances: the stage `sum` is stateful and has one instance: it cannot have 2",
                "stage.sum.retry.tries: the number of tries of `sum` is 0: use at least 1",
            ]
        );
    }

    #[test]
    fn what_no_stage_may_have_is_refused_of_every_stage_once() {
        for instances in [0, 99_999_999, usize::MAX] {
            let plan = Plan::new().every(|every| every.instances(instances));
            let fault = format!("the number of instances of every stage is {}", number(instances));
            assert_eq!(mistakes(&plan), [format!("every.instances: {fault}: use 1 to 16,384")]);
        }
        let plan = Plan::new()
            .every(|every| every.batch(0).capacity(0).tries(0).rate(0.0).deadline(Duration::ZERO))
            .stage("read", |read| read.rate(1.0));
        let keys = ["queue.capacity", "batch", "retry.tries", "deadline", "rate"];
        let told = mistakes(&plan);
        assert_eq!(told.len(), keys.len(), "{told:?}");
        for (told, key) in told.iter().zip(keys) {
            assert!(told.starts_with(&format!("every.{key}: ")), "{told}");
        }
        let stateful = Plan::new().every(|every| every.instances(3));
        let settings = stateful.validate(&graph(false), &catalogue(), 1).unwrap();
        let of: Vec<_> = settings.stages.iter().map(|stage| stage.instances).collect();
        assert_eq!(of, [1, 3, 1], "it does not hold for the stage that cannot have it");
    }

    #[test]
    fn a_first_wait_longer_than_the_longest_is_refused_and_one_longer_than_the_default_raises_it() {
        let seconds = Duration::from_secs;
        let over = |stage: StagePlan| stage.backoff(seconds(10)).backoff_max(seconds(1));
        assert_eq!(
            mistakes(&Plan::new().stage("split", over)),
            [
                "stage.split.retry.backoff: the first wait of `split`, 10s, is longer than the longest, `backoff_max`, 1s"
            ]
        );
        assert_eq!(mistakes(&Plan::new().every(over)).len(), 1, "once for all stages");
        let long = Plan::new().stage("split", |split| split.backoff(seconds(100)));
        let settings = long.validate(&graph(false), &catalogue(), 1).unwrap();
        assert_eq!(settings.stages[1].retry.backoff_max, seconds(100));
        assert_eq!(Retry::new(2, seconds(100)).backoff_max, seconds(100));
    }

    #[test]
    fn a_rate_said_of_every_stage_holds_for_sources_and_one_said_by_name_goes_before_it() {
        let rates = |plan: Plan| {
            let settings = plan.validate(&graph(false), &catalogue(), 1).unwrap();
            settings.stages.iter().map(|stage| stage.rate).collect::<Vec<_>>()
        };
        let none = f64::INFINITY;
        assert_eq!(rates(Plan::new()), [none, none, none]);
        let every = Plan::new().every(|s| s.rate(5.0));
        assert_eq!(rates(every.clone()), [5.0, none, none]);
        assert_eq!(rates(every.stage("read", |s| s.rate(none))), [none, none, none]);
    }

    #[test]
    fn a_tier_and_a_deadline_are_of_what_enters_the_program() {
        let ms = Duration::from_millis;
        let plan = Plan::new()
            .every(|every| every.deadline(ms(50)).tier(3))
            .stage("read", |read| read.tier(7));
        let settings = plan.validate(&graph(false), &catalogue(), 1).unwrap();
        let of: Vec<_> = settings.stages.iter().map(|s| (s.tier, s.deadline)).collect();
        assert_eq!(of, [(7, Some(ms(50))), (0, None), (0, None)]);
        let plan = Plan::new()
            .stage("split", |split| split.tier(1).deadline(ms(1)))
            .stage("read", |read| read.deadline(ms(0)));
        assert_eq!(
            mistakes(&plan),
            [
                "stage.read.deadline: the deadline of what `read` sends is 0s: use more",
                "stage.split.tier: `split` is a stage and has no tier",
                "stage.split.deadline: `split` is a stage and has no deadline",
            ]
        );
    }

    #[test]
    fn one_cluster_takes_the_rest_whatever_its_name() {
        let plan = Plan::new()
            .cluster("a", |a| a.threads(3))
            .cluster("z", |z| z.stages(StageSet::all() - "read" - "split"));
        let settings = plan.validate(&graph(false), &catalogue(), 8).unwrap();
        let clusters: Vec<_> =
            settings.clusters.iter().map(|p| (p.name.as_str(), p.threads)).collect();
        assert_eq!(clusters, [("a", 3), ("z", 1)]);
        let of: Vec<_> = settings.stages.iter().map(|stage| stage.cluster).collect();
        assert_eq!(of, [0, 0, 1]);
        let two = plan.cluster("b", |b| b.threads(1));
        assert!(mistakes(&two)[0].starts_with("cluster.b: the clusters `a` and `b` both name no"));
    }

    #[test]
    fn clusters_that_cover_the_program_need_no_main_one() {
        let plan = Plan::new()
            .cluster("a", |a| a.stages("read".into()))
            .cluster("b", |b| b.stages(StageSet::all() - "read"));
        let settings = plan.validate(&graph(false), &catalogue(), 8).unwrap();
        assert_eq!(settings.clusters.len(), 2);
        assert_eq!(settings.stages.iter().map(|s| s.cluster).collect::<Vec<_>>(), [0, 1, 1]);
        assert_eq!(
            mistakes(&plan.threads(2)),
            ["cluster.main: the cluster `main` has no stages: the others leave none"]
        );
        let some = Plan::new().cluster("main", |main| main.stages("read".into()));
        assert_eq!(mistakes(&some).len(), 2);
        assert!(mistakes(&some)[0].contains("`split` is in no cluster"));
    }

    #[test]
    fn what_a_local_connector_joins_is_in_one_cluster() {
        let plan = Plan::new().cluster("side", |side| side.stages("sum".into()));
        assert!(plan.validate(&graph(false), &catalogue(), 2).is_ok());
        let faults = plan.validate(&graph(true), &catalogue(), 2).unwrap_err();
        assert_eq!(faults[0].key(), "cluster.side.stages");
        assert!(faults[0].to_string().starts_with("`split.odd` and `sum` are joined by a local"));
    }

    #[test]
    fn the_more_exact_name_of_a_connector_has_the_last_word() {
        let plan = Plan::new()
            .connector("split->sum", |c| c.when_full(WhenFull::DropNewest))
            .connector("split.even  ->  sum", |c| c.when_full(WhenFull::DropOldest));
        let settings = plan.validate(&graph(false), &catalogue(), 2).unwrap();
        assert_eq!(
            settings.connectors,
            [vec![None], vec![Some(WhenFull::DropNewest)], vec![Some(WhenFull::DropOldest)]]
        );
    }
}
