//! `latency`: end-to-end time per event under an open load of 10, 50 and 90 % of capacity.
//! Capacity is the lowest closed-loop throughput of ours and `tokio_mpsc` through the same
//! pipeline and the same input, measured first in the same run; every peer then gets the same
//! absolute rate from the same pacer (`pacer`), which competes with all of them for the cores.
//! (Through the same input, because the figure of the `pipeline` bench, whose source lives inside the
//! runtime, is out of reach from outside: at 90 % of it `tokio_mpsc` is overrun, 84 ms at p50, and
//! the comparison would say nothing about latency.)
//! Latency counts from an event's scheduled time, so a stalled program cannot hide its stall.

use crate::load::Case;
use crate::options::Options;
use crate::pacer::{Pacer, Schedule};
use crate::peers::{self, LatencyPeer};
use crate::report::{Bar, Better, Limit, Report, Table, show_ratio};
use crate::rounds::{Series, interleave};
use crate::spin;
use crate::stats::{Ratio, median};
use std::time::Duration;

pub(crate) const ABOUT: &str = "open-loop latency at 10, 50 and 90 % of capacity, against tokio";

const BARS: &[Bar] = &[
    Bar {
        name: "p99_vs_tokio",
        limit: Limit::AtMost(1.5),
        about: "p99 at 50 % load, against an event per tokio message",
    },
    Bar {
        name: "p99_vs_tokio_90",
        limit: Limit::AtMost(1.0),
        about: "p99 at 90 % load, against an event per tokio message",
    },
];

const STAGES: usize = 3;
/// The peer that sets the capacity together with ours.
const YARDSTICK: &str = "tokio_mpsc";
/// Loads in percent of capacity, and what distinguishes their JSON fields.
const LOADS: [(u32, &str); 3] = [(10, "_10"), (50, ""), (90, "_90")];
/// Quantiles and what distinguishes their JSON fields.
const QUANTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p999")];
const LASTING: Duration = Duration::from_millis(250);
const LASTING_QUICK: Duration = Duration::from_millis(150);
/// Rounds for each that is asked for: a 99th percentile is a matter of a few events in a run.
const ROUNDS: usize = 3;
/// Closed-loop runs that find the capacity.
const CAPACITY_ROUNDS: usize = 5;
const CAPACITY_EVENTS: u64 = 100_000;
const CAPACITY_EVENTS_QUICK: u64 = 40_000;

/// One run, in microseconds.
struct Latencies {
    quantiles_us: [f64; QUANTILES.len()],
    pacer_late_p50_us: f64,
    pacer_late_p99_us: f64,
}

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("latency", options, BARS);
    let case =
        Case { stages: STAGES, work: spin::one_microsecond(), threads: options.threads, events: 0 };
    let entrants: Vec<&LatencyPeer> =
        peers::LATENCY.iter().filter(|peer| options.takes_peer(peer.name)).collect();
    let capacity = capacity(&entrants, &case, options, &mut report);
    let rounds = if options.quick { options.rounds } else { options.rounds * ROUNDS };
    println!(
        "latency: {rounds} rounds, {} threads, {STAGES} stages of 1 µs, capacity {:.0} k events/s",
        options.threads,
        capacity / 1e3
    );
    let lasting = if options.quick { LASTING_QUICK } else { LASTING };
    for (percent, suffix) in LOADS {
        let name = format!("load_{percent}");
        if !options.takes_case(&name) {
            continue;
        }
        let rate = capacity * f64::from(percent) / 100.0;
        let schedule = Schedule::open(rate, lasting);
        let series = interleave(&entrants, rounds, options.seed, &name, |peer, _| {
            latencies(peer, &case, schedule)
        });
        println!("\n{percent} % load: {:.0} k events/s", rate / 1e3);
        tell(&name, suffix, &entrants, &series, options, &mut report);
    }
    report.close();
    report
}

