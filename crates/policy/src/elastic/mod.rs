//! Threads that follow the load of single stages: two controllers, and what carries out their decisions. The policies
//! `elastic` and `ds2` (`policies/`) use them for every stage of a cluster; a plan uses them for the stages
//! that it names, beside any policy that leaves those stages in the main pool.
//!
//! Pure, samples in and decisions out:
//! 1. `sample`: what is measured of a stage, and what can be decided.
//! 2. `averages`: the two running averages of the published controller.
//! 3. `published`: the published controller, and what it left undefined.
//! 4. `true_rates`: the controller of DS2, by useful time.
//! 5. `bounds`: how far CPUs and hot keys let a stage grow, for both.
//!
//! On a cluster, through `PolicyControl` alone:
//! 6. `params`: the parameters of both.
//! 7. `stage`: one stage, its pool and its controller.
//! 8. `group`: stages that share threads: samples, priorities, the bound of all together.
//! 9. `beside`: a policy, and elastic stages beside it.

mod sample;
mod averages;
mod published;
mod true_rates;
mod bounds;
mod params;
mod stage;
mod group;
mod beside;

pub use beside::{Beside, ElasticChoice};
pub use params::offers;

pub(crate) use group::{Group, Member};
pub(crate) use params::{Controller, PARAMS_DS2, PARAMS_ELASTIC, cites};
