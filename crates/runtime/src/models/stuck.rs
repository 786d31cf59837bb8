//! Models of what the clock does about visits that take long: it takes back what they have not begun,
//! moves the tokens of their workers, and has others woken. Here it does so again and again, at every
//! moment of visits that do return: nothing is lost by it, and nothing handled twice.

use std::time::Duration;

use comporta_model::plan::Plan;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
use shuttle::thread;

use super::{Seen, check, explore, start};
use crate::app::App;

/// Runs a program to its end and checks the books. Meanwhile time passes, and the clock looks at every
/// visit as if it took long.
fn run_overdue(app: App, plan: &Plan) {
    let (running, core) = start(app, plan);
    let ended = Arc::new(AtomicBool::new(false));
    let over = ended.clone();
    let clock = thread::spawn(move || {
        while !over.load(SeqCst) {
            core.clock.advance(Duration::from_millis(5));
            core.look(core.clock.now());
            thread::yield_now();
        }
    });
    let summary = running.wait();
    ended.store(true, SeqCst);
    clock.join().unwrap();
    check(&summary);
}

#[test]
fn what_a_visit_has_not_begun_goes_back_and_is_handled_once() {
    explore(|| {
        let seen = Seen::new();
        let see = seen.clone();
        let app = App::new("overdue");
        let source = app.source("source", || 0..5u32);
        let work = app.map("work", |n: u32| {
            thread::yield_now();
            n
        });
        let end = app.sink("end", move |n: u32| see.see(n));
        app.connect(source, work);
        app.connect(work, end);
        let plan = Plan::new().threads(2).stage("work", |s| s.instances(2));
        run_overdue(app, &plan);
        let mut seen = seen.all();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4]);
    });
}

#[test]
fn a_handler_that_waits_for_the_others_of_its_batch_is_overtaken_by_them() {
    explore(|| {
        let app = App::new("stuck");
        let source = app.source("source", || 0..3u32);
        let go = Arc::new(AtomicBool::new(false));
        let work = app.sink("work", move |n: u32| {
            // The first is stuck until the last has been handled, which came with it.
            if n == 2 {
                go.store(true, SeqCst);
            }
            while n == 0 && !go.load(SeqCst) {
                thread::yield_now();
            }
        });
        app.connect(source, work);
        let plan = Plan::new().threads(2).stage("work", |s| s.instances(2));
        run_overdue(app, &plan);
    });
}
