//! `pipeline`: source, 3 or 10 stages, sink; events per second, ours over each peer.
//! Every peer delivers every event once and in order (asserted at the sink), in bounded memory
//! (`load::CAPACITY` events a queue), without persistence.
//!
//! A peer's run is sized to last `RUN_TARGET` by a warm-up run: at equal counts the fastest peer
//! would finish within a scheduler tick of where it began. Figures are per event.

use crate::alloc;
use crate::load::{BATCH, Case, Event64, Outcome, Work, expected_checksum};
use crate::options::Options;
use crate::peers::{self, PipelinePeer};
use crate::report::{Bar, Better, Limit, Report, Table, show_ratio};
use crate::rounds::{Series, interleave};
use crate::spin;
use crate::stats::{Ratio, median, quantile};
use crate::two_threads;
use std::time::Duration;

pub(crate) const ABOUT: &str = "throughput of source -> 3 and 10 stages -> sink, against each peer";

const BARS: &[Bar] = &[
    Bar {
        name: "vs_tokio_vec",
        limit: Limit::AtLeast(1.0),
        about: "3 trivial stages, against Vec batches through tokio mpsc",
    },
    Bar {
        name: "vs_timely",
        limit: Limit::AtLeast(1.0),
        about: "3 trivial stages, against timely-dataflow",
    },
    Bar {
        name: "vs_rayon_fused",
        limit: Limit::AtLeast(0.8),
        about: "3 trivial stages, against one fused parallel pass",
    },
    Bar {
        name: "vs_tokio_mpsc",
        limit: Limit::AtLeast(18.0),
        about: "3 trivial stages, against an event per tokio message",
    },
    Bar {
        name: "vs_tokio_mpsc_10",
        limit: Limit::AtLeast(15.0),
        about: "10 trivial stages, against an event per tokio message",
    },
    Bar {
        name: "vs_two_loops",
        limit: Limit::AtLeast(0.95),
        about: "3 stages of 1 µs, against the machine's ceiling",
    },
    Bar {
        name: "two_threads_vs_one",
        limit: Limit::AtLeast(0.97),
        about: "3 trivial stages: a second thread is not in the way",
    },
    Bar {
        name: "two_threads_vs_one_10",
        limit: Limit::AtLeast(0.97),
        about: "10 trivial stages: a second thread is not in the way",
    },
    Bar {
        name: "two_threads_vs_one_1us",
        limit: Limit::AtLeast(1.8),
        about: "3 stages of 1 µs: a second thread pays",
    },
    Bar {
        name: "two_threads_100ns_vs_pinned",
        limit: Limit::AtLeast(0.9),
        about: "3 stages of 100 ns, against the best split by hand over two threads",
    },
];

/// How long one run of one peer should last.
const RUN_TARGET: Duration = Duration::from_millis(150);
const RUN_TARGET_QUICK: Duration = Duration::from_millis(40);
/// Events of the sizing run.
pub(crate) const WARM_UP_EVENTS: u64 = 20_000;
/// Bounds of a sized run.
const EVENTS_MIN: u64 = 10_000;
const EVENTS_MAX: u64 = 20_000_000;

/// One comparison.
struct Matchup {
    name: &'static str,
    /// What distinguishes its JSON fields: `vs_<peer><suffix>`.
    suffix: &'static str,
    stages: usize,
    /// Handlers burn a microsecond each.
    slow: bool,
    /// `String` events instead of `Event64`.
    text: bool,
}

#[rustfmt::skip]
const MATCHUPS: [Matchup; 6] = [
    Matchup { name: "3_trivial_event64", suffix: "", stages: 3, slow: false, text: false },
    Matchup { name: "10_trivial_event64", suffix: "_10", stages: 10, slow: false, text: false },
    Matchup { name: "3_1us_event64", suffix: "_1us", stages: 3, slow: true, text: false },
    Matchup { name: "10_1us_event64", suffix: "_10_1us", stages: 10, slow: true, text: false },
    Matchup { name: "3_trivial_string", suffix: "_string", stages: 3, slow: false, text: true },
    Matchup { name: "10_trivial_string", suffix: "_10_string", stages: 10, slow: false, text: true },
];

impl Matchup {
    /// The JSON field of ours over `peer`. The ceiling is a promise about real work, so for
    /// `two_loops` the bare name belongs to the 1 µs handlers.
    fn field(&self, peer: &str) -> String {
        let suffix = match (peer, self.suffix) {
            ("two_loops", "") => "_trivial",
            ("two_loops", "_1us") => "",
            (_, suffix) => suffix,
        };
        format!("vs_{peer}{suffix}")
    }

    fn run(&self, peer: &PipelinePeer, case: &Case) -> Outcome {
        if self.text { (peer.text)(case) } else { (peer.plain)(case) }
    }
}

/// A peer with its run sized for one matchup.
struct Entrant {
    peer: &'static PipelinePeer,
    case: Case,
    checksum: u64,
    allocations_per_event: Option<f64>,
}

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("pipeline", options, BARS);
    let microsecond = spin::one_microsecond();
    report.figure("spins_per_us", f64::from(microsecond.spins));
    println!(
        "pipeline: {} rounds, {} threads, queues of {} events, batches of {BATCH}, \
         1 µs = {} spins",
        options.rounds,
        options.threads,
        crate::load::CAPACITY,
        microsecond.spins
    );
    for matchup in MATCHUPS.iter().filter(|matchup| options.takes_case(matchup.name)) {
        let work = if matchup.slow { microsecond } else { Work::TRIVIAL };
        let entrants: Vec<Entrant> = peers::PIPELINE
            .iter()
            .filter(|peer| options.takes_peer(peer.name))
            .map(|peer| enter(peer, matchup, work, options))
            .collect();
        let series =
            interleave(&entrants, options.rounds, options.seed, matchup.name, |entrant, _| {
                let outcome = matchup.run(entrant.peer, &entrant.case);
                assert_eq!(
                    (outcome.events, outcome.checksum),
                    (entrant.case.events, entrant.checksum),
                    "{} changed or lost events",
                    entrant.peer.name
                );
                outcome.elapsed.as_nanos() as f64 / outcome.events as f64
            });
        tell(matchup, &entrants, &series, options, &mut report);
    }
    two_threads::run(options, microsecond, &mut report);
    report.close();
    report
}

