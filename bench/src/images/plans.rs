//! The configurations of the published table, scaled to this machine, and the other policies.
//!
//! The rule. Published: 8 CPUs; 14 threads, two for each of seven stages and "at least as many as
//! there are CPUs", or 28 (four a stage); each stage as many instances as its pool has threads.
//! Here: as many threads as cores, and as many instances, where all stages share them; where each
//! stage has its own, two a stage are a quarter of the cores, at least 1, and four are twice that,
//! so that both rows stay what they are on a machine of two cores.
//!
//! Thread stealing has an instance for each core, or nobody could ever take a thread. Its ten
//! seconds, of ten published minutes, are a sixtieth of a run here as well, and so are the two
//! seconds of dynamic SEDA; that adds a thread where a queue is half full, as published.
//!
//! Everybody's queues hold the same (`work::queue`) and make the stage before wait: the images are
//! to be treated, all of them. A visit takes one image.

use super::work::queue;
use comporta::{Choice, Plan};

/// How the program runs.
pub(crate) struct Configuration {
    pub(crate) name: &'static str,
    /// What a plan says, on so many cores.
    choice: fn(usize) -> Choice,
    /// What it took there, in seconds, if it is one of the table.
    pub(crate) published_s: Option<f64>,
}

/// The published machine.
const CPUS: usize = 8;
/// Of a published run, in which threads were stolen every 10 s.
const STOLEN_EVERY_MS: usize = 10;
const RESIZED_EVERY_MS: usize = 2;

/// Threads of a stage that has its own, where the published one had so many.
pub(crate) fn per_stage(published: usize, cores: usize) -> usize {
    (2 * cores / CPUS).max(1) * published / 2
}

fn seda(published: usize, cores: usize) -> Choice {
    let threads = per_stage(published, cores);
    Choice::new("seda")
        .with("threads", threads)
        .with("instances", threads)
        .with("capacity", queue(cores))
}

fn thread_stealing(cores: usize) -> Choice {
    Choice::new("thread-stealing")
        .with("threads", per_stage(2, cores))
        .with("instances", cores.max(2))
        .with("every", format!("{STOLEN_EVERY_MS}ms"))
}

fn seda_dynamic(cores: usize) -> Choice {
    Choice::new("seda-dynamic")
        .with("threads_min", per_stage(2, cores))
        .with("threads_max", cores.max(2))
        .with("instances", cores.max(2))
        .with("every", format!("{RESIZED_EVERY_MS}ms"))
        .with("capacity", queue(cores))
        .with("above", queue(cores) / 2)
}

/// The published table, and then the others. The first is what all are compared with.
#[rustfmt::skip]
pub(crate) const CONFIGURATIONS: [Configuration; 14] = [
    Configuration { name: "single", choice: |_| "single".into(), published_s: Some(437.48) },
    Configuration { name: "seda_4", choice: |cores| seda(4, cores), published_s: Some(477.48) },
    Configuration { name: "srpt", choice: |_| "srpt".into(), published_s: Some(488.64) },
    Configuration { name: "cohort", choice: |_| "cohort".into(), published_s: Some(584.64) },
    Configuration { name: "dbr", choice: |_| "dbr".into(), published_s: Some(591.44) },
    Configuration { name: "seda_2", choice: |cores| seda(2, cores), published_s: Some(620.04) },
    Configuration { name: "lrb", choice: |_| "lrb".into(), published_s: Some(623.31) },
    Configuration { name: "thread_stealing", choice: thread_stealing, published_s: Some(627.52) },
    Configuration { name: "srpt_private", choice: |_| "srpt-private".into(), published_s: Some(740.72) },
    Configuration { name: "stealing", choice: |_| "stealing".into(), published_s: None },
    Configuration { name: "seda_dynamic", choice: seda_dynamic, published_s: None },
    Configuration { name: "cohort_bounded", choice: |_| "cohort-bounded".into(), published_s: None },
    Configuration { name: "master_worker", choice: |_| "master-worker".into(), published_s: None },
    Configuration { name: "color", choice: |_| "color".into(), published_s: None },
];

impl Configuration {
    pub(crate) fn plan(&self, cores: usize) -> Plan {
        Plan::new()
            .threads(cores)
            .policy((self.choice)(cores))
            .every(|stage| stage.capacity(queue(cores)).batch(1).instances(cores))
    }

    /// The policy with its parameters, as a plan would say it.
    pub(crate) fn shown(&self, cores: usize) -> String {
        (self.choice)(cores).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comporta::policy::Registry;

    #[test]
    fn on_the_published_machine_stages_have_the_published_threads() {
        assert_eq!([2, 4].map(|published| per_stage(published, CPUS)), [2, 4]);
        assert_eq!([2, 4].map(|published| per_stage(published, 2)), [1, 2]);
    }

    #[test]
    fn no_policy_is_left_out_and_no_two_rows_are_the_same_plan() {
        for cores in [1, 2, 8] {
            let shown = CONFIGURATIONS.each_ref().map(|row| row.shown(cores));
            for (at, row) in shown.iter().enumerate() {
                assert!(!shown[..at].contains(row), "{row} on {cores}");
            }
        }
        let chosen = CONFIGURATIONS.each_ref().map(|row| (row.choice)(2).name);
        for offer in Registry::new().offers() {
            assert!(chosen.iter().any(|name| name == offer.name), "{}", offer.name);
        }
    }
}
