//! Where everything of an SVG drawing stands, in pixels. Before: `order`. After: `svg`.
//!
//! Groups lie in lanes, so that the area of one holds no box of another; those that cover other
//! layers share a lane. Without groups, unconnected parts lie in lanes.

use super::layers::Layers;
use super::measure::{fill, width as columns};
use super::order::{order, positions};
use super::picture::{Kind, Picture};
use super::place::{Sizes, level, place};
use std::collections::HashMap;

/// A column of a name's font, 14 pixels high and monospaced, and one of the notes' font.
const NAME_COLUMN: f64 = 8.5;
pub(super) const NOTE_COLUMN: f64 = 6.4;
pub(super) const NAME_LINE: f64 = 20.0;
pub(super) const NOTE_LINE: f64 = 15.0;
/// Notes are not longer than this, unless a name or a note is.
const NOTES_COLUMNS: usize = 24;
/// From one pin of a box to the next.
const PIN_STEP: f64 = 18.0;
const BOX_GAP: f64 = 24.0;
const BEND_GAP: f64 = 14.0;
/// How far a box may be moved to make an edge level.
const LEVEL_REACH: f64 = 12.0;
pub(super) const MARGIN: f64 = 28.0;
pub(super) const TITLE: f64 = 36.0;
/// Above a box that sends to itself.
pub(super) const LOOP: f64 = 22.0;
/// Around the boxes of a group, and above them for its name.
const GROUP_PAD: f64 = 20.0;
const GROUP_HEAD: f64 = 20.0;
/// A channel's least width, what it gains per pixel that its steepest edge climbs, and its most.
const CHANNEL: f64 = 60.0;
const CHANNEL_SLOPE: f64 = 0.18;
const CHANNEL_MAX: f64 = 180.0;
/// What the head of an arrow takes.
const HEAD: f64 = 10.0;

/// A channel: from the layer before to the layer after, with room for captions on either side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Channel {
    pub(super) start: f64,
    pub(super) curve: (f64, f64),
    pub(super) end: f64,
}

/// Left, top, width and height.
pub(super) type Area = (f64, f64, f64, f64);

#[derive(Debug)]
pub(super) struct Frame {
    pub(super) layers: Layers,
    /// For each cell its top and its height; with the room for loops.
    top: Vec<f64>,
    height: Vec<f64>,
    /// For each layer its left and its width, and the channel after it.
    column: Vec<(f64, f64)>,
    pub(super) channels: Vec<Channel>,
    /// For each net where it meets its hub, from the top of that.
    hub_pin: Vec<f64>,
    /// For each box where nets enter it, and the same for what leaves it backwards.
    entry: Vec<f64>,
    back_pin: HashMap<(usize, usize), f64>,
    /// For each box its notes in lines.
    pub(super) notes: Vec<Vec<String>>,
}

impl Frame {
    pub(super) fn of(picture: &Picture) -> Self {
        let mut layers = Layers::of(picture);
        let lanes = lanes(picture, &layers);
        order(&mut layers, &lanes);
        let notes: Vec<_> = picture
            .nodes
            .iter()
            .map(|node| fill(&node.notes, " · ", NOTES_COLUMNS.max(columns(&node.name))))
            .collect();
        let mut frame = Self {
            top: Vec::new(),
            height: vec![0.0; layers.cells()],
            column: Vec::new(),
            channels: Vec::new(),
            hub_pin: vec![0.0; layers.nets.len()],
            entry: vec![0.0; layers.boxes],
            back_pin: HashMap::new(),
            notes,
            layers,
        };
        frame.pin(picture);
        let pins: Vec<(f64, f64)> = (frame.layers.links.iter())
            .map(|link| (frame.pin_at(link.net, link.from), frame.pin_at(link.net, link.to)))
            .collect();
        let extent = &frame.height;
        let sizes = Sizes { extent, pins: &pins, gap: BOX_GAP, bend_gap: BEND_GAP };
        let (lane_gap, above) = match picture.has_groups() {
            true => (2.0 * GROUP_PAD + GROUP_HEAD + 2.0 * LEVEL_REACH, GROUP_PAD + GROUP_HEAD),
            false => (2.0 * BOX_GAP, 0.0),
        };
        let top = place(&frame.layers, &sizes, &lanes, lane_gap);
        frame.top = level(&frame.layers, &sizes, &top, LEVEL_REACH);
        frame.top.iter_mut().for_each(|top| *top += MARGIN + TITLE + above);
        frame.columns(picture);
        frame
    }

