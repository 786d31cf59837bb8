//! State for each key: events a second, ours over each peer of `peers::keyed`. Every run is checked: each key has seen
//! its events, each once and in order.

use super::load::{Load, Spread};
use crate::options::Options;
use crate::peers::keyed::PEERS;
use crate::report::{Better, Report, Table, show_ratio};
use crate::rounds::interleave;
use crate::stats::{Ratio, median, quantile};
use std::time::Instant;

const EVENTS: usize = 2_000_000;
const EVENTS_QUICK: usize = 200_000;

/// One comparison.
struct Matchup {
    name: &'static str,
    /// What distinguishes its JSON fields: `vs_best_peer<suffix>`.
    suffix: &'static str,
    keys: usize,
    spread: Spread,
}

/// What web caches and word counts are found to follow; nothing hangs on the second digit.
const ZIPF: Spread = Spread::Zipf(1.2);

const MATCHUPS: [Matchup; 5] = [
    Matchup { name: "peers_1", suffix: "_one", keys: 1, spread: Spread::Uniform },
    Matchup { name: "peers_1k", suffix: "", keys: 1_000, spread: Spread::Uniform },
    Matchup { name: "peers_1k_zipf", suffix: "_zipf", keys: 1_000, spread: ZIPF },
    Matchup { name: "peers_1m", suffix: "_1m", keys: 1_000_000, spread: Spread::Uniform },
    Matchup { name: "peers_1m_zipf", suffix: "_1m_zipf", keys: 1_000_000, spread: ZIPF },
];

pub(super) fn run(options: &Options, report: &mut Report) {
    for matchup in MATCHUPS.iter().filter(|matchup| options.takes_case(matchup.name)) {
        tell(matchup, options, report);
    }
}

fn tell(matchup: &Matchup, options: &Options, report: &mut Report) {
    let events = options.size.unwrap_or(if options.quick { EVENTS_QUICK } else { EVENTS });
    let load = Load::new(matchup.keys, events, matchup.spread);
    let peers: Vec<_> = PEERS.iter().filter(|peer| options.takes_peer(peer.name)).collect();
    let series = interleave(&peers, options.rounds, options.seed, matchup.name, |peer, _| {
        let began = Instant::now();
        let digest = (peer.run)(&load, options.threads);
        let elapsed = began.elapsed().as_secs_f64();
        assert_eq!(digest, load.digest, "{} lost or swapped events", peer.name);
        load.clicks.len() as f64 / elapsed
    });
    println!("\n{}: {} keys, {} events", matchup.name, matchup.keys, load.clicks.len());
    let ours = peers.iter().position(|peer| peer.name == options.ours);
    let mut table =
        Table::new(&["peer", "M events/s", "p10 .. p90", "CPU ms", "ours/peer", "others"]);
    let mut best: Option<(f64, usize)> = None;
    for (place, (peer, samples)) in peers.iter().zip(&series).enumerate() {
        let millions = samples.figures(|rate| rate / 1e6);
        let (middle, p10, p90) =
            (median(&millions), quantile(&millions, 0.1), quantile(&millions, 0.9));
        let ratio = ours
            .filter(|ours| *ours != place)
            .map(|ours| Ratio::paired(&series[ours].samples, &samples.samples, options.seed));
        if ratio.is_some() && best.is_none_or(|(rate, _)| middle > rate) {
            best = Some((middle, place));
        }
        table.row([
            peer.name.to_owned(),
            format!("{middle:.2}"),
            format!("{p10:.2} .. {p90:.2}"),
            format!("{:.0}", samples.own_cpu_ms),
            ratio.as_ref().map_or("-".into(), show_ratio),
            format!("{:.0} %", samples.others_cpu_percent),
        ]);
        let figures = [("events_per_second", middle * 1e6), ("cpu_ms", samples.own_cpu_ms)];
        report.detail(matchup.name, peer.name, &figures);
    }
    table.print();
    if let (Some(ours), Some((_, best))) = (ours, best) {
        let ratio = Ratio::paired(&series[ours].samples, &series[best].samples, options.seed);
        report.text(&format!("best_peer{}", matchup.suffix), peers[best].name);
        report.ratio(&format!("vs_best_peer{}", matchup.suffix), &ratio, Better::More);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_folds_every_key_in_order() {
        for (keys, events, spread) in
            [(1, 3_000, Spread::Uniform), (50, 5_000, ZIPF), (3_000, 5_000, Spread::Uniform)]
        {
            let load = Load::new(keys, events, spread);
            for peer in PEERS {
                for threads in [1, 3] {
                    assert_eq!((peer.run)(&load, threads), load.digest, "{}", peer.name);
                }
            }
        }
    }
}
