//! A round: migrations drafted one after another, each checked against the view and against those before it.
//!
//! Invariants, whatever a strategy does: replicas of one operator never share a node; at most
//! `migrations_max` migrations; none while one runs, to a silent node, to one that is reserved or not active, of a pinned
//! replica or of one twice. A migration updates the predicted usage of both nodes at once, so that two migrations
//! cannot fill one node unseen.
//!
//! What connected replicas send each other needs no network where they share a node (section 3.2.3). So a replica that
//! goes to one connected with it takes its part of the network off that node, and one that leaves such a node needs more
//! than it was measured to use.

use std::collections::HashMap;

use crate::decision::{Action, Decision, Reason};
use crate::usage::{Resource, Usage};
use crate::view::{NodeId, NodeState, OperatorId, ReplicaId, View};

/// The reason why an action is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Obstacle {
    /// A migration is under way.
    #[error("a migration is under way")]
    Migrating,
    /// The round has as many migrations as it may have.
    #[error("the round has all the migrations it may have")]
    LimitReached,
    /// The view has no such replica or node.
    #[error("there is no such replica or node")]
    Unknown,
    /// The replica is a source or a sink.
    #[error("the replica is pinned")]
    Pinned,
    /// The replica migrates in this round already.
    #[error("the replica migrates in this round already")]
    AlreadyMigrates,
    /// The replica is on that node.
    #[error("the replica is on that node")]
    SameNode,
    /// Another replica of the operator is on that node, or will be.
    #[error("another replica of the operator is on that node")]
    ReplicaConflict,
    /// No control message came from the node or the replica: its usage is unknown.
    #[error("nothing was heard from the node in the last period")]
    Silent,
    /// The node is reserved for pinned replicas.
    #[error("the node is reserved")]
    Reserved,
    /// The node stands by or is starting.
    #[error("the node is not active")]
    NotActive,
    /// The node does not stand by.
    #[error("the node does not stand by")]
    NotStandby,
    /// The node is not elastic.
    #[error("the node is not elastic")]
    NotElastic,
    /// Replicas run on the node.
    #[error("replicas run on the node")]
    NotEmpty,
}

/// Bytes a second that a replica exchanges with those connected with it.
#[derive(Clone, Copy, Debug, Default)]
struct Exchange {
    received: f64,
    sent: f64,
}

/// An operator connected with another, and what a replica of the other exchanges with each of its replicas.
#[derive(Clone, Copy, Debug)]
struct Neighbour {
    operator: OperatorId,
    exchange: Exchange,
}

/// A round: the migrations drafted so far.
#[derive(Debug)]
pub struct Round<'v> {
    view: &'v View,
    siblings: HashMap<OperatorId, Vec<ReplicaId>>,
    neighbours: HashMap<OperatorId, Vec<Neighbour>>,
    migrations_left: usize,
    nodes: Vec<NodeId>,
    usages: Vec<Option<Usage>>,
    decisions: Vec<Decision>,
}

impl<'v> Round<'v> {
    /// Creates a round of at most `migrations_max` migrations.
    #[must_use]
    pub fn new(view: &'v View, migrations_max: usize) -> Self {
        let mut siblings: HashMap<OperatorId, Vec<ReplicaId>> = HashMap::new();
        for (id, replica) in view.replicas() {
            siblings.entry(replica.operator).or_default().push(id);
        }
        let mut neighbours: HashMap<OperatorId, Vec<Neighbour>> = HashMap::new();
        for flow in &view.flows {
            let sends = Exchange { received: 0.0, sent: flow.bytes_per_s };
            let receives = Exchange { received: flow.bytes_per_s, sent: 0.0 };
            let mut connect = |one, operator, exchange| {
                neighbours.entry(one).or_default().push(Neighbour { operator, exchange });
            };
            connect(flow.from, flow.to, sends);
            connect(flow.to, flow.from, receives);
        }
        Round {
            view,
            siblings,
            neighbours,
            migrations_left: migrations_max,
            nodes: view.replicas.iter().map(|replica| replica.node).collect(),
            usages: view.nodes.iter().map(|node| node.usage).collect(),
            decisions: Vec::new(),
        }
    }

    /// Returns how many migrations can still be drafted.
    #[must_use]
    pub fn migrations_left(&self) -> usize {
        if self.view.migrating > 0 { 0 } else { self.migrations_left }
    }

    /// Returns the node of a replica, with the migrations drafted so far.
    ///
    /// # Panics
    /// Panics if the view has no such replica.
    #[must_use]
    pub fn node_of(&self, replica: ReplicaId) -> NodeId {
        self.nodes[replica.0]
    }

    /// Returns the predicted usage of a node, with the migrations drafted so far, or `None` if it is silent.
    ///
    /// # Panics
    /// Panics if the view has no such node.
    #[must_use]
    pub fn usage_of(&self, node: NodeId) -> Option<Usage> {
        self.usages[node.0]
    }

    /// Returns the predicted usage of a node with a further replica, without the traffic that then needs no network,
    /// or `None` if either is silent.
    ///
    /// # Panics
    /// Panics if the view has no such replica or node.
    #[must_use]
    pub fn usage_with(&self, replica: ReplicaId, node: NodeId) -> Option<Usage> {
        let used = self.usage_at(replica, node)?;
        // What the node's other replicas exchange with this one counted as network there.
        let stays = self.exchange(replica, node, &self.nodes);
        Some(self.usages[node.0]? - network(stays.sent, stays.received) + used)
    }

