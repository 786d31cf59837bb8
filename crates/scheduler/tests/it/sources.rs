//! Sources of every kind, and what happens when they end, fail, overflow or outlive their handler.

use crate::{Log, scheduler};
use comporta_scheduler::{
    EventSource, Failure, Notifier, NotifyError, Registration, Scheduler, Step, listen, now, sleep,
    sources, spawn, stop,
};
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A callback source whose notifier the test keeps.
fn kept<E: 'static>(to: &Rc<RefCell<Option<Notifier<E>>>>) -> impl EventSource<Event = E> {
    let to = to.clone();
    sources::callback(move |notifier| {
        to.replace(Some(notifier));
        Ok(())
    })
}

#[test]
fn events_of_a_callback_reach_the_handler_in_order() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let (notifier, seen) = (Rc::new(RefCell::new(None)), log.clone());
    scheduler.register_source(kept(&notifier), move |n: u32| seen.add(n.to_string())).unwrap();
    for n in 1..=3 {
        notifier.borrow().as_ref().unwrap().notify(n).unwrap();
    }
    notifier.replace(None); // the last notifier: the source ends, and with it the handler
    let summary = scheduler.run().unwrap();
    assert!(!summary.stopped && summary.failed == 0);
    assert_eq!(log.lines(), ["1", "2", "3"]);
}

#[test]
fn a_callback_on_another_thread_wakes_a_sleeping_scheduler() {
    let mut scheduler = crate::real_scheduler();
    let source = sources::callback(|notifier| {
        thread::Builder::new()
            .spawn(move || (1..=100).for_each(|n: u32| notifier.notify(n).unwrap()))
            .map(drop)
    });
    let sum = scheduler.block_on(|| {
        let events = listen(source).unwrap();
        let mut sum = 0;
        while let Some(n) = events.next().unwrap() {
            sum += n;
        }
        sum
    });
    assert_eq!(sum.unwrap(), 5050);
}

#[test]
fn a_synchronous_source_with_a_limit_is_asked_for_no_longer_than_the_limit() {
    let wait_max = Duration::from_millis(1);
    let mut scheduler = Scheduler::builder().wait_max(wait_max).build().unwrap();
    let waits = Rc::new(RefCell::new(Vec::new()));
    let asked = waits.clone();
    let mut left = 5;
    let source = sources::polled(move |wait| {
        asked.borrow_mut().push(wait);
        left -= 1;
        Ok((left == 0).then_some("ready"))
    });
    let event = scheduler.block_on(|| listen(source).unwrap().next().unwrap());
    assert_eq!(event.unwrap(), Some("ready"));
    assert_eq!(waits.borrow().len(), 5);
    assert!(waits.borrow().iter().all(|wait| *wait <= wait_max));
}

#[test]
fn a_synchronous_source_is_waited_for_no_longer_than_the_step_may_take() {
    let mut scheduler = Scheduler::builder().wait_max(Duration::from_secs(30)).build().unwrap();
    let waits = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..2 {
        let asked = waits.clone();
        let source = sources::polled(move |wait| {
            asked.borrow_mut().push(wait);
            Ok(None::<()>)
        });
        scheduler.register_source(source, |()| ()).unwrap();
    }
    let limit = Duration::from_millis(1);
    while !matches!(scheduler.step_within(limit).unwrap(), Step::Idle) {}
    let waits = waits.take();
    assert!(!waits.is_empty() && waits.iter().all(|wait| *wait <= limit), "{waits:?}");
}

#[test]
fn a_synchronous_source_is_not_waited_for_while_another_handler_is_ready() {
    let mut scheduler = scheduler();
    let waits = Rc::new(RefCell::new(Vec::new()));
    let asked = waits.clone();
    let source = sources::polled(move |wait| {
        asked.borrow_mut().push(wait);
        Ok(None::<()>)
    });
    scheduler.register_source(source, |()| ()).unwrap();
    let busy = scheduler.spawn(|| (0..1000).for_each(|_| comporta_scheduler::yield_now())).unwrap();
    while !busy.is_finished() {
        assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
    }
    assert!(waits.borrow().len() >= 10, "asked all the same: {}", waits.borrow().len());
    assert!(waits.borrow().iter().all(Duration::is_zero));
}

