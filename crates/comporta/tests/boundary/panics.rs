//! A panic in any code of the program costs one event, never a worker, an instance, a count or the
//! end of the program; and nothing of the runtime is locked while such code runs, so that it may
//! call back.
//! Long because user code is called in many places, and each is a small program of its own.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;

use comporta::{
    App, Cx, Demand, Ended, Ev, Out, Plan, Pull, Result, Sender, Source, Stage, Summary, WhenFull,
};
use serde::{Deserialize, Serialize};

use crate::bounded::{
    BOUND, Gate, ends, handled, stage, under, under_every_policy, under_policies, until, watched,
    within,
};

const EVENTS: u64 = 100;
/// The event that panics.
const BAD: u64 = 37;

/// The program came to its end, and everything is accounted for.
fn ended_well(summary: &Summary, label: &str) {
    assert_eq!(summary.ended, Ended::Complete, "{label}\n{summary}");
    assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
    assert_eq!(summary.stuck, Vec::<String>::new(), "{label}");
}

/// Somebody says that something went wrong: an event that failed or was shed, or a problem.
fn is_told(summary: &Summary) -> bool {
    let lost = |counts: &comporta::Counts| {
        counts.failed + counts.cancelled + counts.shed_on_entry() + counts.shed_later()
    };
    let lost: u64 = summary.snapshot.stages.iter().map(|stage| lost(&stage.counts)).sum();
    lost > 0 || !summary.problems.is_empty()
}

fn handled_in(summary: &Summary, stages: &[&str]) -> u64 {
    stages.iter().map(|name| stage(&summary.snapshot, name).counts.handled).sum()
}

/// Panics for the bad event.
fn key(n: &u64) -> u64 {
    assert!(*n != BAD, "no key for {n}");
    *n
}

#[test]
fn a_key_function_that_panics_costs_one_event_of_the_stage_that_sent_it() {
    under_every_policy(|plan, label| {
        let app = App::new("keys");
        let numbers = app.source("numbers", || 0..EVENTS);
        let pass = app.map("pass", |n: u64| n);
        let ends_here = [app.sink("one", |_: u64| ()), app.sink("two", |_: u64| ())];
        app.connect(numbers, pass);
        app.by_key(pass, key, ends_here);
        let summary = ends(label, app.start(&plan).unwrap());
        ended_well(&summary, label);
        assert_eq!(handled_in(&summary, &["one", "two"]), EVENTS - 1, "{label}\n{summary}");
        assert!(is_told(&summary), "{label}: nobody knows of it\n{summary}");
    });
}

#[test]
fn a_key_function_that_panics_costs_one_event_of_a_source() {
    under_every_policy(|plan, label| {
        let app = App::new("keys");
        let numbers = app.source("numbers", || 0..EVENTS);
        app.by_key(numbers, key, [app.sink("one", |_: u64| ()), app.sink("two", |_: u64| ())]);
        let summary = ends(label, app.start(&plan).unwrap());
        ended_well(&summary, label);
        assert_eq!(handled_in(&summary, &["one", "two"]), EVENTS - 1, "{label}\n{summary}");
        assert!(is_told(&summary), "{label}: nobody knows of it\n{summary}");
    });
}

#[test]
fn a_key_function_that_panics_in_a_push_leaves_the_input_able_to_end() {
    watched("push", || {
        for way in [Sender::send, Sender::try_send] {
            let app = App::new("keys");
            let (sender, numbers) = app.input::<u64>("numbers");
            app.by_key(numbers, key, [app.sink("one", |_: u64| ()), app.sink("two", |_: u64| ())]);
            let running = app.start(&Plan::new().threads(2)).unwrap();
            for n in 0..EVENTS {
                // Whether it comes back as a panic or as an error is not said here.
                let pushed = catch_unwind(AssertUnwindSafe(|| way(&sender, n)));
                assert!(n == BAD || matches!(pushed, Ok(Ok(()))), "{n}");
            }
            drop(sender);
            let summary = ends("after a push that panicked", running);
            ended_well(&summary, "push");
            assert_eq!(handled_in(&summary, &["one", "two"]), EVENTS - 1, "{summary}");
        }
    });
}

