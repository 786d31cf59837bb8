//! What boxes say, and where wires meet them, in characters. Before: `order`. After: `sheet`.
//!
//! Edges that go forward to the very same boxes run together as one *run*, so that every pin has
//! one run, and following a line from a box leads only to boxes it sends to.

use super::layers::{Layers, Link};
use super::measure::{clean, fill, shorten, width};
use super::order::positions;
use super::picture::{Kind, Picture};
use super::sheet::{Flow, Style};
use std::collections::{BTreeMap, HashMap};

/// Notes are not wider than this, unless a name or a note is.
const NOTES_COLUMNS: usize = 16;

/// What a box says.
pub(super) struct Face {
    pub(super) kind: Kind,
    pub(super) group: Option<String>,
    pub(super) lines: Vec<String>,
    /// The columns it needs within its walls.
    pub(super) columns: usize,
}

/// Where a run meets a cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Pin {
    pub(super) caption: Option<String>,
    /// From the beginning of the cell.
    pub(super) offset: usize,
}

/// A wire of a channel and the cells it joins.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) near: Vec<(usize, Pin)>,
    pub(super) far: Vec<(usize, Pin)>,
    pub(super) back: bool,
    pub(super) local: bool,
}

/// The faces of all boxes and the pins of all cells.
pub(super) struct Pins {
    pub(super) faces: Vec<Face>,
    /// For each layer but the last the runs to the next.
    pub(super) runs: Vec<Vec<Run>>,
    /// For each cell its extent across the flow.
    pub(super) extent: Vec<usize>,
    of_links: Vec<LinkPin>,
    /// For each box the offsets at which lines leave it, towards the layer after and before.
    leaving: Vec<[Vec<usize>; 2]>,
}

/// For a link its channel, its run there, and its place among the near ends of that.
type LinkPin = (usize, usize, usize);

/// A pin by channel, run, side (near or not) and place on that side.
type PinId = (usize, usize, bool, usize);

impl Pins {
    pub(super) fn of(picture: &Picture, layers: &Layers, style: &Style) -> Self {
        let faces = (0..layers.boxes).map(|node| face(picture, layers, node, style)).collect();
        let (runs, of_links) = runs(picture, layers, style);
        let mut pins = Self {
            faces,
            runs,
            extent: vec![1; layers.cells()],
            of_links,
            leaving: vec![[Vec::new(), Vec::new()]; layers.boxes],
        };
        pins.spread(layers, style.flow);
        pins
    }

    /// The offsets of a link's two pins.
    pub(super) fn of_link(&self, at: usize, link: &Link) -> (usize, usize) {
        let (channel, run, near) = self.of_links[at];
        let run = &self.runs[channel][run];
        let far = run.far.iter().find(|end| end.0 == link.to).map_or(0, |end| end.1.offset);
        (run.near[near].1.offset, far)
    }

    /// The offsets at which lines leave a box towards the layer after, or the one before.
    pub(super) fn leaving(&self, node: usize, after: bool) -> &[usize] {
        &self.leaving[node][usize::from(!after)]
    }

    fn pin(&mut self, (channel, run, is_near, nth): PinId) -> &mut Pin {
        let run = &mut self.runs[channel][run];
        let ends = if is_near { &mut run.near } else { &mut run.far };
        &mut ends[nth].1
    }

    /// Gives the pins of every box their offsets, in the order of what they lead to.
    fn spread(&mut self, layers: &Layers, flow: Flow) {
        let position = positions(layers);
        let mut sides: Vec<[Vec<(f64, PinId)>; 2]> = vec![[Vec::new(), Vec::new()]; layers.boxes];
        let mean = |ends: &[(usize, Pin)]| {
            ends.iter().map(|end| position[end.0] as f64).sum::<f64>() / ends.len() as f64
        };
        for (channel, runs) in self.runs.iter().enumerate() {
            for (at, run) in runs.iter().enumerate() {
                for (is_near, ends, others) in
                    [(true, &run.near, &run.far), (false, &run.far, &run.near)]
                {
                    for (nth, (cell, _)) in ends.iter().enumerate() {
                        if let Some(side) = sides.get_mut(*cell) {
                            side[usize::from(!is_near)]
                                .push((mean(others), (channel, at, is_near, nth)));
                        }
                    }
                }
            }
        }
        for (node, mut side) in sides.into_iter().enumerate() {
            let face = &self.faces[node];
            let mut inner = match flow {
                Flow::Right => face.lines.len(),
                Flow::Down => face.columns,
            };
            // Lines that leave the upper wall stand beside the name of the group that is in it.
            let leaves_above =
                side[1].iter().any(|&(_, (channel, run, ..))| self.runs[channel][run].back);
            let said = face.group.as_deref().filter(|_| flow == Flow::Down && leaves_above);
            let reserved = [0, said.map_or(0, |group| width(group) + 4)];
            let mut slots = [Vec::new(), Vec::new()];
            for ((side, slots), reserved) in side.iter_mut().zip(&mut slots).zip(reserved) {
                side.sort_by(|a, b| a.0.total_cmp(&b.0));
                for &(_, id) in side.iter() {
                    let caption = self.pin(id).caption.as_deref().map(width);
                    slots.push(match flow {
                        Flow::Right => 1,
                        Flow::Down => caption.map_or(1, |columns| columns + 2),
                    });
                }
                inner = inner.max(reserved + total(slots, flow));
            }
            self.extent[node] = inner + 2;
            for ((side, slots), reserved) in side.into_iter().zip(&slots).zip(reserved) {
                let mut offset = 1 + reserved + (inner - reserved - total(slots, flow)) / 2;
                for ((_, id), slot) in side.into_iter().zip(slots) {
                    self.pin(id).offset = offset;
                    let (channel, run, is_near, _) = id;
                    if is_near != self.runs[channel][run].back {
                        self.leaving[node][usize::from(!is_near)].push(offset);
                    }
                    offset += slot + between(flow);
                }
            }
        }
    }
}

