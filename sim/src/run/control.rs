//! What the manager does: control messages each second, rounds, and carrying out what they decide.

use comporta_placement::{
    Action, ControlMessage, Cpu, MeasuredLatency, NodeId, NodeMessage, NodeState, ReplicaId,
    Resource, Time, Usage, decide,
};

use super::parts::Counters;
use super::{Happening, Model, NS, ns};
use crate::outcome::{Migration, NodeChange};
use crate::scenario::CLOCK_WRONG_MAX;

/// What a clock that is right shows when a run begins. One that is behind shows less, and no clock shows less than nothing.
const CLOCKS_BEGIN: u64 = ns(CLOCK_WRONG_MAX);
/// Bytes of a control message.
const CONTROL_BYTES: f64 = 300.0;

impl Model<'_> {
    /// Every replica reports the last second, and every node on which none runs.
    pub(super) fn second(&mut self) {
        let second = self.now as f64 / NS;
        let disks = self.disk_uses();
        let uses: Vec<(Usage, Vec<Cpu>)> =
            disks.into_iter().enumerate().map(|(at, disk)| self.node_use(at, disk)).collect();
        let shares = uses.iter().zip(&self.nodes).map(|((usage, _), node)| {
            let active = node.state == NodeState::Active;
            active.then(|| (usage[Resource::Cpu] / f64::from(node.cores)) as f32)
        });
        self.recorder.second(second, shares.collect());
        // First all are measured, then messages leave: sending changes what is measured.
        let messages: Vec<ControlMessage> =
            (0..self.replicas.len()).filter_map(|at| self.control_message(at, &uses)).collect();
        for message in self.node_messages(&uses) {
            let arrives = self.control_arrives(message.node);
            self.calendar.set(arrives, Happening::NodeReport(Box::new(message)));
        }
        for message in messages {
            let arrives = self.control_arrives(message.node);
            self.calendar.set(arrives, Happening::Report(Box::new(message)));
        }
        for (node, given) in self.nodes.iter_mut().zip(&self.scenario.nodes) {
            (node.out.bytes, node.into.bytes) = (0.0, 0.0);
            node.background = given.background.at(second);
        }
        self.calendar.set(self.now + ns(1.0), Happening::Second);
    }

    /// When a control message that a node sends now arrives.
    fn control_arrives(&mut self, node: NodeId) -> u64 {
        self.send_out(node.0 as u32, CONTROL_BYTES)
            .saturating_add(ns(self.scenario.network_latency))
    }

    /// What the replicas of each node used of its disk in the last second.
    fn disk_uses(&mut self) -> Vec<Usage> {
        let mut uses = vec![Usage::new(); self.nodes.len()];
        for replica in &mut self.replicas {
            replica.settle(self.now);
            uses[replica.node as usize] += replica.counters.disk_use();
        }
        uses
    }

    /// What a node used in the last second, with what its replicas used of its disk, and each of its CPUs.
    fn node_use(&mut self, at: usize, disk: Usage) -> (Usage, Vec<Cpu>) {
        let node = &self.nodes[at];
        // Which core an event left when it went to the disk is not kept: all wait alike.
        let waiting = disk[Resource::IoWait] / f64::from(node.cores);
        let others = node.background / f64::from(node.cores);
        let mut cpus = Vec::with_capacity(node.cores as usize);
        for (core, part) in self.cores[node.cores()].iter_mut().enumerate() {
            if node.free & (1 << core) == 0 {
                part.busy += self.now - part.since;
                part.since = self.now;
            }
            let ours = std::mem::take(&mut part.busy) as f64 / NS;
            let busy = (ours * (1.0 - others) + others).min(1.0);
            cpus.push(Cpu { busy, io_wait: waiting.min(1.0 - busy) });
        }
        let cpu = cpus.iter().map(|cpu| cpu.busy).sum();
        let usage = disk
            .with(Resource::Cpu, cpu)
            .with(Resource::Memory, node.memory_used)
            .with(Resource::Received, node.into.bytes)
            .with(Resource::Sent, node.out.bytes);
        (usage, cpus)
    }

    /// What a replica reports, unless its node is silent. Its counters begin anew.
    fn control_message(&mut self, at: usize, uses: &[(Usage, Vec<Cpu>)]) -> Option<ControlMessage> {
        let counters = self.replicas[at].take_counters(self.now);
        let node = self.replicas[at].node as usize;
        if self.is_silent(node) {
            return None;
        }
        let (node_usage, cpus) = uses[node].clone();
        Some(ControlMessage {
            replica: ReplicaId(at),
            node: NodeId(node),
            stamp: self.clock(self.ahead_s(node)),
            latencies: self.latencies(&counters),
            usage: self.replica_use(at, &counters),
            arrived: f64::from(counters.arrived),
            handled: f64::from(counters.handled),
            emitted: f64::from(counters.emitted),
            state_bytes: self.state_bytes(at as u32),
            node_usage,
            cpus,
        })
    }

    /// The latencies of a second by the clocks that wrote them down.
    fn latencies(&self, counters: &Counters) -> Vec<MeasuredLatency> {
        let ahead = |node: u32| self.ahead_s(node as usize);
        let measured = |&(from, to, sum, events): &(u32, u32, f64, f64)| MeasuredLatency {
            from: NodeId(from as usize),
            to: NodeId(to as usize),
            mean_ms: sum / events / 1e6 + (ahead(to) - ahead(from)) * 1e3,
            events,
        };
        counters.latencies.iter().map(measured).collect()
    }

    /// What a replica used in a second.
    fn replica_use(&self, at: usize, counters: &Counters) -> Usage {
        let replica = &self.replicas[at];
        let node = &self.nodes[replica.node as usize];
        let ours = 1.0 - node.background / f64::from(node.cores);
        let events = f64::from(replica.queue.len()) + f64::from(replica.running + replica.waiting);
        let queued = events * self.kind(at as u32).input_bytes;
        let memory = self.scenario.operators[replica.operator as usize].memory;
        counters
            .disk_use()
            .with(Resource::Cpu, counters.busy_ns / NS * ours)
            .with(Resource::Memory, memory + self.state_bytes(at as u32) + queued)
            .with(Resource::Received, counters.received)
            .with(Resource::Sent, counters.sent)
    }

    /// What nodes report on which no replica runs, but for those that are silent or not there.
    fn node_messages(&self, uses: &[(Usage, Vec<Cpu>)]) -> Vec<NodeMessage> {
        let mut speaks: Vec<bool> =
            self.nodes.iter().map(|node| node.state == NodeState::Active).collect();
        self.replicas.iter().for_each(|replica| speaks[replica.node as usize] = false);
        let speaking = (0..self.nodes.len()).filter(|at| speaks[*at] && !self.is_silent(*at));
        speaking
            .map(|at| NodeMessage {
                node: NodeId(at),
                stamp: self.clock(self.ahead_s(at)),
                usage: uses[at].0,
                cpus: uses[at].1.clone(),
            })
            .collect()
    }

    fn is_silent(&self, node: usize) -> bool {
        let from = self.scenario.nodes[node].silent_from;
        from.is_some_and(|from| self.now as f64 / NS >= from)
    }

    /// Seconds that the clock of a node is ahead now.
    fn ahead_s(&self, node: usize) -> f64 {
        let node = &self.scenario.nodes[node];
        node.clock_ahead + (node.clock_rate - 1.0) * self.now as f64 / NS
    }

    /// What a clock that is so many seconds ahead shows. The manager's is right.
    pub(super) fn clock(&self, ahead: f64) -> Time {
        let shown = CLOCKS_BEGIN + self.now;
        let ahead = (ahead * NS).round() as i64;
        Time::from_nanos(
            shown.checked_add_signed(ahead).expect("clocks are wrong by less than that"),
        )
    }

    pub(super) fn receive(&mut self, message: &ControlMessage) {
        self.monitor.receive(self.clock(0.0), message);
    }

    pub(super) fn receive_node(&mut self, message: &NodeMessage) {
        self.monitor.receive_node(self.clock(0.0), message);
    }

    pub(super) fn round(&mut self) {
        let now = self.clock(0.0);
        let at_s = self.now as f64 / NS;
        let view = self.monitor.view(now);
        self.recorder.rounds += u64::from(view.migrating == 0); // otherwise none is held
        for decision in decide(&mut *self.strategy, &view) {
            match decision.action {
                Action::Migrate { replica, from, to } => {
                    self.recorder.migrations.push(Migration {
                        at_s,
                        replica: view.replicas[replica.0].name.clone(),
                        from: view.nodes[from.0].name.clone(),
                        to: view.nodes[to.0].name.clone(),
                        reason: decision.reason,
                        paused_s: None,
                        ended_s: None,
                        bytes: 0.0,
                    });
                    let record = self.recorder.migrations.len() - 1;
                    self.begin_migration(replica.0 as u32, to.0 as u32, record);
                }
                Action::AddNode(node) => {
                    self.set_state(node, NodeState::Starting);
                    let time = self.now + ns(self.scenario.boot);
                    self.calendar.set(time, Happening::Started { node: node.0 as u32 });
                    self.note_node(at_s, node, true, decision.reason);
                }
                Action::ReleaseNode(node) => {
                    self.set_state(node, NodeState::Standby);
                    self.note_node(at_s, node, false, decision.reason);
                }
                _ => unreachable!("there are no other actions"),
            }
        }
        self.calendar.set(self.now + ns(self.scenario.period), Happening::Round);
    }

    fn note_node(
        &mut self,
        at_s: f64,
        node: NodeId,
        added: bool,
        reason: comporta_placement::Reason,
    ) {
        let node = self.scenario.nodes[node.0].name.clone();
        self.recorder.node_changes.push(NodeChange { at_s, node, added, reason });
    }

    pub(super) fn started(&mut self, node: u32) {
        self.set_state(NodeId(node as usize), NodeState::Active);
    }

    fn set_state(&mut self, node: NodeId, state: NodeState) {
        self.nodes[node.0].state = state;
        self.monitor.set_state(node, state);
    }
}
