//! Failures, the end of a program, and threads that are left.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use comporta::testing::{ServiceTime, TestRuntime};
use comporta::{App, Cx, Ev, Plan, Result, Stage};

use crate::{Bench, ms};

/// How many threads of this process have a name that begins so.
fn threads_called(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let comm = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
    };
    tasks.map(comm).filter(|comm| comm.starts_with(name)).count()
}

#[test]
fn a_program_that_is_dropped_while_handlers_take_their_time_leaves_no_thread() {
    let app = App::new("drop64");
    let (sender, input) = app.input::<u64>("in");
    let handled = Arc::new(AtomicUsize::new(0));
    let into = handled.clone();
    let work = app.sink("work", move |_: u64| {
        into.fetch_add(1, SeqCst);
    });
    app.connect(input, work);
    let plan = Plan::new().threads(64).stage("work", |work| work.instances(64));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.service_time("work", ServiceTime::waiting(ms(1_000_000)));
    (0..1_000).for_each(|n| sender.try_send(n).unwrap());
    runtime.advance(ms(1));
    assert_eq!(runtime.snapshot().stage("work").unwrap().in_flight, 64);
    assert_eq!(threads_called("drop64-virtual"), 66, "one acts, and one stands by");
    drop(runtime);
    assert_eq!(threads_called("drop64-virtual"), 0);
    assert_eq!(handled.load(SeqCst), 64, "a handler that runs returns");
}

#[test]
fn a_program_without_service_times_has_no_threads() {
    let app = App::new("none64");
    let (sender, input) = app.input::<u64>("in");
    app.connect(input, app.sink("work", |_: u64| ()));
    let mut runtime = TestRuntime::new(app, &Plan::new().threads(64)).unwrap();
    sender.try_send(1).unwrap();
    sender.close();
    assert!(runtime.run());
    assert_eq!(threads_called("none64"), 0);
}

#[test]
fn an_event_that_fails_has_taken_its_time_and_so_has_each_try() {
    #[derive(Clone)]
    struct Failing;
    impl Stage for Failing {
        type In = u64;
        type Ports = ();
        fn handle(&mut self, n: Ev<'_, u64>, (): &mut (), cx: &Cx) -> Result {
            match *n {
                0 => panic!("at {}", cx.now().as_millis()),
                _ => Err(comporta::Error::msg(format!("at {}", cx.now().as_millis()))),
            }
        }
    }
    let app = App::new("failing");
    let (sender, input) = app.input::<u64>("in");
    app.connect(input, app.stage("work", Failing));
    let plan = Plan::new().threads(1).stage("work", |work| work.tries(2));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.service_time("work", ServiceTime::busy(ms(50)));
    [0, 1].into_iter().for_each(|n| sender.try_send(n).unwrap());
    sender.close();
    assert!(runtime.run());
    let failures = runtime.control().failures("work").unwrap();
    let said: Vec<_> = failures.iter().map(|failure| failure.reason.to_string()).collect();
    assert!(said[0].ends_with("at 100") && said[1].ends_with("at 200"), "{said:?}");
}

#[test]
fn a_time_that_panics_costs_its_event() {
    let mut drawn = 0;
    let time = ServiceTime::busy_with(move |_| {
        drawn += 1;
        assert!(drawn != 2, "no time");
        ms(50)
    });
    let mut bench = Bench::new(1, false, time);
    bench.send((0..3).map(|n| (0, n)));
    bench.sender.close();
    assert!(bench.runtime.run());
    assert_eq!(bench.times_ms(), [50, 100]);
    assert_eq!(bench.runtime.snapshot().stage("work").unwrap().counts.failed, 1);
}

#[test]
fn a_program_may_quit_while_handlers_take_their_time() {
    #[derive(Clone)]
    struct Quitting;
    impl Stage for Quitting {
        type In = u64;
        type Ports = ();
        fn handle(&mut self, n: Ev<'_, u64>, (): &mut (), cx: &Cx) -> Result {
            if *n == 1 {
                cx.quit(42_u64);
            }
            Ok(())
        }
    }
    let app = App::new("quit");
    let (sender, input) = app.input::<u64>("in");
    app.connect(input, app.stage("work", Quitting));
    let plan = Plan::new().threads(4).stage("work", |work| work.instances(4));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    let mut drawn = 0;
    let time = ServiceTime::waiting_with(move |_| {
        drawn += 10;
        ms(drawn)
    });
    runtime.service_time("work", time);
    (0..100).for_each(|n| sender.try_send(n).unwrap());
    assert!(runtime.run());
    assert_eq!(runtime.quit_with::<u64>(), Some(42));
    assert!(runtime.now().as_millis() <= 40);
}

#[test]
fn a_request_takes_the_time_of_its_handlers() {
    let app = App::new("doubles");
    let doubles = app.gateway::<u64, u64>("doubles");
    let double = app.map("double", |n: u64| 2 * n);
    app.connect(doubles.requests, double);
    app.connect(double, doubles.replies);
    let client = doubles.client;
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    runtime.service_time("double", ServiceTime::waiting(ms(5_000)));
    assert_eq!(runtime.complete(client.request(21)), Some(Ok(42)));
    assert_eq!(runtime.now().as_millis(), 5_000);
}

#[test]
#[should_panic(expected = "the program has no stage `wrok`")]
fn a_stage_that_is_not_there_takes_no_time() {
    Bench::new(1, false, ServiceTime::busy(ms(1)))
        .runtime
        .service_time("wrok", ServiceTime::busy(ms(1)));
}

#[test]
#[should_panic(expected = "`in` handles no events")]
fn an_input_takes_no_time() {
    Bench::new(1, false, ServiceTime::busy(ms(1)))
        .runtime
        .service_time("in", ServiceTime::busy(ms(1)));
}
