//! An outcome as JSON: everything that came of a run.

use serde_json::{Value, json};

use crate::outcome::{Latency, Outcome};

fn latency(of: &Latency) -> Value {
    json!({
        "count": of.count,
        "mean_ms": of.mean_ms,
        "p50_ms": of.p50_ms,
        "p99_ms": of.p99_ms,
        "max_ms": of.max_ms,
    })
}

/// One object. The fields have the names and units of [`Outcome`].
#[must_use]
pub fn json(of: &Outcome) -> Value {
    let reason = |reason: &comporta_placement::Reason| json!({"signal": reason.signal, "rule": reason.rule, "effect": reason.effect});
    let migrations: Vec<Value> = of
        .migrations
        .iter()
        .map(|record| {
            json!({
                "at_s": record.at_s,
                "replica": record.replica,
                "from": record.from,
                "to": record.to,
                "paused_s": record.paused_s,
                "ended_s": record.ended_s,
                "bytes": record.bytes,
                "reason": reason(&record.reason),
            })
        })
        .collect();
    let changes: Vec<Value> = of
        .node_changes
        .iter()
        .map(|change| {
            json!({
                "at_s": change.at_s,
                "node": change.node,
                "added": change.added,
                "reason": reason(&change.reason),
            })
        })
        .collect();
    let moments: Vec<Value> = of
        .moments
        .iter()
        .map(|moment| {
            json!({
                "second": moment.second,
                "fast_ms": moment.fast_ms,
                "slow_ms": moment.slow_ms,
                "loads": moment.loads,
            })
        })
        .collect();
    json!({
        "scenario": of.scenario,
        "strategy": of.strategy,
        "seed": of.seed,
        "duration_s": of.duration_s,
        "nodes": of.nodes,
        "offered": of.offered,
        "processed": of.processed,
        "failed": of.failed,
        "fast": latency(&of.fast),
        "slow": latency(&of.slow),
        "total": latency(&of.total),
        "migrations": migrations,
        "node_changes": changes,
        "node_seconds": of.node_seconds,
        "rounds": of.rounds,
        "events": of.events,
        "moments": moments,
    })
}
