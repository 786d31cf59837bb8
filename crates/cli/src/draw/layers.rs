//! Which layer each box stands in. Cycles are opened at the edge that closes them, layers follow
//! the longest way, and an edge over several layers gets a bend in each that it passes.
//! After: `order`.
//!
//! Edges that leave one port run together as one *net* and share bends. A net that goes back
//! (against the layers) is kept turned round: its hub is the box the arrows point at.
//! Invariant: a link joins neighbouring layers.

use super::picture::{Kind, Picture};
use std::collections::HashMap;

/// Bends a picture may have for each of its boxes and edges; the longest edges do without.
/// Ten thousand boxes with all their edges long would need millions.
const BENDS_PER_ITEM: usize = 2;
/// As many are always allowed.
const BENDS_FREE: usize = 10_000;

/// Edges that are drawn from one point.
#[derive(Debug)]
pub(super) struct Net {
    /// The box they leave, or enter if they go back.
    pub(super) hub: usize,
    /// The other boxes, each once.
    pub(super) ends: Vec<usize>,
    /// An edge of the net to each end, for captions.
    pub(super) edges: Vec<usize>,
    /// They go against the layers.
    pub(super) back: bool,
    /// Only local edges are in it.
    pub(super) local: bool,
}

/// A piece of a net between neighbouring layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) net: usize,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Boxes and bends in layers. Both are *cells*: first all boxes, then all bends.
#[derive(Debug)]
pub(super) struct Layers {
    pub(super) boxes: usize,
    pub(super) nets: Vec<Net>,
    /// For each bend its net.
    pub(super) bends: Vec<usize>,
    /// For each cell its layer.
    pub(super) layer: Vec<usize>,
    /// For each layer its cells, from the first to the last.
    pub(super) rows: Vec<Vec<usize>>,
    pub(super) links: Vec<Link>,
    /// For each cell the links to the layer before, and to the layer after.
    pub(super) before: Vec<Vec<usize>>,
    pub(super) after: Vec<Vec<usize>>,
    /// Nets without bends, because there would be too many.
    pub(super) unbent: Vec<usize>,
    /// For each box the edges from it to itself.
    pub(super) loops: Vec<Vec<usize>>,
}

impl Layers {
    pub(super) fn of(picture: &Picture) -> Self {
        let boxes = picture.nodes.len();
        let back = back_edges(picture);
        let layer = longest_ways(picture, &back);
        let mut loops = vec![Vec::new(); boxes];
        for (at, edge) in picture.sound_edges().filter(|(_, edge)| edge.from == edge.to) {
            loops[edge.from].push(at);
        }
        let mut layers = Self {
            boxes,
            nets: nets(picture, &back),
            bends: Vec::new(),
            rows: vec![Vec::new(); layer.iter().max().map_or(0, |last| last + 1)],
            layer,
            links: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
            unbent: Vec::new(),
            loops,
        };
        layers.link(BENDS_FREE.max(BENDS_PER_ITEM * (boxes + picture.edges.len())));
        layers
    }

    pub(super) fn cells(&self) -> usize {
        self.layer.len()
    }

    pub(super) fn is_bend(&self, cell: usize) -> bool {
        cell >= self.boxes
    }

    /// Short nets first, so that it is the long ones that find no bends left.
    fn link(&mut self, bends_max: usize) {
        let last = |net: &Net| net.ends.iter().map(|&end| self.layer[end]).max().unwrap_or(0);
        let span: Vec<usize> =
            self.nets.iter().map(|net| last(net).saturating_sub(self.layer[net.hub])).collect();
        let mut by_span: Vec<usize> = (0..self.nets.len()).collect();
        by_span.sort_by_key(|&net| span[net]);
        for net in by_span {
            if self.bends.len() + span[net] > bends_max {
                self.unbent.push(net);
                continue;
            }
            let hub = self.nets[net].hub;
            let mut ends = self.nets[net].ends.clone();
            ends.sort_by_key(|&end| self.layer[end]);
            let mut at = hub;
            for end in ends {
                while self.layer[at] + 1 < self.layer[end] {
                    let bend = self.layer.len();
                    self.layer.push(self.layer[at] + 1);
                    self.bends.push(net);
                    self.links.push(Link { net, from: at, to: bend });
                    at = bend;
                }
                self.links.push(Link { net, from: at, to: end });
            }
        }
        self.before = vec![Vec::new(); self.layer.len()];
        self.after = vec![Vec::new(); self.layer.len()];
        for (at, link) in self.links.iter().enumerate() {
            self.after[link.from].push(at);
            self.before[link.to].push(at);
        }
        for (cell, &layer) in self.layer.iter().enumerate() {
            self.rows[layer].push(cell);
        }
    }
}

