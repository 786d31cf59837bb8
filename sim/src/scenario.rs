//! What is run: nodes, operators and how they are connected, sources and their rates, a strategy.
//! Made by `published`, by `file` from TOML, or by hand; `check` finds what is wrong with one.

use std::collections::HashSet;

use comporta_placement::Choice;
use comporta_stats::Dice;

use crate::rates::{Arrivals, Rates};
use crate::run::policy::rehearse;

/// Cores that a node may have.
pub const CORES_MAX: usize = 64;
/// Replicas that an operator may have.
pub const REPLICAS_MAX: usize = 16;

/// Seconds that the clock of a node may be wrong by, in either direction: some thirty years.
pub const CLOCK_WRONG_MAX: f64 = 1e9;
/// Seconds that the clock of a node may go in a second.
pub const CLOCK_RATES: std::ops::RangeInclusive<f64> = 0.5..=2.0;

/// Seconds that no time of a scenario reaches: some four months.
pub const TIME_MAX: f64 = 1e7;
/// Events a second that a source may send.
pub const RATE_MAX: f64 = 1e7;

/// Streams that may come to an operator: the ways that lead to it from sources and from operators with windows.
pub const STREAMS_MAX: usize = 1 << 16;

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What people call it.
    pub name: String,
    /// Cores.
    pub cores: usize,
    /// How fast they are: costs are divided by it.
    pub speed: f64,
    /// Bytes of memory.
    pub memory: f64,
    /// Bytes of it that others hold.
    pub memory_taken: f64,
    /// Bytes a second that all cores together can copy.
    pub memory_bandwidth: f64,
    /// Bytes a second of the disk.
    pub disk: f64,
    /// Seconds that a disk takes before the first byte.
    pub seek: f64,
    /// Bytes a second of the network interface, in each direction.
    pub network: f64,
    /// Bytes a second that it receives, where that is something else.
    pub download: Option<f64>,
    /// The policy that its cores choose the next event by, one of those of `comporta-policy`. Replicas take turns without one.
    pub policy: Option<Choice>,
    /// Cores that others use, over time.
    pub background: Rates,
    /// Seconds that its clock is ahead at first; negative if it is behind.
    pub clock_ahead: f64,
    /// Seconds that its clock goes in a second: less than 1 if it is slow.
    pub clock_rate: f64,
    /// Seconds from which on it sends no control messages.
    pub silent_from: Option<f64>,
    /// It can be released and asked for.
    pub elastic: bool,
    /// Nothing is migrated to it.
    pub reserved: bool,
    /// It is not there at first.
    pub standby: bool,
}

impl Node {
    /// Like those of the published experiment: four cores, 2 GB, a magnetic disk, 1 Gbit/s.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Node {
            name: name.into(),
            cores: 4,
            speed: 1.0,
            memory: 2e9,
            memory_taken: 0.0,
            memory_bandwidth: 1e10,
            disk: 1e8,
            seek: 0.004,
            network: 1.25e8,
            download: None,
            policy: None,
            background: Rates::steady(0.0),
            clock_ahead: 0.0,
            clock_rate: 1.0,
            silent_from: None,
            elastic: false,
            reserved: false,
            standby: false,
        }
    }

    fn check(&self, fault: &mut dyn FnMut(&str, String)) {
        if !(1..=CORES_MAX).contains(&self.cores) {
            fault(&self.name, format!("it has 1 to {CORES_MAX} cores"));
        }
        let download = self.download.unwrap_or(self.network);
        let more =
            [self.speed, self.memory, self.memory_bandwidth, self.disk, self.network, download];
        if more.iter().any(|amount| !(amount.is_finite() && *amount > 0.0)) {
            fault(&self.name, "speed, memory, disk and network are more than 0".to_owned());
        }
        if !self.clock_ahead.is_finite() || self.clock_ahead.abs() >= CLOCK_WRONG_MAX {
            fault(&self.name, format!("its clock is wrong by less than {CLOCK_WRONG_MAX} s"));
        }
        if !CLOCK_RATES.contains(&self.clock_rate) {
            fault(&self.name, "its clock goes 0.5 to 2 seconds in a second".to_owned());
        }
        if !(0.0..self.memory).contains(&self.memory_taken) {
            fault(&self.name, "others leave it some of its memory".to_owned());
        }
        if !(self.seek.is_finite() && self.seek >= 0.0) {
            fault(&self.name, "`seek` is not negative".to_owned());
        }
        if let Some(choice) = &self.policy
            && let Err(wrong) = rehearse(choice, self.cores)
        {
            fault(&self.name, format!("its policy `{choice}`: {wrong}"));
        }
        if !self.background.is_sane() {
            fault(&self.name, "no rate is negative".to_owned());
        }
        if self.background.max() >= self.cores as f64 {
            fault(&self.name, "others leave it some of its cores".to_owned());
        }
    }
}

