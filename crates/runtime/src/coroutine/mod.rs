//! Handlers that read like sequential code (feature `scheduler`): an event scheduler as a part of a program.
//!
//! 1. `event_loop`  a scheduler on a thread of its own, as a node of the graph
//! 2. `source`      `sources::scheduler`: what its coroutines send are events of the program
//! 3. `stage`       `App::stage_coroutine`: a stage whose handlers are its coroutines
//!
//! What a loop sends goes through an input (`path::sender`), so that a coroutine that finds no room is suspended and
//! its thread is not. The loop ends before its input does: what coroutines have begun to send is sent.

mod event_loop;
mod source;
mod stage;

pub use source::{Emitter, scheduler};
pub use stage::CoroutineStage;
