//! The parts of the model: nodes, operators and replicas as they are at a moment, and how they are made from
//! a scenario.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use comporta_placement::{Capacity, Monitor, NodeState, OperatorId, Resource, Strategy, Usage};
use comporta_stats::Dice;

use super::{Happening, Model, NS, ns};
use crate::calendar::Calendar;
use crate::outcome::Recorder;
use crate::scenario::{Scenario, Window};
use crate::seen::Seen;

/// Rounds are held this long after the second, so that its control messages have come.
const ROUND_AFTER_S: f64 = 0.05;

/// A copy of an event on its way. Moments are true ones; the clocks that wrote them down are kept beside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// The number within its origin.
    pub(super) number: u32,
    /// The source that it goes back to.
    pub(super) origin: u32,
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
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    pub(super) free_at: u64,
    /// Bytes of this second.
    pub(super) bytes: f64,
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
    pub(super) ns_per_byte: f64,
    /// Bytes that others hold, and replicas, queues included.
    pub(super) memory_used: f64,
}

/// Where the copies of a stream are told apart.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) operator: u32,
    /// The sources that its events go back to.
    pub(super) origins: Vec<u32>,
    /// The place of the first of them in the receiver's windows; `None` if there is one copy only.
    pub(super) first: Option<u32>,
}

#[derive(Debug)]
pub(super) struct OperatorPart {
    pub(super) replicas: Vec<u32>,
    pub(super) outputs: Vec<u32>,
    pub(super) inputs: Vec<Input>,
    pub(super) origins: Vec<u32>,
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
    /// How often it has moved: messages to an old place are dropped.
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
    pub(super) moving: Option<Box<super::moves::Moving>>,
    /// Messages that came to its old place before it moved, and whose other copy has not come here.
    pub(super) came_before: HashSet<u32>,
    pub(super) counters: Counters,
    pub(super) dice: Dice,
    /// The next number, of a source.
    pub(super) number: u32,
}

impl ReplicaPart {
    pub(super) fn is_paused(&self) -> bool {
        self.moving.as_ref().is_some_and(|moving| moving.is_paused())
    }

    /// Returns `true` if this is the second copy of a message that came to the old place. While a move
    /// is under way, takes note of the first.
    pub(super) fn came_before_move(&mut self, ticket: u32) -> bool {
        if let Some(moving) = &mut self.moving {
            moving.came_to_old_place(ticket);
        }
        !self.came_before.is_empty() && self.came_before.remove(&ticket)
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
            network: node.network,
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
            out: Line::default(),
            into: Line::default(),
            ns_per_byte: NS / node.network,
            memory_used: node.memory_taken,
        });
    }

    // Long because every field of a replica is set once.
    fn add_operator(&mut self, at: usize) {
        let said = &self.scenario.operators[at];
        let is_sink = self.scenario.is_sink(at);
        let is_source = said.rates.is_some();
        let mut windows = 0;
        let inputs: Vec<Input> = said
            .inputs
            .iter()
            .map(|&input| {
                let sender = &self.operators[input];
                let copies = sender.replicas.len();
                let first = (copies > 1).then_some(windows);
                windows += if copies > 1 { sender.origins.len() as u32 } else { 0 };
                Input { operator: input as u32, origins: sender.origins.clone(), first }
            })
            .collect();
        let mut origins: Vec<u32> =
            inputs.iter().flat_map(|input| input.origins.iter().copied()).collect();
        if is_source {
            origins.push(at as u32);
        }
        origins.sort_unstable();
        origins.dedup();
        let mut seen = Vec::new();
        for input in inputs.iter().filter(|input| input.first.is_some()) {
            let copies = self.operators[input.operator as usize].replicas.len() as u8;
            seen.extend(input.origins.iter().map(|_| Seen::new(copies)));
        }
        let mut replicas = Vec::new();
        for (copy, &node) in said.nodes.iter().enumerate() {
            let several = said.nodes.len() > 1;
            let name =
                if several { format!("{}.{}", said.name, copy + 1) } else { said.name.clone() };
            let pinned = said.pinned || is_source || is_sink;
            let node_id = comporta_placement::NodeId(node);
            let id = self.monitor.add_replica(name, OperatorId(at), node_id, pinned);
            replicas.push(id.0 as u32);
            self.nodes[node].memory_used += said.memory + said.state;
            self.replicas.push(ReplicaPart {
                operator: at as u32,
                node: node as u32,
                epoch: 0,
                parallel: said.parallel.unwrap_or(self.scenario.nodes[node].cores) as u32,
                queue: VecDeque::new(),
                running: 0,
                waiting: 0,
                is_ready: false,
                tickets: 0,
                in_flight: 0,
                seen: seen.clone(),
                in_window: 0,
                moving: None,
                came_before: HashSet::new(),
                counters: Counters::default(),
                dice: self.scenario.replica_dice(id.0),
                number: 0,
            });
        }
        for &input in &said.inputs {
            self.operators[input].outputs.push(at as u32);
            let bytes = self.scenario.operators[input].event_bytes;
            self.monitor.connect(OperatorId(input), OperatorId(at), bytes);
        }
        let bytes = said.inputs.iter().map(|&input| self.scenario.operators[input].event_bytes);
        let uses_disk = said.reads + said.writes > 0.0 || said.touches > 0;
        self.operators.push(OperatorPart {
            replicas,
            outputs: Vec::new(),
            inputs,
            origins,
            is_source,
            is_sink,
            is_measured: !is_source && !is_sink,
            cost_ns: said.cost * NS,
            window: said.window,
            uses_disk,
            takes_nothing: said.cost == 0.0 && said.copies == 0.0 && !uses_disk,
            input_bytes: bytes.fold(0.0, f64::max),
        });
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
