//! Mistakes in a plan. Each knows its key, so that a report can point at it, and the nearest valid name if a
//! name was not found.

use std::fmt;

use crate::graph::Graph;
use crate::plan::defaults::BLOCKING;

/// A mistake in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanFault {
    /// A stage does not exist.
    NoStage {
        /// The name.
        name: String,
        /// The nearest one that is there.
        near: Option<String>,
        /// The key that names it.
        key: String,
    },
    /// A handler that waits is shared by its events, and cannot be made anew for one that panicked.
    NoReset {
        /// The stage.
        name: String,
        /// The key that says it.
        key: String,
    },
    /// A setting of keyed stages for one that is not.
    NotKeyed {
        /// The stage.
        name: String,
        /// The setting.
        what: &'static str,
        /// The key that says it.
        key: String,
    },
    /// Threads that follow the load of a stage that cannot use them.
    NotElastic {
        /// The stage.
        name: String,
        /// Why not.
        why: &'static str,
        /// The key that says it.
        key: String,
    },
    /// Several replicas of a stage that must be one.
    NotReplicable {
        /// The stage.
        name: String,
        /// Why.
        why: &'static str,
        /// The key that says it.
        key: String,
    },
    /// A time limit for a handler that cannot be interrupted.
    NoTimeout {
        /// The stage.
        name: String,
        /// The key that says it.
        key: String,
    },
    /// A policy or an admission controller does not exist.
    NoChoice {
        /// What was to be chosen: a policy or an admission controller.
        what: &'static str,
        /// The name.
        name: String,
        /// The nearest one that is there.
        near: Option<String>,
        /// The key that names it.
        key: String,
    },
    /// A parameter does not exist.
    NoParam {
        /// What was chosen.
        owner: String,
        /// The parameter.
        name: String,
        /// The nearest one that is there.
        near: Option<String>,
        /// Its key.
        key: String,
    },
    /// A parameter has a wrong value.
    BadParam {
        /// What was chosen.
        owner: String,
        /// The parameter.
        name: String,
        /// What it is.
        value: String,
        /// What it may be.
        expected: String,
        /// Its key.
        key: String,
    },
    /// A text is not a name with parameters.
    NotAChoice {
        /// The text.
        text: String,
    },
    /// A cluster does not exist.
    UnknownCluster {
        /// The name.
        name: String,
        /// The nearest one that is there.
        near: Option<String>,
    },
    /// A connector does not exist.
    NoConnector {
        /// Its name, as `from -> to`.
        name: String,
        /// The nearest one that is there.
        near: Option<String>,
    },
    /// A number is out of range.
    OutOfRange {
        /// What.
        what: String,
        /// What it is.
        value: String,
        /// What it may be.
        expected: &'static str,
        /// Its key.
        key: String,
    },
    /// The first wait before a retry is longer than the longest.
    BackoffOverMax {
        /// Whose.
        of: String,
        /// The first wait.
        backoff: String,
        /// The longest.
        backoff_max: String,
        /// The key of the first.
        key: String,
    },
    /// A stateful stage would have several instances.
    Stateful {
        /// The stage.
        name: String,
        /// How many were asked for.
        instances: usize,
    },
    /// A stage is in two clusters.
    TwoClusters {
        /// The stage.
        name: String,
        /// One cluster.
        a: String,
        /// The other.
        b: String,
    },
    /// Two clusters name no stages.
    TwoRests {
        /// One cluster.
        a: String,
        /// The other.
        b: String,
    },
    /// A stage is in no cluster.
    NoCluster {
        /// The stage.
        name: String,
        /// A cluster that was to take the rest, but names stages.
        key: String,
    },
    /// A cluster has no stages.
    EmptyCluster {
        /// The cluster.
        name: String,
    },
    /// A cluster called like that of blocking stages.
    BlockingCluster,
    /// Threads for blocking stages, of which there are none.
    NoBlocking,
    /// The name of a cluster is empty or contains control characters.
    BadClusterName {
        /// The name.
        name: String,
    },
    /// A local connector joins two clusters.
    LocalApart {
        /// The sending port.
        from: String,
        /// The receiving stage.
        to: String,
        /// The cluster of the one.
        a: String,
        /// And of the other.
        b: String,
    },
    /// A setting does not apply to this kind of stage.
    NotForKind {
        /// The stage.
        name: String,
        /// What it is.
        kind: &'static str,
        /// What was said of it.
        what: &'static str,
    },
    /// The groups of a stage do not fit into its queue.
    BatchOverCapacity {
        /// The stage.
        name: String,
        /// Events in a batch.
        batch: usize,
        /// Events in the queue.
        capacity: usize,
    },
}

