//! How long the events of a cold key wait beside a hot one. One server, an event a step, arrivals at random at nine
//! tenths of what it can do; the measure is the same arrivals with the hottest key's events spread evenly over all
//! keys. Time is the steps of the test runtime, so a run is exact, whatever the machine does.

use super::load::{Keys, Spread};
use crate::options::Options;
use crate::report::Report;
use crate::stats::quantile;
use comporta::testing::TestRuntime;
use comporta::{App, Plan};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

const KEYS: usize = 1_000;
/// Ranks from here on are cold: each has less than a thousandth of the events.
const COLD: usize = 100;
const LOAD: f64 = 0.9;
const STEPS: u64 = 200_000;
const STEPS_QUICK: u64 = 20_000;

pub(super) fn run(options: &Options, report: &mut Report) {
    let steps = if options.quick { STEPS_QUICK } else { STEPS };
    let (hot, even) = (p99(steps, Hottest::Stays), p99(steps, Hottest::IsSpread));
    println!("\ncold: p99 wait of cold keys in steps: {hot} beside a hot key, {even} without one");
    report.figure("cold_p99_steps", hot);
    report.figure("cold_p99_steps_even", even);
    report.figure("cold_key_wait", hot / even);
}

/// What becomes of the events of the hottest key.
#[derive(Clone, Copy, PartialEq)]
enum Hottest {
    Stays,
    IsSpread,
}

/// An event: its key, by rank; when it came.
type Arrival = (usize, u64);

/// The p99 of how many steps cold events waited.
fn p99(steps: u64, hottest: Hottest) -> f64 {
    let step = Arc::new(AtomicU64::new(0));
    let waits = Arc::new(Mutex::new(Vec::new()));
    let (now, into) = (step.clone(), waits.clone());
    let app = App::new("cold");
    let (sender, input) = app.input::<Arrival>("input");
    let serve = app.sink("serve", move |(rank, came): Arrival| {
        if rank >= COLD {
            let wait = now.load(Relaxed) - came;
            into.lock().unwrap_or_else(PoisonError::into_inner).push(wait as f64);
        }
    });
    app.connect(input, serve.keyed(|(rank, _)| *rank));
    let plan = Plan::new().threads(1).every(|stage| stage.batch(1).capacity(1 << 20));
    let mut runtime = TestRuntime::new(app, &plan).expect("a valid graph");
    let (mut keys, mut spread) = (Keys::new(KEYS, Spread::Zipf(1.2), 5), 0);
    let mut next = 0.0;
    for at in 0..steps {
        step.store(at, Relaxed);
        while next <= at as f64 {
            next += -(1.0 - keys.part()).ln() / LOAD;
            let mut rank = keys.draw();
            if rank == 0 && hottest == Hottest::IsSpread {
                spread = (spread + 1) % KEYS;
                rank = spread;
            }
            sender.try_send((rank, at)).expect("the queue has room for all");
        }
        runtime.step();
    }
    let waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
    quantile(&waits, 0.99)
}
