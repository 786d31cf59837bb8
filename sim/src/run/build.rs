//! How the model is made from a scenario, and what happens first.

use std::collections::VecDeque;
use std::time::Duration;

use comporta_placement::{Capacity, Monitor, NodeId, NodeState, OperatorId, Strategy};
use comporta_stats::Dice;

use super::mail::{Mail, Queue};
use super::parts::{
    Core, Counters, Input, Line, NodePart, OperatorKind, OperatorPart, ReplicaPart,
};
use super::policy::{NodePolicy, Stage};
use super::{Happening, Model, NS, RunError, ns};
use crate::calendar::Calendar;
use crate::outcome::Recorder;
use crate::scenario::Scenario;
use crate::seen::Seen;

/// Rounds are held this long after the second, so that its control messages have come.
const ROUND_AFTER_S: f64 = 0.05;
/// Kinds that a new one is compared with, so that ten thousand operators that differ take no time.
const KINDS_COMPARED: usize = 64;

impl<'s> Model<'s> {
    pub(super) fn new(
        scenario: &'s Scenario,
        strategy: Box<dyn Strategy>,
    ) -> Result<Self, RunError> {
        let period = Duration::from_secs_f64(scenario.period);
        let latency = Duration::from_secs_f64(scenario.network_latency);
        let mut model = Model {
            scenario,
            now: 0,
            calendar: Calendar::new(),
            mail: Mail::default(),
            nodes: Vec::new(),
            cores: Vec::new(),
            kinds: Vec::new(),
            operators: Vec::new(),
            receivers: Vec::new(),
            inputs: Vec::new(),
            replicas: Vec::new(),
            seen: Vec::new(),
            monitor: Monitor::new(period, latency),
            strategy,
            recorder: Recorder::new(scenario),
        };
        scenario.nodes.iter().for_each(|node| model.add_node(node));
        let followers = followers(scenario);
        let mut seeds = Dice::new(scenario.seed);
        for at in 0..scenario.operators.len() {
            model.add_operator(at, &followers, &mut seeds);
        }
        for (at, followers) in followers.iter().enumerate() {
            let first = model.receivers.len() as u32;
            let replicas = followers.iter().flat_map(|&to| model.operators[to].replicas());
            model.receivers.extend(replicas);
            model.operators[at].receivers = first..model.receivers.len() as u32;
        }
        for (at, node) in scenario.nodes.iter().enumerate() {
            if let Some(Err(wrong)) = model.node_policy(at) {
                let policy = node.policy.as_ref().map_or(String::new(), ToString::to_string);
                return Err(RunError::Policy { node: node.name.clone(), policy, wrong });
            }
            model.start_policy(at);
        }
        Ok(model)
    }

