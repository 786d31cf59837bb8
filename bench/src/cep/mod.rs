//! `cep`: complex event processing, the program of the example `weblog`, under the configurations
//! of a published table, and against the same program written by hand.
//!
//! 1. `plans`  the published configurations, and how they are scaled to this machine
//! 2. `work`   the log, the steps, the merging: what every entrant is given
//! 3. `peers::cep`  ours, and the programs written by hand
//!
//! The log lies in memory before anything is measured: making it up costs about as much as looking
//! at it. What is measured is a whole run, from the first line to the last result, with the threads
//! it starts and the segments it writes. Comparing the result with what a plain loop finds (after
//! every run) and removing the segments are not.
//!
//! Segments go to memory (`/dev/shm`) where there is such a place: the calls are the same, the disk
//! is not measured. Measured once with a folder on a disk, runs took about twice as long and the
//! order of the entrants changed from round to round.
//!
//! The table chooses the best plan, the worst and the best program by hand; what the bars are about is
//! measured in rounds of their own. A run of the table lies a second and more from the one that it is
//! compared with, and the machine drifts meanwhile; and who is best by chance should not gain by it.
//!
//! `cpu ms` is what to look at when the column `others` is high: two busy threads that share two
//! cores with other programs are slowed by how those sleep and wake, not by the plan.

pub(crate) mod work;
mod plans;

use crate::options::Options;
use crate::peers::cep::{CepPeer, PEERS, comporta};
use crate::report::{Bar, Better, Limit, Report, Table, show_ratio};
use crate::rounds::{Series, interleave};
use crate::stats::{Ratio, median, quantile};
use plans::{Configuration, TABLE};
use std::path::{Path, PathBuf};
use std::time::Instant;
use work::{Folder, LOGS, Log, WINDOW};

pub(crate) const ABOUT: &str =
    "a web server's log watched: the plans of a published table, against programs by hand";

const BARS: &[Bar] = &[
    Bar {
        name: "vs_best_peer",
        limit: Limit::AtLeast(0.95),
        about: "the best plan's throughput, against the best program by hand",
    },
    Bar {
        name: "best_vs_worst_plan",
        limit: Limit::AtLeast(1.10),
        about: "the best plan's throughput, against the worst plan's: what a plan decides",
    },
];

/// As many as published.
const LINES: usize = 1_000_000;
const LINES_QUICK: usize = 50_000;
/// Rounds of the best and the worst, for each of the table.
const FINAL_ROUNDS: usize = 4;
/// Makes the log up; `--seed` is for the order of the runs.
const LOG_SEED: u64 = 1;

/// Who takes part.
enum Entrant {
    Plan(&'static Configuration),
    Peer(&'static CepPeer),
}

impl Entrant {
    fn name(&self) -> &'static str {
        match self {
            Entrant::Plan(row) => row.name,
            Entrant::Peer(peer) => peer.name,
        }
    }

    /// Seconds of one run.
    fn run(&self, log: &Log, base: &Path, cores: usize) -> f64 {
        let folder = Folder::new(base);
        let started = Instant::now();
        let gathered = match self {
            Entrant::Plan(row) => comporta::run(log, folder.path(), &row.plan(cores)),
            Entrant::Peer(peer) => (peer.run)(log, folder.path(), cores),
        };
        let elapsed = started.elapsed().as_secs_f64();
        log.check(self.name(), &gathered);
        elapsed
    }
}

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("cep", options, BARS);
    let lines = options.size.unwrap_or(if options.quick { LINES_QUICK } else { LINES });
    let log = Log::new(lines, LOG_SEED);
    let base = base();
    println!(
        "cep: {} rounds, {} cores, {} lines of {LOGS} logs in windows of {WINDOW}, segments in {}",
        options.rounds,
        options.threads,
        log.lines(),
        base.display()
    );
    let plans = TABLE.iter().filter(|row| options.takes_case(row.name)).map(Entrant::Plan);
    let peers = PEERS.iter().filter(|peer| options.takes_peer(peer.name)).map(Entrant::Peer);
    let entrants: Vec<Entrant> = plans.chain(peers).collect();
    let series = interleave(&entrants, options.rounds, options.seed, "cep", |entrant, _| {
        entrant.run(&log, &base, options.threads)
    });
    let found = Found::new(&entrants, &series);
    report.figure("lines", log.lines() as f64);
    tell(&entrants, &series, &found, options, &mut report);
    spread(&entrants, &found, &series, &mut report);
    judge(&entrants, &found, options, &mut report, |entrant| {
        entrant.run(&log, &base, options.threads)
    });
    report.close();
    report
}

