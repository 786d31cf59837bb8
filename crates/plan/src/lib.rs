//! Plan files: the text in which people say how a program runs.
//!
//! 1. `tree`: text becomes values that know where they stand, `${NAME}` filled in.
//! 2. `schema`: every key a plan may have, once: how it is read, shown and explained.
//! 3. `secrets`: what no message shows.
//! 4. `spec`: files and flags, one over the other, become a [`Plan`](comporta_model::plan::Plan).
//! 5. `app`: the section that belongs to the program, read into its own struct; `patches`, past its mistakes.
//! 6. `effective`: what holds in the end, and who said so; as text, and against another plan.
//! 7. `report`: mistakes, each with its place in the text.
//!
//! Nothing here runs a program, and no text, however mangled, makes it panic.

mod tree;
mod schema;
mod secrets;
mod spec;
mod patches;
mod app;
mod effective;
mod report;

pub use effective::{Difference, Effective};
pub use report::{Mistake, Report};
pub use schema::bare;
pub use spec::PlanSpec;

/// Every key a plan file may have, with what it means.
#[must_use]
pub fn keys() -> Vec<(String, &'static str)> {
    schema::keys()
}
