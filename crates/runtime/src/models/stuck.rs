//! Models of what the clock does about visits that take long: it takes back what they have not begun,
//! moves the tokens of their workers, and has others woken. Here it does so again and again, at every
//! moment of visits that do return: nothing is lost by it, and nothing handled twice.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use comporta_model::plan::Plan;
use comporta_model::port::{AsPort, Port};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
use shuttle::thread;

use super::{Seen, explore, run_beside};
use crate::app::App;

/// Runs a program to its end and checks the books. From when `begun` is set on, time passes, and the clock
/// looks at every visit as if it took long. Before that visits take no time, so that the stage is known
/// to be quick, and its visits take several events.
fn run_overdue(app: App, plan: &Plan, begun: &Arc<AtomicBool>) {
    let begun = begun.clone();
    run_beside(app, plan, move |core| {
        if begun.load(SeqCst) {
            core.clock.advance(Duration::from_millis(5));
            core.look(core.clock.now());
        }
    });
}

/// An event by which the pace of `work` is learnt, and then 0, 1 and 2 together.
fn batched_by_chance(app: &App) -> Port<u32> {
    let source = app.source("source", || 0..2u32);
    let spread = app.flat_map("spread", |n: u32| if n == 0 { vec![LEARNT] } else { vec![0, 1, 2] });
    app.connect(source, spread);
    spread.as_port()
}

const LEARNT: u32 = 9;

#[test]
fn what_a_visit_has_not_begun_goes_back_and_is_handled_once() {
    explore(|| {
        let seen = Seen::new();
        let see = seen.clone();
        let app = App::new("overdue");
        let events = batched_by_chance(&app);
        let begun = Arc::new(AtomicBool::new(false));
        let begins = begun.clone();
        let work = app.sink("work", move |n: u32| {
            begins.fetch_or(n == 0, SeqCst);
            thread::yield_now();
            see.see(n);
        });
        app.connect(events, work);
        let plan = Plan::new().threads(2).stage("work", |s| s.instances(2));
        run_overdue(app, &plan, &begun);
        let mut seen = seen.all();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, LEARNT]);
    });
}

#[test]
fn a_handler_that_waits_for_the_others_of_its_batch_is_overtaken_by_them() {
    explore(|| {
        let app = App::new("stuck");
        let events = batched_by_chance(&app);
        let begun = Arc::new(AtomicBool::new(false));
        let (begins, go) = (begun.clone(), Arc::new(AtomicBool::new(false)));
        let work = app.sink("work", move |n: u32| {
            // The first is stuck until the last has been handled, which came with it.
            begins.fetch_or(n == 0, SeqCst);
            go.fetch_or(n == 2, SeqCst);
            while n == 0 && !go.load(SeqCst) {
                thread::yield_now();
            }
        });
        app.connect(events, work);
        let plan = Plan::new().threads(2).stage("work", |s| s.instances(2));
        run_overdue(app, &plan, &begun);
    });
}

#[test]
fn flights_that_a_visit_has_not_polled_go_back_and_are_polled_once() {
    explore(|| {
        let seen = Seen::new();
        let see = seen.clone();
        let app = App::new("overdue");
        let events = batched_by_chance(&app);
        let begun = Arc::new(AtomicBool::new(false));
        let begins = begun.clone();
        let work = app.sink_async("work", move |n: u32| {
            let (see, begins, mut waited) = (see.clone(), begins.clone(), false);
            poll_fn(move |cx| {
                if !std::mem::replace(&mut waited, true) {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                begins.fetch_or(n == 0, SeqCst);
                thread::yield_now();
                see.see(n);
                Poll::Ready(())
            })
        });
        app.connect(events, work);
        let plan = Plan::new().threads(2).stage("work", |work| work.instances(3));
        run_overdue(app, &plan, &begun);
        let mut all = seen.all();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, LEARNT]);
    });
}
