//! The loads of nodes as they would be if every replica had what it demands, and what that costs in
//! delay. Migrations are tried here before they are drafted.
//!
//! The cost of a node is the mean number of events that are there: by Little's law, the event-seconds of delay that it
//! adds each second. Each resource adds its own. `c` cores that are busy to a share `ρ` hold `c·ρ + ρ^√(2(c+1)) / (1-ρ)`
//! events: those that are served, and those that wait, by Sakasegawa's approximation of M/M/c, which is exact for one server.
//! Served events count, because a slow node, or one whose cores others use, holds each of them for longer. A disk and each
//! direction of a network interface is one server.
//!
//! That is so up to a load of `KNEE`, and beyond it the number grows along a line. Past its capacity a resource falls behind by
//! `ρ - 1` seconds each second, so over a horizon of H seconds events wait `(ρ - 1)·H/2` on average: that is the slope of the line.
//! Memory has no queue: what does not fit is swapped, which costs like a resource past its capacity.

use std::collections::HashMap;

use crate::demand::{Demand, RECENT, demands};
use crate::usage::{Resource, Usage};
use crate::view::{Capacity, NodeId, OperatorId, ReplicaId, View};

/// Where queueing is no longer taken for that of a steady state.
const KNEE: f64 = 0.9;
/// Seconds for which a load is expected to last.
const HORIZON_S: f64 = 30.0;
/// The share of its cores that is left to a node's replicas, whatever others use: a node without any would have no load.
const LEFT_MIN: f64 = 0.05;

/// What has one server.
const SERVERS: [&[Resource]; 3] =
    [&[Resource::DiskRead, Resource::DiskWritten], &[Resource::Received], &[Resource::Sent]];

#[derive(Clone, Debug)]
struct NodeLoad {
    capacity: Capacity,
    /// What others use; `None` of a silent node.
    others: Option<Usage>,
    /// What its replicas demand, and what is needed to work off what waits for them; cores are those of a usual node.
    demand: Demand,
}

/// An operator that sends to another or receives from it.
#[derive(Clone, Copy, Debug)]
struct Peer {
    operator: OperatorId,
    /// Events a second between a replica of the one and each of the other.
    rate: f64,
}

/// The loads of all nodes.
#[derive(Clone, Debug)]
pub(super) struct Loads {
    nodes: Vec<NodeLoad>,
    demands: Vec<Demand>,
    /// Where replicas are, with what was tried.
    places: Vec<NodeId>,
    replicas_of: HashMap<OperatorId, Vec<ReplicaId>>,
    peers: HashMap<OperatorId, Vec<Peer>>,
    state_bytes: Vec<f64>,
    operators: Vec<OperatorId>,
    network_latency_s: f64,
}

impl Loads {
    pub(super) fn new(view: &View) -> Self {
        let demands = demands(view);
        let node = |node: &crate::NodeView| NodeLoad {
            capacity: node.capacity,
            others: node.usage,
            demand: Demand::default(),
        };
        let mut nodes: Vec<NodeLoad> = view.nodes.iter().map(node).collect();
        let mut replicas_of: HashMap<OperatorId, Vec<ReplicaId>> = HashMap::new();
        for (id, replica) in view.replicas() {
            replicas_of.entry(replica.operator).or_default().push(id);
            let node = &mut nodes[replica.node.0];
            if let Some(others) = &mut node.others {
                *others -= replica.usage().unwrap_or_default();
            }
            // What waits there is worked off there, even if the replica leaves.
            let mut owed = replica.per_event.unwrap_or_default().without_memory();
            owed[Resource::Cpu] *= node.capacity.speed;
            node.demand.usage += owed.scaled(replica.backlog / HORIZON_S);
            node.demand += demands[id.0];
        }
        let mut peers: HashMap<OperatorId, Vec<Peer>> = HashMap::new();
        for flow in &view.flows {
            let rate = flow.events_per_s;
            peers.entry(flow.from).or_default().push(Peer { operator: flow.to, rate });
            peers.entry(flow.to).or_default().push(Peer { operator: flow.from, rate });
        }
        Loads {
            nodes,
            places: view.replicas.iter().map(|replica| replica.node).collect(),
            state_bytes: view.replicas.iter().map(|replica| replica.state_bytes).collect(),
            operators: view.replicas.iter().map(|replica| replica.operator).collect(),
            network_latency_s: view.network_latency_s,
            demands,
            replicas_of,
            peers,
        }
    }

