//! Comporta in one process.
//!
//! | part | where |
//! |---|---|
//! | what a program is made of | [`App`], `app` |
//! | one event's by_order, a hop per file | `path` |
//! | waiting and waking | `sleep`, `timer`, and the lines of `path::admit` |
//! | storage that a worker keeps at hand | `cache` |
//! | cycles | `cycle` |
//! | a program that runs, and the end | [`Running`], `running` |
//! | live change | [`Control`], `control` |
//! | threads, and how many each pool has | `threads`, `workers`, `pool` |
//! | the policy of a cluster, and what it may do | `policy_host`, `control`, `color`; tried beforehand in `rehearse` |
//! | what it has done | [`Snapshot`], `snapshot`; failed events in `failure` |
//! | time, locks and threads, replaceable | `env`, `sync` |
//! | ready-made sources | [`sources`] |
//! | the same program in a test, step by step | [`testing`] |

mod sync;
mod env;
mod app;
mod core;
mod path;
mod stage;
mod effects;
mod user;
mod priority;
mod sleep;
mod timer;
mod chunk_cache;
mod cycle;
mod failure;
mod snapshot;
mod latency;
mod running;
mod control;
mod threads;
mod workers;
mod pool;
mod policy_host;
mod cluster_control;
mod rehearse;
mod color;
pub mod sources;
pub mod testing;
#[cfg(all(test, shuttle))]
mod models;

pub use app::{App, StageOf, StageRef, StartError};
pub use control::{Control, ControlError};
pub use failure::{Failure, Reason};
pub use latency::Latency;
pub use path::push::{Push, PushError};
pub use policy_host::Decision;
pub use running::{Ended, Running, Summary};
pub use snapshot::{AdmissionSnapshot, Counts, PoolSnapshot, Snapshot, StageSnapshot};
pub use stage::permits::Shed;
