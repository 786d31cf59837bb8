//! What a visit costs: batches of one event on one thread, so that every event pays for a visit at every stage of
//! its way. Counted in instructions, and timed beside it, as the difference between a long chain of stages and a
//! short one: source, sink, start and end are the same for both.
//! Where there is no valgrind only the times are given.

use super::program::stage_name;
use crate::instructions::{Operation, each};
use crate::load::{BenchEvent as _, CAPACITY, Event64, Source, Work, handle};
use crate::options::Options;
use crate::report::{Report, Table};
use crate::rounds::interleave;
use crate::stats::{median, quantile};
use comporta::{App, Out, Plan, Port, Ports};
use std::hint::black_box;
use std::time::Instant;

pub(super) const CASE: &str = "visit";

/// A kind of stage that a chain is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    InPlace,
    Taking,
    TwoPort,
    Ordered,
}

/// A chain of which a visit is counted.
struct Chain {
    name: &'static str,
    about: &'static str,
    kind: Kind,
    policy: &'static str,
    /// Whether the worst of these is what `visit_instructions` gives.
    counts: bool,
}

const CHAINS: [Chain; 5] = [
    Chain {
        name: "in_place",
        about: "events are changed in place",
        kind: Kind::InPlace,
        policy: "stealing",
        counts: true,
    },
    Chain {
        name: "taking",
        about: "events are taken and sent",
        kind: Kind::Taking,
        policy: "stealing",
        counts: true,
    },
    Chain {
        name: "two_port",
        about: "two ports in turn, both into the next queue",
        kind: Kind::TwoPort,
        policy: "stealing",
        counts: true,
    },
    Chain {
        name: "ordered",
        about: "ordered, two instances",
        kind: Kind::Ordered,
        policy: "stealing",
        counts: true,
    },
    Chain {
        name: "srpt",
        about: "changed in place, under `srpt`",
        kind: Kind::InPlace,
        policy: "srpt",
        counts: false,
    },
];

const SHORT: usize = 3;
const LONG: usize = 13;
/// Stages that a long chain has more than a short one.
const MORE: f64 = (LONG - SHORT) as f64;

/// A short and a long chain for each of `CHAINS`, in their order.
pub(super) const OPERATIONS: [Operation; 10] = [
    operation("in_place_3", |n| run_chain(&CHAINS[0], SHORT, n)),
    operation("in_place_13", |n| run_chain(&CHAINS[0], LONG, n)),
    operation("taking_3", |n| run_chain(&CHAINS[1], SHORT, n)),
    operation("taking_13", |n| run_chain(&CHAINS[1], LONG, n)),
    operation("two_port_3", |n| run_chain(&CHAINS[2], SHORT, n)),
    operation("two_port_13", |n| run_chain(&CHAINS[2], LONG, n)),
    operation("ordered_3", |n| run_chain(&CHAINS[3], SHORT, n)),
    operation("ordered_13", |n| run_chain(&CHAINS[3], LONG, n)),
    operation("srpt_3", |n| run_chain(&CHAINS[4], SHORT, n)),
    operation("srpt_13", |n| run_chain(&CHAINS[4], LONG, n)),
];

const fn operation(name: &'static str, run: fn(u64)) -> Operation {
    Operation { name, about: "an event through a chain, a batch of its own at every stage", run }
}

/// Events of a counted process, and of one with ten times as many more.
const FEW: u64 = 1_000;
/// Events of a timed run.
const TIMED: u64 = 20_000;
const TIMED_QUICK: u64 = 5_000;

pub(super) fn run(options: &Options, report: &mut Report) {
    println!(
        "\nvisit: of one event, one thread; a chain of {LONG} stages less one of {SHORT}, for each stage"
    );
    let times = times(options);
    let mut table = Table::new(&["chain", "instructions", "ns", "p10 .. p90", "meaning"]);
    let mut worst: Option<f64> = None;
    let mut slowest: f64 = 0.0;
    for ((chain, ns), pair) in CHAINS.iter().zip(&times).zip(OPERATIONS.chunks(2)) {
        let instructions = instructions(pair);
        let (middle, p10, p90) = (median(ns), quantile(ns, 0.1), quantile(ns, 0.9));
        if let Some(each) = instructions {
            report.figure(format!("visit_instructions_{}", chain.name), each);
        }
        report.figure(format!("visit_ns_{}", chain.name), middle);
        if chain.counts {
            worst = instructions.map(|each| worst.map_or(each, |worst| worst.max(each))).or(worst);
            slowest = slowest.max(middle);
        }
        table.row([
            chain.name.into(),
            instructions.map_or("-".into(), |each| format!("{each:.0}")),
            format!("{middle:.0}"),
            format!("{p10:.0} .. {p90:.0}"),
            chain.about.into(),
        ]);
    }
    table.print();
    report.figure("visit_ns", slowest);
    match worst {
        Some(worst) => report.figure("visit_instructions", worst),
        None => println!("valgrind is not there, or did not count: instructions are not given"),
    }
}

