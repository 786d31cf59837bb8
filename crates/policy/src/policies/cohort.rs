//! Cohort scheduling: all threads walk the pipeline there and back (s1, s2, s3, s2, and again), and
//! stay at a stage while its events last, so that code and data stay in the cache.
//!
//! Under load a thread may never leave a stage whose events do not end; the bounded variant goes on
//! after so many.

use comporta_model::graph::StageId;
use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use super::visits;
use crate::control::{Focus, PolicyControl, Refused};
use crate::policy::Policy;
use crate::registry::Entry;

/// Threads walk the pipeline there and back.
#[derive(Clone, Copy, Debug)]
pub struct Cohort {
    /// Events of a visit at most; while they last, if nothing is said.
    events: Option<usize>,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "cohort",
        aliases: &[],
        about: "threads walk the stages back and forth, and stay while events last",
        cites: "Larus & Parkes, Using Cohort Scheduling to Enhance Server Performance, 2001",
        params: &[],
    };
    Entry::new(offer, |_| Cohort { events: None })
}

pub(super) fn bounded() -> Entry {
    let offer = Offer {
        name: "cohort-bounded",
        aliases: &[],
        about: "threads walk the stages back and forth, and go on after a bounded number of events",
        cites: "Harizopoulos & Ailamaki, Affinity Scheduling in Staged Server Architectures, \
                CMU 2002",
        params: &[ParamSpec {
            name: "events",
            about: "the most events of a visit",
            kind: ParamKind::Count(1, usize::MAX),
            default: "5", // as in the controllers that were published with LStage, 2014
        }],
    };
    Entry::new(offer, Cohort::new)
}

impl Cohort {
    /// The bounded one, from its parameters.
    #[must_use]
    pub fn new(validated: &Choice) -> Self {
        Cohort { events: Some(validated.count("events")) }
    }
}

impl Policy for Cohort {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        let order = there_and_back(visits::ids(&visits::visited(control)));
        let begun = visits::begin(control, &order)?;
        if let Some(events) = self.events.filter(|_| begun) {
            control.set_max_events_when_focused(Focus::All, events)?;
        }
        Ok(())
    }
}

/// s1, s2, ..., sn, ..., s2: the way back ends before the first, where the next round begins.
fn there_and_back(mut order: Vec<StageId>) -> Vec<StageId> {
    for place in (1..order.len().saturating_sub(1)).rev() {
        order.push(order[place]);
    }
    order
}

#[cfg(test)]
mod tests {
    use crate::mock::Mock;
    use crate::policies::started;

    fn four() -> Mock {
        Mock::new().stage("s1").stage("s2").stage("s3").stage("s4")
    }

    #[test]
    fn threads_walk_there_and_back() {
        let (_, mut mock) = started("cohort", four());
        assert_eq!(mock.take_log(), ["use_per_stage_queues", "set_visit_order s1 s2 s3 s4 s3 s2"]);
    }

    #[test]
    fn bounded_visits_end_after_some_events() {
        let (_, mut mock) = started("cohort-bounded(events=20)", four());
        assert_eq!(
            mock.take_log()[1..],
            ["set_visit_order s1 s2 s3 s4 s3 s2", "set_max_events_when_focused all 20"]
        );
    }

    #[test]
    fn sources_come_first_and_inputs_are_not_visited() {
        let mock = Mock::new().source("lines").input("clicks").stage("parse").stage("store");
        assert_eq!(started("cohort", mock).1.order(), ["lines", "parse", "store", "parse"]);
    }

    #[test]
    fn short_pipelines_have_no_way_back() {
        let one = Mock::new().stage("s1");
        assert_eq!(started("cohort", one.clone()).1.order(), ["s1"]);
        assert_eq!(started("cohort", one.stage("s2")).1.order(), ["s1", "s2"]);
        for nothing in [Mock::new(), Mock::new().input("clicks")] {
            assert!(started("cohort-bounded", nothing).1.log().is_empty());
        }
    }
}
