//! How the stages of a program are joined: connectors with their types, what the plan says of them, the
//! cycles they form, and how many events went each way.

use std::any::Any;
use std::collections::HashMap;

use comporta_model::graph::{Graph, Kind, StageId, Topology};
use comporta_model::plan::{Settings, WhenFull};
use comporta_model::replicas::Replicas;

use crate::core::Core;
use crate::cycle::Cycle;
use crate::failed_event::{AnyCodec, Codec};
use crate::path::emit::Links;
use crate::path::route::{AnyEdge, AnyParts, Edge, Tap};
use crate::stage::lanes::progress::HandedOn;
use crate::stage::lanes::watermark::{EdgeFrom, Origin};
use crate::sync::{Arc, AtomicU64, Relaxed};

/// Gives a sender of a stage its error port, which has this number.
pub(crate) type OpenErrors = fn(&mut Links, &Core, u32, usize);

/// The connectors and taps of a program as it declares them, by stage and port, with their types erased.
#[derive(Default)]
pub(crate) struct Declared {
    pub(crate) edges: HashMap<(u32, usize), Vec<Box<dyn AnyEdge>>>,
    pub(crate) taps: HashMap<(u32, usize), Arc<dyn Any + Send + Sync>>,
    /// What opens the error ports that a program asked for, by stage.
    pub(crate) errors: HashMap<u32, OpenErrors>,
    /// How the events that come to a stage are written and read.
    pub(crate) codecs: HashMap<u32, Arc<dyn AnyCodec>>,
    /// Sources declared before this many stages are not opened: those of a replay come after.
    #[cfg(feature = "json")]
    pub(crate) opened_from: u32,
}

impl Declared {
    /// Says of every replica what is said of its stage; its connectors lead to replicas.
    /// `keys` has what makes a stage keyed.
    pub(crate) fn replicate(
        &mut self,
        graph: &Graph,
        replicas: &Replicas,
        keys: impl Fn(StageId) -> Option<Arc<AnyParts>>,
    ) {
        let declared = std::mem::take(&mut self.edges);
        let mut seen: HashMap<(u32, usize), usize> = HashMap::new();
        for connector in &graph.connectors {
            let of = (connector.from.0, connector.port);
            let at = seen.entry(of).or_default();
            let Some(edge) = declared.get(&of).and_then(|edges| edges.get(*at)) else { continue };
            *at += 1;
            let by_key = replicas.routes_by_key(connector);
            let keys = if by_key { keys(connector.to[0]) } else { None };
            for (number, from) in replicas.of(connector.from).iter().enumerate() {
                let to = replicas.ends(connector, number).into_iter().map(|(to, _)| to).collect();
                let edges = self.edges.entry((from.0, connector.port)).or_default();
                edges.push(edge.replica(number, to, keys.as_deref()));
            }
        }
        for (id, (stage, part)) in (0u32..).zip(replicas.places()) {
            if part.index() > 0 {
                let taps = self.taps.iter().filter(|((of, _), _)| *of == stage.0);
                let taps: Vec<_> =
                    taps.map(|((_, port), tap)| ((id, *port), tap.clone())).collect();
                self.taps.extend(taps);
                self.errors.extend(self.errors.get(&stage.0).copied().map(|open| (id, open)));
                self.codecs.extend(self.codecs.get(&stage.0).cloned().map(|codec| (id, codec)));
            }
        }
    }
}

pub(crate) struct Wiring {
    declared: Declared,
    /// For the ports of which the plan says what happens at a full queue, in the order of their edges.
    rules: HashMap<(u32, usize), Vec<Vec<Option<WhenFull>>>>,
    /// For each stage, where its ports lead.
    outgoing: Vec<Vec<(usize, StageId)>>,
    /// For each stage, the edges that lead to it from outside of its cycle.
    incoming: Vec<usize>,
    cycles: Vec<Option<Arc<Cycle>>>,
    /// For each sender and each queue it leads to, how many events it has sent there.
    flows: HashMap<(u32, u32), Arc<AtomicU64>>,
    /// For each stage, how far it has handed event time on.
    handed_on: Vec<Arc<HandedOn>>,
}