    fn add_node(&mut self, node: &crate::scenario::Node) {
        let state = if node.standby { NodeState::Standby } else { NodeState::Active };
        // What others hold is in what is used, below: it is not taken from what there is.
        let capacity = Capacity {
            cores: node.cores as f64,
            speed: node.speed,
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
            first_core: self.cores.len() as u32,
            speed: node.speed,
            background: node.background.at(0.0),
            ready: VecDeque::new(),
            policy: None,
            disk_free_at: 0,
            copying: 0,
            out: Line::new(node.network),
            into: Line::new(node.download.unwrap_or(node.network)),
            memory_used: node.memory_taken,
        });
        self.cores.extend((0..node.cores).map(|_| Core::default()));
    }

    fn add_operator(&mut self, at: usize, followers: &[Vec<usize>], seeds: &mut Dice) {
        let given = &self.scenario.operators[at];
        let (is_source, is_sink) = (given.rates.is_some(), followers[at].is_empty());
        let first_input = self.inputs.len() as u32;
        let seen = self.add_inputs(at, followers);
        let before = given.inputs.iter().map(|&input| &self.operators[input]);
        let streams = match given.window {
            None if !is_source => before.clone().map(|input| input.streams).sum(),
            _ => 1,
        };
        let depth = before.map(|input| input.depth + 1).max().unwrap_or(0);
        let first = self.replicas.len() as u32;
        for copy in 0..given.nodes.len() {
            self.add_replica(at, copy, is_source || is_sink, &seen, Dice::new(seeds.next()));
        }
        for &input in &given.inputs {
            let bytes = self.scenario.operators[input].event_bytes;
            self.monitor.connect(OperatorId(input), OperatorId(at), bytes);
        }
        let kind = self.kind_of(at, is_sink);
        self.operators.push(OperatorPart {
            kind,
            first,
            receivers: 0..0,
            inputs: first_input..self.inputs.len() as u32,
            copies: given.nodes.len() as u32,
            streams,
            seen: seen.len() as u32,
            depth,
        });
    }

    /// The kind of an operator: one that there is already if one of the last is alike.
    fn kind_of(&mut self, at: usize, is_sink: bool) -> u32 {
        let given = &self.scenario.operators[at];
        let input_bytes =
            given.inputs.iter().map(|&input| self.scenario.operators[input].event_bytes);
        let uses_disk = given.reads + given.writes > 0.0 || given.touches > 0;
        let kind = OperatorKind {
            rates: given.rates.as_ref(),
            arrivals: given.arrivals,
            cost_ns: given.cost * NS,
            service: given.service,
            window: given.window,
            fails: given.fails,
            copies_bytes: given.copies,
            event_bytes: given.event_bytes,
            input_bytes: input_bytes.fold(0.0, f64::max),
            is_sink,
            uses_disk,
            takes_nothing: given.cost == 0.0 && given.copies == 0.0 && !uses_disk,
        };
        let last = self.kinds.len().saturating_sub(KINDS_COMPARED);
        let alike = self.kinds[last..].iter().position(|other| *other == kind);
        let place = alike.map_or(self.kinds.len(), |place| last + place);
        if alike.is_none() {
            self.kinds.push(kind);
        }
        place as u32
    }

    /// Adds where the events of an operator come from. Returns a window of sequence numbers for each stream that comes in copies.
    fn add_inputs(&mut self, at: usize, followers: &[Vec<usize>]) -> Vec<Seen> {
        let mut operators = self.scenario.operators[at].inputs.clone();
        operators.sort_unstable();
        let (mut seen, mut first) = (Vec::new(), 0);
        for operator in operators {
            let sender = &self.operators[operator];
            let comes_in_copies = sender.copies > 1;
            let place = comes_in_copies.then_some(seen.len() as u32);
            if comes_in_copies {
                seen.extend((0..sender.streams).map(|_| Seen::new(sender.copies as u8)));
            }
            let is_first = followers[operator].first() == Some(&at);
            let is_measured = is_first && self.scenario.operators[operator].rates.is_none();
            self.inputs.push(Input { operator: operator as u32, first, seen: place, is_measured });
            first += sender.streams;
        }
        seen
    }

    fn add_replica(
        &mut self,
        operator: usize,
        copy: usize,
        is_end: bool,
        seen: &[Seen],
        dice: Dice,
    ) {
        let given = &self.scenario.operators[operator];
        let node = given.nodes[copy];
        let several = given.nodes.len() > 1;
        let name =
            if several { format!("{}.{}", given.name, copy + 1) } else { given.name.clone() };
        let pinned = given.pinned || is_end;
        self.monitor.add_replica(name, OperatorId(operator), NodeId(node), pinned);
        self.nodes[node].memory_used += given.memory + given.state;
        self.replicas.push(ReplicaPart {
            operator: operator as u32,
            node: node as u32,
            epoch: 0,
            tickets: 0,
            in_flight: 0,
            parallel: given.parallel.unwrap_or(self.scenario.nodes[node].cores) as u32,
            running: 0,
            waiting: 0,
            queue: Queue::default(),
            is_ready: false,
            migrating: None,
            came_before: None,
            dice,
            count: 0,
            seen: self.seen.len() as u32,
            counters: Counters::default(),
        });
        self.seen.extend_from_slice(seen);
    }

    /// The policy of a node, with the replicas that are there; `None` if it has none.
    fn node_policy(&self, node: usize) -> Option<Result<NodePolicy, String>> {
        let given = &self.scenario.nodes[node];
        let choice = given.policy.as_ref()?;
        let there = self.replicas.iter().enumerate().filter(|(_, part)| part.node as usize == node);
        let stage = |(replica, part): (usize, &ReplicaPart)| {
            let operator = &self.operators[part.operator as usize];
            self.kind(replica as u32).rates.is_none().then_some(Stage {
                replica: replica as u32,
                depth: operator.depth as usize,
                queued: part.queue.len() as usize,
            })
        };
        let stages: Vec<Stage> = there.filter_map(stage).collect();
        Some(NodePolicy::start(choice, given.cores, &stages))
    }

    /// Starts the policy of a node, anew if replicas have come or gone. Without one that runs they take turns.
    pub(super) fn start_policy(&mut self, node: usize) {
        self.nodes[node].policy = self.node_policy(node).and_then(Result::ok).map(Box::new);
    }

    /// Sets what happens first.
    pub(super) fn start(&mut self) {
        for at in 0..self.replicas.len() as u32 {
            if self.kind(at).rates.is_some() {
                self.schedule_source(at);
            }
        }
        self.calendar.set(ns(1.0), Happening::Second);
        self.calendar.set(ns(self.scenario.period + ROUND_AFTER_S), Happening::Round);
    }
}

/// For each operator, those that take its events, in order.
fn followers(scenario: &Scenario) -> Vec<Vec<usize>> {
    let mut followers = vec![Vec::new(); scenario.operators.len()];
    for (at, operator) in scenario.operators.iter().enumerate() {
        operator.inputs.iter().for_each(|&input| followers[input].push(at));
    }
    followers
}
