//! Why a program could not be started.

use std::fmt;

use comporta_model::graph::GraphFault;
use comporta_model::plan::PlanFault;

/// Why a program could not be started. Nothing has run.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The graph is not valid.
    Graph(Vec<GraphFault>),
    /// The plan does not fit the graph.
    Plan(Vec<PlanFault>),
    /// A stage could not be made, or a source not opened.
    Stage {
        /// Its name.
        name: String,
        /// Why.
        message: String,
    },
    /// A resource could not be opened.
    Resource {
        /// Its name.
        name: String,
        /// Why.
        message: String,
    },
    /// The system has not enough threads.
    Threads {
        /// What it said.
        message: String,
    },
    /// A policy would not start.
    Policy {
        /// The cluster.
        cluster: String,
        /// The policy.
        policy: String,
        /// Why.
        message: String,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn all(
            f: &mut fmt::Formatter<'_>,
            what: &str,
            faults: &[impl fmt::Display],
        ) -> fmt::Result {
            match faults {
                [fault] => write!(f, "{what}: {fault}"),
                _ => {
                    write!(f, "{what} has {} mistakes:", faults.len())?;
                    faults.iter().try_for_each(|fault| write!(f, "\n  - {fault}"))
                }
            }
        }
        match self {
            StartError::Graph(faults) => all(f, "the graph", faults),
            StartError::Plan(faults) => all(f, "the plan", faults),
            StartError::Stage { name, message } => write!(f, "`{name}` could not start: {message}"),
            StartError::Resource { name, message } => {
                write!(f, "the resource `{name}` could not be opened: {message}")
            }
            StartError::Threads { message } => f.write_str(message),
            StartError::Policy { cluster, policy, message } => {
                write!(f, "the policy `{policy}` of `{cluster}` could not start: {message}")
            }
        }
    }
}

impl std::error::Error for StartError {}
