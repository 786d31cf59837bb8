//! A picture for a terminal: the largest drawing that fits the width, or a list.
//! Tried in this order: from left to right, from top to bottom, then both with ever shorter names,
//! as long as these still tell the boxes apart.

use super::canvas::Canvas;
use super::layers::Layers;
use super::listing::listing;
use super::measure::{clean, fill, shorten, width as columns};
use super::order::order;
use super::picture::{Kind, Picture};
use super::sheet::{Flow, Style, sheet};
use std::collections::HashSet;

/// Nobody follows lines among more boxes or edges than this; a list is searched more easily.
const BOXES_MAX: usize = 120;
const EDGES_MAX: usize = 240;
/// The lengths names are cut to if they do not fit.
const NAMES: [usize; 5] = [usize::MAX, 24, 16, 12, 8];
/// Narrower terminals are taken to be this wide.
const WIDTH_MIN: usize = 16;

/// Draws a picture for a terminal of `width` columns; with `ascii`, without line drawing
/// characters. No line is wider, but for terminals under 16 columns.
#[must_use]
pub fn text(picture: &Picture, width: usize, ascii: bool) -> String {
    let width = width.max(WIDTH_MIN);
    let mut lines = Vec::new();
    if !picture.title.is_empty() {
        lines.extend([shorten(&clean(&picture.title), width, ascii), String::new()]);
    }
    match drawing(picture, width, ascii) {
        Some(drawn) => {
            lines.extend(drawn);
            lines.extend(legend(picture, width, ascii));
        }
        None => lines.extend(listing(picture, width, ascii)),
    }
    lines.push(String::new());
    lines.join("\n")
}

fn drawing(picture: &Picture, width: usize, ascii: bool) -> Option<Vec<String>> {
    if picture.nodes.is_empty() {
        return Some(vec!["(no stages)".to_owned()]);
    }
    if picture.nodes.len() > BOXES_MAX || picture.edges.len() > EDGES_MAX {
        return None;
    }
    let parts: Vec<(Picture, Layers)> = picture
        .parts()
        .into_iter()
        .map(|part| {
            let mut layers = Layers::of(&part);
            let lane = vec![0; layers.cells()];
            order(&mut layers, &lane);
            (part, layers)
        })
        .collect();
    let show_groups = picture.has_groups();
    NAMES.into_iter().filter(|&name_max| tells_apart(picture, name_max, ascii)).find_map(
        |name_max| {
            [Flow::Right, Flow::Down].into_iter().find_map(|flow| {
                let style = Style { flow, name_max, width, ascii, show_groups };
                let sheets: Option<Vec<Canvas>> =
                    parts.iter().map(|(part, layers)| sheet(part, layers, &style)).collect();
                let lines = |(nth, canvas): (usize, &Canvas)| {
                    let between = (nth > 0).then(String::new);
                    between.into_iter().chain(canvas.lines()).collect::<Vec<_>>()
                };
                Some(sheets?.iter().enumerate().flat_map(lines).collect())
            })
        },
    )
}

/// Whether names that differ still do when they are cut.
fn tells_apart(picture: &Picture, name_max: usize, ascii: bool) -> bool {
    let names: HashSet<&str> = picture.nodes.iter().map(|node| node.name.as_str()).collect();
    let cut: HashSet<String> =
        names.iter().map(|name| shorten(&clean(name), name_max, ascii)).collect();
    name_max == usize::MAX || names.len() == cut.len()
}

/// What the shapes mean, as far as they occur.
fn legend(picture: &Picture, width: usize, ascii: bool) -> Vec<String> {
    let has = |kind| picture.nodes.iter().any(|node| node.kind == kind);
    let mut said = Vec::new();
    if has(Kind::Source) {
        said.push(if ascii { "+==+ source" } else { "╔══╗ source" }.to_owned());
    }
    if has(Kind::Input) {
        said.push(if ascii { "+~~+ input" } else { "╭──╮ input" }.to_owned());
    }
    if picture.sound_edges().any(|(_, edge)| edge.local) {
        said.push(if ascii { "..> local" } else { "╌╌► local" }.to_owned());
    }
    let mut lines = fill(&said, "   ", width);
    debug_assert!(lines.iter().all(|line| columns(line) <= width));
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}
