//! Work stealing carried over to stages: a stage cannot take another's events, since it has no
//! handler for them, so it takes its threads. Each stage has a pool; every ten seconds the two
//! stages with the lowest service rate take a thread each from the two with the highest, if the
//! victim keeps one and the taker has an instance for it. So a stage has more instances than threads to
//! begin with, unless the plan says otherwise. Where queues block, rates are all alike, and the last
//! stage whose queue is full counts as the slowest (`service_rate`), which is not as published.

use std::num::NonZeroUsize;
use std::time::Duration;

use comporta_model::plan::{Choice, Offer, ParamKind, ParamSpec};

use super::{pools, service_rate};
use crate::control::{PolicyControl, Refused, StageInfo, TimerId};
use crate::policy::Policy;
use crate::registry::Entry;

/// How many stages take a thread at a time: "to avoid too many reallocations".
const PAIRS: usize = 2;

/// How many instances a stage has for each thread it begins with: 10 for 2, as published.
const INSTANCES_PER_THREAD: usize = 5;

/// A pool for each stage; slow stages take threads from fast ones.
#[derive(Clone, Debug)]
pub struct ThreadStealing {
    threads: usize,
    instances: Option<NonZeroUsize>,
    every: Duration,
    stages: Vec<StageInfo>,
}

pub(super) fn entry() -> Entry {
    const EVERY: ParamSpec = ParamSpec {
        name: "every",
        about: "how often threads are moved",
        kind: ParamKind::Span,
        default: "10s",
    };
    let offer = Offer {
        name: "thread-stealing",
        aliases: &["steal-threads"],
        about: "a pool of threads for each stage; slow stages take threads from fast ones",
        cites: "Riba da Costa Cruz, Uma interface de programação para controle de sobrecarga em \
                arquiteturas baseadas em estágios, PUC-Rio 2015; after Gaud et al., Efficient \
                workstealing for multicore event-driven systems, ICDCS 2010",
        params: &[pools::THREADS, pools::INSTANCES, EVERY],
    };
    Entry::new(offer, ThreadStealing::new)
}

impl ThreadStealing {
    /// From its parameters.
    #[must_use]
    pub fn new(validated: &Choice) -> Self {
        ThreadStealing {
            threads: validated.count("threads"),
            instances: pools::instances_of(validated),
            every: validated.span("every"),
            stages: Vec::new(),
        }
    }
}

