//! A picture for Graphviz, which lays it out itself: `dot -Tsvg`.

use super::picture::{Kind, Picture};
use std::fmt::Write;

/// The picture as a Graphviz digraph, with groups as clusters.
#[must_use]
pub fn dot(picture: &Picture) -> String {
    let mut out = String::new();
    write_dot(picture, &mut out).expect("writing to a string does not fail");
    out
}

fn write_dot(picture: &Picture, out: &mut String) -> std::fmt::Result {
    writeln!(out, "digraph {} {{", quoted(&picture.title))?;
    writeln!(out, "  rankdir=LR;")?;
    writeln!(out, "  node [shape=box, style=rounded, fontname=\"Helvetica\"];")?;
    writeln!(out, "  edge [fontname=\"Helvetica\", fontsize=10];")?;
    let mut members = vec![Vec::new(); picture.groups.len()];
    let mut alone = Vec::new();
    for node in 0..picture.nodes.len() {
        match picture.group_of(node) {
            Some(group) => members[group].push(node),
            None => alone.push(node),
        }
    }
    for (group, nodes) in members.iter().enumerate().filter(|(_, nodes)| !nodes.is_empty()) {
        writeln!(out, "  subgraph cluster_{group} {{")?;
        writeln!(out, "    label={};", quoted(&picture.groups[group]))?;
        writeln!(out, "    style=\"rounded,dashed\";")?;
        for &node in nodes {
            write_node(picture, node, "    ", out)?;
        }
        writeln!(out, "  }}")?;
    }
    for node in alone {
        write_node(picture, node, "  ", out)?;
    }
    for (_, edge) in picture.sound_edges() {
        write!(out, "  n{} -> n{}", edge.from, edge.to)?;
        let mut said = Vec::new();
        if let Some(caption) = edge.caption() {
            said.push(format!("label={}", quoted(&caption)));
        }
        if edge.local {
            said.push("style=dashed".to_owned());
        }
        match said.is_empty() {
            true => writeln!(out, ";")?,
            false => writeln!(out, " [{}];", said.join(", "))?,
        }
    }
    writeln!(out, "}}")
}

fn write_node(picture: &Picture, node: usize, indent: &str, out: &mut String) -> std::fmt::Result {
    let it = &picture.nodes[node];
    let mut label = it.name.clone();
    if !it.notes.is_empty() {
        label.push('\n');
        label.push_str(&it.notes.join(", "));
    }
    let shape = match it.kind {
        Kind::Source => ", shape=cds, style=solid",
        Kind::Input => ", shape=invhouse, style=solid",
        Kind::Stage => "",
    };
    writeln!(out, "{indent}n{node} [label={}{shape}];", quoted(&label))
}

/// A quoted identifier of the DOT language. A backslash begins an escape in a label, so it is doubled.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
