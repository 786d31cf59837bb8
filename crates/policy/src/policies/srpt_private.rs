//! Shortest remaining processing time on per-stage queues: threads visit the stages from the last one
//! back, and return to the last after every visit that processed something. What is nearest to its
//! end goes first. [`Srpt`](super::Srpt) does about the same on one queue.

use std::num::NonZeroUsize;

use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use super::visits;
use crate::control::{Focus, PolicyControl, Refused};
use crate::policy::Policy;
use crate::registry::Entry;

/// Threads walk from the end of the pipeline back.
#[derive(Clone, Copy, Debug)]
pub struct SrptPrivate {
    /// Events of a visit at most; while they last, if nothing is said.
    events: Option<NonZeroUsize>,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "srpt-private",
        aliases: &[],
        about: "threads visit the stages from the last one back, and restart after each success",
        cites: "Gordon, Stage scheduling for CPU-intensive servers, 2010; after Schrage & Miller, \
                The queue M/G/1 with the shortest remaining processing time discipline, 1966",
        params: &[ParamSpec {
            name: "events",
            about: "the most events of a visit; 0: while they last",
            kind: ParamKind::Count(0, usize::MAX),
            default: "0",
        }],
    };
    Entry::new(offer, SrptPrivate::new)
}

impl SrptPrivate {
    /// From its parameters.
    #[must_use]
    pub fn new(validated: &Choice) -> Self {
        SrptPrivate { events: NonZeroUsize::new(validated.count("events")) }
    }
}

impl Policy for SrptPrivate {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        let mut order = visits::ids(&visits::visited(control));
        order.reverse();
        if !visits::begin(control, &order)? {
            return Ok(());
        }
        if let Some(events) = self.events {
            control.set_max_events_when_focused(Focus::All, events.get())?;
        }
        control.set_restart_at(Some(0))
    }
}

#[cfg(test)]
mod tests {
    use crate::mock::Mock;
    use crate::policies::started;

    fn three() -> Mock {
        Mock::new().stage("s1").stage("s2").stage("s3")
    }

    #[test]
    fn threads_walk_from_the_last_back_and_restart_there() {
        let (_, mut mock) = started("srpt-private", three());
        assert_eq!(
            mock.take_log(),
            ["use_per_stage_queues", "set_visit_order s3 s2 s1", "set_restart_at 0"]
        );
    }

    #[test]
    fn visits_can_be_bounded() {
        let (_, mut mock) = started("srpt-private(events=1)", three());
        assert_eq!(mock.take_log()[2..], ["set_max_events_when_focused all 1", "set_restart_at 0"]);
    }

    #[test]
    fn sources_come_last_and_nothing_at_all_is_left_alone() {
        let mock = Mock::new().source("s").input("i").stage("a").stage("b");
        assert_eq!(started("srpt-private", mock).1.order(), ["b", "a", "s"]);
        assert_eq!(started("srpt-private", Mock::new().source("s")).1.order(), ["s"]);
        assert!(started("srpt-private", Mock::new()).1.log().is_empty());
    }
}
