//! What is too large for a drawing, as an indented list: each box in the order of the layers, and
//! below it where its events go.

use super::layers::Layers;
use super::measure::{clean, fill, shorten, width};
use super::picture::{Kind, Picture};

/// The list, in lines of at most `columns`.
pub(super) fn listing(picture: &Picture, columns: usize, ascii: bool) -> Vec<String> {
    let layers = Layers::of(picture);
    let mut outs = vec![Vec::new(); picture.nodes.len()];
    for (at, edge) in picture.sound_edges() {
        outs[edge.from].push(at);
    }
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let (stages, edges) = (picture.nodes.len(), picture.sound_edges().count());
    let said = format!(
        "Listed, not drawn: {} and {} are too much for {columns} columns.",
        count(stages, "stage"),
        count(edges, "connection")
    );
    let words: Vec<String> = said.split(' ').map(str::to_owned).collect();
    let mut lines = fill(&words, " ", columns);
    lines.push(String::new());
    let show_groups = picture.has_groups();
    for &node in layers.rows.iter().flatten().filter(|&&cell| !layers.is_bend(cell)) {
        lines.extend(head(picture, node, show_groups, columns, ascii));
        // Edges of one caption share a line.
        let mut by_caption: Vec<(String, Vec<String>)> = Vec::new();
        for &at in &outs[node] {
            let edge = &picture.edges[at];
            let caption = edge.caption().map_or(String::new(), |c| format!("{} ", clean(&c)));
            let local = if edge.local { "local " } else { "" };
            let arrow = if ascii { "->" } else { "→" };
            let caption = format!("{caption}{local}{arrow} ");
            let to = clean(&picture.nodes[edge.to].name);
            match by_caption.last_mut().filter(|(last, _)| *last == caption) {
                Some((_, names)) => names.push(to),
                None => by_caption.push((caption, vec![to])),
            }
        }
        for (caption, names) in by_caption {
            let caption = shorten(&caption, columns / 2, ascii);
            let indent = 4 + width(&caption);
            let room = columns.saturating_sub(indent + 1).max(1);
            let last = names.len() - 1;
            let names: Vec<String> = (names.iter().enumerate())
                .map(|(nth, name)| shorten(name, room, ascii) + if nth < last { "," } else { "" })
                .collect();
            for (nth, line) in fill(&names, " ", room + 1).into_iter().enumerate() {
                lines.push(match nth {
                    0 => format!("    {caption}{line}"),
                    _ => format!("{:indent$}{line}", ""),
                });
            }
        }
    }
    lines
}

/// A box: its name, its kind, its group and its notes.
fn head(
    picture: &Picture,
    node: usize,
    show_groups: bool,
    columns: usize,
    ascii: bool,
) -> Vec<String> {
    let it = &picture.nodes[node];
    let mut said = Vec::new();
    match it.kind {
        Kind::Source => said.push("source".to_owned()),
        Kind::Input => said.push("input".to_owned()),
        Kind::Stage => {}
    }
    if let Some(group) = picture.group_of(node).filter(|_| show_groups) {
        said.push(format!("in {}", clean(&picture.groups[group])));
    }
    said.extend(it.notes.iter().map(|note| clean(note)));
    let name = shorten(&clean(&it.name), columns, ascii);
    if said.is_empty() {
        return vec![name];
    }
    let said: Vec<String> = said
        .iter()
        .enumerate()
        .map(|(nth, word)| {
            let after = if nth + 1 < said.len() { "," } else { ")" };
            let before = if nth == 0 { "(" } else { "" };
            format!("{before}{}{after}", shorten(word, columns.saturating_sub(6), ascii))
        })
        .collect();
    let mut words = vec![name];
    words.extend(said);
    let mut lines = fill(&words, " ", columns.saturating_sub(4));
    lines.iter_mut().skip(1).for_each(|line| line.insert_str(0, "    "));
    lines
}
