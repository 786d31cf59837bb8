//! `overload`: an open load of 0.5 to 3 times capacity, and a step from 0.7 to 1.4, under every
//! admission controller.
//!
//! 1. `controllers`  who takes part, with which parameters, and why those
//! 2. `run`          the program, the load and what is noted
//! 3. `step`         how long until the queueing delay is back
//!
//! Goodput is events handled in a second, whatever they waited: how long that was stands beside it.
//! Its peak is what it reached in the same round at the load where its median is highest; or the closed
//! loop did, if that is more. (The most of a round's runs would be the one that the machine favoured.)
//! Response times are of those who were handled, from when they
//! were due. The first part of each run, in which controllers and caches settle, is not counted.
//! `away` is the part of a run that the machine ran something else in place of one of the two threads.
//! `arrived` is what was due over what should have been: a pacer that cannot keep up would show.
//!
//! The best controller is one for all bars: that which meets most of them by its medians at 10 µs,
//! and of several that which is back soonest, then that with most goodput at 3 times capacity.
//! It is judged by rounds of its own, since it was chosen by the others.
//! Where half the steps were not back within the time watched, that time stands for it, marked `>`.
//!
//! A bin is 1 ms where service takes 10 µs. Where it takes 1 ms, such a bin would hold less than an
//! event, and is 20 ms long.
//!
//! Long because each table is told with the figures it files.

mod controllers;
mod run;
mod step;

use crate::options::Options;
use crate::report::{Bar, Better, Limit, Report, Table};
use crate::rounds::{Series, interleave};
use crate::stats::{Ratio, median, quantile};
use controllers::{CONTROLLERS, Controller};
use run::{Outcome, Phase};
use std::time::Duration;
use step::{Recovery, recovery};

pub(crate) const ABOUT: &str =
    "every admission controller under 0.5 to 3 times capacity, and after a step of the load";

const BARS: &[Bar] = &[
    Bar {
        name: "goodput_3x",
        limit: Limit::AtLeast(0.95),
        about: "best controller: goodput at 3 times capacity, of its peak",
    },
    Bar {
        name: "p99_3x_vs_90",
        limit: Limit::AtMost(5.0),
        about: "its p99 of the admitted at 3 times capacity, of that at 0.9",
    },
    Bar {
        name: "recovery_ms",
        limit: Limit::AtMost(20.0),
        about: "its time to be back after a step from 0.7 to 1.4",
    },
    Bar {
        name: "recovery_vs_seda",
        limit: Limit::AtLeast(20.0),
        about: "SEDA's time to be back, of that",
    },
];

/// Rounds of the best controller, for each in which it was chosen.
const FINAL_ROUNDS: usize = 4;
const LOADS: [f64; 5] = [0.5, 0.9, 1.1, 1.4, 3.0];
const NINETY: usize = 1;
const THREE: usize = 4;
const STEP: (f64, f64) = (0.7, 1.4);
const SEDA: &str = "seda";

/// A service time, and how long everything takes with it.
struct Service {
    name: &'static str,
    mean: Duration,
    /// Of a run under one load: not counted, and counted.
    warm: Duration,
    counted: Duration,
    /// Of a run with a step.
    before: Duration,
    after: Duration,
    bin: Duration,
    rounds: usize,
    steps: usize,
}

fn services(options: &Options) -> [Service; 2] {
    let ms = Duration::from_millis;
    let quick = |slow: u64, quick: u64| ms(if options.quick { quick } else { slow });
    [
        Service {
            name: "10us",
            mean: Duration::from_micros(10),
            warm: quick(30, 20),
            counted: quick(90, 40),
            before: quick(100, 100),
            after: quick(500, 250),
            bin: ms(1),
            rounds: options.rounds,
            steps: if options.quick { 3 } else { 20 },
        },
        Service {
            name: "1ms",
            mean: ms(1),
            warm: quick(100, 30),
            counted: quick(500, 120),
            before: quick(500, 300),
            after: quick(1500, 500),
            bin: ms(20),
            rounds: options.rounds.div_ceil(5),
            steps: if options.quick { 1 } else { 3 },
        },
    ]
}

