//! A picture as SVG, readable on light and on dark pages. Before: `frame`.
//! Edges are curves within the channels and pass a layer only where they have a bend, so none
//! runs through a box. Those that go back are drawn in another colour.

use super::frame::{Frame, MARGIN, NAME_LINE, NOTE_LINE};
use super::picture::{Kind, Picture};
use std::fmt::{self, Write};

/// Classes may be restyled by whoever embeds the picture.
const CSS: &str = include_str!("style.css");
/// Colours of groups, in `style.css`.
const TINTS: usize = 6;

/// The picture as a self-contained SVG document.
#[must_use]
pub fn svg(picture: &Picture) -> String {
    let frame = Frame::of(picture);
    let mut out = String::new();
    write_svg(picture, &frame, &mut out).expect("writing to a string does not fail");
    out
}

fn write_svg(picture: &Picture, frame: &Frame, out: &mut String) -> fmt::Result {
    let (wide, high) = frame.size(picture);
    let title = escaped(&picture.title);
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{wide:.0}" height="{high:.0}" viewBox="0 0 {wide:.0} {high:.0}">"#
    )?;
    writeln!(out, "<title>{title}</title>\n<style>\n{CSS}</style>\n<defs>")?;
    for (id, class) in [("head", "head"), ("head-back", "head-back")] {
        writeln!(
            out,
            r#"<marker id="{id}" class="{class}" viewBox="0 0 10 10" refX="9.5" refY="5" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 1 10 5 0 9 2.5 5z"/></marker>"#
        )?;
    }
    writeln!(out, r#"</defs><rect class="page" width="100%" height="100%" rx="12"/>"#)?;
    writeln!(out, r#"<text class="title" x="{MARGIN}" y="38">{title}</text>"#)?;
    if picture.has_groups() {
        write_groups(picture, frame, out)?;
    }
    write_edges(picture, frame, out)?;
    for node in 0..picture.nodes.len() {
        write_box(picture, frame, node, out)?;
    }
    writeln!(out, "</svg>")
}

fn write_groups(picture: &Picture, frame: &Frame, out: &mut String) -> fmt::Result {
    for (group, area) in frame.group_areas(picture).into_iter().enumerate() {
        let Some((x, y, wide, high)) = area else { continue };
        let (tint, name) = (group % TINTS, escaped(&picture.groups[group]));
        writeln!(
            out,
            r#"<rect class="group tint{tint}" x="{x:.1}" y="{y:.1}" width="{wide:.1}" height="{high:.1}" rx="12"/><text class="group-name tint{tint}" x="{:.1}" y="{:.1}">{name}</text>"#,
            x + 12.0,
            y + 20.0
        )?;
    }
    Ok(())
}

fn write_edges(picture: &Picture, frame: &Frame, out: &mut String) -> fmt::Result {
    let layers = &frame.layers;
    for link in &layers.links {
        let net = &layers.nets[link.net];
        let channel = frame.channels[layers.layer[link.from]];
        let (y0, y1) = (frame.level(link.net, link.from), frame.level(link.net, link.to));
        // Through the layer to its other side, where the next link begins.
        let beyond = match layers.is_bend(link.to) {
            true => frame.channels[layers.layer[link.to]].start,
            false => channel.end,
        };
        let ((c0, c1), half) = (channel.curve, (channel.curve.1 - channel.curve.0) / 2.0);
        let local = if net.local { " local" } else { "" };
        match net.back {
            false => {
                let head = if layers.is_bend(link.to) { "" } else { r#" marker-end="url(#head)""# };
                writeln!(
                    out,
                    r#"<path class="edge{local}"{head} d="M{:.1} {y0:.1}H{c0:.1}C{:.1} {y0:.1} {:.1} {y1:.1} {c1:.1} {y1:.1}H{beyond:.1}"/>"#,
                    channel.start,
                    c0 + half,
                    c1 - half
                )?;
            }
            true => {
                let is_hub = link.from == net.hub;
                let head = if is_hub { r#" marker-end="url(#head-back)""# } else { "" };
                writeln!(
                    out,
                    r#"<path class="edge back{local}"{head} d="M{beyond:.1} {y1:.1}H{c1:.1}C{:.1} {y1:.1} {:.1} {y0:.1} {c0:.1} {y0:.1}H{:.1}"/>"#,
                    c1 - half,
                    c0 + half,
                    channel.start
                )?;
            }
        }
    }
    write_unbent(frame, out)?;
    write_captions(picture, frame, out)
}

/// Edges too long for bends: straight over everything, but faint.
fn write_unbent(frame: &Frame, out: &mut String) -> fmt::Result {
    let layers = &frame.layers;
    for &at in &layers.unbent {
        let net = &layers.nets[at];
        for &end in &net.ends {
            let (x0, y0) = (frame.channels[layers.layer[net.hub]].start, frame.level(at, net.hub));
            let (x1, y1) = (frame.area(end).0, frame.level(at, end));
            let (x0, y0, x1, y1) = if net.back { (x1, y1, x0, y0) } else { (x0, y0, x1, y1) };
            let (back, head) = if net.back { (" back", "head-back") } else { ("", "head") };
            writeln!(
                out,
                r#"<path class="edge far{back}" marker-end="url(#{head})" d="M{x0:.1} {y0:.1}L{x1:.1} {y1:.1}"/>"#
            )?;
        }
    }
    Ok(())
}

fn write_captions(picture: &Picture, frame: &Frame, out: &mut String) -> fmt::Result {
    for (at, net) in frame.layers.nets.iter().enumerate() {
        let captions = net.ends.iter().zip(&net.edges);
        for (&end, &edge) in captions.take(if net.back { usize::MAX } else { 1 }) {
            let Some(caption) = picture.edges[edge].caption() else { continue };
            let (class, x, cell) = match net.back {
                true => ("port end", frame.area(end).0 - 5.0, end),
                false => ("port", frame.channels[frame.layers.layer[net.hub]].start + 5.0, net.hub),
            };
            let (y, caption) = (frame.level(at, cell) - 4.0, escaped(&caption));
            writeln!(out, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{caption}</text>"#)?;
        }
    }
    Ok(())
}

fn write_box(picture: &Picture, frame: &Frame, node: usize, out: &mut String) -> fmt::Result {
    let it = &picture.nodes[node];
    let (x, y, wide, high) = frame.area(node);
    let (class, round) = match it.kind {
        Kind::Source => ("source", (high / 2.0).min(24.0)),
        Kind::Input => ("input", 0.0),
        Kind::Stage => ("stage", 8.0),
    };
    writeln!(out, r#"<g class="{class}">"#)?;
    let loops = &frame.layers.loops[node];
    if !loops.is_empty() {
        let from = x + wide - 36.0;
        writeln!(
            out,
            r#"<path class="edge back" marker-end="url(#head-back)" d="M{from:.1} {y:.1}c-6 -24 26 -24 18 -1"/>"#
        )?;
        let captions = loops.iter().filter_map(|&edge| picture.edges[edge].caption());
        let captions = escaped(&captions.collect::<Vec<_>>().join(", "));
        let (x, y) = (from - 4.0, y - 6.0);
        writeln!(out, r#"<text class="port end" x="{x:.1}" y="{y:.1}">{captions}</text>"#)?;
    }
    writeln!(
        out,
        r#"<rect class="box" x="{x:.1}" y="{y:.1}" width="{wide:.1}" height="{high:.1}" rx="{round:.1}"/>"#
    )?;
    if it.kind == Kind::Input {
        // An opening at the side where senders send.
        let (top, bottom) = (y, y + high);
        writeln!(out, r#"<path class="box" d="M{:.1} {top:.1}V{bottom:.1}"/>"#, x + 6.0)?;
    }
    let kind = match it.kind {
        Kind::Stage => None,
        _ => Some(class),
    };
    let middle = x + wide / 2.0;
    let lines = frame.notes[node].len() + usize::from(kind.is_some());
    let mut line = y + (high - NAME_LINE - NOTE_LINE * lines as f64) / 2.0 + 15.0;
    let name = escaped(&it.name);
    writeln!(out, r#"<text class="name" x="{middle:.1}" y="{line:.1}">{name}</text>"#)?;
    line += 2.0;
    let kinds = kind.map(|kind| ("note kind", kind.to_owned()));
    let notes = frame.notes[node].iter().map(|note| ("note", escaped(note)));
    for (class, note) in kinds.into_iter().chain(notes) {
        line += NOTE_LINE;
        writeln!(out, r#"<text class="{class}" x="{middle:.1}" y="{line:.1}">{note}</text>"#)?;
    }
    writeln!(out, "</g>")
}

/// Text of XML, without the control characters that XML forbids.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