impl Wiring {
    pub(crate) fn new(
        graph: &Graph,
        topology: &Topology,
        settings: &Settings,
        declared: Declared,
    ) -> Self {
        let mut outgoing = vec![Vec::new(); graph.stages.len()];
        let mut incoming = vec![0; graph.stages.len()];
        let mut flows = HashMap::new();
        for connector in &graph.connectors {
            for to in &connector.to {
                outgoing[connector.from.index()].push((connector.port, *to));
                flows.insert((connector.from.0, to.0), Arc::default());
                let (from, to) = (connector.from.index(), to.index());
                let inside = topology.component[from] == topology.component[to];
                incoming[to] += usize::from(!inside);
            }
        }
        let (rules, cycles) = (ruled_ports(graph, settings), cycles(graph, topology));
        let handed_on = graph.stages.iter().map(|_| Arc::default()).collect();
        Wiring { declared, rules, outgoing, incoming, cycles, flows, handed_on }
    }

    /// Where the ports of a stage lead.
    pub(crate) fn leads_to(&self, stage: u32) -> impl Iterator<Item = StageId> {
        self.outgoing[stage as usize].iter().map(|(_, to)| *to)
    }

    /// The cycle that a stage belongs to.
    pub(crate) fn cycle(&self, stage: u32) -> Option<&Arc<Cycle>> {
        self.cycles[stage as usize].as_ref()
    }

    /// Edges that lead to a stage from outside of its cycle.
    pub(crate) fn producers(&self, stage: u32) -> usize {
        self.incoming[stage as usize]
    }

    /// What a stage that keeps event time knows a producer as.
    pub(crate) fn origin(graph: &Graph, producer: u32) -> Origin {
        match graph.stages[producer as usize].kind {
            Kind::Input => Origin::Outside,
            Kind::Source | Kind::Stage => Origin::Node(producer),
        }
    }

    /// Where the edges come from that lead to a stage.
    pub(crate) fn origins(&self, graph: &Graph, stage: u32) -> impl Iterator<Item = EdgeFrom> {
        graph.connectors.iter().flat_map(move |connector| {
            let edges = connector.to.iter().filter(move |to| to.0 == stage);
            edges.map(|_| EdgeFrom {
                origin: Wiring::origin(graph, connector.from.0),
                handed_on: self.handed_on(connector.from.0).clone(),
            })
        })
    }

    /// How far a stage has handed event time on.
    pub(crate) fn handed_on(&self, stage: u32) -> &Arc<HandedOn> {
        &self.handed_on[stage as usize]
    }

    /// How many events a stage has sent to each that it leads to.
    pub(crate) fn sent_by(&self, stage: u32) -> Vec<(StageId, u64)> {
        let mut to: Vec<StageId> = self.leads_to(stage).collect();
        to.sort_unstable();
        to.dedup();
        to.into_iter().map(|to| (to, self.flow(stage, to).load(Relaxed))).collect()
    }

