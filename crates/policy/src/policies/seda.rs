//! SEDA as first proposed: each stage has a bounded queue and a pool with a fixed number of
//! threads, which no other stage takes away, and an instance for each thread. What the plan says of a
//! stage's instances and capacity holds. What happens at a full queue is the plan's to say too; with
//! `shed` every stage turns events away, as published.

use std::num::NonZeroUsize;

use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec, WhenFull};

use super::pools;
use crate::control::{PolicyControl, Refused};
use crate::policy::Policy;
use crate::registry::Entry;

/// A pool of fixed size for each stage.
#[derive(Clone, Copy, Debug)]
pub struct Seda {
    threads: usize,
    /// Threads a stage may come to have.
    threads_max: usize,
    capacity: usize,
    /// As many as it may have threads, if nothing is said.
    instances: Option<NonZeroUsize>,
    shed: bool,
}

/// How many events wait at each stage at most.
pub(super) const CAPACITY: ParamSpec = ParamSpec {
    name: "capacity",
    about: "events that wait at each stage at most, unless it is planned",
    kind: ParamKind::Count(1, usize::MAX),
    default: "100",
};

/// Whether events are turned away on entry.
pub(super) const SHED: ParamSpec = ParamSpec {
    name: "shed",
    about: "whether stages shed what finds them full, whatever the plan says of their queues",
    kind: ParamKind::Flag,
    default: "false",
};

pub(super) fn entry() -> Entry {
    let offer = Offer {
        name: "seda",
        aliases: &["seda-static"],
        about: "a pool of threads for each stage, of fixed size",
        cites: "Welsh, Culler & Brewer, SEDA: An Architecture for Well-Conditioned, Scalable \
                Internet Services, SOSP 2001",
        params: &[pools::THREADS, CAPACITY, pools::INSTANCES, SHED],
    };
    Entry::new(offer, Seda::new)
}

impl Seda {
    /// From its parameters.
    #[must_use]
    pub fn new(validated: &Choice) -> Self {
        let threads = validated.count("threads");
        Seda::of(threads, threads, validated)
    }

    /// With so many threads for each stage, which may become so many, and the rest from its
    /// parameters.
    pub(super) fn of(threads: usize, threads_max: usize, validated: &Choice) -> Self {
        Seda {
            threads,
            threads_max,
            capacity: validated.count("capacity"),
            instances: pools::instances_of(validated),
            shed: validated.flag("shed"),
        }
    }
}

impl Policy for Seda {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        let stages = pools::staged(control);
        pools::set_instances(control, self.instances, self.threads_max)?;
        for stage in stages.iter().filter(|stage| !stage.capacity_said) {
            control.set_queue_capacity(stage.id, self.capacity.max(stage.capacity_min))?;
        }
        if self.shed {
            for stage in &stages {
                control.set_when_full(stage.id, WhenFull::DropNewest)?;
            }
        }
        pools::one_for_each(control, self.threads)
    }
}

#[cfg(test)]
mod tests {
    use crate::mock::Mock;
    use crate::policies::started;
    use crate::{PoolId, WhenFull};

    fn server() -> Mock {
        Mock::new().source("accept").stage("parse").stage("load").stage("send")
    }

    #[test]
    fn each_stage_has_a_bounded_queue_two_threads_and_an_instance_for_each() {
        let (_, mut mock) = started("seda", server());
        assert_eq!(
            mock.take_log(),
            [
                "add_instances parse 1",
                "add_instances load 1",
                "add_instances send 1",
                "set_queue_capacity parse 100",
                "set_queue_capacity load 100",
                "set_queue_capacity send 100",
                "kill_threads main 3",
                "new_pool 2 -> pool1",
                "set_pool pool1 parse",
                "new_pool 2 -> pool2",
                "set_pool pool2 load",
                "new_pool 2 -> pool3",
                "set_pool pool3 send",
            ]
        );
        assert_eq!(mock.explained(), ["a pool of 2 for each of 3 stages"]);
        assert_eq!(mock.at("accept").pool, PoolId(0));
    }

    #[test]
    fn a_stage_that_gathers_has_room_for_what_it_gathers() {
        let mock = server().handed_at_once("load", 500).handed_at_once("send", 5);
        let (_, mock) = started("seda", mock);
        assert_eq!(["parse", "load", "send"].map(|name| mock.at(name).capacity), [100, 500, 100]);
    }

    #[test]
    fn a_queue_whose_capacity_is_planned_keeps_it() {
        let mock = server().planned_capacity("parse", 7).planned_capacity("send", 5_000);
        let (_, mock) = started("seda(capacity=50)", mock);
        assert_eq!(["parse", "load", "send"].map(|name| mock.at(name).capacity), [7, 50, 5_000]);
    }

    #[test]
    fn instances_follow_the_threads_unless_somebody_says_otherwise() {
        let mock = || server().stateful("load").stage("sign").ordered("sign").stage("log");
        let instances = |mock: &Mock| {
            ["parse", "load", "send", "sign", "log"].map(|name| mock.at(name).instances)
        };
        let (_, four) = started("seda(threads=4)", mock().planned("send", 3).planned("log", 1));
        assert_eq!(instances(&four), [4, 1, 3, 1, 1]);
        // What the policy is told holds for a stage in order too, but not for one that is planned.
        let (_, ten) = started("seda(instances=10, threads=8)", mock().planned("send", 12));
        assert_eq!(instances(&ten), [10, 1, 12, 10, 10]);
    }

    #[test]
    fn all_stages_shed_and_only_if_told_to() {
        let mock = || server().stage_at("admin", 1);
        for (choice, rule) in [("seda", WhenFull::Block), ("seda(shed=true)", WhenFull::DropNewest)]
        {
            let (_, mock) = started(choice, mock());
            let found = ["parse", "admin", "load", "send"].map(|name| mock.at(name).when_full);
            assert_eq!(found, [rule; 4], "{choice}");
        }
    }

    #[test]
    fn sources_alone_keep_their_threads() {
        for mock in [Mock::new(), Mock::new().source("accept").input("clicks")] {
            assert!(started("seda(shed=true, instances=10)", mock).1.log().is_empty());
        }
    }

    #[test]
    fn a_main_pool_of_one_keeps_it() {
        let (_, mock) = started("seda", server().with_threads(1));
        assert!(mock.log().iter().all(|line| !line.starts_with("kill")), "{:?}", mock.log());
    }
}
