//! The mock against the runtime: whatever a policy calls in `start`, both take it or both refuse it,
//! for the same reason, and both show the same afterwards. `check` relies on that.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::policy::mock::Mock;
use comporta::policy::{Focus, PolicyControl, PoolId, Refused, StageId, StageInfo};
use comporta::testing::TestRuntime;
use comporta::{App, Plan, WhenFull, batched};

use super::Made;
use super::attack::Dice;

const CASES: u64 = 300;
const CALLS: usize = 60;
const THREADS: usize = 5;
const HANDED: usize = 4;
const STRANGER: StageId = StageId(999);

/// Calls from a seed, and what came of each. Stages and pools stand for their places, since their
/// numbers differ.
fn calls(seed: u64, control: &mut dyn PolicyControl) -> Vec<String> {
    let mut dice = Dice::new(seed);
    let stages: Vec<StageId> = control.stages().iter().map(|stage| stage.id).collect();
    let mut pools = vec![control.main_pool()];
    let mut came =
        vec![format!("{:?}", control.stages().iter().map(described).collect::<Vec<_>>())];
    came.extend((0..CALLS).map(|_| one(&mut dice, control, &stages, &mut pools)));
    came
}

/// What is known of a stage beforehand, but for its number.
fn described(stage: &StageInfo) -> String {
    let mut stage = stage.clone();
    stage.id = STRANGER;
    format!("{stage:?}")
}

fn one(
    dice: &mut Dice,
    control: &mut dyn PolicyControl,
    stages: &[StageId],
    pools: &mut Vec<PoolId>,
) -> String {
    let some = |dice: &mut Dice| if dice.below(30) == 0 { STRANGER } else { dice.pick(stages) };
    let (stage, other) = (some(dice), some(dice));
    let pool = if dice.below(30) == 0 { PoolId(999) } else { dice.pick(pools) };
    let few = dice.pick(&[0, 1, 1, 2, 3, 5, 6, 1_020, usize::MAX]);
    let which = dice.below(27);
    let came = match which {
        0 => control.use_per_stage_queues(),
        1 => control.use_per_worker_queues(),
        2 => control.set_queue_capacity(stage, few),
        3 => control.set_when_full(stage, WhenFull::Reject),
        4 => control.disable_queue(stage),
        5 => control.enable_queue(stage),
        6 | 7 => control.new_pool(few).map(|made| pools.push(made)),
        8 | 9 => control.set_pool(pool, stage),
        10 => control.add_threads(pool, few),
        11 => control.kill_threads(pool, few),
        12 => control.add_timer(Duration::from_micros(dice.pick(&[0, 999, 1_000]))).map(drop),
        13 => control.reset_statistics(stage),
        14 => control.set_fire_last_focused(true),
        15 => {
            let order: Vec<StageId> = (0..dice.below(5)).map(|_| some(dice)).collect();
            control.set_visit_order(&order)
        }
        16 => control.set_max_visits(NonZeroUsize::new(few)),
        17 => control.set_restart_at(Some(dice.below(7))),
        18 => control.steal(stage, other, few),
        19 => control.set_priority(stage, 3),
        20 => control.set_max_events_when_focused(
            if dice.below(2) == 0 { Focus::All } else { Focus::Stage(stage) },
            few,
        ),
        21 => control.set_color(stage, Some(2)),
        22 => control.add_instances(stage, few.min(2_000_000)),
        23 => control.kill_instances(stage, few),
        24 => control.set_restart_at(None),
        25 => control.sample(stage).map(drop).and(control.key_loads(stage, few).map(drop)),
        _ => control.set_fire_last_focused(false),
    };
    let shown = stages.iter().map(|stage| shows(control, *stage, pools)).collect::<Vec<_>>();
    let threads: Vec<_> = pools.iter().map(|pool| control.threads(*pool)).collect();
    format!("{which} {few}: {} {shown:?} {threads:?}", reason(came))
}

fn shows(control: &dyn PolicyControl, stage: StageId, pools: &[PoolId]) -> String {
    let pool = control.pool_of(stage).unwrap();
    let pool = pools.iter().position(|known| *known == pool);
    let queue = (control.queue_capacity(stage).ok(), control.queue_is_enabled(stage).ok());
    let priority = control.priority(stage).unwrap();
    let instances = (control.instances(stage), control.free_instances(stage));
    let events =
        (control.queue_size(stage), control.input_count(stage), control.processed_count(stage));
    let sample = control.sample(stage);
    format!("{pool:?} {queue:?} {priority} {instances:?} {events:?} {sample:?}")
}

/// What came of a call, but for the names of pools and the numbers of strangers.
fn reason(came: Result<(), Refused>) -> String {
    match came {
        Ok(()) => "taken".to_owned(),
        Err(Refused::NotInCluster { .. }) => "not in the cluster".to_owned(),
        Err(Refused::NoPool(_)) => "no pool".to_owned(),
        Err(Refused::NoThreadLeft { threads, less, .. }) => format!("{less} of {threads} go"),
        Err(Refused::OutOfRange { given, expected, .. }) => format!("{given}, not {expected}"),
        Err(why) => why.to_string(),
    }
}

fn mocked(seed: u64) -> Vec<String> {
    let mock = Mock::new().source("numbers").input("asked").stage("work").stage("fold");
    let mock = mock.stateful("fold").stage("sort").ordered("sort").planned("sort", 3);
    let mock = mock.stage("store").handed_at_once("store", HANDED);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let mut policy = caller(seed, &heard);
    mock.with_threads(THREADS).start(&mut policy).unwrap();
    std::mem::take(&mut *heard.lock().unwrap())
}

fn run(seed: u64) -> Vec<String> {
    let app = App::new("alike");
    let numbers = app.source("numbers", || 0..0_u64);
    let (_push, asked) = app.input::<u64>("asked");
    let work = app.map("work", |n: u64| n);
    let fold = app.map("fold", |n: u64| n).stateful();
    let store =
        app.stage("store", batched(HANDED, Duration::from_secs(1), |_: Vec<u64>, _: &mut ()| ()));
    app.connect(numbers, work);
    app.connect(asked, work);
    app.connect(work, fold);
    let sort = app.map("sort", |n: u64| n).ordered();
    app.connect(fold, sort);
    app.connect(sort, store);
    let heard = Arc::new(Mutex::new(Vec::new()));
    caller(seed, &heard).add(&app, "caller");
    let plan = Plan::new().threads(THREADS).policy("caller").stage("sort", |s| s.instances(3));
    let _kit = TestRuntime::new(app, &plan).unwrap();
    std::mem::take(&mut *heard.lock().unwrap())
}

fn caller(seed: u64, heard: &Arc<Mutex<Vec<String>>>) -> Made {
    let heard = heard.clone();
    Made::new(move |control| {
        *heard.lock().unwrap() = calls(seed, control);
        Ok(())
    })
}

#[test]
fn a_mock_takes_and_refuses_what_a_program_does() {
    for seed in 0..CASES {
        let (mocked, run) = (mocked(seed), run(seed));
        for (call, (mocked, run)) in mocked.iter().zip(&run).enumerate() {
            assert_eq!(mocked, run, "seed {seed}, call {call}: the mock on the left");
        }
        assert_eq!(mocked.len(), CALLS + 1);
    }
}
