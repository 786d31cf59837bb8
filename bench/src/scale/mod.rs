//! `scale`: Comporta against itself, as a program grows along one axis at a time: stages,
//! instances, threads, sinks; what an idle stage holds in memory, and what a visit costs.
//!
//! 1. `program`  the program that grows, and its timing
//! 2. `memory`   what it holds when idle
//! 3. `visit`    a visit of one event, in instructions
//! 4. `verbs`    an event in a batch, as a handler may be written
//!
//! The points of an axis are the "peers" here: they run in turn, round by round, and each is set
//! against the axis's base in the same round. A run is sized to last `RUN_TARGET`, or to have `EVENTS_MIN` events. With 10,000
//! stages that is some hundred chunks on their way at once, not one in every queue: filling a
//! chain of ten thousand would take minutes.

mod program;
mod memory;
mod visit;
mod verbs;

use crate::instructions::is_counted_process;
use crate::load::{BATCH, Outcome, Work};
use crate::options::Options;
use crate::report::{Bar, Better, Limit, Report, Table, show_ratio};
use crate::rounds::{Series, interleave};
use crate::spin;
use crate::stats::{Ratio, median, quantile};
use program::Program;
use std::time::Duration;

pub(crate) const ABOUT: &str =
    "cost of a hop and of a visit, and memory, as stages, instances and threads grow";

const BARS: &[Bar] = &[
    Bar {
        name: "cost_10000_vs_10",
        limit: Limit::AtMost(3.0),
        about: "ns per event and hop in a chain of 10,000 stages, against one of 10",
    },
    Bar {
        name: "bytes_per_idle_stage",
        limit: Limit::AtMost(4096.0),
        about: "heap of a started stage that has seen no event",
    },
    Bar {
        name: "visit_instructions",
        limit: Limit::AtMost(1_200.0),
        about: "instructions of a visit of one event, the worst of four chains",
    },
];

/// How long one run should last.
const RUN_TARGET: Duration = Duration::from_millis(100);
const RUN_TARGET_QUICK: Duration = Duration::from_millis(50);
/// Handler calls of the first sizing run, as far as `EVENTS_MIN` allows.
const WARM_UP_CALLS: usize = 200_000;
/// Bounds of a run. A source is asked for a batch at once after some 16,000 events that came quickly, and for fewer before:
/// that is to be the lesser part of a run, as long as the chain may be.
const EVENTS_MIN: u64 = 128 * BATCH as u64;
const EVENTS_MAX: u64 = 20_000_000;
/// Threads of the `instances` axis: two, whatever the machine has, so that 16 instances are many.
const INSTANCES_THREADS: usize = 2;

/// One axis along which a program grows.
struct Axis {
    name: &'static str,
    about: &'static str,
    points: &'static [usize],
    /// The point that the others are set against.
    base: usize,
    /// What the JSON fields begin with: `<field>_<point>_vs_<base>`.
    field: &'static str,
    /// What the time of an event is divided by.
    unit: Unit,
    /// Handlers burn a microsecond each.
    slow: bool,
    grow: fn(Program, usize) -> Program,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Event,
    Hop,
    Delivery,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Event => "ns/event",
            Unit::Hop => "ns/event/hop",
            Unit::Delivery => "ns/delivery",
        }
    }

    fn per_event(self, program: &Program) -> usize {
        match self {
            Unit::Event => 1,
            Unit::Hop => program.hops(),
            Unit::Delivery => program.sinks,
        }
    }
}

const AXES: [Axis; 5] = [
    Axis {
        name: "stages",
        about: "a chain of trivial stages, one ready queue (policy `single`)",
        points: &[3, 10, 100, 1_000, 10_000],
        base: 10,
        field: "cost",
        unit: Unit::Hop,
        slow: false,
        grow: |program, stages| Program { stages, policy: "single", ..program },
    },
    Axis {
        name: "instances",
        about: "instances of one stage of 1 µs, on two threads",
        points: &[1, 2, 4, 8, 16],
        base: 1,
        field: "instances",
        unit: Unit::Event,
        slow: true,
        grow: |program, instances| Program {
            stages: 1,
            instances,
            threads: INSTANCES_THREADS,
            ..program
        },
    },
    Axis {
        name: "threads_trivial",
        about: "threads under 3 trivial stages",
        points: &[1, 2, 4, 8, 16],
        base: 1,
        field: "threads_trivial",
        unit: Unit::Event,
        slow: false,
        grow: |program, threads| Program { threads, ..program },
    },
    Axis {
        name: "threads_1us",
        about: "threads under 3 stages of 1 µs",
        points: &[1, 2, 4, 8, 16],
        base: 1,
        field: "threads_1us",
        unit: Unit::Event,
        slow: true,
        grow: |program, threads| Program { threads, ..program },
    },
    Axis {
        name: "fanout",
        about: "sinks that get a copy of every event each",
        points: &[1, 2, 4, 16, 64],
        base: 1,
        field: "fanout",
        unit: Unit::Delivery,
        slow: false,
        grow: |program, sinks| Program { stages: 0, sinks, ..program },
    },
];

const MEMORY: &str = "memory";

impl Axis {
    fn ratio_field(&self, point: usize) -> String {
        format!("{}_{point}_vs_{}", self.field, self.base)
    }
}

/// A point of an axis, with its run sized.
struct Entrant {
    point: usize,
    program: Program,
    events: u64,
    checksum: u64,
}

