//! Control messages become a view.
//!
//! Every replica sends one each second, and so does a node on which none runs. The monitor keeps those of the last
//! period, adds up the usage per event, and notices silent nodes: the usage of a node without messages is unknown,
//! even if it is most likely idle. `clock` corrects for clocks that differ.

use std::collections::VecDeque;
use std::time::Duration;

use comporta_model::event::Time;

use crate::clock::Clock;
use crate::usage::Usage;
use crate::view::{
    Capacity, Cpu, Flow, NodeId, NodeState, NodeView, OperatorId, ReplicaId, ReplicaView, Second,
    View,
};

/// The mean latency of events between two clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredLatency {
    /// The node that wrote down when an event left the operator before.
    pub from: NodeId,
    /// The node that wrote down when it arrived at the operator after.
    pub to: NodeId,
    /// The mean difference in milliseconds; negative where clocks differ.
    pub mean_ms: f64,
    /// Events that it is the mean of.
    pub events: f64,
}

/// The report of a replica about the last second.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlMessage {
    /// The replica.
    pub replica: ReplicaId,
    /// Its node.
    pub node: NodeId,
    /// When it was sent, by the clock of the node.
    pub stamp: Time,
    /// The latency of events, for each pair of clocks.
    pub latencies: Vec<MeasuredLatency>,
    /// The usage of the replica.
    pub usage: Usage,
    /// Events that arrived.
    pub arrived: f64,
    /// Events that it handled.
    pub handled: f64,
    /// Events that it sent on, to each replica of each operator that follows.
    pub emitted: f64,
    /// Bytes that a migration would copy.
    pub state_bytes: f64,
    /// The total usage of the node.
    pub node_usage: Usage,
    /// Each CPU of the node.
    pub cpus: Vec<Cpu>,
}

/// The report of a node without replicas about the last second. Otherwise the messages of its replicas report it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeMessage {
    /// The node.
    pub node: NodeId,
    /// When it was sent, by the clock of the node.
    pub stamp: Time,
    /// Its total usage.
    pub usage: Usage,
    /// Each CPU of the node.
    pub cpus: Vec<Cpu>,
}

/// Two connected operators, and the bytes of an event between them.
#[derive(Clone, Copy, Debug)]
struct Link {
    from: OperatorId,
    to: OperatorId,
    event_bytes: f64,
}

#[derive(Debug)]
struct Node {
    view: NodeView,
    heard: Option<Time>,
    clock: Clock,
}

impl Node {
    fn hear(&mut self, now: Time, stamp: Time, usage: Usage, cpus: &Vec<Cpu>) {
        self.clock.learn(stamp, now);
        if self.view.state == NodeState::Active {
            self.heard = Some(now);
            self.view.usage = Some(usage);
            self.view.cpus.clone_from(cpus);
        }
    }

    fn forget(&mut self) {
        (self.heard, self.view.usage) = (None, None);
        self.view.cpus.clear();
    }
}

#[derive(Debug)]
struct Replica {
    view: ReplicaView,
    seconds: VecDeque<(Time, Second)>,
    used: Usage,
    arrived: f64,
    handled: f64,
}

/// Collects control messages and makes views of them.
#[derive(Debug)]
pub struct Monitor {
    period: Duration,
    network_latency: Duration,
    nodes: Vec<Node>,
    replicas: Vec<Replica>,
    links: Vec<Link>,
    migrating: usize,
}

impl Monitor {
    /// Creates a monitor without nodes, whose rounds are a period apart.
    #[must_use]
    pub fn new(period: Duration, network_latency: Duration) -> Self {
        Monitor {
            period,
            network_latency,
            nodes: Vec::new(),
            replicas: Vec::new(),
            links: Vec::new(),
            migrating: 0,
        }
    }

    /// Adds a node that is neither elastic nor reserved.
    pub fn add_node(
        &mut self,
        name: impl Into<String>,
        capacity: Capacity,
        state: NodeState,
    ) -> NodeId {
        let view = NodeView {
            name: name.into(),
            capacity,
            state,
            elastic: false,
            reserved: false,
            usage: None,
            cpus: Vec::new(),
        };
        self.nodes.push(Node { view, heard: None, clock: Clock::default() });
        NodeId(self.nodes.len() - 1)
    }

    /// Makes a node elastic: it can be released and requested.
    ///
    /// # Panics
    /// Panics if there is no such node.
    pub fn set_elastic(&mut self, node: NodeId) {
        self.nodes[node.0].view.elastic = true;
    }

    /// Reserves a node for pinned replicas.
    ///
    /// # Panics
    /// Panics if there is no such node.
    pub fn set_reserved(&mut self, node: NodeId) {
        self.nodes[node.0].view.reserved = true;
    }

    /// Adds a replica of an operator. A pinned one is never migrated.
    ///
    /// # Panics
    /// Panics if there is no such node.
    pub fn add_replica(
        &mut self,
        name: impl Into<String>,
        operator: OperatorId,
        node: NodeId,
        pinned: bool,
    ) -> ReplicaId {
        assert!(node.0 < self.nodes.len(), "a replica runs on a node that was added");
        let view = ReplicaView {
            name: name.into(),
            operator,
            node,
            pinned,
            seconds: Vec::new(),
            backlog: 0.0,
            per_event: None,
            state_bytes: 0.0,
            migrated: None,
        };
        let (seconds, used) = (VecDeque::new(), Usage::new());
        self.replicas.push(Replica { view, seconds, used, arrived: 0.0, handled: 0.0 });
        ReplicaId(self.replicas.len() - 1)
    }

