//! Event schedulers as sources, and stages of coroutines (feature `scheduler`): what they promise, with threads.
//! Nothing here waits for time to pass: coroutines wait for what others send them.

#![expect(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

use comporta::scheduler::net::{TcpListener, TcpStream};
use comporta::scheduler::{Notifier, listen, sleep, sources as events, spawn, stop, yield_now};
use comporta::testing::TestRuntime;
use comporta::{App, Ended, Error, Out, Plan, Summary, WhenFull, sources};
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

/// What a sink has seen.
#[derive(Clone)]
struct Seen<T>(Arc<Mutex<Vec<T>>>);

impl<T: Send + Ord + Clone + 'static> Seen<T> {
    fn new() -> Seen<T> {
        Seen(Arc::default())
    }

    fn see(&self) -> impl FnMut(T) + Clone + Send + Sync + 'static {
        let seen = self.0.clone();
        move |event| seen.lock().unwrap().push(event)
    }

    fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }

    fn sorted(&self) -> Vec<T> {
        let mut all = self.all();
        all.sort();
        all
    }
}

/// Every event is accounted for, and nothing is left.
fn check(summary: &Summary, ended: Ended) {
    assert_eq!(summary.ended, ended, "{summary}");
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert!(summary.problems.is_empty(), "{summary}");
}

fn handled(summary: &Summary, stage: &str) -> u64 {
    summary.snapshot.stage(stage).unwrap().counts.handled
}

/// Threads, and room in queues.
fn plans() -> Vec<Plan> {
    let plan = |threads, capacity| Plan::new().threads(threads).every(|s| s.capacity(capacity));
    vec![plan(1, 1), plan(1, 1024), plan(2, 1), plan(4, 16), plan(8, 1024)]
}

#[test]
fn what_coroutines_of_a_source_send_is_handled_in_order_whatever_the_room() {
    for plan in plans() {
        let (app, seen) = (App::new("numbers"), Seen::new());
        let numbers = sources::scheduler(&app, "numbers", |out| {
            for n in 0..300_u32 {
                out.send(n).unwrap();
            }
        });
        app.connect(numbers, app.sink("sink", seen.see()));
        check(&app.run(&plan).unwrap(), Ended::Complete);
        assert_eq!(seen.all(), (0..300).collect::<Vec<_>>());
    }
}

#[test]
fn a_source_goes_on_until_its_last_coroutine_ends() {
    let (app, seen) = (App::new("echo"), Seen::new());
    let words = sources::scheduler(&app, "words", |out| -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        for n in 0..10_u8 {
            spawn(move || TcpStream::connect(address)?.write_all(&[n]))?;
        }
        for _ in 0..10 {
            let (mut stream, _) = listener.accept()?;
            let out = out.clone();
            spawn(move || {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                out.send(byte[0]).unwrap();
            })?;
        }
        Ok(())
    });
    app.connect(words, app.sink("sink", seen.see()));
    check(&app.run(&Plan::new()).unwrap(), Ended::Complete);
    assert_eq!(seen.sorted(), (0..10).collect::<Vec<_>>());
}

