//! The defaults of a plan, in one place.

use std::time::Duration;

/// The cluster of every stage that no other cluster names, unless the plan has another one for them.
pub const CLUSTER: &str = "main";
/// The cluster of the stages that the program declares blocking.
pub const BLOCKING: &str = "blocking";
/// Its threads: enough for some handlers that wait, and few enough to be started with the program.
pub const BLOCKING_THREADS: usize = 16;
/// The policy.
pub const POLICY: &str = "stealing";
/// Places in a queue: at least two full chunks, so that a producer and a consumer overlap, and small
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
/// The time limit of a drain.
pub const DRAIN: Duration = Duration::from_secs(10);
/// When a handler counts as stuck.
pub const STUCK_AFTER: Duration = Duration::from_secs(5);
/// The most threads of a cluster: a bound against mistakes, far above any use.
pub const THREADS_MAX: usize = 1_024;
/// The shortest time between two calls of a policy for a timer: a bound against mistakes.
pub const TIMER_MIN: Duration = Duration::from_millis(1);
/// The lowest rate of a source, in events per second: a bound against mistakes.
pub const RATE_MIN: f64 = 1e-6;
/// The highest rate of a source, in events per second.
pub const RATE_MAX: f64 = 1e9;
/// The most instances of a stage, likewise.
pub const INSTANCES_MAX: usize = 1 << 14;
/// The most replicas of a stage.
pub const REPLICAS_MAX: usize = 1_024;
/// The most instances of a stage whose handlers wait: events in flight, which cost no more than their futures and some
/// hundred bytes.
pub const IN_FLIGHT_MAX: usize = 1 << 20;
