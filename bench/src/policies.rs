//! `policies`: the 3 trivial stages of `pipeline` under every policy, against the default one.
//! What is measured is what a policy costs by itself: handlers do next to nothing, so that nearly
//! all of the time is choosing, handing on and waking. One instance a stage, so that order holds.
//!
//! Every policy has the parameters it has by itself, but for the places in a queue (`capacity` of
//! those that say them), which are everybody's. The bar is about policies with ready queues. Those
//! whose threads walk a visit order are reported apart: that they pass stages without work is
//! what they are.
//!
//! `cpu ns` is the processor time an event takes, all threads together, sleeping and waking
//! included: what other programs disturb least, so what to look at when `others` is high.

use crate::load::{CAPACITY, Case, Event64, Outcome, Work, expected_checksum};
use crate::options::Options;
use crate::peers::comporta;
use crate::pipeline::{WARM_UP_EVENTS, sized_for};
use crate::report::{Bar, Better, Limit, Report, Table, show_ratio};
use crate::rounds::{Series, interleave};
use crate::stats::{Ratio, median, quantile};
use ::comporta::Choice;
use ::comporta::policy::mock::{Mock, Queues};
use ::comporta::policy::{Entry, Registry};

pub(crate) const ABOUT: &str = "the 3 trivial stages of `pipeline` under every policy";

const BARS: &[Bar] = &[Bar {
    name: "worst_policy_ratio",
    limit: Limit::AtLeast(0.75),
    about: "the worst policy with ready queues, against the default policy",
}];

/// A figure of a round is the mean of so many runs, each in a turn of its own.
const TURNS: usize = 4;
const STAGES: usize = 3;
const CASE: &str = "3_trivial_event64";

/// A policy with its run sized.
struct Entrant {
    name: &'static str,
    choice: Choice,
    /// Its threads walk a visit order.
    walks: bool,
    case: Case,
    checksum: u64,
}

impl Entrant {
    fn new(entry: &Entry, options: &Options) -> Entrant {
        let name = entry.offer.name;
        let mut choice = Choice::new(name);
        if entry.offer.params.iter().any(|param| param.name == "capacity") {
            choice = choice.with("capacity", CAPACITY);
        }
        let threads = options.threads;
        let mut case =
            Case { stages: STAGES, work: Work::TRIVIAL, threads, events: WARM_UP_EVENTS };
        // Twice: a policy may start a thread for each stage, which takes as long as the warm-up.
        for _ in 0..2 {
            case = sized_for(&case, options, |case| run_once(case, &choice));
        }
        let checksum = expected_checksum::<Event64>(&case);
        Entrant { name, walks: walks(entry, &choice), choice, case, checksum }
    }
}

fn run_once(case: &Case, choice: &Choice) -> Outcome {
    comporta::run_under::<Event64>(case, Some(choice))
}

/// Whether a policy has threads walk a visit order: it is asked, on a cluster that is not there.
fn walks(entry: &Entry, choice: &Choice) -> bool {
    let validated =
        entry.offer.validate(choice, "policy").expect("the choice is one that is offered");
    let mut mock = (0..STAGES)
        .fold(Mock::new().source("source"), |mock, number| mock.stage(&format!("stage{number}")));
    mock.start(&mut *entry.make(&validated)).expect("a chain suits every policy");
    mock.queues() == Queues::PerStage
}

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("policies", options, BARS);
    println!(
        "policies: {} rounds of {TURNS} turns, {} threads, {STAGES} trivial stages, queues of {CAPACITY} events",
        options.rounds, options.threads
    );
    let registry = Registry::new();
    let entrants: Vec<Entrant> = registry
        .entries()
        .enumerate()
        .filter(|(place, entry)| *place == 0 || options.takes_case(entry.offer.name))
        .map(|(_, entry)| Entrant::new(entry, options))
        .collect();
    let turns = options.rounds * TURNS;
    let series = interleave(&entrants, turns, options.seed, "policies", |entrant, _| {
        let outcome = run_once(&entrant.case, &entrant.choice);
        let found = (outcome.events, outcome.checksum);
        let expected = (entrant.case.events, entrant.checksum);
        assert_eq!(found, expected, "{} changed or lost events", entrant.name);
        outcome.elapsed.as_nanos() as f64 / outcome.events as f64
    });
    let of_rounds = |one: Series<f64>| {
        let mean = |runs: &[f64]| runs.iter().sum::<f64>() / runs.len() as f64;
        Series { samples: one.samples.chunks(TURNS).map(mean).collect(), ..one }
    };
    let series: Vec<_> = series.into_iter().map(of_rounds).collect();
    tell(&entrants, &series, options, &mut report);
    report.close();
    report
}