impl fmt::Display for PlanFault {
    // Long because each fault has its sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanFault::NoStage { name, near, .. } => write!(f, "the program has no stage `{name}`{}", hint(near)),
            PlanFault::NoReset { name, .. } => write!(f, "`{name}` cannot be reset after a panic: other events wait in its handler"),
            PlanFault::NotKeyed { name, what, .. } => write!(f, "`{name}` is not keyed, and so has no `{what}`"),
            PlanFault::NotElastic { name, why, .. } => write!(f, "`{name}` cannot be elastic: {why}"),
            PlanFault::NotReplicable { name, why, .. } => write!(f, "`{name}` cannot have several replicas: {why}"),
            PlanFault::NoTimeout { name, .. } => write!(f, "`{name}` has no timeout: its handler does not wait, and cannot be stopped while it runs"),
            PlanFault::NoChoice { what, name, near, .. } => write!(f, "there is no {what} `{name}`{}", hint(near)),
            PlanFault::NoParam { owner, name, near, .. } => write!(f, "`{owner}` has no parameter `{name}`{}", hint(near)),
            PlanFault::BadParam { owner, name, value, expected, .. } => write!(f, "`{name}` of `{owner}` is {value}: use {expected}"),
            PlanFault::NotAChoice { text } => write!(f, "`{text}` is no choice: use a name, or `name(key=value, key=value)`"),
            PlanFault::UnknownCluster { name, near } => write!(f, "the program has no cluster `{name}`{}", hint(near)),
            PlanFault::NoConnector { name, near } => write!(f, "the program has no connector `{name}`{}", hint(near)),
            PlanFault::OutOfRange { what, value, expected, .. } => write!(f, "{what} is {value}: use {expected}"),
            PlanFault::BackoffOverMax { of, backoff, backoff_max, .. } => write!(f, "the first wait {of}, {backoff}, is longer than the longest, `backoff_max`, {backoff_max}"),
            PlanFault::Stateful { name, instances } => write!(f, "the stage `{name}` is stateful and has one instance: it cannot have {instances}"),
            PlanFault::TwoClusters { name, a, b } => write!(f, "the stage `{name}` is in the clusters `{a}` and `{b}`: a stage is in one cluster"),
            PlanFault::TwoRests { a, b } => write!(f, "the clusters `{a}` and `{b}` both name no stages: only one cluster may leave them out"),
            PlanFault::NoCluster { name, .. } => write!(f, "the stage `{name}` is in no cluster, and no cluster takes the rest"),
            PlanFault::EmptyCluster { name } => write!(f, "the cluster `{name}` has no stages: the others leave none"),
            PlanFault::BlockingCluster => f.write_str("the cluster `blocking` holds the stages that the program declares blocking: set `blocking.threads`, or call this cluster something else"),
            PlanFault::NoBlocking => f.write_str("`blocking.threads` is of no use: the program declares no stage blocking that is in no other cluster"),
            PlanFault::BadClusterName { name } => write!(f, "{name:?} cannot be the name of a cluster: use at least one character, and no control characters"),
            PlanFault::LocalApart { from, to, a, b } => write!(f, "`{from}` and `{to}` are joined by a local connector, and must be in one cluster: they are in `{a}` and `{b}`"),
            PlanFault::NotForKind { name, kind, what } => write!(f, "`{name}` is {kind} and has no {what}"),
            PlanFault::BatchOverCapacity { name, batch, capacity } => write!(f, "the stage `{name}` is handed {batch} events at once, but its queue holds {capacity}"),
        }
    }
}

impl std::error::Error for PlanFault {}

impl PlanFault {
    /// Returns the key of the setting that it is about, as in a plan file: `stage.split.instances`.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            PlanFault::NoStage { key, .. }
            | PlanFault::NoTimeout { key, .. }
            | PlanFault::NotKeyed { key, .. }
            | PlanFault::NoReset { key, .. }
            | PlanFault::NotElastic { key, .. }
            | PlanFault::NotReplicable { key, .. }
            | PlanFault::OutOfRange { key, .. }
            | PlanFault::BackoffOverMax { key, .. }
            | PlanFault::NoChoice { key, .. }
            | PlanFault::NoParam { key, .. }
            | PlanFault::BadParam { key, .. }
            | PlanFault::NoCluster { key, .. } => key.clone(),
            PlanFault::NotAChoice { .. } => String::new(),
            PlanFault::BlockingCluster => format!("cluster.{BLOCKING}"),
            PlanFault::NoBlocking => format!("{BLOCKING}.threads"),
            PlanFault::UnknownCluster { name, .. }
            | PlanFault::EmptyCluster { name }
            | PlanFault::BadClusterName { name } => {
                format!("cluster.{name}")
            }
            PlanFault::NoConnector { name, .. } => format!("connector.{name}"),
            PlanFault::Stateful { name, .. } => format!("stage.{name}.instances"),
            PlanFault::TwoClusters { b, .. } => format!("cluster.{b}.stages"),
            PlanFault::LocalApart { a, b, .. } => {
                // Of the two, the one that is not the default names its stages.
                format!("cluster.{}.stages", if b == "main" { a } else { b })
            }
            PlanFault::TwoRests { b, .. } => format!("cluster.{b}"),
            PlanFault::NotForKind { name, what, .. } => format!("stage.{name}.{what}"),
            PlanFault::BatchOverCapacity { name, .. } => format!("stage.{name}.queue.capacity"),
        }
    }
}

fn hint(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!(": did you mean `{near}`?")).unwrap_or_default()
}

/// The candidate most like `name`, if any is alike.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let name = name.to_lowercase();
    let like = |c: &str| strsim::jaro_winkler(&name, &c.to_lowercase());
    let scored = candidates.into_iter().map(|c| (like(c), c));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score > 0.7).map(|(_, near)| near.to_owned())
}

/// The fault of naming a stage that is not there.
#[must_use]
pub fn no_stage(graph: &Graph, name: &str, key: &str) -> PlanFault {
    let near = nearest(name, graph.stages.iter().map(|stage| &*stage.name));
    PlanFault::NoStage { name: name.to_owned(), near, key: key.to_owned() }
}

/// Checks a number against a range, naming it.
///
/// # Errors
/// When it is outside.
pub fn in_range(
    (what, key): (impl FnOnce() -> String, impl FnOnce() -> String),
    value: usize,
    max: usize,
    expected: &'static str,
) -> Result<usize, PlanFault> {
    if value == 0 || value > max {
        let (what, value, key) = (what(), number(value), key());
        return Err(PlanFault::OutOfRange { what, value, expected, key });
    }
    Ok(value)
}

/// A number as people say it: the largest is none.
pub(crate) fn number(value: usize) -> String {
    if value == usize::MAX { "unlimited".to_owned() } else { value.to_string() }
}
