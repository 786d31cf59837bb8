//! What it costs to write a change of an event one way or the other: in place, by a closure that takes and returns it, by
//! a function that is not inlined, and through a port. Nanoseconds for each event and stage, one thread, as the
//! difference between a long chain of stages and a short one: source, sink, start and end are the same for both.

use super::program::stage_name;
use crate::load::{BATCH, BenchEvent as _, CAPACITY, Event64, Source};
use crate::options::Options;
use crate::report::{Report, Table};
use crate::rounds::interleave;
use crate::stats::{median, quantile};
use comporta::{App, Out, Plan, Port};
use std::hint::black_box;
use std::time::Instant;

pub(super) const CASE: &str = "verbs";

/// A way to write it: its name, and how it adds a stage after `from`.
struct Verb {
    name: &'static str,
    about: &'static str,
    add: fn(&App, String, Port<Event64>) -> Port<Event64>,
}

const VERBS: [Verb; 4] = [
    Verb {
        name: "map_in_place",
        about: "a closure that is lent the event",
        add: |app, name, from| {
            let stage = app.map_in_place(name, Event64::touch);
            app.connect(from, stage);
            *stage
        },
    },
    Verb {
        name: "map",
        about: "a closure that takes and returns it",
        add: |app, name, from| {
            let stage = app.map(name, |mut event: Event64| {
                event.touch();
                event
            });
            app.connect(from, stage);
            *stage
        },
    },
    Verb {
        name: "map_function",
        about: "a function that does, and is not inlined",
        add: |app, name, from| {
            let stage = app.map(name, touched);
            app.connect(from, stage);
            *stage
        },
    },
    Verb {
        name: "process",
        about: "a closure that sends it through a port",
        add: |app, name, from| {
            let stage = app.process(name, |mut event: Event64, out: &mut Out<Event64>| {
                event.touch();
                out.send(event);
            });
            app.connect(from, stage);
            *stage
        },
    },
];

#[inline(never)]
fn touched(mut event: Event64) -> Event64 {
    event.touch();
    event
}

const SHORT: usize = 3;
const LONG: usize = 13;
/// Events of a run.
const EVENTS: u64 = 2_000_000;
const EVENTS_QUICK: u64 = 500_000;

pub(super) fn run(options: &Options, report: &mut Report) {
    let events = if options.quick { EVENTS_QUICK } else { EVENTS };
    let runs: Vec<_> = VERBS.iter().flat_map(|verb| [(verb, SHORT), (verb, LONG)]).collect();
    let series = interleave(&runs, options.rounds, options.seed, CASE, |(verb, stages), _| {
        let began = Instant::now();
        run_chain(verb, *stages, events);
        began.elapsed().as_nanos() as f64 / events as f64
    });
    println!(
        "\nverbs: of an event of {} bytes, one thread; a chain of {LONG} stages less one of {SHORT}, for each stage",
        size_of::<Event64>()
    );
    let mut table = Table::new(&["verb", "ns", "p10 .. p90", "meaning"]);
    for (verb, pair) in VERBS.iter().zip(series.chunks(2)) {
        let pairs = pair[0].samples.iter().zip(&pair[1].samples);
        let ns: Vec<f64> =
            pairs.map(|(short, long)| (long - short) / (LONG - SHORT) as f64).collect();
        let (middle, p10, p90) = (median(&ns), quantile(&ns, 0.1), quantile(&ns, 0.9));
        report.figure(format!("verb_ns_{}", verb.name), middle);
        table.row([
            verb.name.into(),
            format!("{middle:.1}"),
            format!("{p10:.1} .. {p90:.1}"),
            verb.about.into(),
        ]);
    }
    table.print();
}

fn run_chain(verb: &Verb, stages: usize, events: u64) {
    let app = App::new("verbs");
    let source = app.source("source", move || Source::<Event64>::new(0..events));
    let end = (0..stages).fold(source, |from, number| (verb.add)(&app, stage_name(number), from));
    let sink = app.sink("sink", |event: Event64| {
        black_box(event);
    });
    app.connect(end, sink);
    let plan = Plan::new().threads(1).every(|stage| stage.capacity(CAPACITY).batch(BATCH));
    let summary = app.run(&plan).expect("the program is a valid graph");
    assert!(summary.snapshot.adds_up(), "{summary}");
}