/// How long the cores take for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Always the same.
    Fixed,
    /// Exponential: as likely to end in the next moment, however long it has taken.
    Exponential,
}

/// Events that are handled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Events that a window holds.
    pub size: u32,
    /// Events from one window to the next: as many where they tumble, fewer where they slide.
    pub slide: u32,
}

impl Window {
    /// The number of the window that ends with the event of this count, if one does. Windows hold `size` events each.
    #[must_use]
    pub(crate) fn ended(self, count: u32) -> Option<u32> {
        let past = count.checked_sub(self.size)?;
        past.is_multiple_of(self.slide).then_some(past / self.slide)
    }

    /// Events that are kept for the next window after this count.
    #[must_use]
    pub(crate) fn held(self, count: u32) -> u32 {
        match count.checked_sub(self.size) {
            None => count,
            Some(past) => count - (past / self.slide + 1) * self.slide,
        }
    }
}

/// An operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Operator {
    /// What people call it.
    pub name: String,
    /// The nodes of its replicas, by their places in the scenario.
    pub nodes: Vec<usize>,
    /// Where its events come from: places in the scenario.
    pub inputs: Vec<usize>,
    /// Events a second that it makes itself: it is a source.
    pub rates: Option<Rates>,
    /// How they follow each other.
    pub arrivals: Arrivals,
    /// Stays where it is. Sources and sinks always do.
    pub pinned: bool,
    /// Core-seconds an event takes.
    pub cost: f64,
    /// How that varies.
    pub service: Service,
    /// Events that a replica handles at once; as many as there are cores where it is `None`.
    pub parallel: Option<usize>,
    /// Handles events in windows.
    pub window: Option<Window>,
    /// Bytes of state that a migration copies, besides what is in a window.
    pub state: f64,
    /// Bytes of memory that a replica holds; random places of them are touched, so often an event.
    pub memory: f64,
    /// Random accesses an event.
    pub touches: u32,
    /// Bytes an event copies in memory.
    pub copies: f64,
    /// Bytes an event reads from the disk.
    pub reads: f64,
    /// Bytes an event writes to the disk.
    pub writes: f64,
    /// Bytes of an event that it sends.
    pub event_bytes: f64,
    /// The share of events that a replica fails, which then does not send them on.
    pub fails: f64,
}

impl Operator {
    /// An operator on some nodes that hands on what it is sent, for nothing.
    #[must_use]
    pub fn new(name: impl Into<String>, nodes: Vec<usize>, inputs: Vec<usize>) -> Self {
        Operator {
            name: name.into(),
            nodes,
            inputs,
            rates: None,
            arrivals: Arrivals::Poisson,
            pinned: false,
            cost: 0.0,
            service: Service::Fixed,
            parallel: None,
            window: None,
            state: 0.0,
            memory: 0.0,
            touches: 0,
            copies: 0.0,
            reads: 0.0,
            writes: 0.0,
            event_bytes: 200.0,
            fails: 0.0,
        }
    }