/// Cannot be copied if it is the bad one.
#[derive(Debug, Serialize, Deserialize)]
struct Fragile(u64);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert!(self.0 != BAD, "{} breaks", self.0);
        Fragile(self.0)
    }
}

#[test]
fn a_clone_that_panics_costs_that_copy_and_is_counted() {
    under_every_policy(|plan, label| {
        let app = App::new("copies");
        let numbers = app.source("numbers", || 0..EVENTS);
        let wrap = app.map("wrap", Fragile);
        app.connect(numbers, wrap);
        for name in ["one", "two"] {
            app.connect(wrap, app.sink(name, |_: Fragile| ()));
        }
        let summary = ends(label, app.start(&plan).unwrap());
        ended_well(&summary, label);
        assert_eq!(handled_in(&summary, &["one"]), EVENTS - 1, "{label}\n{summary}");
        assert_eq!(handled_in(&summary, &["two"]), EVENTS, "it gets the event itself\n{summary}");
        assert_eq!(stage(&summary.snapshot, "wrap").counts.lost, 1, "{label}\n{summary}");
        assert!(is_told(&summary), "{label}: nobody knows of it\n{summary}");
    });
}

#[test]
fn a_clone_that_panics_in_a_push_leaves_the_input_able_to_end() {
    watched("push", || {
        let app = App::new("copies");
        let (sender, numbers) = app.input::<Fragile>("numbers");
        for name in ["one", "two"] {
            app.connect(numbers, app.sink(name, |_: Fragile| ()));
        }
        let running = app.start(&Plan::new().threads(2)).unwrap();
        for n in 0..EVENTS {
            let pushed = catch_unwind(AssertUnwindSafe(|| sender.send(Fragile(n))));
            assert!(n == BAD || matches!(pushed, Ok(Ok(()))), "{n}");
        }
        drop(sender);
        let summary = ends("after a push that panicked", running);
        ended_well(&summary, "push");
    });
}

/// An error that cannot be shown.
#[derive(Debug)]
struct Unspeakable;

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no words for it")
    }
}

impl std::error::Error for Unspeakable {}

#[test]
fn an_error_whose_display_panics_costs_one_event() {
    under_every_policy(|plan, label| {
        let app = App::new("unspeakable");
        let numbers = app.source("numbers", || 0..EVENTS);
        let work = app.sink("work", |n: u64| if n == BAD { Err(Unspeakable) } else { Ok(()) });
        app.connect(numbers, work);
        let summary = ends(label, app.start(&plan).unwrap());
        ended_well(&summary, label);
        let counts = stage(&summary.snapshot, "work").counts;
        assert_eq!((counts.handled, counts.failed), (EVENTS - 1, 1), "{label}\n{summary}");
    });
}

#[derive(Clone)]
struct CannotFinish;
impl Stage for CannotFinish {
    type In = u64;
    type Ports = ();
    fn handle(&mut self, _: Ev<'_, u64>, _: &mut (), _: &Cx) -> Result {
        Ok(())
    }
    fn finish(&mut self, _: &mut (), _: &Cx) -> Result {
        Err(Unspeakable.into())
    }
}

struct Fails;
impl Source for Fails {
    type Item = u64;
    fn pull(&mut self, _: &mut Out<u64>, _: Demand) -> Result<Pull> {
        Err(Unspeakable.into())
    }
}

#[test]
fn an_error_whose_display_panics_may_come_from_a_source_and_from_finish() {
    under_every_policy(|plan, label| {
        let app = App::new("unspeakable");
        let work = app.stage("work", CannotFinish);
        app.connect(app.source("fails", || Fails), work);
        app.connect(app.source("numbers", || 0..EVENTS), work);
        let summary = ends(label, app.start(&plan).unwrap());
        assert_eq!(summary.ended, Ended::SourceFailed, "{label}\n{summary}");
        assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
        assert_eq!(stage(&summary.snapshot, "work").counts.handled, EVENTS, "{label}\n{summary}");
        assert_eq!(summary.problems.len(), 2, "{label}: {:?}", summary.problems);
    });
}

