//! The policies, a file each. `all` is the list that plans, `policies` and completion go by.
//!
//! 1. One ready queue, or one for each thread: [`Stealing`], [`Single`], [`Srpt`], [`Color`],
//!    [`MasterWorker`].
//!
//! All of them run any cluster: one of a single stage, of sources alone, or without any stage.

mod stealing;
mod single;
mod srpt;
mod color;
mod master_worker;

pub use color::Color;
pub use master_worker::MasterWorker;
pub use single::Single;
pub use srpt::Srpt;
pub use stealing::Stealing;

use crate::registry::Entry;

/// Every policy of the library; the first is the default.
pub(crate) fn all() -> Vec<Entry> {
    vec![
        stealing::entry(),
        single::entry(),
        srpt::entry(),
        color::entry(),
        master_worker::entry(),
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
    let mut policy = entry.make(&entry.offer.settle(&choice, "policy").unwrap());
    mock.start(&mut *policy).unwrap();
    (policy, mock)
}
