//! `nexmark`: the field's own benchmark. Queries 0 to 5, 7 and 8 over a stream of people, auctions and bids.
//!
//! 1. `events`  the events of the `nexmark` crate's generator, in memory before anything is measured
//! 2. `steps`   what the queries do to an event: what every entrant is given
//! 3. `plain`   each query as one loop over the events; every run of every entrant is checked against it
//! 4. `peers::nexmark`  ours, renoir, and a loop by hand on rayon for each query
//!
//! Every entrant makes its events from the same memory by `Log::event`, one at a time and owned, as a source does.
//! Windows are of event time and aligned at multiples of their slide.

pub(crate) mod events;
pub(crate) mod steps;
pub(crate) mod plain;

use crate::options::Options;
use crate::peers::nexmark::{PEERS, Query};
use crate::report::{Bar, Better, Limit, Report, Table, show_ratio};
use crate::rounds::interleave;
use crate::stats::{Ratio, median};
use events::Log;
use std::time::Instant;

pub(crate) const ABOUT: &str =
    "the Nexmark queries, against renoir and against loops by hand on rayon";

const BARS: &[Bar] = &[
    Bar {
        name: "vs_renoir",
        limit: Limit::AtLeast(1.5),
        about: "events a second, against renoir, geometric mean of the queries",
    },
    Bar {
        name: "vs_renoir_worst",
        limit: Limit::AtLeast(1.0),
        about: "the same, of the query where it is least",
    },
    Bar {
        name: "vs_loop",
        limit: Limit::AtLeast(0.8),
        about: "events a second, against loops by hand on rayon, geometric mean of the queries",
    },
];

const EVENTS: usize = 1_000_000;
const EVENTS_QUICK: usize = 100_000;

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("nexmark", options, BARS);
    let events = options.size.unwrap_or(if options.quick { EVENTS_QUICK } else { EVENTS });
    let log = Log::new(events);
    println!("nexmark: {events} events, {} threads, {} rounds", options.threads, options.rounds);
    let mut ratios: Vec<(&str, Vec<Ratio>)> = Vec::new();
    for query in Query::ALL.into_iter().filter(|query| options.takes_case(query.name())) {
        tell(query, &log, options, &mut report, &mut ratios);
    }
    for (peer, ratios) in &ratios {
        let mean = geometric_mean(ratios, options.seed);
        println!("\nours over {peer}, geometric mean: {}", show_ratio(&mean));
        report.ratio(&format!("vs_{peer}"), &mean, Better::More);
        let worst = ratios.iter().map(|ratio| ratio.low).fold(f64::INFINITY, f64::min);
        report.figure(format!("vs_{peer}_worst"), worst);
    }
    report.close();
    report
}

/// Runs one query, prints its table, and adds ours over each peer to `ratios`.
fn tell(
    query: Query,
    log: &Log,
    options: &Options,
    report: &mut Report,
    ratios: &mut Vec<(&'static str, Vec<Ratio>)>,
) {
    let wanted = plain::run(query, log);
    let peers: Vec<_> = PEERS.iter().filter(|peer| options.takes_peer(peer.name)).collect();
    let series = interleave(&peers, options.rounds, options.seed, query.name(), |peer, _| {
        let began = Instant::now();
        let found = (peer.run)(query, log, options.threads);
        let elapsed = began.elapsed().as_secs_f64();
        assert_eq!(found, wanted, "{} of {}", query.name(), peer.name);
        log.len() as f64 / elapsed
    });
    println!("\n{}: {}, {} results", query.name(), query.about(), wanted.count);
    let ours = peers.iter().position(|peer| peer.name == options.ours);
    let mut table = Table::new(&["peer", "M events/s", "CPU ms", "ours/peer", "others"]);
    for (place, (peer, samples)) in peers.iter().zip(&series).enumerate() {
        let ratio = ours
            .filter(|ours| *ours != place)
            .map(|ours| Ratio::paired(&series[ours].samples, &samples.samples, options.seed));
        let rate = median(&samples.samples);
        table.row([
            peer.name.to_owned(),
            format!("{:.2}", rate / 1e6),
            format!("{:.0}", samples.own_cpu_ms),
            ratio.as_ref().map_or("-".into(), show_ratio),
            format!("{:.0} %", samples.others_cpu_percent),
        ]);
        let figures = [("events_per_second", rate), ("cpu_ms", samples.own_cpu_ms)];
        report.detail(query.name(), peer.name, &figures);
        let Some(ratio) = ratio else { continue };
        report.ratio(&format!("{}_vs_{}", query.name(), peer.name), &ratio, Better::More);
        match ratios.iter_mut().find(|(name, _)| *name == peer.name) {
            Some((_, of)) => of.push(ratio),
            None => ratios.push((peer.name, vec![ratio])),
        }
    }
    table.print();
}

/// The geometric mean of some ratios, round by round.
fn geometric_mean(ratios: &[Ratio], seed: u64) -> Ratio {
    let rounds = ratios.iter().map(|ratio| ratio.rounds.len()).min().unwrap_or(0);
    let mean = |round: usize| {
        let logs = ratios.iter().map(|ratio| ratio.rounds[round].ln());
        (logs.sum::<f64>() / ratios.len() as f64).exp()
    };
    let means: Vec<f64> = (0..rounds).map(mean).collect();
    Ratio::paired(&means, &vec![1.0; rounds], seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_finds_what_a_plain_loop_finds() {
        let log = Log::new(20_000);
        for query in Query::ALL {
            let wanted = plain::run(query, &log);
            assert!(wanted.count > 0, "{} finds nothing", query.name());
            for peer in PEERS {
                for threads in [1, 3] {
                    let found = (peer.run)(query, &log, threads);
                    assert_eq!(found, wanted, "{} of {}", query.name(), peer.name);
                }
            }
        }
    }

    #[test]
    fn the_mean_of_a_half_and_a_double_is_one() {
        let of = |rounds: &[f64]| Ratio::paired(rounds, &vec![1.0; rounds.len()], 1);
        let mean = geometric_mean(&[of(&[2.0, 4.0]), of(&[0.5, 1.0])], 1);
        assert_eq!(mean.rounds, [1.0, 2.0]);
    }
}