    pub(super) fn place(&self, replica: ReplicaId) -> NodeId {
        self.places[replica.0]
    }

    /// The share of its fullest resource that is wanted of a node; past 1 it falls behind.
    pub(super) fn fullest(&self, node: NodeId) -> Option<f64> {
        let node = &self.nodes[node.0];
        node.fullest(&node.demand.usage)
    }

    /// As [`fullest`](Self::fullest), with another replica.
    pub(super) fn fullest_with(&self, node: NodeId, replica: ReplicaId) -> Option<f64> {
        let node = &self.nodes[node.0];
        node.fullest(&(node.demand.usage + self.demands[replica.0].usage))
    }

    /// Event-seconds of delay that a node costs each second. A silent one costs nothing that is known.
    pub(super) fn cost(&self, node: NodeId) -> f64 {
        let node = &self.nodes[node.0];
        node.cost(node.demand).unwrap_or(0.0)
    }

    /// Event-seconds of delay that a migration would save each second, less what would be lost on the network.
    pub(super) fn saving(&self, replica: ReplicaId, to: NodeId) -> f64 {
        let demand = self.demands[replica.0];
        let from = self.places[replica.0];
        let (a, b) = (&self.nodes[from.0], &self.nodes[to.0]);
        let left = a.cost(a.demand - demand);
        let taken = b.cost(b.demand + demand);
        let (Some(left), Some(taken)) = (left, taken) else { return f64::NEG_INFINITY };
        let near = self.met(replica, to) - self.met(replica, from);
        self.cost(from) + self.cost(to) - left - taken + near * self.network_latency_s
    }

    /// What the cost of two nodes may be off by: rates are counted for a few seconds, and events come by chance. Two
    /// standard errors of so many events, as a share of the cost.
    pub(super) fn noise(&self, a: NodeId, b: NodeId) -> f64 {
        let rate = self.nodes[a.0].demand.rate + self.nodes[b.0].demand.rate;
        let counted = (rate * RECENT as f64).max(1.0);
        (self.cost(a) + self.cost(b)) * 2.0 / counted.sqrt()
    }

    /// Events a second between a replica and those connected with it that are on a node.
    fn met(&self, replica: ReplicaId, node: NodeId) -> f64 {
        let peers = self.peers.get(&self.operators[replica.0]).map_or(&[][..], Vec::as_slice);
        let is_there = |peer: &&Peer| {
            let replicas = self.replicas_of.get(&peer.operator).map_or(&[][..], Vec::as_slice);
            replicas.iter().any(|id| self.places[id.0] == node)
        };
        peers.iter().filter(is_there).map(|peer| peer.rate).sum()
    }

    /// Nodes on which a replica connected with this one runs.
    pub(super) fn nodes_near(&self, replica: ReplicaId) -> Vec<NodeId> {
        let peers = self.peers.get(&self.operators[replica.0]).map_or(&[][..], Vec::as_slice);
        let all = peers.iter().filter_map(|peer| self.replicas_of.get(&peer.operator)).flatten();
        all.map(|id| self.places[id.0]).collect()
    }

    /// Seconds that the state of a replica takes to a node.
    fn copied_s(&self, replica: ReplicaId, to: NodeId) -> f64 {
        let from = self.places[replica.0];
        let (out, into) =
            (self.nodes[from.0].capacity.network_out, self.nodes[to.0].capacity.network_in);
        self.state_bytes[replica.0] / out.min(into).max(1.0)
    }

    /// Event-seconds that a migration costs, once: events that arrive while the state is copied wait for half of that on
    /// average, and all of them for a message more. So does what the other replicas of the two nodes send and receive: the state is
    /// in its way. Before that the replica works on, so what it has queued costs nothing.
    pub(super) fn price(&self, replica: ReplicaId, to: NodeId) -> f64 {
        let (from, latency_s) = (self.places[replica.0], self.network_latency_s);
        let copied_s = self.copied_s(replica, to);
        let held_up = self.nodes[from.0].demand.rate + self.nodes[to.0].demand.rate;
        let paused_s = copied_s + latency_s;
        let paused = self.demands[replica.0].rate * paused_s * (paused_s / 2.0 + latency_s);
        paused + held_up * copied_s * copied_s / 2.0
    }

