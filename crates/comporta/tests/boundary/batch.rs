//! A stage that a factory makes is handed the groups it asks for, and checked for them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use comporta::testing::TestRuntime;
use comporta::{App, Out, Plan, batched};

use crate::bounded::{stage, taken, watched};

type Groups = Arc<Mutex<Vec<usize>>>;

/// `in` -> `work`, made by a factory, which notes the sizes of its groups of ten.
fn grouped(app: &App, groups: &Groups, wait: Duration) -> comporta::Sender<u64> {
    let (sender, numbers) = app.input::<u64>("in");
    let groups = groups.clone();
    let work = app.stage_with("work", move |_| {
        let groups = groups.clone();
        let note =
            move |group: Vec<u64>, _: &mut Out<u64>| groups.lock().unwrap().push(group.len());
        Ok(batched(10, wait, note))
    });
    app.connect(numbers, work);
    sender
}

#[test]
fn a_factorys_groups_are_as_large_as_it_says() {
    watched("size", || {
        let (app, groups) = (App::new("groups"), Groups::default());
        let sender = grouped(&app, &groups, Duration::from_secs(1));
        let mut runtime = TestRuntime::new(app, &Plan::new().threads(1)).unwrap();
        (0..64).for_each(|n| sender.send(n).unwrap());
        drop(sender);
        assert!(runtime.run());
        assert_eq!(taken(&groups), [10, 10, 10, 10, 10, 10, 4]);
    });
}

#[test]
fn a_factorys_group_waits_as_long_as_it_says() {
    watched("wait", || {
        let (app, groups) = (App::new("groups"), Groups::default());
        let sender = grouped(&app, &groups, Duration::from_secs(1));
        let mut runtime = TestRuntime::new(app, &Plan::new().threads(1)).unwrap();
        (0..3).for_each(|n| sender.send(n).unwrap());
        runtime.advance(Duration::from_millis(999));
        assert_eq!(taken(&groups), Vec::<usize>::new(), "it may yet become complete");
        assert_eq!(stage(&runtime.snapshot(), "work").queued, 3);
        runtime.advance(Duration::from_millis(1));
        assert_eq!(taken(&groups), [3]);
    });
}

#[test]
fn a_queue_too_small_for_a_factorys_groups_is_refused() {
    watched("capacity", || {
        let plan = Plan::new().threads(1).stage("work", |s| s.capacity(9));
        let app = App::new("groups");
        let _push = grouped(&app, &Groups::default(), Duration::from_secs(1));
        assert!(TestRuntime::new(app, &plan).is_err(), "a group of ten never fits a queue of nine");
        let app = App::new("groups");
        let _push = grouped(&app, &Groups::default(), Duration::from_secs(1));
        let runtime = TestRuntime::new(app, &Plan::new().threads(1)).unwrap();
        assert!(runtime.control().set_capacity("work", 9).is_err(), "nor while it runs");
    });
}
