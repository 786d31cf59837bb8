//! Every plan finds what one plain loop finds.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use comporta::graph::Kind;
use comporta::{Cx, Ended, Ev, Plan, Result, Stage};
use weblog::alarm::SPAN;
use weblog::generate::generate;
use weblog::plain;
use weblog::program::{Input, Settings, app, made_up};
use weblog::show::{Gathered, Said};

/// Takes the place of `show`.
#[derive(Clone, Default)]
struct Gather(Arc<Mutex<Gathered>>);

impl Stage for Gather {
    type In = Said;
    type Ports = ();
    const STATEFUL: bool = true;
    fn handle(&mut self, said: Ev<'_, Said>, (): &mut (), _: &Cx) -> Result {
        self.0.lock().unwrap().add(said.take());
        Ok(())
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    folder
}

fn run(settings: Settings, plan: &Plan) -> Gathered {
    let gather = Gather::default();
    let summary = app(settings, gather.clone()).run(plan).unwrap();
    assert_eq!(summary.ended, Ended::Complete);
    assert!(summary.problems.is_empty() && summary.snapshot.adds_up(), "{summary}");
    let gathered = gather.0.lock().unwrap();
    gathered.clone()
}

fn plans() -> [(&'static str, Plan); 4] {
    let small = || Plan::new().every(|stage| stage.capacity(4));
    let many = |plan: Plan, n: usize| {
        ["copy", "persist", "correlate", "filter"]
            .into_iter()
            .fold(plan, |plan, name| plan.stage(name, |stage| stage.instances(n)))
    };
    [
        ("one", small().threads(1)),
        ("many", many(small().threads(3), 4)),
        ("srpt", many(small().threads(2).policy("srpt"), 3)),
        (
            "two",
            many(
                small().threads(1).cluster("alone", |c| c.threads(2).stages("correlate".into())),
                2,
            ),
        ),
    ]
}

#[test]
fn every_plan_finds_what_a_plain_loop_finds() {
    let (mut alarms, mut hunts) = (0, 0);
    for (seed, lines, window) in [(31, 10_500, 1_000), (41, 10_000, 1_000), (57, 10_000, 37)] {
        let plain = plain::find([generate(seed).take(lines)], window);
        assert_eq!(plain.report.totals.lines, lines as u64);
        alarms += plain.alarms.len();
        hunts += plain.report.hunts.len();
        for (name, plan) in plans() {
            let inputs = made_up(lines, 1, seed);
            let folder = folder(&format!("plans-{name}-{seed}"));
            let found = run(Settings { inputs, window, folder, keep: 64 }, &plan);
            assert_eq!(found.differs_from(&plain), None, "{name}, seed {seed}");
            assert_eq!(found.found, plain, "{name}, seed {seed}");
        }
    }
    assert!(alarms > 0 && hunts > 0, "the logs hold nothing to find: {alarms} {hunts}");
}

#[test]
fn in_several_logs_every_plan_finds_what_a_plain_loop_finds_however_they_mix() {
    let (lines, seed, window) = (20_500, 31, 100);
    let logs = || made_up(lines, 3, seed);
    let plain = plain::find(logs().iter().map(|log| log.lines().unwrap()), window);
    assert_eq!(plain.report.totals.lines, lines as u64);
    assert!(!plain.alarms.is_empty() && !plain.report.hunts.is_empty());
    for (name, plan) in plans() {
        let folder = folder(&format!("several-{name}"));
        let found = run(Settings { inputs: logs(), window, folder, keep: 64 }, &plan);
        assert_eq!(found.differs_from(&plain), None, "{name}");
    }
}

/// As servers write them that date a line from the beginning of a request; as files that are read
/// newest first; as a log turned upside down.
fn disordered(log: &[String]) -> [(&'static str, Arc<[String]>); 3] {
    let little = log.chunks(7).flat_map(|lines| lines.iter().rev());
    let files = log.chunks(log.len() / 5).rev().flatten();
    [
        ("little", little.cloned().collect()),
        ("files", files.cloned().collect()),
        ("reversed", log.iter().rev().cloned().collect()),
    ]
}

#[test]
fn a_log_whose_times_go_back_holds_the_same_sessions_and_no_alarm_beyond_the_span() {
    let (seed, window) = (31, 1_000);
    let log: Vec<String> = generate(seed).take(10_500).collect();
    let rising = plain::find([log.iter().cloned()], window);
    let (_, plan) = &plans()[1];
    for (name, lines) in disordered(&log) {
        let plain = plain::find([lines.iter().cloned()], window);
        let inputs = vec![Input::Kept(lines)];
        let folder = folder(&format!("disordered-{name}"));
        let found = run(Settings { inputs, window, folder, keep: 64 }, plan);
        assert_eq!(found.found, plain, "{name}");
        assert_eq!(plain.report.fingerprint, rising.report.fingerprint, "{name}");
        assert_eq!(plain.report.longest, rising.report.longest, "{name}");
        let who = |found: &plain::Found| {
            let mut who: Vec<_> = found.alarms.iter().map(|a| (a.client.clone(), a.why)).collect();
            who.sort();
            who
        };
        assert_eq!(who(&plain), who(&rising), "{name}");
        for alarm in &plain.alarms {
            let (from, to) = alarm.span;
            assert!((0..=SPAN).contains(&(to - from)), "{name}: {alarm:?}");
        }
    }
    assert!(!rising.alarms.is_empty());
}

/// What overtakes is seldom seen in a run, so it is asked of the graph.
#[test]
fn what_leads_to_an_alarm_keeps_the_order_of_the_log() {
    let inputs = made_up(2, 2, 1);
    let settings = Settings { inputs, window: 1, folder: folder("graph"), keep: 1 };
    let graph = app(settings, Gather::default()).graph();
    for stage in graph.stages.iter().filter(|stage| stage.kind == Kind::Stage) {
        let needs_none = ["persist", "correlate"].contains(&&*stage.name);
        assert_eq!(stage.ordered || stage.stateful, !needs_none, "{}", stage.name);
    }
}

#[test]
fn the_segments_hold_every_line_once() {
    let (lines, seed) = (10_000, 4);
    let folder = folder("segments");
    let settings =
        Settings { inputs: made_up(lines, 1, seed), window: 100, folder: folder.clone(), keep: 64 };
    let plan = Plan::new().threads(3).stage("persist", |stage| stage.instances(3));
    let found = run(settings, &plan);
    let mut stored = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(path.extension().unwrap(), "log", "{}", path.display());
        let text = fs::read_to_string(path).unwrap();
        stored.extend(text.lines().map(str::to_owned));
    }
    let mut expected: Vec<String> = generate(seed).take(lines).collect();
    stored.sort();
    expected.sort();
    assert!(stored == expected);
    assert_eq!(found.stored.lines, lines as u64);
}