/// Warms a peer up, sizes its runs, and counts its allocations where that is asked for.
fn enter(peer: &'static PipelinePeer, matchup: &Matchup, work: Work, options: &Options) -> Entrant {
    let (stages, threads) = (matchup.stages, options.threads);
    let case = Case { stages, work, threads, events: WARM_UP_EVENTS };
    let case = sized_for(&case, options, |case| matchup.run(peer, case));
    let checksum = if matchup.text {
        expected_checksum::<String>(&case)
    } else {
        expected_checksum::<Event64>(&case)
    };
    // Counted in a run of its own: the counter's cost stays out of the timed rounds.
    let allocations_per_event = matchup.text.then(|| {
        let (_, allocations) = alloc::counted(|| matchup.run(peer, &case));
        allocations as f64 / case.events as f64
    });
    Entrant { peer, case, checksum, allocations_per_event }
}

/// The case with as many events as last `RUN_TARGET`, by how long it takes with those it has.
pub(crate) fn sized_for(case: &Case, options: &Options, run: impl Fn(&Case) -> Outcome) -> Case {
    let target = if options.quick { RUN_TARGET_QUICK } else { RUN_TARGET };
    let outcome = run(case);
    Case { events: sized(&outcome, target), ..*case }
}

fn sized(warm_up: &Outcome, target: Duration) -> u64 {
    let per_event = warm_up.elapsed.as_secs_f64() / warm_up.events as f64;
    let events = (target.as_secs_f64() / per_event) as u64;
    events.clamp(EVENTS_MIN, EVENTS_MAX).next_multiple_of(BATCH as u64)
}

/// Prints the table of one matchup and files its figures.
fn tell(
    matchup: &Matchup,
    entrants: &[Entrant],
    series: &[Series<f64>],
    options: &Options,
    report: &mut Report,
) {
    let throughput = |series: &Series<f64>| series.figures(|ns| 1e9 / ns);
    let ours = entrants.iter().position(|entrant| entrant.peer.name == options.ours);
    let mut head = vec!["peer", "ns/event", "p10 .. p90", "M events/s", "ours/peer", "others"];
    if matchup.text {
        head.push("allocs/event");
    }
    let mut table = Table::new(&head);
    for (place, (entrant, samples)) in entrants.iter().zip(series).enumerate() {
        let ns = samples.figures(|ns| *ns);
        let (middle, p10, p90) = (median(&ns), quantile(&ns, 0.1), quantile(&ns, 0.9));
        let mut figures = vec![
            ("ns_per_event", middle),
            ("ns_per_event_p10", p10),
            ("ns_per_event_p90", p90),
            ("events_per_run", entrant.case.events as f64),
            ("others_cpu_percent", samples.others_cpu_percent),
        ];
        let ratio = ours.filter(|&ours| ours != place).map(|ours| {
            Ratio::paired(&throughput(&series[ours]), &throughput(samples), options.seed)
        });
        let mut row = vec![
            entrant.peer.name.to_owned(),
            format!("{middle:.1}"),
            format!("{p10:.1} .. {p90:.1}"),
            format!("{:.2}", 1e3 / middle),
            ratio.as_ref().map_or("-".into(), show_ratio),
            format!("{:.0} %", samples.others_cpu_percent),
        ];
        if let Some(allocations) = entrant.allocations_per_event {
            row.push(format!("{allocations:.3}"));
            figures.push(("allocations_per_event", allocations));
        }
        if let Some(ratio) = ratio {
            report.ratio(&matchup.field(entrant.peer.name), &ratio, Better::More);
        }
        report.detail(matchup.name, entrant.peer.name, &figures);
        table.row(row);
    }
    println!("\n{}", matchup.name);
    table.print();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_names_a_field_that_some_matchup_files() {
        for bar in BARS {
            let filed = MATCHUPS.iter().any(|matchup| {
                peers::PIPELINE.iter().any(|peer| matchup.field(peer.name) == bar.name)
            }) || two_threads::fields().any(|field| field == bar.name);
            assert!(filed, "{} is never filed", bar.name);
        }
    }

    #[test]
    fn fields_of_different_matchups_differ() {
        let mut fields: Vec<String> = MATCHUPS
            .iter()
            .flat_map(|matchup| peers::PIPELINE.iter().map(|peer| matchup.field(peer.name)))
            .collect();
        let filed = fields.len();
        fields.sort();
        fields.dedup();
        assert_eq!(fields.len(), filed);
    }

    #[test]
    fn runs_are_sized_to_the_target_within_their_bounds() {
        let took = |elapsed| Outcome { elapsed, events: 1000, checksum: 0 };
        let target = Duration::from_millis(100);
        assert_eq!(sized(&took(Duration::from_millis(1)), target), 100_352);
        assert_eq!(sized(&took(Duration::from_secs(1)), target), 10_240);
    }
}
