//! The defaults of a plan, in one place.

use std::time::Duration;

/// The cluster that takes every stage no other names, if none is said to.
pub const CLUSTER: &str = "main";
/// The cluster of the stages that the program declares blocking.
pub const BLOCKING: &str = "blocking";
/// Its threads: enough for some handlers that wait, and few enough to be started with the program.
pub const BLOCKING_THREADS: usize = 16;
/// How threads choose what to do next.
pub const POLICY: &str = "stealing";
/// Places in a queue: four full chunks, so that a producer and a consumer overlap, and small
/// enough that a pipeline's queues stay in a core's second-level cache.
pub const CAPACITY: usize = 1_024;
/// Events per visit at most: one chunk.
pub const BATCH: usize = 512;
/// Events one event may emit.
pub const EMIT_MAX: usize = 1 << 20;
/// Requests of a gateway in flight: far above what a machine has under way at once, and some megabytes.
pub const IN_FLIGHT: usize = 10_000;
/// Failed events kept per stage.
pub const FAILURES_MAX: usize = 1_000;
/// Time for a drain.
pub const DRAIN: Duration = Duration::from_secs(10);
/// When a handler counts as stuck.
pub const STUCK_AFTER: Duration = Duration::from_secs(5);
/// The most threads of a cluster: a bound against slips, far above any use.
pub const THREADS_MAX: usize = 1_024;
/// The least and the most events a second of a source that has a rate: bounds against slips.
pub const RATE_MIN: f64 = 1e-6;
/// See [`RATE_MIN`].
pub const RATE_MAX: f64 = 1e9;
/// The most instances of a stage, likewise.
pub const INSTANCES_MAX: usize = 1 << 14;