#[test]
fn an_error_and_a_panic_in_a_source_are_problems_of_the_run() {
    let app = App::new("faulty");
    let numbers = sources::scheduler(&app, "numbers", |out| -> io::Result<()> {
        out.send(1_u8).unwrap();
        drop(spawn(|| panic!("on purpose"))?);
        Err(io::Error::other("no good"))
    });
    app.connect(numbers, app.sink("sink", |_: u8| ()));
    let summary = app.run(&Plan::new()).unwrap();
    assert_eq!((summary.ended, handled(&summary, "sink")), (Ended::Complete, 1));
    let mut problems = summary.problems.clone();
    problems.sort();
    let expected = [
        "the event loop `numbers`: the coroutine panicked: on purpose",
        "the event loop `numbers`: the handler failed: no good",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn a_drain_ends_a_source_that_waits_and_keeps_what_it_was_sending() {
    let (app, seen) = (App::new("full"), Seen::new());
    let (entered, in_handler) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (sending, sends) = mpsc::channel();
    let numbers = sources::scheduler(&app, "numbers", move |out| {
        let idle = out.clone();
        drop(spawn(move || {
            sleep(LONG);
            idle.send(99)
        }));
        for n in 0..3_u8 {
            sending.send(n).unwrap();
            out.send(n).unwrap();
        }
        sleep(LONG);
    });
    let (released, mut see) = (Arc::new(Mutex::new(released)), seen.see());
    let sink = app.sink("sink", move |n: u8| {
        let _ = entered.send(());
        let _ = released.lock().unwrap().recv();
        see(n);
    });
    app.connect(numbers, sink);
    let plan = Plan::new().threads(1).every(|s| s.capacity(1).batch(1));
    let running = app.start(&plan).unwrap();
    in_handler.recv().unwrap();
    // The first is in the handler, the second in the queue; the third waits for room, or is about to.
    while sends.recv().unwrap() < 2 {}
    running.close();
    drop(release);
    let summary = running.wait();
    check(&summary, Ended::Drained);
    let all = seen.all();
    assert!(all == [0, 1] || all == [0, 1, 2], "{all:?}");
}

#[test]
fn a_drain_ends_a_source_whose_coroutines_send_without_end() {
    let app = App::new("endless");
    let (tell, told) = mpsc::channel();
    let numbers = sources::scheduler(&app, "numbers", |out| {
        for _ in 0..3 {
            let out = out.clone();
            drop(spawn(move || while out.send(1_u8).is_ok() {}));
        }
    });
    let sink = app.sink("sink", move |_: u8| {
        let _ = tell.send(());
    });
    app.connect(numbers, sink);
    let running = app.start(&Plan::new().threads(1).every(|s| s.capacity(1).batch(1))).unwrap();
    told.iter().take(10).for_each(drop);
    check(&running.drain_within(Duration::from_secs(20)), Ended::Drained);
}

#[test]
fn a_stop_unwinds_the_coroutines_of_a_source() {
    struct Dropped(mpsc::Sender<&'static str>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.send("dropped").unwrap();
        }
    }
    let app = App::new("sleepy");
    let (tell, told) = mpsc::channel();
    let never = sources::scheduler(&app, "never", move |_: sources::Emitter<u8>| {
        tell.send("began").unwrap();
        let _held = Dropped(tell);
        sleep(LONG);
    });
    app.connect(never, app.sink("sink", |_: u8| ()));
    let running = app.start(&Plan::new()).unwrap();
    assert_eq!(told.recv(), Ok("began"));
    assert_eq!(running.stop().ended, Ended::Stopped);
    assert_eq!(told.recv(), Ok("dropped"));
}

#[test]
fn handlers_wait_at_the_same_time_on_one_thread() {
    // Each waits until all have begun: with fewer at once, none would end.
    const EVENTS: usize = 50;
    for plan in plans() {
        let (app, seen) = (App::new("meeting"), Seen::new());
        let numbers = app.source("numbers", || 0..EVENTS);
        let begun = Mutex::new(Vec::<Notifier<()>>::new());
        let meet = app.stage_coroutine("meet", EVENTS, move |n: usize, out: &mut Out<usize>| {
            let wakes = listen(events::callback(|notifier| {
                begun.lock().unwrap().push(notifier);
                Ok(())
            }))
            .unwrap();
            if begun.lock().unwrap().len() == EVENTS {
                begun.lock().unwrap().drain(..).for_each(|notifier| notifier.notify(()).unwrap());
            }
            wakes.next().unwrap();
            out.send(n);
        });
        app.connect(numbers, meet);
        app.connect(meet, app.sink("sink", seen.see()));
        let summary = app.run(&plan).unwrap();
        check(&summary, Ended::Complete);
        assert_eq!(seen.sorted(), (0..EVENTS).collect::<Vec<_>>());
        assert_eq!((handled(&summary, "meet"), handled(&summary, "meet-out")), (50, 50));
    }
}

#[test]
fn a_handler_that_fails_or_panics_costs_its_event_and_what_it_sent() {
    let (app, seen) = (App::new("picky"), Seen::new());
    let numbers = app.source("numbers", || 0..6_u8);
    let pick = app.stage_coroutine("pick", 2, |n: u8, out: &mut Out<u8>| {
        out.send(n);
        yield_now();
        match n {
            2 => Err(Error::msg("no twos")),
            4 => panic!("no fours"),
            _ => Ok(()),
        }
    });
    app.connect(numbers, pick);
    app.connect(pick, app.sink("sink", seen.see()));
    let running = app.start(&Plan::new().threads(2)).unwrap();
    let control = running.control();
    check(&running.wait(), Ended::Complete);
    assert_eq!(seen.sorted(), [0, 1, 3, 5]);
    let failures = control.failures("pick-out").unwrap();
    let mut reasons: Vec<String> = failures.iter().map(|f| f.reason.to_string()).collect();
    reasons.sort();
    assert_eq!(reasons, ["no twos", "the handler panicked: no fours"]);
}

#[test]
fn a_handler_that_stops_the_scheduler_or_panics_with_a_payload_that_panics_costs_no_other_event() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "dropped");
        }
    }
    let (app, seen) = (App::new("hostile"), Seen::new());
    let numbers = app.source("numbers", || 0..20_u8);
    let hostile = app.stage_coroutine("hostile", 10, |n: u8, out: &mut Out<u8>| {
        yield_now();
        match n {
            5 => stop(),
            9 => std::panic::panic_any(Bomb),
            _ => {}
        }
        yield_now();
        out.send(n);
    });
    app.connect(numbers, hostile);
    app.connect(hostile, app.sink("sink", seen.see()));
    let summary = app.run(&Plan::new().threads(2)).unwrap();
    check(&summary, Ended::Complete);
    assert_eq!(seen.sorted(), (0..20).filter(|n| *n != 9).collect::<Vec<_>>());
    assert_eq!(summary.snapshot.stage("hostile-out").unwrap().counts.failed, 1);
}

