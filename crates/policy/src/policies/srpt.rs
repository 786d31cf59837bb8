//! Shortest remaining processing time, on the global queue: the deeper a stage lies in the
//! pipeline, the less is left to do for its events, and the sooner they are served.

use comporta_model::plan::Offer;

use crate::control::{PolicyControl, Refused};
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
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        for stage in control.stages().to_vec() {
            let depth = i32::try_from(stage.depth).unwrap_or(i32::MAX);
            control.set_priority(stage.id, depth)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::mock::{Mock, Queues};
    use crate::policies::started;

    #[test]
    fn the_deeper_a_stage_lies_the_sooner_it_is_served() {
        let mock = Mock::new().source("accept").stage("parse").stage("load").stage_at("run", 2);
        let (_, mut mock) = started("srpt", mock);
        assert_eq!(
            mock.take_log(),
            [
                "set_priority accept 0",
                "set_priority parse 1",
                "set_priority load 2",
                "set_priority run 2"
            ]
        );
        assert_eq!(mock.queues(), Queues::One);
    }
}
