//! Handlers: suspension, cancellation, registration of themselves, stop.

use crate::{Dropped, Log, scheduler};
use comporta_scheduler::{
    Failure, Step, listen, register_source, sleep, sources, spawn, stop, yield_now,
};
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_step_resumes_at_most_one_coroutine() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    for name in ["a", "b"] {
        let log = log.clone();
        scheduler
            .spawn(move || {
                log.add(format!("{name}1"));
                yield_now();
                log.add(format!("{name}2"));
            })
            .unwrap();
    }
    for lines in 1..=4 {
        assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
        assert_eq!(log.lines().len(), lines);
    }
    assert_eq!(log.lines(), ["a1", "b1", "a2", "b2"]);
    assert!(matches!(scheduler.step().unwrap(), Step::Complete));
}

#[test]
fn a_step_waits_no_longer_than_its_limit() {
    let mut scheduler = scheduler();
    let sleeper = scheduler.spawn(|| sleep(3 * SECOND)).unwrap();
    assert!(matches!(scheduler.step_within(Duration::ZERO).unwrap(), Step::Resumed));
    assert!(matches!(scheduler.step_within(Duration::ZERO).unwrap(), Step::Idle));
    assert!(matches!(scheduler.step_within(SECOND).unwrap(), Step::Idle));
    assert!(matches!(scheduler.step_within(SECOND).unwrap(), Step::Idle));
    assert!(matches!(scheduler.step_within(SECOND).unwrap(), Step::Resumed));
    assert!(sleeper.is_finished());
}

#[test]
fn a_handler_that_never_suspends_delays_others_and_loses_nothing() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let seen = log.clone();
    scheduler
        .spawn({
            let log = log.clone();
            move || {
                let sum: u64 = (0..100_000).sum();
                log.add(format!("computed {sum}"));
            }
        })
        .unwrap();
    scheduler.register_source(sources::after(SECOND), move |_| seen.add("timer")).unwrap();
    scheduler.run().unwrap();
    assert_eq!(log.lines(), ["computed 4999950000", "timer"]);
}

#[test]
fn a_handler_suspends_from_nested_calls_and_its_next_event_waits() {
    fn nested(depth: u32, log: &Log) {
        if depth == 0 {
            sleep(10 * SECOND);
            log.add("slept");
        } else {
            nested(depth - 1, log);
        }
    }
    let (mut scheduler, log) = (scheduler(), Log::default());
    let (seen, mut left) = (log.clone(), 2);
    let source = sources::polled(move |_| {
        left -= 1;
        Ok((left >= 0).then_some(left))
    });
    scheduler
        .register_source(source, move |n| {
            seen.add(format!("event {n}"));
            nested(20, &seen);
            if n == 0 {
                stop();
            }
        })
        .unwrap();
    scheduler.run().unwrap();
    assert_eq!(log.lines(), ["event 1", "slept", "event 0", "slept"]);
}

#[test]
fn cancelling_unwinds_so_that_drop_runs_and_twice_is_once() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let inner = log.clone();
    let sleeper = scheduler
        .spawn(move || {
            let _outer = Dropped(inner.clone(), "outer dropped");
            let deep = || {
                let _inner = Dropped(inner.clone(), "inner dropped");
                sleep(SECOND);
            };
            deep();
            inner.add("went on");
        })
        .unwrap();
    assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
    sleeper.cancel();
    sleeper.cancel();
    scheduler.run().unwrap();
    sleeper.cancel();
    assert_eq!(log.lines(), ["inner dropped", "outer dropped"]);
    assert!(matches!(sleeper.join(), Err(Failure::Cancelled)));
}

#[test]
fn cancelled_before_it_began_a_coroutine_never_begins() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let (captured, inner) = (Dropped(log.clone(), "captured dropped"), log.clone());
    let handle = scheduler
        .spawn(move || {
            inner.add("began");
            drop(captured);
        })
        .unwrap();
    handle.cancel();
    scheduler.run().unwrap();
    assert_eq!(log.lines(), ["captured dropped"]);
    assert!(matches!(handle.join(), Err(Failure::Cancelled)));
}

#[test]
fn a_coroutine_that_cancels_itself_unwinds_where_it_suspends_next() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let (cell, inner) = (Rc::new(Cell::new(None)), log.clone());
    let own = cell.clone();
    let handle = scheduler
        .spawn(move || {
            let own: Option<comporta_scheduler::JoinHandle<()>> = own.take();
            own.unwrap().cancel();
            inner.add("still here");
            yield_now();
            inner.add("not here");
        })
        .unwrap();
    cell.set(Some(handle));
    let summary = scheduler.run().unwrap();
    assert_eq!((log.lines(), summary.failed), (vec!["still here".to_owned()], 0));
}

