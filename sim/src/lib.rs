//! A cluster in virtual time: operators on nodes, and a placement strategy that migrates them.
//!
//! The strategy is the code that a cluster runs (`comporta-placement`); what it decides on, control messages,
//! is made by the model. The same scenario, strategy and seed give the same outcome, to the byte.
//!
//! 1. `rates`: events a second, as they change.
//! 2. `scenario`: what is run; `published`, the dissertation's experiment; `file`, scenarios in TOML.
//! 3. `calendar`: what happens next.
//! 4. `seen`: the first copy of an event passes, later ones do not.
//! 5. `run`: the model itself, a file for each part.
//! 6. `outcome`: what came of it; `show`, as a table, as JSON, as a picture.
//! 7. `queueing`: the closed formulas that the model is held against.
//!
//! # What is modelled
//! - **Nodes**: cores (each runs one event at a time), a speed, a disk (first come, first served, a seek
//!   and then bytes), a network interface (first come, first served in each direction, then a latency), memory, memory
//!   bandwidth, what others use of the cores, and a clock that may be wrong, fast or slow.
//! - **Operators**: a cost per event (fixed or exponential), so many events at once, state, windows by count,
//!   bytes read, written, copied and sent; events that fail. Replicas of a node take turns, one
//!   event each, as threads of a fair scheduler do; or a policy of `comporta-policy` chooses among them, by priorities on
//!   one ready queue or by a visit order. What stays on a node stands in line before its sender does again, as in the runtime.
//! - **Replicas** are active: each handles every event, and receivers take the first copy, by a window of sequence numbers.
//!   An event is called after its stream, the way it came from a source, and its number in it, so that replicas agree
//!   whatever order they handle events in. Windows count the events of all inputs and are a stream of their own; those of one number are
//!   taken for copies of each other, even if replicas filled them in another order.
//! - **Latency** of an operator: from leaving the one before it to arriving at the one after; of a window, that
//!   of its last event.
//! - **Control messages** travel over the same network, every second: one of each replica, and one of each node on
//!   which none runs.
//! - **Migrations** in the five steps of section 3.2.2: created and fed, queueing, paused, state copied over the
//!   link, removed.
//!
//! # What is not
//! Preemption within an event, caches, garbage collection, packets and their loss, switches between nodes (a
//! link is two interfaces), failures of nodes, policies within a node that make pools, timers, colors or instances.
//! What arrives at an interface is served in the order in which it was sent; memory bandwidth is
//! divided among those that copy when an event begins; queues are not bounded.

pub mod rates;
pub mod scenario;
pub mod published;
pub mod file;
mod calendar;
mod seen;
mod run;
mod outcome;
pub mod show;
pub mod queueing;

pub use outcome::{Latency, Migration, Moment, NodeChange, Outcome};
pub use run::{Progress, RunError, run, run_with};
pub use scenario::Scenario;

/// The code of `docs/placement.md`, compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/placement.md")]
struct PlacementPage;