/// The instructions of a visit, by the operations of a short and a long chain.
fn instructions(pair: &[Operation]) -> Option<f64> {
    let [short, long] = pair else { return None };
    Some((each("scale", long.name, FEW)? - each("scale", short.name, FEW)?) / MORE)
}

/// The nanoseconds of a visit of each chain, round by round.
fn times(options: &Options) -> Vec<Vec<f64>> {
    let events = if options.quick { TIMED_QUICK } else { TIMED };
    let runs: Vec<_> = CHAINS.iter().flat_map(|chain| [(chain, SHORT), (chain, LONG)]).collect();
    let series = interleave(&runs, options.rounds, options.seed, CASE, |(chain, stages), _| {
        let began = Instant::now();
        run_chain(chain, *stages, events);
        began.elapsed().as_nanos() as f64 / events as f64
    });
    let visit = |(short, long): (&f64, &f64)| (long - short) / MORE;
    let pairs = series.chunks(2).map(|pair| (&pair[0].samples, &pair[1].samples));
    pairs.map(|(short, long)| short.iter().zip(long).map(visit).collect()).collect()
}

/// Runs `events` through a chain of so many stages.
fn run_chain(chain: &Chain, stages: usize, events: u64) {
    let app = App::new("visit");
    let mut from = vec![app.source("source", move || Source::<Event64>::new(0..events))];
    for number in 0..stages {
        from = chain.kind.add(&app, stage_name(number), &from);
    }
    let sink = app.sink("sink", |event: Event64| {
        black_box(event);
    });
    from.into_iter().for_each(|port| app.connect(port, sink));
    let plan = Plan::new().threads(1).policy(chain.policy);
    let mut plan = plan.every(|stage| stage.capacity(CAPACITY).batch(1));
    if chain.kind == Kind::Ordered {
        for number in 0..stages {
            plan = plan.stage(stage_name(number), |stage| stage.instances(2));
        }
    }
    let summary = app.run(&plan).expect("the program is a valid graph");
    assert!(summary.snapshot.adds_up(), "{summary}");
    let mut counts = summary.snapshot.stages.iter().map(|stage| stage.counts);
    assert!(counts.all(|counts| counts.visits >= events), "a visit had several events: {summary}");
}

/// The ports of a stage that sorts events by their numbers.
#[derive(Ports)]
struct Sorted {
    even: Out<Event64>,
    odd: Out<Event64>,
}

fn touched(mut event: Event64) -> Event64 {
    handle(&mut event, Work::TRIVIAL);
    event
}

/// What `map` does where its types differ.
fn take_and_send(event: Event64, out: &mut Out<Event64>) {
    out.send(touched(event));
}

impl Kind {
    /// Adds a stage of this kind after `from`. Returns its ports.
    fn add(self, app: &App, name: String, from: &[Port<Event64>]) -> Vec<Port<Event64>> {
        match self {
            Kind::InPlace => {
                let touch = |event: &mut Event64| handle(event, Work::TRIVIAL);
                let stage = app.map_in_place(name, touch);
                from.iter().for_each(|port| app.connect(*port, stage));
                vec![*stage]
            }
            Kind::Taking => {
                let stage = app.process(name, take_and_send);
                from.iter().for_each(|port| app.connect(*port, stage));
                vec![*stage]
            }
            Kind::Ordered => {
                let stage = app.process(name, take_and_send).ordered();
                from.iter().for_each(|port| app.connect(*port, stage));
                vec![*stage]
            }
            Kind::TwoPort => {
                let stage = app.stage(name, |event: Event64, out: &mut Sorted| {
                    let event = touched(event);
                    if event.seq().is_multiple_of(2) {
                        out.even.send(event);
                    } else {
                        out.odd.send(event);
                    }
                });
                from.iter().for_each(|port| app.connect(*port, stage));
                vec![stage.even, stage.odd]
            }
        }
    }
}
