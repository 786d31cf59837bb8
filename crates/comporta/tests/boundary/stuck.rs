//! A handler or a source that does not return costs its own event: others go on, those who wait for
//! room are woken, and the program can be drained.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

use comporta::{App, Demand, Ended, Out, Plan, Pull, Result, Running, Source};

use crate::bounded::{
    BOUND, Gate, Way, ends, handled, stage, thread, under, under_every_policy, under_policies,
    until,
};

/// Under `color` a stage never runs twice at once, whatever its instances: that is the policy.
fn lets_a_stage_run_twice(policy: &str) -> bool {
    policy != "color"
}

#[test]
fn a_stuck_handler_costs_its_own_event_and_the_other_instance_handles_the_rest() {
    under_policies(lets_a_stage_run_twice, |plan, label| {
        let gate = Gate::default();
        let way = gate.way();
        let app = App::new("stuck");
        let numbers = app.source("numbers", || 0..100_u64);
        let work = app.sink("work", move |n: u64| {
            if n == 0 {
                way.pass();
            }
        });
        app.connect(numbers, work);
        let running = app.start(&plan.stage("work", |s| s.instances(2))).unwrap();
        gate.wait_for(1, label);
        until(&format!("{label}: 99 others are handled beside the one that is stuck"), || {
            let snapshot = running.snapshot();
            let work = stage(&snapshot, "work");
            work.queued == 0 && work.in_flight == 1
        });
        gate.open();
        let summary = ends(label, running);
        assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
        assert_eq!(stage(&summary.snapshot, "work").counts.handled, 100, "{label}");
    });
}

#[test]
fn a_stuck_handler_of_a_quick_stage_keeps_no_event_from_the_other_instance() {
    const EVENTS: u64 = 20_000;
    under_policies(lets_a_stage_run_twice, |plan, label| {
        let gate = Gate::default();
        let (way, called) = (gate.way(), Arc::new(AtomicU64::new(0)));
        let calls = called.clone();
        let app = App::new("quick");
        let numbers = app.source("numbers", || 0..EVENTS);
        // By then visits are known to be quick, and take many events.
        let work = app.sink("work", move |n: u64| {
            calls.fetch_add(1, SeqCst);
            if n == EVENTS / 2 {
                way.pass();
            }
        });
        app.connect(numbers, work);
        let running = app.start(&plan.stage("work", |s| s.instances(2))).unwrap();
        gate.wait_for(1, label);
        until(&format!("{label}: the handler is called for all"), || called.load(SeqCst) == EVENTS);
        gate.open();
        let summary = ends(label, running);
        assert_eq!(stage(&summary.snapshot, "work").counts.handled, EVENTS, "{label}");
    });
}

