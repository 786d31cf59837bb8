//! The policies, a file each. `all` is the list that plans, `policies` and completion go by.
//!
//! 1. One ready queue, or one for each thread: [`Stealing`], [`Single`], [`Srpt`], [`Color`],
//!    [`MasterWorker`].
//! 2. A pool of threads for each stage (`pools`): [`Seda`], [`SedaDynamic`], [`ThreadStealing`],
//!    [`Elastic`], which is also `ds2`.
//! 3. Threads that visit the queues of the stages (`visits`): [`Cohort`], [`Lrb`], [`Dbr`],
//!    [`SrptPrivate`].
//!
//! All of them run any cluster: one of a single stage, of sources alone, or without any stage.

mod stealing;
mod single;
mod srpt;
mod color;
mod master_worker;
mod pools;
mod seda;
mod seda_dynamic;
mod thread_stealing;
mod elastic;
mod visits;
mod cohort;
mod lrb;
mod dbr;
mod srpt_private;
mod service_rate;

pub use cohort::Cohort;
pub use color::Color;
pub use dbr::Dbr;
pub use elastic::Elastic;
pub use lrb::Lrb;
pub use master_worker::MasterWorker;
pub use seda::Seda;
pub use seda_dynamic::SedaDynamic;
pub use single::Single;
pub use srpt::Srpt;
pub use srpt_private::SrptPrivate;
pub use stealing::Stealing;
pub use thread_stealing::ThreadStealing;

use crate::registry::Entry;

/// Every policy of the library; the first is the default.
pub(crate) fn all() -> Vec<Entry> {
    vec![
        stealing::entry(),
        single::entry(),
        srpt::entry(),
        color::entry(),
        master_worker::entry(),
        seda::entry(),
        seda_dynamic::entry(),
        thread_stealing::entry(),
        elastic::entry(),
        elastic::ds2(),
        cohort::entry(),
        cohort::bounded(),
        lrb::entry(),
        dbr::entry(),
        srpt_private::entry(),
    ]
}

/// A policy as a plan would say it, such as `seda(threads=4)`, and a cluster it has started on.
#[cfg(test)]
fn started(
    choice: &str,
    mut mock: crate::mock::Mock,
) -> (Box<dyn crate::Policy>, crate::mock::Mock) {
    let choice: crate::Choice = choice.parse().unwrap();
    let entry = all().into_iter().find(|entry| entry.offer.is_called(&choice.name)).unwrap();
    let mut policy = entry.make(&entry.offer.validate(&choice, "policy").unwrap());
    mock.start(&mut *policy).unwrap();
    (policy, mock)
}