    /// Heights of boxes, and pins spread over their sides in the order of what they lead to.
    fn pin(&mut self, picture: &Picture) {
        let layers = &self.layers;
        let position = positions(layers);
        let mut means = vec![(0.0, 0.0); layers.nets.len()];
        for link in layers.links.iter().filter(|link| link.from == layers.nets[link.net].hub) {
            means[link.net].0 += position[link.to] as f64;
            means[link.net].1 += 1.0;
        }
        let mut right: Vec<Vec<(f64, usize)>> = vec![Vec::new(); layers.boxes];
        let mut back: Vec<Vec<usize>> = vec![Vec::new(); layers.boxes];
        for (at, net) in layers.nets.iter().enumerate() {
            let mean = means[at].0 / f64::max(means[at].1, 1.0);
            right[net.hub].push((mean, at));
            net.ends.iter().filter(|_| net.back).for_each(|&end| back[end].push(at));
        }
        for (node, right) in right.iter_mut().enumerate() {
            let enters = usize::from(
                !layers.before[node].iter().all(|&link| layers.nets[layers.links[link].net].back),
            );
            let left = enters + back[node].len();
            let pins = right.len().max(left);
            let said =
                self.notes[node].len() + usize::from(picture.nodes[node].kind != Kind::Stage);
            let text = 20.0 + NAME_LINE + NOTE_LINE * said as f64;
            let head = if layers.loops[node].is_empty() { 0.0 } else { LOOP };
            let height = text.max(10.0 + pins as f64 * PIN_STEP);
            self.height[node] = head + height;
            right.sort_by(|a, b| a.0.total_cmp(&b.0));
            let pin = |nth: usize, of: usize| {
                head + height / 2.0 + (nth as f64 - (of as f64 - 1.0) / 2.0) * PIN_STEP
            };
            for (nth, (_, net)) in right.iter().enumerate() {
                self.hub_pin[*net] = pin(nth, right.len());
            }
            self.entry[node] = pin(0, left.max(1));
            for (nth, &net) in back[node].iter().enumerate() {
                self.back_pin.insert((net, node), pin(enters + nth, left));
            }
        }
    }

    /// Where a net meets a cell, from the top of that.
    fn pin_at(&self, net: usize, cell: usize) -> f64 {
        if self.layers.is_bend(cell) {
            return 0.0;
        }
        if cell == self.layers.nets[net].hub {
            return self.hub_pin[net];
        }
        self.back_pin.get(&(net, cell)).copied().unwrap_or(self.entry[cell])
    }

    fn head(&self, node: usize) -> f64 {
        if self.layers.loops[node].is_empty() { 0.0 } else { LOOP }
    }

    /// The level at which a net meets a cell.
    pub(super) fn level(&self, net: usize, cell: usize) -> f64 {
        self.top[cell] + self.pin_at(net, cell)
    }

    /// Lefts and widths of layers and channels.
    fn columns(&mut self, picture: &Picture) {
        let count = self.layers.rows.len();
        let (mut near, mut far) = (vec![0.0f64; count], vec![0.0f64; count]);
        for net in &self.layers.nets {
            for (&end, &edge) in net.ends.iter().zip(&net.edges) {
                let caption = picture.edges[edge].caption();
                let wide = caption.map_or(0.0, |c| columns(&c) as f64 * NOTE_COLUMN + 8.0);
                let (side, at) = match net.back {
                    true => (&mut far, self.layers.layer[end].saturating_sub(1)),
                    false => (&mut near, self.layers.layer[net.hub]),
                };
                side[at] = side[at].max(wide);
            }
        }
        let mut climb = vec![0.0f64; count];
        for link in &self.layers.links {
            let height = (self.level(link.net, link.from) - self.level(link.net, link.to)).abs();
            let at = self.layers.layer[link.from];
            climb[at] = climb[at].max(height);
        }
        let mut left = MARGIN + if picture.has_groups() { GROUP_PAD } else { 0.0 };
        for (number, row) in self.layers.rows.iter().enumerate() {
            let boxes = row.iter().filter(|&&cell| cell < self.layers.boxes);
            let wide = boxes.map(|&node| self.face_width(picture, node)).fold(0.0, f64::max);
            self.column.push((left, wide));
            let start = left + wide;
            let curve = (CHANNEL + CHANNEL_SLOPE * climb[number]).min(CHANNEL_MAX);
            // Straight at both ends, so that heads lie level.
            let curve_start = start + near[number].max(HEAD);
            let curve = (curve_start, curve_start + curve);
            let end = curve.1 + far[number].max(HEAD);
            self.channels.push(Channel { start, curve, end });
            left = end;
        }
    }

