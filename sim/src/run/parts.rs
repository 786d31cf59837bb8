//! The parts of the model: nodes, operators and replicas as they are at a moment, and how they are made from
//! a scenario.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use comporta_placement::{
    Capacity, Monitor, NodeId, NodeState, OperatorId, Resource, Strategy, Usage,
};
use comporta_stats::Dice;

use super::{Happening, Model, NS, ns};
use crate::calendar::Calendar;
use crate::outcome::Recorder;
use crate::scenario::{Scenario, Window};
use crate::seen::Seen;

/// Rounds are held this long after the second, so that its control messages have come.
const ROUND_AFTER_S: f64 = 0.05;

/// A copy of an event on its way. Moments are true ones; the clocks that wrote them down are kept beside.
///
/// Replicas must agree on what an event is called although they handle events in different orders. So it is called after what
/// led to it: a stream is a way from a source, or from an operator with windows, and the event keeps its number in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// The number within its stream.
    pub(super) number: u32,
    /// Its stream: among those of the sender while it travels, among those of the receiver from there on.
    pub(super) stream: u32,
    /// The replica that sent it.
    pub(super) sender: u32,
    /// Which of all messages to its receiver it is.
    pub(super) ticket: u32,
    /// When it entered the system.
    pub(super) entered: u64,
    /// When it, or what it was made of, left the operator before the sender, and on which node.
    pub(super) before: (u64, u32),
    /// When it left the sender, and on which node.
    pub(super) sent: (u64, u32),
}

/// One direction of a network interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    free_at: u64,
    /// Bytes of this second.
    pub(super) bytes: f64,
    ns_per_byte: f64,
}

impl Line {
    fn new(bytes_per_s: f64) -> Self {
        Line { free_at: 0, bytes: 0.0, ns_per_byte: NS / bytes_per_s }
    }

    /// When bytes that come at this moment have passed.
    pub(super) fn pass(&mut self, at: u64, bytes: f64) -> u64 {
        self.bytes += bytes;
        self.free_at = self.free_at.max(at) + (bytes * self.ns_per_byte).round() as u64;
        self.free_at
    }
}

#[derive(Debug)]
pub(super) struct NodePart {
    pub(super) state: NodeState,
    pub(super) cores: u32,
    /// A bit for each core that is free.
    pub(super) free: u64,
    /// Since when each core has been busy, or has been asked how long it was, and how long in this second.
    pub(super) core_since: Vec<u64>,
    pub(super) core_busy: Vec<u64>,
    pub(super) speed: f64,
    /// Cores that others use now.
    pub(super) background: f64,
    /// Replicas that have events and may begin one, each once.
    pub(super) ready: VecDeque<u32>,
    pub(super) disk_free_at: u64,
    /// Events on cores that copy in memory, and share its bandwidth.
    pub(super) copying: u32,
    pub(super) out: Line,
    pub(super) into: Line,
    /// Bytes that others hold, and replicas, queues included.
    pub(super) memory_used: f64,
}

/// An operator that events come from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub(super) operator: u32,
    /// The place of its first stream among those of the receiver.
    pub(super) first: u32,
    /// The place of its first stream in the receiver's windows of sequence numbers; `None` if there is one copy only.
    pub(super) seen: Option<u32>,
}

#[derive(Debug)]
pub(super) struct OperatorPart {
    pub(super) replicas: Vec<u32>,
    pub(super) outputs: Vec<u32>,
    /// By their operators, in order.
    pub(super) inputs: Vec<Input>,
    /// Streams that it sends.
    pub(super) streams: u32,
    pub(super) is_source: bool,
    pub(super) is_sink: bool,
    /// Latency is measured: neither a source nor a sink.
    pub(super) is_measured: bool,
    pub(super) cost_ns: f64,
    pub(super) window: Option<Window>,
    /// Whether events go to the disk after they were computed.
    pub(super) uses_disk: bool,
    /// Whether events need neither a core, nor the disk, nor memory to be copied in.
    pub(super) takes_nothing: bool,
    /// Bytes of an event that arrives, for queues and windows.
    pub(super) input_bytes: f64,
}

