//! Handlers that read like sequential code (feature `scheduler`): an event scheduler as a part of a program.
//!
//! 1. `event_loop`  a scheduler on a thread of its own, as an input of the graph
//! 2. `source`      `sources::scheduler`: what its coroutines send are events of the program
//! 3. `stage`       `App::stage_coroutine`: a stage whose handlers are coroutines
//! 4. `stage_loop`  the loop of such a stage, with a coroutine for each event

mod event_loop;
mod source;
mod stage;
mod stage_loop;

pub use source::{Emitter, scheduler};
