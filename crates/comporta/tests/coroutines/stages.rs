//! Stages of coroutines: what is promised of stages holds for them.

use crate::{BOUND, LONG, Seen, check, handled, next, plans};
use comporta::scheduler::{Notifier, listen, sleep, sources as events, spawn, stop, yield_now};
use comporta::{
    App, Demand, Ended, Error, Out, Plan, Port, Pull, Result, Retry, Settled, Source, WhenFull,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Lets handlers wait, each until it is let go by its number.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<HashMap<u64, Notifier<()>>>>);

impl Gate {
    /// Waits; reports the number when it can be let go.
    fn wait(&self, number: u64, waits: &mpsc::Sender<u64>) {
        let wakes = listen(events::callback(|notifier| {
            self.0.lock().unwrap().insert(number, notifier);
            Ok(())
        }));
        waits.send(number).unwrap();
        wakes.unwrap().next().unwrap();
    }

    fn let_go(&self, number: u64) {
        self.0.lock().unwrap().remove(&number).unwrap().notify(()).unwrap();
    }
}

/// Gives these events, each awaited by itself, and reports how they ended.
struct Acked {
    events: Vec<u64>,
    told: mpsc::Sender<Settled>,
}

impl Source for Acked {
    type Item = u64;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u64>, _: Demand) -> Result<Pull> {
        match self.events.pop() {
            None => Ok(Pull::AfterAck),
            Some(event) => {
                out.send(event);
                Ok(Pull::More)
            }
        }
    }
    fn settled(&mut self, settled: Settled) {
        let _ = self.told.send(settled);
    }
}

fn acked(app: &App, events: Vec<u64>) -> (Port<u64>, mpsc::Receiver<Settled>) {
    let (told, hears) = mpsc::channel();
    let source = Acked { events, told };
    (app.source("acked", move || source), hears)
}

/// How an event ended: failed, shed, cancelled.
fn fate(settled: Settled) -> (u64, u64, u64) {
    (settled.failed, settled.shed, settled.cancelled)
}

fn instances(stage: &str, n: usize) -> Plan {
    Plan::new().threads(2).stage(stage, |s| s.instances(n))
}