/// Prints both tables and files their figures. The default policy is the first of all.
fn tell(entrants: &[Entrant], series: &[Series<f64>], options: &Options, report: &mut Report) {
    let throughput = |samples: &Series<f64>| samples.figures(|ns| 1e9 / ns);
    let default = throughput(&series[0]);
    let mut worst: Option<(&str, Ratio)> = None;
    for (walks, title) in [(false, "ready queues"), (true, "visit orders, not judged")] {
        let head =
            ["policy", "ns/event", "p10 .. p90", "M events/s", "it/default", "cpu ns", "others"];
        let mut table = Table::new(&head);
        let mut shown = 0;
        for (place, (entrant, samples)) in entrants.iter().zip(series).enumerate() {
            if entrant.walks != walks {
                continue;
            }
            shown += 1;
            let ns = samples.figures(|ns| *ns);
            let (middle, p10, p90) = (median(&ns), quantile(&ns, 0.1), quantile(&ns, 0.9));
            let cpu_ns = samples.own_cpu_ms * 1e6 / entrant.case.events as f64;
            let mut figures = vec![
                ("ns_per_event", middle),
                ("ns_per_event_p10", p10),
                ("ns_per_event_p90", p90),
                ("events_per_run", entrant.case.events as f64),
                ("visit_order", f64::from(u8::from(walks))),
                ("cpu_ns_per_event", cpu_ns),
                ("others_cpu_percent", samples.others_cpu_percent),
            ];
            let ratio =
                (place > 0).then(|| Ratio::paired(&throughput(samples), &default, options.seed));
            if let Some(ratio) = &ratio {
                figures.push(("ratio", ratio.low));
                figures.push(("ratio_median", ratio.median));
                figures.push(("ratio_high", ratio.high));
            }
            table.row([
                entrant.choice.to_string(),
                format!("{middle:.1}"),
                format!("{p10:.1} .. {p90:.1}"),
                format!("{:.2}", 1e3 / middle),
                ratio.as_ref().map_or("-".into(), show_ratio),
                format!("{cpu_ns:.1}"),
                format!("{:.0} %", samples.others_cpu_percent),
            ]);
            report.detail(CASE, entrant.name, &figures);
            if let Some(ratio) = ratio.filter(|_| !walks)
                && worst.as_ref().is_none_or(|(_, least)| ratio.low < least.low)
            {
                worst = Some((entrant.name, ratio));
            }
        }
        if shown > 0 {
            println!("\n{title}");
            table.print();
        }
    }
    if let Some((name, ratio)) = worst {
        report.text("worst_policy", name);
        report.ratio("worst_policy_ratio", &ratio, Better::More);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_delivers_every_event_in_order() {
        for entry in Registry::new().entries() {
            let case = Case { stages: STAGES, work: Work::TRIVIAL, threads: 2, events: 5_000 };
            let outcome = run_once(&case, &Choice::new(entry.offer.name));
            assert_eq!(outcome.checksum, expected_checksum::<Event64>(&case), "{entry:?}");
        }
    }

    #[test]
    fn only_the_policies_on_private_queues_walk() {
        let registry = Registry::new();
        let walking = registry
            .entries()
            .filter(|entry| walks(entry, &Choice::new(entry.offer.name)))
            .map(|entry| entry.offer.name);
        let expected = ["cohort", "cohort-bounded", "lrb", "dbr", "srpt-private"];
        assert_eq!(walking.collect::<Vec<_>>(), expected);
    }
}
