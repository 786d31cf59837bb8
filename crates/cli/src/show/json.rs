//! The report as one line of JSON, for programs. The fields are these structs, in this order; their
//! names do not change, new ones may be added. Times are in seconds.

use comporta_runtime::{
    Counts, Ended, GatewaySnapshot, KeySnapshot, Latency, PoolSnapshot, Shed, StageSnapshot,
};
use serde::{Serialize, Serializer};

use super::exit::Exit;
use super::pace::per_second;
use super::report::{Asked, Report, held_or_cancelled};

/// A run.
#[derive(Serialize)]
struct Run<'a> {
    app: &'a str,
    /// `complete`, `quit`, `drained`, `timed_out` or `stopped`; `refused` if the graph or the plan was
    /// not valid, `not_started` if a stage could not be made or a source not opened.
    ended: &'static str,
    /// Who asked it to end: `SIGINT`, `SIGTERM`, `--for`, or nobody.
    asked_by: Option<String>,
    exit_code: u8,
    elapsed_s: f64,
    /// Sent by sources and inputs.
    events_in: u64,
    /// Handled by stages that lead nowhere.
    events_out: u64,
    events_in_per_s: f64,
    events_out_per_s: f64,
    /// How long events were in the program, over all stages that lead nowhere.
    latency: Taken,
    /// Processor time of the process, if the system tells.
    cpu_s: Option<f64>,
    /// Whether every event is accounted for, in every stage.
    adds_up: bool,
    stages: Vec<Stage<'a>>,
    pools: Vec<Pool<'a>>,
    /// What went wrong beside events that failed.
    problems: Vec<String>,
    /// Stages whose handlers had not returned.
    stuck: &'a [String],
    /// Why events failed, as far as it is still known.
    failures: Vec<Failure<'a>>,
    /// What `--failures` has written.
    failures_file: Option<FailuresFile<'a>>,
    /// What policies did, as far as it is still known.
    decisions: Vec<Decision<'a>>,
    /// How many there were before these.
    decisions_forgotten: u64,
}

#[derive(Serialize)]
struct Decision<'a> {
    at_s: f64,
    cluster: &'a str,
    policy: &'a str,
    /// What it was called for.
    call: &'a str,
    why: Option<&'a str>,
    did: &'a str,
}

/// All 0 if no event was counted.
#[derive(Default, Serialize)]
struct Taken {
    count: u64,
    mean_s: f64,
    deviation_s: f64,
    p50_s: f64,
    p90_s: f64,
    p99_s: f64,
    p999_s: f64,
    max_s: f64,
}

impl Taken {
    fn of(latency: &Latency) -> Self {
        let quantile = |share| latency.quantile(share).as_secs_f64();
        Taken {
            count: latency.count(),
            mean_s: latency.mean().as_secs_f64(),
            deviation_s: latency.deviation().as_secs_f64(),
            p50_s: quantile(0.5),
            p90_s: quantile(0.9),
            p99_s: quantile(0.99),
            p999_s: quantile(0.999),
            max_s: latency.max().as_secs_f64(),
        }
    }
}

/// `offered = refused + shed on entry + arrived`, and
/// `arrived = handled + shed later + failed + cancelled + queued + in_flight + outboxed`.
#[derive(Serialize)]
struct Stage<'a> {
    name: &'a str,
    offered: u64,
    refused: u64,
    arrived: u64,
    handled: u64,
    emitted: u64,
    unrouted: u64,
    failed: u64,
    cancelled: u64,
    retried: u64,
    replayed: u64,
    shed: ShedBy<'a>,
    /// Of these, after they had arrived.
    shed_later: u64,
    /// `cancelled + queued + in_flight + outboxed`: what came, but came to no end.
    left: u64,
    queued: usize,
    in_flight: usize,
    outboxed: usize,
    capacity: usize,
    /// When it began.
    instances: usize,
    replicas: usize,
    priority: i32,
    visits: u64,
    /// Time spent in its handler, all instances together.
    busy_s: f64,
    /// The same, by event.
    service_s: f64,
    /// Events in flight whose handlers wait, and how long events have waited in handlers, all together.
    waiting: usize,
    waited_s: f64,
    failures_kept: usize,
    failures_forgotten: u64,
    finished: bool,
    /// With `--keys`, of a keyed stage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    top_keys: Vec<Key<'a>>,
    /// Of a gateway only.
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<Gateway>,
}

