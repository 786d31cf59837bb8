//! A rehearsal: policies are started on clusters that are not there, so that what they would be
//! refused, and what they do that may surprise, is known before anything runs.

use std::collections::{HashMap, HashSet};
use std::fmt;

use comporta_model::graph::Graph;
use comporta_model::plan::{Settings, bare};
use comporta_model::replicas::Replicated;
use comporta_policy::mock::Mock;
use comporta_policy::{PolicyControl, Registry};

use crate::cluster_state::stage_infos;
use crate::env::CpuMeter;
use crate::policy_host;
use crate::start_error::StartError;
use crate::user;

/// What a plan, or a policy of it, leads to that works, but may surprise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PolicyWarning {
    /// A stage that has one instance unless somebody says otherwise, and so handles events in the
    /// order they came, has more under this policy.
    OrderGivenUp {
        /// The stage.
        stage: String,
        /// The policy.
        policy: String,
        /// Instances it has under the policy.
        instances: usize,
    },
    /// A stage that the plan makes elastic, and that is neither keyed nor ordered, may have several instances, and so
    /// handle events out of the order they came.
    ElasticOrder {
        /// The stage.
        stage: String,
        /// Instances it has.
        instances: usize,
    },
    /// A stage has a pool to itself with more threads than it has instances, of which it could have more
    /// without giving up an order that it keeps: what is more has nothing to do.
    IdleThreads {
        /// The stage.
        stage: String,
        /// The policy.
        policy: String,
        /// Threads that the policy gives it.
        threads: usize,
        /// Instances that it has all the same.
        instances: usize,
    },
    /// A keyed stage keeps the order in which events come to it, but a stage before it lets them overtake each other.
    OrderLostBefore {
        /// The keyed stage.
        keyed: String,
        /// The stage before it.
        stage: String,
        /// Instances that that has.
        instances: usize,
    },
    /// Likewise, because the stage before it has replicas.
    ReplicasBefore {
        /// The keyed stage.
        keyed: String,
        /// The stage before it.
        stage: String,
        /// Replicas that that has.
        replicas: usize,
    },
}

impl fmt::Display for PolicyWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyWarning::OrderGivenUp { stage, policy, instances } => write!(
                f,
                "the policy `{policy}` gives `{stage}` {instances} instances, so its events may \
                 overtake each other: `stage.{}.instances=1` keeps them in order",
                bare(stage)
            ),
            PolicyWarning::ElasticOrder { stage, instances } => write!(
                f,
                "`{stage}` is elastic and has {instances} instances, so its events may overtake each other: \
                 a stage that is keyed or ordered keeps them in order"
            ),
            PolicyWarning::OrderLostBefore { keyed, stage, instances } => write!(
                f,
                "events of one key may overtake each other in `{stage}`, which has {instances} \
                 instances, before `{keyed}` can keep them in order: declare `{stage}` as `ordered`, or \
                 set `stage.{}.instances=1`",
                bare(stage)
            ),
            PolicyWarning::ReplicasBefore { keyed, stage, replicas } => write!(
                f,
                "events of one key may overtake each other in `{stage}`, which has {replicas} replicas, \
                 before `{keyed}` can keep them in order, unless each key comes by one of them: set \
                 `stage.{}.replicas=1`",
                bare(stage)
            ),
            PolicyWarning::IdleThreads { stage, policy, threads, instances } => {
                let s = if *instances == 1 { "" } else { "s" };
                write!(
                    f,
                    "the policy `{policy}` gives `{stage}` {threads} threads, but it has {instances} \
                     instance{s}: `stage.{}.instances={threads}` uses them all",
                    bare(stage)
                )
            }
        }
    }
}

/// Starts every policy of these settings on its cluster as it will be, with all replicas of the stages that are `declared`.
pub(crate) fn rehearse(
    registry: &Registry,
    declared: &Graph,
    replicated: Replicated,
) -> Result<Vec<PolicyWarning>, Vec<StartError>> {
    let Replicated { graph, topology, settings, .. } = replicated;
    let (graph, settings, depths) = (&graph, &settings, &topology.depth);
    let mut refused = Vec::new();
    let mut warnings = Vec::new();
    let mut instances = vec![1; graph.stages.len()];
    for (number, cluster) in settings.clusters.iter().enumerate() {
        let mut mock = cluster_of(graph, depths, settings, number);
        if let Err(message) = start(registry, graph, settings, number, &mut mock) {
            let (cluster, policy) = (cluster.name.clone(), cluster.policy.to_string());
            refused.push(StartError::Policy { cluster, policy, message });
        }
        warnings.extend(given_up(graph, settings, number, &mock));
        warnings.extend(idle_threads(&cluster.policy.name, &mock));
        for info in mock.stages() {
            instances[info.id.index()] = mock.at(&info.name).instances;
        }
    }
    warnings.extend(order_lost(declared, settings, &instances));
    let mut seen = HashSet::new();
    warnings.retain(|warning| seen.insert(warning.clone())); // of each replica the same is said
    if refused.is_empty() { Ok(warnings) } else { Err(refused) }
}

