//! A case run: stepped on virtual time, its seed choosing who makes each step; and on real
//! threads, with a bound on how long it may take.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{Control, Ended, Running, SendError, Sender};

use crate::case::{Case, Change, Ending, choice};
use crate::check::{Watch, lines};
use crate::dice::Dice;
use crate::event::{Event, Facts, Live};
use crate::injector::Pushed;
use crate::program::build;
use crate::site::Site;
use crate::stall::{self, STALLED};

fn apply(case: &Case, control: &Control, change: Change) {
    let pool = |pool: usize| if pool == 0 { "main" } else { "second" };
    let done = match change {
        Change::Threads(at, threads) => control.set_threads(pool(at), threads),
        Change::Policy(at, policy) => control.set_policy(pool(at), policy),
        // Refused once the stage has ended.
        Change::Instances(node, n) => control.set_instances(&case.name(node), n).or(Ok(())),
        // Refused where a stage is handed more events at once.
        Change::Capacity(node, n) => control.set_capacity(&case.name(node), n).or(Ok(())),
        Change::Priority(node, n) => control.set_priority(&case.name(node), n),
        Change::Move(node, at) => control.move_stage(&case.name(node), pool(at)),
        Change::Enable(node, enabled) => control.set_enabled(&case.name(node), enabled),
        Change::Admission(node, text) => control.set_admission(&case.name(node), choice(text)),
        Change::Replay(node, max) => control.replay(&case.name(node), max).map(|_| ()),
        Change::Nothing => Ok(()),
    };
    done.expect("the case makes valid changes only");
}

/// Pushes one event. Returns whether the input takes more.
fn push_one<E: Event>(site: &Site, push: impl FnOnce(E) -> Result<(), SendError<E>>) -> bool {
    let facts = site.to_give();
    match site.injector.push(E::new(facts, &site.injector), push) {
        Pushed::Taken => site.gave(&facts),
        Pushed::Refused => {}
        Pushed::Closed => return false,
    }
    true
}

pub(crate) fn stepped(case: &Case) {
    step_by(case, Visits::AsTheyAre);
}

/// Steps a case twice, and compares what is seen on the way and at the end: plain visits do what others would.
pub(crate) fn stepped_both_ways(case: &Case) {
    let (plain, at_large) = (step_by(case, Visits::AsTheyAre), step_by(case, Visits::AtLarge));
    assert_eq!(plain.len(), at_large.len(), "one way takes more steps");
    for (at, (plain, at_large)) in plain.iter().zip(&at_large).enumerate() {
        assert_eq!(plain, at_large, "after {at} looks");
    }
}

/// Whether visits may be plain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visits {
    AsTheyAre,
    AtLarge,
}

/// Steps a case. Returns what was seen of its stages before each change, and at the end.
fn step_by(case: &Case, visits: Visits) -> Vec<String> {
    if case.faults.of_events() { step::<Live>(case, visits) } else { step::<Facts>(case, visits) }
}

fn step<E: Event>(case: &Case, visits: Visits) -> Vec<String> {
    let (app, ledger, mut sender) = build::<E>(case, false);
    let mut watch = Watch::new(case, &ledger);
    let mut runtime = TestRuntime::new(app, &case.plan()).expect("a valid case").seeded(case.seed);
    if visits == Visits::AtLarge {
        runtime = runtime.visits_at_large();
    }
    let mut seen = Vec::new();
    let control = runtime.control();
    let dice = &mut Dice::new(case.seed ^ 1);
    let mut pushes = case.input.as_ref().map_or(0, |input| input.events);
    let mut changes = case.changes.iter();
    loop {
        for _ in 0..dice.below(30) {
            if !runtime.step() {
                runtime.advance(Duration::from_micros(dice.below(100) as u64));
                break;
            }
            watch.now(&runtime.snapshot());
        }
        seen.push(lines(&runtime.snapshot()));
        if pushes > 0
            && let Some(sender) = &sender
        {
            pushes -= 1;
            push_one(&ledger.sites[case.sources.len()], |event| sender.try_send(event));
        }
        match changes.next() {
            Some(change) => {
                watch.note(change);
                apply(case, &control, change.clone());
                watch.now(&runtime.snapshot());
            }
            None if pushes == 0 => break,
            None => {}
        }
    }
    if matches!(case.ending, Ending::Drain | Ending::Stop) {
        runtime.close();
    } else if sender.is_some() && dice.chance(50) && !runtime.run() {
        // Only the input keeps it from its end.
        watch.at_rest(&runtime.snapshot());
    }
    sender.take();
    ledger.injector.take_back();
    let ended = runtime.run();
    let snapshot = runtime.snapshot();
    assert!(ended, "stalled:\n{}", lines(&snapshot));
    if runtime.quit_with::<u64>().is_some() {
        watch.now(&snapshot);
    } else {
        watch.at_end(&snapshot);
    }
    watch.problems(&runtime.problems());
    ledger.injector.is_over();
    seen.push(lines(&snapshot));
    seen
}

