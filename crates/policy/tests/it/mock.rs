//! The mock refuses what `PolicyControl` says is refused, and then nothing has changed.

use std::num::NonZeroUsize;
use std::time::Duration;

use comporta_policy::mock::{Mock, Queues};
use comporta_policy::{
    Focus, Policy, PolicyControl, PoolId, Refused, StageId, Time, TimerId, WhenFull,
};

/// A source, a stage and a stateful stage, and their numbers.
fn shop() -> (Mock, [StageId; 3]) {
    let mock = Mock::new().source("orders").stage("check").stage("book").stateful("book");
    let ids = mock.stages().iter().map(|stage| stage.id).collect::<Vec<_>>();
    (mock, ids.try_into().unwrap())
}

/// A call on the shop, to which its numbers are given.
type Call = fn(&mut Mock, [StageId; 3]) -> Result<(), Refused>;

fn refusal(prepare: Call, call: Call) -> String {
    let (mut mock, ids) = shop();
    prepare(&mut mock, ids).unwrap();
    let log = mock.take_log();
    let before = format!("{mock:?}");
    let why = call(&mut mock, ids).unwrap_err();
    assert_eq!(mock.refused().len(), 1);
    let told = mock.refused()[0].clone();
    assert!(told.ends_with(&format!(": {why}")), "{told}");
    // But for the refusal itself nothing has changed.
    let refused = format!("refused: [{told:?}]");
    assert_eq!(format!("{mock:?}").replace(&refused, "refused: []"), before, "after {log:?}");
    told
}

#[test]
// Long because it is a table of cases.
fn what_cannot_be_is_refused_and_changes_nothing() {
    const STRANGER: StageId = StageId(0);
    let cases: &[(Call, &str)] = &[
        (
            |m, [source, ..]| m.set_queue_capacity(source, 5),
            "set_queue_capacity orders 5: `orders` has no queue",
        ),
        (
            |m, [_, check, _]| m.set_queue_capacity(check, 0),
            "set_queue_capacity check 0: the queue capacity of `check` is 0: use at least 1",
        ),
        (
            |m, [source, ..]| m.set_when_full(source, WhenFull::Reject),
            "set_when_full orders reject: `orders` has no queue",
        ),
        (|m, [source, ..]| m.disable_queue(source), "disable_queue orders: `orders` has no queue"),
        (|m, [source, ..]| m.enable_queue(source), "enable_queue orders: `orders` has no queue"),
        (
            |m, _| m.new_pool(1_021).map(|_| ()),
            "new_pool 1021 -> pool1: the number of threads of `main` is 1025: use at most 1024",
        ),
        (
            |m, [_, check, _]| m.set_pool(PoolId(7), check),
            "set_pool pool7 check: there is no pool 7 in this cluster",
        ),
        (
            |m, _| m.set_pool(PoolId(0), STRANGER),
            "set_pool main ?: stage 0 is not in the cluster `main`",
        ),
        (
            |m, _| m.add_threads(PoolId(0), usize::MAX),
            "add_threads main 18446744073709551615: the number of threads of `main` is \
             18446744073709551615: use at most 1024",
        ),
        (
            |m, _| m.kill_threads(PoolId(0), 4),
            "kill_threads main 4: pool `main` has 4 threads and stages to run: 4 cannot go",
        ),
        (
            |m, _| m.kill_threads(PoolId(0), 5),
            "kill_threads main 5: the number of threads to go from `main` is 5: use at most 4",
        ),
        (
            |m, _| m.add_timer(Duration::from_micros(999)).map(|_| ()),
            "add_timer 999µs: the time between two calls, in microseconds, is 999: use at least 1000",
        ),
        (
            |m, _| m.reset_statistics(STRANGER),
            "reset_statistics ?: stage 0 is not in the cluster `main`",
        ),
        (
            |m, _| m.set_fire_last_focused(true),
            "set_fire_last_focused true: `set_fire_last_focused` needs per-stage queues: call \
             `use_per_stage_queues` in `start`",
        ),
        (
            |m, [source, ..]| m.set_visit_order(&[source]),
            "set_visit_order orders: `set_visit_order` needs per-stage queues: call \
             `use_per_stage_queues` in `start`",
        ),
        (
            |m, _| m.set_max_visits(NonZeroUsize::new(3)),
            "set_max_visits 3: `set_max_visits` needs per-stage queues: call `use_per_stage_queues` in `start`",
        ),
        (
            |m, _| m.set_restart_at(Some(0)),
            "set_restart_at 0: `set_restart_at` needs per-stage queues: call `use_per_stage_queues` in `start`",
        ),
        (
            |m, _| m.set_max_events_when_focused(Focus::All, 3),
            "set_max_events_when_focused all 3: `set_max_events_when_focused` needs per-stage queues: call \
             `use_per_stage_queues` in `start`",
        ),
        (
            |m, [_, check, _]| m.steal(check, STRANGER, 1),
            "steal check ? 1: stage 0 is not in the cluster `main`",
        ),
        (
            |m, [_, _, book]| m.add_instances(book, 1),
            "add_instances book 1: `book` has 1 instance and cannot have 2",
        ),
        (
            |m, [source, ..]| m.add_instances(source, 1),
            "add_instances orders 1: `orders` has 1 instance and cannot have 2",
        ),
        (
            |m, [_, check, _]| m.kill_instances(check, 1),
            "kill_instances check 1: `check` has 1 instance and cannot have 0",
        ),
        (
            |m, _| m.set_priority(STRANGER, 1),
            "set_priority ? 1: stage 0 is not in the cluster `main`",
        ),
        (
            |m, _| m.set_color(STRANGER, None),
            "set_color ? none: stage 0 is not in the cluster `main`",
        ),
    ];
    for (call, told) in cases {
        assert_eq!(refusal(|_, _| Ok(()), *call), *told);
    }
}

