//! Plan files: plans as TOML text.
//!
//! 1. `tree`: text becomes values with their places, `${NAME}` substituted.
//! 2. `schema`: the one table of keys: how each is read, shown and explained.
//! 3. `secrets`: values that no message shows.
//! 4. `spec`: files and flags, of which later ones override earlier ones, become a
//!    [`Plan`](comporta_model::plan::Plan).
//! 5. `app`: the section that belongs to the program, read into its own struct; `patches`, past its mistakes.
//! 6. `effective`: every setting in effect with its origin; as text, and compared with another plan.
//! 7. `report`: mistakes, each with its place in the text; `escape`: texts of others as they may be shown.
//!
//! Nothing here runs a program, and no text, however mangled, makes it panic.

mod tree;
mod schema;
mod secrets;
mod spec;
mod patches;
mod app;
mod effective;
mod escape;
mod report;

pub use comporta_model::plan::bare;
pub use effective::{Difference, Effective};
pub use escape::{escaped, escaped_lines};
pub use report::{Mistake, Report};
pub use spec::PlanSpec;

/// Returns every key that a plan file may have, with its meaning.
#[must_use]
pub fn keys() -> Vec<(String, &'static str)> {
    schema::keys()
}
