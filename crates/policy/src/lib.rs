//! Overload control: the interface on which policies are written, and the policies.
//!
//! Nothing here knows threads, clocks or sockets. A policy sees a cluster through [`PolicyControl`] and
//! acts through it alone, so that the same code runs in a program, step by step in a test, and
//! against a mock.
//!
//! 1. `control`: the interface through which a policy reads and changes its cluster.
//! 2. `limits`: the bounds of that interface.
//! 3. `steal_queue`: threads that pools have requested from others.
//! 4. `policy`: the trait of policies.
//! 5. `registry`: policies by name.
//! 6. `policies`: a file for each.
//! 7. `elastic`: threads that follow the load of single stages.
//! 8. `mock`: a cluster for tests of policies.
//! 9. `admission`: a smaller interface for the queue of one stage, and its controllers.

mod control;
pub mod limits;
mod steal_queue;
mod policy;
mod registry;
pub mod policies;
pub mod elastic;
pub mod mock;
pub mod admission;

#[doc(hidden)]
pub use control::sealed;
pub use control::{
    Focus, KeyLoad, PolicyControl, PoolId, Refused, StageInfo, StageSample, TimerId,
};
pub use policy::Policy;
pub use registry::{Entry, Named, Names, Registry};
pub use steal_queue::{StealQueue, Stolen};

pub use comporta_model::event::Time;
pub use comporta_model::graph::{Kind, StageId};
pub use comporta_model::plan::{Choice, Offer, Param, ParamKind, ParamSpec, WhenFull};
