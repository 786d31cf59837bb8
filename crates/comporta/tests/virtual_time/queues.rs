//! Queues computed by hand.

use std::collections::HashMap;
use std::time::Duration;

use comporta::testing::{Dice, ServiceTime, TestRuntime, record};
use comporta::{App, Cx, Ev, Out, Plan, Result, Stage};

use crate::{Bench, ms, us};

#[test]
fn one_server_with_a_fixed_time_is_as_computed_by_hand() {
    // M/D/1 at a load of 0.8: an event begins when it has come and the one before it has ended.
    let mut bench = Bench::new(1, false, ServiceTime::waiting(ms(50)));
    let mut dice = Dice::new(3);
    let (mut came, mut ends, mut by_hand) = (Duration::ZERO, Duration::ZERO, Vec::new());
    for n in 0..2_000 {
        let gap = Duration::from_micros(dice.exponential(us(62_500)).as_micros() as u64);
        came += gap;
        ends = ends.max(came) + ms(50);
        by_hand.push((ends.as_micros() as u64, (0, n)));
        bench.runtime.advance(gap);
        bench.send([(0, n)]);
    }
    bench.runtime.close();
    assert!(bench.runtime.run());
    assert_eq!(*bench.log.lock().unwrap(), by_hand);
    let waits = by_hand.iter().filter(|(end, _)| end % 50_000 != 0).count();
    assert!(waits > 1_000, "the case shows nothing");
}

#[test]
fn n_threads_handle_n_events_at_a_time() {
    for n in [1, 2, 3, 7, 64] {
        let mut bench = Bench::new(n, false, ServiceTime::waiting(ms(50)));
        bench.send((0..100).map(|i| (0, i)));
        bench.runtime.close();
        assert!(bench.runtime.run());
        let mut expected = (0..100).map(|i| 50 * (1 + i / n as u64)).collect::<Vec<_>>();
        expected.sort_unstable();
        assert_eq!(bench.times_ms(), expected, "{n} threads");
        assert_eq!(bench.runtime.now().as_millis(), 50 * 100_u64.div_ceil(n as u64));
    }
}

#[test]
fn three_hot_keys_occupy_three_threads_and_keep_their_order() {
    let mut bench = Bench::new(8, true, ServiceTime::waiting(ms(50)));
    bench.send((0..300).map(|i| (i % 3, i)));
    for second in 1..=5 {
        bench.runtime.advance(ms(1_000));
        assert_eq!(bench.handled(), 60 * second, "3 keys, 20 events of each in a second");
        let work = bench.runtime.snapshot().stage("work").unwrap().clone();
        assert_eq!(work.in_flight, usize::from(second < 5) * 3);
        assert!(work.adds_up());
    }
    let mut last = HashMap::new();
    for (at, (key, n)) in bench.log.lock().unwrap().iter() {
        let before: Option<(u64, u64)> = last.insert(*key, (*at, *n));
        assert!(before.is_none_or(|(ended, before)| before < *n && ended + 50_000 == *at));
    }
}

#[test]
fn keys_share_the_threads_that_are_there() {
    let mut bench = Bench::new(4, true, ServiceTime::busy(ms(50)));
    bench.send((0..400).map(|i| (i % 40, i)));
    bench.runtime.close();
    assert!(bench.runtime.run());
    assert_eq!(bench.runtime.now().as_millis(), 400 / 4 * 50);
    let mut orders = HashMap::<u64, Vec<u64>>::new();
    for (_, (key, n)) in bench.log.lock().unwrap().iter() {
        orders.entry(*key).or_default().push(*n);
    }
    assert!(orders.values().all(|order| order.is_sorted()), "{orders:?}");
}

#[test]
fn a_visit_takes_the_sum_of_its_events_and_ends_with_its_quantum() {
    // Looks at the clock come after 1, 2 and 4 events: at 30, 60 and 120 µs, and a visit has 100 µs.
    let app = App::new("sum");
    let (sender, input) = app.input::<u64>("in");
    let work = app.map("work", |n: u64| n);
    let end = app.sink("end", |_: u64| ());
    app.connect(input, work);
    app.connect(work, end);
    let out = record(&app, work);
    let mut runtime = TestRuntime::new(app, &Plan::new().threads(1)).unwrap();
    runtime.service_time("work", ServiceTime::busy(us(30)));
    (0..10).for_each(|n| sender.try_send(n).unwrap());
    let mut left = Vec::new();
    for at in 0..40 {
        let n = out.take().len();
        left.extend((n > 0).then_some((at * 10, n)));
        runtime.advance(us(10));
    }
    assert_eq!(left[0], (120, 4));
    let handled = left.iter().scan(0, |sum, (at, n)| {
        *sum += *n as u64;
        Some((*at, 30 * *sum))
    });
    assert!(handled.clone().all(|(at, spent)| at == spent), "{left:?}");
    assert_eq!(handled.last(), Some((300, 300)));
}