/// A busy key. `arrived` is too high by `error` at most; `handled` and `busy_s` are since it was among the busiest.
#[derive(Serialize)]
struct Key<'a> {
    key: &'a str,
    queued: usize,
    arrived: u64,
    error: u64,
    handled: u64,
    busy_s: f64,
}

/// `requests = replied + expired + failed + shed + no_reply + cancelled + abandoned + in_flight`.
#[derive(Serialize)]
struct Gateway {
    requests: u64,
    in_flight: usize,
    replied: u64,
    expired: u64,
    failed: u64,
    shed: u64,
    no_reply: u64,
    cancelled: u64,
    abandoned: u64,
    /// Requests that were given back.
    rejected: u64,
    /// Replies that nobody waited for.
    unclaimed: u64,
}

/// On entry: `rejected`, `drop_newest`, `disabled`, `ended`; later: `drop_oldest`, `cycle`; by
/// its name, an admission controller that shed any, on entry or later; `abandoned`, if any were, later.
struct ShedBy<'a>(&'a Counts);

impl Serialize for ShedBy<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rare = |reason: &Shed| reason.is_admission() || *reason == Shed::Abandoned;
        let told = |reason: &Shed| !rare(reason) || self.0.shed(*reason) > 0;
        let reasons = Shed::ALL.into_iter().filter(told);
        serializer.collect_map(
            reasons.map(|reason| (reason.name().replace('-', "_"), self.0.shed(reason))),
        )
    }
}

#[derive(Serialize)]
struct Pool<'a> {
    name: &'a str,
    /// When it began.
    threads: usize,
    stages: &'a [String],
    policy: String,
}

#[derive(Serialize)]
struct FailuresFile<'a> {
    path: &'a str,
    written: u64,
    /// Of these, without the event.
    without_event: u64,
}

#[derive(Serialize)]
struct Failure<'a> {
    stage: &'a str,
    reason: &'a str,
    count: u64,
}

/// The line, with its end.
pub(super) fn json(report: &Report) -> String {
    let snapshot = &report.snapshot;
    let failures = report.failed.iter().flat_map(|failed| {
        let reasons = failed.reasons.iter();
        reasons.map(|(reason, count)| Failure { stage: &failed.stage, reason, count: *count })
    });
    line(&Run {
        app: &snapshot.app,
        ended: ended(report.ended),
        asked_by: report.asked.map(Asked::name),
        exit_code: report.exit.code(),
        elapsed_s: snapshot.elapsed.as_secs_f64(),
        events_in: report.entered,
        events_out: report.left,
        events_in_per_s: per_second(report.entered, snapshot.elapsed),
        events_out_per_s: per_second(report.left, snapshot.elapsed),
        latency: Taken::of(&snapshot.latency()),
        cpu_s: report.cpu.map(|cpu| cpu.as_secs_f64()),
        adds_up: snapshot.adds_up(),
        stages: snapshot.stages.iter().zip(&report.first.stages).map(stage).collect(),
        pools: report.first.pools.iter().map(pool).collect(),
        problems: report.problems.clone(),
        stuck: &report.stuck,
        failures: failures.collect(),
        failures_file: report.kept.as_ref().map(|kept| FailuresFile {
            path: &kept.path,
            written: kept.written,
            without_event: kept.missing.iter().map(|(_, _, n)| n).sum(),
        }),
        decisions: report.decisions.last.iter().map(decision).collect(),
        decisions_forgotten: report.decisions.forgotten,
    })
}