#[test]
fn a_synchronous_source_is_not_asked_while_its_mailbox_is_full() {
    struct Eager(Rc<Cell<u32>>);
    impl EventSource for Eager {
        type Event = u32;
        fn attach(self, to: Registration<'_, u32>) -> io::Result<()> {
            let mut n = 0;
            to.capacity(3).poll(move |_| {
                n += 1;
                self.0.set(n);
                Ok(Some(n))
            });
            Ok(())
        }
    }
    let (mut scheduler, asked) = (scheduler(), Rc::new(Cell::new(0)));
    let (source, seen) = (Eager(asked.clone()), asked.clone());
    scheduler
        .block_on(move || {
            let events = listen(source).unwrap();
            (0..1000).for_each(|_| comporta_scheduler::yield_now());
            assert_eq!(seen.get(), 3);
            assert_eq!(events.next().unwrap(), Some(1));
        })
        .unwrap();
}

#[test]
fn a_source_whose_events_are_dropped_is_not_asked_again() {
    let (mut scheduler, asked) = (scheduler(), Rc::new(Cell::new(0)));
    let counted = asked.clone();
    scheduler
        .block_on(move || {
            let count = counted.clone();
            let events = listen(sources::polled(move |_| {
                count.set(count.get() + 1);
                Ok(None::<()>)
            }));
            sleep(SECOND);
            let before = counted.get();
            assert!(before > 0);
            drop(events);
            assert_eq!(Rc::strong_count(&counted), 2, "the source was dropped too");
            sleep(SECOND);
            assert_eq!(counted.get(), before);
        })
        .unwrap();
    assert_eq!(Rc::strong_count(&asked), 1);
}

#[test]
fn a_blocking_source_has_a_thread_of_its_own_and_waits_for_room() {
    let mut scheduler = crate::real_scheduler();
    let scheduler_thread = thread::current().id();
    struct Fast;
    impl EventSource for Fast {
        type Event = (u32, thread::ThreadId);
        fn attach(self, to: Registration<'_, Self::Event>) -> io::Result<()> {
            let mut n = 0;
            to.capacity(2).thread(move || {
                n += 1;
                Ok((n <= 100).then_some((n, thread::current().id())))
            })
        }
    }
    let events = scheduler.block_on(|| {
        let events = listen(Fast).unwrap();
        let mut all = Vec::new();
        while let Some(event) = events.next().unwrap() {
            all.push(event);
        }
        all
    });
    let events = events.unwrap();
    assert_eq!(events.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (1..=100).collect::<Vec<_>>());
    assert!(events.iter().all(|(_, thread)| *thread == events[0].1 && *thread != scheduler_thread));
}

#[test]
fn an_error_of_a_source_comes_after_its_events_and_ends_its_handler() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let (notifier, seen) = (Rc::new(RefCell::new(None)), log.clone());
    let handler =
        scheduler.register_source(kept(&notifier), move |n: u32| seen.add(n.to_string())).unwrap();
    let notifier: Notifier<u32> = notifier.take().unwrap();
    notifier.notify(7).unwrap();
    notifier.fail(io::Error::other("unplugged"));
    scheduler.run().unwrap();
    assert_eq!(log.lines(), ["7"]);
    let failure = handler.join().unwrap_err();
    assert_eq!(failure.to_string(), "the handler failed: unplugged");
}

#[test]
fn a_source_that_panics_fails_and_the_loop_goes_on() {
    let mut scheduler = crate::real_scheduler().unchecked();
    let polled = sources::polled(|_| -> io::Result<Option<()>> { panic!("no device") });
    let threaded = sources::blocking(|| -> io::Result<Option<()>> { panic!("no device") });
    scheduler.register_source(polled, |()| ()).unwrap();
    scheduler.register_source(threaded, |()| ()).unwrap();
    let summary = scheduler.run().unwrap();
    assert_eq!(summary.failed, 2);
    for failure in summary.failures {
        assert_eq!(failure.to_string(), "the handler failed: the source panicked: no device");
    }
}

