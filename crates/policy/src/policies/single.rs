//! One ready queue, first come first served, stage priorities first: what LEDA does by itself.

use comporta_model::plan::Offer;

use crate::control::{PolicyControl, Refused};
use crate::policy::Policy;
use crate::registry::Entry;

/// One queue for all.
#[derive(Clone, Copy, Debug)]
pub struct Single;

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "single",
        aliases: &["fifo"],
        about: "one ready queue, first come first served",
        cites: "Gordon, Stage scheduling for CPU-intensive servers, 2010",
        params: &[],
    };
    Entry::new(offer, |_| Single)
}

impl Policy for Single {
    /// Nothing to do: a cluster begins with one queue.
    fn start(&mut self, _: &mut dyn PolicyControl) -> Result<(), Refused> {
        Ok(())
    }
}