/// Pushes on a thread of its own, waiting for room.
fn pusher<E: Event>(case: &Case, site: Arc<Site>, sender: Sender<E>) -> JoinHandle<()> {
    let events = case.input.as_ref().map_or(0, |input| input.events);
    let body = move || {
        let mut left = 0..events;
        while left.next().is_some() && push_one(&site, |event| sender.send(event)) {}
    };
    std::thread::Builder::new().name("pusher".into()).spawn(body).expect("a thread")
}

pub(crate) fn threaded(case: &Case) {
    if case.faults.of_events() { run::<Live>(case) } else { run::<Facts>(case) }
}

fn run<E: Event>(case: &Case) {
    let (app, ledger, mut sender) = build::<E>(case, true);
    let mut watch = Watch::new(case, &ledger);
    let mut running = app.start(&case.plan()).expect("a valid case");
    let control = running.control();
    let dice = &mut Dice::new(case.seed ^ 2);
    let input = case.input.as_ref();
    let site = &ledger.sites[case.sources.len()];
    let waits = input.is_some_and(|input| input.waits);
    let pusher = sender.take_if(|_| waits).map(|sender| pusher(case, site.clone(), sender));
    let ended = |watch: &Watch<'_>, summary| {
        // Joined only now: if the program stalls, that thread does too.
        if let Some(thread) = pusher {
            thread.join().expect("a pusher that returns");
        }
        ended(case, watch, &summary);
        ledger.injector.is_over();
    };
    let mut pushes = if sender.is_some() { input.map_or(0, |input| input.events) } else { 0 };
    for change in &case.changes {
        running = match running.wait_for(Duration::from_micros(dice.below(300) as u64)) {
            Ok(summary) => return ended(&watch, summary),
            Err(running) => running,
        };
        watch.note(change);
        apply(case, &control, change.clone());
        watch.now(&running.snapshot());
        if let Some(sender) = sender.as_ref().filter(|_| pushes > 0) {
            pushes -= 1;
            push_one(site, |event| sender.try_send(event));
        }
    }
    if let Some(sender) = sender {
        (0..pushes).for_each(|_| {
            push_one(site, |event| sender.try_send(event));
        });
    }
    ledger.injector.take_back();
    let summary = match case.ending {
        Ending::Drain => running.drain_within(STALLED),
        Ending::Stop => running.stop(),
        _ => wait(running, &watch),
    };
    ended(&watch, summary);
}

fn wait(running: Running, watch: &Watch<'_>) -> comporta::Summary {
    let mut running = running;
    for _ in 0..10 {
        running = match running.wait_for(Duration::from_micros(200)) {
            Ok(summary) => return summary,
            Err(running) => running,
        };
        watch.now(&running.snapshot());
    }
    stall::ended(running, "")
}

fn ended(case: &Case, watch: &Watch<'_>, summary: &comporta::Summary) {
    assert!(summary.stuck.is_empty(), "{summary}");
    watch.problems(&summary.problems);
    match summary.ended {
        Ended::Complete | Ended::SourceFailed | Ended::Drained => watch.at_end(&summary.snapshot),
        Ended::Quit => {
            assert!(matches!(case.ending, Ending::Quit { .. }), "{summary}");
            watch.at_rest(&summary.snapshot);
        }
        Ended::Stopped if case.ending == Ending::Stop => watch.at_rest(&summary.snapshot),
        _ => panic!("{summary}\n{}", lines(&summary.snapshot)),
    }
}
