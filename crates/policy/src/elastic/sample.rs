//! What is measured of a stage from one sample to the next, and what a controller may decide on it.

use std::time::Duration;

use comporta_model::event::Time;

/// A stage between two samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// When it was taken.
    pub(super) at: Time,
    /// Since the one before; never zero.
    pub(super) elapsed: Duration,
    /// Events that came since then.
    pub(super) input: u64,
    /// Events that were handled, or failed, since then.
    pub(super) output: u64,
    /// Events that wait for a thread now.
    pub(super) queue: usize,
    /// Whether its queue is full: more may wait outside.
    pub(super) full: bool,
    /// Threads of its pool, at least one.
    pub(super) threads: usize,
    /// Time spent in its visits since the sample before.
    pub(super) busy: Duration,
}

impl Sample {
    /// Events that came, a second.
    pub(super) fn input_rate(&self) -> f64 {
        self.input as f64 / self.elapsed.as_secs_f64()
    }

    /// Events that were handled, a second.
    pub(super) fn output_rate(&self) -> f64 {
        self.output as f64 / self.elapsed.as_secs_f64()
    }

    /// Events in for each out. Where none came out, as if one had: the quotient would be infinite, and one event is
    /// the least that would have been seen.
    pub(super) fn ratio(&self) -> f64 {
        self.input as f64 / self.output.max(1) as f64
    }

    /// Whether more came than went, or more would have come if there were room.
    pub(super) fn grows(&self) -> bool {
        self.input > self.output || self.full
    }
}

/// What a controller decides on a sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nothing.
    Keep,
    /// Nothing yet: CPU time and keys are measured from now on.
    Watch,
    /// To have so many threads in all.
    Grow { total: usize, why: String },
    /// To have so many threads fewer.
    Shrink { by: usize, why: String },
}

/// What came of a decision to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grown {
    /// There are more threads.
    Made,
    /// A bound left none to make.
    Bounded,
    /// The system gave none.
    Refused,
}

/// Rules by which the threads of a stage follow its samples.
pub(super) trait Rules: Send {
    /// Takes a sample and decides.
    fn judge(&mut self, sample: &Sample) -> Verdict;
    /// Learns what came of the decision to grow that it returned last.
    fn grew(&mut self, outcome: Grown, at: Time);
    /// Forgets what was measured: the clock has jumped.
    fn forget(&mut self);
}

/// A number of threads, cut off as the published rules do; nothing that is not a number is one.
pub(super) fn truncated(threads: f64) -> usize {
    threads as usize // saturates; 0 if it is not a number
}