    fn face_width(&self, picture: &Picture, node: usize) -> f64 {
        let name = columns(&picture.nodes[node].name) as f64 * NAME_COLUMN;
        let notes = self.notes[node].iter().map(|line| columns(line)).max().unwrap_or(0);
        // The word `source` needs six.
        let loops = if self.layers.loops[node].is_empty() { 0.0 } else { 60.0 };
        name.max(notes.max(6) as f64 * NOTE_COLUMN).max(loops) + 32.0
    }

    /// Where a box is drawn.
    pub(super) fn area(&self, node: usize) -> Area {
        let (left, wide) = self.column[self.layers.layer[node]];
        let head = self.head(node);
        (left, self.top[node] + head, wide, self.height[node] - head)
    }

    /// Where a group is drawn: around all its boxes.
    pub(super) fn group_areas(&self, picture: &Picture) -> Vec<Option<Area>> {
        let mut areas: Vec<Option<(f64, f64, f64, f64)>> = vec![None; picture.groups.len()];
        for node in 0..self.layers.boxes {
            let Some(group) = picture.group_of(node) else { continue };
            let (x, y, wide, high) = self.area(node);
            let (x0, y0, x1, y1) = (x, y - self.head(node), x + wide, y + high);
            let sum = areas[group].get_or_insert((x0, y0, x1, y1));
            *sum = (sum.0.min(x0), sum.1.min(y0), sum.2.max(x1), sum.3.max(y1));
        }
        let pad = |(x0, y0, x1, y1): (f64, f64, f64, f64)| {
            let (x, y) = (x0 - GROUP_PAD, y0 - GROUP_PAD - GROUP_HEAD);
            (x, y, x1 + GROUP_PAD - x, y1 + GROUP_PAD - y)
        };
        areas.into_iter().map(|area| area.map(pad)).collect()
    }

    /// The width and the height of it all.
    pub(super) fn size(&self, picture: &Picture) -> (f64, f64) {
        let pad = MARGIN + if picture.has_groups() { GROUP_PAD } else { 0.0 };
        let right = self.column.last().map_or(0.0, |(left, wide)| left + wide);
        let cells = self.top.iter().zip(&self.height);
        let bottom = cells.map(|(top, height)| top + height).fold(TITLE, f64::max);
        let title = columns(&picture.title) as f64 * 11.0 + 2.0 * MARGIN;
        ((right + pad).max(title), bottom + pad)
    }
}

fn lanes(picture: &Picture, layers: &Layers) -> Vec<usize> {
    let mut lane = match picture.has_groups() {
        true => group_lanes(picture, layers),
        false => picture.part_of_nodes(),
    };
    for &net in &layers.bends {
        lane.push(lane[layers.nets[net].hub]);
    }
    lane
}

fn group_lanes(picture: &Picture, layers: &Layers) -> Vec<usize> {
    let alone = picture.groups.len();
    let group = |node| picture.group_of(node).unwrap_or(alone);
    let mut reach: Vec<Option<(usize, usize)>> = vec![None; alone + 1];
    for node in 0..layers.boxes {
        let (reach, at) = (&mut reach[group(node)], layers.layer[node]);
        let (low, high) = reach.unwrap_or((at, at));
        *reach = Some((low.min(at), high.max(at)));
    }
    let mut by_start: Vec<(usize, usize, usize)> = (reach.into_iter().enumerate())
        .filter_map(|(group, reach)| reach.map(|(low, high)| (low, high, group)))
        .collect();
    by_start.sort_unstable();
    let mut lane_of = vec![0; alone + 1];
    let mut ends: Vec<usize> = Vec::new();
    for (low, high, group) in by_start {
        let lane = ends.iter().position(|&end| end < low).unwrap_or(ends.len());
        match ends.get_mut(lane) {
            Some(end) => *end = high,
            None => ends.push(high),
        }
        lane_of[group] = lane;
    }
    (0..layers.boxes).map(|node| lane_of[group(node)]).collect()
}
