//! Admission control: which events enter the queue of a stage, which are served next, and which have waited too
//! long. A second, small interface beside that of policies, called once for a batch.
//!
//! 1. `gate`: the trait of admission controllers.
//! 2. by length: `capacity`.
//! 3. by rate: `token_bucket`; `seda`, which moves the rate to keep a response time.
//! 4. by the number inside: `gradient`, from the slope of the latency; `breakwater`, from the
//!    queueing delay.
//! 5. by waiting time: `codel`.
//! 6. by properties of events: `tiers`, `deadline`.
//! 7. `sim`: the queue on which their tests run.

mod gate;
mod capacity;
mod token_bucket;
mod seda;
mod gradient;
mod breakwater;
mod codel;
mod tiers;
mod deadline;
#[cfg(test)]
mod sim;

pub use breakwater::Breakwater;
pub use capacity::Capacity;
pub use codel::Codel;
pub use deadline::Deadline;
pub use gate::{Admission, Ask, Done, Look, Next};
pub use gradient::Gradient;
pub use seda::Seda;
pub use tiers::Tiers;
pub use token_bucket::TokenBucket;

use comporta_model::plan::{Choice, Offer};

use crate::registry::{Named, Names};

/// An admission controller that can be chosen.
pub type Entry = Named<dyn Admission>;

impl Entry {
    /// Creates an entry for a controller, which `make` makes from a choice with every parameter set.
    pub fn new<A: Admission + 'static>(
        offer: Offer,
        make: impl Fn(&Choice) -> A + Send + Sync + 'static,
    ) -> Self {
        Self::boxed(offer, move |choice| Box::new(make(choice)))
    }
}

/// The admission controllers of a program, by name.
pub type Registry = Names<dyn Admission>;

impl Registry {
    /// Returns the controllers of the library.
    #[must_use]
    pub fn new() -> Self {
        Names::of(all())
    }
}

impl Default for Registry {
    fn default() -> Self {
        Registry::new()
    }
}

/// The name of the controller that admits every event.
pub const NONE: &str = "none";

/// Admits every event; with it, a stage can be exempt from a controller set for every stage.
#[derive(Clone, Copy, Debug)]
pub struct Open;

impl Admission for Open {}

fn open() -> Entry {
    let offer = Offer {
        name: NONE,
        aliases: &["open"],
        about: "admits every event for which there is room",
        cites: "what a queue does by itself",
        params: &[],
    };
    Entry::new(offer, |_| Open)
}

/// Every controller of the library.
#[must_use]
pub fn all() -> Vec<Entry> {
    vec![
        open(),
        capacity::entry(),
        token_bucket::entry(),
        codel::entry(),
        seda::entry(),
        gradient::entry(),
        breakwater::entry(),
        tiers::entry(),
        deadline::entry(),
    ]
}