/// One run.
struct Sample {
    /// By the axis's unit.
    ns: f64,
    /// Far below the batch, the program pays per event what it should pay per visit.
    events_per_visit: f64,
}

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("scale", options, BARS);
    if is_counted_process(&visit::OPERATIONS) {
        return report;
    }
    let microsecond = spin::one_microsecond();
    report.figure("spins_per_us", f64::from(microsecond.spins));
    println!(
        "scale: {} rounds, {} threads unless said otherwise, queues of {} events, batches of \
         {BATCH}, 1 µs = {} spins",
        options.rounds,
        options.threads,
        crate::load::CAPACITY,
        microsecond.spins
    );
    let program = Program {
        stages: 3,
        work: Work::TRIVIAL,
        instances: 1,
        sinks: 1,
        threads: options.threads,
        policy: "stealing",
    };
    // First: what the axes leave free in the heap would blur the resident figure.
    if options.takes_case(MEMORY) {
        memory::run(program, &mut report);
    }
    if options.takes_case(visit::CASE) {
        visit::run(options, &mut report);
    }
    if options.takes_case(verbs::CASE) {
        verbs::run(options, &mut report);
    }
    for axis in AXES.iter().filter(|axis| options.takes_case(axis.name)) {
        let work = if axis.slow { microsecond } else { Work::TRIVIAL };
        let program = Program { work, ..program };
        let entrants: Vec<Entrant> = axis
            .points
            .iter()
            .map(|&point| enter(point, (axis.grow)(program, point), options))
            .collect();
        let series =
            interleave(&entrants, options.rounds, options.seed, axis.name, |entrant, _| {
                let (outcome, events_per_visit) = entrant.program.run(entrant.events);
                assert_eq!(outcome.checksum, entrant.checksum, "events were changed or lost");
                let parts = entrant.events * axis.unit.per_event(&entrant.program) as u64;
                Sample { ns: outcome.elapsed.as_nanos() as f64 / parts as f64, events_per_visit }
            });
        tell(axis, &entrants, &series, options, &mut report);
    }
    report.close();
    report
}

/// Sizes the runs of a point by two runs: the first is too short for a long chain to be told by.
fn enter(point: usize, program: Program, options: &Options) -> Entrant {
    let target = if options.quick { RUN_TARGET_QUICK } else { RUN_TARGET };
    let calls = program.hops() * program.sinks;
    let warm_up = (WARM_UP_CALLS / calls) as u64;
    let first = sized(&program.run(warm_up.max(EVENTS_MIN)).0, target / 2);
    let events = sized(&program.run(first).0, target);
    Entrant { point, program, events, checksum: program.checksum(events) }
}

fn sized(warm_up: &Outcome, target: Duration) -> u64 {
    let per_event = warm_up.elapsed.as_secs_f64() / warm_up.events as f64;
    let events = (target.as_secs_f64() / per_event) as u64;
    events.next_multiple_of(BATCH as u64).clamp(EVENTS_MIN, EVENTS_MAX)
}

/// Prints the table of one axis and files its figures.
fn tell(
    axis: &Axis,
    entrants: &[Entrant],
    series: &[Series<Sample>],
    options: &Options,
    report: &mut Report,
) {
    let base = axis.points.iter().position(|point| *point == axis.base);
    let against = format!("cost/{}", axis.base);
    let head = [
        axis.name,
        axis.unit.name(),
        "p10 .. p90",
        &against,
        "events/visit",
        "events/run",
        "others",
    ];
    let mut table = Table::new(&head);
    for (place, (entrant, samples)) in entrants.iter().zip(series).enumerate() {
        let ns = samples.figures(|sample| sample.ns);
        let (middle, p10, p90) = (median(&ns), quantile(&ns, 0.1), quantile(&ns, 0.9));
        let per_visit = median(&samples.figures(|sample| sample.events_per_visit));
        let ratio = base.filter(|&base| base != place).map(|base| {
            Ratio::paired(&ns, &series[base].figures(|sample| sample.ns), options.seed)
        });
        if let Some(ratio) = &ratio {
            report.ratio(&axis.ratio_field(entrant.point), ratio, Better::Less);
        }
        let figures = [
            ("ns", middle),
            ("ns_p10", p10),
            ("ns_p90", p90),
            ("events_per_visit", per_visit),
            ("events_per_run", entrant.events as f64),
            ("others_cpu_percent", samples.others_cpu_percent),
        ];
        report.detail(axis.name, &entrant.point.to_string(), &figures);
        table.row([
            entrant.point.to_string(),
            format!("{middle:.2}"),
            format!("{p10:.2} .. {p90:.2}"),
            ratio.as_ref().map_or("-".into(), show_ratio),
            format!("{per_visit:.0}"),
            entrant.events.to_string(),
            format!("{:.0} %", samples.others_cpu_percent),
        ]);
    }
    println!("\n{}: {}", axis.name, axis.about);
    table.print();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_names_a_field_that_is_filed() {
        for bar in BARS {
            let filed = ["bytes_per_idle_stage", "visit_instructions"].contains(&bar.name)
                || AXES.iter().any(|axis| {
                    let others = axis.points.iter().filter(|point| **point != axis.base);
                    others.into_iter().any(|&point| axis.ratio_field(point) == bar.name)
                });
            assert!(filed, "{} is never filed", bar.name);
        }
    }

    #[test]
    fn every_axis_runs_its_base() {
        for axis in &AXES {
            assert!(axis.points.contains(&axis.base), "{}", axis.name);
        }
    }

    #[test]
    fn runs_are_sized_to_the_target_in_whole_chunks_within_their_bounds() {
        let took = |elapsed| Outcome { elapsed, events: 1000, checksum: 0 };
        let target = Duration::from_millis(100);
        assert_eq!(sized(&took(Duration::from_millis(1)), target), 100_352);
        assert_eq!(sized(&took(Duration::from_secs(1)), target), EVENTS_MIN);
        assert_eq!(sized(&took(Duration::from_nanos(1)), target), EVENTS_MAX);
    }
}
