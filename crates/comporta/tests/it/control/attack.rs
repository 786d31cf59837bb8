//! Policies that do silly things fast, by a seed, and persons who change things at the same time:
//! nothing is lost, nothing stalls, no thread is left over, and everything comes back to the plan.
//!
//! `COMPORTA_SEED=7` begins with another seed, `COMPORTA_CASES=1000` tries so many.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use comporta::policy::{Choice, Focus, PolicyControl, PoolId, Registry, StageId};
use comporta::testing::TestRuntime;
use comporta::{App, Control, Ended, Plan, Snapshot, StageSet, WhenFull};

use super::{Made, settings};
use crate::seen::stage;

const STEPPED: u64 = 40;
const THREADED: u64 = 40;
/// After how many calls a policy tires.
const CALLS: u64 = 500;

/// Splitmix64.
#[derive(Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Dice(seed)
    }

    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.roll() % n.max(1) as u64) as usize
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// One call of the interface, whatever comes to mind; that some are refused is part of it.
fn mischief(dice: &mut Dice, control: &mut dyn PolicyControl, loses: bool) {
    let stages: Vec<StageId> = control.stages().iter().map(|stage| stage.id).collect();
    let some = |dice: &mut Dice| {
        // Now and then one of nowhere.
        if dice.below(40) == 0 || stages.is_empty() { StageId(99) } else { dice.pick(&stages) }
    };
    let (stage, other) = (some(dice), some(dice));
    let pool = |dice: &mut Dice| match dice.below(4) {
        0 => control.main_pool(),
        1 => PoolId(dice.below(30) as u32),
        _ => control.pool_of(stage).unwrap_or(PoolId(0)),
    };
    let n = dice.pick(&[0, 1, 1, 2, 3, 5, 2000]);
    let _ = match dice.below(if loses { 26 } else { 23 }) {
        0 => control.new_pool(n.min(2)).map(drop),
        1..=3 => control.set_pool(pool(dice), stage),
        // A bound for the sake of the machine.
        4 => match pool(dice) {
            pool if control.threads(pool).is_ok_and(|threads| threads > 2) => Ok(()),
            pool => control.add_threads(pool, n.min(2)),
        },
        5..=7 => control.kill_threads(pool(dice), n),
        8 | 9 => control.steal(stage, other, n),
        10 => control.set_priority(stage, dice.below(9) as i32 - 4),
        11 => {
            let order: Vec<StageId> = (0..dice.below(20)).map(|_| some(dice)).collect();
            control.set_visit_order(&order)
        }
        12 => control.set_visit_order(&vec![stage; 100]),
        13 => control.set_restart_at(Some(dice.below(40))),
        14 => {
            control.set_restart_at(None).unwrap();
            control.set_visit_order(&[stage, other, stage])
        }
        15 => {
            let focus = if n == 1 { Focus::All } else { Focus::Stage(stage) };
            control.set_max_events_when_focused(focus, n)
        }
        16 => control.set_max_visits(NonZeroUsize::new(n.min(7))),
        17 => {
            control.set_fire_last_focused(false).unwrap();
            control.set_fire_last_focused(true)
        }
        18 => {
            let color = Some(dice.below(2) as u32).filter(|_| n > 1);
            control.set_color(stage, color)
        }
        19 => control.add_instances(stage, n.min(3)),
        20 => control.kill_instances(stage, n),
        21 => control.set_queue_capacity(stage, n),
        22 => {
            control.explain("why not".to_owned());
            let _ = control.use_per_stage_queues();
            let _ = control.add_timer(Duration::from_millis(1 + n as u64));
            let _ =
                (control.cpus(), control.cpu_usage(), control.now(), control.threads(PoolId(3)));
            let _ = (control.queue_size(stage), control.processed_count(stage));
            let _ = (control.input_count(stage), control.priority(stage));
            let _ = (control.instances(stage), control.free_instances(stage));
            let _ = (control.queue_capacity(stage), control.queue_is_enabled(stage));
            control.reset_statistics(stage)
        }
        23 => control.disable_queue(stage),
        24 => control.enable_queue(stage),
        _ => {
            let rules = [WhenFull::Block, WhenFull::DropNewest, WhenFull::DropOldest];
            control.set_when_full(stage, dice.pick(&rules))
        }
    };
}

