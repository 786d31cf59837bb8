//! The view of a strategy: nodes, replicas, and how operators are connected, at one moment.
//! Made by `monitor`; a test may build one by hand. Ids are places in the view's own lists.

use comporta_model::event::Time;

use crate::usage::{Resource, Usage};

/// A node of the view: its place in [`View::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// A replica of the view: its place in [`View::replicas`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub usize);

/// An operator. Replicas that belong together name the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorId(pub usize);

/// The capacity of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Cores.
    pub cores: f64,
    /// What one of its cores does in a second, in core-seconds of a usual node; 1 where nodes are alike.
    pub speed: f64,
    /// Bytes of memory.
    pub memory: f64,
    /// Bytes a second that its disk reads or writes.
    pub disk: f64,
    /// Bytes a second that its network interface receives.
    pub network_in: f64,
    /// Bytes a second that its network interface sends.
    pub network_out: f64,
}

impl Capacity {
    /// Returns the capacity of a resource. Reads and writes share the disk.
    #[must_use]
    pub fn of(&self, resource: Resource) -> f64 {
        match resource {
            Resource::Cpu | Resource::IoWait => self.cores,
            Resource::Memory => self.memory,
            Resource::DiskRead | Resource::DiskWritten => self.disk,
            Resource::Received => self.network_in,
            Resource::Sent => self.network_out,
        }
    }
}

/// One CPU over the last second, as shares of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    /// Computing.
    pub busy: f64,
    /// Waiting for a disk.
    pub io_wait: f64,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It runs replicas.
    Active,
    /// It was requested, and is not there yet.
    Starting,
    /// It can be requested.
    Standby,
}

/// A node.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its capacity.
    pub capacity: Capacity,
    /// Its state.
    pub state: NodeState,
    /// Whether it can be released and requested again; it costs while it is there.
    pub elastic: bool,
    /// Whether it is reserved for pinned replicas: nothing is migrated to it.
    pub reserved: bool,
    /// Its total usage, by replicas and others, or `None` if the node is silent: no control message came in the
    /// last period.
    pub usage: Option<Usage>,
    /// Each of its CPUs over the last second.
    pub cpus: Vec<Cpu>,
}

/// A replica over one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// The mean latency of the events that came through, in milliseconds.
    pub latency_ms: Option<f64>,
    /// Its usage.
    pub usage: Usage,
    /// Events that arrived.
    pub arrived: f64,
    /// Events that it handled.
    pub handled: f64,
    /// Events that it sent on.
    pub emitted: f64,
}

/// A replica of an operator.
#[derive(Clone, Debug)]
pub struct ReplicaView {
    /// Its name.
    pub name: String,
    /// The operator. Replicas of one operator never share a node.
    pub operator: OperatorId,
    /// Its node.
    pub node: NodeId,
    /// Whether it is never migrated, as a source or a sink.
    pub pinned: bool,
    /// The seconds of the last period, the oldest first. Empty while the replica is silent.
    pub seconds: Vec<Second>,
    /// Events that wait for it or are being handled: those that arrived less those that were handled.
    pub backlog: f64,
    /// The mean usage of handling an event, in core-seconds and bytes, since its first message; `None` before it
    /// has handled any.
    pub per_event: Option<Usage>,
    /// Bytes that a migration has to copy.
    pub state_bytes: f64,
    /// When it was last migrated.
    pub migrated: Option<Time>,
}

impl ReplicaView {
    /// Returns its usage in the last second, or `None` if it is silent.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.seconds.last().map(|second| second.usage)
    }

    /// Returns the mean latency of each second of the last period, in milliseconds, the oldest first. Seconds
    /// without events are omitted.
    #[must_use]
    pub fn latencies_ms(&self) -> Vec<f64> {
        self.seconds.iter().filter_map(|second| second.latency_ms).collect()
    }
}

/// Two connected operators: the output of one is the input of the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// The operator that sends.
    pub from: OperatorId,
    /// The operator that receives.
    pub to: OperatorId,
    /// Events per second from a replica of the one to each replica of the other.
    pub events_per_s: f64,
    /// Their bytes a second.
    pub bytes_per_s: f64,
}

/// The view of a strategy.
#[derive(Clone, Debug)]
pub struct View {
    /// The time, by the clock of the monitor.
    pub now: Time,
    /// Every node; a [`NodeId`] is a place in this list.
    pub nodes: Vec<NodeView>,
    /// Every replica; a [`ReplicaId`] is a place in this list.
    pub replicas: Vec<ReplicaView>,
    /// How operators are connected.
    pub flows: Vec<Flow>,
    /// How long a message is under way between two nodes, in seconds.
    pub network_latency_s: f64,
    /// Migrations that are under way. While there are any, no round is held.
    pub migrating: usize,
}

impl View {
    /// Returns every node with its id.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeView)> {
        self.nodes.iter().enumerate().map(|(at, node)| (NodeId(at), node))
    }

    /// Returns every replica with its id.
    pub fn replicas(&self) -> impl Iterator<Item = (ReplicaId, &ReplicaView)> {
        self.replicas.iter().enumerate().map(|(at, replica)| (ReplicaId(at), replica))
    }
}
