//! The burst once more, on threads of the machine that sleep for 50 ms: what virtual time leaves out shows here.

use super::program::{Controller, Load, run_on_threads};
use crate::options::Options;
use crate::report::Report;
use std::time::Duration;

const SECONDS_QUICK: u64 = 70;

pub(super) fn run(options: &Options, report: &mut Report) {
    let mut load = Load::every(Duration::from_millis(10));
    if options.quick {
        load.seconds = SECONDS_QUICK;
    }
    println!("\nreal threads: an event every 10 ms, 50 ms each, {} s", load.seconds);
    for controller in [Controller::Elastic, Controller::Ds2] {
        let series = run_on_threads(controller, &load);
        let (changes, last, name) = (series.changes(), series.last(), controller.name());
        println!(
            "   {name}: threads {changes:?}, queue peak {}, end {}",
            series.queue_peak(),
            last.queue
        );
        series.decisions.iter().for_each(|decision| println!("   {name}: {decision}"));
        report.detail(
            "real",
            name,
            &[
                ("threads_peak", series.threads_peak() as f64),
                ("threads_settled", last.threads as f64),
                ("changes", changes.len() as f64),
                ("first_change_s", changes.first().map_or(f64::NAN, |(at, _)| *at as f64)),
                ("queue_peak", series.queue_peak() as f64),
                ("queue_end", last.queue as f64),
                ("arrived", last.arrived as f64),
                ("handled", last.handled as f64),
            ],
        );
    }
}
