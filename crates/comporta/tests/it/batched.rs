//! Stages handed their events in groups: by size, by time, and what is left at the end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{App, Cx, Error, Ev, Out, Plan, Result, Retry, Sender, Stage, batched};

use crate::seen::{counts, stage, taken};

const MS: Duration = Duration::from_millis(1);

/// Notes the groups it is handed and when; fails the first so many.
#[derive(Clone, Default)]
struct Groups {
    seen: Arc<Mutex<Vec<Group>>>,
    fail: usize,
    panics: bool,
}

/// When it came, in milliseconds, and what was in it.
type Group = (u64, Vec<u64>);

impl Stage for Groups {
    type In = Vec<u64>;
    type Ports = Out<u64>;
    fn handle(&mut self, group: Ev<'_, Vec<u64>>, out: &mut Out<u64>, cx: &Cx) -> Result {
        self.seen.lock().unwrap().push((cx.now().as_nanos() / 1_000_000, group.to_vec()));
        out.send(group.iter().sum());
        if self.fail > 0 {
            self.fail -= 1;
            assert!(!self.panics, "no good");
            return Err(Error::msg("no good"));
        }
        Ok(())
    }
}

fn pushed(groups: &Groups, size: usize, wait: Duration, plan: &Plan) -> (TestRuntime, Sender<u64>) {
    let app = App::new("groups");
    let (sender, port) = app.input("in");
    let work = app.stage("work", groups.clone().batched(size, wait));
    app.connect(port, work);
    (TestRuntime::new(app, plan).unwrap(), sender)
}

#[test]
fn a_group_is_handed_over_when_it_is_full_and_the_rest_at_the_end() {
    let groups = Groups::default();
    let app = App::new("full");
    let numbers = app.source("numbers", || 0..10u64);
    let work = app.stage("work", groups.clone().batched(4, 1_000 * MS));
    app.connect(numbers, work);
    let mut runtime = TestRuntime::new(app, &Plan::new()).unwrap();
    assert!(runtime.run());
    let expected = [(0, vec![0, 1, 2, 3]), (0, vec![4, 5, 6, 7]), (0, vec![8, 9])];
    assert_eq!(taken(&groups.seen), expected, "the last need not wait: no more can come");
    let c = counts(&runtime, "work");
    assert_eq!((c.handled, c.emitted), (10, 3));
}

#[test]
fn a_group_waits_no_longer_than_its_patience_from_its_first_event() {
    let groups = Groups::default();
    let (mut runtime, sender) = pushed(&groups, 100, 10 * MS, &Plan::new());
    sender.send(1).unwrap();
    runtime.advance(6 * MS);
    sender.send(2).unwrap();
    runtime.advance(3 * MS);
    assert!(taken(&groups.seen).is_empty());
    assert_eq!(stage(&runtime.snapshot(), "work").queued, 2, "they are still queued");
    runtime.advance(20 * MS);
    assert_eq!(taken(&groups.seen), [(10, vec![1, 2])]);
    sender.send(3).unwrap();
    runtime.advance(20 * MS);
    assert_eq!(taken(&groups.seen), [(39, vec![3])]);
}

#[test]
fn the_patience_of_a_group_begins_anew_after_a_full_one() {
    let groups = Groups::default();
    let (mut runtime, sender) = pushed(&groups, 2, 10 * MS, &Plan::new());
    sender.send(1).unwrap();
    sender.send(2).unwrap();
    runtime.advance(8 * MS);
    sender.send(3).unwrap();
    runtime.advance(5 * MS);
    sender.send(4).unwrap();
    runtime.advance(20 * MS);
    assert_eq!(taken(&groups.seen), [(0, vec![1, 2]), (13, vec![3, 4])]);
    sender.send(5).unwrap();
    runtime.advance(20 * MS);
    assert_eq!(taken(&groups.seen), [(43, vec![5])]);
    runtime.advance(100 * MS);
    assert!(taken(&groups.seen).is_empty());
}

#[test]
fn a_failing_group_costs_all_its_events() {
    for panics in [false, true] {
        let groups = Groups { fail: 1, panics, ..Groups::default() };
        let (mut runtime, sender) = pushed(&groups, 3, MS, &Plan::new());
        (0..6).for_each(|n| sender.send(n).unwrap());
        runtime.run_until_idle();
        let c = counts(&runtime, "work");
        assert_eq!((c.handled, c.failed, c.emitted), (3, 3, 1));
        let failures = runtime.control().take_failures::<u64>("work").unwrap();
        let events: Vec<_> = failures.into_iter().map(|(_, event)| event).collect();
        assert_eq!(events, [Some(0), Some(1), Some(2)]);
    }
}

#[test]
fn a_failing_group_is_tried_again_as_it_was() {
    let groups = Groups { fail: 2, ..Groups::default() };
    let plan = Plan::new().stage("work", |s| s.retry(Retry::new(3, 50 * MS).jitter(false)));
    let (mut runtime, sender) = pushed(&groups, 3, MS, &plan);
    (0..6).for_each(|n| sender.send(n).unwrap());
    runtime.advance(1_000 * MS);
    let first = vec![0, 1, 2];
    let expected = [(0, first.clone()), (50, first.clone()), (150, first), (150, vec![3, 4, 5])];
    assert_eq!(taken(&groups.seen), expected);
    let c = counts(&runtime, "work");
    assert_eq!((c.handled, c.failed, c.retried), (6, 0, 1 + 1));
}

#[test]
fn a_group_that_was_taken_can_be_tried_again_where_there_are_copies() {
    // What a local connector brings cannot be copied, unless the stage says how.
    for (retains, local) in [(false, true), (true, true), (false, false)] {
        let app = App::new("taken");
        let (sender, port) = app.input("in");
        let failed = Arc::new(Mutex::new(false));
        let call = move |group: Vec<u64>, out: &mut Out<usize>| -> Result {
            out.send(group.len());
            let first = !std::mem::replace(&mut *failed.lock().unwrap(), true);
            if first { Err(Error::msg("once")) } else { Ok(()) }
        };
        let work = app.stage("work", batched(3, MS, call));
        let work = if retains { work.retain() } else { work };
        if local {
            app.connect_local(port, work);
        } else {
            app.connect(port, work);
        }
        let plan = Plan::new().stage("work", |s| s.retry(Retry::new(2, MS).jitter(false)));
        let mut runtime = TestRuntime::new(app, &plan).unwrap();
        (0..3u64).for_each(|n| sender.send(n).unwrap());
        runtime.advance(100 * MS);
        let c = counts(&runtime, "work");
        let expected = if retains || !local { (3, 0, 1) } else { (0, 3, 0) };
        assert_eq!((c.handled, c.failed, c.retried), expected, "{retains} {local}");
    }
}