    pub(crate) fn edges_of<T: 'static>(&self, stage: u32, port: usize) -> Vec<&Edge<T>> {
        let edges = self.declared.edges.get(&(stage, port));
        edges.into_iter().flatten().filter_map(|edge| typed(&**edge)).collect()
    }

    /// How to copy the events that come to a stage, if one of the edges that lead to it knows.
    pub(crate) fn copy_for<T: 'static>(&self, stage: u32) -> Option<fn(&T) -> T> {
        let edges = self.declared.edges.values().flatten();
        let typed = edges.filter_map(|edge| typed::<T>(&**edge));
        typed.filter(|edge| edge.to.contains(&StageId(stage))).find_map(|edge| edge.copy)
    }

    /// How the events that come to a stage are written and read, likewise.
    pub(crate) fn codec_for<T: 'static>(&self, stage: u32) -> Option<Codec<T>> {
        let codec: &dyn Any = &**self.declared.codecs.get(&stage)?;
        codec.downcast_ref().copied()
    }

    /// Whether a source is opened.
    #[cfg(feature = "json")]
    pub(crate) fn opens(&self, source: u32) -> bool {
        source >= self.declared.opened_from
    }

    /// For each of these edges and each of its ends, what happens at a full queue, where that is
    /// not as the queue has it.
    pub(crate) fn rules_of(&self, stage: u32, port: usize) -> &[Vec<Option<WhenFull>>] {
        self.rules.get(&(stage, port)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn tap<T: 'static>(&self, stage: u32, port: usize) -> Option<Tap<T>> {
        self.declared.taps.get(&(stage, port))?.downcast_ref::<Tap<T>>().cloned()
    }

    /// Whether two ports of a stage lead to one queue.
    pub(crate) fn ports_share_a_queue(&self, stage: u32) -> bool {
        let mut seen: HashMap<StageId, usize> = HashMap::new();
        let mut own = self.outgoing[stage as usize].iter();
        own.any(|(port, to)| *seen.entry(*to).or_insert(*port) != *port)
    }

    /// Whether no output port of a stage, which has so many, leads on.
    pub(crate) fn leads_nowhere(&self, stage: u32, ports: usize) -> bool {
        self.outgoing[stage as usize].iter().all(|(port, _)| *port >= ports)
    }

    /// What opens the error port of a stage, which has this number, if it is connected, or recorded by a test.
    pub(crate) fn errors(&self, stage: u32, port: usize) -> Option<OpenErrors> {
        let Declared { edges, taps, errors, .. } = &self.declared;
        let wanted = edges.contains_key(&(stage, port)) || taps.contains_key(&(stage, port));
        errors.get(&stage).copied().filter(|_| wanted)
    }

    /// How many events a stage has sent to the queue of another.
    pub(crate) fn flow(&self, from: u32, to: StageId) -> Arc<AtomicU64> {
        self.flows.get(&(from, to.0)).cloned().unwrap_or_default()
    }
}

fn typed<T: 'static>(edge: &dyn AnyEdge) -> Option<&Edge<T>> {
    let edge: &dyn Any = edge;
    edge.downcast_ref()
}

/// What a plan says of connectors, by the port they start from.
fn ruled_ports(
    graph: &Graph,
    settings: &Settings,
) -> HashMap<(u32, usize), Vec<Vec<Option<WhenFull>>>> {
    let mut rules: HashMap<(u32, usize), Vec<Vec<Option<WhenFull>>>> = HashMap::new();
    if settings.connectors.iter().flatten().any(Option::is_some) {
        for (connector, said) in graph.connectors.iter().zip(&settings.connectors) {
            rules.entry((connector.from.0, connector.port)).or_default().push(said.clone());
        }
    }
    rules
}

fn cycles(graph: &Graph, topology: &Topology) -> Vec<Option<Arc<Cycle>>> {
    let mut made: HashMap<usize, Arc<Cycle>> = HashMap::new();
    let component = &topology.component;
    let of = |stage: usize| {
        let own = component[stage];
        if !topology.cyclic[own] {
            return None;
        }
        let cycle = made.entry(own).or_insert_with(|| {
            let stages = (0u32..).zip(component).filter(|(_, c)| **c == own).map(|(s, _)| s);
            let into = graph.connectors.iter().filter(|c| component[c.from.index()] != own);
            let open = into.flat_map(|c| &c.to).filter(|to| component[to.index()] == own).count();
            Arc::new(Cycle::new(stages.collect(), open))
        });
        Some(cycle.clone())
    };
    (0..component.len()).map(of).collect()
}
