//! Models of `cycle`: stages that reach each other neither stall nor end too soon.

use comporta_model::plan::Plan;
use comporta_model::port::Out;
use shuttle::thread;

use super::{Seen, explore, handled, in_order, run, summary};
use crate::app::App;
use crate::stage::permits::Shed;

/// Sends one less than it was given, until nothing is left.
fn less(n: u32, out: &mut Out<u32>) {
    if n > 0 {
        out.send(n - 1);
    }
}

#[test]
fn ping_pong_over_single_places_with_a_producer_outside_comes_to_its_end() {
    explore(|| {
        let app = App::new("pingpong");
        let source = app.source("source", || [3u32, 2].into_iter());
        let ping = app.process("ping", less);
        let pong = app.process("pong", less);
        app.connect(source, ping);
        app.connect(ping, pong);
        app.connect(pong, ping);
        let summary = summary(app, &Plan::new().threads(2).every(|s| s.capacity(1)));
        // With one place each there is no bubble, so two events may meet: one of them is shed.
        let shed: u64 = summary.snapshot.stages.iter().map(|s| s.counts.shed(Shed::Cycle)).sum();
        let done = handled(&summary, "ping") + handled(&summary, "pong");
        assert!(done == 7 || shed > 0, "{summary}");
    });
}

#[test]
fn ping_pong_with_a_bubble_sheds_nothing() {
    explore(|| {
        let app = App::new("bubble");
        let source = app.source("source", || [3u32; 8].into_iter());
        let ping = app.process("ping", less);
        let pong = app.process("pong", |n: u32, out: &mut Out<u32>| {
            thread::yield_now(); // time for others to fill what room there was
            less(n, out);
        });
        app.connect(source, ping);
        app.connect(ping, pong);
        app.connect(pong, ping);
        let summary = summary(app, &Plan::new().threads(2).every(|s| s.capacity(2).batch(1)));
        assert_eq!(handled(&summary, "ping") + handled(&summary, "pong"), 32, "{summary}");
    });
}

#[test]
fn a_stage_that_sends_to_itself_goes_on_when_others_take_its_room() {
    explore(|| {
        let app = App::new("self");
        let source = app.source("source", || [2u32, 2].into_iter());
        let again = app.process("again", less);
        app.connect(source, again);
        app.connect(again, again);
        run(app, &Plan::new().threads(2).every(|s| s.capacity(1)));
    });
}

#[test]
fn an_amplifying_cycle_sheds_rather_than_stall() {
    explore(|| {
        let app = App::new("amplify");
        let twice = |n: u32, out: &mut Out<u32>| {
            less(n, out);
            less(n, out);
        };
        let source = app.source("source", || [3u32, 3].into_iter());
        let ping = app.process("ping", twice);
        let pong = app.process("pong", twice);
        app.connect(source, ping);
        app.connect(ping, pong);
        app.connect(pong, ping);
        run(app, &Plan::new().threads(2).every(|s| s.capacity(1)));
    });
}

#[test]
fn a_cycle_whose_last_event_waits_for_room_outside_still_ends() {
    explore(|| {
        let app = App::new("exit");
        let seen = Seen::new();
        let see = seen.clone();
        let source = app.source("source", || [1u32].into_iter());
        let ping = app.process("ping", less);
        let pong = app.flat_map("pong", |n: u32| [n, n + 1, n + 2]);
        let back = app.process("back", |_: u32, _: &mut Out<u32>| {});
        let end = app.sink("end", move |n: u32| see.see(n));
        app.connect(source, ping);
        app.connect(ping, pong);
        app.connect(pong, end);
        app.connect(pong, back);
        app.connect(back, ping);
        run(app, &Plan::new().threads(2).stage("end", |s| s.capacity(1)));
        in_order(&seen.all(), &[0], 3);
    });
}