/// What a replica did in this second.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    pub(super) since: u64,
    pub(super) busy_ns: f64,
    pub(super) waiting_ns: f64,
    pub(super) read: f64,
    pub(super) written: f64,
    pub(super) received: f64,
    pub(super) sent: f64,
    pub(super) arrived: f64,
    pub(super) handled: f64,
    pub(super) emitted: f64,
    /// Sums of latencies by the nodes whose clocks wrote down the two moments: from, to, ns, events.
    pub(super) latencies: Vec<(u32, u32, f64, f64)>,
}

impl Counters {
    /// What was used of the disk in this second, and how many events waited for it.
    pub(super) fn disk_use(&self) -> Usage {
        Usage::new()
            .with(Resource::IoWait, self.waiting_ns / NS)
            .with(Resource::DiskRead, self.read)
            .with(Resource::DiskWritten, self.written)
    }
}

#[derive(Debug)]
pub(super) struct ReplicaPart {
    pub(super) operator: u32,
    pub(super) node: u32,
    /// How often it has migrated: messages to an old place are dropped.
    pub(super) epoch: u32,
    pub(super) parallel: u32,
    pub(super) queue: VecDeque<Message>,
    /// Events on cores, and at the disk.
    pub(super) running: u32,
    pub(super) waiting: u32,
    pub(super) is_ready: bool,
    /// Messages that were sent to it, and those of them that are on their way.
    pub(super) tickets: u32,
    pub(super) in_flight: u32,
    pub(super) seen: Vec<Seen>,
    /// Events of the window that is open.
    pub(super) in_window: u32,
    pub(super) migrating: Option<Box<super::migration::Migrating>>,
    /// Messages that came to its old place before it migrated, and whose other copy has not come here.
    pub(super) came_before: HashSet<u32>,
    pub(super) counters: Counters,
    pub(super) dice: Dice,
    /// Events that a source has sent, or an operator with windows has handled.
    pub(super) count: u32,
}

impl ReplicaPart {
    pub(super) fn is_paused(&self) -> bool {
        self.migrating.as_ref().is_some_and(|migrating| migrating.is_paused())
    }

    /// Returns `true` if this is the second copy of a message that came to the old place. While a migration
    /// is under way, takes note of the first.
    pub(super) fn came_before_migration(&mut self, ticket: u32) -> bool {
        if let Some(migrating) = &mut self.migrating {
            migrating.came_to_old_place(ticket);
        }
        !self.came_before.is_empty() && self.came_before.remove(&ticket)
    }

    /// Takes what it did in this second; the next begins now.
    pub(super) fn take_counters(&mut self, now: u64) -> Counters {
        self.settle(now);
        std::mem::replace(&mut self.counters, Counters { since: now, ..Counters::default() })
    }

    /// Brings the times of the counters up to now.
    pub(super) fn settle(&mut self, now: u64) {
        let passed = (now - self.counters.since) as f64;
        self.counters.busy_ns += passed * f64::from(self.running);
        self.counters.waiting_ns += passed * f64::from(self.waiting);
        self.counters.since = now;
    }
}

impl<'s> Model<'s> {
    pub(super) fn new(scenario: &'s Scenario, strategy: Box<dyn Strategy>) -> Self {
        let period = Duration::from_secs_f64(scenario.period);
        let latency = Duration::from_secs_f64(scenario.network_latency);
        let mut model = Model {
            scenario,
            now: 0,
            calendar: Calendar::new(),
            nodes: Vec::new(),
            operators: Vec::new(),
            replicas: Vec::new(),
            monitor: Monitor::new(period, latency),
            strategy,
            recorder: Recorder::new(scenario),
        };
        scenario.nodes.iter().for_each(|node| model.add_node(node));
        (0..scenario.operators.len()).for_each(|at| model.add_operator(at));
        model
    }

    fn add_node(&mut self, node: &crate::scenario::Node) {
        let state = if node.standby { NodeState::Standby } else { NodeState::Active };
        // What others hold is in what is used, below: it is not taken from what there is.
        let capacity = Capacity {
            cores: node.cores as f64,
            memory: node.memory,
            disk: node.disk,
            network_in: node.download.unwrap_or(node.network),
            network_out: node.network,
        };
        let id = self.monitor.add_node(&node.name, capacity, state);
        if node.elastic {
            self.monitor.set_elastic(id);
        }
        if node.reserved {
            self.monitor.set_reserved(id);
        }
        self.nodes.push(NodePart {
            state,
            cores: node.cores as u32,
            free: u64::MAX >> (64 - node.cores),
            core_since: vec![0; node.cores],
            core_busy: vec![0; node.cores],
            speed: node.speed,
            background: node.background.at(0.0),
            ready: VecDeque::new(),
            disk_free_at: 0,
            copying: 0,
            out: Line::new(node.network),
            into: Line::new(node.download.unwrap_or(node.network)),
            memory_used: node.memory_taken,
        });
    }