/// An event whose copy does not return.
#[derive(serde::Serialize, serde::Deserialize)]
struct Copied(u64, #[serde(skip)] Option<Arc<Way>>);

impl Clone for Copied {
    fn clone(&self) -> Self {
        if let Some(way) = &self.1 {
            way.pass();
        }
        Copied(self.0, None)
    }
}

#[test]
fn a_stuck_clone_of_what_a_quick_stage_sent_keeps_no_event_from_its_other_instances() {
    const EVENTS: u64 = 12_000;
    under_policies(lets_a_stage_run_twice, |plan, label| {
        let gate = Gate::default();
        let (way, called) = (Arc::new(gate.way()), Arc::new(AtomicU64::new(0)));
        let calls = called.clone();
        let app = App::new("copies");
        let numbers = app.source("numbers", || 0..EVENTS);
        let work = app.process("work", move |n: u64, out: &mut Out<Copied>| {
            calls.fetch_add(1, SeqCst);
            out.send(Copied(n, (n == EVENTS * 3 / 4).then(|| way.clone())));
        });
        app.connect(numbers, work);
        // Little room, so that visits stop before they have begun all of their events.
        let plan = ["left", "right"].iter().fold(plan, |plan, name| {
            app.connect(work, app.sink(*name, |_: Copied| ()));
            plan.stage(*name, |s| s.capacity(64))
        });
        let running = app.start(&plan.stage("work", |s| s.instances(4))).unwrap();
        gate.wait_for(1, label);
        until(&format!("{label}: the handler is called for all"), || called.load(SeqCst) == EVENTS);
        gate.open();
        let summary = ends(label, running);
        assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
        assert_eq!(stage(&summary.snapshot, "left").counts.handled, EVENTS, "{label}");
    });
}

#[test]
fn instances_behind_a_queue_of_one_place_run_at_once() {
    under_policies(lets_a_stage_run_twice, |plan, label| {
        let gate = Gate::default();
        let way = gate.way();
        let app = App::new("together");
        let numbers = app.source("numbers", || 0..4_u64);
        let work = app.sink("work", move |_: u64| way.pass());
        app.connect(numbers, work);
        let work = |s: comporta::StagePlan| s.instances(4).capacity(1).batch(1);
        let running = app.start(&plan.stage("work", work)).unwrap();
        gate.wait_for(4, &format!("{label}: four handlers at once"));
        gate.open();
        let summary = ends(label, running);
        assert_eq!(stage(&summary.snapshot, "work").counts.handled, 4, "{label}");
    });
}

#[test]
fn a_push_that_is_granted_room_returns_while_the_handler_that_left_it_runs() {
    under_every_policy(|plan, label| {
        let gates = [Gate::default(), Gate::default()];
        let ways = [gates[0].way(), gates[1].way()];
        let app = App::new("granted");
        let (sender, numbers) = app.input::<u64>("numbers");
        let work = app.sink("work", move |n: u64| {
            if let Some(way) = ways.get(n as usize) {
                way.pass();
            }
        });
        app.connect(numbers, work);
        let running = app.start(&plan).unwrap();
        running.control().set_capacity("work", 1).unwrap(); // some policies have their own
        sender.send(0).unwrap();
        gates[0].wait_for(1, label);
        sender.send(1).unwrap();
        let (tell, told) = channel();
        let waits = thread(move || {
            let _ = tell.send(sender.send(2));
        });
        until(label, || stage(&running.snapshot(), "work").outboxed == 1);
        gates[0].open();
        gates[1].wait_for(1, label); // it has left the queue, and room with it
        let pushed = told.recv_timeout(BOUND);
        assert_eq!(pushed, Ok(Ok(())), "{label}: room was granted, and nobody said so");
        gates[1].open();
        waits.join().unwrap();
        let summary = ends(label, running);
        assert_eq!(stage(&summary.snapshot, "work").counts.handled, 3, "{label}");
    });
}

/// Gives so many events, as many a pull as it is asked for, and then waits at a gate.
struct Blocks {
    left: usize,
    way: Way,
}

impl Source for Blocks {
    type Item = u64;
    fn pull(&mut self, out: &mut Out<u64>, demand: Demand) -> Result<Pull> {
        if self.left == 0 {
            self.way.pass();
            return Ok(Pull::End);
        }
        let events = demand.events.min(self.left);
        (0..events).for_each(|n| out.send(n as u64));
        self.left -= events;
        Ok(Pull::More)
    }
}

#[test]
fn what_a_source_gave_is_handled_while_its_next_pull_waits() {
    const EVENTS: usize = 50;
    under_every_policy(|plan, label| {
        for capacity in [1, 4] {
            let gate = Gate::default();
            let way = gate.way();
            let app = App::new("merged");
            let work = app.sink("work", |_: u64| ());
            for name in ["one", "two"] {
                let way = way.clone();
                app.connect(app.source(name, move || Blocks { left: EVENTS, way }), work);
            }
            let plan = plan.clone().stage("work", |s| s.capacity(capacity));
            let running = app.start(&plan).unwrap();
            gate.wait_for(2, label);
            until(&format!("{label}, capacity {capacity}: events beside an idle instance"), || {
                handled(&running, "work") == 2 * EVENTS as u64
            });
            gate.open();
            let _ = ends(label, running);
        }
    });
}

/// Has nothing before it is told to go; then waits at a gate, and gives three events.
struct Late {
    go: Arc<AtomicBool>,
    way: Way,
}

impl Source for Late {
    type Item = u64;
    fn pull(&mut self, out: &mut Out<u64>, _: Demand) -> Result<Pull> {
        if !self.go.load(SeqCst) {
            return Ok(Pull::After(Duration::from_millis(1)));
        }
        self.way.pass();
        (0..3).for_each(|n| out.send(n));
        Ok(Pull::More)
    }
}

#[test]
fn a_drain_ends_although_a_source_it_left_brings_events_that_find_no_room() {
    // Not under every policy: a drain waits for a second before it leaves a source.
    let case = |plan: Plan, label: &str| {
        let (source_gate, work_gate) = (Gate::default(), Gate::default());
        let (source_way, work_way) = (source_gate.way(), work_gate.way());
        let go = Arc::new(AtomicBool::new(false));
        let goes = go.clone();
        let app = App::new("left");
        let late = app.source("late", move || Late { go: goes, way: source_way });
        let (sender, numbers) = app.input::<u64>("numbers");
        let work = app.sink("work", move |_: u64| work_way.pass());
        app.connect(late, work);
        app.connect(numbers, work);
        let running = app.start(&plan).unwrap();
        running.control().set_capacity("work", 1).unwrap(); // some policies have their own
        sender.send(0).unwrap();
        work_gate.wait_for(1, label);
        sender.send(1).unwrap(); // now the queue is full, and stays so
        go.store(true, SeqCst);
        source_gate.wait_for(1, label);
        let work = |running: &Running| stage(&running.snapshot(), "work").clone();
        running.close();
        until(&format!("{label}: the source is left"), || stage(&running.snapshot(), "late").ended);
        source_gate.open();
        until(&format!("{label}: what it brought is offered"), || {
            work(&running).counts.offered >= 3
        });
        work_gate.open();
        let summary = ends(label, running);
        assert_eq!(summary.ended, Ended::Drained, "{label}\n{summary}");
        assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
        assert!(stage(&summary.snapshot, "work").counts.handled >= 2, "{label}\n{summary}");
    };
    for (policy, threads) in [("stealing", 1), ("stealing", 4), ("single", 2), ("seda", 2)] {
        under(policy, threads, case);
    }
}

#[test]
fn a_chain_that_was_quick_goes_on_when_the_worker_that_has_its_token_is_stuck_in_another() {
    /// So large that to move it costs more than to handle it, also without optimisation.
    type Large = [u64; 256];
    const STUCK_AT: u64 = 2_000;
    // Others may prefer one chain for as long as it has events.
    under_policies(
        |policy| policy == "stealing",
        |plan, label| {
            let gate = Gate::default();
            let (way, handled) = (gate.way(), Arc::new(AtomicU64::new(0)));
            let count = handled.clone();
            let app = App::new("chains");
            // By then both are known to be quick, so that nobody takes their tokens from the worker that has them.
            let stuck = app.sink("stuck", move |large: Large| {
                if large[0] == STUCK_AT {
                    way.pass();
                }
            });
            app.connect_local(app.source("to-stuck", || (0..).map(|n| [n; 256])), stuck);
            let quick = app.sink("quick", move |_: Large| {
                count.fetch_add(1, SeqCst);
            });
            app.connect_local(app.source("to-quick", || (0..).map(|n| [n; 256])), quick);
            let running = app.start(&plan).unwrap();
            gate.wait_for(1, label);
            let before = handled.load(SeqCst);
            until(&format!("{label}: the other chain goes on"), || {
                handled.load(SeqCst) > before + 1_000
            });
            gate.open();
            let summary = running.stop();
            assert!(summary.snapshot.adds_up(), "{label}\n{summary}");
        },
    );
}