    /// What a replica would use on a node.
    fn usage_at(&self, replica: ReplicaId, node: NodeId) -> Option<Usage> {
        let seen = &self.view.replicas[replica.0];
        // It was measured among those that were on its node then.
        let measured = self.exchange_seen(replica, seen.node);
        let stays = self.exchange(replica, node, &self.nodes);
        let all = seen.usage()? + network(measured.received, measured.sent);
        Some(all - network(stays.received, stays.sent))
    }

    /// What a replica exchanges with those on a node, as it was when the view was made.
    fn exchange_seen(&self, replica: ReplicaId, node: NodeId) -> Exchange {
        let seen: Vec<NodeId> = self.view.replicas.iter().map(|replica| replica.node).collect();
        self.exchange(replica, node, &seen)
    }

    /// What a replica exchanges with those on a node, where all are at these places.
    fn exchange(&self, replica: ReplicaId, node: NodeId, places: &[NodeId]) -> Exchange {
        let operator = self.view.replicas[replica.0].operator;
        let mut all = Exchange::default();
        for neighbour in self.neighbours.get(&operator).map_or(&[][..], Vec::as_slice) {
            let there = self.siblings.get(&neighbour.operator).map_or(&[][..], Vec::as_slice);
            let there = there.iter().filter(|id| places[id.0] == node).count() as f64;
            all.received += there * neighbour.exchange.received;
            all.sent += there * neighbour.exchange.sent;
        }
        all
    }

    /// Checks whether a migration could be drafted.
    ///
    /// # Errors
    /// Returns the obstacle if it could not.
    pub fn may_migrate(&self, replica: ReplicaId, to: NodeId) -> Result<(), Obstacle> {
        let view = self.view;
        let (Some(migrated), Some(target)) = (view.replicas.get(replica.0), view.nodes.get(to.0))
        else {
            return Err(Obstacle::Unknown);
        };
        let here = self.nodes[replica.0];
        let mut siblings = self.siblings[&migrated.operator].iter();
        match () {
            () if view.migrating > 0 => Err(Obstacle::Migrating),
            () if self.migrations_left == 0 => Err(Obstacle::LimitReached),
            () if migrated.pinned => Err(Obstacle::Pinned),
            () if here != migrated.node => Err(Obstacle::AlreadyMigrates),
            () if here == to => Err(Obstacle::SameNode),
            () if target.reserved => Err(Obstacle::Reserved),
            () if target.state != NodeState::Active || self.has(Action::ReleaseNode(to)) => {
                Err(Obstacle::NotActive)
            }
            () if migrated.seconds.is_empty() => Err(Obstacle::Silent),
            () if self.usages[here.0].is_none() || self.usages[to.0].is_none() => {
                Err(Obstacle::Silent)
            }
            () if siblings.any(|id| *id != replica && self.nodes[id.0] == to) => {
                Err(Obstacle::ReplicaConflict)
            }
            () => Ok(()),
        }
    }

    /// Drafts a migration, and updates the predicted usage of the two nodes.
    ///
    /// # Errors
    /// Returns the obstacle if it cannot be drafted.
    pub fn migrate(
        &mut self,
        replica: ReplicaId,
        to: NodeId,
        reason: Reason,
    ) -> Result<(), Obstacle> {
        self.may_migrate(replica, to)?;
        let from = self.nodes[replica.0];
        let with = self.usage_with(replica, to);
        let used = self.usage_at(replica, from).unwrap_or_default();
        // Those that stay exchange with it over the network from now on.
        let parted = self.exchange(replica, from, &self.nodes);
        let without =
            self.usages[from.0].map(|usage| usage - used + network(parted.sent, parted.received));
        self.usages[from.0] = without;
        self.usages[to.0] = with;
        self.nodes[replica.0] = to;
        self.migrations_left -= 1;
        self.decisions.push(Decision { action: Action::Migrate { replica, from, to }, reason });
        Ok(())
    }

    /// Requests a node that stands by.
    ///
    /// # Errors
    /// Returns the obstacle if the node does not stand by.
    pub fn add_node(&mut self, node: NodeId, reason: Reason) -> Result<(), Obstacle> {
        let seen = self.view.nodes.get(node.0).ok_or(Obstacle::Unknown)?;
        let action = Action::AddNode(node);
        if seen.state != NodeState::Standby || self.has(action) {
            return Err(Obstacle::NotStandby);
        }
        self.decisions.push(Decision { action, reason });
        Ok(())
    }

    /// Releases a node on which nothing runs.
    ///
    /// # Errors
    /// Returns the obstacle if replicas run on it or will, or if it is not active or not elastic.
    pub fn release_node(&mut self, node: NodeId, reason: Reason) -> Result<(), Obstacle> {
        let seen = self.view.nodes.get(node.0).ok_or(Obstacle::Unknown)?;
        let action = Action::ReleaseNode(node);
        let occupied = self.view.replicas().any(|(id, replica)| {
            // What migrates away in this round still runs there.
            replica.node == node || self.nodes[id.0] == node
        });
        match () {
            () if self.view.migrating > 0 => return Err(Obstacle::Migrating),
            () if !seen.elastic => return Err(Obstacle::NotElastic),
            () if seen.state != NodeState::Active || self.has(action) => {
                return Err(Obstacle::NotActive);
            }
            () if occupied => return Err(Obstacle::NotEmpty),
            () => self.decisions.push(Decision { action, reason }),
        }
        Ok(())
    }

    fn has(&self, action: Action) -> bool {
        self.decisions.iter().any(|decision| decision.action == action)
    }

    /// Returns the decisions, in order.
    #[must_use]
    pub fn finish(self) -> Vec<Decision> {
        self.decisions
    }
}

/// So much of the network, and of nothing else.
fn network(received: f64, sent: f64) -> Usage {
    Usage::new().with(Resource::Received, received).with(Resource::Sent, sent)
}