#[test]
fn a_steal_leaves_the_victim_a_thread_and_what_it_cannot_give_waits_in_line() {
    let (mut mock, [_, check, book]) = shop();
    let pool = mock.new_pool(1).unwrap();
    mock.set_pool(pool, check).unwrap();
    mock.steal(check, check, 9).unwrap();
    mock.steal(check, book, 5).unwrap();
    let threads = |mock: &Mock| [mock.main_pool(), pool].map(|pool| mock.threads(pool).unwrap());
    assert_eq!(threads(&mock), [1, 4], "3 of 5");
    mock.add_threads(mock.main_pool(), 1).unwrap();
    assert_eq!(threads(&mock), [1, 5]);
    mock.add_threads(mock.main_pool(), 4).unwrap();
    assert_eq!(threads(&mock), [4, 6], "the last that was asked for, and no more");
}

#[test]
fn private_queues_have_refusals_of_their_own() {
    let cases: &[(Call, &str)] = &[
        (|m, _| m.set_visit_order(&[]), "set_visit_order : a visit order names at least one stage"),
        (
            |m, [source, ..]| m.set_visit_order(&[source, StageId(0)]),
            "set_visit_order orders ?: stage 0 is not in the cluster `main`",
        ),
        (
            |m, _| m.set_restart_at(Some(3)),
            "set_restart_at 3: the visit order has 3 places: there is no place 3",
        ),
        (
            |m, [_, check, _]| m.set_max_events_when_focused(Focus::Stage(check), 0),
            "set_max_events_when_focused check 0: the number of events of a visit is 0: use at least 1",
        ),
    ];
    for (call, told) in cases {
        assert_eq!(refusal(|m, _| m.use_per_stage_queues(), *call), *told);
    }
}

/// Asks for everything once, and for other queues too late.
struct Late;

impl Policy for Late {
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        control.use_per_stage_queues()?;
        control.set_fire_last_focused(true)?;
        control.set_max_visits(NonZeroUsize::new(2))?;
        control.add_timer(Duration::from_secs(1)).map(|_| ())
    }

    fn on_timer(&mut self, _: TimerId, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        control.use_per_worker_queues()
    }

    fn on_last_focused(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        control.set_fire_last_focused(false)?;
        Ok(())
    }

    fn on_max_visits(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        control.set_max_visits(None)
    }
}

#[test]
fn queues_are_settled_in_start_and_callbacks_come_only_while_they_are_wanted() {
    let (mut mock, _) = shop();
    mock.start(&mut Late).unwrap();
    assert_eq!(mock.fire_timer(&mut Late, TimerId(0)), Err(Refused::Started));
    assert_eq!(mock.queues(), Queues::PerStage);
    mock.take_log();
    for _ in 0..2 {
        mock.fire_last_focused(&mut Late).unwrap();
        mock.fire_max_visits(&mut Late).unwrap();
    }
    assert_eq!(mock.log(), ["set_fire_last_focused false", "set_max_visits none"]);
}

#[test]
fn what_was_set_can_be_read_and_time_stands_until_it_is_moved() {
    let (mut mock, [source, check, book]) = shop();
    mock.at_mut("check").queued = 9;
    mock.at_mut("check").busy = 2;
    mock.add_instances(check, 4).unwrap();
    mock.set_queue_capacity(check, 10).unwrap();
    mock.disable_queue(check).unwrap();
    mock.set_priority(book, -2).unwrap();
    let pool = mock.new_pool(3).unwrap();
    mock.set_pool(pool, check).unwrap();
    mock.steal(check, book, 2).unwrap();
    mock.set_cpu_usage(130);

    assert_eq!((mock.queue_size(check), mock.queue_size(source)), (Ok(9), Ok(0)));
    assert_eq!((mock.instances(check), mock.free_instances(check)), (Ok(5), Ok(3)));
    assert_eq!(mock.queue_capacity(check), Ok(10));
    assert_eq!(mock.queue_is_enabled(check), Ok(false));
    assert_eq!(mock.priority(book), Ok(-2));
    assert_eq!((mock.threads(pool), mock.threads(mock.main_pool())), (Ok(5), Ok(2)));
    assert_eq!((mock.pool_of(check), mock.pool_of(book)), (Ok(pool), Ok(mock.main_pool())));
    assert_eq!(mock.cpu_usage(), 100);
    assert_eq!(mock.now(), Time::ZERO);
    mock.pass(Duration::from_secs(2));
    assert_eq!(mock.now().duration_since(Time::ZERO), Duration::from_secs(2));
}

#[test]
fn stages_stand_in_the_order_of_the_pipeline_and_their_numbers_do_not() {
    let mock = Mock::new().stage_at("send", 4).stage_at("parse", 1).source("accept").input("admin");
    let names: Vec<&str> = mock.stages().iter().map(|stage| &*stage.name).collect();
    assert_eq!(names, ["accept", "admin", "parse", "send"]);
    let ids: Vec<u32> = mock.stages().iter().map(|stage| stage.id.0).collect();
    assert_eq!(ids, [12, 13, 11, 10]);
}

#[test]
#[should_panic(expected = "the mock has no stage `chek`")]
fn a_stage_that_is_not_there_is_named() {
    let _ = shop().0.at("chek");
}
