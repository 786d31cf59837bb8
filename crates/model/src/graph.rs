//! The graph: stages joined by connectors, as data. It is checked before anything runs.
//! `Graph::check` returns every fault at once, or the `Topology` that the runtime builds on.
//! Long because of its tests.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The most characters of the name of a program or a stage.
pub const NAME_MAX: usize = 128;
/// How many characters of a longer one a message shows.
const NAME_BEGIN: usize = 32;

/// The name of the error port of every stage.
const ERROR_PORT: &str = "errors";

/// A stage of a graph, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageId(pub u32);

impl StageId {
    /// Returns the number as an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The kind of a stage, by what feeds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The runtime pulls it.
    Source,
    /// A handle outside the graph sends into it.
    Input,
    /// It has a queue.
    Stage,
}

/// A stage as the program declared it.
#[derive(Clone, Debug)]
pub struct StageSpec {
    /// Its name, unique in the graph.
    pub name: Arc<str>,
    /// What feeds it.
    pub kind: Kind,
    /// The type it takes, for messages.
    pub takes: &'static str,
    /// Its output ports.
    pub ports: &'static [&'static str],
    /// Whether it has one instance under every plan.
    pub stateful: bool,
    /// Whether events with one key are handled in order and one at a time.
    pub keyed: bool,
    /// Whether it is keyed and keeps event time.
    pub event_time: bool,
    /// What keeps it from being keyed, and why.
    pub keys_refused: Option<(&'static str, &'static str)>,
    /// Whether its results leave in the order in which its events arrived, however many instances it has.
    pub ordered: bool,
    /// Whether its queue has an event when the program starts.
    pub autostart: bool,
    /// Whether a copy of each event is kept while it is handled, so that an event that was taken can still
    /// be retried and replayed.
    pub retain: bool,
    /// The size of its groups and the longest wait for one, if it handles events in groups.
    pub batched: Option<(usize, Duration)>,
    /// Whether it has side effects, which must not be repeated unless that is allowed.
    pub effects: bool,
    /// Its handlers wait without holding a thread.
    pub waits: bool,
    /// It sends before it has handled an event.
    pub flushes: bool,
    /// It is the input of a gateway: its events are requests, whose replies are waited for.
    pub gateway: bool,
    /// Its handler may wait for long: it runs on threads of its own.
    pub blocking: bool,
    /// How many instances it has, unless the plan says otherwise.
    pub instances: usize,
    /// It is a source in parts, which can be opened several times.
    pub in_parts: bool,
    /// Why it could not start, if that is known.
    pub refused: Option<Box<str>>,
}

impl StageSpec {
    /// Creates a stage without special properties.
    #[must_use]
    pub fn new(
        name: impl Into<Arc<str>>,
        kind: Kind,
        takes: &'static str,
        ports: &'static [&'static str],
    ) -> Self {
        StageSpec {
            name: name.into(),
            kind,
            takes,
            ports,
            stateful: false,
            keyed: false,
            event_time: false,
            keys_refused: None,
            ordered: false,
            autostart: false,
            retain: false,
            batched: None,
            effects: false,
            waits: false,
            flushes: false,
            gateway: false,
            blocking: false,
            instances: 1,
            in_parts: false,
            refused: None,
        }
    }

    /// Returns the number of its error port, which comes after its output ports.
    #[must_use]
    pub fn error_port(&self) -> usize {
        self.ports.len()
    }

    /// Returns the name of a port.
    #[must_use]
    pub fn port(&self, port: usize) -> &'static str {
        self.ports.get(port).copied().unwrap_or(ERROR_PORT)
    }
}

/// How a connector chooses among its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The connector has one end.
    One,
    /// Each end in turn.
    RoundRobin,
    /// By a key of the event: events with equal keys go to the same end.
    ByKey,
}

