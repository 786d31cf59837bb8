//! What a strategy may do, and why it did.

use std::fmt;

use crate::view::{NodeId, ReplicaId};

/// What a strategy may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Migrate a replica to another node.
    Migrate {
        /// Which.
        replica: ReplicaId,
        /// Where it is.
        from: NodeId,
        /// Where it goes.
        to: NodeId,
    },
    /// Ask for a node that stands by.
    AddNode(NodeId),
    /// Release a node on which nothing runs.
    ReleaseNode(NodeId),
}

/// Why: what was seen, which rule it met, what is expected to come of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What was seen, such as `s = 1.00, first of 3 candidates`.
    pub signal: String,
    /// The rule that it met.
    pub rule: String,
    /// What is expected.
    pub effect: String,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}; {}", self.signal, self.rule, self.effect)
    }
}

/// An action and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub action: Action,
    /// Why.
    pub reason: Reason,
}
