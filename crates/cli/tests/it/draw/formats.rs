//! SVG, DOT, and what a picture takes from a graph.

use super::samples;
use comporta_cli::draw::{self, Picture, Way};
use comporta_model::graph::{Connector, Graph, Kind, Route, StageId, StageSpec};
use std::time::Duration;

const UGLY: &str = "a<\"&'>\\b";

#[test]
fn an_svg_is_xml_with_every_box_and_every_name() {
    for (name, picture) in samples::all() {
        let svg = draw::svg(&picture);
        let document = roxmltree::Document::parse(&svg).unwrap_or_else(|e| panic!("{name}: {e}"));
        let names: Vec<&str> = document
            .descendants()
            .filter(|node| node.attribute("class") == Some("name"))
            .filter_map(|node| node.text())
            .collect();
        let expected: Vec<&str> = picture.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, expected);
        assert!(svg.contains("prefers-color-scheme: dark"));
    }
}

/// Lines within a box, as (x, y, width, height).
fn numbers(text: &str) -> Vec<f64> {
    text.split(|c: char| !(c.is_ascii_digit() || ".-".contains(c)))
        .filter_map(|number| number.parse().ok())
        .collect()
}

#[test]
fn edges_of_an_svg_run_through_no_box() {
    for (name, picture) in samples::all() {
        let svg = draw::svg(&picture);
        let document = roxmltree::Document::parse(&svg).unwrap();
        let with_class = |class: &'static str| {
            document.descendants().filter(move |node| {
                node.attribute("class").is_some_and(|it| it.split(' ').any(|one| one == class))
            })
        };
        let boxes: Vec<[f64; 4]> = with_class("box")
            .filter(|node| node.has_tag_name("rect"))
            .map(|node| {
                ["x", "y", "width", "height"]
                    .map(|key| node.attribute(key).unwrap().parse().unwrap())
            })
            .collect();
        let mut edges = 0;
        for path in with_class("edge").filter_map(|node| node.attribute("d")) {
            // M x y H x C x y x y x y H x; a loop of a box to itself has other commands.
            let at = numbers(path);
            let [x0, y0, c0, _, _, _, _, c1, y1, x1] = at[..] else { continue };
            edges += 1;
            for &[x, y, wide, high] in &boxes {
                let within = |from: f64, to: f64, level: f64| {
                    let (from, to) = (from.min(to), from.max(to));
                    from < x + wide - 0.2 && to > x + 0.2 && level > y && level < y + high
                };
                assert!(!within(x0, c0, y0) && !within(c1, x1, y1), "{name}: {path}");
                // The curve stays between its ends, where no box is.
                let (low, high) = (c0.min(c1), c0.max(c1));
                assert!(high <= x + 0.2 || low >= x + wide - 0.2, "{name}: {path}");
            }
        }
        assert!(edges >= picture.edges.iter().filter(|edge| edge.from != edge.to).count().min(1));
    }
}

#[test]
fn areas_of_groups_hold_their_boxes_and_no_others() {
    let (_, picture) = samples::all().into_iter().find(|(name, _)| *name == "orders").unwrap();
    let svg = draw::svg(&picture);
    let document = roxmltree::Document::parse(&svg).unwrap();
    let rects = |class: &str| -> Vec<[f64; 4]> {
        document
            .descendants()
            .filter(|node| node.has_tag_name("rect"))
            .filter(|node| node.attribute("class").is_some_and(|it| it.starts_with(class)))
            .map(|node| {
                ["x", "y", "width", "height"]
                    .map(|key| node.attribute(key).unwrap().parse().unwrap())
            })
            .collect()
    };
    let (areas, boxes) = (rects("group"), rects("box"));
    assert_eq!((areas.len(), boxes.len()), (picture.groups.len(), picture.nodes.len()));
    for (node, it) in picture.nodes.iter().zip(&boxes) {
        for (group, area) in areas.iter().enumerate() {
            let apart = |axis: usize| {
                it[axis] + it[axis + 2] < area[axis] || area[axis] + area[axis + 2] < it[axis]
            };
            let inside = |axis: usize| {
                area[axis] < it[axis] && it[axis] + it[axis + 2] < area[axis] + area[axis + 2]
            };
            match node.group == Some(group) {
                true => assert!(inside(0) && inside(1), "{}", node.name),
                false => assert!(apart(0) || apart(1), "{}", node.name),
            }
        }
    }
}

