//! Comporta in one process.
//!
//! | part | where |
//! |---|---|
//! | what a program is made of | [`App`], `app` |
//! | one event's walk, a hop per file | `path` |
//! | waiting and waking | `sleep`, `timer`, and the lines of `path::admit` |
//! | storage that a worker keeps at hand | `shelf` |
//! | cycles | `cycle` |
//! | a program that runs, and the end | [`Running`], `running` |
//! | live change | [`Control`], `control` |
//! | threads, and how many each pool has | `threads`, `crew`, `pool` |
//! | the policy of a cluster, and what it may do | `govern`, `reins`, `color`; tried beforehand in `rehearse` |
//! | what it has done | [`Snapshot`], `snapshot`; failed events in `failure` |
//! | time, locks and threads, replaceable | `env`, `sync` |
//! | ready-made sources | [`sources`] |
//! | the same program in a test, step by step | [`testing`] |

mod sync;
mod env;
mod app;
mod core;
mod path;
mod sleep;
mod timer;
mod shelf;
mod cycle;
mod failure;
mod snapshot;
mod latency;
mod running;
mod control;
mod threads;
mod crew;
mod pool;
mod govern;
mod reins;
mod rehearse;
mod color;
pub mod sources;
pub mod testing;
#[cfg(all(test, shuttle))]
mod models;

pub use app::{App, StageOf, StageRef, StartError};
pub use control::{Control, ControlError};
pub use failure::{Failure, Reason};
pub use govern::Decision;
pub use latency::Latency;
pub use path::admit::Shed;
pub use path::push::{Push, PushError};
pub use running::{Ended, Running, Summary};
pub use snapshot::{AdmissionSnapshot, Counts, PoolSnapshot, Snapshot, StageSnapshot};