fn between(flow: Flow) -> usize {
    match flow {
        Flow::Right => 0,
        Flow::Down => 1,
    }
}

fn total(slots: &[usize], flow: Flow) -> usize {
    slots.iter().sum::<usize>() + slots.len().saturating_sub(1) * between(flow)
}

/// What a run must have in common to take another edge in: see the head of this file.
type Shared = (Vec<usize>, bool);

fn runs(picture: &Picture, layers: &Layers, style: &Style) -> (Vec<Vec<Run>>, Vec<LinkPin>) {
    let caption = |edge: usize| {
        let caption = picture.edges[edge].caption();
        caption.map(|caption| shorten(&clean(&caption), style.name_max, style.ascii))
    };
    // A net leaves a layer at one cell: its hub or its bend there.
    let mut leaving: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (at, link) in layers.links.iter().enumerate() {
        leaving.entry((link.from, link.net)).or_default().push(at);
    }
    let mut runs: Vec<Vec<Run>> = layers.rows.iter().skip(1).map(|_| Vec::new()).collect();
    let mut of_links = vec![(0, 0, 0); layers.links.len()];
    let mut shared: HashMap<(usize, Shared), usize> = HashMap::new();
    for ((from, net), links) in leaving {
        let (number, net) = (layers.layer[from], &layers.nets[net]);
        let mut to: Vec<usize> = links.iter().map(|&link| layers.links[link].to).collect();
        to.sort_unstable();
        let can_share = !net.back && to.iter().all(|&cell| !layers.is_bend(cell));
        let channel = &mut runs[number];
        let new = channel.len();
        let run = match can_share {
            true => *shared.entry((number, (to.clone(), net.local))).or_insert(new),
            false => new,
        };
        if run == new {
            let far = to.into_iter().map(|cell| {
                let end = net.ends.iter().position(|&end| net.back && end == cell);
                let caption = end.and_then(|end| caption(net.edges[end]));
                (cell, Pin { caption, offset: 0 })
            });
            let far = far.collect();
            channel.push(Run { near: Vec::new(), far, back: net.back, local: net.local });
        }
        let is_hub = from == net.hub && !net.back;
        let caption = net.edges.first().filter(|_| is_hub).and_then(|&edge| caption(edge));
        for link in links {
            of_links[link] = (number, run, channel[run].near.len());
        }
        channel[run].near.push((from, Pin { caption, offset: 0 }));
    }
    (runs, of_links)
}

fn face(picture: &Picture, layers: &Layers, node: usize, style: &Style) -> Face {
    let it = &picture.nodes[node];
    let short = |text: &str| shorten(&clean(text), style.name_max, style.ascii);
    let name = short(&it.name);
    let mut notes: Vec<String> = it.notes.iter().map(|note| short(note)).collect();
    for &edge in &layers.loops[node] {
        let caption = picture.edges[edge].caption().unwrap_or_else(|| "to itself".to_owned());
        let mark = if style.ascii { "loop: " } else { "↺ " };
        notes.push(format!("{mark}{}", short(&caption)));
    }
    let between = if style.ascii { ", " } else { " · " };
    let notes = fill(&notes, between, NOTES_COLUMNS.max(width(&name)));
    let group = picture.group_of(node).filter(|_| style.show_groups);
    let group = group.map(|group| short(&picture.groups[group]));
    let mut lines = vec![name];
    lines.extend(notes);
    let text = lines.iter().map(|line| width(line) + 2).max().unwrap_or(2);
    let columns = text.max(group.as_deref().map_or(0, |group| width(group) + 4));
    Face { kind: it.kind, group, lines, columns }
}
