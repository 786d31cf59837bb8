//! What holds of every policy, and of the mock they are tried on.

#![expect(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

mod any_cluster;
mod elastic;
mod mock;
