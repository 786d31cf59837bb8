//! **Write a program once, as stages; decide afterwards how it runs.**
//!
//! ```
//! use comporta::{App, Plan};
//!
//! let app = App::new("squares");
//! let numbers = app.source("numbers", || 1u64..=10);
//! let square = app.map("square", |n: u64| n * n);
//! let show = app.sink("show", |n: u64| println!("{n}"));
//! app.connect(numbers, square);
//! app.connect(square, show);
//!
//! let summary = app.run(&Plan::new()).unwrap();
//! assert_eq!(summary.snapshot.stage("show").unwrap().counts.handled, 10);
//! ```
//!
//! A program is an [`App`]: stages by name, joined by connectors. How it runs stands in a [`Plan`]:
//! threads, instances, queue limits, priorities, policy. Much of it can be changed while it runs,
//! through [`Control`].
//!
//! - A stage is a type with [`Stage`], or a closure; it sends through an [`Out`], or several named
//!   ones with `#[derive(Ports)]`.
//! - Events come from [`sources`], any iterator, your own [`Source`], or a [`Push`] handle.
//! - [`testing`] runs a stage or a whole graph deterministically, on virtual time.

pub use comporta_derive::Ports;
pub use comporta_model::error::{Error, Outcome, Result};
pub use comporta_model::event::{Ev, Event, Settled, Time};
pub use comporta_model::graph::{self, GraphFault, GraphWarning};
pub use comporta_model::plan::{
    OnPanic, Plan, PlanFault, Policy, PoolPlan, Retry, StagePlan, WhenFull,
};
pub use comporta_model::port::{AsInput, AsPort, Out, Port};
pub use comporta_model::source::{Demand, IntoSource, Pull, Source};
pub use comporta_model::stage::{Cx, IntoStage, Stage, batched};
pub use comporta_runtime::{
    App, Control, ControlError, Counts, Ended, Failure, PoolSnapshot, Push, PushError, Reason,
    Running, Shed, Snapshot, StageOf, StageRef, StageSnapshot, StartError, Summary, sources,
    testing,
};

/// What `#[derive(Ports)]` implements, and the names its code uses.
pub mod ports {
    pub use comporta_model::port::{Out, Port, PortVisitor, Ports, StageKey, Turns};
}