/// Where segments go.
fn base() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// Who was best and worst, by the median: places among the entrants.
struct Found {
    best: Option<usize>,
    worst: Option<usize>,
    peer: Option<usize>,
}

impl Found {
    fn new(entrants: &[Entrant], series: &[Series<f64>]) -> Found {
        let seconds = |place: &usize| median(&series[*place].samples);
        let slower = |a: &usize, b: &usize| seconds(a).total_cmp(&seconds(b));
        let which = |wanted: fn(&Entrant) -> bool| {
            (0..entrants.len()).filter(move |&place| wanted(&entrants[place]))
        };
        let is_plan: fn(&Entrant) -> bool = |entrant| matches!(entrant, Entrant::Plan(_));
        let is_judged: fn(&Entrant) -> bool =
            |entrant| matches!(entrant, Entrant::Peer(peer) if peer.judged);
        Found {
            best: which(is_plan).min_by(slower),
            worst: which(is_plan).max_by(slower),
            peer: which(is_judged).min_by(slower),
        }
    }
}

/// Throughput of one entrant over another's, round by round.
fn against(series: &[Series<f64>], ours: usize, other: usize, options: &Options) -> Ratio {
    let throughput = |place: usize| series[place].figures(|seconds| 1.0 / seconds);
    Ratio::paired(&throughput(ours), &throughput(other), options.seed)
}

/// Prints the table and files its figures.
fn tell(
    entrants: &[Entrant],
    series: &[Series<f64>],
    found: &Found,
    options: &Options,
    report: &mut Report,
) {
    let mut table = Table::new(&[
        "plan or peer",
        "threads",
        "instances",
        "published",
        "of first",
        "ms",
        "p10 .. p90",
        "of first",
        "cpu ms",
        "best plan/it",
        "others",
    ]);
    let ms = |samples: &Series<f64>| samples.figures(|seconds| seconds * 1e3);
    let first = series.first().map_or(f64::NAN, |samples| median(&ms(samples)));
    for (place, (entrant, samples)) in entrants.iter().zip(series).enumerate() {
        let ms = ms(samples);
        let (middle, p10, p90) = (median(&ms), quantile(&ms, 0.1), quantile(&ms, 0.9));
        let mut figures = vec![
            ("ms", middle),
            ("ms_p10", p10),
            ("ms_p90", p90),
            ("cpu_ms", samples.own_cpu_ms),
            ("others_cpu_percent", samples.others_cpu_percent),
        ];
        let [threads, instances, published, of_first] = match entrant {
            Entrant::Plan(row) => {
                figures.push(("published_s", row.published_s));
                let (threads, instances, correlate) = row.scaled(options.threads);
                [
                    threads.to_string(),
                    format!("{instances}/{instances}/{correlate}"),
                    format!("{:.1} s", row.published_s),
                    format!("{:.3}", row.published_s / TABLE[0].published_s),
                ]
            }
            Entrant::Peer(_) => ["-"; 4].map(str::to_owned),
        };
        let ratio = found
            .best
            .filter(|&best| best != place)
            .map(|best| against(series, best, place, options));
        table.row([
            entrant.name().to_owned(),
            threads,
            instances,
            published,
            of_first,
            format!("{middle:.1}"),
            format!("{p10:.1} .. {p90:.1}"),
            format!("{:.3}", middle / first),
            format!("{:.0}", samples.own_cpu_ms),
            ratio.as_ref().map_or("-".into(), show_ratio),
            format!("{:.0} %", samples.others_cpu_percent),
        ]);
        report.detail("weblog", entrant.name(), &figures);
    }
    println!("\nthreads: without one for each source; instances: of persist, filter and correlate");
    table.print();
}

