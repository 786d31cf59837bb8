//! What users may rely on, one file per promise.

#![allow(clippy::unwrap_used, reason = "helpers of tests are not known as tests")]

mod pipelines;
mod finish;
mod retries;
