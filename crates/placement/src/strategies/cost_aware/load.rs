//! The loads of nodes as they would be if every replica had what it demands, and what that costs in
//! delay. Migrations are tried here before they are drafted.
//!
//! The delay of an event on a node is that of queueing for each of four resources in turn: `t·ρ/(1-ρ)` up to a
//! load of `KNEE`, and beyond it a line. Past its capacity a resource falls behind by `ρ - 1` seconds each second, so
//! over a horizon of H seconds events wait `(ρ - 1)·H/2` on average: that is the slope of the line. Memory has no queue: what does
//! not fit is swapped, which costs like a resource past its capacity.

use std::collections::HashMap;

use crate::demand::{Demand, demands};
use crate::usage::{Resource, Usage};
use crate::view::{Capacity, NodeId, OperatorId, ReplicaId, View};

/// Where queueing is no longer taken for that of a steady state.
const KNEE: f64 = 0.9;
/// Seconds for which a load is expected to last.
const HORIZON_S: f64 = 30.0;

/// What is queued for.
const QUEUES: [&[Resource]; 4] = [
    &[Resource::Cpu],
    &[Resource::DiskRead, Resource::DiskWritten],
    &[Resource::Received],
    &[Resource::Sent],
];

#[derive(Clone, Debug)]
struct NodeLoad {
    capacity: Capacity,
    /// What others use, and what its replicas demand. `None` of a silent node.
    usage: Option<Usage>,
    /// Events a second, of all its replicas.
    rate: f64,
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
        let mut nodes: Vec<NodeLoad> = view
            .nodes
            .iter()
            .map(|node| NodeLoad { capacity: node.capacity, usage: node.usage, rate: 0.0 })
            .collect();
        let mut replicas_of: HashMap<OperatorId, Vec<ReplicaId>> = HashMap::new();
        // First what others use, then what the replicas would: a difference must not eat a sum.
        for replica in &view.replicas {
            if let Some(usage) = &mut nodes[replica.node.0].usage {
                *usage -= replica.usage().unwrap_or_default();
            }
        }
        for (id, replica) in view.replicas() {
            replicas_of.entry(replica.operator).or_default().push(id);
            let node = &mut nodes[replica.node.0];
            node.rate += demands[id.0].rate;
            if let Some(usage) = &mut node.usage {
                *usage += demands[id.0].usage;
                // What waits there is worked off there, even if the replica leaves.
                *usage += replica
                    .per_event
                    .unwrap_or_default()
                    .without_memory()
                    .scaled(replica.backlog / HORIZON_S);
            }
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
        node.usage.map(|usage| fullest(&node.capacity, &usage))
    }

    /// As [`fullest`](Self::fullest), with another replica.
    pub(super) fn fullest_with(&self, node: NodeId, replica: ReplicaId) -> Option<f64> {
        let node = &self.nodes[node.0];
        node.usage.map(|usage| fullest(&node.capacity, &(usage + self.demands[replica.0].usage)))
    }

    /// Event-seconds of delay that a node costs each second. A silent one costs nothing that is known.
    pub(super) fn cost(&self, node: NodeId) -> f64 {
        let node = &self.nodes[node.0];
        node.usage.map_or(0.0, |usage| node.rate * delay_s(&node.capacity, &usage, node.rate))
    }

