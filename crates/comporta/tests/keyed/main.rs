//! Keyed stages: order within a key, parallelism across keys, fair shares, state, and keys that harm only themselves.
//!
//! | file | what |
//! |---|---|
//! | `bounded` | waits that end |
//! | `lanes` | order, exclusion and parallelism, whatever a key does |
//! | `found` | what readers and attackers found |
//! | `failures` | keys that are held by an event that failed |
//! | `bounds` | fair rounds, `lane_max`, state that expires, keys that leave nothing behind |
//! | `waiting` | handlers that wait, in the lanes of their keys |
//! | `prepare` | steps before the turn of an event |
//! | `state` | what is kept for each key, and when it goes |
//! | `timers` | timers on the program's clock |
//! | `event_time` | watermarks, event timers, late events, idle inputs |
//! | `busiest` | the busiest keys in the snapshot |
//! | `windows` | keyed windows against a plain computation |
//! | `attacks` | programs that broke one of these promises once |

#![allow(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

mod bounded;
mod lanes;
mod found;
mod failures;
mod bounds;
mod waiting;
mod prepare;
mod state;
mod timers;
mod event_time;
mod busiest;
mod windows;
mod attacks;