#[test]
fn a_source_that_cannot_begin_is_not_registered() {
    let mut scheduler = scheduler();
    let source = sources::callback(|_: Notifier<()>| Err(io::Error::other("no such sensor")));
    let refused = scheduler.register_source(source, |()| ()).unwrap_err();
    assert_eq!(refused.to_string(), "no such sensor");
    assert_eq!(scheduler.coroutines(), 0);
}

#[test]
fn what_nobody_listens_to_is_given_back() {
    let mut scheduler = scheduler();
    let kept_notifier = Rc::new(RefCell::new(None));
    let handler = scheduler.register_source(kept(&kept_notifier), |_: String| ()).unwrap();
    handler.cancel();
    scheduler.run().unwrap();
    let notifier: Notifier<String> = kept_notifier.take().unwrap();
    match notifier.notify("late".to_owned()) {
        Err(NotifyError::Closed(event)) => assert_eq!(event, "late"),
        other => panic!("{other:?}"),
    }
    // Nor does it reach whoever came after, in the same place.
    let log = Log::default();
    let seen = log.clone();
    scheduler.register_source(sources::after(SECOND), move |_| seen.add("timer")).unwrap();
    drop(notifier);
    scheduler.run().unwrap();
    assert_eq!(log.lines(), ["timer"]);
}

#[test]
fn a_full_mailbox_gives_the_event_back() {
    struct Small(Rc<RefCell<Option<Notifier<u32>>>>);
    impl EventSource for Small {
        type Event = u32;
        fn attach(self, to: Registration<'_, u32>) -> io::Result<()> {
            self.0.replace(Some(to.capacity(2).notifier()));
            Ok(())
        }
    }
    let (mut scheduler, kept) = (scheduler(), Rc::new(RefCell::new(None)));
    scheduler.register_source(Small(kept.clone()), |_| ()).unwrap();
    let notifier = kept.take().unwrap();
    notifier.notify(1).unwrap();
    notifier.notify(2).unwrap();
    assert!(!notifier.has_room());
    assert!(matches!(notifier.notify(3), Err(NotifyError::Full(3))));
    assert!(matches!(scheduler.step().unwrap(), Step::Resumed));
    notifier.notify(4).unwrap();
}

#[test]
fn every_skips_what_was_not_seen_and_keeps_its_beat() {
    let mut scheduler = scheduler();
    let seen = scheduler.block_on(|| {
        let began = now();
        let ticks = listen(sources::every(SECOND)).unwrap();
        let mut seen = Vec::new();
        for busy in [0, 0, 3] {
            seen.push(ticks.next().unwrap().unwrap() - began);
            sleep(busy * SECOND + SECOND / 2);
        }
        seen.push(ticks.next().unwrap().unwrap() - began); // waited in the mailbox
        seen.push(ticks.next().unwrap().unwrap() - began);
        seen
    });
    assert_eq!(seen.unwrap(), [1, 2, 3, 4, 7].map(|n| n * SECOND));
}

#[test]
fn periods_of_no_time_and_delays_beyond_time_do_no_harm() {
    let mut scheduler = scheduler();
    let never = scheduler.register_source(sources::after(Duration::MAX), |_| ()).unwrap();
    let mut left = 10;
    let fast = sources::every(Duration::ZERO);
    scheduler
        .register_source(fast, move |_| {
            left -= 1;
            if left == 0 {
                stop();
            }
        })
        .unwrap();
    assert!(scheduler.run().unwrap().stopped);
    assert!(!never.is_finished());
}

#[test]
fn after_reports_once_and_ends() {
    let mut scheduler = scheduler();
    let log = Log::default();
    let seen = log.clone();
    scheduler.register_source(sources::after(SECOND), move |_| seen.add("once")).unwrap();
    assert!(!scheduler.run().unwrap().stopped);
    assert_eq!(log.lines(), ["once"]);
}