/// Joins an output port to the queues of stages. A port with several connectors sends a copy through each.
#[derive(Clone, Debug)]
pub struct Connector {
    /// The stage that sends.
    pub from: StageId,
    /// The number of its port.
    pub port: usize,
    /// The stages that receive.
    pub to: Vec<StageId>,
    /// How one of these is chosen.
    pub route: Route,
    /// Whether the events cannot leave the process.
    pub local: bool,
    /// Whether there may be another connector from the same port to the same stage.
    pub again: bool,
}

/// Stages joined by connectors.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The name of the program.
    pub name: Arc<str>,
    /// Its stages; a `StageId` is an index here.
    pub stages: Vec<StageSpec>,
    /// Its connectors.
    pub connectors: Vec<Connector>,
    /// Mistakes seen while it was built, reported by [`check`](Self::check).
    pub faults: Vec<GraphFault>,
    /// Warnings noted while it was built.
    pub warnings: Vec<GraphWarning>,
}

/// A mistake in a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphFault {
    /// The graph has no stage at all.
    Empty {
        /// The program.
        app: Arc<str>,
    },
    /// The name of the program contains a control character.
    BadAppName {
        /// The name.
        name: Arc<str>,
    },
    /// Nothing starts the program.
    NoStart {
        /// The program.
        app: Arc<str>,
    },
    /// Two stages have the same name.
    SameName {
        /// The name.
        name: Arc<str>,
    },
    /// An ordered stage sends when an event's turn has come, and not before.
    OrderedFlushes {
        /// The stage.
        name: Arc<str>,
    },
    /// Two resources of one name.
    SameResource {
        /// The name.
        name: Arc<str>,
    },
    /// A name has characters that are not allowed.
    BadName {
        /// The name.
        name: Arc<str>,
    },
    /// A name is too long.
    LongName {
        /// How it begins.
        begin: String,
        /// Its length.
        length: usize,
    },
    /// A name is reserved in the sets of stages of a plan.
    ReservedName {
        /// The name.
        name: Arc<str>,
    },
    /// A stage without producers.
    Unfed {
        /// The stage.
        name: Arc<str>,
    },
    /// A connector without an end.
    NoEnd {
        /// The port, as `stage.port`.
        from: String,
    },
    /// A port is connected to a stage twice.
    ConnectedTwice {
        /// The port, as `stage.port`.
        from: String,
        /// The stage.
        to: Arc<str>,
    },
    /// An output port has the name of the error port, which is connected.
    ErrorsTwice {
        /// The stage.
        stage: Arc<str>,
    },
    /// A handle of another app was used.
    Foreign {
        /// The program.
        app: Arc<str>,
    },
    /// Events would have to be copied that cannot be.
    NotCloned {
        /// The port, as `stage.port`.
        from: String,
        /// How often.
        times: usize,
    },
    /// Two properties of a stage contradict each other.
    Contradiction {
        /// The stage.
        name: Arc<str>,
        /// One property.
        a: &'static str,
        /// The other.
        b: &'static str,
        /// Why not both.
        why: &'static str,
    },
    /// A batch has no events.
    EmptyBatch {
        /// The stage.
        name: Arc<str>,
    },
    /// What a stage was given makes no sense, such as a window without length.
    Senseless {
        /// The stage.
        name: Arc<str>,
        /// Why.
        why: Box<str>,
    },
}

