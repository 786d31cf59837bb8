//! How coroutines end, and who hears of it: finalizers, then the handle, then the caller.

use crate::{Dropped, Log, real_scheduler, scheduler};
use comporta_scheduler::{
    Failure, JoinHandle, Notifier, Step, channel, is_cancelled, listen, on_end, sleep, sources,
    spawn,
};
use std::cell::Cell;
use std::io;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn told(end: Result<(), &Failure>) -> String {
    end.map_or_else(ToString::to_string, |()| "well".to_owned())
}

#[test]
fn a_finalizer_hears_of_every_kind_of_end() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let ending = |log: &Log| {
        let log = log.clone();
        move || on_end(move |end| log.add(told(end)))
    };
    let finalizer = ending(&log);
    scheduler.spawn(finalizer).unwrap();
    let finalizer = ending(&log);
    scheduler
        .spawn(move || {
            finalizer();
            panic!("on purpose");
        })
        .unwrap();
    let mut finalizer = Some(ending(&log));
    scheduler
        .register_source(sources::after(SECOND), move |_| {
            finalizer.take().unwrap()();
            Err(io::Error::other("no good"))
        })
        .unwrap();
    let finalizer = ending(&log);
    let cancelled = scheduler
        .spawn(move || {
            finalizer();
            sleep(SECOND / 2);
        })
        .unwrap();
    cancelled.cancel();
    let cancelled = scheduler
        .spawn({
            let finalizer = ending(&log);
            move || {
                finalizer();
                sleep(2 * SECOND);
            }
        })
        .unwrap();
    scheduler.spawn(move || cancelled.cancel()).unwrap();
    let summary = scheduler.run().unwrap();
    assert_eq!(summary.failed, 0, "each has a finalizer that heard of it");
    assert_eq!(
        log.lines(),
        [
            "well",
            "the coroutine panicked: on purpose",
            "the coroutine was cancelled",
            "the handler failed: no good"
        ]
    );
}

#[test]
fn finalizers_run_last_first_after_the_body_and_may_suspend() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let inner = log.clone();
    let handle = scheduler
        .spawn(move || {
            let _local = Dropped(inner.clone(), "body unwound");
            for n in 1..=2 {
                let log = inner.clone();
                on_end(move |end| {
                    sleep(SECOND);
                    log.add(format!("finalizer {n}: {}", told(end)));
                });
            }
            panic!("on purpose");
        })
        .unwrap();
    scheduler.run().unwrap();
    assert_eq!(
        log.lines(),
        [
            "body unwound",
            "finalizer 2: the coroutine panicked: on purpose",
            "finalizer 1: the coroutine panicked: on purpose"
        ]
    );
    assert!(handle.join().is_err());
}

#[test]
fn a_finalizer_that_panics_does_not_keep_the_next_from_running() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let inner = log.clone();
    let handle = scheduler
        .spawn(move || {
            on_end(move |end| inner.add(told(end)));
            on_end(|_| panic!("in the finalizer"));
            "a result that is lost"
        })
        .unwrap();
    scheduler.run().unwrap();
    assert_eq!(log.lines(), ["the coroutine panicked: in the finalizer"]);
    assert!(matches!(handle.join(), Err(Failure::Panic(_))));
}

#[test]
fn a_finalizer_of_a_cancelled_coroutine_cannot_suspend() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let inner = log.clone();
    let handle = scheduler
        .spawn(move || {
            let second = inner.clone();
            on_end(move |_| second.add("second finalizer"));
            on_end(move |_| {
                inner.add("first finalizer");
                sleep(SECOND);
                inner.add("not here");
            });
            sleep(SECOND);
        })
        .unwrap();
    assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
    handle.cancel();
    scheduler.run().unwrap();
    assert_eq!(log.lines(), ["first finalizer", "second finalizer"]);
}

#[test]
fn a_failure_of_which_nobody_hears_goes_to_the_caller_and_the_loop_goes_on() {
    let (mut scheduler, log) = (scheduler().unchecked(), Log::default());
    drop(scheduler.spawn(|| panic!("on purpose")).unwrap());
    assert!(
        matches!(scheduler.step().unwrap(), Step::Failed(failure) if matches!(*failure, Failure::Panic(_)))
    );
    let inner = log.clone();
    for n in 0..20 {
        drop(scheduler.spawn(move || panic!("number {n}")).unwrap());
    }
    drop(scheduler.spawn(move || inner.add("went on")).unwrap());
    let summary = scheduler.run().unwrap();
    assert_eq!((summary.failed, summary.failures.len()), (20, 16));
    assert_eq!(summary.failures[3].to_string(), "the coroutine panicked: number 3");
    assert_eq!(log.lines(), ["went on"]);
}

