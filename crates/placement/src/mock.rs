//! A mock cluster for tests of strategies: a test sets its nodes and replicas.
//!
//! ```
//! use comporta_placement::mock::Mock;
//! use comporta_placement::strategies::Adaptive;
//!
//! // Two operators on `a`; `y` has become slow, and `b` is idle.
//! let mut mock = Mock::new(["a", "b"]).replica("x", "X", "a").replica("y", "Y", "a");
//! mock.use_cpu("x", 1.0).use_cpu("y", 1.0);
//! mock.latencies("x", &[5.0, 5.0, 5.0]).latencies("y", &[5.0, 5.0, 10.0]);
//!
//! let decisions = mock.decide(&mut Adaptive::new(0.25, 1));
//! assert_eq!(mock.migrations(&decisions), ["y: a -> b"]);
//! assert_eq!(decisions[0].reason.signal, "s = 1.00 at d = 0.25, number 1 of 1 candidates");
//! ```

use std::time::Duration;

use comporta_model::event::Time;

use crate::decision::{Action, Decision};
use crate::strategy::{Strategy, decide};
use crate::usage::{Resource, Usage};
use crate::view::{
    Capacity, Flow, NodeId, NodeState, NodeView, OperatorId, ReplicaId, ReplicaView, Second, View,
};

/// What a node of a mock has: four cores, 2 GB, a disk of 100 MB/s, a network of 125 MB/s.
pub const CAPACITY: Capacity = Capacity {
    cores: 4.0,
    speed: 1.0,
    memory: 2e9,
    disk: 1e8,
    network_in: 1.25e8,
    network_out: 1.25e8,
};

/// Seconds of a mock's period.
const SECONDS: usize = 10;

/// A mock cluster.
#[derive(Clone, Debug)]
pub struct Mock {
    /// What strategies see, but for what nodes use: that is what their replicas use, and their background.
    pub view: View,
    operators: Vec<String>,
    background: Vec<Usage>,
}

impl Mock {
    /// Creates a cluster of active nodes with these names, one hour after the start.
    #[must_use]
    pub fn new<const N: usize>(nodes: [&str; N]) -> Self {
        let node = |name: &str| NodeView {
            name: name.to_owned(),
            capacity: CAPACITY,
            state: NodeState::Active,
            elastic: false,
            reserved: false,
            usage: Some(Usage::new()),
            cpus: Vec::new(),
        };
        Mock {
            view: View {
                now: Time::ZERO + Duration::from_secs(3600),
                nodes: nodes.into_iter().map(node).collect(),
                replicas: Vec::new(),
                flows: Vec::new(),
                network_latency_s: 0.0005,
                migrating: 0,
            },
            operators: Vec::new(),
            background: vec![Usage::new(); N],
        }
    }

    /// Adds a replica of an operator on a node. It has handled a hundred events in each second, and used nothing.
    #[must_use]
    pub fn replica(mut self, name: &str, operator: &str, node: &str) -> Self {
        let (operator, node) = (self.operator(operator), self.node(node));
        let second = Second {
            latency_ms: Some(5.0),
            usage: Usage::new(),
            arrived: 100.0,
            handled: 100.0,
            emitted: 100.0,
        };
        self.view.replicas.push(ReplicaView {
            name: name.to_owned(),
            operator,
            node,
            pinned: false,
            seconds: vec![second; SECONDS],
            backlog: 0.0,
            per_event: Some(Usage::new()),
            state_bytes: 0.0,
            migrated: None,
        });
        self
    }

    /// Adds a flow of events from each replica of an operator to each of another.
    #[must_use]
    pub fn flow(mut self, from: &str, to: &str, events_per_s: f64, event_bytes: f64) -> Self {
        let (from, to) = (self.operator(from), self.operator(to));
        let bytes_per_s = events_per_s * event_bytes;
        self.view.flows.push(Flow { from, to, events_per_s, bytes_per_s });
        self
    }

    fn operator(&mut self, name: &str) -> OperatorId {
        let known = self.operators.iter().position(|operator| operator == name);
        OperatorId(known.unwrap_or_else(|| {
            self.operators.push(name.to_owned());
            self.operators.len() - 1
        }))
    }

    /// Returns the node with this name.
    ///
    /// # Panics
    /// Panics if there is none.
    #[must_use]
    pub fn node(&self, name: &str) -> NodeId {
        let at = self.view.nodes.iter().position(|node| node.name == name);
        NodeId(at.unwrap_or_else(|| panic!("the mock has no node `{name}`")))
    }