impl fmt::Display for GraphFault {
    // Long because each fault has its sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GraphFault::Empty { app } => write!(f, "the program `{app}` has no stages"),
            GraphFault::BadAppName { name } => write!(
                f,
                "{name:?} cannot be the name of a program: it contains a control character"
            ),
            GraphFault::NoStart { app } => write!(
                f,
                "nothing starts the program `{app}`: it has no source, no input and no autostart stage"
            ),
            GraphFault::SameName { name } => {
                write!(f, "two stages are called `{name}`: every name is used once")
            }
            GraphFault::OrderedFlushes { name } => write!(
                f,
                "`{name}` is ordered and cannot flush: what its events send leaves in their order"
            ),
            GraphFault::SameResource { name } => {
                write!(f, "two resources are called `{name}`: every name is used once")
            }
            GraphFault::BadName { name } => write!(
                f,
                "`{name}` cannot be the name of a stage: use letters, digits, `_`, `-` and `.`, at least one"
            ),
            GraphFault::LongName { begin, length } => {
                write!(f, "the name `{begin}...` has {length} characters: use at most {NAME_MAX}")
            }
            GraphFault::ReservedName { name } => write!(
                f,
                "`{name}` cannot be the name of a stage: in plans it stands for {}",
                reserved(name).unwrap_or_default()
            ),
            GraphFault::Unfed { name } => write!(
                f,
                "nothing sends to the stage `{name}`: connect a port to it, or make it `autostart`"
            ),
            GraphFault::NoEnd { from } => {
                write!(f, "a connector from `{from}` has no end: give it at least one stage")
            }
            GraphFault::ConnectedTwice { from, to } => write!(
                f,
                "`{from}` is connected to `{to}` twice, so that every event would arrive there twice: connect it once, or use `connect_again` if that is meant"
            ),
            GraphFault::ErrorsTwice { stage } => write!(
                f,
                "`{stage}.errors` would name two ports: a stage whose error port is connected cannot have a port of its own called `errors`"
            ),
            GraphFault::Foreign { app } => write!(
                f,
                "a handle of another app was used in `{app}`: connect only stages of one app"
            ),
            GraphFault::NotCloned { from, times } => write!(
                f,
                "`{from}` is connected {times} times, so its events are copied, but all its connectors are local and none says how: use `connect` for one of them, or one connector with several ends"
            ),
            GraphFault::Contradiction { name, a, b, why } => {
                write!(f, "the stage `{name}` is {a} and {b}: {why}")
            }
            GraphFault::Senseless { name, why } => write!(f, "`{name}` cannot start: {why}"),
            GraphFault::EmptyBatch { name } => {
                write!(f, "the stage `{name}` is batched by 0 events: use at least 1")
            }
        }
    }
}

impl std::error::Error for GraphFault {}

/// A part of a graph that works but may surprise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphWarning {
    /// These stages form a cycle; a single one sends to itself.
    Cycle(Vec<Arc<str>>),
    /// A port is not connected: events sent through it are discarded and counted.
    Unconnected(String),
    /// A `flat_map` over a `Result` drops the errors.
    FlatMapOfResult(Arc<str>),
}

impl fmt::Display for GraphWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GraphWarning::Cycle(names) if names.len() == 1 => write!(
                f,
                "the stage {} sends to itself: if it sends more than it takes, events are shed with reason `cycle`",
                names.join("")
            ),
            GraphWarning::Cycle(names) => write!(
                f,
                "the stages {} form a cycle: if they send more than they take, events are shed with reason `cycle`",
                names.join(" -> ")
            ),
            GraphWarning::Unconnected(port) => {
                write!(f, "the port `{port}` is not connected: what is sent there is discarded")
            }
            GraphWarning::FlatMapOfResult(name) => write!(
                f,
                "`{name}` is a `flat_map` over a `Result`: errors are dropped, and their events count as handled; use `try_map` or `try_flat_map`"
            ),
        }
    }
}

/// The structure of a valid graph.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Topology {
    /// For each stage, its component: stages that reach each other share one.
    pub component: Vec<usize>,
    /// For each component, whether it is a cycle.
    pub cyclic: Vec<bool>,
    /// For each stage, the greatest number of hops from a source, an input or an autostart stage.
    pub depth: Vec<u32>,
    /// Warnings about the graph.
    pub warnings: Vec<GraphWarning>,
}

