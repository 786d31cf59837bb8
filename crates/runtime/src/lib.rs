//! Comporta in one process.
//!
//! | part | where |
//! |---|---|
//! | what a program is made of | [`App`], `app`; a stage from a closure, `verbs` |
//! | requests from outside, and their replies | [`App::gateway`], `gateway` |
//! | what handlers share, opened and closed with the run | [`App::resource`], `resource` |
//! | one event's walk, a hop per file | `path`, and in the middle `stage` |
//! | the one way into user code, and what is handed over before | `user`, `effects` |
//! | what all parts share; how stages are joined; the end of a run | `core`, `node`, `wiring`, `run_state` |
//! | waiting and waking | `sleep`, `timer`, and `path::line`; of handlers that wait, `wake_timers`, `reactor` |
//! | who goes first | `priority` |
//! | storage that a worker keeps at hand | `chunk_cache` |
//! | cycles | `cycle` |
//! | a program that runs, and the end | [`Running`], `running` |
//! | live change | [`Control`], `control` |
//! | threads, and how many each pool has | `threads`, `workers`, `pool` |
//! | the policy of a cluster, and what it may do | `policy_host`, `cluster_control`, `cluster_state`, `cpu_share`, `color`; tried beforehand in `rehearse` |
//! | what it has done | [`Snapshot`], `snapshot`; failed events in `failure`, reported by `failed_event`, fed back by `replay` |
//! | time, locks and threads, replaceable; logging | `env`, `sync`, `log` |
//! | ready-made sources | [`sources`] |
//! | event schedulers as sources, and stages of coroutines | `coroutine` (feature `scheduler`) |
//! | the same program in a test, step by step; a keyed stage alone | [`testing`], `keyed_tester` |

mod sync;
mod env;
mod log;
mod app;
mod verbs;
mod prepared;
mod gateway;
mod resource;
mod start_error;
mod core;
mod assignment;
mod node;
mod wiring;
mod run_state;
mod path;
mod stage;
mod effects;
mod user;
mod priority;
mod sleep;
mod timer;
mod wake_timers;
mod reactor;
mod chunk_cache;
mod cycle;
mod failure;
mod failed_event;
#[cfg(feature = "json")]
mod replay;
mod snapshot;
mod latency;
mod running;
mod control;
mod key_state;
mod kept_failures;
mod threads;
mod workers;
mod pool;
mod policy_host;
mod cluster_control;
mod cluster_state;
mod cpu_share;
mod rehearse;
mod color;
#[cfg(feature = "scheduler")]
mod coroutine;
pub mod sources;
pub mod testing;
mod keyed_tester;
#[cfg(all(test, shuttle))]
mod models;

pub use app::{App, Replicate, StageOf, StageRef};
pub use control::{Control, ControlError};
pub use failed_event::FailedEvent;
pub use failure::{Failure, Reason};
pub use gateway::{Client, Gateway, Refusal};
pub use latency::Latency;
pub use path::sender::{SendError, Sender};
pub use policy_host::Decision;
pub use prepared::PreparedRef;
pub use rehearse::PolicyWarning;
#[cfg(feature = "json")]
pub use replay::ReplayError;
pub use resource::{Opened, Resource};
pub use running::{Ended, Running, StageFailures, Summary};
pub use snapshot::{
    AdmissionSnapshot, Counts, EventTimeSnapshot, GatewaySnapshot, KeySnapshot, PoolSnapshot,
    Snapshot, StageSnapshot,
};
pub use stage::permits::Shed;
pub use start_error::StartError;
