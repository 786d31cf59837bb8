//! Load-rate based: the more events arrive at a stage, the more often it is visited.
//!
//! Threads begin with the order of the pipeline. When the first of them comes to the last place,
//! the order is made anew from what arrived at each stage since then, and all begin at its first place:
//! 1. a stage gets ceil(share of all arrivals x slots) visits, with three slots for each stage;
//! 2. the stage with the most visits has every other place, while its visits last; the others fill
//!    the places between, the one with the most visits first, each until it has all of its own.
//!    Shares of 50, 30 and 20 % over 9 slots make 5, 3 and 2 visits: 1,2,1,2,1,2,1,3,1,3.
//!
//! Stages at which nothing arrived have no place: the control visits what an order leaves out
//! after it, so they are found when they are needed again.

use std::cmp::Reverse;
use std::iter::repeat_n;

use comporta_model::graph::StageId;
use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use super::visits;
use crate::control::{PolicyControl, Refused, StageInfo};
use crate::policy::Policy;
use crate::registry::Entry;

/// Visits in proportion to arrivals.
#[derive(Clone, Debug)]
pub struct Lrb {
    slots_per_stage: usize,
    stages: Vec<StageInfo>,
    order: Vec<StageId>,
}

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "lrb",
        aliases: &["load-rate"],
        about: "threads visit stages in proportion to their arrivals",
        cites: "Riba da Costa Cruz, Uma interface de programação para controle de sobrecarga em \
                arquiteturas baseadas em estágios, PUC-Rio 2015; after Boxma, Levy & Weststrate, \
                Efficient visit orders for polling systems, 1993",
        params: &[ParamSpec {
            name: "slots_per_stage",
            about: "places in the order for each stage, before rounding up",
            kind: ParamKind::Count(2, 1_000),
            default: "3",
        }],
    };
    Entry::new(offer, Lrb::new)
}

impl Lrb {
    /// From its parameters.
    #[must_use]
    pub fn new(validated: &Choice) -> Self {
        let slots_per_stage = validated.count("slots_per_stage");
        Lrb { slots_per_stage, stages: Vec::new(), order: Vec::new() }
    }
}

impl Policy for Lrb {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        self.stages = visits::visited(control);
        self.order = visits::ids(&self.stages);
        if visits::begin(control, &self.order)? {
            control.set_fire_last_focused(true)?;
        }
        Ok(())
    }

    fn on_last_focused(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        let mut arrived = Vec::with_capacity(self.stages.len());
        for stage in &self.stages {
            arrived.push(control.input_count(stage.id)?);
            control.reset_statistics(stage.id)?;
        }
        let visits = visits_for(&arrived, self.slots_per_stage * self.stages.len());
        let order = spread(visits::ids(&self.stages).into_iter().zip(visits.clone()).collect());
        if order.is_empty() {
            return control.set_visit_order(&self.order); // nothing arrived: as before, from its first place
        }
        let told = self.stages.iter().zip(arrived).zip(visits);
        let told = told.map(|((stage, n), visits)| format!("{} {n}: {visits}", stage.name));
        control.explain(format!("arrived and visits {}", told.collect::<Vec<_>>().join(", ")));
        control.set_visit_order(&order)?;
        self.order = order;
        Ok(())
    }
}

/// How many visits each gets: its share of the slots, rounded up; none if nothing arrived at all.
fn visits_for(arrived: &[u64], slots: usize) -> Vec<usize> {
    let total = arrived.iter().map(|n| u128::from(*n)).sum::<u128>().max(1);
    let visits = |n: &u64| (u128::from(*n) * slots as u128).div_ceil(total) as usize;
    arrived.iter().map(visits).collect()
}

