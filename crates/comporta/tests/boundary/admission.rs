//! Admission judges the queue it stands before: time that an event spent elsewhere in the program is
//! not queueing here.

use std::time::Duration;

use comporta::policy::admission::Registry;
use comporta::testing::TestRuntime;
use comporta::{App, Plan};

use crate::bounded::{stage, watched};

const MS: Duration = Duration::from_millis(1);

/// `in` -> `slow` -> `work`, which has the controller and is always idle: `slow` takes 20 ms for an
/// event, which come every 25 ms. Returns how many of 100 events `work` handled.
fn behind_a_slow_stage(admission: &str) -> u64 {
    let app = App::new("slow");
    let (sender, port) = app.input::<u64>("in");
    let slow = app.map("slow", |n: u64| n);
    let work = app.sink("work", |_: u64| ());
    app.connect(port, slow);
    app.connect(slow, work);
    let plan = Plan::new().threads(1).stage("work", |s| s.admission(admission));
    let mut runtime = TestRuntime::new(app, &plan).unwrap();
    for n in 0..100 {
        runtime.hold("slow");
        sender.send(n).unwrap();
        runtime.advance(20 * MS);
        runtime.resume("slow");
        runtime.run_until_idle();
        runtime.advance(5 * MS);
    }
    drop(sender);
    assert!(runtime.run());
    let snapshot = runtime.snapshot();
    assert!(snapshot.adds_up(), "{snapshot}");
    stage(&snapshot, "work").counts.handled
}

#[test]
fn codel_does_not_count_time_in_a_slow_stage_before_as_queueing() {
    watched("codel", || assert_eq!(behind_a_slow_stage("codel"), 100, "of 100 to an idle stage"));
}

#[test]
fn breakwater_does_not_count_time_in_a_slow_stage_before_as_queueing() {
    watched("breakwater", || {
        assert_eq!(behind_a_slow_stage("breakwater"), 100, "of 100 to an idle stage");
    });
}

#[test]
fn no_controller_sheds_from_a_queue_in_which_nothing_ever_waits() {
    watched("all", || {
        let sheds = |name: &&str| behind_a_slow_stage(name) < 100;
        let names: Vec<&str> = Registry::new().offers().iter().map(|offer| offer.name).collect();
        let shedding: Vec<_> = names.into_iter().filter(sheds).collect();
        assert_eq!(shedding, Vec::<&str>::new());
    });
}
