//! The configurations of the published table, scaled to this machine.
//!
//! The rule. Published: 24 cores; 24 threads (one a core) or 48 (two a core), split equally where
//! there are two clusters; 6, 12 or 24 instances. Here: 24 threads are the cores (`--threads`), 48
//! twice as many; 6 instances are a quarter of the cores, at least 1, and 12 and 24 are two and
//! four times that, so that the configurations stay different on a machine of two cores. Two clusters
//! have at least one thread each. Each source has a cluster, and a thread, of its own, which is not
//! counted, as published: it reads the lines, so that `correlate` is the stage that works most, as
//! there. Windows are in the cluster of the rest.

use super::work::{LOGS, QUEUE};
use comporta::Plan;
use weblog::program::named;

/// A row of the published table.
pub(crate) struct Configuration {
    pub(crate) name: &'static str,
    /// Whether `correlate` has a cluster of its own.
    two: bool,
    threads: usize,
    /// `persist` and `filter`.
    instances: usize,
    correlate: usize,
    /// What it took there.
    pub(crate) published_s: f64,
}

const CORES: usize = 24;
const FEWEST: usize = 6;
/// Lines, and suspicious entries, that a queue of such holds.
const LINES: usize = 4_096;

#[rustfmt::skip]
pub(crate) const TABLE: [Configuration; 8] = [
    Configuration { name: "one-24-6", two: false, threads: 24, instances: 6, correlate: 12, published_s: 107.836 },
    Configuration { name: "two-24-6", two: true, threads: 24, instances: 6, correlate: 12, published_s: 98.720 },
    Configuration { name: "one-24-12", two: false, threads: 24, instances: 12, correlate: 12, published_s: 104.015 },
    Configuration { name: "two-24-12", two: true, threads: 24, instances: 12, correlate: 12, published_s: 102.200 },
    Configuration { name: "one-48-12", two: false, threads: 48, instances: 12, correlate: 24, published_s: 112.116 },
    Configuration { name: "two-48-12", two: true, threads: 48, instances: 12, correlate: 24, published_s: 102.329 },
    Configuration { name: "one-48-24", two: false, threads: 48, instances: 24, correlate: 24, published_s: 111.629 },
    Configuration { name: "two-48-24", two: true, threads: 48, instances: 24, correlate: 24, published_s: 111.616 },
];

impl Configuration {
    /// Threads in all, instances of `persist` and `filter`, and of `correlate`, on so many cores.
    pub(crate) fn scaled(&self, cores: usize) -> (usize, usize, usize) {
        let instances = |published: usize| {
            let fewest = (FEWEST * cores / CORES).max(1);
            published * fewest / FEWEST
        };
        let threads = self.threads * cores / CORES;
        (threads, instances(self.instances), instances(self.correlate))
    }

    pub(crate) fn plan(&self, cores: usize) -> Plan {
        let (threads, instances, correlate) = self.scaled(cores);
        let mut plan = Plan::new().every(|stage| stage.capacity(QUEUE));
        plan = plan.stage("alarm", |stage| stage.capacity(LINES));
        for log in 0..LOGS {
            let source = named("source", log, LOGS);
            plan = plan
                .stage(named("window", log, LOGS), |stage| stage.capacity(LINES))
                .cluster(&*source.clone(), |cluster| cluster.threads(1).stages((&*source).into()));
        }
        for stage in ["persist", "filter"] {
            plan = plan.stage(stage, |stage| stage.instances(instances));
        }
        plan = plan.stage("correlate", |stage| stage.instances(correlate));
        if !self.two {
            return plan.threads(threads);
        }
        let own = (threads / 2).max(1);
        plan.threads((threads - threads / 2).max(1))
            .cluster("correlate", |cluster| cluster.threads(own).stages("correlate".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_the_published_machine_the_configurations_are_the_published_ones() {
        for row in &TABLE {
            assert_eq!(row.scaled(CORES), (row.threads, row.instances, row.correlate));
        }
    }

    #[test]
    fn on_two_cores_no_two_rows_are_the_same_plan() {
        for (at, row) in TABLE.iter().enumerate() {
            assert!(TABLE[..at].iter().all(|other| other.plan(2) != row.plan(2)), "{}", row.name);
        }
    }
}
