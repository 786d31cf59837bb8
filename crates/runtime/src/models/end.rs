//! Models of the end: of streams, of acknowledged groups, and of a program stopped at any moment.

use std::sync::Arc;
use std::time::Duration;

use comporta_model::ack::Settled;
use comporta_model::error::Result;
use comporta_model::event::Ev;
use comporta_model::plan::Plan;
use comporta_model::port::Out;
use comporta_model::source::{Demand, Pull, Source};
use comporta_model::stage::{Cx, Stage};
use shuttle::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use shuttle::thread;

use super::{Seen, check, dawdle, explore, in_order, run, start};
use crate::app::App;
use crate::effects::Effects;

/// Passes on what comes, and at the end says so.
#[derive(Clone)]
struct Tell(Arc<AtomicUsize>);
impl Stage for Tell {
    type In = u32;
    type Ports = Out<u32>;
    fn handle(&mut self, n: Ev<'_, u32>, out: &mut Out<u32>, _: &Cx) -> Result {
        out.send(*n);
        Ok(())
    }
    fn finish(&mut self, out: &mut Out<u32>, _: &Cx) -> Result {
        self.0.fetch_add(1, SeqCst);
        out.send(100);
        Ok(())
    }
}

#[test]
fn each_instance_finishes_once_and_after_the_last_event_of_every_source() {
    explore(|| {
        let app = App::new("end");
        let (seen, finished) = (Seen::new(), Arc::new(AtomicUsize::new(0)));
        let see = seen.clone();
        let tell = app.stage("tell", Tell(finished.clone()));
        let end = app.sink("end", move |n: u32| see.see(n));
        for (name, n) in [("zero", 0), ("one", 1), ("two", 2)] {
            let source = app.source(name, move || 0..n);
            app.connect(source, tell);
        }
        app.connect(tell, end);
        let plan = Plan::new()
            .threads(2)
            .stage("tell", |s| s.instances(2).batch(1))
            .stage("end", |s| s.capacity(1));
        run(app, &plan);
        assert_eq!(finished.load(SeqCst), 2);
        let seen = seen.all();
        assert_eq!(seen.len(), 5, "{seen:?}");
        assert_eq!(seen[3..], [100, 100], "{seen:?}");
    });
}

/// Sends one event per pull, and wants to know what became of it.
struct Asks {
    left: u32,
    wait: Pull,
    told: Seen<u64>,
}
impl Source for Asks {
    type Item = u32;
    const ACKNOWLEDGED: bool = true;
    fn pull(&mut self, out: &mut Out<u32>, _: Demand) -> Result<Pull> {
        if self.left == 0 {
            return Ok(Pull::End);
        }
        self.left -= 1;
        out.send(self.left);
        Ok(self.wait)
    }
    fn settled(&mut self, settled: Settled) {
        assert!(settled.is_clean());
        self.told.see(settled.group);
    }
}

/// A source whose every event becomes two, which two workers settle.
fn asking(wait: Pull, told: &Seen<u64>) -> App {
    let app = App::new("ack");
    let told = told.clone();
    let source = app.source("source", move || Asks { left: 2, wait, told });
    let two = app.flat_map("two", |n: u32| [n, n]);
    app.connect(source, two);
    for name in ["left", "right"] {
        let end = app.sink(name, |_: u32| thread::yield_now());
        app.connect(two, end);
    }
    app
}

#[test]
fn each_group_settles_once_before_its_source_ends() {
    explore(|| {
        let told = Seen::new();
        let app = asking(Pull::More, &told);
        run(app, &Plan::new().threads(2).every(|s| s.capacity(1)));
        let mut told = told.all();
        told.sort_unstable();
        assert_eq!(told, [1, 2]); // the last pull sent nothing
    });
}

#[test]
fn a_source_that_waits_for_each_group_goes_on_when_it_has_settled() {
    explore(|| {
        let told = Seen::new();
        let app = asking(Pull::AfterAck, &told);
        run(app, &Plan::new().threads(2).every(|s| s.capacity(1)));
        assert_eq!(told.all(), [1, 2]);
    });
}

#[test]
fn a_source_closed_while_it_sleeps_survives_its_own_timer() {
    explore(|| {
        let told = Seen::new();
        let app = asking(Pull::After(Duration::from_secs(1)), &told);
        let (running, core) = start(app, &Plan::new().threads(2));
        let mut wakes = Effects::default();
        core.nodes().iter().for_each(|node| node.close(&core, &mut wakes));
        core.dispatch(wakes);
        core.clock.advance(Duration::from_secs(1));
        let mut due = Vec::new();
        core.timers.due(core.clock.now(), &mut due);
        due.into_iter().for_each(|alarm| core.sound(alarm));
        check(&running.wait());
        assert!(told.all().len() <= 2);
    });
}

#[test]
fn a_stop_at_any_moment_leaves_every_event_accounted_for() {
    explore(|| {
        let app = App::new("stop");
        let source = app.source("source", || 0..4u32);
        let many = app.flat_map("many", |n: u32| [n, n]);
        let work = app.map("work", |n: u32| {
            thread::yield_now();
            n
        });
        let work = work.ordered();
        let end = app.sink("end", |_: u32| thread::yield_now());
        app.connect(source, many);
        app.connect(many, work);
        app.connect(work, end);
        let plan = Plan::new()
            .threads(2)
            .every(|s| s.capacity(2))
            .stage("work", |s| s.instances(2).batch(1));
        let (running, _) = start(app, &plan);
        dawdle(20);
        let summary = running.stop();
        assert!(summary.snapshot.adds_up(), "{summary}");
        for stage in &summary.snapshot.stages {
            let held = stage.queued + stage.in_flight + stage.outboxed;
            assert_eq!(held, 0, "{summary}");
        }
    });
}

#[test]
fn a_drain_lets_everything_settle() {
    explore(|| {
        let app = App::new("drain");
        let seen = Seen::new();
        let see = seen.clone();
        let source = app.source("source", || 0..30);
        let end = app.sink("end", move |n: u32| see.see(n));
        app.connect(source, end);
        let (running, _) = start(app, &Plan::new().threads(2).every(|s| s.capacity(1)));
        dawdle(8);
        let summary = running.drain();
        assert!(summary.snapshot.adds_up(), "{summary}");
        let seen = seen.all();
        in_order(&seen, &[0], seen.len() as u32);
    });
}
