//! Drawings for a terminal, kept as files that were looked at. To look again after a change:
//! `BLESS=1 cargo test -p comporta-cli`, then read the difference.

use super::{samples, trace};
use comporta_cli::draw::{self, Edge, Kind, Node, Picture, Way};
use proptest::prelude::*;
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// Compares a drawing with the file that was looked at, or replaces it.
fn keep(name: &str, drawn: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/draw/drawings").join(name);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&file, drawn).expect("the drawing can be written");
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(drawn, kept, "{name} is drawn differently\n{drawn}\nand was\n{kept}");
}

#[test]
fn samples_are_drawn_as_they_were_looked_at() {
    for (name, picture) in samples::all() {
        keep(&format!("{name}.txt"), &draw::text(&picture, 80, false));
    }
}

#[test]
fn a_narrow_or_plain_terminal_gets_a_drawing_too() {
    for (name, picture) in samples::all() {
        if ["weblog", "webserver", "orders", "loops"].contains(&name) {
            keep(&format!("{name}.narrow.txt"), &draw::text(&picture, 48, false));
            keep(&format!("{name}.wide.txt"), &draw::text(&picture, 160, false));
            keep(&format!("{name}.ascii.txt"), &draw::text(&picture, 80, true));
        }
    }
}

#[test]
fn samples_say_what_the_graph_says() {
    for (name, picture) in samples::all() {
        if !["long-names", "wide-names"].contains(&name) {
            for width in [60, 80, 200] {
                assert_drawn(&picture, &draw::text(&picture, width, false));
            }
        }
    }
}

#[test]
fn names_that_would_look_alike_when_cut_are_listed_instead() {
    let names: Vec<String> =
        (0..2).map(|n| format!("{}{n}{}", "x".repeat(40), "y".repeat(40))).collect();
    let picture = samples::picture("", &format!("{}! -> {}", names[0], names[1]));
    let listed = draw::text(&picture, 40, false);
    assert!(listed.starts_with("Listed, not drawn: 2 stages and 1\nconnection are"), "{listed}");
}

#[test]
fn a_picture_without_boxes_says_so() {
    assert_eq!(draw::text(&draw::Picture::default(), 80, false), "(no stages)\n");
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let picture = samples::picture("a\u{1b}[2J", "x\u{7}y! -> z");
    assert!(draw::text(&picture, 80, false).chars().all(|c| c == '\n' || !c.is_control()));
}

/// Whether the boxes of a picture and its edges, and no others, can be read from a drawing.
fn assert_drawn(picture: &Picture, drawn: &str) {
    let names: Vec<String> = picture.nodes.iter().map(|node| node.name.clone()).collect();
    let (loops, edges): (HashSet<_>, HashSet<_>) =
        picture.edges.iter().map(|edge| (edge.from, edge.to)).partition(|(from, to)| from == to);
    if drawn.contains("Listed, not drawn") {
        assert_eq!(trace::listed(drawn, &names), &edges | &loops, "{picture:?}\n{drawn}");
    } else {
        assert_eq!(trace::edges(drawn, &names), edges, "{picture:?}\n{drawn}");
        assert!(drawn.matches('↺').count() >= loops.len(), "{drawn}");
    }
}

fn pictures() -> impl Strategy<Value = Picture> {
    let edge = (0..16usize, 0..16usize, 0..4usize, any::<bool>());
    let notes = (0..3usize, 0..4usize);
    let nodes = proptest::collection::vec(notes, 1..16);
    (nodes, proptest::collection::vec(edge, 0..30)).prop_map(|(nodes, edges)| {
        let n = nodes.len();
        let nodes = nodes.into_iter().enumerate().map(|(at, (kind, notes))| Node {
            name: format!("n{at}"),
            kind: [Kind::Source, Kind::Input, Kind::Stage][kind],
            notes: (0..notes).map(|note| format!("note-{note}")).collect(),
            group: (notes < 3).then_some(notes),
        });
        let edges = edges.into_iter().map(|(from, to, port, local)| Edge {
            from: from % n,
            to: to % n,
            label: (port > 0).then(|| format!("p{port}")),
            way: Way::Plain,
            local,
        });
        Picture {
            title: "random".to_owned(),
            nodes: nodes.collect(),
            groups: ["red", "green", "blue"].map(str::to_owned).to_vec(),
            edges: edges.collect(),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lines_lead_from_each_box_to_exactly_the_boxes_it_sends_to(picture in pictures(), width in 30..200usize) {
        assert_drawn(&picture, &draw::text(&picture, width, false));
    }

    #[test]
    fn no_line_is_too_wide_and_no_name_is_missing(picture in pictures(), width in 16..100usize, ascii: bool) {
        let drawn = draw::text(&picture, width, ascii);
        for line in drawn.lines() {
            prop_assert!(line.chars().count() <= width, "{width}: {drawn}");
        }
        prop_assert!(!ascii || drawn.is_ascii(), "{drawn}");
        for node in &picture.nodes {
            let said = drawn.split(|c: char| !c.is_alphanumeric()).any(|word| word == node.name);
            prop_assert!(said, "{}: {drawn}", node.name);
        }
    }

    #[test]
    fn no_text_breaks_a_drawing(names in proptest::collection::vec("\\PC{0,30}", 1..6), width in 0..80usize) {
        let mut picture = Picture { title: names[0].clone(), ..Picture::default() };
        for (at, name) in names.iter().enumerate() {
            picture.nodes.push(Node { name: name.clone(), kind: Kind::Stage, notes: names.clone(), group: Some(at) });
            picture.edges.push(Edge { from: at, to: names.len(), label: Some(name.clone()), way: Way::ByKey, local: false });
            picture.edges.push(Edge { from: at, to: 0, label: Some(name.clone()), way: Way::ByKey, local: false });
        }
        // One of the two edges of each box leads nowhere.
        picture.groups = names;
        for ascii in [false, true] {
            for line in draw::text(&picture, width, ascii).lines() {
                prop_assert!(unicode_width(line) <= width.max(16), "{line}");
            }
        }
        prop_assert!(draw::svg(&picture).ends_with("</svg>\n"));
        let dot = draw::dot(&picture);
        prop_assert_eq!(dot.matches(" -> n").count(), picture.edges.len() / 2);
    }
}

fn unicode_width(line: &str) -> usize {
    line.chars().filter_map(unicode_width::UnicodeWidthChar::width).sum()
}