    /// Connects two operators: each replica of the one sends its events, of `event_bytes` bytes, to every
    /// replica of the other.
    pub fn connect(&mut self, from: OperatorId, to: OperatorId, event_bytes: f64) {
        self.links.push(Link { from, to, event_bytes });
    }

    /// Takes a control message that arrived now. A message of an unknown replica or node, or with invalid
    /// amounts, is dropped.
    pub fn receive(&mut self, now: Time, message: &ControlMessage) {
        let sane = message.usage.is_sane() && message.node_usage.is_sane();
        let counts = [message.arrived, message.handled, message.emitted, message.state_bytes];
        let sane = sane && counts.iter().all(|count| count.is_finite() && *count >= 0.0);
        if !sane || message.replica.0 >= self.replicas.len() {
            return;
        }
        let Some(node) = self.nodes.get_mut(message.node.0) else { return };
        node.hear(now, message.stamp, message.node_usage, &message.cpus);
        let latency_ms = self.corrected(now, &message.latencies);
        let replica = &mut self.replicas[message.replica.0];
        if replica.view.node != message.node {
            return; // sent before the last migration: true of the node, no longer of the replica
        }
        let &ControlMessage { usage, arrived, handled, emitted, .. } = message;
        replica.seconds.push_back((now, Second { latency_ms, usage, arrived, handled, emitted }));
        replica.view.state_bytes = message.state_bytes;
        replica.used += usage.without_memory();
        replica.arrived += arrived;
        replica.handled += handled;
    }

    /// Takes the message of a node, which arrived now. A message of an unknown node, or with invalid amounts, is
    /// dropped.
    pub fn receive_node(&mut self, now: Time, message: &NodeMessage) {
        if let Some(node) = self.nodes.get_mut(message.node.0).filter(|_| message.usage.is_sane()) {
            node.hear(now, message.stamp, message.usage, &message.cpus);
        }
    }

    /// The mean of the latencies, by one clock. One between clocks that are not known is left out.
    fn corrected(&self, now: Time, measured: &[MeasuredLatency]) -> Option<f64> {
        let behind = |node: NodeId| self.nodes.get(node.0)?.clock.known_ns(now);
        let (mut sum, mut events) = (0.0, 0.0);
        for latency in measured {
            let (Some(from), Some(to)) = (behind(latency.from), behind(latency.to)) else {
                continue;
            };
            let mean_ms = latency.mean_ms + (to - from) as f64 / 1e6;
            if mean_ms.is_finite() && latency.events > 0.0 {
                sum += mean_ms.max(0.0) * latency.events;
                events += latency.events;
            }
        }
        (events > 0.0).then(|| sum / events)
    }

    /// Notes that a migration has begun.
    pub fn migration_begins(&mut self) {
        self.migrating += 1;
    }

    /// Notes that a migration has ended: the replica runs on `to` now. Its earlier messages are forgotten, because
    /// they describe another node. Events that it left behind are no longer in its backlog.
    ///
    /// # Panics
    /// Panics if there is no such replica or node, or no migration has begun.
    pub fn migration_ends(&mut self, now: Time, replica: ReplicaId, to: NodeId, backlog: f64) {
        assert!(to.0 < self.nodes.len(), "a replica migrates to a node that was added");
        self.migrating = self.migrating.checked_sub(1).expect("a migration ends that has begun");
        let replica = &mut self.replicas[replica.0];
        replica.seconds.clear();
        replica.view.node = to;
        replica.view.migrated = Some(now);
        replica.arrived = replica.handled + backlog;
    }

    /// Sets the state of a node. Messages of a node that is not active are forgotten.
    ///
    /// # Panics
    /// Panics if there is no such node.
    pub fn set_state(&mut self, node: NodeId, state: NodeState) {
        let node = &mut self.nodes[node.0];
        node.view.state = state;
        if state != NodeState::Active {
            node.forget();
        }
    }

    /// Returns the view of the last period. Older messages are forgotten.
    #[must_use]
    pub fn view(&mut self, now: Time) -> View {
        let old = |heard: Time| now.duration_since(heard) >= self.period;
        for node in &mut self.nodes {
            if node.heard.is_none_or(old) {
                node.forget();
            }
        }
        for replica in &mut self.replicas {
            while replica.seconds.front().is_some_and(|(heard, _)| old(*heard)) {
                replica.seconds.pop_front();
            }
            let view = &mut replica.view;
            view.seconds = replica.seconds.iter().map(|(_, second)| *second).collect();
            view.backlog = (replica.arrived - replica.handled).max(0.0);
            let some = replica.handled > 0.0;
            view.per_event = some.then(|| replica.used.scaled(1.0 / replica.handled));
        }
        View {
            now,
            nodes: self.nodes.iter().map(|node| node.view.clone()).collect(),
            replicas: self.replicas.iter().map(|replica| replica.view.clone()).collect(),
            flows: self.flows(),
            network_latency_s: self.network_latency.as_secs_f64(),
            migrating: self.migrating,
        }
    }

    fn flows(&self) -> Vec<Flow> {
        let mut rates: std::collections::HashMap<OperatorId, (f64, f64)> = Default::default();
        for replica in &self.replicas {
            if let Some(second) = replica.view.seconds.last() {
                let (sum, count) = rates.entry(replica.view.operator).or_default();
                *sum += second.emitted;
                *count += 1.0;
            }
        }
        let flow = |link: &Link| {
            let (sum, count) = rates.get(&link.from).copied().unwrap_or((0.0, 1.0));
            let events_per_s = sum / count;
            let bytes_per_s = events_per_s * link.event_bytes;
            Flow { from: link.from, to: link.to, events_per_s, bytes_per_s }
        };
        self.links.iter().map(flow).collect()
    }
}
