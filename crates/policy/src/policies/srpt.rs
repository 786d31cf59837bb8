//! Shortest remaining processing time, on the global queue: the deeper a stage lies in the
//! pipeline, the less is left to do for its events, and the sooner they are served.

use comporta_model::plan::Offer;

use crate::control::{Control, Refused};
use crate::policy::Policy;
use crate::registry::Entry;

/// One queue; the stage nearest to the end first.
#[derive(Clone, Copy, Debug)]
pub struct Srpt;

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "srpt",
        aliases: &["srpt-global"],
        about: "one ready queue, the stage nearest to the end first",
        cites: "Harchol-Balter, Crovella & Park, The case for SRPT scheduling in Web servers, 1998",
        params: &[],
    };
    Entry::new(offer, |_| Srpt)
}

impl Policy for Srpt {
    fn start(&mut self, control: &mut dyn Control) -> Result<(), Refused> {
        for stage in control.stages().to_vec() {
            let depth = i32::try_from(stage.depth).unwrap_or(i32::MAX);
            control.set_priority(stage.id, depth)?;
        }
        Ok(())
    }
}