#[test]
fn an_error_whose_display_panics_keeps_a_program_from_starting_and_says_so() {
    watched("start", || {
        let app = App::new("unspeakable");
        let numbers = app.source("numbers", || 0..EVENTS);
        let work =
            app.stage_with("work", |_| Err::<CannotFinish, _>(comporta::Error::from(Unspeakable)));
        app.connect(numbers, work);
        let started = catch_unwind(AssertUnwindSafe(|| app.start(&Plan::new()).map(drop)));
        assert!(matches!(started, Ok(Err(_))), "it panicked, or started: {started:?}");
    });
}

/// Panics when it is dropped, unless somebody took the sting out.
struct Bomb(bool);

impl Bomb {
    fn defuse(mut self) {
        self.0 = false;
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0 || std::thread::panicking(), "dropped a bomb");
    }
}

#[test]
fn a_shed_event_whose_drop_panics_costs_itself_alone() {
    for rule in [WhenFull::DropOldest, WhenFull::DropNewest, WhenFull::Reject] {
        watched(&format!("{rule:?}"), move || {
            let gate = Gate::default();
            let way = gate.way();
            let app = App::new("shed");
            let numbers = app.source("numbers", || 0..EVENTS);
            let begun = gate.way();
            let wrap = app.map("wrap", move |n: u64| {
                if n == 1 {
                    begun.wait_for(1, "the first event"); // or it could be the oldest that is shed
                }
                Bomb(n > 0)
            });
            let work = app.sink("work", move |bomb: Bomb| {
                let first = !bomb.0;
                bomb.defuse();
                if first {
                    way.pass();
                }
            });
            app.connect(numbers, wrap);
            app.connect_local(wrap, work);
            let plan = Plan::new()
                .threads(2)
                .stage("wrap", |s| s.batch(1))
                .stage("work", |s| s.capacity(3).when_full(rule).batch(1));
            let running = app.start(&plan).unwrap();
            until("the others have left the stage before", || handled(&running, "wrap") == EVENTS);
            gate.open();
            let summary = ends(&format!("{rule:?}"), running);
            ended_well(&summary, &format!("{rule:?}"));
            let counts = stage(&summary.snapshot, "work").counts;
            let shed = counts.shed_on_entry() + counts.shed_later();
            assert_eq!(counts.handled + shed, EVENTS, "{rule:?}\n{summary}");
            assert!(counts.handled >= 3, "{rule:?}\n{summary}");
        });
    }
}

#[test]
fn a_shed_event_whose_drop_panics_in_a_push_leaves_the_input_able_to_end() {
    watched("push", || {
        let gate = Gate::default();
        let way = gate.way();
        let app = App::new("shed");
        let (sender, numbers) = app.input::<Bomb>("numbers");
        let work = app.sink("work", move |bomb: Bomb| {
            bomb.defuse();
            way.pass();
        });
        app.connect_local(numbers, work);
        let rule = WhenFull::DropOldest;
        let plan = Plan::new().threads(2).stage("work", |s| s.capacity(1).when_full(rule).batch(1));
        let running = app.start(&plan).unwrap();
        for _ in 0..5 {
            let _ = catch_unwind(AssertUnwindSafe(|| sender.send(Bomb(true)).is_ok()));
        }
        drop(sender);
        gate.open();
        let summary = ends("after a push that panicked", running);
        ended_well(&summary, "push");
    });
}