#[test]
fn handlers_wait_at_the_same_time_on_one_thread() {
    // Each waits until all have begun: with fewer at once, none would end.
    const EVENTS: usize = 50;
    for plan in plans() {
        let (app, seen) = (App::new("meeting"), Seen::new());
        let numbers = app.source("numbers", || 0..EVENTS);
        let begun = Mutex::new(Vec::<Notifier<()>>::new());
        let meet = app.stage_coroutine("meet", move |n: usize, out: &mut Out<usize>| {
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
        let summary = app.run(&plan.stage("meet", |s| s.instances(EVENTS))).unwrap();
        check(&summary, Ended::Complete);
        assert_eq!(seen.sorted(), (0..EVENTS).collect::<Vec<_>>());
        assert_eq!(handled(&summary, "meet"), 50);
    }
}

#[test]
fn a_handler_that_fails_or_panics_costs_its_event_and_what_it_sent() {
    let (app, seen) = (App::new("picky"), Seen::new());
    let numbers = app.source("numbers", || 0..6_u8);
    let pick = app.stage_coroutine("pick", |n: u8, out: &mut Out<u8>| {
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
    let running = app.start(&Plan::new().threads(2).stage("pick", |s| s.instances(2))).unwrap();
    let control = running.control();
    check(&running.wait(), Ended::Complete);
    assert_eq!(seen.sorted(), [0, 1, 3, 5]);
    let failures = control.failures("pick").unwrap();
    let mut reasons: Vec<String> = failures.iter().map(|f| f.reason.to_string()).collect();
    reasons.sort();
    assert_eq!(reasons, ["no twos", "panic: no fours"]);
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
    let hostile = app.stage_coroutine("hostile", |n: u8, out: &mut Out<u8>| {
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
    let plan = Plan::new().threads(2).stage("hostile", |s| s.instances(10));
    let summary = app.run(&plan).unwrap();
    check(&summary, Ended::Complete);
    assert_eq!(seen.sorted(), (0..20).filter(|n| *n != 9).collect::<Vec<_>>());
    assert_eq!(summary.snapshot.stage("hostile").unwrap().counts.failed, 1);
}

#[test]
fn no_more_handlers_are_in_flight_than_there_may_be() {
    for in_flight in [1, 3] {
        let (app, most) = (App::new("few"), Arc::new(Mutex::new((0_usize, 0_usize))));
        let numbers = app.source("numbers", || 0..40_u8);
        let counted = most.clone();
        let few = app.stage_coroutine("few", move |n: u8, out: &mut Out<u8>| {
            let mut now = counted.lock().unwrap();
            *now = (now.0 + 1, now.1.max(now.0 + 1));
            drop(now);
            (0..3).for_each(|_| yield_now());
            counted.lock().unwrap().0 -= 1;
            out.send(n);
        });
        app.connect(numbers, few);
        app.connect(few, app.sink("sink", |_: u8| ()));
        let plan = Plan::new().threads(2).stage("few", |s| s.instances(in_flight));
        let summary = app.run(&plan).unwrap();
        check(&summary, Ended::Complete);
        assert_eq!(handled(&summary, "sink"), 40);
        assert!(most.lock().unwrap().1 <= in_flight, "{most:?}");
    }
}

#[test]
fn a_drain_lets_handlers_that_have_begun_end() {
    let (app, seen) = (App::new("patient"), Seen::new());
    let (sender, numbers) = app.input::<u8>("numbers");
    let (began, begun) = mpsc::channel();
    let (wake, woken) = mpsc::channel();
    let wait = app.stage_coroutine("wait", move |n: u8, out: &mut Out<u8>| {
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
    let running = app.start(&Plan::new().threads(1).stage("wait", |s| s.instances(10))).unwrap();
    for n in 0..3 {
        sender.send(n).unwrap();
        assert_eq!(next(&begun), n);
    }
    running.close();
    assert!(sender.send(9).is_err());
    (0..3).for_each(|_| next(&woken).notify(()).unwrap());
    check(&running.wait(), Ended::Drained);
    assert_eq!(seen.sorted(), [0, 1, 2]);
}

#[test]
fn a_stop_ends_handlers_that_wait() {
    let app = App::new("stuck");
    let numbers = app.source("numbers", || 0..100_u8);
    let (began, begun) = mpsc::channel();
    let wait = app.stage_coroutine("wait", move |n: u8, _: &mut Out<u8>| {
        began.send(n).unwrap();
        sleep(LONG);
    });
    app.connect(numbers, wait);
    app.connect(wait, app.sink("sink", |_: u8| ()));
    let running = app.start(&Plan::new().threads(1)).unwrap();
    assert_eq!(next(&begun), 0);
    let summary = running.stop();
    assert_eq!(summary.ended, Ended::Stopped);
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert!(begun.recv().is_err(), "the loop is gone, and its handler with it");
}

#[test]
fn a_stage_without_events_ends() {
    let app = App::new("empty");
    let numbers = app.source("numbers", || 0..0_u8);
    let never = app.stage_coroutine("never", |_: u8, _: &mut Out<u8>| ());
    app.connect(numbers, never);
    app.connect(never, app.sink("sink", |_: u8| ()));
    check(&app.run(&Plan::new().threads(1)).unwrap(), Ended::Complete);
}

#[test]
fn stages_of_coroutines_follow_each_other_and_plans_know_them_by_name() {
    for (threads, in_flight) in [(1, 1), (1, 8), (2, 2), (4, 8)] {
        let (app, seen) = (App::new("chain"), Seen::new());
        let numbers = app.source("numbers", || 0..200_u32);
        let first = app.stage_coroutine("first", |n: u32, out: &mut Out<u32>| {
            yield_now();
            out.send(n);
            out.send(n + 1000);
        });
        let second = app.stage_coroutine("second", |n: u32, out: &mut Out<u32>| out.send(n));
        app.connect(numbers, first);
        app.connect(first, second);
        app.connect(second, app.sink("sink", seen.see()));
        let plan = Plan::new()
            .threads(threads)
            .stage("first", |s| s.capacity(2).instances(in_flight))
            .stage("second", |s| s.capacity(1).when_full(WhenFull::Block).instances(in_flight))
            .cluster("second", |c| c.threads(1).stages("second".into()));
        check(&app.run(&plan).unwrap(), Ended::Complete);
        let expected: Vec<u32> = (0..200).chain(1000..1200).collect();
        assert_eq!(seen.sorted(), expected);
    }
}

#[test]
fn an_event_is_acknowledged_when_its_handler_and_what_it_sent_have_ended() {
    let app = App::new("held");
    let (numbers, told) = acked(&app, vec![2, 1, 0]);
    let (gate, began) = (Gate::default(), mpsc::channel());
    let (at, begins) = (gate.clone(), began.0);
    let wait = app.stage_coroutine("wait", move |n: u64, out: &mut Out<u64>| -> Result {
        at.wait(n, &begins);
        out.send(n);
        if n == 1 { Err(Error::msg("no ones")) } else { Ok(()) }
    });
    app.connect(numbers, wait);
    app.connect(wait, app.sink("sink", |_: u64| ()));
    let running = app.start(&instances("wait", 3)).unwrap();
    let mut begun: Vec<u64> = (0..3).map(|_| next(&began.1)).collect();
    begun.sort_unstable();
    assert_eq!(begun, [0, 1, 2]);
    assert!(told.try_recv().is_err(), "all of them wait");
    for (number, ends) in [(2, (0, 0, 0)), (1, (1, 0, 0)), (0, (0, 0, 0))] {
        gate.let_go(number);
        assert_eq!(fate(next(&told)), ends);
    }
    let control = running.control();
    let summary = running.drain_within(BOUND);
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert_eq!(control.failures("wait").unwrap()[0].reason.to_string(), "no ones");
    assert!(told.try_recv().is_err(), "once each");
}

#[test]
fn an_event_whose_handler_a_stop_cancels_is_settled_once_and_its_handler_unwinds() {
    struct Alive(Arc<AtomicUsize>);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }
    for let_go in 0..4_u64 {
        let app = App::new("cancelled");
        let (numbers, told) = acked(&app, vec![3, 2, 1, 0]);
        let (alive, (begins, begun)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel());
        let counted = alive.clone();
        let wait = app.stage_coroutine("wait", move |n: u64, _: &mut Out<u64>| {
            counted.fetch_add(1, SeqCst);
            let _alive = Alive(counted.clone());
            begins.send(()).unwrap();
            if n >= let_go {
                sleep(LONG);
            }
        });
        app.connect(numbers, wait);
        app.connect(wait, app.sink("sink", |_: u64| ()));
        let running = app.start(&instances("wait", 4)).unwrap();
        (0..4).for_each(|_| next(&begun));
        let summary = running.stop();
        assert_eq!(summary.ended, Ended::Stopped);
        assert!(summary.snapshot.adds_up(), "{summary}");
        assert!(summary.problems.is_empty(), "{summary}");
        assert_eq!(alive.load(SeqCst), 0, "all have unwound");
        let fates: Vec<_> = told.try_iter().map(fate).collect();
        assert_eq!(fates.len(), 4, "{fates:?}");
        let cancelled: u64 = fates.iter().map(|fate| fate.2).sum();
        // One that was let go may be cut off before it is counted.
        assert!((4 - let_go..=4).contains(&cancelled), "{fates:?}");
    }
}

#[test]
fn an_event_is_tried_again_as_the_plan_says_and_then_set_aside() {
    let (app, seen) = (App::new("again"), Seen::new());
    let numbers = app.source("numbers", || 0..10_u64);
    let tries = Mutex::new(HashMap::<u64, u32>::new());
    let again = app
        .stage_coroutine("again", move |n: u64, out: &mut Out<u64>| -> Result {
            let mut tries = tries.lock().unwrap();
            let tried = tries.entry(n).or_default();
            *tried += 1;
            let (tried, enough) = (*tried, if n == 7 { u32::MAX } else { 3 });
            drop(tries);
            yield_now();
            out.send(n);
            if tried < enough { Err(Error::msg("not yet")) } else { Ok(()) }
        })
        .retain();
    app.connect(numbers, again);
    app.connect(again, app.sink("sink", seen.see()));
    let plan = Plan::new()
        .threads(2)
        .stage("again", |s| s.instances(4).retry(Retry::new(3, Duration::ZERO)));
    let running = app.start(&plan).unwrap();
    let control = running.control();
    let summary = running.wait();
    check(&summary, Ended::Complete);
    assert_eq!(seen.sorted(), (0..10).filter(|n| *n != 7).collect::<Vec<_>>());
    assert_eq!(summary.snapshot.stage("again").unwrap().counts.retried, 20);
    let failures = control.failures("again").unwrap();
    assert_eq!((failures.len(), &*failures[0].reason.to_string()), (1, "not yet"));
}

#[test]
fn a_handler_that_waits_longer_than_the_plan_allows_unwinds_and_costs_its_event() {
    struct Unwound(mpsc::Sender<&'static str>);
    impl Drop for Unwound {
        fn drop(&mut self) {
            let _ = self.0.send("unwound");
        }
    }
    let app = App::new("slow");
    let (numbers, told) = acked(&app, vec![0]);
    let (tell, hears) = mpsc::channel();
    let wait = app.stage_coroutine("wait", move |_: u64, _: &mut Out<u64>| {
        let _held = Unwound(tell.clone());
        sleep(LONG);
    });
    app.connect(numbers, wait);
    app.connect(wait, app.sink("sink", |_: u64| ()));
    let plan = Plan::new().threads(1).stage("wait", |s| s.timeout(Duration::from_millis(1)));
    let running = app.start(&plan).unwrap();
    assert_eq!(fate(next(&told)), (1, 0, 0));
    assert_eq!(next(&hears), "unwound");
    let reason = running.control().failures("wait").unwrap()[0].reason.to_string();
    assert_eq!(reason, "timed-out after 1ms (timeout)");
    assert!(running.stop().snapshot.adds_up());
}

#[test]
fn an_ordered_stage_sends_in_the_order_of_arrival_whichever_handler_ends_first() {
    let (app, seen) = (App::new("ordered"), Seen::new());
    let numbers = app.source("numbers", || 0..100_u64);
    let wait = app.stage_coroutine("wait", |n: u64, out: &mut Out<u64>| {
        (0..(100 - n) % 7).for_each(|_| yield_now());
        out.send(n);
    });
    app.connect(numbers, wait.ordered());
    app.connect(wait, app.sink("sink", seen.see()));
    check(&app.run(&instances("wait", 16)).unwrap(), Ended::Complete);
    assert_eq!(seen.all(), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_coroutine_that_a_handler_leaves_behind_and_that_fails_is_a_problem_of_the_run() {
    let app = App::new("careless");
    let numbers = app.source("numbers", || 0..2_u64);
    let spawns = app.stage_coroutine("spawns", |n: u64, _: &mut Out<u64>| {
        if n == 0 {
            drop(spawn(|| std::panic::resume_unwind(Box::new("on purpose"))).unwrap());
        }
        yield_now();
        yield_now();
    });
    app.connect(numbers, spawns);
    app.connect(spawns, app.sink("sink", |_: u64| ()));
    let summary = app.run(&Plan::new()).unwrap();
    assert_eq!((summary.ended, handled(&summary, "spawns")), (Ended::Complete, 2));
    assert_eq!(summary.problems, ["`spawns (event loop)`: the coroutine panicked: on purpose"]);
}

#[test]
fn a_handler_that_does_not_return_is_left_behind_by_a_stop_which_says_so() {
    let app = App::new("stuck");
    let (numbers, told) = acked(&app, vec![1, 0]);
    let (begins, begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let blocks = app.stage_coroutine("blocks", move |_: u64, _: &mut Out<u64>| {
        begins.send(()).unwrap();
        let _ = released.recv();
    });
    app.connect(numbers, blocks);
    app.connect(blocks, app.sink("sink", |_: u64| ()));
    let running = app.start(&instances("blocks", 2)).unwrap();
    next(&begun);
    let summary = running.stop();
    assert!(summary.snapshot.adds_up(), "{summary}");
    let expected = "`blocks (event loop)`: a handler does not return: its thread is left behind";
    assert_eq!(summary.problems, [expected]);
    assert_eq!(told.try_iter().map(fate).collect::<Vec<_>>(), [(0, 0, 1), (0, 0, 1)]);
    drop(release);
}

#[test]
fn whatever_handlers_do_and_whenever_it_ends_every_event_is_settled_once() {
    const EVENTS: u64 = 60;
    for case in 0..24_u64 {
        let app = App::new("mixed");
        let (numbers, told) = acked(&app, (0..EVENTS).collect());
        let (begins, begun) = mpsc::channel();
        let mixed = app.stage_coroutine("mixed", move |n: u64, out: &mut Out<u64>| -> Result {
            let _ = begins.send(());
            (0..n % 5).for_each(|_| yield_now());
            out.send(n);
            match (n + case) % 11 {
                0 => return Err(Error::msg("no good")),
                1 => std::panic::resume_unwind(Box::new("on purpose")),
                2 => sleep(LONG), // until its time is up
                3 => sleep(Duration::from_millis(n % 3)),
                _ => {}
            }
            Ok(())
        });
        app.connect(numbers, mixed.retain());
        app.connect(mixed, app.sink("sink", |_: u64| ()));
        let plan = Plan::new().threads(1 + case as usize % 3).stage("mixed", |s| {
            let tries = Retry::new(1 + case as u32 % 2, Duration::ZERO);
            s.instances(1 + case as usize % 7 * 3).timeout(Duration::from_millis(2)).retry(tries)
        });
        let running = app.start(&plan).unwrap();
        (0..case * 2).for_each(|_| next(&begun));
        let (summary, all) = match case % 2 {
            0 => (running.stop(), false),
            _ => (running.drain_within(BOUND), true),
        };
        assert!(summary.snapshot.adds_up(), "{case}: {summary}");
        assert!(summary.problems.is_empty(), "{case}: {summary}");
        let mut groups: Vec<u64> = told.try_iter().map(|settled| settled.group).collect();
        let settled = groups.len();
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(groups.len(), settled, "{case}: once each");
        let counts = &summary.snapshot.stage("mixed").unwrap().counts;
        assert_eq!(settled as u64, counts.arrived, "{case}: {summary}");
        assert!(!all || counts.handled + counts.failed == counts.arrived, "{case}: {summary}");
    }
}
