//! The graph: the same pictures under every plan and in any order of arrival, and bounds that hold
//! when a segment is slow or fails.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;
use comporta::testing::{StageTester, TestRuntime};
use comporta::{ClusterPlan, Ended, Plan, Retry};
use comporta_example_extrusion::extrude::Prism;
use comporta_example_extrusion::generate::{SCENE, Storm};
use comporta_example_extrusion::picture::{Painter, player};
use comporta_example_extrusion::program::{Args, app};
use comporta_example_extrusion::reader::cut;
use comporta_example_extrusion::renderer::{Drawn, Renderer, Report, name};
use proptest::prelude::*;

use crate::{files, folder};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

/// As the command line would have it.
fn args(out: &Path, line: &str) -> Args {
    let line = line.split_whitespace().map(PathBuf::from);
    let words = [PathBuf::from("extrusion"), "--out".into(), out.into()].into_iter().chain(line);
    Command::parse_from(words).args
}

/// A report, and what it was told.
fn report() -> (Report, Arc<Mutex<Option<Drawn>>>) {
    let told = Arc::new(Mutex::new(None));
    let into = told.clone();
    let report = move |drawn| {
        assert!(into.lock().unwrap().replace(drawn).is_none(), "told twice");
        Ok(())
    };
    (Arc::new(report), told)
}

fn drawn(told: &Mutex<Option<Drawn>>) -> Drawn {
    told.lock().unwrap().expect("the program has ended")
}

/// The prisms of the steps that are drawn, step by step.
fn prisms(args: &Args) -> Vec<Vec<Prism>> {
    let (storm, extrude) = (&args.storm, args.extrude());
    let storm = Storm::new(storm.steps, storm.segments, storm.seed);
    let steps = storm.step_by(args.every as usize).enumerate();
    steps
        .map(|(turn, step)| {
            let segments = cut(&step, &Arc::new(SCENE), turn as u64);
            segments.iter().map(|segment| extrude.prism(segment)).collect()
        })
        .collect()
}

/// One thread, one loop, nothing clever.
fn drawn_plainly(args: &Args) -> BTreeMap<String, String> {
    let steps = prisms(args);
    let mut files = BTreeMap::new();
    for step in &steps {
        let picture = Painter::new(args.extrude()).paint(step).to_owned();
        files.insert(name(step[0].part.step), picture);
    }
    let last = steps.last().unwrap()[0].part.step;
    files.insert("index.html".to_owned(), player(0, last, args.every));
    files
}

