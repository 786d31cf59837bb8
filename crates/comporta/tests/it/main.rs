//! What users may rely on, one file per theme of the promises.

mod seen;
mod pipelines;
mod failures;
mod bounds;
mod ends;
mod endings;