/// The line of a program that is not even there: its name may not be known.
pub(super) fn refused(app: &str, problems: Vec<String>, exit: Exit) -> String {
    line(&Run {
        app,
        ended: if exit == Exit::Refused { "refused" } else { "not_started" },
        asked_by: None,
        exit_code: exit.code(),
        elapsed_s: 0.0,
        events_in: 0,
        events_out: 0,
        events_in_per_s: 0.0,
        events_out_per_s: 0.0,
        latency: Taken::default(),
        cpu_s: None,
        adds_up: true,
        stages: Vec::new(),
        pools: Vec::new(),
        problems,
        stuck: &[],
        failures: Vec::new(),
        failures_file: None,
        decisions: Vec::new(),
        decisions_forgotten: 0,
    })
}

fn line(run: &Run<'_>) -> String {
    let text = serde_json::to_string(run);
    text.expect("a struct of numbers, texts and lists has a JSON form") + "\n"
}

fn ended(ended: Ended) -> &'static str {
    match ended {
        Ended::Complete => "complete",
        Ended::SourceFailed => "source_failed",
        Ended::Quit => "quit",
        Ended::Drained => "drained",
        Ended::TimedOut => "timed_out",
        Ended::Stopped => "stopped",
        _ => "ended",
    }
}

fn stage<'a>((stage, first): (&'a StageSnapshot, &StageSnapshot)) -> Stage<'a> {
    let counts = &stage.counts;
    Stage {
        name: &stage.name,
        offered: counts.offered,
        refused: counts.refused,
        arrived: counts.arrived,
        handled: counts.handled,
        emitted: counts.emitted,
        unrouted: counts.unrouted,
        failed: counts.failed,
        cancelled: counts.cancelled,
        retried: counts.retried,
        replayed: counts.replayed,
        shed: ShedBy(counts),
        shed_later: counts.shed_later(),
        left: held_or_cancelled(stage),
        queued: stage.queued,
        in_flight: stage.in_flight,
        outboxed: stage.outboxed,
        capacity: stage.capacity,
        instances: first.instances,
        replicas: stage.replicas,
        priority: stage.priority,
        visits: counts.visits,
        busy_s: stage.busy.as_secs_f64(),
        service_s: stage.service().as_secs_f64(),
        waiting: stage.waiting,
        waited_s: stage.waited.as_secs_f64(),
        failures_kept: stage.failures_kept,
        failures_forgotten: stage.failures_forgotten,
        finished: stage.ended,
        top_keys: stage.top_keys.iter().map(key).collect(),
        gateway: super::report::gateway(stage).map(gateway),
    }
}

fn key(key: &KeySnapshot) -> Key<'_> {
    Key {
        key: &key.key,
        queued: key.queued,
        arrived: key.arrived,
        error: key.error,
        handled: key.handled,
        busy_s: key.busy.as_secs_f64(),
    }
}

fn gateway(counts: &GatewaySnapshot) -> Gateway {
    Gateway {
        requests: counts.requests,
        in_flight: counts.in_flight,
        replied: counts.replied,
        expired: counts.expired,
        failed: counts.failed,
        shed: counts.shed,
        no_reply: counts.no_reply,
        cancelled: counts.cancelled,
        abandoned: counts.abandoned,
        rejected: counts.rejected,
        unclaimed: counts.unclaimed,
    }
}

fn decision((cluster, decision): &(String, comporta_runtime::Decision)) -> Decision<'_> {
    Decision {
        at_s: decision.at.as_nanos() as f64 / 1e9,
        cluster,
        policy: &decision.policy,
        call: &decision.call,
        why: decision.why.as_deref(),
        did: &decision.did,
    }
}