#[test]
fn text_is_escaped() {
    let mut picture = samples::picture(UGLY, "x! -> y");
    picture.nodes[0].name = UGLY.to_owned();
    picture.nodes[0].notes = vec![UGLY.to_owned()];
    picture.edges[0].label = Some(UGLY.to_owned());
    let svg = draw::svg(&picture);
    let document = roxmltree::Document::parse(&svg).unwrap();
    let times = document.descendants().filter(|node| node.is_text() && node.text() == Some(UGLY));
    assert_eq!(times.count(), 5);
    let dot = draw::dot(&picture);
    assert!(dot.starts_with(r#"digraph "a<\"&'>\\b" {"#), "{dot}");
    assert!(dot.contains(r#"n0 -> n1 [label="a<\"&'>\\b"];"#), "{dot}");
}

#[test]
fn dot_has_clusters_captions_and_every_edge() {
    let mut picture = samples::picture(
        "p",
        "in! -> a b|rr\na.x -> ~b\na.y -> a\nin @one\na @two (x4, stateful)\nb",
    );
    picture.groups.push("empty".to_owned());
    let expected = r#"digraph "p" {
  rankdir=LR;
  node [shape=box, style=rounded, fontname="Helvetica"];
  edge [fontname="Helvetica", fontsize=10];
  subgraph cluster_0 {
    label="one";
    style="rounded,dashed";
    n0 [label="in", shape=cds, style=solid];
  }
  subgraph cluster_1 {
    label="two";
    style="rounded,dashed";
    n1 [label="a\nx4, stateful"];
  }
  n2 [label="b"];
  n0 -> n1 [label="in turn"];
  n0 -> n2 [label="in turn"];
  n1 -> n2 [label="x", style=dashed];
  n1 -> n1 [label="y"];
}
"#;
    assert_eq!(draw::dot(&picture), expected);
}

#[test]
fn edges_and_groups_that_name_nothing_are_left_out() {
    let mut picture = samples::picture("p", "a! -> b");
    picture.nodes[0].group = Some(7);
    picture.edges[0].to = 9;
    assert!(!draw::dot(&picture).contains("->"));
    assert!(!draw::svg(&picture).contains("marker-end"));
    assert!(!draw::text(&picture, 80, false).contains('►'));
}

#[test]
fn a_picture_of_a_graph_tells_what_its_stages_declare() {
    let stage = |name: &str, kind, ports| StageSpec::new(name, kind, "u32", ports);
    let connector = |from, port, to: &[u32], route| Connector {
        from: StageId(from),
        port,
        to: to.iter().copied().map(StageId).collect(),
        route,
        local: from == 1,
        again: false,
    };
    let mut graph = Graph {
        name: "app".into(),
        stages: vec![
            stage("in", Kind::Source, &["out"]),
            stage("a", Kind::Stage, &["hit", "miss"]),
            stage("b", Kind::Stage, &[]),
        ],
        connectors: vec![
            connector(0, 0, &[1], Route::One),
            connector(0, 0, &[1, 2], Route::ByKey),
            connector(1, 1, &[2], Route::One),
        ],
        faults: Vec::new(),
        warnings: Vec::new(),
    };
    graph.stages[1].stateful = true;
    graph.stages[1].batched = Some((500, Duration::from_secs(1)));
    let picture = Picture::of(&graph);
    assert_eq!((picture.title.as_str(), picture.nodes[0].kind), ("app", Kind::Source));
    assert_eq!(picture.nodes[1].notes, ["stateful", "batched 500/1s", "hit leads nowhere"]);
    let edges: Vec<_> = picture
        .edges
        .iter()
        .map(|edge| (edge.from, edge.to, edge.label.as_deref(), edge.way, edge.local))
        .collect();
    let expected = [
        (0, 1, None, Way::Copy, false),
        (0, 1, None, Way::ByKey, false),
        (0, 2, None, Way::ByKey, false),
        (1, 2, Some("miss"), Way::Plain, true),
    ];
    assert_eq!(edges, expected);
}

#[test]
fn a_port_that_leads_nowhere_is_drawn() {
    let app = comporta_runtime::App::new("open");
    let numbers = app.source("numbers", || 0..3_u64);
    let work = app.map("work", |n: u64| n);
    app.connect(numbers, work);
    let picture = Picture::of(&app.graph());
    let drawn = draw::text(&picture, 80, false);
    let expected = "\
open

╔═════════╗   ┌───────────────┐
║ numbers ╟──►│ work          │
╚═════════╝   │ leads nowhere │
              └───────────────┘
";
    assert!(drawn.starts_with(expected), "{drawn}");
    assert!(draw::svg(&picture).contains("leads nowhere"));
    assert!(draw::dot(&picture).contains("leads nowhere"));
}