    fn add_operator(&mut self, at: usize) {
        let given = &self.scenario.operators[at];
        let (inputs, seen) = self.inputs(&given.inputs);
        let streams = match given.window {
            None if given.rates.is_none() => self.streams(&given.inputs),
            _ => 1,
        };
        let replicas = (0..given.nodes.len()).map(|copy| self.add_replica(at, copy, &seen));
        let replicas: Vec<u32> = replicas.collect();
        for &input in &given.inputs {
            self.operators[input].outputs.push(at as u32);
            let bytes = self.scenario.operators[input].event_bytes;
            self.monitor.connect(OperatorId(input), OperatorId(at), bytes);
        }
        let bytes = given.inputs.iter().map(|&input| self.scenario.operators[input].event_bytes);
        let uses_disk = given.reads + given.writes > 0.0 || given.touches > 0;
        let (is_source, is_sink) = (given.rates.is_some(), self.scenario.is_sink(at));
        self.operators.push(OperatorPart {
            replicas,
            outputs: Vec::new(),
            inputs,
            streams,
            is_source,
            is_sink,
            is_measured: !is_source && !is_sink,
            cost_ns: given.cost * NS,
            window: given.window,
            uses_disk,
            takes_nothing: given.cost == 0.0 && given.copies == 0.0 && !uses_disk,
            input_bytes: bytes.fold(0.0, f64::max),
        });
    }

    /// Streams that come from these operators.
    fn streams(&self, inputs: &[usize]) -> u32 {
        inputs.iter().map(|&input| self.operators[input].streams).sum()
    }

    /// Where events come from, and a window of sequence numbers for each stream that comes in copies.
    fn inputs(&self, operators: &[usize]) -> (Vec<Input>, Vec<Seen>) {
        let mut sorted = operators.to_vec();
        sorted.sort_unstable();
        let (mut inputs, mut seen, mut first) = (Vec::new(), Vec::new(), 0);
        for operator in sorted {
            let sender = &self.operators[operator];
            let copies = sender.replicas.len();
            let place = (copies > 1).then_some(seen.len() as u32);
            if copies > 1 {
                seen.extend((0..sender.streams).map(|_| Seen::new(copies as u8)));
            }
            inputs.push(Input { operator: operator as u32, first, seen: place });
            first += sender.streams;
        }
        (inputs, seen)
    }

    fn add_replica(&mut self, operator: usize, copy: usize, seen: &[Seen]) -> u32 {
        let given = &self.scenario.operators[operator];
        let node = given.nodes[copy];
        let several = given.nodes.len() > 1;
        let name =
            if several { format!("{}.{}", given.name, copy + 1) } else { given.name.clone() };
        let pinned = given.pinned || given.rates.is_some() || self.scenario.is_sink(operator);
        let id = self.monitor.add_replica(name, OperatorId(operator), NodeId(node), pinned);
        self.nodes[node].memory_used += given.memory + given.state;
        self.replicas.push(ReplicaPart {
            operator: operator as u32,
            node: node as u32,
            epoch: 0,
            parallel: given.parallel.unwrap_or(self.scenario.nodes[node].cores) as u32,
            queue: VecDeque::new(),
            running: 0,
            waiting: 0,
            is_ready: false,
            tickets: 0,
            in_flight: 0,
            seen: seen.to_vec(),
            in_window: 0,
            migrating: None,
            came_before: HashSet::new(),
            counters: Counters::default(),
            dice: self.scenario.replica_dice(id.0),
            count: 0,
        });
        id.0 as u32
    }

    /// Sets what happens first.
    pub(super) fn start(&mut self) {
        for at in 0..self.replicas.len() {
            if self.operators[self.replicas[at].operator as usize].is_source {
                self.schedule_source(at as u32);
            }
        }
        self.calendar.set(ns(1.0), Happening::Second);
        self.calendar.set(ns(self.scenario.period + ROUND_AFTER_S), Happening::Round);
    }
}