#[test]
fn a_coroutine_that_catches_its_cancellation_unwinds_again_where_it_suspends_next() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let inner = log.clone();
    let handle = scheduler
        .spawn(move || {
            for attempt in 0..3 {
                let caught = catch_unwind(AssertUnwindSafe(|| sleep(SECOND)));
                inner.add(format!("caught {attempt}: {}", caught.is_err()));
            }
            "done all the same"
        })
        .unwrap();
    assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
    handle.cancel();
    scheduler.run().unwrap();
    assert_eq!(log.lines(), ["caught 0: true", "caught 1: true", "caught 2: true"]);
    assert_eq!(handle.join().unwrap(), "done all the same");
}

#[test]
fn drop_may_suspend_unless_its_coroutine_unwinds() {
    struct Sleeps(Log);
    impl Drop for Sleeps {
        fn drop(&mut self) {
            let before = comporta_scheduler::now();
            sleep(SECOND);
            yield_now();
            self.0.add(format!("slept {:?}", comporta_scheduler::now() - before));
        }
    }
    let (mut scheduler, log) = (scheduler(), Log::default());
    let inner = log.clone();
    scheduler.block_on(move || drop(Sleeps(inner))).unwrap();
    let inner = log.clone();
    let cancelled = scheduler
        .spawn(move || {
            let _sleeps = Sleeps(inner);
            sleep(SECOND);
        })
        .unwrap();
    let inner = log.clone();
    let panicking = scheduler
        .spawn(move || {
            let _sleeps = Sleeps(inner);
            panic!("on purpose");
        })
        .unwrap();
    assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
    cancelled.cancel();
    scheduler.run().unwrap();
    assert_eq!(log.lines(), ["slept 1s", "slept 0ns", "slept 0ns"]);
    assert!(matches!(panicking.join(), Err(Failure::Panic(_))));
}

#[test]
fn a_handler_registers_itself_again_while_it_runs() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    fn register(log: Log, generation: u32) {
        register_source(sources::after(SECOND), move |_| {
            log.add(format!("generation {generation}"));
            if generation < 3 {
                register(log.clone(), generation + 1);
                register(log.clone(), generation + 2);
            }
        })
        .unwrap();
    }
    let inner = log.clone();
    scheduler.spawn(move || register(inner, 1)).unwrap();
    scheduler.run().unwrap();
    let generations = [1, 2, 3, 3, 4].map(|n| format!("generation {n}"));
    assert_eq!(log.lines(), generations);
}

#[test]
fn stop_in_a_handler_ends_the_run_when_it_suspends_and_it_can_be_run_again() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let inner = log.clone();
    scheduler
        .spawn(move || {
            stop();
            inner.add("after stop");
            yield_now();
            inner.add("after the second run");
        })
        .unwrap();
    assert!(scheduler.run().unwrap().stopped);
    assert_eq!(log.lines(), ["after stop"]);
    assert_eq!(scheduler.coroutines(), 1);
    assert!(!scheduler.run().unwrap().stopped);
    assert_eq!(log.lines(), ["after stop", "after the second run"]);
}

#[test]
fn stop_from_another_thread_wakes_a_scheduler_that_waits() {
    let mut scheduler = crate::real_scheduler();
    let never = sources::callback(|notifier: comporta_scheduler::Notifier<()>| {
        std::mem::forget(notifier);
        Ok(())
    });
    let handle = scheduler.handle();
    scheduler.register_source(never, |()| ()).unwrap();
    let stopper = thread::Builder::new().spawn(move || handle.stop()).unwrap();
    assert!(scheduler.run().unwrap().stopped);
    stopper.join().unwrap();
}

#[test]
fn stop_before_run_is_not_forgotten_and_counts_once() {
    let mut scheduler = scheduler();
    scheduler.spawn(|| ()).unwrap();
    scheduler.handle().stop();
    scheduler.handle().stop();
    assert!(scheduler.run().unwrap().stopped);
    assert!(!scheduler.run().unwrap().stopped);
}