#[test]
fn a_descriptor_is_reported_each_time_it_becomes_readable() {
    let mut scheduler = crate::real_scheduler();
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let source = sources::readable(ours.try_clone().unwrap());
    let read = scheduler.block_on(move || {
        let readable = listen(source).unwrap();
        let mut all = String::new();
        for word in ["one ", "two ", "three"] {
            theirs.write_all(word.as_bytes()).unwrap();
            assert!(readable.next().unwrap().unwrap().readable);
            assert_eq!(
                ours.read_to_string(&mut all).unwrap_err().kind(),
                io::ErrorKind::WouldBlock
            );
        }
        all
    });
    assert_eq!(read.unwrap(), "one two three");
}

#[test]
fn handlers_of_heterogeneous_sources_take_turns_on_one_thread() {
    let (mut scheduler, log) = (crate::real_scheduler(), Log::default());
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"x").unwrap();
    let seen = |name: &'static str| {
        let log = log.clone();
        move || {
            log.add(name);
            if log.lines().len() == 4 {
                stop();
            }
        }
    };
    let (timer, socket, polled, blocking) =
        (seen("timer"), seen("socket"), seen("polled"), seen("blocking"));
    scheduler.register_source(sources::after(Duration::ZERO), move |_| timer()).unwrap();
    scheduler.register_source(sources::readable(ours), move |_| socket()).unwrap();
    let mut once = Some(());
    scheduler
        .register_source(sources::polled(move |_| Ok(once.take())), move |()| polled())
        .unwrap();
    let mut once = Some(());
    scheduler
        .register_source(sources::blocking(move || Ok(once.take())), move |()| blocking())
        .unwrap();
    assert!(scheduler.run().unwrap().stopped);
    let mut lines = log.lines();
    lines.sort();
    assert_eq!(lines, ["blocking", "polled", "socket", "timer"]);
}

#[test]
fn a_polled_source_may_not_suspend_but_may_spawn() {
    let (mut scheduler, log) = (scheduler(), Log::default());
    let seen = log.clone();
    let source = sources::polled(move |_| -> io::Result<Option<()>> {
        let seen = seen.clone();
        spawn(move || seen.add("spawned"))?;
        sleep(SECOND);
        Ok(None)
    });
    let handler = scheduler.register_source(source, |()| ()).unwrap();
    scheduler.run().unwrap();
    assert_eq!(log.lines(), ["spawned"]);
    match handler.join() {
        Err(Failure::Error(error)) => assert!(error.to_string().contains("outside"), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failure_ends_the_source_although_a_notifier_is_left() {
    let mut scheduler = scheduler();
    let notifier = Rc::new(RefCell::new(None));
    let told = scheduler.block_on(move || {
        let events = listen(kept(&notifier)).unwrap();
        let failing: Notifier<u32> = notifier.take().unwrap();
        let left = failing.clone();
        spawn(move || {
            failing.notify(1).unwrap();
            failing.fail(io::Error::other("line cut"));
        })
        .unwrap();
        assert_eq!(events.next_timeout(SECOND).unwrap(), Some(1));
        let error = events.next_timeout(SECOND).unwrap_err();
        assert!(events.next_timeout(SECOND).unwrap().is_none(), "it has ended");
        assert!(!left.has_room());
        assert!(matches!(left.notify(2), Err(NotifyError::Closed(2))));
        left.fail(io::Error::other("again"));
        assert!(events.next_timeout(SECOND).unwrap().is_none(), "told once");
        error.to_string()
    });
    assert_eq!(told.unwrap(), "line cut");
}

#[test]
fn a_failure_wakes_a_handler_that_waits_already_although_a_notifier_is_left() {
    let mut scheduler = scheduler();
    let notifier = Rc::new(RefCell::new(None));
    let told = scheduler.block_on(move || {
        let events = listen(kept(&notifier)).unwrap();
        let failing: Notifier<u32> = notifier.take().unwrap();
        let left = failing.clone();
        spawn(move || failing.fail(io::Error::other("line cut"))).unwrap();
        let before = now();
        let error = events.next_timeout(SECOND).unwrap_err();
        assert_eq!(now(), before, "woken, and not by the limit");
        drop(left);
        error.to_string()
    });
    assert_eq!(told.unwrap(), "line cut");
}
