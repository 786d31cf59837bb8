//! What came of a run: latencies of the fast and the slow replica, events, migrations, and each second.

use comporta_placement::Reason;
use hdrhistogram::Histogram;

use crate::scenario::Scenario;
use crate::seen::Copy;

/// Digits of a latency that are kept.
const DIGITS: u8 = 3;

/// How long events took, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// Events.
    pub count: u64,
    /// Arithmetic mean (equation 4.1).
    pub mean_ms: f64,
    /// Half of them took no longer.
    pub p50_ms: f64,
    /// 99 of 100 took no longer (equations 4.2 and 4.3).
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// A migration that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Migration {
    /// When it was decided, in seconds.
    pub at_s: f64,
    /// What migrated.
    pub replica: String,
    /// From which node.
    pub from: String,
    /// To which node.
    pub to: String,
    /// Why.
    pub reason: Reason,
    /// When the replica was paused, if it was before the end of the run.
    pub paused_s: Option<f64>,
    /// When it went on at its new place.
    pub ended_s: Option<f64>,
    /// Bytes of state that were copied.
    pub bytes: f64,
}

/// A node that was asked for or released.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeChange {
    /// When, in seconds.
    pub at_s: f64,
    /// Which.
    pub node: String,
    /// Asked for; otherwise released.
    pub added: bool,
    /// Why.
    pub reason: Reason,
}

/// One second of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// The second that it ended with.
    pub second: f64,
    /// Mean latency of the first copies that came in it.
    pub fast_ms: Option<f64>,
    /// Mean latency of the last copies.
    pub slow_ms: Option<f64>,
    /// Share of each node's cores that was used; `None` of one that was not there.
    pub loads: Vec<Option<f32>>,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The scenario.
    pub scenario: String,
    /// The strategy, with the parameters that were given.
    pub strategy: String,
    /// What chance went by.
    pub seed: u64,
    /// Seconds of the scenario.
    pub duration_s: f64,
    /// Nodes, by name.
    pub nodes: Vec<String>,
    /// Events that sources sent.
    pub offered: u64,
    /// Events that came to an end at sinks, first copies alone.
    pub processed: u64,
    /// Events that a replica failed.
    pub failed: u64,
    /// The copies of events that came first from operators: the fast replica, which receivers see.
    pub fast: Latency,
    /// The copies that came last: the slow replica.
    pub slow: Latency,
    /// From source to sink.
    pub total: Latency,
    /// Migrations, in order.
    pub migrations: Vec<Migration>,
    /// Nodes that came and went.
    pub node_changes: Vec<NodeChange>,
    /// Seconds that nodes were there, all together: what energy goes by.
    pub node_seconds: f64,
    /// Rounds that were held.
    pub rounds: u64,
    /// Every second.
    pub moments: Vec<Moment>,
    /// Things that happened in the model.
    pub events: u64,
}

#[derive(Debug)]
struct Sample {
    histogram: Histogram<u64>,
    sum_ns: f64,
    /// Of this second: sum and count.
    second: (f64, u64),
}

impl Sample {
    fn new() -> Self {
        let histogram = Histogram::new(DIGITS).expect("three digits are a valid precision");
        Sample { histogram, sum_ns: 0.0, second: (0.0, 0) }
    }

    fn add(&mut self, took_ns: u64, counts: bool) {
        self.second = (self.second.0 + took_ns as f64, self.second.1 + 1);
        if counts {
            self.sum_ns += took_ns as f64;
            self.histogram += took_ns;
        }
    }

    fn take_second(&mut self) -> Option<f64> {
        let (sum, count) = std::mem::take(&mut self.second);
        (count > 0).then(|| sum / count as f64 / 1e6)
    }

    fn latency(&self) -> Latency {
        let count = self.histogram.len();
        if count == 0 {
            return Latency::default();
        }
        let quantile = |q| self.histogram.value_at_quantile(q) as f64 / 1e6;
        Latency {
            count,
            mean_ms: self.sum_ns / count as f64 / 1e6,
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            max_ms: self.histogram.max() as f64 / 1e6,
        }
    }
}

/// Writes a run down as it goes.
#[derive(Debug)]
pub(crate) struct Recorder {
    warm_up_ns: u64,
    fast: Sample,
    slow: Sample,
    total: Sample,
    pub(crate) offered: u64,
    processed: u64,
    pub(crate) failed: u64,
    pub(crate) migrations: Vec<Migration>,
    pub(crate) node_changes: Vec<NodeChange>,
    node_seconds: f64,
    pub(crate) rounds: u64,
    moments: Vec<Moment>,
    pub(crate) events: u64,
}

impl Recorder {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Recorder {
            warm_up_ns: (scenario.warm_up * 1e9) as u64,
            fast: Sample::new(),
            slow: Sample::new(),
            total: Sample::new(),
            offered: 0,
            processed: 0,
            failed: 0,
            migrations: Vec::new(),
            node_changes: Vec::new(),
            node_seconds: 0.0,
            rounds: 0,
            moments: Vec::new(),
            events: 0,
        }
    }

    /// A copy of an event has come through an operator. The only copy is the first and the last.
    pub(crate) fn latency(&mut self, now: u64, took_ns: u64, copy: Option<Copy>) {
        let counts = now >= self.warm_up_ns;
        if copy.is_none_or(|copy| copy == Copy::First) {
            self.fast.add(took_ns, counts);
        }
        if copy.is_none_or(|copy| matches!(copy, Copy::Last | Copy::Late)) {
            self.slow.add(took_ns, counts);
        }
    }

    /// An event has come to its end.
    pub(crate) fn processed(&mut self, now: u64, took_ns: u64) {
        self.processed += 1;
        self.total.add(took_ns, now >= self.warm_up_ns);
    }

    /// A second has passed, in which nodes were loaded like this.
    pub(crate) fn second(&mut self, second: f64, loads: Vec<Option<f32>>) {
        self.node_seconds += loads.iter().flatten().count() as f64;
        let (fast_ms, slow_ms) = (self.fast.take_second(), self.slow.take_second());
        self.moments.push(Moment { second, fast_ms, slow_ms, loads });
    }

    /// The run is over; so many nodes were there in what is left of its last second.
    pub(crate) fn finish(mut self, scenario: &Scenario, nodes: usize) -> Outcome {
        self.node_seconds += nodes as f64 * (scenario.duration - self.moments.len() as f64);
        Outcome {
            scenario: scenario.name.clone(),
            strategy: scenario.strategy.to_string(),
            seed: scenario.seed,
            duration_s: scenario.duration,
            nodes: scenario.nodes.iter().map(|node| node.name.clone()).collect(),
            offered: self.offered,
            processed: self.processed,
            failed: self.failed,
            fast: self.fast.latency(),
            slow: self.slow.latency(),
            total: self.total.latency(),
            migrations: self.migrations,
            node_changes: self.node_changes,
            node_seconds: self.node_seconds,
            rounds: self.rounds,
            moments: self.moments,
            events: self.events,
        }
    }
}
