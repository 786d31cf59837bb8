//! A run for people and for programs. All of it is a pure function of outcomes.
//!
//! 1. `table`: aligned columns.
//! 2. `json`: everything.
//! 3. `sheet`: what pictures share: the page, scales, axes.
//! 4. `timeline`: latency and node loads over time, migrations marked.
//! 5. `bars`: latencies of several strategies, p99 and mean, with their intervals.

mod table;
mod json;
mod sheet;
mod timeline;
mod bars;

pub use bars::{Bars, Group, bars};
pub use json::json;
pub use table::{migrations, summary};
pub use timeline::timeline;
