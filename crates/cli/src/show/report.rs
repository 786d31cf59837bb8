//! What is left of a run: its end, its numbers, what went wrong; and which exit that makes.

use std::time::Duration;

use comporta_runtime::{
    Control, Decision, Ended, GatewaySnapshot, Reason, Snapshot, StageSnapshot, Summary,
};

use super::exit::Exit;
use super::failures::Kept;
use super::pace::Shape;
use super::signals;

/// Who asked the run to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A signal.
    Signal(u8),
    /// `--for`, after this long.
    Limit(Duration),
    /// Nobody: its standard output is no longer read.
    Unread,
}

impl Asked {
    /// Its name in a sentence.
    pub(super) fn name(self) -> String {
        match self {
            Asked::Signal(signal) => signals::name(signal),
            Asked::Limit(_) => "--for".to_owned(),
            Asked::Unread => "SIGPIPE".to_owned(),
        }
    }
}

/// Why events of a stage failed, in the order first seen, and how often each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) stage: String,
    pub(super) reasons: Vec<(String, u64)>,
    /// Failed events whose reasons are no longer known.
    pub(super) forgotten: u64,
    /// The events went on through the graph.
    pub(super) sent_on: bool,
}

/// What is left of a run.
pub(super) struct Report {
    pub(super) ended: Ended,
    pub(super) asked: Option<Asked>,
    pub(super) exit: Exit,
    /// As it began: with the threads and instances that have left by the end.
    pub(super) first: Snapshot,
    /// As it ended.
    pub(super) snapshot: Snapshot,
    /// How many events came into the program.
    pub(super) entered: u64,
    /// How many were handled by a stage that leads nowhere.
    pub(super) left: u64,
    pub(super) problems: Vec<String>,
    pub(super) stuck: Vec<String>,
    /// Processor time of the process.
    pub(super) cpu: Option<Duration>,
    pub(super) failed: Vec<Failed>,
    /// Where they were written.
    pub(super) kept: Option<Kept>,
    pub(super) decisions: Decisions,
}

/// What the policies did.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    /// Each with its cluster, oldest first.
    pub(super) last: Vec<(String, Decision)>,
    /// How many there were before them.
    pub(super) forgotten: u64,
}

/// What the policies of all clusters did, oldest first, and how much of it is forgotten.
pub(super) fn decisions(first: &Snapshot, control: &Control) -> Decisions {
    let mut clusters: Vec<&str> = first.pools.iter().map(|pool| pool.cluster.as_str()).collect();
    clusters.sort_unstable(); // pools that policies made come after those of all clusters
    clusters.dedup();
    let of = |cluster: &&str| control.decisions(cluster).unwrap_or_default().into_iter();
    let all =
        clusters.iter().flat_map(|cluster| of(cluster).map(|did| ((*cluster).to_owned(), did)));
    let mut last: Vec<_> = all.collect();
    last.sort_by_key(|(_, decision)| decision.at);
    let forgotten = clusters.iter().filter_map(|cluster| control.decisions_forgotten(cluster).ok());
    Decisions { last, forgotten: forgotten.sum() }
}

/// What became of the requests of a gateway: told where they enter, not where replies do, too.
pub(super) fn gateway(stage: &StageSnapshot) -> Option<&GatewaySnapshot> {
    stage.gateway.as_ref().filter(|_| stage.capacity == 0)
}

/// Which exit an end makes; `stopped` is the signal that stopped it at once.
pub(super) fn exit(summary: &Summary, shape: &Shape, stopped: Option<u8>) -> Exit {
    let left = summary.snapshot.stages.iter().any(|stage| held_or_cancelled(stage) > 0);
    let mut stages = summary.snapshot.stages.iter().enumerate();
    let failed = stages.any(|(at, stage)| stage.counts.failed > 0 && !shape.sends_errors(at));
    match stopped {
        Some(signal) => Exit::Stopped(signal),
        None if summary.ended == Ended::TimedOut && left => Exit::Left,
        None if !summary.problems.is_empty() || !summary.stuck.is_empty() => Exit::Problems,
        // Of a program that came to its own end, what failed and did not go on is missing from the result. One that
        // serves until it is asked to end has done its work; what failed is told.
        None if matches!(summary.ended, Ended::Complete | Ended::Quit) && failed => Exit::Problems,
        None => Exit::Done,
    }
}

/// The events of a stage that came, but came to no end.
pub(super) fn held_or_cancelled(stage: &StageSnapshot) -> u64 {
    stage.counts.cancelled + (stage.queued + stage.in_flight + stage.outboxed) as u64
}

/// The reasons of all failures that are still kept.
pub(super) fn failed(snapshot: &Snapshot, shape: &Shape, control: &Control) -> Vec<Failed> {
    let stages = snapshot.stages.iter().enumerate();
    let failing = stages.filter(|(_, stage)| stage.counts.failed > 0);
    failing
        .map(|(at, stage)| {
            let failures = control.failures(&stage.name).unwrap_or_default();
            Failed {
                stage: stage.name.clone(),
                reasons: grouped(failures.into_iter().map(|failure| failure.reason)),
                forgotten: stage.failures_forgotten,
                sent_on: shape.sends_errors(at),
            }
        })
        .collect()
}

fn grouped(reasons: impl Iterator<Item = Reason>) -> Vec<(String, u64)> {
    let mut groups: Vec<(String, u64)> = Vec::new();
    for reason in reasons.map(|reason| reason.to_string()) {
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => groups.push((reason, 1)),
        }
    }
    groups
}

/// Processor time this process has used.
#[cfg(unix)]
pub(super) fn cpu_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).ok()
}

#[cfg(not(unix))]
pub(super) fn cpu_time() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_in_the_order_first_seen() {
        let reason = |text: &str| Reason::Error(text.to_owned());
        let groups = grouped(["b", "a", "b", "b"].map(reason).into_iter());
        assert_eq!(groups, [("b".to_owned(), 3), ("a".to_owned(), 1)]);
    }
}