/// The one with the most visits at every other place, the others between.
fn spread(mut wanted: Vec<(StageId, usize)>) -> Vec<StageId> {
    wanted.sort_by_key(|(_, visits)| Reverse(*visits)); // equal ones in the order of the pipeline
    let mut places = wanted.into_iter().map(|(stage, visits)| repeat_n(stage, visits));
    let mut leader = places.next().into_iter().flatten();
    let mut others = places.flatten();
    let mut order = Vec::new();
    loop {
        let pair = [leader.next(), others.next()];
        if pair == [None, None] {
            return order;
        }
        order.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::Mock;
    use crate::policies::started;

    /// The order for these arrivals with three slots for each stage; the first stage is 1.
    fn order(arrived: &[u64]) -> Vec<u32> {
        let visits = visits_for(arrived, 3 * arrived.len());
        spread((1..).map(StageId).zip(visits).collect()).iter().map(|stage| stage.0).collect()
    }

    #[test]
    fn the_published_shares_give_the_published_order() {
        assert_eq!(order(&[5, 3, 2]), [1, 2, 1, 2, 1, 2, 1, 3, 1, 3]);
        assert_eq!(order(&[500, 300, 200]), order(&[5, 3, 2]));
    }

    #[test]
    fn the_most_wanted_leads_wherever_it_stands_in_the_pipeline() {
        assert_eq!(order(&[2, 3, 5]), [3, 2, 3, 2, 3, 2, 3, 1, 3, 1]);
    }

    #[test]
    fn equal_demand_gives_equal_visits_in_the_order_of_the_pipeline() {
        assert_eq!(order(&[7, 7]), [1, 2, 1, 2, 1, 2]);
        assert_eq!(order(&[1, 1, 1]), [1, 2, 1, 2, 1, 2, 3, 3, 3]);
    }

    #[test]
    fn one_that_dominates_leaves_every_other_a_visit() {
        assert_eq!(order(&[1_000_000, 1, 1]), [1, 2, 1, 3, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn stages_without_arrivals_have_no_place() {
        assert_eq!(order(&[0, 4, 0]), [2; 9]);
        assert_eq!(order(&[1, 0, 1]), [1, 3, 1, 3, 1, 3, 1, 3, 1, 3]);
        assert!(order(&[0, 0]).is_empty());
        assert!(order(&[]).is_empty());
    }

    #[test]
    fn counts_of_any_size_are_shared_out() {
        assert_eq!(order(&[u64::MAX, u64::MAX]), [1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn the_order_is_made_anew_when_the_last_place_is_reached() {
        let (mut policy, mut mock) =
            started("lrb", Mock::new().stage("s1").stage("s2").stage("s3"));
        assert_eq!(
            mock.take_log(),
            ["use_per_stage_queues", "set_visit_order s1 s2 s3", "set_fire_last_focused true"]
        );
        let round = |policy: &mut dyn Policy, mock: &mut Mock, counts: [u64; 3]| {
            for (stage, count) in ["s1", "s2", "s3"].into_iter().zip(counts) {
                mock.at_mut(stage).arrived = count;
            }
            mock.fire_last_focused(policy).unwrap();
            mock.take_log().split_off(3)
        };
        let published = ["set_visit_order s1 s2 s1 s2 s1 s2 s1 s3 s1 s3"];
        assert_eq!(round(&mut *policy, &mut mock, [50, 30, 20]), published);
        assert_eq!(mock.explained(), ["arrived and visits s1 50: 5, s2 30: 3, s3 20: 2"]);
        assert_eq!(mock.at("s1").arrived, 0, "statistics begin anew");
        // As before, and nothing at all: the order stays, and threads begin at its first place.
        assert_eq!(round(&mut *policy, &mut mock, [5, 3, 2]), published);
        assert_eq!(round(&mut *policy, &mut mock, [0, 0, 0]), published);
    }

    #[test]
    fn slots_can_be_more_and_sources_count_as_stages() {
        let (mut policy, mut mock) =
            started("lrb(slots_per_stage=4)", Mock::new().source("s").input("i").stage("a"));
        (mock.at_mut("s").arrived, mock.at_mut("a").arrived) = (1, 3);
        mock.fire_last_focused(&mut *policy).unwrap();
        assert_eq!(mock.order(), ["a", "s", "a", "s", "a", "a", "a", "a"]);
    }
}
