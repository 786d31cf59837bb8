//! What users may rely on, one file per theme of the promises.

#![allow(clippy::unwrap_used, reason = "helpers of tests are not known as tests")]

mod seen;
mod pipelines;
mod failures;
mod bounds;
mod ends;
mod endings;
mod finish;
mod retries;
mod found;
