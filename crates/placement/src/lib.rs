//! Adaptive placement: which replica of which operator runs on which node.
//!
//! Nothing here knows threads, clocks or sockets. Nodes send control messages; a [`Monitor`] makes a
//! [`View`] of them; a [`Strategy`] reads the view and drafts migrations in a [`Round`]; the owner of the
//! nodes carries the [`Decision`]s out. The simulator (`comporta-sim`) and a cluster use the same code.
//!
//! 1. `usage`: resources, and how much of each is used; `equal`, how amounts are compared.
//! 2. `view`: what a strategy sees.
//! 3. `monitor`: control messages become a view; `clock` corrects for clocks that differ.
//! 4. `decision`: the actions of a strategy, and their reasons.
//! 5. `round`: migrations drafted one after another, each checked against those before it.
//! 6. `worsening`: the signal, how much a replica's latency grew.
//! 7. `target`: the rule by which a node may take a replica.
//! 8. `demand`: what a replica would use if nothing held it back.
//! 9. `strategies`: a file for each; `strategy`, their trait; `registry`, strategies by name.
//! 10. `mock`: a cluster for tests of strategies.
//!
//! The strategies `adaptive`, `random` and `none`, the signal and the rule are those of the
//! dissertation *Escalonamento adaptativo para sistemas de processamento contínuo de eventos*
//! (chapters 3 and 4), cited below by its section numbers.

mod equal;
mod usage;
mod view;
mod clock;
mod monitor;
mod decision;
mod round;
pub mod worsening;
pub mod target;
pub mod demand;
mod strategy;
pub mod strategies;
mod registry;
pub mod mock;

pub use decision::{Action, Decision, Reason};
pub use monitor::{ControlMessage, MeasuredLatency, Monitor, NodeMessage};
pub use registry::{Entry, Registry, Unknown};
pub use round::{Obstacle, Round};
pub use strategy::{Strategy, decide};
pub use usage::{Resource, Usage};
pub use view::{
    Capacity, Cpu, Flow, NodeId, NodeState, NodeView, OperatorId, ReplicaId, ReplicaView, Second,
    View,
};

pub use comporta_model::event::Time;
pub use comporta_model::plan::{Choice, Offer, Param, ParamKind, ParamSpec};
