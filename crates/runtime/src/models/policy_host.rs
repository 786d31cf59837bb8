//! Models of policies: workers that visit stages in an order, pools that a policy makes and gives
//! up, threads that go from one to another, colors, and callbacks that come at once.

use comporta_model::plan::{Choice, Offer, Plan};
use comporta_policy::{Entry, Policy, PolicyControl, Refused, StageId};

use super::{Alone, Seen, chain, check, explore, in_order, start};
use crate::app::App;

/// A policy made of closures.
struct Made<S, F> {
    start: S,
    focused: F,
}

impl<S, F> Policy for Made<S, F>
where
    S: FnMut(&mut dyn PolicyControl) -> Result<(), Refused> + Send,
    F: FnMut(&mut dyn PolicyControl) -> Result<(), Refused> + Send,
{
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        (self.start)(control)
    }

    fn on_last_focused(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        (self.focused)(control)
    }
}

type Act = fn(&mut dyn PolicyControl) -> Result<(), Refused>;

fn policy(app: &App, name: &'static str, start: Act, focused: Act) {
    let offer = Offer { name, aliases: &[], about: "", cites: "", params: &[] };
    app.register_policy(Entry::new(offer, move |_: &Choice| Made { start, focused }));
}

fn nothing(_: &mut dyn PolicyControl) -> Result<(), Refused> {
    Ok(())
}

fn ids(control: &dyn PolicyControl) -> Vec<StageId> {
    control.stages().iter().map(|stage| stage.id).collect()
}

/// From the last stage back; each time the first of the threads comes to the end, turned round.
fn by_order(app: &App) {
    let start: Act = |control| {
        control.use_per_stage_queues()?;
        let order: Vec<_> = ids(control).into_iter().rev().collect();
        control.set_visit_order(&order)?;
        control.set_fire_last_focused(true)
    };
    policy(app, "by_order", start, |control| {
        let order = ids(control);
        control.set_visit_order(&order)?;
        control.set_restart_at(Some(0))
    });
}

/// A pool with a thread for each stage.
fn pools(app: &App) {
    let start: Act = |control| {
        for stage in ids(control) {
            let pool = control.new_pool(1)?;
            control.set_pool(pool, stage)?;
        }
        let main = control.main_pool();
        let threads = control.threads(main)?;
        control.kill_threads(main, threads)
    };
    policy(app, "pools", start, nothing);
}

/// All stages in a pool of one thread, of a group of three: the others find it full.
fn narrow(app: &App) {
    let start: Act = |control| {
        let pool = control.new_pool(1)?;
        ids(control).into_iter().try_for_each(|stage| control.set_pool(pool, stage))
    };
    policy(app, "narrow", start, nothing);
}

/// Two pools that exchange threads.
fn steal(app: &App) {
    let start: Act = |control| {
        let stages = ids(control);
        let (first, last) = (stages[0], stages[stages.len() - 1]);
        let pool = control.new_pool(2)?;
        control.set_pool(pool, last)?;
        control.steal(first, last, 1)?;
        control.steal(last, first, 1)
    };
    policy(app, "steal", start, nothing);
}

fn color(app: &App) {
    let start: Act = |control| {
        let stages = ids(control);
        stages.into_iter().try_for_each(|stage| control.set_color(stage, Some(7)))
    };
    policy(app, "color", start, nothing);
}

/// The chain, and the policies it may be run under.
fn with_policies(seen: &Seen<u32>, events: u32) -> App {
    let app = chain(seen, events);
    [by_order, pools, narrow, steal, color].iter().for_each(|add| add(&app));
    app
}

fn plan(policy: &str) -> Plan {
    Plan::new().threads(2).policy(policy).every(|s| s.batch(1).capacity(1))
}

fn runs_under(policy: &'static str) {
    let seen = Seen::new();
    let app = with_policies(&seen, 3);
    let (running, _) = start(app, &plan(policy));
    check(&running.wait());
    in_order(&seen.all(), &[0], 3);
}

#[test]
fn workers_that_visit_stages_in_an_order_leave_none_waiting() {
    explore(|| runs_under("by_order"));
}

#[test]
fn a_pool_for_each_stage_and_none_for_all_leaves_none_waiting() {
    explore(|| runs_under("pools"));
}

#[test]
fn what_finds_its_pool_full_goes_on_when_a_visit_ends() {
    explore(|| runs_under("narrow"));
}

#[test]
fn what_waits_in_a_pool_that_is_given_up_is_not_left_there() {
    explore(|| changes("narrow", "stealing"));
    explore(|| changes("narrow", "pools"));
    explore(|| changes("narrow", "by_order"));
}

#[test]
fn threads_go_from_pool_to_pool_and_no_token_with_them() {
    explore(|| runs_under("steal"));
}

#[test]
fn stages_of_one_color_never_run_at_once() {
    explore(|| {
        let app = App::new("colored");
        let alone = Alone::default();
        let source = app.source("source", || 0..3u32);
        let mut before = source;
        for name in ["a", "b"] {
            let alone = alone.clone();
            let stage = app.map(name, move |n: u32| {
                alone.pass();
                n
            });
            app.connect(before, stage);
            before = comporta_model::port::AsPort::as_port(&stage);
        }
        let end = app.sink("end", |_: u32| ());
        app.connect(before, end);
        color(&app);
        check(&start(app, &plan("color")).0.wait());
    });
}

fn changes(from: &'static str, to: &'static str) {
    let seen = Seen::new();
    let app = with_policies(&seen, 3);
    let (running, _) = start(app, &plan(from));
    let control = running.control();
    control.set_policy("main", to).unwrap();
    control.set_policy("main", from).unwrap();
    check(&running.wait());
    in_order(&seen.all(), &[0], 3);
}

#[test]
fn a_policy_that_gives_way_to_another_strands_nothing() {
    explore(|| changes("by_order", "pools"));
    explore(|| changes("pools", "steal"));
    explore(|| changes("steal", "by_order"));
    explore(|| changes("color", "stealing"));
    explore(|| changes("color", "pools"));
}
