//! Drawings of graphs.

mod samples;
mod trace;
mod text;
mod formats;