/// Handles everything; panics when it is dropped.
struct Mine(#[expect(dead_code, reason = "it goes off when it is dropped")] Bomb);

impl Stage for Mine {
    type In = u64;
    type Ports = ();
    fn handle(&mut self, _: Ev<'_, u64>, _: &mut (), _: &Cx) -> Result {
        Ok(())
    }
}

#[test]
fn a_handler_whose_drop_panics_lets_the_program_end() {
    under_every_policy(|plan, label| {
        let app = App::new("mines");
        let numbers = app.source("numbers", || 0..EVENTS);
        let work = app.stage_with("work", |_| Ok(Mine(Bomb(true))));
        app.connect(numbers, work);
        let summary = ends(label, app.start(&plan.stage("work", |s| s.instances(3))).unwrap());
        ended_well(&summary, label);
        assert_eq!(stage(&summary.snapshot, "work").counts.handled, EVENTS, "{label}\n{summary}");
    });
}

/// A payload that panics when it is dropped.
struct Payload(#[expect(dead_code, reason = "it goes off when it is dropped")] Bomb);

#[test]
fn a_panic_whose_payload_panics_when_it_is_dropped_costs_one_event() {
    under_every_policy(|plan, label| {
        let app = App::new("payload");
        let numbers = app.source("numbers", || 0..EVENTS);
        let work = app.sink("work", |n: u64| {
            if n == BAD {
                panic_any(Payload(Bomb(true)));
            }
        });
        app.connect(numbers, work);
        let summary = ends(label, app.start(&plan).unwrap());
        ended_well(&summary, label);
        let counts = stage(&summary.snapshot, "work").counts;
        assert_eq!((counts.handled, counts.failed), (EVENTS - 1, 1), "{label}\n{summary}");
    });
}

#[test]
fn an_end_callback_that_panics_keeps_no_other_from_being_called() {
    under_every_policy(|plan, label| {
        let gate = Gate::default();
        let way = gate.way();
        let app = App::new("callbacks");
        let numbers = app.source("numbers", || 0..EVENTS);
        app.connect(numbers, app.sink("work", move |_: u64| way.pass()));
        let running = app.start(&plan).unwrap();
        let (tell, told) = channel();
        running.on_end(|| panic!("at the end"));
        running.on_end(move || tell.send(()).unwrap());
        gate.open();
        assert_eq!(told.recv_timeout(BOUND), Ok(()), "{label}: the second was not called");
        ended_well(&ends(label, running), label);
    });
}

#[test]
fn a_callback_of_a_quit_that_panics_costs_nothing() {
    #[derive(Clone)]
    struct Quits;
    impl Stage for Quits {
        type In = u64;
        type Ports = ();
        fn handle(&mut self, n: Ev<'_, u64>, _: &mut (), cx: &Cx) -> Result {
            cx.quit(*n);
            Ok(())
        }
    }
    under_policies(
        |name| name == "stealing",
        |plan, label| {
            let app = App::new("quits");
            let (sender, numbers) = app.input("numbers");
            app.connect(numbers, app.stage("work", Quits));
            let running = app.start(&plan).unwrap();
            let (tell, told) = channel();
            running.on_end(|| panic!("at the end"));
            running.on_end(move || tell.send(()).unwrap());
            sender.send(7_u64).unwrap();
            assert_eq!(told.recv_timeout(BOUND), Ok(()), "{label}: the second was not called");
            let mut summary = ends(label, running);
            assert_eq!(summary.take_result::<u64>(), Some(7), "{label}");
            let counts = stage(&summary.snapshot, "work").counts;
            assert_eq!((counts.handled, counts.failed), (1, 0), "{label}\n{summary}");
        },
    );
}

/// Pushes when it is dropped.
struct Echo {
    sender: Option<Sender<Echo>>,
    pushed: Arc<AtomicU64>,
}

impl Drop for Echo {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take() {
            let echo = Echo { sender: None, pushed: self.pushed.clone() };
            if sender.try_send(echo).is_ok() {
                self.pushed.fetch_add(1, SeqCst);
            }
        }
    }
}

#[test]
fn a_shed_event_may_push_when_it_is_dropped() {
    for rule in [WhenFull::DropOldest, WhenFull::DropNewest, WhenFull::Reject] {
        watched(&format!("{rule:?}"), move || {
            let gate = Gate::default();
            let way = gate.way();
            let pushed = Arc::new(AtomicU64::new(0));
            let app = App::new("echoes");
            let (sender, echoes) = app.input::<Echo>("echoes");
            let (direct, echoed) = app.input::<Echo>("echoed");
            let pass = app.map("pass", |echo: Echo| echo);
            let work = app.sink("work", move |mut echo: Echo| {
                drop(echo.sender.take());
                way.pass();
            });
            app.connect_local(echoes, pass);
            app.connect_local(pass, work);
            app.connect_local(echoed, work);
            let plan =
                Plan::new().threads(2).stage("work", |s| s.capacity(1).batch(1).when_full(rule));
            let running = app.start(&plan).unwrap();
            for _ in 0..5 {
                let echo = Echo { sender: Some(direct.clone()), pushed: pushed.clone() };
                sender.send(echo).unwrap();
            }
            until("the last has passed", || handled(&running, "pass") >= 5);
            gate.open();
            drop((sender, direct));
            let summary = ends(&format!("{rule:?}"), running);
            ended_well(&summary, &format!("{rule:?}"));
        });
    }
}

#[test]
fn an_event_shed_at_a_push_may_push_when_it_is_dropped() {
    watched("drop-oldest", || {
        let gate = Gate::default();
        let way = gate.way();
        let pushed = Arc::new(AtomicU64::new(0));
        let app = App::new("echoes");
        let (sender, echoes) = app.input::<Echo>("echoes");
        let work = app.sink("work", move |mut echo: Echo| {
            drop(echo.sender.take());
            way.pass();
        });
        app.connect_local(echoes, work);
        let rule = WhenFull::DropOldest;
        let plan = Plan::new().threads(2).stage("work", |s| s.capacity(1).batch(1).when_full(rule));
        let running = app.start(&plan).unwrap();
        for _ in 0..5 {
            let echo = Echo { sender: Some(sender.clone()), pushed: pushed.clone() };
            let sender = sender.clone();
            within("a push", move || sender.send(echo).is_ok());
        }
        assert!(pushed.load(SeqCst) > 0, "what was shed has pushed");
        gate.open();
        drop(sender);
        ended_well(&ends("drop-oldest", running), "drop-oldest");
    });
}

/// Holds a handle of the input it came by.
struct Holds(
    #[expect(dead_code, reason = "held until the event is dropped")] Option<Sender<Holds>>,
);

#[test]
fn a_stop_returns_where_queued_events_hold_the_last_handle() {
    // Not under every policy: a stop waits for a second for the handler that is held.
    let case = |plan: Plan, label: &str| {
        let gate = Gate::default();
        let way = gate.way();
        let app = App::new("holds");
        let work = app.sink("work", move |_: Holds| way.pass());
        let (sender, holds) = app.input::<Holds>("holds"); // after the stage, and so stopped after it
        app.connect_local(holds, work);
        let running = app.start(&plan.stage("work", |s| s.batch(1))).unwrap();
        sender.send(Holds(None)).unwrap();
        gate.wait_for(1, label);
        for _ in 0..3 {
            sender.send(Holds(Some(sender.clone()))).unwrap();
        }
        drop(sender);
        let summary = within(&format!("{label}: a stop"), move || running.stop());
        let counts = stage(&summary.snapshot, "work").counts;
        assert_eq!((summary.ended, counts.cancelled), (Ended::Stopped, 3), "{label}\n{summary}");
        gate.open();
    };
    for (policy, threads) in [("stealing", 1), ("stealing", 4), ("single", 2), ("seda", 2)] {
        under(policy, threads, case);
    }
}

#[test]
fn a_failed_event_may_look_at_its_program_when_it_is_dropped() {
    /// Counts the failures of its stage when it is dropped.
    struct Curious(Option<comporta::Control>);
    impl Drop for Curious {
        fn drop(&mut self) {
            if let Some(control) = self.0.take() {
                let _ = control.failures("work");
            }
        }
    }
    #[derive(Clone)]
    struct Refuses;
    impl Stage for Refuses {
        type In = Curious;
        type Ports = ();
        fn handle(&mut self, _: Ev<'_, Curious>, _: &mut (), _: &Cx) -> Result {
            Err(comporta::Error::msg("no"))
        }
    }
    watched("failures", || {
        let app = App::new("curious");
        let (sender, events) = app.input::<Curious>("events");
        app.connect_local(events, app.stage("work", Refuses));
        let plan = Plan::new().threads(2).stage("work", |s| s.failures_max(1));
        let running = app.start(&plan).unwrap();
        for _ in 0..3 {
            sender.send(Curious(Some(running.control()))).unwrap();
        }
        drop(sender);
        let summary = ends("events that failed", running);
        assert_eq!(stage(&summary.snapshot, "work").counts.failed, 3, "{summary}");
    });
}