    /// Event-seconds of delay that a migration would save each second, less what would be lost on the network.
    pub(super) fn saving(&self, replica: ReplicaId, to: NodeId) -> f64 {
        let demand = &self.demands[replica.0];
        let after = |node: NodeId, usage: Usage, rate: f64| {
            rate * delay_s(&self.nodes[node.0].capacity, &usage, rate)
        };
        let from = self.places[replica.0];
        let (a, b) = (&self.nodes[from.0], &self.nodes[to.0]);
        let (Some(used_a), Some(used_b)) = (a.usage, b.usage) else { return f64::NEG_INFINITY };
        let left = after(from, used_a - demand.usage, (a.rate - demand.rate).max(0.0));
        let taken = after(to, used_b + demand.usage, b.rate + demand.rate);
        let near = self.met(replica, to) - self.met(replica, from);
        self.cost(from) + self.cost(to) - left - taken + near * self.network_latency_s
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

    /// Event-seconds that a migration costs, once: events that arrive while the state is copied wait for half of that on
    /// average, and all of them for a message more. Before that the replica works on, so what it has queued costs nothing.
    pub(super) fn price(&self, replica: ReplicaId, to: NodeId) -> f64 {
        let from = self.places[replica.0];
        let (out, into) =
            (self.nodes[from.0].capacity.network_out, self.nodes[to.0].capacity.network_in);
        let network = out.min(into);
        let copied_s = self.state_bytes[replica.0] / network.max(1.0) + self.network_latency_s;
        self.demands[replica.0].rate * copied_s * (copied_s / 2.0 + self.network_latency_s)
    }

    /// What a saving a second is worth, once.
    pub(super) fn worth(saving: f64) -> f64 {
        saving * HORIZON_S
    }

    /// Migrates a replica, here alone.
    pub(super) fn migrate(&mut self, replica: ReplicaId, to: NodeId) {
        let demand = self.demands[replica.0];
        let from = std::mem::replace(&mut self.places[replica.0], to);
        let a = &mut self.nodes[from.0];
        a.rate = (a.rate - demand.rate).max(0.0);
        a.usage = a.usage.map(|usage| usage - demand.usage);
        let b = &mut self.nodes[to.0];
        b.rate += demand.rate;
        b.usage = b.usage.map(|usage| usage + demand.usage);
    }
}

fn fullest(capacity: &Capacity, usage: &Usage) -> f64 {
    let queues = QUEUES.iter().map(|queue| load(capacity, usage, queue));
    queues.chain([usage[Resource::Memory] / capacity.memory]).fold(0.0, f64::max)
}

fn load(capacity: &Capacity, usage: &Usage, queue: &[Resource]) -> f64 {
    queue.iter().map(|&resource| usage[resource] / capacity.of(resource)).sum()
}

/// Seconds that an event waits on a node that is used like this.
fn delay_s(capacity: &Capacity, usage: &Usage, rate: f64) -> f64 {
    let waits = QUEUES.iter().map(|queue| {
        let load = load(capacity, usage, queue);
        // What one event takes of the whole resource.
        let service_s = if rate > 0.0 { load / rate } else { 0.0 };
        wait_s(load, service_s)
    });
    let swapped = (usage[Resource::Memory] / capacity.memory - 1.0).max(0.0) * HORIZON_S / 2.0;
    waits.sum::<f64>() + swapped
}

fn wait_s(load: f64, service_s: f64) -> f64 {
    let steady = |load: f64| service_s * load / (1.0 - load);
    if load <= KNEE {
        return steady(load);
    }
    let steep = service_s / (1.0 - KNEE).powi(2); // the slope of `steady` at the knee
    steady(KNEE) + (load - KNEE) * steep.max(HORIZON_S / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_grows_with_the_load_without_a_jump() {
        let waits: Vec<f64> = (0..200).map(|n| wait_s(f64::from(n) / 100.0, 0.001)).collect();
        assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
        assert_eq!(wait_s(0.5, 0.001), 0.001, "M/M/1 at one half");
        assert!((wait_s(KNEE + 1e-9, 0.001) - wait_s(KNEE, 0.001)).abs() < 1e-6);
    }

    #[test]
    fn a_resource_past_its_capacity_costs_half_of_the_horizon_for_each_part_it_lacks() {
        let (over, full) = (wait_s(1.3, 0.001), wait_s(1.0, 0.001));
        assert!((over - full - 0.3 * HORIZON_S / 2.0).abs() < 1e-9);
    }
}