impl Policy for ThreadStealing {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        let follow = self.threads.saturating_mul(INSTANCES_PER_THREAD);
        pools::set_instances(control, self.instances, follow)?;
        pools::one_for_each(control, self.threads)?;
        self.stages = pools::staged(control);
        control.add_timer(self.every).map(|_| ())
    }

    fn on_timer(&mut self, _: TimerId, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        let rated = service_rate::ascending(&self.stages, control)?;
        let pairs = rated.iter().zip(rated.iter().rev());
        for (taker, victim) in pairs.take(PAIRS) {
            let victims = control.threads(control.pool_of(victim.stage.id)?)?;
            let takers = control.threads(control.pool_of(taker.stage.id)?)?;
            let instances = control.instances(taker.stage.id)?;
            // Strictly slower, which the published code does not ask: equals gain nothing, and
            // of few stages the second pair may be one stage, or the first pair turned round.
            if taker.is_slower_than(victim) && victims > 1 && instances > takers {
                control.explain(format!("service rate {taker} < {victim}"));
                control.steal(taker.stage.id, victim.stage.id, 1)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::mock::Mock;
    use crate::policies::started;
    use crate::{Policy, TimerId};

    /// Stages `a`, `b`, ... at which 100 events arrived, and which processed these.
    fn pipeline(processed: &[u64]) -> Mock {
        let name = |n: usize| ["a", "b", "c", "d", "e", "f"][n];
        let add = |mock: Mock, n| mock.stage(name(n));
        let mut mock = (0..processed.len()).fold(Mock::new().source("s"), add);
        for (n, count) in processed.iter().enumerate() {
            count_up(&mut mock, name(n), *count);
        }
        mock
    }

    fn count_up(mock: &mut Mock, stage: &str, processed: u64) {
        (mock.at_mut(stage).arrived, mock.at_mut(stage).processed) = (100, processed);
    }

    /// What is stolen when the timer is due.
    fn stolen(policy: &mut dyn Policy, mock: &mut Mock) -> Vec<String> {
        mock.take_log();
        mock.fire_timer(policy, TimerId(0)).unwrap();
        let mut log = mock.take_log();
        log.retain(|line| !line.starts_with("reset_statistics"));
        log
    }

    #[test]
    fn each_stage_has_two_threads_and_rates_are_looked_at_every_ten_seconds() {
        let (_, mock) = started("thread-stealing", pipeline(&[1]));
        assert_eq!(
            mock.log(),
            [
                "add_instances a 9",
                "kill_threads main 3",
                "new_pool 2 -> pool1",
                "set_pool pool1 a",
                "add_timer 10s"
            ]
        );
    }

    #[test]
    fn the_two_slowest_take_a_thread_each_from_the_two_fastest() {
        let (mut policy, mut mock) =
            started("thread-stealing", pipeline(&[90, 20, 70, 100, 40, 60]));
        assert_eq!(stolen(&mut *policy, &mut mock), ["steal b d 1", "steal e a 1"]);
        assert_eq!(mock.explained()[1], "service rate b 20 % < d 100 %");
        assert_eq!(mock.at("c").arrived, 0, "statistics begin anew");
    }

    #[test]
    fn of_stages_that_all_keep_up_the_last_that_is_full_takes_one() {
        // `a` waits for `b`, whose events are what holds up all others.
        let (mut policy, mut mock) = started("thread-stealing", pipeline(&[98, 99, 101, 100]));
        for (stage, queued, busy) in [("a", 4, 10), ("b", 0, 4), ("c", 0, 3), ("d", 0, 0)] {
            (mock.at_mut(stage).queued, mock.at_mut(stage).busy) = (queued, busy);
            mock.at_mut(stage).capacity = 4;
        }
        assert_eq!(stolen(&mut *policy, &mut mock), ["steal b d 1"]);
        assert_eq!(mock.explained()[1], "service rate b 99 % (full) < d 100 %");
        // A rate that is lower says more than a queue.
        let (mut policy, mut mock) = started("thread-stealing", pipeline(&[100, 60, 100]));
        (mock.at_mut("c").queued, mock.at_mut("c").capacity) = (4, 4);
        assert_eq!(stolen(&mut *policy, &mut mock), ["steal b a 1"]);
    }

    #[test]
    fn of_three_stages_the_middle_one_is_left_alone() {
        let (mut policy, mut mock) = started("thread-stealing", pipeline(&[90, 50, 10]));
        assert_eq!(stolen(&mut *policy, &mut mock), ["steal c a 1"]);
    }

    #[test]
    fn a_victim_keeps_one_thread() {
        let (mut policy, mut mock) = started("thread-stealing", pipeline(&[100, 10]));
        assert_eq!(stolen(&mut *policy, &mut mock), ["steal b a 1"]);
        count_up(&mut mock, "a", 100);
        count_up(&mut mock, "b", 10);
        assert!(stolen(&mut *policy, &mut mock).is_empty());
    }

    #[test]
    fn a_taker_needs_an_instance_for_the_thread() {
        let mock = pipeline(&[100, 10]).planned("b", 2);
        let (mut policy, mut mock) = started("thread-stealing", mock);
        assert!(stolen(&mut *policy, &mut mock).is_empty());
        // `a` would have one.
        count_up(&mut mock, "a", 10);
        count_up(&mut mock, "b", 100);
        assert_eq!(stolen(&mut *policy, &mut mock), ["steal a b 1"]);
    }

    #[test]
    fn instances_can_be_said_and_stateful_stages_never_take() {
        let mock = pipeline(&[100, 10]).stateful("b");
        let (mut policy, mut mock) = started("thread-stealing(instances=5)", mock);
        assert_eq!(mock.log()[0], "add_instances a 4");
        assert!(stolen(&mut *policy, &mut mock).is_empty());
    }

    #[test]
    fn equals_and_stages_alone_take_nothing() {
        for mock in [Mock::new(), pipeline(&[]), pipeline(&[50]), pipeline(&[50, 50, 50])] {
            let (mut policy, mut mock) = started("thread-stealing", mock);
            assert!(stolen(&mut *policy, &mut mock).is_empty());
        }
    }
}
