//! Drum, buffer, rope: the bottleneck sets the pace, so it goes first. Threads visit the stage with
//! the lowest service rate first, and return there after every visit that processed something.
//! When one of them comes to the last place, rates are taken anew, and all begin at the first.
//! Where queues block, rates are all alike, and the last stage whose queue is full comes first
//! (`service_rate`), which is not as published.

use comporta_model::graph::StageId;
use comporta_model::plan::{Choice, Offer};

use super::{service_rate, visits};
use crate::control::{PolicyControl, Refused, StageInfo};
use crate::policy::Policy;
use crate::registry::Entry;

/// The slowest stage first.
#[derive(Clone, Debug)]
pub struct Dbr {
    stages: Vec<StageInfo>,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "dbr",
        aliases: &["drum-buffer-rope"],
        about: "threads visit the stage with the lowest service rate first",
        cites: "Gordon, Stage scheduling for CPU-intensive servers, 2010; after Goldratt, \
                Theory of Constraints, 1990",
        params: &[],
    };
    Entry::new(offer, Dbr::new)
}

impl Dbr {
    /// It has no parameters.
    #[must_use]
    pub fn new(_: &Choice) -> Self {
        Dbr { stages: Vec::new() }
    }
}

impl Policy for Dbr {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        self.stages = visits::visited(control);
        if visits::begin(control, &visits::ids(&self.stages))? {
            control.set_restart_at(Some(0))?;
            control.set_fire_last_focused(true)?;
        }
        Ok(())
    }

    fn on_last_focused(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        let rated = service_rate::ascending(&self.stages, control)?;
        let order: Vec<StageId> = rated.iter().map(|rated| rated.stage.id).collect();
        let told: Vec<String> = rated.iter().map(ToString::to_string).collect();
        control.explain(format!("service rates {}", told.join(", ")));
        control.set_visit_order(&order) // also if it is as before: threads begin at its first place
    }
}

#[cfg(test)]
mod tests {
    use crate::mock::Mock;
    use crate::policies::started;

    fn three() -> Mock {
        Mock::new().stage("s1").stage("s2").stage("s3")
    }

    fn count(mock: &mut Mock, counts: [(u64, u64); 3]) {
        for (stage, (processed, arrived)) in ["s1", "s2", "s3"].into_iter().zip(counts) {
            (mock.at_mut(stage).processed, mock.at_mut(stage).arrived) = (processed, arrived);
        }
    }

    #[test]
    fn it_begins_with_the_pipeline_and_restarts_at_the_first() {
        let (_, mock) = started("dbr", three());
        assert_eq!(
            mock.log(),
            [
                "use_per_stage_queues",
                "set_visit_order s1 s2 s3",
                "set_restart_at 0",
                "set_fire_last_focused true"
            ]
        );
    }

    #[test]
    fn the_lowest_service_rate_goes_first() {
        let (mut policy, mut mock) = started("dbr", three());
        mock.take_log();
        count(&mut mock, [(90, 100), (10, 100), (8, 20)]);
        mock.fire_last_focused(&mut *policy).unwrap();
        assert_eq!(
            mock.take_log(),
            [
                "reset_statistics s1",
                "reset_statistics s2",
                "reset_statistics s3",
                "set_visit_order s2 s3 s1"
            ]
        );
        assert_eq!(mock.explained(), ["service rates s2 10 %, s3 40 %, s1 90 %"]);
        assert_eq!(mock.restart_index(), Some(0));
        // And back, when it is no longer the slowest.
        count(&mut mock, [(1, 10), (2, 10), (3, 10)]);
        mock.fire_last_focused(&mut *policy).unwrap();
        assert_eq!(mock.order(), ["s1", "s2", "s3"]);
    }

    #[test]
    fn a_stage_without_arrivals_has_rate_zero_and_a_backlog_worked_off_one_above_all() {
        let (mut policy, mut mock) = started("dbr", three());
        count(&mut mock, [(30, 10), (9, 9), (5, 0)]);
        mock.fire_last_focused(&mut *policy).unwrap();
        assert_eq!(mock.order(), ["s3", "s2", "s1"]);
    }

    #[test]
    fn equal_rates_keep_the_order_of_the_pipeline_and_threads_begin_at_its_first_place_again() {
        let (mut policy, mut mock) = started("dbr", three());
        for counts in [[(0, 0); 3], [(7, 7); 3]] {
            mock.take_log();
            count(&mut mock, counts);
            mock.fire_last_focused(&mut *policy).unwrap();
            assert_eq!(mock.log().last().unwrap(), "set_visit_order s1 s2 s3");
        }
    }

    #[test]
    fn of_stages_that_all_keep_up_the_last_that_is_full_goes_first() {
        let (mut policy, mut mock) = started("dbr", three());
        count(&mut mock, [(98, 100), (101, 100), (100, 100)]);
        for (stage, queued, busy) in [("s1", 4, 1), ("s2", 2, 1), ("s3", 1, 1)] {
            (mock.at_mut(stage).queued, mock.at_mut(stage).busy) = (queued, busy);
            mock.at_mut(stage).capacity = 4;
        }
        mock.fire_last_focused(&mut *policy).unwrap();
        assert_eq!(mock.order(), ["s2", "s1", "s3"]);
        assert_eq!(mock.explained(), ["service rates s2 101 % (full), s1 98 %, s3 100 %"]);
        // A rate that is lower says more than a queue.
        count(&mut mock, [(94, 100), (100, 100), (100, 100)]);
        mock.fire_last_focused(&mut *policy).unwrap();
        assert_eq!(mock.order(), ["s1", "s2", "s3"]);
    }

    #[test]
    fn of_many_stages_equal_ones_stay_in_the_order_of_the_pipeline_too() {
        let names: Vec<String> = (0..60).map(|n| n.to_string()).collect();
        let mut mock = names.iter().fold(Mock::new(), |mock, name| mock.stage(name));
        for name in names.iter().step_by(2) {
            (mock.at_mut(name).processed, mock.at_mut(name).arrived) = (1, 1);
        }
        let (mut policy, mut mock) = started("dbr", mock);
        mock.fire_last_focused(&mut *policy).unwrap();
        let idle = names.iter().skip(1).step_by(2);
        assert_eq!(mock.order(), idle.chain(names.iter().step_by(2)).collect::<Vec<_>>());
    }

    #[test]
    fn a_source_alone_is_visited_and_nothing_at_all_is_left_alone() {
        let (mut policy, mut mock) = started("dbr", Mock::new().source("s").input("i"));
        mock.fire_last_focused(&mut *policy).unwrap();
        assert_eq!(mock.order(), ["s"]);
        assert!(started("dbr", Mock::new().input("i")).1.log().is_empty());
    }
}
