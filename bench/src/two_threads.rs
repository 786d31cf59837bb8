//! Further cases of `pipeline`: whether a second thread pays. Comporta with two threads over Comporta with one, in trivial
//! stages, where a second thread can only be in the way, and in stages of 1 µs; and, in stages of 100 ns, over the
//! best split by hand over two threads.

use crate::load::{Case, Event64, Work, expected_checksum};
use crate::options::Options;
use crate::peers::{comporta, split};
use crate::pipeline::{WARM_UP_EVENTS, sized_for};
use crate::report::{Better, Report, Table, show_ratio};
use crate::rounds::interleave;
use crate::stats::{Ratio, median, quantile};

/// One comparison. Its name is that of its JSON field.
struct Matchup {
    name: &'static str,
    stages: usize,
    /// Nanoseconds that a handler burns.
    ns: u32,
    by_hand: bool,
}

const MATCHUPS: [Matchup; 5] = [
    Matchup { name: "two_threads_vs_one", stages: 3, ns: 0, by_hand: false },
    Matchup { name: "two_threads_vs_one_10", stages: 10, ns: 0, by_hand: false },
    Matchup { name: "two_threads_vs_one_40ns", stages: 10, ns: 40, by_hand: false },
    Matchup { name: "two_threads_vs_one_1us", stages: 3, ns: 1_000, by_hand: false },
    Matchup { name: "two_threads_100ns_vs_pinned", stages: 3, ns: 100, by_hand: true },
];

/// Who runs.
#[derive(Clone, Copy)]
enum Entrant {
    /// Comporta with so many threads.
    Threads(usize),
    /// By hand, with so many handlers on the first of two threads.
    Split(usize),
}

impl Entrant {
    fn name(self) -> String {
        match self {
            Entrant::Threads(1) => "1 thread".into(),
            Entrant::Threads(n) => format!("{n} threads"),
            Entrant::Split(first) => format!("by hand, {first} first"),
        }
    }

    fn run(self, case: &Case) -> crate::load::Outcome {
        match self {
            Entrant::Threads(threads) => comporta::run::<Event64>(&Case { threads, ..*case }),
            Entrant::Split(first) => split::run::<Event64>(case, first),
        }
    }
}

pub(crate) fn run(options: &Options, microsecond: Work, report: &mut Report) {
    for matchup in MATCHUPS.iter().filter(|matchup| options.takes_case(matchup.name)) {
        tell(matchup, microsecond, options, report);
    }
}

fn tell(matchup: &Matchup, microsecond: Work, options: &Options, report: &mut Report) {
    let work = Work { spins: microsecond.spins * matchup.ns / 1_000 };
    let case = Case { stages: matchup.stages, work, threads: 2, events: WARM_UP_EVENTS };
    let others: Vec<Entrant> = match matchup.by_hand {
        true => (0..=matchup.stages).map(Entrant::Split).collect(),
        false => vec![Entrant::Threads(1)],
    };
    let entrants: Vec<(Entrant, Case, u64)> = std::iter::once(Entrant::Threads(2))
        .chain(others)
        .map(|entrant| {
            let case = sized_for(&case, options, |case| entrant.run(case));
            (entrant, case, expected_checksum::<Event64>(&case))
        })
        .collect();
    let series = interleave(&entrants, options.rounds, options.seed, matchup.name, |entrant, _| {
        let (entrant, case, checksum) = entrant;
        let outcome = entrant.run(case);
        assert_eq!(outcome.checksum, *checksum, "{} changed or lost events", entrant.name());
        outcome.elapsed.as_nanos() as f64 / outcome.events as f64
    });
    let throughputs: Vec<Vec<f64>> =
        series.iter().map(|series| series.figures(|ns| 1e9 / ns)).collect();
    println!("\n{}", matchup.name);
    let mut table = Table::new(&["entrant", "ns/event", "p10 .. p90", "two threads/it"]);
    for ((entrant, ..), (series, rates)) in entrants.iter().zip(series.iter().zip(&throughputs)) {
        let ns = series.figures(|ns| *ns);
        let (p10, p90) = (quantile(&ns, 0.1), quantile(&ns, 0.9));
        let ratio = Ratio::paired(&throughputs[0], rates, options.seed);
        let own = matches!(entrant, Entrant::Threads(2));
        table.row([
            entrant.name(),
            format!("{:.1}", median(&ns)),
            format!("{p10:.1} .. {p90:.1}"),
            if own { "-".into() } else { show_ratio(&ratio) },
        ]);
        let figures = [("ns_per_event", median(&ns)), ("cpu_ms", series.own_cpu_ms)];
        report.detail(matchup.name, &entrant.name(), &figures);
    }
    table.print();
    let best = (1..entrants.len())
        .max_by(|a, b| median(&throughputs[*a]).total_cmp(&median(&throughputs[*b])))
        .expect("somebody to compare with");
    let ratio = Ratio::paired(&throughputs[0], &throughputs[best], options.seed);
    report.ratio(matchup.name, &ratio, Better::More);
}

#[cfg(test)]
pub(crate) fn fields() -> impl Iterator<Item = &'static str> {
    MATCHUPS.iter().map(|matchup| matchup.name)
}
