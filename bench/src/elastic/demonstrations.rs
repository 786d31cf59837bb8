//! The demonstrations of sections 5.3.1 to 5.3.4, each under every controller, beside what was published of it.

use super::program::{Accounts, Controller, Load, Series, TAKES, Takes, run as run_load};
use crate::options::Options;
use crate::report::{Report, Table};
use std::time::Duration;

const BURST_GAP: Duration = Duration::from_millis(10);
/// Of a quick run; the published controller has scaled up by then, and not yet down.
const SECONDS_QUICK: u64 = 30;

/// One demonstration.
struct Case {
    name: &'static str,
    about: &'static str,
    published: &'static str,
    load: Load,
}

fn cases() -> Vec<Case> {
    let burst = Load::every(BURST_GAP);
    let busy = Load { takes: Takes::Busy(TAKES), ..burst };
    vec![
        Case {
            name: "matched",
            about: "1. an event every 50 ms, 50 ms each",
            published: "no elasticity; 92 queued after five minutes, optimised: peak 3, mean 1.244",
            load: Load::every(TAKES),
        },
        Case {
            name: "burst",
            about: "2. an event every 10 ms, 50 ms each, waiting",
            published: "without: 23,651 queued. With (Table 5.4): 1,280 queued at the scale-up to 7, then 6, 175 queued",
            load: burst,
        },
        Case {
            name: "busy",
            about: "3. the same, computing, on 4 processors",
            published: "8 threads wanted, 6 made (CPU, Tables 5.6 and 5.7), none removed",
            load: busy,
        },
        Case {
            name: "busy_shared",
            about: "3b. the same on 8 processors, of which others use 30 %; at most 90 %",
            published: "-",
            load: Load { cpus: 8, others: 30, cpu_max: 90.0, ..busy },
        },
        Case {
            name: "hot",
            about: "4. an event every 10 ms, 50 ms each, of three accounts",
            published: "3 threads, and a queue that goes on growing",
            load: Load { accounts: Accounts::InTurn(3), ..burst },
        },
        Case {
            name: "hot_among",
            about: "4b. the same, one event of ten of 1,000 other accounts",
            published: "-",
            load: Load { accounts: Accounts::Hot(3), ..burst },
        },
    ]
}

pub(super) fn run(options: &Options, report: &mut Report) {
    for Case { name, about, published, mut load } in cases() {
        if !options.takes_case(name) {
            continue;
        }
        if options.quick {
            load.seconds = SECONDS_QUICK;
        }
        println!("\n{about}, {} s\n   published: {published}", load.seconds);
        let mut table = Table::new(&[
            "policy",
            "threads",
            "peak",
            "end",
            "changes",
            "queue peak",
            "mean",
            "end",
            "out/s",
            "wall s",
        ]);
        for controller in Controller::ALL {
            let series = run_load(controller, &load);
            note(report, name, controller, &load, &series);
            table.row(row(controller, &series));
            for decision in &series.decisions {
                println!("   {}: {decision}", controller.name());
            }
        }
        table.print();
    }
}

fn row(controller: Controller, series: &Series) -> Vec<String> {
    let changes = series.changes();
    let shown = changes.iter().map(|(at, threads)| format!("{threads} at {at} s"));
    let shown = if changes.is_empty() { "1".into() } else { shown.collect::<Vec<_>>().join(", ") };
    let last = series.last();
    let rate = last.handled as f64 / series.seconds.len().max(1) as f64;
    vec![
        controller.name().into(),
        shown,
        series.threads_peak().to_string(),
        last.threads.to_string(),
        changes.len().to_string(),
        series.queue_peak().to_string(),
        format!("{:.3}", series.queue_mean()),
        last.queue.to_string(),
        format!("{rate:.1}"),
        format!("{:.2}", series.wall.as_secs_f64()),
    ]
}

/// Seconds in which the threads could use more CPU than they may: each is busy while it has events.
fn over(load: &Load, series: &Series) -> usize {
    let share = 100.0 / load.cpus as f64;
    let used = |threads: usize| f64::from(load.others) + threads as f64 * share;
    series.seconds.iter().filter(|second| used(second.threads) > load.cpu_max).count()
}

fn note(report: &mut Report, case: &str, controller: Controller, load: &Load, series: &Series) {
    let (changes, last) = (series.changes(), series.last());
    report.detail(
        case,
        controller.name(),
        &[
            ("threads_peak", series.threads_peak() as f64),
            ("threads_settled", last.threads as f64),
            ("changes", changes.len() as f64),
            ("first_change_s", changes.first().map_or(f64::NAN, |(at, _)| *at as f64)),
            ("queue_peak", series.queue_peak() as f64),
            ("queue_mean", series.queue_mean()),
            ("queue_end", last.queue as f64),
            ("arrived", last.arrived as f64),
            ("handled", last.handled as f64),
            (
                "cpu_over",
                if matches!(load.takes, Takes::Busy(_)) {
                    over(load, series) as f64
                } else {
                    f64::NAN
                },
            ),
            ("wall_s", series.wall.as_secs_f64()),
        ],
    );
    let is_elastic = controller != Controller::None;
    match (case, controller) {
        ("burst", Controller::Elastic) => {
            report.figure("threads_peak", series.threads_peak() as f64);
            report.figure("threads_settled", last.threads as f64);
            if let Some((at, _)) = changes.first() {
                report.figure("scale_up_sample", *at as f64);
            }
        }
        ("burst", Controller::Ds2) => {
            report.figure("ds2_changes", changes.len() as f64);
            let is_final = changes.first().is_some_and(|(_, threads)| *threads == last.threads);
            report.figure("ds2_first_is_final", f64::from(u8::from(is_final)));
        }
        ("burst", Controller::None) => report.figure("queue_without", last.queue as f64),
        ("hot", Controller::Elastic) => {
            report.figure("hot_key_threads", series.threads_peak() as f64);
        }
        ("hot_among", Controller::Elastic) => {
            report.figure("hot_key_threads_among", series.threads_peak() as f64);
        }
        ("matched", _) if is_elastic => report.most("matched_changes", changes.len() as f64),
        ("busy" | "busy_shared", _) if is_elastic => {
            report.most("cpu_over", over(load, series) as f64);
        }
        _ => {}
    }
}
