//! Methods of the fifth group: instances, the greatest parallelism of a stage.

use comporta::App;
use comporta::Plan;
use comporta::policy::Refused;
use comporta::testing::TestRuntime;

use super::{Chain, Puppet, id, settings};
use crate::seen::stage;

#[test]
fn as_many_events_are_taken_at_once_as_there_are_instances() {
    let mut chain = Chain::new(|control| {
        for name in ["a", "b", "c"] {
            control.add_instances(id(control, name), 2)?;
        }
        Ok(())
    });
    chain.push(0..4);
    // Three of `a` are paired with an instance at once, as published; the fourth waits for one.
    assert_eq!(chain.ran(), "a0 a1 a2 b0 a3 b1 b2 c0 b3 c1 c2 c3");
    let seen = chain.told(|control| {
        let b = id(control, "b");
        control.kill_instances(b, 2).unwrap();
        (control.instances(b), control.free_instances(b))
    });
    assert_eq!(seen, (Ok(1), Ok(1)));
    chain.runtime.control().set_policy("main", "single").unwrap();
    chain.runtime.run_until_idle();
    assert_eq!(stage(&chain.runtime.snapshot(), "a").instances, 1, "as planned again");
    chain.ends();
}

#[test]
fn instances_with_an_event_in_hand_are_not_free() {
    let app = App::new("free");
    let puppet = Puppet::add(&app, |_| Ok(()));
    let (sender, port) = app.input("in");
    let work = app.map("work", |n: u64| n);
    let sink = app.sink("sink", |_: u64| ());
    app.connect(port, work);
    app.connect(work, sink);
    let plan = Plan::new()
        .policy("puppet")
        .every(|s| s.batch(1))
        .stage("work", |s| s.instances(3))
        .stage("sink", |s| s.capacity(1));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("sink");
    (0..3).for_each(|n| sender.send(n).unwrap());
    let seen = puppet.told(&mut runtime, |control| {
        let work = id(control, "work");
        (control.instances(work).unwrap(), control.free_instances(work).unwrap())
    });
    assert_eq!(seen, (3, 1), "one event is in the queue, two are held by those that sent them");
}

#[test]
fn all_of_them_or_more_of_a_stateful_stage_are_refused() {
    let app = App::new("stateful");
    let puppet = Puppet::add(&app, |_| Ok(()));
    let numbers = app.source("numbers", || 0..3_u64);
    let count = app.map("count", |n: u64| n).stateful();
    let work = app.sink("work", |_: u64| ());
    app.connect(numbers, count);
    app.connect(count, work);
    let plan = Plan::new().policy("puppet").stage("work", |s| s.instances(2));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    runtime.hold("work");
    runtime.run_until_idle(); // the others have ended
    let before = settings(&runtime.snapshot());
    let refused = puppet.told(&mut runtime, |control| {
        let (numbers, work) = (id(control, "numbers"), id(control, "work"));
        [
            control.kill_instances(work, 2),
            control.kill_instances(work, 3),
            control.add_instances(work, 1 << 20),
            control.add_instances(work, usize::MAX),
            control.add_instances(numbers, 1),
            control.kill_instances(numbers, 1),
            control.instances(comporta::policy::StageId(9)).map(drop),
            control.free_instances(comporta::policy::StageId(9)).map(drop),
        ]
    });
    let instances = |stage: &str, instances, wanted| {
        Err(Refused::Instances { stage: stage.to_owned(), instances, wanted })
    };
    assert_eq!(refused[0], instances("work", 2, 0));
    assert_eq!(refused[1], instances("work", 2, 0));
    assert_eq!(refused[2], instances("work", 2, (1 << 20) + 2));
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    assert_eq!(settings(&runtime.snapshot()), before);
    runtime.resume("work");
    assert!(runtime.run());
}

#[test]
fn of_a_stage_that_has_ended_nothing_can_be_wanted() {
    let app = App::new("ended");
    let puppet = Puppet::add(&app, |_| Ok(()));
    let numbers = app.source("numbers", || 0..3_u64);
    let first = app.map("first", |n: u64| n);
    let last = app.sink("last", |_: u64| ());
    app.connect(numbers, first);
    app.connect(first, last);
    let mut runtime = TestRuntime::new(app, &Plan::new().policy("puppet")).unwrap();
    runtime.hold("last");
    let seen = puppet.told(&mut runtime, |control| {
        let first = id(control, "first");
        let now = control.instances(first);
        (now, control.add_instances(first, 3), control.kill_instances(first, 3))
    });
    assert_eq!(seen, (Ok(0), Ok(()), Ok(())));
    // Nor does it keep a policy from governing the rest.
    for policy in ["seda(instances=4)", "stealing", "thread-stealing(instances=2)", "single"] {
        let choice: comporta::Choice = policy.parse().unwrap();
        runtime.control().set_policy("main", choice).unwrap();
    }
    runtime.resume("last");
    assert!(runtime.run());
    assert!(runtime.problems().is_empty(), "{:?}", runtime.problems());
}