    /// What a saving a second is worth, once. It begins when the state has been copied.
    pub(super) fn worth(&self, saving: f64, replica: ReplicaId, to: NodeId) -> f64 {
        saving * (HORIZON_S - self.copied_s(replica, to)).max(0.0)
    }

    /// Migrates a replica, here alone.
    pub(super) fn migrate(&mut self, replica: ReplicaId, to: NodeId) {
        let demand = self.demands[replica.0];
        let from = std::mem::replace(&mut self.places[replica.0], to);
        let a = &mut self.nodes[from.0];
        a.demand = a.demand - demand;
        let b = &mut self.nodes[to.0];
        b.demand += demand;
    }
}

impl NodeLoad {
    /// The cores of a usual node that others leave to its replicas.
    fn cores_left(&self, others: &Usage) -> f64 {
        let cores = self.capacity.cores;
        self.capacity.speed * (cores - others[Resource::Cpu]).max(LEFT_MIN * cores)
    }

    /// The share of its fullest resource that is wanted, where its replicas demand this.
    fn fullest(&self, demanded: &Usage) -> Option<f64> {
        let others = self.others?;
        let cpu = others[Resource::Cpu] + demanded[Resource::Cpu] / self.capacity.speed;
        let all = others + *demanded;
        let servers = SERVERS.iter().map(|server| self.load(&all, server));
        let memory = all[Resource::Memory] / self.capacity.memory;
        Some(servers.fold(memory.max(cpu / self.capacity.cores), f64::max))
    }

    fn load(&self, usage: &Usage, server: &[Resource]) -> f64 {
        server.iter().map(|&resource| usage[resource] / self.capacity.of(resource)).sum()
    }

    /// The mean number of events on it, where its replicas demand this. `None` of a silent node.
    fn cost(&self, demand: Demand) -> Option<f64> {
        let (Demand { rate, usage }, others) = (demand, self.others?);
        let cpu = usage[Resource::Cpu] / self.cores_left(&others);
        let all = others + usage;
        let servers = SERVERS.iter().map(|server| events(1.0, self.load(&all, server), rate));
        let missing = (all[Resource::Memory] / self.capacity.memory - 1.0).max(0.0);
        let swapped = rate * missing * HORIZON_S / 2.0;
        Some(events(self.capacity.cores, cpu, rate) + servers.sum::<f64>() + swapped)
    }
}

/// The mean number of events that so many servers hold, at a load and a rate of arrivals.
fn events(servers: f64, load: f64, rate: f64) -> f64 {
    let power = (2.0 * (servers + 1.0)).sqrt();
    let steady = |load: f64| servers * load + load.powf(power) / (1.0 - load);
    if load <= KNEE {
        return steady(load);
    }
    // The slope of `steady` at the knee.
    let waits = KNEE.powf(power) / (1.0 - KNEE);
    let steep = servers + waits * (power / KNEE + 1.0 / (1.0 - KNEE));
    steady(KNEE) + (load - KNEE) * steep.max(rate * HORIZON_S / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_grow_with_the_load_without_a_jump() {
        for servers in [1.0, 4.0, 64.0] {
            let all: Vec<f64> =
                (0..200).map(|n| events(servers, f64::from(n) / 100.0, 100.0)).collect();
            assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
            let jump = events(servers, KNEE + 1e-9, 100.0) - events(servers, KNEE, 100.0);
            assert!(jump.abs() < 1e-4, "{jump}");
        }
    }

    #[test]
    fn one_server_holds_as_many_as_mm1_and_several_nearly_as_many_as_mmc() {
        for load in [0.1, 0.5, 0.9] {
            assert!((events(1.0, load, 100.0) - load / (1.0 - load)).abs() < 1e-12);
        }
        // M/M/4 at 0.8: 3.2 are served, and 2.386 wait, by the formula of Erlang.
        assert!((events(4.0, 0.8, 100.0) - 5.586).abs() < 0.1, "{}", events(4.0, 0.8, 100.0));
    }

    #[test]
    fn a_resource_past_its_capacity_costs_half_of_the_horizon_for_each_part_it_lacks() {
        let (over, full) = (events(4.0, 1.3, 1000.0), events(4.0, 1.0, 1000.0));
        assert!((over - full - 1000.0 * 0.3 * HORIZON_S / 2.0).abs() < 1e-6);
    }
}