/// The stages of a cluster whose order its policy gives up.
fn given_up(
    graph: &Graph,
    settings: &Settings,
    number: usize,
    mock: &Mock,
) -> impl Iterator<Item = PolicyWarning> {
    let stages = graph.stages.iter().zip(&settings.stages);
    let in_order = stages.filter(move |(spec, stage_settings)| {
        let one = stage_settings.cluster == number && stage_settings.instances == 1;
        let alone = stage_settings.replicas == 1; // otherwise the plan has given it up
        one && alone && !spec.ordered && !spec.keyed // keyed: in the order of each key, with any number
    });
    in_order.filter_map(move |(spec, stage_settings)| {
        let instances = mock.at(&spec.name).instances;
        let policy = settings.clusters[number].policy.name.clone();
        let stage = spec.name.to_string();
        let warning = match stage_settings.elastic {
            Some(_) => PolicyWarning::ElasticOrder { stage, instances },
            None => PolicyWarning::OrderGivenUp { stage, policy, instances },
        };
        (instances > 1).then_some(warning)
    })
}

/// The stages in which events overtake each other on their way to a keyed stage.
fn order_lost(
    graph: &Graph,
    settings: &Settings,
    instances: &[usize],
) -> impl Iterator<Item = PolicyWarning> {
    let replicas = |id: usize| settings.stages[id].replicas;
    let overtake = |id: usize| (instances[id] > 1 && !graph.stages[id].ordered) || replicas(id) > 1;
    let mut senders = vec![Vec::new(); graph.stages.len()];
    for connector in &graph.connectors {
        connector.to.iter().for_each(|to| senders[to.index()].push(connector.from.index()));
    }
    let mut lost = Vec::new();
    for keyed in (0..graph.stages.len()).filter(|id| graph.stages[*id].keyed) {
        let (mut seen, mut next) = (vec![false; graph.stages.len()], vec![keyed]);
        while let Some(to) = next.pop() {
            for &from in &senders[to] {
                // What a keyed stage before this one keeps in order is said of that.
                if std::mem::replace(&mut seen[from], true) || graph.stages[from].keyed {
                    continue;
                }
                if overtake(from) {
                    lost.push((keyed, from));
                } else {
                    next.push(from);
                }
            }
        }
    }
    let name = |id: usize| graph.stages[id].name.to_string();
    lost.into_iter().map(move |(keyed, from)| {
        let (keyed, stage, instances) = (name(keyed), name(from), instances[from]);
        match replicas(from) {
            1 => PolicyWarning::OrderLostBefore { keyed, stage, instances },
            replicas => PolicyWarning::ReplicasBefore { keyed, stage, replicas },
        }
    })
}

/// The stages of a cluster that could use more of the threads that they have to themselves.
fn idle_threads(policy: &str, mock: &Mock) -> impl Iterator<Item = PolicyWarning> {
    let at: Vec<_> = mock.stages().iter().map(|info| (info, mock.at(&info.name))).collect();
    let mut stages_of = HashMap::new();
    at.iter().for_each(|(_, stage)| *stages_of.entry(stage.pool).or_insert(0) += 1);
    let alone = at.into_iter().filter(move |(info, stage)| {
        !info.stateful && stage.pool != mock.main_pool() && stages_of[&stage.pool] == 1
    });
    alone.filter_map(move |(info, stage)| {
        let instances = stage.instances;
        let threads = mock.threads(stage.pool).unwrap_or(0);
        let (stage, policy) = (info.name.clone(), policy.to_owned());
        let idle = PolicyWarning::IdleThreads { stage, policy, threads, instances };
        // One instance and no more is what keeps the order of a stage that is not `ordered`.
        (threads > instances && (instances > 1 || info.ordered)).then_some(idle)
    })
}

/// A cluster as its policy would find it.
fn cluster_of(graph: &Graph, depths: &[u32], settings: &Settings, number: usize) -> Mock {
    let mut infos = stage_infos(graph, depths, |id| settings.stages[id].cluster == number);
    for info in &mut infos {
        let stage_settings = &settings.stages[info.id.index()];
        info.instances_said = stage_settings.instances_said;
        info.capacity_said = stage_settings.capacity_said;
    }
    let cluster = &settings.clusters[number];
    let mut mock = Mock::cluster(&cluster.name, infos)
        .with_threads(cluster.threads)
        .with_cpus(CpuMeter::begin().processors(), 0);
    for (spec, stage_settings) in graph.stages.iter().zip(&settings.stages) {
        if stage_settings.cluster == number {
            let stage = mock.at_mut(&spec.name);
            stage.instances = stage_settings.instances;
            stage.capacity = stage_settings.capacity;
            stage.when_full = stage_settings.when_full;
            stage.priority = stage_settings.priority;
        }
    }
    mock
}

fn start(
    registry: &Registry,
    graph: &Graph,
    settings: &Settings,
    number: usize,
    mock: &mut Mock,
) -> Result<(), String> {
    let choice = &settings.clusters[number].policy;
    let entry = registry.find(&choice.name);
    let entry = entry.ok_or_else(|| format!("there is no policy `{}`", choice.name))?;
    let made = user::call(|| policy_host::make(entry, choice, graph, settings, number));
    let mut policy = made.map_err(|panic| panic.to_string())?;
    let started = user::call(|| mock.start(&mut *policy));
    user::discard(policy);
    match started {
        Ok(started) => started.map_err(|refused| refused.to_string()),
        Err(panic) => Err(panic.to_string()),
    }
}