#[test]
fn every_plan_draws_like_a_single_loop() {
    let line = "--steps 40 --segments 17 --seed 5 --every 3 --ahead 4 --sides 5";
    let expected = drawn_plainly(&args(Path::new("unused"), line));
    assert_eq!(expected.len(), 14 + 1);
    for policy in ["stealing", "single", "srpt"] {
        for (threads, instances, capacity) in [(1, 1, 1024), (2, 4, 8), (4, 3, 1)] {
            for apart in [false, true] {
                let out = folder(&format!("plan-{policy}-{threads}-{apart}"));
                let plan = Plan::new()
                    .threads(threads)
                    .policy(policy)
                    .every(|stage| stage.capacity(capacity))
                    .stage("extrusion", |stage| stage.instances(instances).batch(1));
                let own = |own: ClusterPlan| {
                    own.threads(threads).policy(policy).stages("extrusion".into())
                };
                let plan = if apart { plan.cluster("own", own) } else { plan };
                let (report, told) = report();
                let summary = app(args(&out, line), report).run(&plan).unwrap();
                assert_eq!(summary.ended, Ended::Complete);
                assert!(summary.snapshot.adds_up() && summary.problems.is_empty(), "{summary}");
                assert!(files(&out) == expected, "{policy} {threads} {instances} {apart}");
                let drawn = drawn(&told);
                assert_eq!((drawn.steps, drawn.segments, drawn.left_out), (14, 14 * 17, 0));
                assert!((1..=4).contains(&drawn.held_max), "{drawn:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_arrival_gives_the_same_files(
        order in Just((0..5 * 6usize).collect::<Vec<_>>()).prop_shuffle()
    ) {
        let out = folder("any-order");
        let args = args(&out, "--steps 5 --segments 6 --every 1 --sides 3 --ahead 5");
        let prisms = prisms(&args).concat();
        let (report, told) = report();
        let renderer = Renderer::new(out.clone(), 1, 5, args.extrude(), report);
        let mut renderer = StageTester::new(renderer);
        for n in order {
            renderer.send(prisms[n].clone()).unwrap();
        }
        prop_assert_eq!(files(&out).len(), 5, "drawn before the end");
        renderer.finish().unwrap();
        prop_assert!(files(&out) == drawn_plainly(&args));
        prop_assert_eq!(drawn(&told).steps, 5);
    }
}

/// A segment of the first step fails, and its instance waits a minute before it tries again; the
/// other instance goes on with later steps, as far as it may.
#[test]
fn one_slow_segment_stops_the_reader_and_not_the_memory() {
    let out = folder("slow");
    let args = args(&out, "--steps 200 --segments 10 --every 1 --sides 3 --ahead 7");
    let expected = drawn_plainly(&args);
    let (report, told) = report();
    let minute = Duration::from_secs(60);
    let plan = Plan::new()
        .stage("extrusion", |stage| stage.instances(2).batch(1).retry(Retry::new(2, minute)));
    let mut runtime = TestRuntime::new(app(args, report), &plan).unwrap();
    runtime.fail_next("extrusion", "slow");
    runtime.advance(minute / 2);
    let arrived = |runtime: &TestRuntime, stage: &str| {
        runtime.snapshot().stage(stage).unwrap().counts.arrived
    };
    assert_eq!(arrived(&runtime, "extrusion"), 7 * 10, "seven steps, not one more");
    assert_eq!(arrived(&runtime, "renderer"), 7 * 10 - 1);
    assert!(files(&out).is_empty(), "nothing is drawn before the first step");
    assert!(runtime.run());
    assert!(files(&out) == expected);
    let drawn = drawn(&told);
    assert_eq!((drawn.steps, drawn.left_out, drawn.held_max), (200, 0, 7));
}

#[test]
fn a_segment_that_fails_costs_its_step_only() {
    let out = folder("failed");
    let args = args(&out, "--steps 30 --segments 4 --every 1 --sides 3 --ahead 3");
    let mut expected = drawn_plainly(&args);
    let (report, told) = report();
    let mut runtime = TestRuntime::new(app(args, report), &Plan::new()).unwrap();
    runtime.panic_next("extrusion", "a bug");
    assert!(runtime.run());
    let drawn = drawn(&told);
    assert_eq!((drawn.steps, drawn.left_out), (29, 1));
    assert!(drawn.held_max <= 3, "{drawn:?}");
    expected.remove(&name(0)).unwrap();
    let page = "index.html".to_owned();
    expected.insert(page, player(1, 29, 1));
    assert!(files(&out) == expected);
}

#[test]
fn a_step_whose_picture_cannot_be_written_is_not_kept() {
    let out = folder("unwritable");
    let args = args(&out, "--steps 20 --segments 2 --every 1 --sides 3 --ahead 2");
    std::fs::create_dir_all(out.join(name(3))).unwrap(); // a folder of that name is in the way
    let (report, told) = report();
    let mut runtime = TestRuntime::new(app(args, report), &Plan::new()).unwrap();
    assert!(runtime.run());
    let failures = runtime.control().failures("renderer").unwrap();
    assert_eq!(failures.len(), 1);
    assert!(failures[0].reason.to_string().contains(&name(3)), "{}", failures[0].reason);
    let drawn = drawn(&told);
    assert_eq!(drawn.steps, 19);
    assert!(drawn.held_max <= 2, "{drawn:?}");
}

#[test]
fn a_prism_of_a_step_that_has_passed_is_refused() {
    let out = folder("late");
    let args = args(&out, "--steps 2 --segments 2 --every 1 --sides 3");
    let prisms = prisms(&args).concat();
    let (report, told) = report();
    let mut renderer = StageTester::new(Renderer::new(out.clone(), 1, 4, args.extrude(), report));
    renderer.send(prisms[0].clone()).unwrap();
    renderer.send(prisms[1].clone()).unwrap();
    let late = renderer.send(prisms[1].clone()).unwrap_err();
    assert_eq!(late.to_string(), "step 0 has passed");
    renderer.send(prisms[2].clone()).unwrap();
    renderer.finish().unwrap();
    assert_eq!((drawn(&told).steps, drawn(&told).left_out), (1, 1));
}