/// One run under one load.
struct Loaded {
    goodput: f64,
    p50_us: f64,
    p99_us: f64,
    shed: f64,
    arrived: f64,
    late_p99_us: f64,
    away: f64,
    full: u64,
}

/// A controller, its goodput at 3 times capacity of its peak, and its p99 there of that at 0.9.
type Judged = (&'static Controller, Ratio, Ratio);

/// Who runs in a round: the closed loop, and every controller under every load.
#[derive(Clone, Copy)]
enum Entrant {
    Closed,
    Under(&'static Controller, f64),
}

/// All steps of a controller.
struct Steps {
    controller: &'static Controller,
    /// Milliseconds; the time watched where it was not back.
    ms: Vec<f64>,
    /// Until the delay was not over, only.
    under_ms: f64,
    level_us: f64,
    peak_us: f64,
    /// Half of them were not back.
    never: bool,
}

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("overload", options, BARS);
    for service in services(options) {
        let taken: Vec<&'static Controller> = CONTROLLERS
            .iter()
            .filter(|one| options.takes_case(&format!("{}/{}", service.name, one.name)))
            .collect();
        if taken.is_empty() {
            continue;
        }
        let tries =
            (0..5).map(|n| run::capacity(service.mean, service.counted * 2, options.seed + n));
        let capacity = median(&tries.collect::<Vec<_>>());
        println!(
            "\noverload, service {}: one worker, capacity {capacity:.0} events/s; {} rounds, {} \
             steps; Poisson arrivals from a thread that spins",
            service.name, service.rounds, service.steps
        );
        report.figure(format!("capacity_{}", service.name), capacity);
        let series = loaded(&service, &taken, capacity, options);
        let verdicts = tell_loads(&service, &taken, &series, capacity, options, &mut report);
        let steps = stepped(&service, &taken, capacity, options);
        tell_steps(&service, &steps, capacity, &mut report);
        if service.name == "10us"
            && let Some(best) = best_of(verdicts, &steps)
        {
            println!("\nbest controller: {}; in rounds of its own:", best.controller.name);
            let rounds = service.rounds * FINAL_ROUNDS;
            let service = Service { name: "10us_best", rounds, ..service };
            let series = loaded(&service, &[best.controller], capacity, options);
            let alone = &[best.controller];
            let judged = tell_loads(&service, alone, &series, capacity, options, &mut report);
            judge(&best, judged, &mut report);
        }
    }
    report.close();
    report
}

/// The closed loop first, then controller by controller, load by load.
fn loaded(
    service: &Service,
    taken: &[&'static Controller],
    capacity: f64,
    options: &Options,
) -> Vec<Series<Loaded>> {
    let under = taken.iter().flat_map(|one| LOADS.map(|load| Entrant::Under(one, load)));
    let entrants: Vec<Entrant> = std::iter::once(Entrant::Closed).chain(under).collect();
    let label = format!("{} loads", service.name);
    interleave(&entrants, service.rounds, options.seed, &label, |entrant, round| {
        let seed = options.seed + round as u64 * 1000;
        match *entrant {
            Entrant::Closed => Loaded {
                goodput: run::capacity(service.mean, service.counted, seed),
                p50_us: f64::NAN,
                p99_us: f64::NAN,
                shed: 0.0,
                arrived: f64::NAN,
                late_p99_us: f64::NAN,
                away: 0.0,
                full: 0,
            },
            Entrant::Under(controller, load) => {
                let phase = |lasting| Phase { per_second: capacity * load, lasting };
                let phases = [phase(service.warm), phase(service.counted)];
                let run = || run::open(controller, service.mean, capacity, &phases, seed);
                let outcome = run::undisturbed(run);
                measure(&outcome, service, capacity * load)
            }
        }
    })
}

fn measure(outcome: &Outcome, service: &Service, per_second: f64) -> Loaded {
    let warm = service.warm.as_nanos() as u64;
    let end = warm + service.counted.as_nanos() as u64;
    let counted = |at: u64| (warm..end).contains(&at);
    let seconds = service.counted.as_secs_f64();
    let handled = outcome.handled.iter().filter(|one| counted(one.ended)).count();
    let responses: Vec<f64> = outcome
        .handled
        .iter()
        .filter(|one| counted(one.ended))
        .map(|one| (one.ended - one.due) as f64 / 1e3)
        .collect();
    let due = outcome.due.iter().filter(|at| counted(**at)).count() as f64;
    let late: Vec<f64> = outcome.late.iter().map(|&late| late as f64 / 1e3).collect();
    Loaded {
        goodput: handled as f64 / seconds,
        p50_us: quantile(&responses, 0.5),
        p99_us: quantile(&responses, 0.99),
        shed: outcome.shed as f64 / outcome.due.len() as f64,
        arrived: due / (per_second * seconds),
        late_p99_us: quantile(&late, 0.99),
        away: outcome.away,
        full: outcome.full,
    }
}

// Long because a table is written with the figures it files.
fn tell_loads(
    service: &Service,
    taken: &[&'static Controller],
    series: &[Series<Loaded>],
    capacity: f64,
    options: &Options,
    report: &mut Report,
) -> Vec<Judged> {
    let mut table = Table::new(&[
        "controller",
        "load",
        "goodput/s",
        "of peak",
        "p50 µs",
        "p99 µs",
        "shed",
        "arrived",
        "pacer late p99",
        "away",
        "meaning",
    ]);
    let closed = series[0].figures(|run| run.goodput);
    let mut verdicts = Vec::new();
    for (controller, loads) in taken.iter().zip(series[1..].chunks(LOADS.len())) {
        let open = loads.iter().map(|load| load.figures(|run| run.goodput));
        let peaks = std::iter::once(closed.clone())
            .chain(open)
            .max_by(|a, b| median(a).total_cmp(&median(b)))
            .unwrap_or_default();
        for (load, samples) in LOADS.iter().zip(loads) {
            let middle = |figure: fn(&Loaded) -> f64| median(&samples.figures(figure));
            let of_peak = Ratio::paired(&samples.figures(|run| run.goodput), &peaks, options.seed);
            let [goodput, p50, p99] =
                [middle(|run| run.goodput), middle(|run| run.p50_us), middle(|run| run.p99_us)];
            let [shed, arrived, late] =
                [middle(|run| run.shed), middle(|run| run.arrived), middle(|run| run.late_p99_us)];
            let away = middle(|run| run.away);
            let full: u64 = samples.samples.iter().map(|run| run.full).sum();
            report.detail(
                &format!("{}_load_{load}", service.name),
                controller.name,
                &[
                    ("goodput_per_s", goodput),
                    ("of_peak", of_peak.median),
                    ("of_peak_low", of_peak.low),
                    ("p50_us", p50),
                    ("p99_us", p99),
                    ("shed_share", shed),
                    ("arrived_of_due", arrived),
                    ("pacer_late_p99_us", late),
                    ("queue_was_full", full as f64),
                    ("away_share", away),
                ],
            );
            let first = *load == LOADS[0];
            let shown =
                if first { controller.shown(service.mean, capacity) } else { String::new() };
            let full = if full > 0 { format!("queue full: {full} ") } else { String::new() };
            table.row([
                if first { controller.name.to_owned() } else { String::new() },
                format!("{load}"),
                format!("{goodput:.0}"),
                format!("{:.3}", of_peak.median),
                format!("{p50:.0}"),
                format!("{p99:.0}"),
                format!("{:.1} %", shed * 100.0),
                format!("{arrived:.3}"),
                format!("{late:.0}"),
                format!("{:.1} %", away * 100.0),
                format!("{full}{shown}"),
            ]);
        }
        let p99 = |load: usize| loads[load].figures(|run| run.p99_us);
        let goodput = loads[THREE].figures(|run| run.goodput);
        verdicts.push((
            *controller,
            Ratio::paired(&goodput, &peaks, options.seed),
            Ratio::paired(&p99(THREE), &p99(NINETY), options.seed),
        ));
    }
    table.print();
    verdicts
}

fn stepped(
    service: &Service,
    taken: &[&'static Controller],
    capacity: f64,
    options: &Options,
) -> Vec<Steps> {
    let label = format!("{} steps", service.name);
    let phases = [
        Phase { per_second: capacity * STEP.0, lasting: service.before },
        Phase { per_second: capacity * STEP.1, lasting: service.after },
    ];
    let series = interleave(taken, service.steps, options.seed, &label, |controller, round| {
        let seed = options.seed + 500 + round as u64 * 1000;
        let run = || run::open(controller, service.mean, capacity, &phases, seed);
        let outcome = run::undisturbed(run);
        recovery(&outcome.handled, service.bin, service.before, service.after)
    });
    let bin_ms = service.bin.as_secs_f64() * 1e3;
    let watched_ms = service.after.as_secs_f64() * 1e3;
    let to_ms = |bins: Option<usize>| bins.map_or(watched_ms, |bins| bins as f64 * bin_ms);
    taken
        .iter()
        .zip(&series)
        .map(|(controller, samples)| {
            let ms = samples.figures(|one: &Recovery| to_ms(one.bins));
            Steps {
                controller,
                never: median(&ms) >= watched_ms,
                ms,
                under_ms: median(&samples.figures(|one| to_ms(one.under))),
                level_us: median(&samples.figures(|one| one.level_ns / 1e3)),
                peak_us: median(&samples.figures(|one| one.peak_ns / 1e3)),
            }
        })
        .collect()
}

fn tell_steps(service: &Service, steps: &[Steps], capacity: f64, report: &mut Report) {
    println!(
        "\nstep from {} to {}: queueing delay in bins of {:?}, watched for {:?}",
        STEP.0, STEP.1, service.bin, service.after
    );
    let mut table = Table::new(&[
        "controller",
        "back after ms",
        "p10 .. p90",
        "not over after",
        "before µs",
        "worst bin µs",
        "meaning",
    ]);
    for one in steps {
        let middle = median(&one.ms);
        let (p10, p90) = (quantile(&one.ms, 0.1), quantile(&one.ms, 0.9));
        report.detail(
            &format!("{}_step", service.name),
            one.controller.name,
            &[
                ("recovery_ms", middle),
                ("recovery_ms_p10", p10),
                ("recovery_ms_p90", p90),
                ("under_ms", one.under_ms),
                ("never", f64::from(u8::from(one.never))),
                ("before_us", one.level_us),
                ("worst_bin_us", one.peak_us),
            ],
        );
        table.row([
            one.controller.name.to_owned(),
            format!("{}{middle:.0}", if one.never { "> " } else { "" }),
            format!("{p10:.0} .. {p90:.0}"),
            format!("{:.0}", one.under_ms),
            format!("{:.0}", one.level_us),
            format!("{:.0}", one.peak_us),
            one.controller.shown(service.mean, capacity),
        ]);
    }
    table.print();
}

/// Chooses the best controller.
fn best_of(loads: Vec<Judged>, steps: &[Steps]) -> Option<Verdict> {
    let seda = steps.iter().find(|one| one.controller.name == SEDA).map(|one| median(&one.ms));
    loads
        .into_iter()
        .zip(steps)
        .filter(|((controller, ..), _)| controller.name != SEDA)
        .map(|((controller, goodput, p99), steps)| {
            Verdict::new(controller, &goodput, &p99, median(&steps.ms), seda)
        })
        .min_by(Verdict::order)
}

/// Files what the bars are about.
fn judge(best: &Verdict, judged: Vec<Judged>, report: &mut Report) {
    report.text("best_controller", best.controller.name);
    for (_, goodput, p99) in judged {
        report.ratio("goodput_3x", &goodput, Better::More);
        report.ratio("p99_3x_vs_90", &p99, Better::Less);
    }
    report.figure("recovery_ms", best.recovery_ms);
    if let Some(vs_seda) = best.vs_seda {
        report.figure("recovery_vs_seda", vs_seda);
    }
}

/// What is known of a controller.
struct Verdict {
    controller: &'static Controller,
    goodput: f64,
    recovery_ms: f64,
    vs_seda: Option<f64>,
    /// Bars it meets by its medians.
    met: usize,
}

impl Verdict {
    fn new(
        controller: &'static Controller,
        goodput: &Ratio,
        p99: &Ratio,
        recovery_ms: f64,
        seda_ms: Option<f64>,
    ) -> Verdict {
        let vs_seda = seda_ms.map(|seda| seda / recovery_ms);
        let figures = [goodput.median, p99.median, recovery_ms, vs_seda.unwrap_or(f64::NAN)];
        let met = BARS.iter().zip(figures).filter(|(bar, figure)| bar.limit.holds(*figure)).count();
        Verdict { controller, goodput: goodput.median, recovery_ms, vs_seda, met }
    }

    /// The better one first.
    fn order(&self, other: &Verdict) -> std::cmp::Ordering {
        other
            .met
            .cmp(&self.met)
            .then(self.recovery_ms.total_cmp(&other.recovery_ms))
            .then(other.goodput.total_cmp(&self.goodput))
    }
}

#[cfg(test)]
mod tests {
    use super::run::{Chance, Handled};
    use super::*;

    fn ratio(figure: f64) -> Ratio {
        Ratio { rounds: vec![figure], median: figure, low: figure, high: figure }
    }

    fn best(of: &[(usize, f64, f64, f64)]) -> &'static str {
        let verdict = |&(place, goodput, p99, ms): &(usize, f64, f64, f64)| {
            Verdict::new(&CONTROLLERS[place], &ratio(goodput), &ratio(p99), ms, Some(400.0))
        };
        of.iter().map(verdict).min_by(Verdict::order).unwrap().controller.name
    }

    #[test]
    fn the_best_meets_all_bars_at_once_and_only_then_is_quick() {
        let slow = (1, 0.96, 4.0, 19.0);
        let quick = (3, 0.99, 6.0, 1.0);
        assert_eq!(best(&[quick, slow]), CONTROLLERS[1].name);
        assert_eq!(best(&[quick, (1, 0.9, 9.0, 1.0)]), CONTROLLERS[3].name);
        assert_eq!(best(&[(1, 0.96, 1.0, 2.0), (6, 0.98, 1.0, 2.0)]), CONTROLLERS[6].name);
    }

    #[test]
    fn chance_has_the_mean_it_should_and_repeats_with_the_seed() {
        let draws = |seed| {
            let mut chance = Chance::new(seed);
            (0..100_000).map(|_| chance.exponential()).collect::<Vec<f64>>()
        };
        let mean = draws(3).iter().sum::<f64>() / 1e5;
        assert!((0.98..1.02).contains(&mean), "{mean}");
        assert_eq!(draws(3), draws(3));
        assert_ne!(draws(3), draws(4));
    }

    #[test]
    fn only_what_ends_in_the_time_counted_is_goodput() {
        let crate::options::Parsed { options, .. } =
            crate::options::parse(["bench".into(), "overload".into()]).unwrap();
        let [service, _] = services(&options);
        let warm = service.warm.as_nanos() as u64;
        let at = |due: u64, ended: u64| Handled { due, began: due, ended, service: 0 };
        let end = warm + service.counted.as_nanos() as u64;
        let outcome = Outcome {
            handled: vec![
                at(0, warm - 1),
                at(warm - 1, warm),
                at(warm, warm + 7000),
                at(end - 1, end),
            ],
            due: vec![0, warm - 1, warm, end - 1],
            shed: 1,
            full: 0,
            late: vec![0],
            away: 0.0,
        };
        let found = measure(&outcome, &service, 2.0 / service.counted.as_secs_f64());
        let is = |figure: f64, expected: f64| (figure - expected).abs() < 1e-9;
        assert!(is(found.goodput * service.counted.as_secs_f64(), 2.0), "{}", found.goodput);
        assert!(is(found.arrived, 1.0) && is(found.shed, 0.25), "{}", found.arrived);
    }
}