#[test]
fn a_failure_goes_to_the_handle_while_there_is_one() {
    let mut scheduler = scheduler();
    let handle = scheduler.spawn(|| panic!("on purpose")).unwrap();
    let summary = scheduler.run().unwrap();
    assert_eq!(summary.failed, 0);
    let failure: Failure = Result::<(), Failure>::unwrap_err(handle.join());
    assert_eq!(failure.to_string(), "the coroutine panicked: on purpose");
}

#[test]
fn joining_waits_for_the_result_or_no_longer_than_the_limit() {
    let mut scheduler = scheduler();
    let joined = scheduler.block_on(|| {
        let slow = spawn(|| {
            sleep(3 * SECOND);
            "slow"
        });
        let slow = slow.unwrap().join_timeout(SECOND).unwrap_err();
        let early = spawn(|| "early").unwrap();
        sleep(SECOND);
        (early.join().unwrap(), slow.join().unwrap())
    });
    assert_eq!(joined.unwrap(), ("early", "slow"));
}

#[test]
fn panics_of_drop_and_of_payloads_do_not_break_the_loop() {
    /// Panics whenever it is dropped, also as the payload of a panic.
    struct Bomb(Log);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.add("bomb");
            if !std::thread::panicking() {
                panic!("dropped");
            }
        }
    }
    // A payload has to be `Send`.
    struct SendBomb;
    impl Drop for SendBomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("payload dropped");
            }
        }
    }
    let (mut scheduler, log) = (scheduler().unchecked(), Log::default());
    let result = Bomb(log.clone());
    drop(scheduler.spawn(move || result).unwrap());
    let captured = Bomb(log.clone());
    let unbegun = scheduler.spawn(move || drop(captured)).unwrap();
    unbegun.cancel();
    for _ in 0..20 {
        drop(scheduler.spawn(|| panic::panic_any(SendBomb)).unwrap());
    }
    let inner = log.clone();
    scheduler.spawn(move || inner.add("went on")).unwrap();
    let summary = scheduler.run().unwrap();
    assert_eq!(summary.failed, 20);
    assert_eq!(log.lines(), ["bomb", "bomb", "went on"]);
    summary.failures.into_iter().for_each(std::mem::forget);
}

#[test]
fn a_payload_of_a_finalizer_that_panics_when_dropped_does_not_break_the_loop() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("payload dropped");
            }
        }
    }
    let (mut scheduler, log) = (scheduler(), Log::default());
    let inner = log.clone();
    let handle = scheduler
        .spawn(move || {
            on_end(move |end| inner.add(told(end)));
            on_end(|_| panic::panic_any(Bomb));
            panic!("on purpose");
        })
        .unwrap();
    let inner = log.clone();
    scheduler.spawn(move || inner.add("went on")).unwrap();
    let summary = scheduler.run().unwrap();
    assert_eq!(summary.failed, 0);
    assert_eq!(log.lines(), ["the coroutine panicked: on purpose", "went on"]);
    let failure: Failure = Result::<(), Failure>::unwrap_err(handle.join());
    assert_eq!(failure.to_string(), "the coroutine panicked: on purpose");
}

#[test]
fn a_finalizer_registered_after_the_finalizers_ran_is_refused() {
    /// Registers a finalizer when it is dropped: as a result that nobody takes, after all others ran.
    struct Late(Log);
    impl Drop for Late {
        fn drop(&mut self) {
            let held = Dropped(self.0.clone(), "finalizer dropped");
            let registered = panic::catch_unwind(panic::AssertUnwindSafe(|| {
                on_end(move |_| held.0.add("not here"));
            }));
            self.0.add(if registered.is_ok() { "registered" } else { "refused" });
        }
    }
    let (mut scheduler, log) = (scheduler(), Log::default());
    let (result, inner) = (Late(log.clone()), log.clone());
    drop(scheduler.spawn(move || result).unwrap());
    scheduler.spawn(move || inner.add("went on")).unwrap();
    scheduler.run().unwrap();
    assert_eq!(log.lines(), ["finalizer dropped", "refused", "went on"]);
}

#[test]
fn an_error_of_a_fallible_coroutine_is_a_failure_for_whoever_hears_of_it() {
    let (mut scheduler, log) = (scheduler().unchecked(), Log::default());
    let fails = || -> io::Result<u8> { Err(io::Error::other("no good")) };
    // Nobody holds its handle: the caller hears of it.
    drop(scheduler.spawn_fallible(fails).unwrap());
    match scheduler.step().unwrap() {
        Step::Failed(failure) => assert_eq!(failure.to_string(), "the handler failed: no good"),
        other => panic!("{other:?}"),
    }
    // Its handle.
    let handle = scheduler.spawn_fallible(fails).unwrap();
    assert_eq!(scheduler.run().unwrap().failed, 0);
    assert!(matches!(handle.join(), Err(Failure::Error(_))));
    // Its finalizer.
    let inner = log.clone();
    let finalized = scheduler.spawn_fallible(move || {
        on_end(move |end| inner.add(told(end)));
        fails()
    });
    drop(finalized);
    assert_eq!(scheduler.run().unwrap().failed, 0);
    assert_eq!(log.lines(), ["the handler failed: no good"]);
    // What does not fail has its value.
    let handle = scheduler.spawn_fallible(|| io::Result::Ok(7)).unwrap();
    scheduler.run().unwrap();
    assert_eq!(handle.join().unwrap(), 7);
}