impl StageSpec {
    /// What is said of it that cannot be true together.
    fn contradictions(&self) -> impl Iterator<Item = GraphFault> {
        let keyed = [
            (self.stateful, "stateful", "it keeps state for each key, or has one instance"),
            (self.ordered, "ordered", "it keeps order within each key, and serves keys in turn"),
            (
                self.batched.is_some(),
                "batched",
                "a group would mix keys: gather in the state of a key",
            ),
        ];
        let keyed = keyed.into_iter().filter(|(is, ..)| self.keyed && *is);
        let keyed = keyed.map(|(_, b, why)| (b, why)).chain(self.keys_refused);
        let one = "a stateful stage has one instance and keeps order as it is";
        let others = [
            (self.stateful && self.ordered, "stateful", "ordered", one),
            (
                self.waits && self.blocking,
                "asynchronous",
                "blocking",
                "a handler that waits holds no thread",
            ),
        ];
        let others = others.into_iter().filter(|(is, ..)| *is).map(|(_, a, b, why)| (a, b, why));
        let all = keyed.map(|(b, why)| ("keyed", b, why)).chain(others);
        let name = || shortened(&self.name);
        all.map(move |(a, b, why)| GraphFault::Contradiction { name: name(), a, b, why })
    }
}

impl Graph {
    /// Returns the name of a port: `stage.port`, or `stage` if it is the only output port.
    #[must_use]
    pub fn port_name(&self, stage: StageId, port: usize) -> String {
        let spec = &self.stages[stage.index()];
        let name = shortened(&spec.name);
        match spec.ports {
            [_] if port == 0 => name.to_string(),
            _ => format!("{name}.{}", spec.port(port)),
        }
    }

    /// Returns `true` if the error port of a stage is connected.
    #[must_use]
    pub fn sends_errors(&self, stage: StageId) -> bool {
        let port = self.stages[stage.index()].error_port();
        self.connectors.iter().any(|connector| (connector.from, connector.port) == (stage, port))
    }

