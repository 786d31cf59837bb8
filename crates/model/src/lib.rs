//! Comporta's vocabulary, in the order in which a program meets it.
//!
//! | module | contents |
//! |---|---|
//! | [`error`] | the error that a handler may return |
//! | [`failed`] | why an event failed; a failed event as an error port sends it |
//! | [`event`] | an event borrowed or held by a handler; data shared by the events of a chunk |
//! | [`ack`] | acknowledgement groups and obligations |
//! | [`mod@column`] | data of single events of a chunk |
//! | [`chunk`] | the unit in which events move |
//! | [`port`] | where a stage sends: one port, or several by `#[derive(Ports)]` |
//! | [`stage`] | the handler: trait, context, closures, factories |
//! | [`kind`] | what handlers have in common, for which the runtime is compiled once |
//! | [`async_stage`] | handlers that wait without a thread |
//! | [`keyed`] | stages with state for each key |
//! | [`verbs`] | closures that filter, or may fail |
//! | [`window`] | stages that gather events by count or by event time |
//! | [`source`] | where events come from |
//! | [`graph`] | stages joined by connectors; what makes a graph valid |
//! | [`plan`] | how a graph is run; what makes a plan valid for a graph |
//! | [`replicas`] | a graph whose stages stand in several, as a plan wants them |
//!
//! Nothing here knows threads, clocks or sockets.

pub mod error;
pub mod failed;
pub mod event;
pub mod ack;
pub mod column;
pub mod chunk;
pub mod port;
pub mod stage;
pub mod kind;
pub mod async_stage;
pub mod keyed;
pub mod verbs;
pub mod window;
pub mod source;
pub mod graph;
pub mod plan;
pub mod replicas;