#[test]
fn on_failure_hears_of_what_nobody_else_does_wherever_it_runs() {
    let log = Log::default();
    let seen = log.clone();
    let mut scheduler = comporta_scheduler::Scheduler::builder()
        .virtual_time()
        .on_failure(move |failure| {
            seen.add(failure.to_string());
            panic!("in the hook");
        })
        .build()
        .unwrap();
    drop(scheduler.spawn(|| panic!("in step")).unwrap());
    assert!(matches!(scheduler.step().unwrap(), Step::Failed(_)));
    scheduler
        .block_on(|| {
            drop(comporta_scheduler::spawn_fallible(|| Err::<(), _>("in block_on")));
            drop(spawn(|| "no failure"));
            spawn(|| panic!("joined")).map(|handle| assert!(handle.join().is_err())).unwrap();
        })
        .unwrap();
    drop(scheduler.spawn(|| {
        let _held = Panics;
        sleep(SECOND);
    }));
    assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
    drop(scheduler);
    let expected = ["the coroutine panicked: in step", "the handler failed: in block_on"];
    assert_eq!(log.lines(), expected, "and a cancellation is no failure");

    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "it is dropped by unwinding");
        }
    }
}

#[test]
fn a_coroutine_has_a_bounded_number_of_finalizers() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let ran = std::rc::Rc::new(std::cell::Cell::new(0));
    let counted = ran.clone();
    let held = Dropped(log.clone(), "refused finalizer dropped");
    let handle = scheduler
        .spawn(move || {
            for _ in 0..1024 {
                let counted = counted.clone();
                on_end(move |_| counted.set(counted.get() + 1));
            }
            on_end(move |_| held.0.add("not here"));
        })
        .unwrap();
    scheduler.run().unwrap();
    let failure = handle.join().unwrap_err();
    assert!(failure.to_string().contains("at most 1024"), "{failure}");
    assert_eq!((ran.get(), log.lines()), (1024, vec!["refused finalizer dropped".to_owned()]));
}

#[test]
fn a_coroutine_that_joins_itself_panics_and_does_not_wait_for_ever() {
    let mut scheduler = scheduler();
    let handle = Rc::new(Cell::new(None::<JoinHandle<()>>));
    let own = handle.clone();
    let joins = scheduler.spawn(move || {
        let own = own.take().unwrap();
        let joined = catch_unwind(AssertUnwindSafe(|| own.join()));
        assert!(joined.is_err());
    });
    handle.set(Some(joins.unwrap()));
    let summary = scheduler.run().unwrap();
    assert_eq!((summary.stopped, summary.failed), (false, 0));
}

#[test]
fn a_loop_that_catches_every_panic_can_tell_that_it_was_cancelled() {
    let mut scheduler = scheduler();
    let handle = scheduler
        .spawn(|| {
            let mut caught = 0;
            while !is_cancelled() {
                let turn = catch_unwind(|| sleep(Duration::from_secs(1)));
                caught += u32::from(turn.is_err());
            }
            caught
        })
        .unwrap();
    assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
    handle.cancel();
    drop(scheduler);
    assert_eq!(handle.join().unwrap(), 1);
}

#[test]
fn events_and_items_whose_drop_panics_do_not_abort_a_coroutine_that_unwinds() {
    #[derive(Debug)]
    struct Bomb(Rc<Cell<u32>>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            resume_unwind(Box::new("on purpose"));
        }
    }
    let (mut scheduler, dropped) = (real_scheduler(), Rc::new(Cell::new(0)));
    let bombs = dropped.clone();
    scheduler
        .spawn(move || {
            let (sender, receiver) = channel(4);
            (0..3).for_each(|_| sender.send(Bomb(bombs.clone())).unwrap());
            let mut notifier = None;
            let events = listen(sources::callback(|reports| {
                notifier = Some(reports);
                Ok(())
            }));
            let notifier: Notifier<Bomb> = notifier.unwrap();
            (0..3).for_each(|_| notifier.notify(Bomb(bombs.clone())).unwrap());
            let polled = listen(sources::polled(move |_| Ok(Some(Bomb(bombs.clone())))));
            sleep(Duration::from_secs(3600));
            drop((receiver, events, polled));
        })
        .unwrap();
    assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
    // The polled source is asked twice.
    for _ in 0..2 {
        assert!(matches!(scheduler.step_within(Duration::ZERO).unwrap(), Step::Idle));
    }
    drop(scheduler);
    assert_eq!(dropped.get(), 3 + 3 + 2);
}