    /// Returns the stage with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<StageId> {
        let at = self.stages.iter().position(|stage| &*stage.name == name)?;
        u32::try_from(at).ok().map(StageId)
    }

    /// Checks the graph and returns its topology. `copies` returns whether the events of a port can be copied.
    ///
    /// # Errors
    /// Returns all mistakes, in the order in which the program made them.
    pub fn check(
        &self,
        copies: impl Fn(StageId, usize) -> bool,
    ) -> Result<Topology, Vec<GraphFault>> {
        let mut faults = self.faults.clone();
        faults.extend(too_long(&self.name));
        if self.name.chars().any(char::is_control) {
            faults.push(GraphFault::BadAppName { name: self.name.clone() });
        }
        if self.stages.is_empty() {
            faults.push(GraphFault::Empty { app: shortened(&self.name) });
            return Err(faults);
        }
        self.check_stages(&mut faults);
        self.check_connectors(copies, &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(self.topology())
    }

    fn check_stages(&self, faults: &mut Vec<GraphFault>) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let fed: Vec<bool> = {
            let mut fed = vec![false; self.stages.len()];
            self.connectors.iter().flat_map(|c| &c.to).for_each(|to| fed[to.index()] = true);
            fed
        };
        for (stage, fed) in self.stages.iter().zip(fed) {
            let name = shortened(&stage.name);
            let times = seen.entry(&stage.name).or_default();
            *times += 1;
            if *times == 2 {
                faults.push(GraphFault::SameName { name: name.clone() });
            }
            if let Some(fault) = too_long(&stage.name) {
                faults.push(fault);
            } else if !is_name(&stage.name) {
                faults.push(GraphFault::BadName { name: name.clone() });
            }
            if stage.ordered && stage.flushes {
                faults.push(GraphFault::OrderedFlushes { name: name.clone() });
            }
            if reserved(&name).is_some() {
                faults.push(GraphFault::ReservedName { name: name.clone() });
            }
            if stage.kind == Kind::Stage && !fed && !stage.autostart {
                faults.push(GraphFault::Unfed { name: name.clone() });
            }
            faults.extend(stage.contradictions());
            if let Some(why) = stage.refused.clone() {
                faults.push(GraphFault::Senseless { name: name.clone(), why });
            }
            if matches!(stage.batched, Some((0, _))) {
                faults.push(GraphFault::EmptyBatch { name });
            }
        }
        if !self.stages.iter().any(|stage| stage.kind != Kind::Stage || stage.autostart) {
            faults.push(GraphFault::NoStart { app: shortened(&self.name) });
        }
    }

    fn check_connectors(
        &self,
        copies: impl Fn(StageId, usize) -> bool,
        faults: &mut Vec<GraphFault>,
    ) {
        let mut times: Vec<((StageId, usize), usize)> = Vec::new();
        let mut seen: HashMap<(StageId, usize), usize> = HashMap::new();
        let mut ends = HashSet::new();
        for connector in &self.connectors {
            let from = (connector.from, connector.port);
            let spec = &self.stages[connector.from.index()];
            if connector.port == spec.error_port() && spec.ports.contains(&ERROR_PORT) {
                faults.push(GraphFault::ErrorsTwice { stage: shortened(&spec.name) });
            }
            if connector.to.is_empty() {
                faults.push(GraphFault::NoEnd { from: self.port_name(from.0, from.1) });
            }
            if let [to] = *connector.to
                && connector.route == Route::One
                && !ends.insert((from, to))
                && !connector.again
            {
                let to = shortened(&self.stages[to.index()].name);
                let from = self.port_name(from.0, from.1);
                faults.push(GraphFault::ConnectedTwice { from, to });
            }
            let at = *seen.entry(from).or_insert(times.len());
            match times.get_mut(at) {
                Some((_, n)) => *n += 1,
                None => times.push((from, 1)),
            }
        }
        for ((stage, port), times) in times {
            if times > 1 && !copies(stage, port) {
                faults.push(GraphFault::NotCloned { from: self.port_name(stage, port), times });
            }
        }
    }

    fn topology(&self) -> Topology {
        let next = self.successors();
        let component = components(&next);
        let count = component.iter().max().map_or(0, |last| last + 1);
        let mut members = vec![Vec::new(); count];
        for (stage, &c) in component.iter().enumerate() {
            members[c].push(stage);
        }
        let cyclic: Vec<bool> = members
            .iter()
            .map(|stages| stages.len() > 1 || stages.iter().any(|&s| next[s].contains(&s)))
            .collect();
        let mut warnings: Vec<GraphWarning> = members
            .iter()
            .zip(&cyclic)
            .filter(|(_, cyclic)| **cyclic)
            .map(|(stages, _)| {
                GraphWarning::Cycle(stages.iter().map(|&s| self.stages[s].name.clone()).collect())
            })
            .collect();
        warnings.extend(self.unconnected().map(GraphWarning::Unconnected));
        warnings.extend(self.warnings.iter().cloned());
        let depth = depths(&next, &component, &members);
        Topology { component, cyclic, depth, warnings }
    }

    /// For each stage, whether what it sends can come back to it.
    pub(crate) fn in_cycles(&self) -> Vec<bool> {
        let next = self.successors();
        let component = components(&next);
        let mut members = vec![0; component.iter().max().map_or(0, |last| last + 1)];
        component.iter().for_each(|c| members[*c] += 1);
        (0..next.len()).map(|s| members[component[s]] > 1 || next[s].contains(&s)).collect()
    }

    fn successors(&self) -> Vec<Vec<usize>> {
        let mut next = vec![Vec::new(); self.stages.len()];
        for connector in &self.connectors {
            next[connector.from.index()].extend(connector.to.iter().map(|to| to.index()));
        }
        next
    }

    fn unconnected(&self) -> impl Iterator<Item = String> {
        let mut used: Vec<Vec<bool>> =
            self.stages.iter().map(|stage| vec![false; stage.ports.len()]).collect();
        for connector in &self.connectors {
            if let Some(used) = used[connector.from.index()].get_mut(connector.port) {
                *used = true;
            }
        }
        (0u32..).zip(used).flat_map(move |(stage, ports)| {
            ports
                .into_iter()
                .enumerate()
                .filter(|(_, used)| !used)
                .map(move |(port, _)| self.port_name(StageId(stage), port))
        })
    }
}

