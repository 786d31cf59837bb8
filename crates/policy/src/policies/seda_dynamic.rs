//! SEDA whose pools follow demand: every two seconds a stage with more than 50 events, waiting or
//! in hand, gets a thread, up to 10; one with fewer loses a thread, down to 2. A stage has as many
//! instances as it may come to have threads (10, as published), unless the plan says otherwise.

use std::time::Duration;

use comporta_model::plan::defaults::THREADS_MAX;
use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use super::pools;
use super::seda::{CAPACITY, SHED, Seda};
use crate::control::{PolicyControl, Refused, StageInfo, TimerId};
use crate::policy::Policy;
use crate::registry::Entry;

/// A pool for each stage, sized by its demand.
#[derive(Clone, Debug)]
pub struct SedaDynamic {
    seda: Seda,
    every: Duration,
    above: usize,
    threads_min: usize,
    threads_max: usize,
    stages: Vec<StageInfo>,
}

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "every",
        about: "how often pools are resized",
        kind: ParamKind::Span,
        default: "2s",
    },
    ParamSpec {
        name: "above",
        about: "a stage with more events than this, waiting or in hand, gets a thread",
        kind: ParamKind::Count(0, usize::MAX),
        default: "50",
    },
    ParamSpec {
        name: "threads_min",
        about: "the least threads of a stage, with which it starts",
        kind: ParamKind::Count(1, THREADS_MAX),
        default: "2",
    },
    ParamSpec {
        name: "threads_max",
        about: "the most threads of a stage",
        kind: ParamKind::Count(1, THREADS_MAX),
        default: "10",
    },
    CAPACITY,
    pools::INSTANCES,
    SHED,
];

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "seda-dynamic",
        aliases: &[],
        about: "a pool of threads for each stage, sized by its queue",
        cites: "Welsh, Culler & Brewer, SEDA, SOSP 2001; Li et al., Auto-tune design and \
                evaluation on staged event-driven architecture, MODDM 2006; the figures: \
                Riba da Costa Cruz, PUC-Rio 2015",
        params: PARAMS,
    };
    Entry::new(offer, SedaDynamic::new)
}

impl SedaDynamic {
    /// From its parameters.
    #[must_use]
    pub fn new(validated: &Choice) -> Self {
        let (threads_min, threads_max) =
            (validated.count("threads_min"), validated.count("threads_max"));
        SedaDynamic {
            seda: Seda::of(threads_min, threads_max, validated),
            every: validated.span("every"),
            above: validated.count("above"),
            threads_min,
            threads_max,
            stages: Vec::new(),
        }
    }
}

impl Policy for SedaDynamic {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        let (least, most) = (self.threads_min, self.threads_max);
        if most < least {
            let (what, expected) =
                ("`threads_max`".to_owned(), format!("`threads_min`, {least}, or more"));
            return Err(Refused::OutOfRange { what, given: most, expected });
        }
        self.seda.start(control)?;
        self.stages = pools::staged(control);
        // Where all have grown, the cluster still has no more threads than it may.
        let share = THREADS_MAX.saturating_sub(1) / self.stages.len().max(1);
        self.threads_max = self.threads_max.min(share);
        control.add_timer(self.every).map(|_| ())
    }

    fn on_timer(&mut self, _: TimerId, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        for stage in &self.stages {
            let queued = control.queue_size(stage.id)?;
            let instances = control.instances(stage.id)?;
            let busy = instances.saturating_sub(control.free_instances(stage.id)?);
            let events = queued + busy;
            let pool = control.pool_of(stage.id)?;
            let threads = control.threads(pool)?;
            let (name, above) = (&stage.name, self.above);
            if events > above {
                if threads < self.threads_max {
                    control.explain(format!("{name}: queued + busy {events} > {above}"));
                    control.add_threads(pool, 1)?;
                }
            } else if threads > self.threads_min {
                control.explain(format!("{name}: queued + busy {events} <= {above}"));
                control.kill_threads(pool, 1)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::mock::Mock;
    use crate::policies::started;
    use crate::{PolicyControl, PoolId, TimerId};

    const POOL: PoolId = PoolId(1);

    fn one_stage() -> Mock {
        Mock::new().source("accept").stage("parse")
    }

    #[test]
    fn a_most_under_the_least_is_refused_before_anything_is_changed() {
        let choice = "seda-dynamic(threads_min=20)".parse().unwrap();
        let offer = super::entry().offer.validate(&choice, "policy").unwrap();
        let mut mock = one_stage();
        let refused = mock.start(&mut super::SedaDynamic::new(&offer)).unwrap_err();
        assert_eq!(refused.to_string(), "`threads_max` is 10: use `threads_min`, 20, or more");
        assert!(mock.log().is_empty());
    }

    #[test]
    fn it_begins_as_seda_does_and_looks_every_two_seconds() {
        let (_, mock) = started("seda-dynamic", one_stage());
        assert_eq!(
            mock.log(),
            [
                "add_instances parse 9",
                "set_queue_capacity parse 100",
                "kill_threads main 3",
                "new_pool 2 -> pool1",
                "set_pool pool1 parse",
                "add_timer 2s"
            ]
        );
    }

    #[test]
    fn above_fifty_events_a_stage_grows_to_ten_threads_and_no_further() {
        let (mut policy, mut mock) = started("seda-dynamic", one_stage());
        mock.take_log();
        (mock.at_mut("parse").queued, mock.at_mut("parse").busy) = (51, 10);
        for _ in 0..20 {
            mock.fire_timer(&mut *policy, TimerId(0)).unwrap();
        }
        assert_eq!(mock.take_log(), vec!["add_threads pool1 1"; 8]);
        assert_eq!(mock.threads(POOL).unwrap(), 10);
        assert_eq!(mock.explained()[1], "parse: queued + busy 61 > 50");
    }

    #[test]
    fn at_fifty_or_below_it_shrinks_to_two_and_no_further() {
        let (mut policy, mut mock) = started("seda-dynamic", one_stage());
        mock.add_threads(POOL, 3).unwrap();
        mock.take_log();
        (mock.at_mut("parse").queued, mock.at_mut("parse").busy) = (48, 2);
        for _ in 0..5 {
            mock.fire_timer(&mut *policy, TimerId(0)).unwrap();
        }
        assert_eq!(mock.take_log(), vec!["kill_threads pool1 1"; 3]);
        assert_eq!(mock.explained().last().unwrap(), "parse: queued + busy 50 <= 50");
    }

    #[test]
    fn each_stage_goes_by_its_own_demand() {
        let (mut policy, mut mock) = started("seda-dynamic", one_stage().stage("send"));
        mock.add_threads(POOL, 1).unwrap();
        mock.take_log();
        mock.at_mut("send").queued = 51;
        mock.fire_timer(&mut *policy, TimerId(0)).unwrap();
        assert_eq!(mock.log(), ["kill_threads pool1 1", "add_threads pool2 1"]);
    }

    #[test]
    fn many_stages_that_all_grow_stay_within_what_a_cluster_may_have() {
        let many = |mock: Mock, n| mock.stage(&format!("s{n}"));
        let (mut policy, mut mock) = started("seda-dynamic", (0..300).fold(Mock::new(), many));
        for n in 0..300 {
            mock.at_mut(&format!("s{n}")).queued = 99;
        }
        for _ in 0..10 {
            mock.fire_timer(&mut *policy, TimerId(0)).unwrap();
        }
        assert_eq!(mock.threads(PoolId(300)).unwrap(), 3);
    }
}
