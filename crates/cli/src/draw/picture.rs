//! The contents of a drawing: boxes, groups of boxes and edges, as plain data.
//! `Picture::of` makes it from a graph; the caller adds instances and clusters from the plan.

pub use comporta_model::graph::Kind;
use comporta_model::graph::{Graph, Route, StageSpec};
use std::collections::HashMap;

/// A graph to be drawn. Edges and groups that refer to nothing are not drawn.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// The title above it.
    pub title: String,
    /// Its boxes.
    pub nodes: Vec<Node>,
    /// The names of its groups of boxes: clusters.
    pub groups: Vec<String>,
    /// The edges between the boxes.
    pub edges: Vec<Edge>,
}

/// A box.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What feeds it.
    pub kind: Kind,
    /// Short remarks below the name: `x4`, `stateful`.
    pub notes: Vec<String>,
    /// The group it belongs to, an index into the picture's groups.
    pub group: Option<usize>,
}

/// An edge: events go from one box to another.
#[derive(Clone, Debug)]
pub struct Edge {
    /// The box that sends, an index into the picture's nodes.
    pub from: usize,
    /// The box that receives.
    pub to: usize,
    /// The port that it leaves through, if there are several.
    pub label: Option<String>,
    /// Which events take it.
    pub way: Way,
    /// Whether the events cannot leave the process.
    pub local: bool,
}

/// Which of a port's events take an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// All of them; there is no other edge.
    #[default]
    Plain,
    /// All of them; other edges get copies.
    Copy,
    /// Each edge in turn.
    RoundRobin,
    /// Those with certain keys.
    ByKey,
}

impl Picture {
    /// Creates the picture of a graph, without groups.
    #[must_use]
    pub fn of(graph: &Graph) -> Self {
        let mut connectors: HashMap<_, usize> = HashMap::new();
        for connector in &graph.connectors {
            *connectors.entry((connector.from, connector.port)).or_default() += 1;
        }
        let edges = graph.connectors.iter().flat_map(|connector| {
            let copied = connectors[&(connector.from, connector.port)] > 1;
            let way = match connector.route {
                Route::One if copied => Way::Copy,
                Route::One => Way::Plain,
                Route::RoundRobin => Way::RoundRobin,
                Route::ByKey => Way::ByKey,
            };
            let label = graph.stages.get(connector.from.index()).and_then(|stage| {
                let only = stage.ports.len() == 1 && connector.port == 0;
                (!only).then(|| stage.port(connector.port).to_owned())
            });
            connector.to.iter().map(move |to| Edge {
                from: connector.from.index(),
                to: to.index(),
                label: label.clone(),
                way,
                local: connector.local,
            })
        });
        Self {
            title: graph.name.to_string(),
            nodes: graph
                .stages
                .iter()
                .enumerate()
                .map(|(at, stage)| {
                    let mut node = node(stage);
                    // What is sent there is discarded: it is said where an edge would begin.
                    let open = |port: &usize| {
                        !connectors.keys().any(|(from, of)| from.index() == at && of == port)
                    };
                    let open = (0..stage.ports.len()).filter(open);
                    node.notes.extend(open.map(|port| match stage.ports {
                        [_] => "leads nowhere".to_owned(),
                        ports => format!("{} leads nowhere", ports[port]),
                    }));
                    node
                })
                .collect(),
            groups: Vec::new(),
            edges: edges.collect(),
        }
    }

    /// The edges that join boxes of this picture.
    pub(super) fn sound_edges(&self) -> impl Iterator<Item = (usize, &Edge)> {
        let n = self.nodes.len();
        self.edges.iter().enumerate().filter(move |(_, edge)| edge.from < n && edge.to < n)
    }

    /// The group of a box, if there is one of that number.
    pub(super) fn group_of(&self, node: usize) -> Option<usize> {
        self.nodes[node].group.filter(|&group| group < self.groups.len())
    }

    /// Whether groups tell boxes apart: with all in one there is nothing to show.
    pub(super) fn has_groups(&self) -> bool {
        (1..self.nodes.len()).any(|node| self.group_of(node) != self.group_of(0))
    }

    /// Its unconnected parts, each with its boxes and edges in the order they have here.
    pub(super) fn parts(&self) -> Vec<Picture> {
        let part = self.part_of_nodes();
        let count = part.iter().max().map_or(0, |last| last + 1);
        let mut parts = vec![Picture { groups: self.groups.clone(), ..Picture::default() }; count];
        let mut number = vec![0; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            number[at] = parts[part[at]].nodes.len();
            parts[part[at]].nodes.push(node.clone());
        }
        for (_, edge) in self.sound_edges() {
            parts[part[edge.from]].edges.push(Edge {
                from: number[edge.from],
                to: number[edge.to],
                ..edge.clone()
            });
        }
        parts
    }

    /// For each box the part it belongs to, numbered by first appearance.
    pub(super) fn part_of_nodes(&self) -> Vec<usize> {
        let mut near = vec![Vec::new(); self.nodes.len()];
        for (_, edge) in self.sound_edges() {
            near[edge.from].push(edge.to);
            near[edge.to].push(edge.from);
        }
        let mut part = vec![usize::MAX; self.nodes.len()];
        let mut count = 0;
        for start in 0..self.nodes.len() {
            if part[start] != usize::MAX {
                continue;
            }
            let mut stack = vec![start];
            while let Some(node) = stack.pop() {
                if part[node] == usize::MAX {
                    part[node] = count;
                    stack.extend(&near[node]);
                }
            }
            count += 1;
        }
        part
    }
}

impl Edge {
    /// Its port and, where it is not plain, how events are chosen for it.
    pub(super) fn caption(&self) -> Option<String> {
        let way = match self.way {
            Way::Plain | Way::Copy => None,
            Way::RoundRobin => Some("in turn"),
            Way::ByKey => Some("by key"),
        };
        match (self.label.as_deref(), way) {
            (None, None) => None,
            (Some(one), None) | (None, Some(one)) => Some(one.to_owned()),
            (Some(port), Some(way)) => Some(format!("{port} {way}")),
        }
    }
}

fn node(stage: &StageSpec) -> Node {
    let mut notes = Vec::new();
    let said = [
        (stage.stateful, "stateful"),
        (stage.ordered, "ordered"),
        (stage.autostart, "autostart"),
        (stage.retain, "retain"),
        (stage.effects, "effects"),
    ];
    notes.extend(said.iter().filter(|(is, _)| *is).map(|(_, note)| (*note).to_owned()));
    if let Some((events, time)) = stage.batched {
        notes.push(format!("batched {events}/{time:?}"));
    }
    Node { name: stage.name.to_string(), kind: stage.kind, notes, group: None }
}