    fn check(&self, is_sink: bool, fault: &mut dyn FnMut(&str, String)) {
        let name = &self.name;
        let amounts = [
            self.cost,
            self.state,
            self.memory,
            self.copies,
            self.reads,
            self.writes,
            self.event_bytes,
        ];
        if amounts.iter().any(|amount| !(amount.is_finite() && *amount >= 0.0)) {
            fault(name, "costs and bytes are not negative".to_owned());
        }
        if !(0.0..=1.0).contains(&self.fails) {
            fault(name, "`fails` is a share, from 0 to 1".to_owned());
        }
        if self.parallel == Some(0) {
            fault(name, "it handles at least one event at once".to_owned());
        }
        if self.window.is_some_and(|w| w.slide == 0 || w.size < w.slide) {
            fault(name, "a window slides by 1 to as many events as it holds".to_owned());
        }
        if self.window.is_some() && is_sink {
            fault(name, "no operator takes what its windows send".to_owned());
        }
        if let Some(rates) = &self.rates {
            if !rates.is_sane() {
                fault(name, "no rate is negative".to_owned());
            }
            if rates.max() > RATE_MAX {
                fault(name, format!("it sends {RATE_MAX} events a second at most"));
            }
            if self.nodes.len() > 1 {
                fault(name, "a source has one replica".to_owned());
            }
            let work = self.cost + self.copies + self.reads + self.writes + self.fails;
            if work > 0.0 || self.touches > 0 || self.window.is_some() {
                let wrong = "a source sends, and does nothing else: what it costs is for an operator after it";
                fault(name, wrong.to_owned());
            }
        }
    }

    /// A source on a node.
    #[must_use]
    pub fn source(name: impl Into<String>, node: usize, rates: Rates) -> Self {
        Operator { rates: Some(rates), ..Operator::new(name, vec![node], Vec::new()) }
    }
}

/// Everything that is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What people call it.
    pub name: String,
    /// Seconds that it lasts.
    pub duration: f64,
    /// Seconds at the beginning that latencies are not measured in.
    pub warm_up: f64,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Operators; inputs come before those that they lead to.
    pub operators: Vec<Operator>,
    /// Seconds that a message is under way between two nodes.
    pub network_latency: f64,
    /// Seconds between rounds.
    pub period: f64,
    /// Seconds that it takes to create a replica on a node.
    pub create: f64,
    /// Seconds that it takes to start a node.
    pub boot: f64,
    /// The strategy.
    pub strategy: Choice,
    /// What chance goes by.
    pub seed: u64,
}

/// What is wrong with a scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {wrong}")]
pub struct Fault {
    /// The node or operator it is about, or `the scenario`.
    pub what: String,
    /// What is wrong with it.
    pub wrong: String,
}

