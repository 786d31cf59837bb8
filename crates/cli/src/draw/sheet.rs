//! One drawing of a connected picture in characters, in one direction.
//! Before: `layers`, `order`, and `pins`, which says what boxes say and where wires meet them. It
//! has `place` and `channel` work in characters, draws lines, then boxes over their ends, then
//! heads and captions.
//!
//! Along the flow lie layers and, between them, channels; across it lie the levels of pins.

use super::canvas::Canvas;
use super::channel::{Piece, Wire, route};
use super::layers::Layers;
use super::measure::width;
use super::picture::{Kind, Picture};
use super::pins::{Pin, Pins};
use super::place::{Sizes, place, snap};

/// The direction edges go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Right,
    Down,
}

/// How a sheet is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) flow: Flow,
    /// The longest a name may be.
    pub(super) name_max: usize,
    pub(super) width: usize,
    pub(super) ascii: bool,
    pub(super) show_groups: bool,
}

/// A channel: where it begins along the flow, and its parts in the order they are passed.
struct Channel {
    start: usize,
    /// For heads that point back and captions of what comes in.
    lead: usize,
    /// From one track to the next.
    step: usize,
    pieces: Vec<Piece>,
    end: usize,
}

struct Sheet<'a> {
    layers: &'a Layers,
    style: &'a Style,
    pins: Pins,
    /// For each cell where it begins across the flow.
    at: Vec<usize>,
    /// For each layer where it begins along the flow, and how far it goes.
    layer: Vec<(usize, usize)>,
    canvas: Canvas,
}

/// The drawing, or `None` if it is wider than the style allows.
pub(super) fn sheet(picture: &Picture, layers: &Layers, style: &Style) -> Option<Canvas> {
    let pins = Pins::of(picture, layers, style);
    let link_pins: Vec<(f64, f64)> = (layers.links.iter().enumerate())
        .map(|(at, link)| {
            let (near, far) = pins.of_link(at, link);
            (near as f64, far as f64)
        })
        .collect();
    let extent: Vec<f64> = pins.extent.iter().map(|&extent| extent as f64).collect();
    let (gap, bend_gap) = match style.flow {
        Flow::Right => (0.0, 0.0),
        Flow::Down => (2.0, 1.0),
    };
    let sizes = Sizes { extent: &extent, pins: &link_pins, gap, bend_gap };
    let at = place(layers, &sizes, &vec![0; layers.cells()], 0.0);
    let at = snap(layers, &sizes, &at);
    let canvas = Canvas::new(style.ascii);
    let mut sheet = Sheet { layers, style, pins, at, layer: Vec::new(), canvas };
    let channels = sheet.measure();
    for (layer, channel) in channels.iter().enumerate() {
        sheet.draw_wires(layer, channel);
    }
    sheet.draw_bends();
    for node in 0..layers.boxes {
        sheet.draw_box(node);
    }
    for channel in &channels {
        sheet.draw_heads(channel);
    }
    (sheet.canvas.width() <= style.width).then_some(sheet.canvas)
}