/// Refuses a name that nobody could read in a table or a message.
fn too_long(name: &str) -> Option<GraphFault> {
    let length = name.chars().count();
    let begin = || name.chars().take(NAME_BEGIN).collect();
    (length > NAME_MAX).then(|| GraphFault::LongName { begin: begin(), length })
}

/// A name as faults call it: no longer than names may be.
fn shortened(name: &Arc<str>) -> Arc<str> {
    match too_long(name) {
        Some(GraphFault::LongName { begin, .. }) => format!("{begin}...").into(),
        _ => name.clone(),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c))
}

/// What a word means in the sets of stages of a plan, if it is none that a stage could have.
fn reserved(name: &str) -> Option<&'static str> {
    match name {
        "all" => Some("every stage"),
        "none" => Some("no stage"),
        _ => None,
    }
}

/// Strongly connected components by Tarjan's algorithm, without recursion: a chain of ten thousand
/// stages must not overflow the stack. Numbered so that an edge leads to a component of a lower number.
fn components(next: &[Vec<usize>]) -> Vec<usize> {
    const UNSEEN: usize = usize::MAX;
    let n = next.len();
    let (mut order, mut low, mut component) = (vec![UNSEEN; n], vec![0; n], vec![UNSEEN; n]);
    let (mut stack, mut seen, mut found) = (Vec::new(), 0, 0);
    for root in 0..n {
        if order[root] != UNSEEN {
            continue;
        }
        let mut calls = vec![(root, 0)];
        while let Some((stage, edge)) = calls.pop() {
            if edge == 0 {
                order[stage] = seen;
                low[stage] = seen;
                seen += 1;
                stack.push(stage);
            }
            match next[stage].get(edge) {
                Some(&to) => {
                    calls.push((stage, edge + 1));
                    if order[to] == UNSEEN {
                        calls.push((to, 0));
                    } else if component[to] == UNSEEN {
                        low[stage] = low[stage].min(order[to]);
                    }
                }
                None => {
                    if low[stage] == order[stage] {
                        while let Some(member) = stack.pop() {
                            component[member] = found;
                            if member == stage {
                                break;
                            }
                        }
                        found += 1;
                    }
                    if let Some((parent, _)) = calls.last() {
                        low[*parent] = low[*parent].min(low[stage]);
                    }
                }
            }
        }
    }
    component
}

