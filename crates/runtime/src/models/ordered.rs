//! Models of the resequencer in `settle`: what an ordered stage sends leaves in the order of what
//! came, whichever instance was faster and however full the next queue is.

use comporta_model::error::Result;
use comporta_model::event::Ev;
use comporta_model::plan::Plan;
use comporta_model::port::Out;
use comporta_model::stage::{Cx, Stage};
use shuttle::thread;

use super::{Seen, explore, in_order, run};
use crate::app::App;

#[test]
fn two_instances_let_their_results_out_in_order_through_one_place() {
    explore(|| {
        let app = App::new("ordered");
        let seen = Seen::new();
        let see = seen.clone();
        let source = app.source("source", || 0..4u32);
        let work = app.map("work", |n: u32| {
            if n.is_multiple_of(2) {
                thread::yield_now(); // every other event is slow
            }
            n
        });
        let work = work.ordered();
        let end = app.sink("end", move |n: u32| see.see(n));
        app.connect(source, work);
        app.connect(work, end);
        let plan = Plan::new()
            .threads(3)
            .stage("work", |s| s.instances(2).batch(1))
            .stage("end", |s| s.capacity(1));
        run(app, &plan);
        in_order(&seen.all(), &[0], 4);
    });
}

#[test]
fn room_granted_before_the_releaser_waits_is_not_lost() {
    explore(|| {
        let app = App::new("early");
        let source = app.source("source", || 0..3u32);
        let work = app.map("work", |n: u32| n).ordered();
        app.connect(source, work);
        let seen = Seen::new();
        let see = seen.clone();
        let end = app.sink("end", move |n: u32| see.see(n));
        app.connect(work, end);
        // It is in line for `end` already while it serves these.
        for name in ["b", "c", "d"] {
            let other = app.sink(name, |_: u32| {});
            app.connect(work, other);
        }
        run(app, &Plan::new().threads(2).stage("end", |s| s.capacity(1)));
        in_order(&seen.all(), &[0], 3);
    });
}

/// Passes on what comes, and says at the end that it was the end.
#[derive(Clone)]
struct Last;
impl Stage for Last {
    type In = u32;
    type Ports = Out<u32>;
    fn handle(&mut self, n: Ev<'_, u32>, out: &mut Out<u32>, _: &Cx) -> Result {
        out.send(*n);
        Ok(())
    }
    fn finish(&mut self, out: &mut Out<u32>, _: &Cx) -> Result {
        out.send(2);
        Ok(())
    }
}

#[test]
fn what_an_ordered_stage_sends_at_its_end_comes_after_all_its_results() {
    explore(|| {
        let app = App::new("last");
        let source = app.source("source", || 0..2u32);
        let work = app.stage("work", Last).ordered();
        app.connect(source, work);
        let seen = [Seen::new(), Seen::new()];
        for (name, seen) in ["left", "right"].into_iter().zip(&seen) {
            let see = seen.clone();
            let end = app.sink(name, move |n: u32| see.see(n));
            app.connect(work, end);
        }
        let plan = Plan::new().threads(2).every(|s| s.batch(1).capacity(1));
        run(app, &plan);
        seen.iter().for_each(|seen| in_order(&seen.all(), &[0], 3));
    });
}