/// How far the plans lie apart, the slowest by the fastest, beside how far they lay apart as published.
fn spread(entrants: &[Entrant], found: &Found, series: &[Series<f64>], report: &mut Report) {
    let (Some(best), Some(worst)) = (found.best, found.worst) else { return };
    let published = entrants.iter().filter_map(|entrant| match entrant {
        Entrant::Plan(row) => Some(row.published_s),
        Entrant::Peer(_) => None,
    });
    let (least, most) =
        published.fold((f64::MAX, f64::MIN), |(low, high), s| (low.min(s), high.max(s)));
    let ours = median(&series[worst].samples) / median(&series[best].samples);
    report.figure("plans_spread", ours);
    report.figure("plans_spread_published", most / least);
    println!("\nplans_spread: {ours:.3}; published: {:.3}", most / least);
}

/// Has the best and the worst of the table run once more, and files what the bars are about.
fn judge(
    entrants: &[Entrant],
    found: &Found,
    options: &Options,
    report: &mut Report,
    run: impl Fn(&Entrant) -> f64,
) {
    let Some(best) = found.best else { return };
    let mut finalists = vec![&entrants[best]];
    report.text("best_plan", entrants[best].name());
    let mut place = |field: &str, entrant: Option<usize>| {
        let entrant = &entrants[entrant?];
        report.text(field, entrant.name());
        finalists.push(entrant);
        Some(finalists.len() - 1)
    };
    let peer = place("best_peer", found.peer);
    let worst = place("worst_plan", found.worst.filter(|&worst| worst != best));
    let rounds = options.rounds * FINAL_ROUNDS;
    report.figure("final_rounds", rounds as f64);
    let finals =
        interleave(&finalists, rounds, options.seed, "cep, the best", |entrant, _| run(entrant));
    println!("\nIn {rounds} rounds of their own, {} against", finalists[0].name());
    for (bar, other) in [("vs_best_peer", peer), ("best_vs_worst_plan", worst)] {
        let Some(other) = other else { continue };
        let ratio = against(&finals, 0, other, options);
        println!("  {:<12} {}", finalists[other].name(), show_ratio(&ratio));
        report.ratio(bar, &ratio, Better::More);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weblog::show::Gathered;

    /// 10,000 lines: two windows and a half of each log.
    fn log() -> Log {
        Log::new(10_000, LOG_SEED)
    }

    #[test]
    fn every_plan_and_every_peer_finds_what_a_plain_loop_finds() {
        let entrants = TABLE.iter().map(Entrant::Plan).chain(PEERS.iter().map(Entrant::Peer));
        for entrant in entrants {
            for cores in [1, 3] {
                entrant.run(&log(), &std::env::temp_dir(), cores);
            }
        }
    }

    #[test]
    #[should_panic(expected = "of nobody")]
    fn finding_nothing_is_noticed() {
        log().check("nobody", &Gathered::default());
    }

    #[test]
    fn best_and_worst_are_told_by_the_median_and_the_reference_is_no_peer() {
        let entrants: Vec<Entrant> = TABLE[..3]
            .iter()
            .map(Entrant::Plan)
            .chain(PEERS[..3].iter().map(Entrant::Peer))
            .collect();
        assert!(matches!(entrants[3], Entrant::Peer(peer) if !peer.judged));
        // The first is best but for one bad round; the fourth, the reference, is faster than all.
        let seconds =
            [[1.0, 9.0, 1.0], [2.0, 2.0, 2.0], [3.0, 3.0, 3.0], [0.5; 3], [4.0; 3], [1.5; 3]];
        let series = seconds.map(|samples| Series {
            samples: samples.to_vec(),
            others_cpu_percent: 0.0,
            own_cpu_ms: 0.0,
        });
        let found = Found::new(&entrants, &series);
        assert_eq!((found.best, found.worst, found.peer), (Some(0), Some(2), Some(5)));
    }
}