impl Scenario {
    /// An empty scenario of 600 seconds, with rounds every ten, and no strategy.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Scenario {
            name: name.into(),
            duration: 600.0,
            warm_up: 0.0,
            nodes: Vec::new(),
            operators: Vec::new(),
            network_latency: 0.0002,
            period: 10.0,
            create: 0.5,
            boot: 30.0,
            strategy: Choice::new("none"),
            seed: 1,
        }
    }

    /// The moments, in seconds, at which a source sends its events: the same whatever the strategy.
    ///
    /// # Panics
    /// If the operator is not a source.
    #[must_use]
    pub fn arrivals(&self, source: usize) -> Vec<f64> {
        let operator = &self.operators[source];
        let rates = operator.rates.as_ref().expect("a source has a rate");
        let before: usize = self.operators[..source].iter().map(|other| other.nodes.len()).sum();
        // As the model does: the n-th seed of the scenario is the n-th replica's.
        let mut seeds = Dice::new(self.seed);
        let mut dice = Dice::new((0..=before).fold(0, |_, _| seeds.next()));
        let mut now_ns = 0;
        std::iter::from_fn(|| {
            let events = operator.arrivals.events(&mut dice);
            now_ns = rates.next_ns(now_ns, events)?;
            Some(now_ns as f64 / 1e9)
        })
        .take_while(|second| *second <= self.duration)
        .collect()
    }

    /// Everything that is wrong.
    #[must_use]
    pub fn check(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut fault = |what: &str, wrong: String| {
            faults.push(Fault { what: what.to_owned(), wrong });
        };
        let scenario = "the scenario";
        if !(self.duration > 0.0 && self.duration < TIME_MAX) {
            let wrong = "`duration` is more than 0 s and less than 10,000,000 s";
            fault(scenario, wrong.to_owned());
        }
        // Control messages come each second: nothing is known of less.
        if !(1.0..TIME_MAX).contains(&self.period) {
            let wrong = "`period` is at least 1 s and less than 10,000,000 s";
            fault(scenario, wrong.to_owned());
        }
        let times = [self.warm_up, self.network_latency, self.create, self.boot];
        if times.iter().any(|time| !(0.0..TIME_MAX).contains(time)) {
            fault(scenario, "times are not negative, and less than 10,000,000 s".to_owned());
        }
        if self.nodes.is_empty() || self.operators.is_empty() {
            fault(scenario, "there is at least one node and one operator".to_owned());
        }
        self.nodes.iter().for_each(|node| node.check(&mut fault));
        let mut is_sink = vec![true; self.operators.len()];
        for input in self.operators.iter().flat_map(|operator| &operator.inputs) {
            is_sink.get_mut(*input).into_iter().for_each(|sink| *sink = false);
        }
        for (at, operator) in self.operators.iter().enumerate() {
            self.check_places(at, operator, &mut fault);
            operator.check(is_sink[at], &mut fault);
        }
        self.check_streams(&mut fault);
        if self.name.contains(char::is_control) {
            fault(scenario, "its name has no control characters".to_owned());
        }
        check_names(self.nodes.iter().map(|node| &node.name), "node", &mut fault);
        check_names(self.operators.iter().map(|one| &one.name), "operator", &mut fault);
        faults
    }

    /// The ways that lead to an operator double where two of them meet and part again: they have a bound.
    fn check_streams(&self, fault: &mut dyn FnMut(&str, String)) {
        let mut streams: Vec<usize> = Vec::new();
        for operator in &self.operators {
            let known = operator.inputs.iter().filter_map(|input| streams.get(*input));
            let come = known.fold(0_usize, |sum, streams| sum.saturating_add(*streams));
            if come > STREAMS_MAX {
                let wrong = format!("{STREAMS_MAX} ways from sources lead to it at most");
                fault(&operator.name, wrong);
                return;
            }
            let starts_anew = operator.rates.is_some() || operator.window.is_some();
            streams.push(if starts_anew { 1 } else { come });
        }
    }

    /// Where its replicas are, and where its events come from.
    fn check_places(&self, at: usize, operator: &Operator, fault: &mut dyn FnMut(&str, String)) {
        let name = &operator.name;
        if has_twice(&operator.nodes) {
            fault(name, "replicas of one operator never share a node".to_owned());
        }
        if operator.nodes.is_empty() || operator.nodes.len() > REPLICAS_MAX {
            fault(name, format!("it has 1 to {REPLICAS_MAX} replicas"));
        }
        let is_there = |node: &usize| self.nodes.get(*node).is_some_and(|node| !node.standby);
        if !operator.nodes.iter().all(is_there) {
            fault(name, "its replicas begin on nodes that are there".to_owned());
        }
        if operator.inputs.iter().any(|input| *input >= at) {
            fault(name, "its inputs come before it".to_owned());
        }
        if has_twice(&operator.inputs) {
            fault(name, "it takes from an operator once".to_owned());
        }
        match (&operator.rates, operator.inputs.is_empty()) {
            (Some(_), false) => fault(name, "a source has no inputs".to_owned()),
            (None, true) => fault(name, "it has inputs, or a rate".to_owned()),
            _ => {}
        }
    }
}

fn check_names<'n>(
    names: impl Iterator<Item = &'n String>,
    what: &str,
    fault: &mut dyn FnMut(&str, String),
) {
    let mut seen = HashSet::new();
    for name in names {
        if name.is_empty() || name.contains(char::is_control) {
            // Shown escaped: a terminal would obey some of them.
            let wrong = format!("the name of a {what} has characters, and no control characters");
            fault(&name.escape_debug().to_string(), wrong);
        }
        if !seen.insert(name) {
            fault(name, format!("another {what} has this name"));
        }
    }
}

fn has_twice(places: &[usize]) -> bool {
    let mut places = places.to_vec();
    places.sort_unstable();
    places.windows(2).any(|pair| pair[0] == pair[1])
}
