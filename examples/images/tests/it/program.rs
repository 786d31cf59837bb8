//! The graph: every plan makes what a plain loop makes, and holds few images at once.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use comporta::testing::TestRuntime;
use comporta::{App, Cx, Ended, Ev, Plan, Result, Stage, StageSet, Summary};
use images::files::{Job, captcha_name, name};
use images::picture::decode;
use images::plain::{defined, difference, treat_all};
use images::program::{Input, Settings, app, plan};
use images::treat::{LEVEL, Scratch, grayscale};

use crate::{damaged, files, folder};

/// Takes the place of `report`.
#[derive(Clone, Default)]
struct Gather(Arc<Mutex<Vec<Job>>>);

impl Stage for Gather {
    type In = Job;
    type Ports = ();
    const STATEFUL: bool = true;
    fn handle(&mut self, job: Ev<'_, Job>, (): &mut (), _: &Cx) -> Result {
        self.0.lock().unwrap().push(job.take());
        Ok(())
    }
}

const COUNT: u64 = 5;
const WIDTH_MAX: usize = 280;

fn made(captchas: &Path, out: &Path, seed: u64) -> Settings {
    let (count, width_max, folder) = (COUNT, WIDTH_MAX, captchas.to_owned());
    let input = Input::Made { count, seed, width_max, folder };
    Settings { input, out: out.to_owned(), level: LEVEL }
}

fn run(app: App, plan: &Plan) -> Summary {
    let summary = app.run(plan).unwrap();
    assert_eq!(summary.ended, Ended::Complete);
    assert!(summary.problems.is_empty() && summary.snapshot.adds_up(), "{summary}");
    summary
}

fn plans() -> [(&'static str, Plan); 5] {
    let many = || plan().every(|stage| stage.capacity(2).batch(1).instances(3));
    [
        ("defaults", Plan::new()),
        ("own", plan()),
        ("narrow", plan().threads(3).every(|stage| stage.capacity(1).instances(4))),
        ("srpt", many().threads(2).policy("srpt")),
        (
            "two",
            many()
                .threads(1)
                .cluster("disk", |c| c.threads(2).stages(StageSet::of(["load", "save"]))),
        ),
    ]
}

#[test]
fn every_plan_makes_what_a_plain_loop_makes() {
    let captchas = folder("plans");
    for (name_of_plan, plan) in plans() {
        for seed in [1, 2] {
            let out = folder("plans-out");
            let gather = Gather::default();
            let summary = run(app(made(&captchas, &out, seed), gather.clone()), &plan);
            assert_eq!(summary.snapshot.stage("save").unwrap().counts.handled, COUNT);
            let results = files(&out);
            assert_eq!(results.len() as u64, COUNT, "{name_of_plan}: {:?}", results.keys());
            let mut scratch = Scratch::default();
            for number in 0..COUNT {
                let path = captchas.join(captcha_name(seed, number, WIDTH_MAX));
                let (file, mut expected) = (fs::read(path).unwrap(), Vec::new());
                treat_all(&file, LEVEL, &mut scratch, &mut expected).unwrap();
                let result = &results[&name(number)];
                assert!(*result == expected, "{name_of_plan}, seed {seed}, image {number}");
                let pixels = grayscale(decode(result).unwrap());
                assert_eq!(difference(&pixels, &defined(&file, LEVEL).unwrap()), None);
            }
            let jobs = gather.0.lock().unwrap();
            let saved = jobs.iter().filter(|job| job.saved.is_some()).count() as u64;
            assert_eq!((jobs.len() as u64, saved), (2 * COUNT, COUNT));
        }
    }
}

#[test]
fn what_cannot_be_loaded_is_kept_with_its_reason_and_the_rest_goes_on() {
    let out = folder("damaged-out");
    let input = Input::Folder(damaged("damaged"));
    let app = app(Settings { input, out: out.clone(), level: LEVEL }, Gather::default());
    let mut runtime = TestRuntime::new(app, &plan()).unwrap();
    assert!(runtime.run() && runtime.snapshot().adds_up());
    let mut reasons: Vec<_> = runtime.control().failures("load").unwrap();
    reasons.sort_by_key(|failure| failure.reason.to_string());
    let said = |n: usize| reasons[n].reason.to_string();
    assert_eq!(reasons.len(), 2);
    assert!(said(0).contains("b.png: it cannot be decoded: "), "{}", said(0));
    assert!(said(1).ends_with("d.txt: neither PNG nor JPEG"), "{}", said(1));
    assert!(reasons.iter().all(|failure| failure.replayable));
    // Results are called after the place of their image, whatever became of others.
    let names: Vec<_> = files(&out).into_keys().collect();
    assert_eq!(names, [name(0), name(2), name(4)]);
}

#[test]
fn a_result_that_cannot_be_written_is_told_and_leaves_nothing_behind() {
    let (captchas, out) = (folder("blocked-captchas"), folder("blocked"));
    fs::create_dir_all(out.join(name(2)).join("in the way")).unwrap();
    let mut runtime =
        TestRuntime::new(app(made(&captchas, &out, 4), Gather::default()), &plan()).unwrap();
    assert!(runtime.run());
    let failures = runtime.control().failures("save").unwrap();
    assert_eq!(failures.len(), 1);
    assert!(failures[0].reason.to_string().contains(&name(2)), "{}", failures[0].reason);
    assert_eq!(files(&out).len() as u64, COUNT - 1); // no half file either
}

/// While nothing can be saved, no more images are loaded than there are places for.
#[test]
fn few_images_are_held_at_once() {
    let (captchas, out) = (folder("held-captchas"), folder("held"));
    let Settings { out, level, .. } = made(&captchas, &out, 5);
    let input = Input::Made { count: 60, seed: 5, width_max: 256, folder: captchas };
    let plan = plan().every(|stage| stage.instances(2));
    let app = app(Settings { input, out, level }, Gather::default());
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("save");
    runtime.run_until_idle();
    let snapshot = runtime.snapshot();
    let stage = |name: &str| snapshot.stage(name).unwrap();
    assert_eq!(stage("save").queued, 4);
    // Six queues hold images; each instance before one, what it has made and cannot hand on yet.
    let held = ["grayscale", "threshold", "blur", "threshold2", "invert", "save"]
        .map(|name| stage(name).queued + stage(name).in_flight + stage(name).outboxed);
    assert!(held.iter().all(|held| (4..=4 + 2).contains(held)), "{held:?}");
    let held: usize = held.iter().sum();
    let loaded = stage("load").counts.handled;
    assert!(loaded <= held as u64, "{loaded} loaded, {held} held");
}