/// The edges that close a cycle, seen from the boxes where events come in.
fn back_edges(picture: &Picture) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        Open,
        Done,
    }
    let n = picture.nodes.len();
    let mut next = vec![Vec::new(); n];
    let mut fed = vec![false; n];
    for (at, edge) in picture.sound_edges().filter(|(_, edge)| edge.from != edge.to) {
        next[edge.from].push((at, edge.to));
        fed[edge.to] = true;
    }
    let mut starts: Vec<usize> = (0..n).collect();
    starts.sort_by_key(|&node| (picture.nodes[node].kind == Kind::Stage, fed[node]));
    let mut back = vec![false; picture.edges.len()];
    let mut seen = vec![Seen::No; n];
    for start in starts {
        if seen[start] != Seen::No {
            continue;
        }
        seen[start] = Seen::Open;
        let mut way = vec![(start, 0)];
        while let Some((node, edge)) = way.pop() {
            let Some(&(at, to)) = next[node].get(edge) else {
                seen[node] = Seen::Done;
                continue;
            };
            way.push((node, edge + 1));
            match seen[to] {
                Seen::No => {
                    seen[to] = Seen::Open;
                    way.push((to, 0));
                }
                Seen::Open => back[at] = true,
                Seen::Done => {}
            }
        }
    }
    back
}

/// The longest way to each box; a box that nothing leads to stands right before what it feeds.
fn longest_ways(picture: &Picture, back: &[bool]) -> Vec<usize> {
    let n = picture.nodes.len();
    let mut next = vec![Vec::new(); n];
    let mut waiting = vec![0usize; n];
    for (at, edge) in picture.sound_edges() {
        if edge.from != edge.to && !back[at] {
            next[edge.from].push(edge.to);
            waiting[edge.to] += 1;
        }
    }
    let starts: Vec<usize> = (0..n).filter(|&node| waiting[node] == 0).collect();
    let mut layer = vec![0usize; n];
    let mut ready = starts.clone();
    while let Some(node) = ready.pop() {
        for &to in &next[node] {
            layer[to] = layer[to].max(layer[node] + 1);
            waiting[to] -= 1;
            if waiting[to] == 0 {
                ready.push(to);
            }
        }
    }
    for start in starts {
        let first = next[start].iter().map(|&to| layer[to]).min();
        layer[start] = first.map_or(0, |first| first.saturating_sub(1));
    }
    layer
}

fn nets(picture: &Picture, back: &[bool]) -> Vec<Net> {
    let mut nets: Vec<Net> = Vec::new();
    let mut found = HashMap::new();
    let mut ends = std::collections::HashSet::new();
    for (at, edge) in picture.sound_edges().filter(|(_, edge)| edge.from != edge.to) {
        let (hub, end) = if back[at] { (edge.to, edge.from) } else { (edge.from, edge.to) };
        // What goes back to one box comes together there, whatever the ports.
        let key = match back[at] {
            true => (hub, true, edge.local, None),
            false => (hub, false, edge.local, Some((edge.label.as_deref(), edge.way))),
        };
        let net = *found.entry(key).or_insert_with(|| {
            nets.push(Net {
                hub,
                ends: Vec::new(),
                edges: Vec::new(),
                back: back[at],
                local: edge.local,
            });
            nets.len() - 1
        });
        if ends.insert((net, end)) {
            nets[net].ends.push(end);
            nets[net].edges.push(at);
        }
    }
    nets
}
