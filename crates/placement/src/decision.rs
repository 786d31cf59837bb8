//! The actions of a strategy, and their reasons.

use std::fmt;

use crate::view::{NodeId, ReplicaId};

/// An action of a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Migrate a replica to another node.
    Migrate {
        /// The replica.
        replica: ReplicaId,
        /// Its node.
        from: NodeId,
        /// Its new node.
        to: NodeId,
    },
    /// Request a node that stands by.
    AddNode(NodeId),
    /// Release a node on which nothing runs.
    ReleaseNode(NodeId),
}

/// The reason of an action: the signal, the rule, and the expected effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The signal, such as `s = 1.00, first of 3 candidates`.
    pub signal: String,
    /// The rule that the signal met.
    pub rule: String,
    /// The expected effect.
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
    /// The action.
    pub action: Action,
    /// Its reason.
    pub reason: Reason,
}
