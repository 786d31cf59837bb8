//! Drawings of a graph: for the terminal, as SVG and as Graphviz DOT. Pure functions of a `Picture`.
//!
//! 1. `picture`: what is drawn.
//! 2. `layers`: which layer each box stands in; cycles opened, long edges given bends.
//! 3. `order`: the order within a layer, with few crossings.
//! 4. `place`: where along its layer each box stands, so that edges run straight.
//! 5. `text`: boxes and lines in a terminal, with `measure` (names in a bounded width), `channel`
//!    (tracks between two layers), `canvas` (the characters), `pins` (what boxes say, where lines meet them), `sheet` (a drawing from these) and `listing` (for what is too large).
//! 6. `svg`: the same layers with curves; `frame` says where everything stands.
//! 7. `dot`: for Graphviz, which has a layout of its own.

mod picture;
mod layers;
mod order;
mod place;
mod measure;
mod channel;
mod canvas;
mod pins;
mod sheet;
mod listing;
mod text;
mod frame;
mod svg;
mod dot;

pub use dot::dot;
pub use picture::{Edge, Kind, Node, Picture, Way};
pub(crate) use svg::escaped;
pub use svg::svg;
pub use text::text;
