//! The test runtime: faults come in the order in which they were asked for, and a test never hangs.

use comporta::testing::TestRuntime;
use comporta::{App, Cx, Ev, Out, Plan, Reason, Result, SendError, Stage};

use crate::bounded::{stage, watched};

#[derive(Clone)]
struct Pass;
impl Stage for Pass {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, out: &mut Out<u64>, _: &Cx) -> Result {
        out.send(*n);
        Ok(())
    }
}

fn passing(tries: u32, ordered: bool) -> TestRuntime {
    let app = App::new("faults");
    let numbers = app.source("numbers", || 0..10_u64);
    let work = app.stage("work", Pass);
    let work = if ordered { work.ordered() } else { work };
    app.connect(numbers, work);
    app.connect(work, app.sink("sink", |_: u64| ()));
    TestRuntime::new(app, &Plan::new().threads(1).stage("work", |s| s.tries(tries))).unwrap()
}

#[test]
fn two_injected_faults_come_in_order_and_cost_an_event_each() {
    for ordered in [false, true] {
        watched("faults", move || {
            let mut runtime = passing(1, ordered);
            runtime.fail_next("work", "first");
            runtime.panic_next("work", "second");
            runtime.fail_next("work", "third");
            assert!(runtime.run());
            let failures = runtime.control().failures("work").unwrap();
            let said = |reason: &Reason| match reason {
                Reason::Panic(message, _) => message.clone(),
                reason => reason.to_string(),
            };
            let said: Vec<String> = failures.iter().map(|failure| said(&failure.reason)).collect();
            assert_eq!(said, ["first", "second", "third"], "ordered: {ordered}");
            assert_eq!(stage(&runtime.snapshot(), "sink").counts.handled, 7, "ordered: {ordered}");
        });
    }
}

#[test]
fn two_injected_faults_may_meet_two_tries_at_one_event() {
    watched("tries", || {
        let mut runtime = passing(2, false);
        runtime.fail_next("work", "first");
        runtime.fail_next("work", "second");
        assert!(runtime.run());
        let failures = runtime.control().failures("work").unwrap();
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert_eq!((failures[0].reason.to_string(), failures[0].attempts), ("second".into(), 2));
        assert_eq!(stage(&runtime.snapshot(), "sink").counts.handled, 9);
    });
}

#[test]
fn a_push_into_a_full_queue_on_the_thread_of_a_kit_would_block_and_says_so() {
    watched("a push that only its own thread could make room for", || {
        let app = App::new("full");
        let (sender, numbers) = app.input::<u64>("in");
        app.connect(numbers, app.sink("sink", |_: u64| ()));
        let mut runtime =
            TestRuntime::new(app, &Plan::new().stage("sink", |s| s.capacity(1))).unwrap();
        sender.send(0).unwrap();
        assert_eq!(sender.send(1), Err(SendError::WouldBlock(1)));
        assert!(runtime.step());
        sender.send(2).unwrap();
        drop(sender);
        assert!(runtime.run());
        let counts = stage(&runtime.snapshot(), "sink").counts;
        assert_eq!((counts.offered, counts.refused, counts.handled), (3, 1, 2));
    });
}
