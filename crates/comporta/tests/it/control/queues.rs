//! Methods of the first group: queues, their capacity, and whether they are open.

use std::sync::{Arc, Mutex};

use comporta::policy::{Refused, WhenFull};
use comporta::{Plan, Shed};

use super::{Chain, id, settings};
use crate::seen::{counts, stage};

fn queued(chain: &Chain, name: &str) -> usize {
    stage(&chain.runtime.snapshot(), name).queued
}

#[test]
fn with_private_queues_threads_visit_stages_and_stay_while_events_last() {
    let mut chain = Chain::new(|control| control.use_per_stage_queues());
    chain.push(0..3);
    assert_eq!(chain.ran(), "a0 a1 a2 b0 b1 b2 c0 c1 c2");
    chain.ends();
    // Without them events are taken as they come.
    let mut chain = Chain::new(|_| Ok(()));
    chain.push(0..3);
    assert_eq!(chain.ran(), "a0 b0 a1 c0 b1 a2 c1 b2 c2");
    chain.ends();
}

#[test]
fn with_queues_of_their_own_threads_follow_what_they_sent() {
    let mut chain = Chain::new(|control| control.use_per_worker_queues());
    chain.push(0..2);
    assert_eq!(chain.ran(), "a0 b0 c0 a1 b1 c1");
    chain.ends();
}

#[test]
fn which_queues_are_used_is_said_once_and_in_start() {
    let twice = Arc::new(Mutex::new(Vec::new()));
    let said = twice.clone();
    let mut chain = Chain::new(move |control| {
        control.use_per_stage_queues()?;
        let mut said = said.lock().unwrap();
        said.extend([control.use_per_stage_queues(), control.use_per_worker_queues()]);
        Ok(())
    });
    assert_eq!(*twice.lock().unwrap(), [Err(Refused::Started), Err(Refused::Started)]);
    let later =
        chain.told(|control| [control.use_per_stage_queues(), control.use_per_worker_queues()]);
    assert_eq!(later, [Err(Refused::Started), Err(Refused::Started)]);
    assert_eq!(
        later[0].clone().unwrap_err().to_string(),
        "which queues are used is fixed once, in `start`"
    );
    chain.push(0..2);
    assert_eq!(chain.ran(), "a0 a1 b0 b1 c0 c1", "still visited in order");
    chain.ends();
}

#[test]
fn a_capacity_bounds_what_waits_and_below_what_waits_all_stay() {
    let mut chain = Chain::planned(|plan| plan.every(|s| s.capacity(4)), |_| Ok(()));
    chain.runtime.hold("b");
    chain.push(0..4);
    chain.runtime.run_until_idle();
    assert_eq!(queued(&chain, "b"), 4);
    let seen = chain.told(|control| {
        let b = id(control, "b");
        control.set_queue_capacity(b, 1).unwrap();
        control.queue_capacity(b).unwrap()
    });
    assert_eq!(seen, 1);
    chain.push(4..6);
    chain.runtime.run_until_idle();
    assert_eq!(queued(&chain, "b"), 4, "all stay, none comes");
    assert_eq!(stage(&chain.runtime.snapshot(), "b").outboxed, 1, "one waits for room");
    chain.told(|control| control.set_queue_capacity(id(control, "b"), 100)).unwrap();
    assert_eq!(queued(&chain, "b"), 6, "those who wait are let in");
    chain.runtime.control().set_policy("main", "single").unwrap();
    assert_eq!(stage(&chain.runtime.snapshot(), "b").capacity, 4, "as planned again");
    chain.ends();
}

#[test]
fn a_capacity_of_zero_or_of_what_has_no_queue_is_refused_and_nothing_changes() {
    let mut chain = Chain::new(|_| Ok(()));
    let before = settings(&chain.runtime.snapshot());
    let refused = chain.told(|control| {
        let (b, input) = (id(control, "b"), id(control, "in"));
        [
            control.set_queue_capacity(b, 0).unwrap_err().to_string(),
            control.set_queue_capacity(input, 5).unwrap_err().to_string(),
            control.queue_capacity(input).unwrap_err().to_string(),
            control.disable_queue(input).unwrap_err().to_string(),
            control.enable_queue(input).unwrap_err().to_string(),
            control.queue_is_enabled(input).unwrap_err().to_string(),
            control.set_when_full(input, WhenFull::Reject).unwrap_err().to_string(),
        ]
    });
    assert_eq!(refused[0], "the queue capacity of `b` is 0: use at least 1");
    assert!(refused[1..].iter().all(|why| why == "`in` has no queue"), "{refused:?}");
    assert_eq!(settings(&chain.runtime.snapshot()), before);
    chain.ends();
}

