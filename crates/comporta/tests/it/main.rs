//! What users may rely on, one file per theme of the promises.

#![expect(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

#[path = "../stall/mod.rs"]
mod stall;
mod seen;
mod pipelines;
mod verbs;
mod graphs;
mod ports;
mod failures;
mod bounds;
mod admission;
mod shedding;
mod sources;
mod rates;
mod ends;
mod endings;
mod retries;
mod found;
mod batched;
mod windows;
mod live;
mod replicas;
mod control;
mod compile_fail;