/// The lowest median throughput of ours and the yardstick.
fn capacity(entrants: &[&LatencyPeer], case: &Case, options: &Options, report: &mut Report) -> f64 {
    let events = if options.quick { CAPACITY_EVENTS_QUICK } else { CAPACITY_EVENTS };
    let setters: Vec<&LatencyPeer> = entrants
        .iter()
        .copied()
        .filter(|peer| peer.name == YARDSTICK || peer.name == options.ours)
        .collect();
    // A choice of peers without either still needs a rate: then all of them set it.
    let setters = if setters.is_empty() { entrants.to_vec() } else { setters };
    let series = interleave(&setters, CAPACITY_ROUNDS, options.seed, "capacity", |peer, _| {
        let paced = (peer.paced)(case, Pacer::new(Schedule::closed(events)));
        events as f64 / (paced.sink.finished() - paced.pace.started).as_secs_f64()
    });
    setters
        .iter()
        .zip(&series)
        .map(|(peer, samples)| {
            let per_second = median(&samples.samples);
            report.figure(format!("capacity_{}", peer.name), per_second);
            per_second
        })
        .fold(f64::INFINITY, f64::min)
}

fn latencies(peer: &LatencyPeer, case: &Case, schedule: Schedule) -> Latencies {
    let paced = (peer.paced)(case, Pacer::new(schedule));
    assert!(paced.sink.is_complete(), "{} lost events", peer.name);
    let us = |ns: u64| ns as f64 / 1e3;
    Latencies {
        quantiles_us: QUANTILES.map(|(q, _)| us(paced.sink.latencies.value_at_quantile(q))),
        pacer_late_p50_us: us(paced.pace.late.value_at_quantile(0.5)),
        pacer_late_p99_us: us(paced.pace.late.value_at_quantile(0.99)),
    }
}

/// `p99_vs_tokio_90`, `p50_vs_tokio_vec`: the yardstick goes by its family name.
fn field(quantile: &str, peer: &str, suffix: &str) -> String {
    let peer = if peer == YARDSTICK { "tokio" } else { peer };
    format!("{quantile}_vs_{peer}{suffix}")
}

fn tell(
    name: &str,
    suffix: &str,
    entrants: &[&LatencyPeer],
    series: &[Series<Latencies>],
    options: &Options,
    report: &mut Report,
) {
    let ours = entrants.iter().position(|peer| peer.name == options.ours);
    let mut table = Table::new(&[
        "peer",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "ours/peer p50",
        "ours/peer p99",
        "ours/peer p99.9",
        "pacer late p50/p99",
        "others",
    ]);
    for (place, (peer, samples)) in entrants.iter().zip(series).enumerate() {
        let mut row = vec![peer.name.to_owned()];
        let mut ratios = Vec::new();
        let mut figures = Vec::new();
        for (index, (_, quantile)) in QUANTILES.into_iter().enumerate() {
            let theirs = samples.figures(|run| run.quantiles_us[index]);
            row.push(format!("{:.0}", median(&theirs)));
            figures.push((["p50_us", "p99_us", "p999_us"][index], median(&theirs)));
            ratios.push(ours.filter(|&ours| ours != place).map_or("-".into(), |ours| {
                let mine = series[ours].figures(|run| run.quantiles_us[index]);
                let ratio = Ratio::paired(&mine, &theirs, options.seed);
                report.ratio(&field(quantile, peer.name, suffix), &ratio, Better::Less);
                show_ratio(&ratio)
            }));
        }
        let late_p50 = median(&samples.figures(|run| run.pacer_late_p50_us));
        let late_p99 = median(&samples.figures(|run| run.pacer_late_p99_us));
        figures.push(("pacer_late_p50_us", late_p50));
        figures.push(("pacer_late_p99_us", late_p99));
        figures.push(("others_cpu_percent", samples.others_cpu_percent));
        report.detail(name, peer.name, &figures);
        row.extend(ratios);
        row.push(format!("{late_p50:.0} / {late_p99:.0}"));
        row.push(format!("{:.0} %", samples.others_cpu_percent));
        table.row(row);
    }
    table.print();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_names_a_field_that_is_filed() {
        for bar in BARS {
            let filed = LOADS.iter().any(|(_, suffix)| {
                QUANTILES.iter().any(|(_, name)| field(name, YARDSTICK, suffix) == bar.name)
            });
            assert!(filed, "{} is never filed", bar.name);
        }
    }
}