    /// Returns the replica with this name.
    ///
    /// # Panics
    /// Panics if there is none.
    #[must_use]
    pub fn id(&self, name: &str) -> ReplicaId {
        let at = self.view.replicas.iter().position(|replica| replica.name == name);
        ReplicaId(at.unwrap_or_else(|| panic!("the mock has no replica `{name}`")))
    }

    /// Returns the node with this name, to change it.
    pub fn node_mut(&mut self, name: &str) -> &mut NodeView {
        let NodeId(at) = self.node(name);
        &mut self.view.nodes[at]
    }

    /// Returns the replica with this name, to change it.
    pub fn replica_mut(&mut self, name: &str) -> &mut ReplicaView {
        let ReplicaId(at) = self.id(name);
        &mut self.view.replicas[at]
    }

    /// Sets the usage of a resource by a replica in every second.
    pub fn use_of(&mut self, replica: &str, resource: Resource, amount: f64) -> &mut Self {
        let replica = self.replica_mut(replica);
        for second in &mut replica.seconds {
            second.usage[resource] = amount;
        }
        let handled = replica.seconds.last().map_or(1.0, |second| second.handled);
        let used = replica.usage().unwrap_or_default().without_memory();
        replica.per_event = Some(used.scaled(1.0 / handled));
        self
    }

    /// Sets the cores that a replica uses.
    pub fn use_cpu(&mut self, replica: &str, cores: f64) -> &mut Self {
        self.use_of(replica, Resource::Cpu, cores)
    }

    /// Sets the events per second that arrived at a replica.
    pub fn arrivals(&mut self, replica: &str, per_s: f64) -> &mut Self {
        for second in &mut self.replica_mut(replica).seconds {
            second.arrived = per_s;
        }
        self
    }

    /// Sets the latencies of a replica, the oldest first; earlier seconds have none.
    ///
    /// # Panics
    /// Panics if there are more than the period has seconds.
    pub fn latencies(&mut self, replica: &str, latencies_ms: &[f64]) -> &mut Self {
        let seconds = &mut self.replica_mut(replica).seconds;
        let before = seconds.len().checked_sub(latencies_ms.len()).expect("as many as seconds");
        let none = std::iter::repeat_n(None, before);
        let values = none.chain(latencies_ms.iter().copied().map(Some));
        seconds.iter_mut().zip(values).for_each(|(second, value)| second.latency_ms = value);
        self
    }

    /// Sets the usage of a node by others.
    pub fn background(&mut self, node: &str, usage: Usage) -> &mut Self {
        let NodeId(at) = self.node(node);
        self.background[at] = usage;
        self
    }

    /// Returns the view of a strategy: the usage of a node is that of its replicas and its background. A node whose
    /// usage was set to `None` stays silent.
    #[must_use]
    pub fn seen(&self) -> View {
        let mut view = self.view.clone();
        for (at, node) in view.nodes.iter_mut().enumerate() {
            let there = self.view.replicas.iter().filter(|replica| replica.node == NodeId(at));
            let used = there.filter_map(ReplicaView::usage).fold(self.background[at], |a, b| a + b);
            node.usage = node.usage.map(|_| used);
        }
        view
    }

    /// Returns the decisions of a strategy.
    pub fn decide(&self, strategy: &mut dyn Strategy) -> Vec<Decision> {
        decide(strategy, &self.seen())
    }

    /// Returns decisions as text: `replica: from -> to`, `+node`, `-node`.
    #[must_use]
    pub fn migrations(&self, decisions: &[Decision]) -> Vec<String> {
        let node = |id: NodeId| self.view.nodes[id.0].name.as_str();
        let text = |decision: &Decision| match decision.action {
            Action::Migrate { replica, from, to } => {
                format!("{}: {} -> {}", self.view.replicas[replica.0].name, node(from), node(to))
            }
            Action::AddNode(id) => format!("+{}", node(id)),
            Action::ReleaseNode(id) => format!("-{}", node(id)),
        };
        decisions.iter().map(text).collect()
    }

    /// Carries decisions out at once.
    pub fn apply(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            match decision.action {
                Action::Migrate { replica, to, .. } => {
                    self.view.replicas[replica.0].node = to;
                    self.view.replicas[replica.0].migrated = Some(self.view.now);
                }
                Action::AddNode(node) => self.view.nodes[node.0].state = NodeState::Active,
                Action::ReleaseNode(node) => self.view.nodes[node.0].state = NodeState::Standby,
            }
        }
    }
}