impl Sheet<'_> {
    /// Where each layer and each channel begins.
    fn measure(&mut self) -> Vec<Channel> {
        let mut channels = Vec::new();
        let mut start = 0;
        for (number, row) in self.layers.rows.iter().enumerate() {
            let faces = || row.iter().filter_map(|&cell| self.pins.faces.get(cell));
            let thick = match self.style.flow {
                Flow::Right => faces().map(|face| face.columns).max(),
                Flow::Down => faces().map(|face| face.lines.len()).max(),
            };
            let thick = thick.unwrap_or(0) + 2;
            self.layer.push((start, thick));
            start += thick;
            if number + 1 < self.layers.rows.len() {
                channels.push(self.channel(number, start));
                start = channels[number].end;
            }
        }
        channels
    }

    fn channel(&self, layer: usize, start: usize) -> Channel {
        let runs = &self.pins.runs[layer];
        let levels = |ends: &[(usize, Pin)]| {
            ends.iter().map(|(cell, pin)| self.at[*cell] + pin.offset).collect()
        };
        let wires: Vec<Wire> = runs
            .iter()
            .map(|run| Wire { near: levels(&run.near), far: levels(&run.far) })
            .collect();
        let (pieces, tracks) = route(&wires);
        let caption = |is_near: bool| {
            let pins = runs.iter().flat_map(|run| if is_near { &run.near } else { &run.far });
            pins.filter_map(|(_, pin)| pin.caption.as_deref()).map(width).max()
        };
        let heads_back = runs.iter().any(|run| run.back && !self.layers.is_bend(run.near[0].0));
        let (lead, step, tail) = match self.style.flow {
            Flow::Right => {
                let step = if self.style.name_max == usize::MAX { 2 } else { 1 };
                (caption(true).map_or(1, |c| c + 2), step, caption(false).map_or(2, |c| c + 3))
            }
            Flow::Down => {
                let lead = caption(true).is_some() || heads_back && tracks > 0;
                (usize::from(lead), 1, 1)
            }
        };
        let tracks = (tracks * step).saturating_sub(step - 1);
        Channel { start, lead, step, pieces, end: start + lead + tracks + tail }
    }

    /// A line from one point to another, each as (along, across).
    fn line(&mut self, wire: usize, local: bool, from: (usize, usize), to: (usize, usize)) {
        let turn = |(along, across)| match self.style.flow {
            Flow::Right => (along, across),
            Flow::Down => (across, along),
        };
        self.canvas.line(wire, local, turn(from), turn(to));
    }

    fn draw_wires(&mut self, layer: usize, channel: &Channel) {
        // Lines go one character into the layers, for the boxes to be drawn over.
        let (start, end) = (channel.start.saturating_sub(1), channel.end);
        let track = |piece: &Piece| {
            piece.track.map(|track| channel.start + channel.lead + track * channel.step)
        };
        for piece in &channel.pieces {
            let (wire, local) = (piece.wire + 1, self.pins.runs[layer][piece.wire].local);
            let Some(along) = track(piece) else {
                let level = piece.span().0;
                self.line(wire, local, (start, level), (end, level));
                continue;
            };
            for &level in &piece.ends.near {
                self.line(wire, local, (start, level), (along, level));
            }
            for &level in &piece.ends.far {
                self.line(wire, local, (along, level), (end, level));
            }
            let (low, high) = piece.span();
            self.line(wire, local, (along, low), (along, high));
            if let Some((level, Some(second))) = piece.joins {
                let onward = track(&channel.pieces[second]).unwrap_or(along);
                self.line(wire, local, (along, level), (onward, level));
            }
        }
    }

    fn draw_bends(&mut self) {
        for (nth, &net) in self.layers.bends.iter().enumerate() {
            let cell = self.layers.boxes + nth;
            let (start, thick) = self.layer[self.layers.layer[cell]];
            let (net, level) = (&self.layers.nets[net], self.at[cell]);
            self.line(0, net.local, (start, level), (start + thick - 1, level));
        }
    }

    /// Heads of arrows and captions.
    fn draw_heads(&mut self, channel: &Channel) {
        let (start, end) = (channel.start, channel.end);
        let layer = self.layer.partition_point(|&(at, _)| at < start) - 1;
        for run in &self.pins.runs[layer] {
            for (ends, is_near) in [(&run.near, true), (&run.far, false)] {
                for &(cell, ref pin) in ends.iter().filter(|end| !self.layers.is_bend(end.0)) {
                    let level = self.at[cell] + pin.offset;
                    let along = if is_near { start } else { end - 1 };
                    let (x, y) = match self.style.flow {
                        Flow::Right => (along, level),
                        Flow::Down => (level, along),
                    };
                    if is_near == run.back {
                        self.canvas.text(x, y, self.head(run.back));
                    }
                    let Some(caption) = &pin.caption else { continue };
                    let x = match self.style.flow {
                        Flow::Right if is_near => x + 1,
                        Flow::Right => x - width(caption),
                        Flow::Down => x + 2,
                    };
                    self.canvas.text(x, y, caption);
                }
            }
        }
    }

    fn head(&self, back: bool) -> &'static str {
        match (self.style.flow, back, self.style.ascii) {
            (Flow::Right, false, false) => "►",
            (Flow::Right, false, true) => ">",
            (Flow::Right, true, false) => "◄",
            (Flow::Right, true, true) => "<",
            (Flow::Down, false, false) => "▼",
            (Flow::Down, false, true) => "v",
            (Flow::Down, true, false) => "▲",
            (Flow::Down, true, true) => "^",
        }
    }

    fn draw_box(&mut self, node: usize) {
        let (along, thick) = self.layer[self.layers.layer[node]];
        let (across, extent) = (self.at[node], self.pins.extent[node]);
        let (x, y, columns, rows) = match self.style.flow {
            Flow::Right => (along, across, thick, extent),
            Flow::Down => (across, along, extent, thick),
        };
        let face = &self.pins.faces[node];
        let walls = walls(face.kind, self.style.ascii);
        let (inner, last, bottom) = (columns - 2, x + columns - 1, y + rows - 1);
        let canvas = &mut self.canvas;
        let level = walls.level.repeat(inner);
        canvas.text(x, y, &format!("{}{level}{}", walls.corners[0], walls.corners[1]));
        canvas.text(x, bottom, &format!("{}{level}{}", walls.corners[2], walls.corners[3]));
        for row in y + 1..bottom {
            canvas.text(x, row, &format!("{}{:inner$}{}", walls.upright, "", walls.upright));
        }
        if let Some(group) = &face.group {
            canvas.text(x + 2, y, &format!(" {group} "));
        }
        let first = y + 1 + (rows - 2 - face.lines.len()) / 2;
        for (row, line) in (first..).zip(&face.lines) {
            let indent = match self.style.flow {
                Flow::Right => 1,
                Flow::Down => (inner - width(line)).div_ceil(2),
            };
            canvas.text(x + 1 + indent, row, line);
        }
        // Where a line leaves, the wall opens; where one enters, its head touches it.
        for offset in self.pins.leaving(node, true) {
            match self.style.flow {
                Flow::Right => canvas.text(last, y + offset, walls.to_right),
                Flow::Down => canvas.text(x + offset, bottom, walls.to_below),
            }
        }
        for offset in self.pins.leaving(node, false) {
            match self.style.flow {
                Flow::Right => canvas.text(x, y + offset, walls.to_left),
                Flow::Down => canvas.text(x + offset, y, walls.to_above),
            }
        }
    }
}

/// The characters a box is made of.
struct Walls {
    level: &'static str,
    upright: &'static str,
    corners: [&'static str; 4],
    to_right: &'static str,
    to_left: &'static str,
    to_above: &'static str,
    to_below: &'static str,
}

fn walls(kind: Kind, ascii: bool) -> Walls {
    let (level, upright, corners) = match (kind, ascii) {
        (Kind::Source, true) => ("=", "|", ["+"; 4]),
        (Kind::Input, true) => ("~", "|", ["+"; 4]),
        (Kind::Stage, true) => ("-", "|", ["+"; 4]),
        (Kind::Source, false) => ("═", "║", ["╔", "╗", "╚", "╝"]),
        (Kind::Input, false) => ("─", "│", ["╭", "╮", "╰", "╯"]),
        (Kind::Stage, false) => ("─", "│", ["┌", "┐", "└", "┘"]),
    };
    let [to_right, to_left, to_above, to_below] = match (kind, ascii) {
        (_, true) => ["+"; 4],
        (Kind::Source, false) => ["╟", "╢", "╧", "╤"],
        _ => ["├", "┤", "┴", "┬"],
    };
    Walls { level, upright, corners, to_right, to_left, to_above, to_below }
}
