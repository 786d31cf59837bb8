//! Vehicles report where they are; consumers of different priority handle what they report, with as many threads as it
//! takes.
//!
//! 1. `servsim`   the communication server: accounts, connections, polls, bursts
//! 2. `program`   the consumers, how the stages are joined, and the plan
//! 3. `watch`     runs it, on threads or on virtual time, and prints a line each second
//! 4. `chart`     queues, threads and CPU against time, as SVG

pub mod servsim;
pub mod program;
pub mod watch;
pub mod chart;
