//! The configurations of the published table, scaled to this machine, and the other policies.
//!
//! The rule. Published, on 8 CPUs: 14 threads in all, two for each of seven stages, under every policy;
//! 28 (four a stage) in one more row; each stage as many instances as its pool has threads. Here a stage
//! has two for every eight CPUs, at least one; seven times as many are in all, under every policy that
//! shares them, and four a stage are twice as many. So policies have the published proportion of threads
//! to one another on every machine, and to the processors (1.75 each) from four CPUs on; with fewer there
//! are more, or a stage would have none.
//!
//! Thread stealing has five instances for each thread, as in its listing: with as many as threads nobody
//! could ever take one. Its ten seconds, of ten published minutes, are a sixtieth of a run here as well,
//! and so are the two seconds of dynamic SEDA; that adds a thread where a queue is half full, as
//! published, up to five times as many as it began with.
//!
//! Everybody's queues hold the same (`work::queue`) and make the stage before wait: the images are
//! to be treated, all of them. A visit takes one image.

use super::work::queue;
use comporta::{Choice, Plan};

/// How the program runs.
pub(crate) struct Configuration {
    pub(crate) name: &'static str,
    /// What a plan says, on a machine of this size.
    choice: fn(Size) -> Choice,
    /// Its stages have pools, and so instances, of their own.
    pools: bool,
    /// What it took there, in seconds, if it is one of the table.
    pub(crate) published_s: Option<f64>,
}

/// The published machine.
const CPUS: usize = 8;
/// Stages of the published program.
const STAGES: usize = 7;
/// Milliseconds between two steals, and two resizings, for each hundred images: a hundred take some
/// 150 ms on two cores, and the published 5,000 took ten minutes with ten, and two, seconds between.
const STOLEN_EVERY_MS: f64 = 2.5;
const RESIZED_EVERY_MS: f64 = 0.5;
/// Threads that a stage of dynamic SEDA may have, for each that it has at first: 10 of 2, published.
const GROWS_TO: usize = 5;

/// What a configuration is scaled to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) cores: usize,
    pub(crate) images: usize,
}

impl Size {
    /// Threads of a stage that has its own, where the published one had so many.
    pub(crate) fn per_stage(self, published: usize) -> usize {
        (2 * self.cores / CPUS).max(1) * published / 2
    }

    /// Threads that all stages share, where the published ones shared 14.
    pub(crate) fn shared(self) -> usize {
        STAGES * self.per_stage(2)
    }

    fn every(self, ms: f64) -> String {
        format!("{}us", ((ms * 1e3 * self.images as f64 / 100.0) as u64).max(1_000))
    }
}

fn seda(published: usize, size: Size) -> Choice {
    let threads = size.per_stage(published);
    Choice::new("seda").with("threads", threads).with("capacity", queue(size.cores))
}

fn thread_stealing(size: Size) -> Choice {
    let every = size.every(STOLEN_EVERY_MS);
    Choice::new("thread-stealing").with("threads", size.per_stage(2)).with("every", every)
}

fn seda_dynamic(size: Size) -> Choice {
    Choice::new("seda-dynamic")
        .with("threads_min", size.per_stage(2))
        .with("threads_max", GROWS_TO * size.per_stage(2))
        .with("every", size.every(RESIZED_EVERY_MS))
        .with("capacity", queue(size.cores))
        .with("above", queue(size.cores) / 2)
}

/// The published table, and then the others. The first is what all are compared with.
#[rustfmt::skip]
pub(crate) const CONFIGURATIONS: [Configuration; 14] = [
    Configuration { name: "single", choice: |_| "single".into(), pools: false, published_s: Some(437.48) },
    Configuration { name: "seda_4", choice: |size| seda(4, size), pools: true, published_s: Some(477.48) },
    Configuration { name: "srpt", choice: |_| "srpt".into(), pools: false, published_s: Some(488.64) },
    Configuration { name: "cohort", choice: |_| "cohort".into(), pools: false, published_s: Some(584.64) },
    Configuration { name: "dbr", choice: |_| "dbr".into(), pools: false, published_s: Some(591.44) },
    Configuration { name: "seda_2", choice: |size| seda(2, size), pools: true, published_s: Some(620.04) },
    Configuration { name: "lrb", choice: |_| "lrb".into(), pools: false, published_s: Some(623.31) },
    Configuration { name: "thread_stealing", choice: thread_stealing, pools: true, published_s: Some(627.52) },
    Configuration { name: "srpt_private", choice: |_| "srpt-private".into(), pools: false, published_s: Some(740.72) },
    Configuration { name: "stealing", choice: |_| "stealing".into(), pools: false, published_s: None },
    Configuration { name: "seda_dynamic", choice: seda_dynamic, pools: true, published_s: None },
    Configuration { name: "cohort_bounded", choice: |_| "cohort-bounded".into(), pools: false, published_s: None },
    Configuration { name: "master_worker", choice: |_| "master-worker".into(), pools: false, published_s: None },
    Configuration { name: "color", choice: |_| "color".into(), pools: false, published_s: None },
];

impl Configuration {
    pub(crate) fn plan(&self, size: Size) -> Plan {
        let plan = Plan::new()
            .threads(size.shared())
            .policy((self.choice)(size))
            .every(|stage| stage.capacity(queue(size.cores)).batch(1));
        // Those with pools give each stage instances for its threads.
        if self.pools { plan } else { plan.every(|stage| stage.instances(size.shared())) }
    }

    /// The policy with its parameters, as a plan would say it.
    pub(crate) fn shown(&self, size: Size) -> String {
        (self.choice)(size).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comporta::policy::Registry;

    fn on(cores: usize) -> Size {
        Size { cores, images: 400 }
    }

    #[test]
    fn policies_have_the_published_threads_on_the_published_machine_and_their_proportion_elsewhere()
    {
        let threads = |cores| [on(cores).shared(), on(cores).per_stage(2), on(cores).per_stage(4)];
        assert_eq!(threads(CPUS), [14, 2, 4]);
        assert_eq!(threads(2), [7, 1, 2]);
        assert_eq!(threads(16), [28, 4, 8]);
    }

    #[test]
    fn no_policy_is_left_out_and_no_two_rows_are_the_same_plan() {
        for cores in [1, 2, 8] {
            let shown = CONFIGURATIONS.each_ref().map(|row| row.shown(on(cores)));
            for (at, row) in shown.iter().enumerate() {
                assert!(!shown[..at].contains(row), "{row} on {cores}");
            }
        }
        let chosen = CONFIGURATIONS.each_ref().map(|row| (row.choice)(on(2)).name);
        for offer in Registry::new().offers() {
            assert!(chosen.iter().any(|name| name == offer.name), "{}", offer.name);
        }
    }
}