#[test]
fn what_happens_at_a_full_queue_can_be_said() {
    let mut chain = Chain::planned(|plan: Plan| plan.stage("b", |s| s.capacity(2)), |_| Ok(()));
    chain.runtime.hold("b");
    chain.told(|control| control.set_when_full(id(control, "b"), WhenFull::DropNewest)).unwrap();
    chain.push(0..5);
    chain.runtime.run_until_idle();
    assert_eq!((queued(&chain, "b"), counts(&chain.runtime, "b").shed(Shed::Newest)), (2, 3));
    chain.told(|control| control.set_when_full(id(control, "b"), WhenFull::DropOldest)).unwrap();
    chain.push(5..6);
    chain.runtime.run_until_idle();
    assert_eq!(counts(&chain.runtime, "b").shed(Shed::Oldest), 1);
    chain.told(|control| control.set_when_full(id(control, "b"), WhenFull::Block)).unwrap();
    chain.push(6..8);
    chain.runtime.run_until_idle();
    assert_eq!(stage(&chain.runtime.snapshot(), "b").outboxed, 1);
    chain.log.take();
    chain.runtime.resume("b");
    let ran = chain.ran();
    let b: Vec<&str> = ran.split(' ').filter(|done| done.starts_with('b')).collect();
    assert_eq!(b, ["b1", "b5", "b6", "b7"]);
    chain.ends();
}

#[test]
fn a_disabled_queue_sheds_what_arrives_until_it_is_enabled() {
    let mut chain = Chain::new(|_| Ok(()));
    chain.runtime.hold("b");
    chain.push(0..1);
    chain.runtime.run_until_idle();
    let enabled = chain.told(|control| {
        let b = id(control, "b");
        control.disable_queue(b).unwrap();
        control.queue_is_enabled(b).unwrap()
    });
    assert!(!enabled);
    chain.push(1..4);
    chain.runtime.run_until_idle();
    assert_eq!(counts(&chain.runtime, "b").shed(Shed::Disabled), 3);
    assert_eq!(queued(&chain, "b"), 1, "what was there stays");
    let enabled = chain.told(|control| {
        let b = id(control, "b");
        control.enable_queue(b).unwrap();
        control.queue_is_enabled(b).unwrap()
    });
    assert!(enabled);
    chain.push(4..5);
    chain.runtime.resume("b");
    chain.runtime.run_until_idle();
    assert_eq!(counts(&chain.runtime, "b").handled, 2);
    // The next policy finds it open, whatever this one did.
    chain.told(|control| control.disable_queue(id(control, "b"))).unwrap();
    chain.runtime.control().set_policy("main", "single").unwrap();
    chain.push(5..6);
    chain.runtime.run_until_idle();
    assert_eq!(counts(&chain.runtime, "b").handled, 3);
    chain.ends();
}

#[test]
fn a_queue_that_is_shut_sheds_what_waits_outside_of_it_too() {
    let mut chain = Chain::planned(|plan: Plan| plan.stage("b", |s| s.capacity(1)), |_| Ok(()));
    chain.runtime.hold("b");
    chain.push(0..3);
    chain.runtime.run_until_idle();
    let outboxed = |chain: &Chain| stage(&chain.runtime.snapshot(), "b").outboxed;
    assert_eq!((queued(&chain, "b"), outboxed(&chain)), (1, 1), "`a` waits with 1");
    // Its sender goes on at once, though the queue is as full as before.
    chain.told(|control| control.disable_queue(id(control, "b"))).unwrap();
    let b = counts(&chain.runtime, "b");
    assert_eq!((b.shed(Shed::Disabled), queued(&chain, "b"), outboxed(&chain)), (2, 1, 0));
    chain.told(|control| control.enable_queue(id(control, "b"))).unwrap();
    chain.push(3..5);
    chain.runtime.run_until_idle();
    assert_eq!(outboxed(&chain), 1, "and waits again");
    chain.runtime.resume("b");
    chain.runtime.run_until_idle();
    assert_eq!(counts(&chain.runtime, "b").handled, 3);
    chain.ends();
}
