//! The one program that `scale` makes larger: a source, a chain of stages, and its end copied to
//! sinks. Timed from the first event the source makes to the last one a sink takes, so that neither
//! building, starting nor stopping the program counts.

use crate::load::{
    BATCH, BenchEvent, CAPACITY, Case, Event64, Outcome, Source, Work, expected_checksum, handle,
};
use crate::peers::comporta::collect;
use comporta::{App, Plan, Port, Running, Sender, Snapshot};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What can grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) stages: usize,
    pub(super) work: Work,
    /// Of each stage of the chain.
    pub(super) instances: usize,
    /// Sinks that get a copy of every event each.
    pub(super) sinks: usize,
    pub(super) threads: usize,
    pub(super) policy: &'static str,
}

impl Program {
    /// Queues an event crosses on its way to one sink.
    pub(super) fn hops(&self) -> usize {
        self.stages + 1
    }

    /// Runs `events` through it; also says how many of them a visit handled in the mean. Whether they all came is asserted; whether their content is right
    /// is for the caller to compare with [`checksum`](Self::checksum).
    pub(super) fn run(&self, events: u64) -> (Outcome, f64) {
        let app = App::new("scale");
        let first = Arc::new(OnceLock::new());
        let source = Stamped { events: Source::new(0..events), first: Some(Arc::clone(&first)) };
        let end = self.chain(&app, app.source("source", move || source));
        let ordered = self.instances == 1;
        let backs: Vec<_> = (0..self.sinks)
            .map(|sink| {
                let arrivals = Arrivals { left: events, ordered, ..Arrivals::default() };
                collect(&app, format!("sink{sink}"), end, arrivals, Arrivals::accept)
            })
            .collect();
        let summary = app.start(&self.plan()).expect("the program is a valid graph").wait();
        assert!(summary.snapshot.adds_up(), "{summary}");
        let first = *first.get().expect("the source was pulled");
        let sinks = backs.into_iter().map(|back| back.recv().expect("the sink finishes"));
        let none = Outcome { elapsed: Duration::ZERO, events, checksum: 0 };
        let outcome = sinks.fold(none, |all, sink| Outcome {
            elapsed: all.elapsed.max(sink.last().duration_since(first)),
            checksum: all.checksum.wrapping_add(sink.checksum),
            ..all
        });
        (outcome, events_per_visit(&summary.snapshot))
    }

    /// What the checksums of all sinks must add up to.
    pub(super) fn checksum(&self, events: u64) -> u64 {
        let Program { stages, work, threads, .. } = *self;
        let one = expected_checksum::<Event64>(&Case { stages, work, threads, events });
        one.wrapping_mul(self.sinks as u64)
    }

    /// Starts it with an input that nobody pushes into. Dropping either half ends it.
    pub(super) fn idle(&self) -> (Sender<Event64>, Running) {
        let app = App::new("idle");
        let (sender, input) = app.input::<Event64>("input");
        let end = self.chain(&app, input);
        for sink in 0..self.sinks {
            let sink = app.sink(format!("sink{sink}"), drop::<Event64>);
            app.connect(end, sink);
        }
        (sender, app.start(&self.plan()).expect("the program is a valid graph"))
    }

    fn chain(&self, app: &App, mut from: Port<Event64>) -> Port<Event64> {
        let work = self.work;
        for number in 0..self.stages {
            let stage =
                app.map_in_place(stage_name(number), move |event: &mut _| handle(event, work));
            app.connect(from, stage);
            from = *stage;
        }
        from
    }

    fn plan(&self) -> Plan {
        let plan = Plan::new().threads(self.threads).policy(self.policy);
        let plan = plan.every(|stage| stage.capacity(CAPACITY).batch(BATCH));
        if self.instances == 1 {
            return plan;
        }
        (0..self.stages).fold(plan, |plan, number| {
            plan.stage(stage_name(number), |stage| stage.instances(self.instances))
        })
    }
}

fn events_per_visit(snapshot: &Snapshot) -> f64 {
    let stages = snapshot.stages.iter().map(|stage| stage.counts);
    let (handled, visits) = stages
        .filter(|counts| counts.handled > 0) // not the source
        .fold((0, 0), |(handled, visits), counts| {
            (handled + counts.handled, visits + counts.visits)
        });
    handled as f64 / visits as f64
}

pub(super) fn stage_name(number: usize) -> String {
    format!("stage{number}")
}

/// The source, which notes when it made its first event.
struct Stamped {
    events: Source<Event64>,
    first: Option<Arc<OnceLock<Instant>>>,
}

impl Iterator for Stamped {
    type Item = Event64;
    #[inline]
    fn next(&mut self) -> Option<Event64> {
        if let Some(first) = self.first.take() {
            first.get_or_init(Instant::now);
        }
        self.events.next()
    }
}

/// A sink like `load::Sink`, but for events that may overtake each other where a stage has several
/// instances: it counts them, and asserts the order only where there is one.
#[derive(Default)]
struct Arrivals {
    left: u64,
    ordered: bool,
    seen: u64,
    checksum: u64,
    last: Option<Instant>,
}

impl Arrivals {
    #[inline(never)]
    fn accept(&mut self, event: &Event64) {
        assert!(!self.ordered || event.seq() == self.seen, "{} came early", event.seq());
        assert!(self.left > 0, "more events came than were sent");
        self.left -= 1;
        self.seen += 1;
        self.checksum = self.checksum.wrapping_add(event.digest());
        if self.left == 0 {
            self.last = Some(Instant::now());
        }
    }

    fn last(&self) -> Instant {
        self.last.unwrap_or_else(|| panic!("{} events never came", self.left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Program = Program {
        stages: 3,
        work: Work::TRIVIAL,
        instances: 1,
        sinks: 1,
        threads: 2,
        policy: "single",
    };

    #[test]
    fn every_shape_delivers_every_event_to_every_sink() {
        let shapes = [
            SMALL,
            Program { stages: 100, ..SMALL },
            Program { stages: 1, instances: 16, policy: "stealing", ..SMALL },
            Program { stages: 0, sinks: 64, policy: "stealing", ..SMALL },
            Program { threads: 16, policy: "stealing", ..SMALL },
        ];
        for shape in shapes {
            let (outcome, events_per_visit) = shape.run(5000); // more than a queue holds
            assert_eq!(outcome.checksum, shape.checksum(5000), "{shape:?}");
            assert!((1.0..=BATCH as f64).contains(&events_per_visit), "{events_per_visit}");
        }
    }

    #[test]
    #[should_panic(expected = "2 came early")]
    fn overtaking_is_noticed_where_there_is_an_order() {
        let mut sink = Arrivals { left: 3, ordered: true, ..Arrivals::default() };
        sink.accept(&Event64::make(0));
        sink.accept(&Event64::make(2));
    }

    #[test]
    #[should_panic(expected = "1 events never came")]
    fn missing_events_have_no_time() {
        let mut sink = Arrivals { left: 2, ..Arrivals::default() };
        sink.accept(&Event64::make(1));
        sink.last();
    }
}