/// The longest way to each stage, a cycle counting its members once each in the order declared.
fn depths(next: &[Vec<usize>], component: &[usize], members: &[Vec<usize>]) -> Vec<u32> {
    let mut depth = vec![0u32; next.len()];
    for (number, stages) in members.iter().enumerate().rev() {
        let base = stages.iter().map(|&s| depth[s]).max().unwrap_or(0);
        for (offset, &stage) in (0u32..).zip(stages) {
            depth[stage] = base + offset;
        }
        for &stage in stages {
            for &to in next[stage].iter().filter(|&&to| component[to] != number) {
                depth[to] = depth[to].max(depth[stage] + 1);
            }
        }
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(u32, u32)], stages: u32) -> Graph {
        let spec = |n: u32| {
            let kind = if n == 0 { Kind::Source } else { Kind::Stage };
            StageSpec::new(format!("s{n}"), kind, "u32", &["out"])
        };
        Graph {
            name: "g".into(),
            stages: (0..stages).map(spec).collect(),
            connectors: edges
                .iter()
                .map(|&(from, to)| Connector {
                    from: StageId(from),
                    port: 0,
                    to: vec![StageId(to)],
                    route: Route::One,
                    local: false,
                    again: false,
                })
                .collect(),
            faults: Vec::new(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_cycle_is_one_component_and_a_warning() {
        let checked = graph(&[(0, 1), (1, 2), (2, 1), (2, 3)], 4).check(|_, _| true).unwrap();
        let c = &checked.component;
        assert!(c[1] == c[2] && c[0] != c[1] && c[3] != c[2]);
        assert_eq!(checked.cyclic.iter().filter(|cyclic| **cyclic).count(), 1);
        assert_eq!(checked.depth, [0, 1, 2, 3]);
        assert_eq!(
            checked.warnings,
            [
                GraphWarning::Cycle(vec!["s1".into(), "s2".into()]),
                GraphWarning::Unconnected("s3".into())
            ]
        );
    }

    #[test]
    fn a_stage_that_sends_to_itself_is_a_cycle() {
        let checked = graph(&[(0, 1), (1, 1)], 2).check(|_, _| true).unwrap();
        assert!(checked.cyclic[checked.component[1]]);
        let told = checked.warnings[0].to_string();
        assert!(told.starts_with("the stage s1 sends to itself: "), "{told}");
    }

    #[test]
    fn a_chain_of_ten_thousand_stages_is_no_deep_recursion() {
        let edges: Vec<_> = (0..9_999).map(|n| (n, n + 1)).collect();
        let checked = graph(&edges, 10_000).check(|_, _| true).unwrap();
        assert_eq!(checked.depth[9_999], 9_999);
    }

    #[test]
    fn all_mistakes_are_reported_together() {
        let mut bad = graph(&[(0, 1), (0, 1)], 3);
        bad.stages[1].name = "s0".into();
        bad.stages[1].batched = Some((0, Duration::ZERO));
        let faults = bad.check(|_, _| false).unwrap_err();
        let lines: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 5, "{lines:#?}");
        assert!(lines[0].contains("two stages are called `s0`"));
        assert!(lines[2].contains("nothing sends to the stage `s2`"));
        assert!(lines[3].contains("`s0` is connected to `s0` twice"), "{lines:#?}");
        assert!(lines[4].contains("connected 2 times"));
    }

    #[test]
    fn a_port_is_joined_to_a_stage_twice_only_if_that_is_asked_for() {
        let mut joined = graph(&[(0, 1), (0, 2), (0, 1)], 3);
        let fault = GraphFault::ConnectedTwice { from: "s0".into(), to: "s1".into() };
        assert_eq!(joined.check(|_, _| true).unwrap_err(), [fault]);
        joined.connectors[2].again = true;
        assert!(joined.check(|_, _| true).is_ok());
        joined.connectors[2].again = false;
        joined.connectors[2].route = Route::RoundRobin; // ends that take turns may be named often
        assert!(joined.check(|_, _| true).is_ok());
    }

    #[test]
    fn a_name_has_a_length_that_can_be_shown() {
        let mut named = graph(&[(0, 1)], 2);
        named.stages[1].name = "x".repeat(NAME_MAX).into();
        assert!(named.check(|_, _| true).is_ok());
        named.stages[1].name = "\u{fc}".repeat(100_000).into();
        named.name = "y".repeat(NAME_MAX + 1).into();
        let faults = named.check(|_, _| true).unwrap_err();
        let lines: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].ends_with("has 129 characters: use at most 128"), "{lines:?}");
        assert!(lines[1].len() < 200 && lines[1].contains("has 100000 characters"), "{lines:?}");
        (named.stages[1].stateful, named.stages[1].ordered) = (true, true);
        let faults = named.check(|_, _| true).unwrap_err();
        assert!(faults.len() > 2, "{faults:?}");
        assert!(faults.iter().all(|fault| fault.to_string().len() < 300), "{faults:?}");
    }
}