#[test]
fn a_thousand_timers_at_one_instant_fire_in_the_order_they_were_set() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    for n in 0..1000 {
        let log = log.clone();
        // Some as sleeping coroutines, some as sources.
        if n % 2 == 0 {
            scheduler
                .spawn(move || {
                    sleep(SECOND);
                    log.add(n.to_string());
                })
                .unwrap();
        } else {
            scheduler
                .spawn(move || {
                    let timer = listen(sources::after(SECOND)).unwrap();
                    timer.next().unwrap();
                    log.add(n.to_string());
                })
                .unwrap();
        }
    }
    scheduler.run().unwrap();
    assert_eq!(log.lines(), (0..1000).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[test]
fn thousands_of_coroutines_are_suspended_at_once() {
    let mut scheduler = scheduler();
    let awake = Rc::new(Cell::new(0));
    for _ in 0..5000 {
        let awake = awake.clone();
        scheduler
            .spawn(move || {
                sleep(SECOND);
                awake.set(awake.get() + 1);
            })
            .unwrap();
    }
    scheduler.run().unwrap();
    assert_eq!(awake.get(), 5000);
}

#[test]
fn dropping_the_scheduler_unwinds_all_and_begins_nothing() {
    struct Spawns(Log);
    impl Drop for Spawns {
        fn drop(&mut self) {
            let refused = spawn(|| ()).unwrap_err();
            self.0.add(format!("refused: {refused}"));
        }
    }
    let (mut scheduler, log) = (scheduler(), Log::default());
    let inner = log.clone();
    scheduler
        .spawn(move || {
            let _spawns = Spawns(inner.clone());
            sleep(SECOND);
        })
        .unwrap();
    assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
    let captured = Dropped(log.clone(), "never began");
    scheduler.spawn(move || drop(captured)).unwrap();
    drop(scheduler);
    assert_eq!(log.lines(), ["never began", "refused: the scheduler is being dropped"]);
}

#[test]
fn a_scheduler_refuses_to_run_while_its_thread_panics_but_unwinds_its_coroutines() {
    struct Owner(Option<crate::Checked>, Log);
    impl Drop for Owner {
        fn drop(&mut self) {
            let mut scheduler = self.0.take().unwrap();
            self.1.add(scheduler.run().unwrap_err().to_string());
        }
    }
    let (mut inner, log) = (scheduler(), Log::default());
    let dropped = Dropped(log.clone(), "unwound");
    inner
        .spawn(move || {
            let _dropped = dropped;
            loop {
                sleep(SECOND);
            }
        })
        .unwrap();
    assert!(matches!(inner.step().unwrap(), Step::Resumed));
    let owner = Owner(Some(inner), log.clone());
    let panicking = catch_unwind(AssertUnwindSafe(move || {
        let _owner = owner;
        panic!("on purpose");
    }));
    assert!(panicking.is_err());
    let refusal = "the thread is panicking, so no coroutine can be resumed";
    assert_eq!(log.lines(), [refusal, "unwound"]);
}

#[test]
fn to_wait_in_the_wrong_scheduler_is_a_panic_and_not_a_hang() {
    let (mut one, mut other) = (scheduler(), scheduler());
    let sleeper = one.spawn(|| sleep(SECOND)).unwrap();
    let joined = other.block_on(move || sleeper.join());
    assert!(matches!(joined, Err(Failure::Panic(_))));
    let timer = one.block_on(|| listen(sources::after(SECOND)).unwrap()).unwrap();
    let waited = other.block_on(move || timer.next());
    assert!(matches!(waited, Err(Failure::Panic(_))));
}

#[test]
fn a_scheduler_inside_a_coroutine_of_another_is_a_world_of_its_own() {
    let mut outer = scheduler();
    let sum = outer.block_on(|| {
        let mut inner = crate::scheduler();
        let part = inner.block_on(|| {
            sleep(SECOND);
            20
        });
        sleep(SECOND);
        part.unwrap() + 1
    });
    assert_eq!(sum.unwrap(), 21);
}

#[test]
fn what_a_loop_calls_inside_a_coroutine_of_another_scheduler_does_not_suspend_that() {
    let mut outer = scheduler();
    let refused = outer.block_on(|| {
        let mut inner = crate::scheduler();
        let source = sources::polled(|_| -> io::Result<Option<()>> {
            sleep(SECOND);
            Ok(None)
        });
        let events = inner.register_source(source, |()| ()).unwrap();
        let failure = inner.block_on(move || events.join()).unwrap().unwrap_err();
        sleep(SECOND); // the coroutine itself can be suspended again
        failure.to_string()
    });
    assert!(refused.unwrap().contains("outside of a scheduler's coroutine"));
}

#[test]
fn a_step_with_a_limit_does_not_let_virtual_time_pass_over_a_timer() {
    let mut scheduler = scheduler();
    let woke = scheduler
        .spawn(|| {
            let began = comporta_scheduler::now();
            sleep(Duration::from_secs(1));
            comporta_scheduler::now() - began
        })
        .unwrap();
    let limit = Duration::from_secs(5);
    // It begins, and sleeps for longer than the scheduler takes to be idle.
    assert!(matches!(scheduler.step_within(limit).unwrap(), Step::Resumed));
    assert!(matches!(scheduler.step_within(limit).unwrap(), Step::Resumed));
    assert_eq!(woke.join().unwrap(), Duration::from_secs(1));
}

#[test]
fn a_step_with_a_limit_lets_virtual_time_pass_by_the_limit() {
    let mut scheduler = scheduler();
    let woke = scheduler
        .spawn(|| {
            let began = comporta_scheduler::now();
            sleep(Duration::from_secs(10));
            comporta_scheduler::now() - began
        })
        .unwrap();
    assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
    for _ in 0..3 {
        let step = scheduler.step_within(Duration::from_secs(3)).unwrap();
        assert!(matches!(step, Step::Idle), "{step:?}");
    }
    let step = scheduler.step_within(Duration::from_secs(1)).unwrap();
    assert!(matches!(step, Step::Resumed), "{step:?}");
    assert_eq!(woke.join().unwrap(), Duration::from_secs(10));
}
