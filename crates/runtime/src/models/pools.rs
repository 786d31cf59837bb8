//! Models of pools: stages that move, workers that come and go, policies that change, while
//! tokens stand in their queues.

use comporta_model::plan::{Plan, StageSet};
use comporta_policy::{PolicyControl, Refused};

use super::policy_host::{nothing, policy};
use super::{Seen, chain, check, explore, handled, in_order, start};
use crate::app::App;

#[test]
fn a_stage_moved_between_pools_takes_its_tokens_along() {
    explore(|| {
        let seen = Seen::new();
        let app = chain(&seen, 3);
        let plan = Plan::new()
            .threads(1)
            .cluster("other", |other| other.threads(1).stages(StageSet::none()))
            .every(|s| s.batch(1).capacity(2));
        let (running, _) = start(app, &plan);
        let control = running.control();
        control.move_stage("a", "other").unwrap();
        control.move_stage("end", "other").unwrap();
        control.move_stage("a", "main").unwrap();
        check(&running.wait());
        in_order(&seen.all(), &[0], 3);
    });
}

#[test]
fn a_stage_that_leaves_a_cluster_without_threads_takes_its_tokens_along() {
    explore(|| {
        let seen = Seen::new();
        let app = chain(&seen, 3);
        policy(&app, "closes", close_if_empty, nothing);
        let plan = Plan::new()
            .threads(1)
            .cluster("other", |other| other.threads(1).policy("closes").stages(StageSet::of(["a"])))
            .every(|s| s.batch(1).capacity(2));
        let (running, _) = start(app, &plan);
        running.control().move_stage("a", "main").unwrap();
        check(&running.wait());
        in_order(&seen.all(), &[0], 3);
    });
}

/// A cluster that has no stages has no threads.
fn close_if_empty(control: &mut dyn PolicyControl) -> Result<(), Refused> {
    match control.stages() {
        [] => control.kill_threads(control.main_pool(), 1),
        _ => Ok(()),
    }
}

#[test]
fn a_worker_that_leaves_strands_no_token() {
    explore(|| {
        let seen = Seen::new();
        let app = chain(&seen, 3);
        let (running, _) = start(app, &Plan::new().threads(2).every(|s| s.batch(1).capacity(2)));
        let control = running.control();
        control.set_threads("main", 1).unwrap();
        control.set_threads("main", 2).unwrap();
        control.set_threads("main", 1).unwrap();
        check(&running.wait());
        in_order(&seen.all(), &[0], 3);
    });
}

#[test]
fn a_worker_that_is_dismissed_in_its_sleep_leaves() {
    explore(|| {
        let app = App::new("retired");
        let (sender, input) = app.input::<u32>("input");
        let end = app.sink("end", |_: u32| {});
        app.connect(input, end);
        let (running, core) = start(app, &Plan::new().threads(3));
        sender.send(0).unwrap();
        running.control().set_threads("main", 1).unwrap();
        core.wait_until(None, |run| run.threads == 1);
        sender.send(1).unwrap();
        drop(sender);
        let summary = running.wait();
        check(&summary);
        assert_eq!(handled(&summary, "end"), 2);
    });
}

#[test]
fn a_change_of_policy_strands_no_token() {
    explore(|| {
        let seen = Seen::new();
        let app = chain(&seen, 3);
        let (running, _) = start(app, &Plan::new().threads(2).every(|s| s.batch(1).capacity(2)));
        let control = running.control();
        for policy in ["single", "stealing", "srpt"] {
            control.set_policy("main", policy).unwrap();
        }
        check(&running.wait());
        in_order(&seen.all(), &[0], 3);
    });
}
