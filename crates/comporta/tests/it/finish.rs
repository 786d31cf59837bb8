//! The end of a stage: what it sends after its last event arrives like everything else.

use comporta::{App, Cx, Ended, Ev, Out, Plan, Result, Stage};

/// Keeps what it takes, and sends it at the end.
#[derive(Clone, Default)]
struct Keep(Vec<u64>);

impl Stage for Keep {
    type In = u64;
    type Ports = Out<u64>;
    fn handle(&mut self, n: Ev<'_, u64>, _: &mut Out<u64>, _: &Cx) -> Result {
        self.0.push(*n);
        Ok(())
    }
    fn finish(&mut self, out: &mut Out<u64>, _: &Cx) -> Result {
        self.0.drain(..).for_each(|n| out.send(n));
        Ok(())
    }
}

fn kept_and_sent(emit_max: usize) -> comporta::Summary {
    let app = App::new("keep");
    let numbers = app.source("numbers", || 0..5_000u64);
    let keep = app.stage("keep", Keep::default()).stateful();
    let sink = app.sink("sink", |_: u64| ());
    app.connect(numbers, keep);
    app.connect(keep, sink);
    let plan = Plan::new().threads(2).stage("keep", |s| s.emit_max(emit_max));
    app.run(&plan).unwrap()
}

#[test]
fn what_a_stage_sends_at_its_end_arrives() {
    let summary = kept_and_sent(5_000);
    assert_eq!(summary.ended, Ended::Complete);
    assert!(summary.problems.is_empty(), "{summary}");
    assert_eq!(summary.snapshot.stage("sink").unwrap().counts.handled, 5_000);
}

#[test]
fn a_stage_that_sends_more_than_emit_max_at_its_end_is_reported_and_sends_nothing() {
    let summary = kept_and_sent(1_000);
    assert_eq!(summary.ended, Ended::Complete);
    assert_eq!(
        summary.problems,
        ["`keep` could not finish: emitted more than 1000 events (emit_max)"]
    );
    assert_eq!(summary.snapshot.stage("sink").unwrap().counts.handled, 0);
    assert!(summary.snapshot.adds_up(), "{summary}");
}