fn pool(pool: &PoolSnapshot) -> Pool<'_> {
    Pool {
        name: &pool.name,
        threads: pool.threads,
        stages: &pool.stages,
        policy: pool.policy.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::samples;

    #[test]
    fn a_gateway_says_what_became_of_its_requests_once() {
        let text = json(&samples::asked_report());
        let expected = concat!(
            r#""gateway":{"requests":4,"in_flight":0,"replied":1,"expired":0,"failed":1,"shed":0,"#,
            r#""no_reply":1,"cancelled":0,"abandoned":1,"rejected":0,"unclaimed":0}}"#,
        );
        assert_eq!(text.matches(expected).count(), 1, "{text}");
        assert_eq!(text.matches(r#""gateway":"#).count(), 1, "{text}");
    }

    #[test]
    fn a_run_is_one_line_whose_fields_keep_their_names_and_order() {
        let text = json(&samples::lossy_report());
        assert_eq!(text.matches('\n').count(), 1);
        let expected = concat!(
            r#"{"app":"lossy","ended":"complete","asked_by":null,"exit_code":1,"elapsed_s":0.0,"#,
            r#""events_in":10,"events_out":2,"events_in_per_s":0.0,"events_out_per_s":0.0,"#,
            r#""latency":{"count":2,"mean_s":0.0,"deviation_s":0.0,"p50_s":0.0,"p90_s":0.0,"#,
            r#""p99_s":0.0,"p999_s":0.0,"max_s":0.0},"cpu_s":null,"#,
            r#""adds_up":true,"stages":[{"name":"numbers","#,
        );
        assert_eq!(&text[..expected.len()], expected);
        let parse = concat!(
            r#"{"name":"parse","offered":10,"refused":0,"arrived":10,"handled":2,"emitted":0,"#,
            r#""unrouted":0,"failed":2,"cancelled":0,"retried":0,"replayed":0,"#,
            r#""shed":{"rejected":0,"drop_newest":0,"drop_oldest":6,"disabled":0,"cycle":0,"ended":0,"lane_full":0},"shed_later":6,"#,
            r#""left":0,"queued":0,"in_flight":0,"outboxed":0,"capacity":4,"instances":1,"#,
            r#""replicas":1,"priority":-1,"visits":1,"busy_s":0.0,"service_s":0.0,"waiting":0,"waited_s":0.0,"failures_kept":2,"failures_forgotten":0,"#,
            r#""finished":true}],"pools":[{"name":"main","threads":1,"stages":["numbers","spread","parse"],"policy":"stealing"}],"#,
            r#""problems":["`numbers`: the disk is full"],"stuck":["parse"],"failures":["#,
            r#"{"stage":"parse","reason":"invalid digit found in string","count":2}],"failures_file":null,"decisions":[],"decisions_forgotten":0}"#,
            "\n"
        );
        assert_eq!(&text[text.len() - parse.len()..], parse);
    }

    #[test]
    fn a_run_that_was_asked_to_end_says_by_whom() {
        let text = json(&samples::report());
        let says = r#""ended":"drained","asked_by":"SIGTERM","exit_code":0,"elapsed_s":2.0,"#;
        assert!(text.contains(says), "{text}");
    }

    #[test]
    fn every_mistake_of_a_refused_plan_is_a_problem_of_its_own() {
        let app = comporta_runtime::App::new("refused");
        let numbers = app.source("numbers", || 0..1_u64);
        app.connect(numbers, app.sink("show", |_: u64| ()));
        let plan = comporta_model::plan::Plan::new().stage("a", |s| s).stage("b", |s| s);
        let error = app.start(&plan).unwrap_err();
        let comporta_runtime::StartError::Plan(faults) = error else { panic!("{error}") };
        let problems = faults.iter().map(ToString::to_string).collect();
        let text = refused("refused", problems, Exit::Refused);
        assert!(text.contains(r#""ended":"refused""#), "{text}");
        assert!(
            text.contains("`a`") && text.contains(r#"","the program has no stage `b`"#),
            "{text}"
        );
    }
}