#[test]
fn no_more_handlers_are_in_flight_than_there_may_be() {
    for in_flight in [0, 1, 3] {
        let (app, most) = (App::new("few"), Arc::new(Mutex::new((0_usize, 0_usize))));
        let numbers = app.source("numbers", || 0..40_u8);
        let counted = most.clone();
        let few = app.stage_coroutine("few", in_flight, move |n: u8, out: &mut Out<u8>| {
            let mut now = counted.lock().unwrap();
            *now = (now.0 + 1, now.1.max(now.0 + 1));
            drop(now);
            (0..3).for_each(|_| yield_now());
            counted.lock().unwrap().0 -= 1;
            out.send(n);
        });
        app.connect(numbers, few);
        app.connect(few, app.sink("sink", |_: u8| ()));
        let plan = Plan::new().threads(2);
        let summary = app.run(&plan).unwrap();
        check(&summary, Ended::Complete);
        assert_eq!(handled(&summary, "sink"), 40);
        assert!(most.lock().unwrap().1 <= in_flight.max(1), "{most:?}");
    }
}

#[test]
fn a_drain_lets_handlers_that_have_begun_end() {
    let (app, seen) = (App::new("patient"), Seen::new());
    let (sender, numbers) = app.input::<u8>("numbers");
    let (began, begun) = mpsc::channel();
    let (wake, woken) = mpsc::channel();
    let wait = app.stage_coroutine("wait", 10, move |n: u8, out: &mut Out<u8>| {
        let wakes = listen(events::callback(|notifier: Notifier<()>| {
            wake.send(notifier).unwrap();
            Ok(())
        }))
        .unwrap();
        began.send(n).unwrap();
        wakes.next().unwrap();
        out.send(n);
    });
    app.connect(numbers, wait);
    app.connect(wait, app.sink("sink", seen.see()));
    let running = app.start(&Plan::new().threads(1)).unwrap();
    for n in 0..3 {
        sender.send(n).unwrap();
        assert_eq!(begun.recv(), Ok(n));
    }
    running.close();
    assert!(sender.send(9).is_err());
    woken.iter().take(3).for_each(|notifier| notifier.notify(()).unwrap());
    check(&running.wait(), Ended::Drained);
    assert_eq!(seen.sorted(), [0, 1, 2]);
}

#[test]
fn a_stop_ends_handlers_that_wait() {
    let app = App::new("stuck");
    let numbers = app.source("numbers", || 0..100_u8);
    let (began, begun) = mpsc::channel();
    let wait = app.stage_coroutine("wait", 1, move |n: u8, _: &mut Out<u8>| {
        began.send(n).unwrap();
        sleep(LONG);
    });
    app.connect(numbers, wait);
    app.connect(wait, app.sink("sink", |_: u8| ()));
    let running = app.start(&Plan::new().threads(1)).unwrap();
    assert_eq!(begun.recv(), Ok(0));
    let summary = running.stop();
    assert_eq!(summary.ended, Ended::Stopped);
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert!(begun.recv().is_err(), "the loop is gone, and its handler with it");
}

#[test]
fn a_stage_without_events_ends() {
    let app = App::new("empty");
    let numbers = app.source("numbers", || 0..0_u8);
    let never = app.stage_coroutine("never", 1, |_: u8, _: &mut Out<u8>| ());
    app.connect(numbers, never);
    app.connect(never, app.sink("sink", |_: u8| ()));
    check(&app.run(&Plan::new().threads(1)).unwrap(), Ended::Complete);
}

#[test]
fn stages_of_coroutines_follow_each_other_and_plans_know_them_by_name() {
    for (threads, in_flight) in [(1, 1), (1, 8), (2, 2), (4, 8)] {
        let (app, seen) = (App::new("chain"), Seen::new());
        let numbers = app.source("numbers", || 0..200_u32);
        let first = app.stage_coroutine("first", in_flight, |n: u32, out: &mut Out<u32>| {
            yield_now();
            out.send(n);
            out.send(n + 1000);
        });
        let second =
            app.stage_coroutine("second", in_flight, |n: u32, out: &mut Out<u32>| out.send(n));
        app.connect(numbers, first);
        app.connect(first, second);
        app.connect(second, app.sink("sink", seen.see()));
        let plan = Plan::new()
            .threads(threads)
            .stage("first", |s| s.capacity(2).instances(3))
            .stage("first-out", |s| s.capacity(1).when_full(WhenFull::Block))
            .cluster("second", |c| c.threads(1).stages("second".into()));
        check(&app.run(&plan).unwrap(), Ended::Complete);
        let expected: Vec<u32> = (0..200).chain(1000..1200).collect();
        assert_eq!(seen.sorted(), expected);
    }
}

#[test]
fn a_loop_cannot_be_stepped_and_says_so() {
    let app = App::new("stepped");
    let none = sources::scheduler(&app, "idle", |_: sources::Emitter<u8>| ());
    app.connect(none, app.sink("sink", |_: u8| ()));
    let refused = TestRuntime::new(app, &Plan::new()).unwrap_err();
    assert!(refused.to_string().contains("cannot be stepped"), "{refused}");
}
