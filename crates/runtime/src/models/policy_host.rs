//! Models of policies: workers that visit stages in an order, pools that a policy makes and gives
//! up, threads that go from one to another, colors, and callbacks that come at once.

use std::time::Duration;

use comporta_model::plan::{Choice, Offer, Plan};
use comporta_policy::{Entry, Policy, PolicyControl, PoolId, Refused, StageId, TimerId};
use shuttle::thread;

use super::{Alone, Count, Seen, chain, check, explore, in_order, start};
use crate::app::App;
use crate::path::work::is_worker;

/// A policy made of closures.
#[derive(Clone)]
struct Made<S, F, T> {
    start: S,
    focused: F,
    timer: T,
}

impl<S, F, T> Policy for Made<S, F, T>
where
    S: FnMut(&mut dyn PolicyControl) -> Result<(), Refused> + Send,
    F: FnMut(&mut dyn PolicyControl) -> Result<(), Refused> + Send,
    T: FnMut(&mut dyn PolicyControl) -> Result<(), Refused> + Send,
{
    fn start(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        (self.start)(control)
    }

    fn on_last_focused(&mut self, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        (self.focused)(control)
    }

    fn on_timer(&mut self, _: TimerId, control: &mut dyn PolicyControl) -> Result<(), Refused> {
        (self.timer)(control)
    }
}

pub(super) type Act = fn(&mut dyn PolicyControl) -> Result<(), Refused>;

pub(super) fn policy(app: &App, name: &'static str, start: Act, focused: Act) {
    register(app, name, Made { start, focused, timer: nothing });
}

fn register<P: Policy + Clone + Sync + 'static>(app: &App, name: &'static str, policy: P) {
    let offer = Offer { name, aliases: &[], about: "", cites: "", params: &[] };
    app.register_policy(Entry::new(offer, move |_: &Choice| policy.clone()));
}

pub(super) fn nothing(_: &mut dyn PolicyControl) -> Result<(), Refused> {
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

/// Workers that visit stages in an order, and say when they have come to its end.
fn in_turn(control: &mut dyn PolicyControl) -> Result<(), Refused> {
    control.use_per_stage_queues()?;
    control.set_fire_last_focused(true)
}

/// Two pools, whose threads and stages change whenever the workers have come to the end of the order.
fn shifting(app: &App) {
    let start: Act = |control| {
        in_turn(control)?;
        control.new_pool(1).map(drop)
    };
    let mut calls = 0;
    let focused = move |control: &mut dyn PolicyControl| {
        let (stages, main, other) = (ids(control), control.main_pool(), PoolId(1));
        let (first, last) = (stages[0], stages[stages.len() - 1]);
        calls += 1;
        // Some of it is refused, as it comes too late or too early.
        let _ = match calls {
            1 => stages.iter().try_for_each(|stage| control.set_pool(other, *stage)),
            2 => control.add_threads(other, 1).and_then(|()| control.set_pool(main, last)),
            3 => control.kill_threads(other, 1).and_then(|()| control.steal(last, first, 1)),
            4 => control.set_pool(other, last).and_then(|()| control.kill_threads(main, 1)),
            5 => control.set_pool(main, first).and_then(|()| control.steal(first, last, 1)),
            _ => Ok(()),
        };
        Ok(())
    };
    register(app, "shifting", Made { start, focused, timer: nothing });
}

#[test]
fn stages_and_threads_go_from_pool_to_pool_while_tokens_wait_there() {
    explore(|| {
        let seen = Seen::new();
        let app = chain(&seen, 4);
        shifting(&app);
        let (running, _) = start(app, &plan("shifting"));
        check(&running.wait());
        in_order(&seen.all(), &[0], 4);
    });
}

#[test]
fn a_worker_in_a_call_of_the_policy_keeps_no_other_asleep() {
    explore(|| {
        let app = App::new("waits");
        let (handled, awaited) = (Count::default(), Count::default());
        let (counts, waits) = (handled.clone(), awaited.clone());
        let (sender, input) = app.input::<u32>("input");
        app.connect(input, app.sink("end", move |_: u32| counts.add()));
        let mut called = false;
        // It waits for all events, once one of them has been handled: a worker may have been woken for it.
        let focused = move |_: &mut dyn PolicyControl| {
            if is_worker() && !std::mem::replace(&mut called, true) {
                waits.wait_for(1);
                handled.wait_for(3);
            }
            Ok(())
        };
        let start_with: Act = in_turn;
        register(&app, "waits", Made { start: start_with, focused, timer: nothing });
        let (running, _) = start(app, &Plan::new().threads(2).policy("waits"));
        for n in 0..3 {
            sender.send(n).unwrap();
            awaited.add();
        }
        drop(sender);
        check(&running.wait());
    });
}

#[test]
fn a_timer_that_finds_the_policy_busy_is_answered_before_the_workers_sleep() {
    explore(|| {
        let every = Duration::from_millis(1);
        let app = App::new("timed");
        let answered = Count::default();
        let answer = answered.clone();
        let (sender, input) = app.input::<u32>("input");
        app.connect(input, app.sink("end", |_: u32| ()));
        let start_with = move |control: &mut dyn PolicyControl| {
            in_turn(control)?;
            control.add_timer(every).map(drop)
        };
        let focused: Act = |_| {
            thread::yield_now();
            Ok(())
        };
        let timer = move |_: &mut dyn PolicyControl| {
            answer.add();
            Ok(())
        };
        register(&app, "timed", Made { start: start_with, focused, timer });
        let (running, core) = start(app, &Plan::new().threads(2).policy("timed"));
        core.clock.advance(every);
        let mut due = Vec::new();
        core.timers.due(core.clock.now(), &mut due);
        due.into_iter().for_each(|alarm| core.sound(alarm));
        answered.wait_for(1);
        drop(sender);
        check(&running.wait());
    });
}