/// The policy `vandal`, by a seed. It tires: called for an empty round it makes work, for ever.
fn vandal(app: &App, seed: u64, loses: bool) {
    let dice = Arc::new(Mutex::new(Dice::new(seed)));
    let calls = Arc::new(AtomicU64::new(0));
    let act = {
        let dice = dice.clone();
        move |control: &mut dyn PolicyControl| {
            let dice = &mut *dice.lock().unwrap();
            if calls.fetch_add(1, SeqCst) < CALLS {
                (0..dice.below(6)).for_each(|_| mischief(dice, control, loses));
            }
            Ok(())
        }
    };
    Made::new(move |control| {
        let dice = &mut *dice.lock().unwrap();
        match dice.below(5) {
            0 => control.use_per_worker_queues()?,
            1 => {}
            _ => {
                control.use_per_stage_queues()?;
                control.set_fire_last_focused(true)?;
                control.set_max_visits(NonZeroUsize::new(dice.below(9)))?;
            }
        }
        control.add_timer(Duration::from_millis(1 + dice.below(3) as u64))?;
        (0..dice.below(12)).for_each(|_| mischief(dice, control, loses));
        Ok(())
    })
    .on_timer(act.clone())
    .on_last_focused(act.clone())
    .on_max_visits(act)
    .add(app, "vandal");
}

/// `numbers` -> `first` (stateful) -> `left` and `right`, which get a copy each -> `sink`; on two
/// clusters. `first` must see all events in order, the sink twice the sum.
struct Target {
    app: App,
    plan: Plan,
    outcome: Outcome,
    /// Called by a handler now and then, once it is there.
    handle: Arc<OnceLock<Control>>,
}

impl Target {
    fn new(name: &str, seed: u64, events: u64, loses: bool) -> Self {
        let app = App::new(name);
        vandal(&app, seed, loses);
        let (next, sum) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (wrong, handle) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
        let numbers = app.source("numbers", move || 0..events);
        let first = {
            let (next, wrong) = (next.clone(), wrong.clone());
            app.map("first", move |n: u64| {
                let due = next.swap(n + 1, SeqCst);
                wrong.fetch_or(if loses { due > n } else { due != n }, SeqCst);
                n
            })
        };
        let first = first.stateful();
        let left = app.map("left", |n: u64| n);
        let right = app.map("right", |n: u64| n);
        let sink = {
            let (sum, handle) = (sum.clone(), handle.clone());
            let dice = Arc::new(Mutex::new(Dice::new(seed ^ 7)));
            app.sink("sink", move |n: u64| {
                sum.fetch_add(n, SeqCst);
                if let Some(handle) = handle.get().filter(|_| n.is_multiple_of(61)) {
                    person(&mut dice.lock().unwrap(), handle);
                }
            })
        };
        app.connect(numbers, first);
        app.connect(first, left);
        app.connect(first, right);
        app.connect(left, sink);
        app.connect(right, sink);
        let plan = Plan::new()
            .threads(2)
            .policy("vandal")
            .cluster("side", |side| {
                side.threads(1).policy("vandal").stages(StageSet::of(["right"]))
            })
            .every(|s| s.batch(3).capacity(8))
            .stage("left", |s| s.instances(3).priority(2));
        Target { app, plan, outcome: Outcome { next, wrong, sum, loses }, handle }
    }
}

/// Something a person may say.
fn person(dice: &mut Dice, control: &Control) {
    let cluster = dice.pick(&["main", "side"]);
    let stage = dice.pick(&["numbers", "first", "left", "right", "sink"]);
    let _ = match dice.below(6) {
        0 => control.set_threads(cluster, 1 + dice.below(3)),
        1 => control.set_instances(stage, 1 + dice.below(4)),
        2 => control.move_stage(stage, cluster),
        3 => control.set_capacity(stage, 1 + dice.below(9)),
        4 => control.set_priority(stage, dice.below(5) as i32),
        _ => {
            let names = Registry::new().offers();
            let name = if dice.below(3) == 0 { "vandal" } else { dice.pick(&names).name };
            control.set_policy(cluster, Choice::new(name))
        }
    };
}

fn seeds(cases: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("COMPORTA_SEED").unwrap_or(0);
    first..first + number("COMPORTA_CASES").unwrap_or(cases)
}

/// What came of it.
struct Outcome {
    next: Arc<AtomicU64>,
    wrong: Arc<AtomicBool>,
    sum: Arc<AtomicU64>,
    loses: bool,
}

impl Outcome {
    fn check(&self, snapshot: &Snapshot, events: u64, seed: u64) {
        assert!(!self.wrong.load(SeqCst), "seed {seed}: out of order");
        assert!(snapshot.adds_up(), "seed {seed}:\n{snapshot}");
        if !self.loses {
            let handled = stage(snapshot, "sink").counts.handled;
            assert_eq!(handled, 2 * events, "seed {seed}:\n{snapshot}");
            assert_eq!(self.next.load(SeqCst), events, "seed {seed}");
            assert_eq!(self.sum.load(SeqCst), events * (events - 1), "seed {seed}");
        }
    }
}

