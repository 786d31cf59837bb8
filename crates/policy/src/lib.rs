//! Overload control: the interface on which policies are written, and the policies.
//!
//! Nothing here knows threads, clocks or sockets. A policy sees a cluster through [`PolicyControl`] and
//! acts through it alone, so that the same code runs in a program, step by step in a test, and
//! against a mock.
//!
//! 1. `control`: what a policy may see and do.
//! 2. `limits`: what is refused by its number.
//! 3. `steal_queue`: threads that pools have asked others for.
//! 4. `policy`: what a policy is, and when it is called.
//! 5. `registry`: policies by name.
//! 6. `policies`: a file for each.
//! 7. `mock`: a cluster to try policies on.
//! 8. `admission`: who is let into a queue; a smaller interface, and its controllers.

mod control;
pub mod limits;
mod steal_queue;
mod policy;
mod registry;
pub mod policies;
pub mod mock;
pub mod admission;

#[doc(hidden)]
pub use control::sealed;
pub use control::{Focus, PolicyControl, PoolId, Refused, StageInfo, TimerId};
pub use policy::Policy;
pub use registry::{Entry, Named, Names, Registry};
pub use steal_queue::{StealQueue, Stolen};

pub use comporta_model::event::Time;
pub use comporta_model::graph::{Kind, StageId};
pub use comporta_model::plan::{Choice, Offer, Param, ParamKind, ParamSpec, WhenFull};
