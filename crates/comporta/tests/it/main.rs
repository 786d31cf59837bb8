//! What users may rely on, one file per promise.

mod pipelines;
mod found;