#[test]
fn whatever_a_policy_does_nothing_is_lost_step_by_step() {
    for seed in seeds(STEPPED) {
        let (events, loses, people) = (300, seed % 3 == 2, seed % 2 == 1);
        let Target { app, plan, outcome, handle } = Target::new("attack", seed, events, loses);
        let mut runtime = TestRuntime::new(app, &plan).unwrap().seeded(seed);
        let dice = &mut Dice::new(seed ^ 1);
        let control = runtime.control();
        if people {
            let _ = handle.set(control.clone());
        }
        for _ in 0..30 {
            (0..dice.below(40)).for_each(|_| _ = runtime.step());
            runtime.advance(Duration::from_micros(dice.below(1500) as u64));
            if people {
                person(dice, &control);
            }
            assert!(runtime.snapshot().adds_up(), "seed {seed}:\n{}", runtime.snapshot());
        }
        if seed % 4 == 0 {
            control.set_policy("main", "stealing").unwrap();
            control.set_policy("side", "stealing").unwrap();
            runtime.run_until_idle(); // those who had something in hand have finished it
            assert_eq!(settings(&runtime.snapshot()), planned(&runtime.snapshot()), "seed {seed}");
        }
        assert!(
            runtime.run(),
            "seed {seed} stalled:\n{}\n{:?}",
            runtime.snapshot(),
            runtime.snapshot().pools
        );
        outcome.check(&runtime.snapshot(), events, seed);
        for cluster in ["main", "side"] {
            assert!(control.decisions(cluster).unwrap().len() <= 256);
        }
    }
}

/// What the settings of the target are under `stealing`; those of a stage that has ended are its own.
fn planned(snapshot: &Snapshot) -> String {
    let mut snapshot = snapshot.clone();
    for stage in &mut snapshot.stages {
        let source = stage.name == "numbers";
        stage.capacity = if source { 0 } else { 8 };
        stage.priority = if stage.name == "left" { 2 } else { 0 };
        if !stage.ended {
            stage.instances = if stage.name == "left" { 3 } else { 1 };
        }
    }
    for (pool, threads) in snapshot.pools.iter_mut().zip([2, 1]) {
        pool.threads = threads;
        pool.policy = Choice::new("stealing");
    }
    snapshot.pools.truncate(2);
    settings(&snapshot)
}

#[test]
fn whatever_a_policy_and_persons_do_nothing_is_lost_on_threads() {
    for seed in seeds(THREADED) {
        let (events, loses, people) = (2_000, seed % 3 == 2, seed % 2 == 1);
        let Target { app, plan, outcome, handle } = Target::new("attacked", seed, events, loses);
        let running = app.start(&plan).unwrap();
        let control = running.control();
        if people {
            let _ = handle.set(control.clone());
        }
        let dice = &mut Dice::new(seed ^ 2);
        let mut state = Err(running);
        for _ in 0..60 {
            let Err(running) = state else { break };
            state = running.wait_for(Duration::from_micros(dice.below(400) as u64));
            if people {
                person(dice, &control);
            }
            if let Err(running) = &state {
                assert!(running.snapshot().adds_up(), "seed {seed}:\n{}", running.snapshot());
            }
        }
        let summary =
            state.unwrap_or_else(|running| super::ended(running, format!("COMPORTA_SEED={seed}")));
        assert!(summary.stuck.is_empty(), "seed {seed}: {summary}");
        outcome.check(&summary.snapshot, events, seed);
    }
}

/// Threads of a program, by the beginning of their names, but for the one that policies with timers have.
fn alive(app: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let own = names.filter(|name| name.starts_with(&format!("{app}-")));
    own.filter(|name| !name.trim_end().ends_with("-policy")).count()
}

#[test]
#[cfg(target_os = "linux")]
fn no_thread_is_left_over_when_a_policy_has_gone() {
    for seed in seeds(12) {
        let name = format!("left{seed}");
        let Target { app, plan, outcome, .. } = Target::new(&name, seed, u64::MAX, false);
        let mut running = app.start(&plan).unwrap();
        let control = running.control();
        for _ in 0..5 {
            running = running.wait_for(Duration::from_millis(3)).unwrap_err();
            control.set_policy("side", "vandal").unwrap();
        }
        control.set_policy("main", "stealing").unwrap();
        control.set_policy("side", "stealing").unwrap();
        // Three workers and the clock; other threads and instances finish what they have in hand.
        let back = |now: &Snapshot| alive(&name) == 4 && settings(now) == planned(now);
        for _ in 0..10_000 {
            if back(&running.snapshot()) {
                break;
            }
            running = running.wait_for(Duration::from_millis(1)).unwrap_err();
        }
        assert_eq!(settings(&running.snapshot()), planned(&running.snapshot()), "seed {seed}");
        assert_eq!(alive(&name), 4, "seed {seed}");
        let summary = running.drain();
        assert_eq!(summary.ended, Ended::Drained, "seed {seed}: {summary}");
        let sent = stage(&summary.snapshot, "numbers").counts.emitted;
        outcome.check(&summary.snapshot, sent, seed);
    }
}
