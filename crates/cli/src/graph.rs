//! The command `graph`: the program as `draw` draws it, with what the plan says of it, in a file or on standard
//! output. The name of the file says what is drawn.

use std::path::Path;

use comporta_plan::Effective;
use comporta_runtime::App;

use crate::args::GraphArgs;
use crate::draw::{self, Picture};
use crate::{Exit, Refusal, WIDE, print, width};

/// Kinds of pictures that nothing here draws; text in a file that is called like one would be taken for broken.
const OTHER_PICTURES: [&str; 6] = ["png", "jpg", "jpeg", "gif", "pdf", "webp"];

/// Whether the name of a file ends like this, in letters of either case.
fn ends_in(path: &Path, end: &str) -> bool {
    path.extension().is_some_and(|is| is.eq_ignore_ascii_case(end))
}

/// Refuses to draw into a file that is called like a picture of another kind.
pub(crate) fn is_drawable(path: &Path) -> Result<(), Refusal> {
    match OTHER_PICTURES.iter().find(|end| ends_in(path, end)) {
        None => Ok(()),
        Some(end) => Err(Refusal::Said(format!(
            "{}: no {} is drawn: use a name that ends in `.svg`",
            path.display(),
            end.to_uppercase()
        ))),
    }
}

pub(crate) fn draw_graph(
    app: &App,
    effective: &Effective,
    args: &GraphArgs,
) -> Result<Exit, Refusal> {
    args.output.as_deref().map_or(Ok(()), is_drawable)?;
    let graph = app.graph();
    let mut picture = Picture::of(&graph);
    let settings = effective.settings();
    picture.groups = settings.clusters.iter().map(|cluster| cluster.name.clone()).collect();
    for (node, validated) in picture.nodes.iter_mut().zip(&settings.stages) {
        node.group = Some(validated.cluster);
        if validated.instances > 1 {
            node.notes.insert(0, format!("x{}", validated.instances));
        }
        if validated.replicas > 1 {
            node.notes.push(format!("{} replicas", validated.replicas));
        }
        if validated.stub {
            node.notes.push("stub".to_owned());
        }
    }
    let file = args.output.as_ref().filter(|path| path.as_os_str() != "-");
    let named = |end: &str| file.is_some_and(|path| ends_in(path, end));
    let plain = args.svg || args.dot || args.ascii;
    let text = if args.svg || !plain && named("svg") {
        draw::svg(&picture)
    } else if args.dot || !plain && (named("dot") || named("gv")) {
        draw::dot(&picture)
    } else {
        let wide = if file.is_some() { WIDE } else { width() };
        draw::text(&picture, wide, args.ascii)
    };
    match file {
        None => print(&text),
        Some(path) => match std::fs::write(path, text) {
            Ok(()) => Ok(Exit::Done),
            Err(error) => Err(Refusal::Said(format!("{}: {error}", path.display()))),
        },
    }
}