#[test]
fn events_of_one_visit_are_handled_one_after_the_other() {
    let mut bench = Bench::new(1, false, ServiceTime::busy(us(10)));
    bench.send((0..9).map(|n| (0, n)));
    bench.sender.close();
    assert!(bench.runtime.run());
    let by_hand: Vec<_> = (0..9).map(|n| (10 * (n + 1), (0, n))).collect();
    assert_eq!(*bench.log.lock().unwrap(), by_hand);
}

#[test]
fn a_group_takes_the_sum_of_its_events() {
    let app = App::new("group");
    let (sender, input) = app.input::<u64>("in");
    let groups = app.stage("groups", Groups.batched(4, ms(100)));
    app.connect(input, groups);
    let out = record(&app, groups);
    app.connect(groups, app.sink("end", |_: usize| ()));
    let mut runtime = TestRuntime::new(app, &Plan::new().threads(1)).unwrap();
    runtime.service_time("groups", ServiceTime::busy(ms(10)));
    (0..6).for_each(|n| sender.try_send(n).unwrap());
    runtime.advance(ms(39));
    assert_eq!(out.take(), [0_usize; 0]);
    runtime.advance(ms(1));
    assert_eq!(out.take(), [4]);
    runtime.advance(ms(79)); // the rest is complete after 100 ms
    assert_eq!(out.take(), [0_usize; 0]);
    runtime.advance(ms(1));
    assert_eq!(out.take(), [2]);
}

#[derive(Clone)]
struct Groups;
impl Stage for Groups {
    type In = Vec<u64>;
    type Ports = Out<usize>;
    fn handle(&mut self, group: Ev<'_, Vec<u64>>, out: &mut Out<usize>, _: &Cx) -> Result {
        out.send(group.len());
        Ok(())
    }
}

#[test]
fn what_a_handler_does_comes_at_its_end() {
    let app = App::new("late");
    let (sender, input) = app.input::<u64>("in");
    let work = app.map("work", |n: u64| 2 * n);
    app.connect(input, work);
    let out = record(&app, work);
    app.connect(work, app.sink("end", |_: u64| ()));
    let mut runtime = TestRuntime::new(app, &Plan::new().threads(1)).unwrap();
    runtime.service_time("work", ServiceTime::waiting(ms(50)));
    sender.try_send(21).unwrap();
    assert!(runtime.step(), "the visit begins");
    assert!(!runtime.step(), "and lasts");
    runtime.advance(ms(49));
    let snapshot = runtime.snapshot();
    let work = snapshot.stage("work").unwrap();
    assert_eq!((work.in_flight, work.counts.handled, out.take().len()), (1, 0, 0));
    runtime.advance(ms(1));
    let snapshot = runtime.snapshot();
    let work = snapshot.stage("work").unwrap();
    assert_eq!((work.in_flight, work.counts.handled, work.busy), (0, 1, ms(50)));
    assert_eq!(out.take(), [42]);
}

#[test]
fn a_seed_gives_the_same_run() {
    let run = |seed| {
        let time = ServiceTime::waiting_with(|dice| dice.exponential(ms(50)));
        let mut bench = Bench::new(5, true, time);
        bench.runtime = bench.runtime.seeded(seed);
        for n in 0..500 {
            bench.send([(n % 17, n)]);
            bench.runtime.advance(ms(9));
        }
        bench.runtime.close();
        assert!(bench.runtime.run());
        let log = bench.log.lock().unwrap();
        log.clone()
    };
    let once = run(11);
    assert_eq!(once, run(11));
    assert_ne!(once, run(12));
    let spent: u64 = once.iter().map(|(at, _)| *at).max().unwrap();
    assert!(spent > 4_500_000);
}
