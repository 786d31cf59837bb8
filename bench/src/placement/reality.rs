//! One node of the model against Comporta itself: three stages of a millisecond each, one thread, the same
//! arrivals to the nanosecond. In the model replicas take turns, an event each; so do stages under the policy `single` with
//! visits of one event. The sink takes its turn with them.

use crate::options::Options;
use crate::report::{Report, Table};
use comporta::{App, Plan};
use comporta_sim::rates::Rates;
use comporta_sim::scenario::{Node, Operator, Scenario};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const STAGES: usize = 3;
const SERVICE: Duration = Duration::from_millis(1);
/// What the sink costs: next to nothing.
const SINK_S: f64 = 1e-7;
/// Loads, and how long each is run for.
const LOADS: [(f64, f64); 3] = [(0.5, 10.0), (0.8, 20.0), (0.95, 20.0)];
const DURATION_QUICK_S: f64 = 2.0;

pub(super) fn check(options: &Options, report: &mut Report) {
    println!(
        "\nOne node against Comporta itself: three stages of 1 ms on one thread, the same arrivals"
    );
    let mut table = Table::new(&["load", "events", "model ms", "Comporta ms", "error %"]);
    let mut worst = 0.0_f64;
    for (load, seconds) in LOADS {
        let seconds = if options.quick { DURATION_QUICK_S } else { seconds };
        let scenario = scenario(load, seconds, options.seed);
        let arrivals = scenario.arrivals(0);
        let model = comporta_sim::run(&scenario).expect("three stages are sound").total.mean_ms;
        let real = measured_ms(&arrivals);
        let error = model / real - 1.0;
        report.figure(format!("comporta_error_{:.0}", load * 100.0), error.abs());
        if load < 0.9 {
            worst = worst.max(error.abs());
        }
        table.row([
            format!("{load}"),
            arrivals.len().to_string(),
            format!("{model:.3}"),
            format!("{real:.3}"),
            format!("{:+.1}", error * 100.0),
        ]);
    }
    table.print();
    report.figure("comporta_error", worst);
}

/// All on one node of one core, so that events pass from stage to stage without a network.
fn scenario(load: f64, seconds: f64, seed: u64) -> Scenario {
    let mut scenario = Scenario::new("three stages");
    // Time to work off what is left: all events count.
    (scenario.duration, scenario.seed) = (seconds + 60.0, seed);
    scenario.nodes = vec![Node { cores: 1, ..Node::new("node") }];
    let service_s = SERVICE.as_secs_f64();
    let rates = Rates::steady(load / (service_s * STAGES as f64)).then(seconds, 0.0, 0.0);
    scenario.operators.push(Operator::source("source", 0, rates));
    for at in 0..STAGES {
        let operator = Operator::new(format!("stage{at}"), vec![0], vec![at]);
        scenario.operators.push(Operator { cost: service_s, ..operator });
    }
    // In the model what costs nothing is done at once; the sink of a program takes its turn behind the stages that are ready.
    let sink = Operator::new("sink", vec![0], vec![STAGES]);
    scenario.operators.push(Operator { cost: SINK_S, ..sink });
    scenario
}

/// The mean latency of a program that is handed events at these moments, from when they were due.
fn measured_ms(arrivals: &[f64]) -> f64 {
    // Events are the moments at which they are due, in nanoseconds from here.
    let began = Instant::now() + Duration::from_millis(50);
    let app = App::new("stages");
    let (sender, input) = app.input::<u64>("input");
    let mut from = input;
    for number in 0..STAGES {
        let stage = app.map_in_place(format!("stage{number}"), move |_: &mut u64| {
            let began = Instant::now();
            while began.elapsed() < SERVICE {
                std::hint::spin_loop();
            }
        });
        app.connect(from, stage);
        from = *stage;
    }
    let took = Arc::new(Mutex::new((0.0, 0_u32)));
    let sum = took.clone();
    let sink = app.sink("sink", move |due_ns: u64| {
        let took = (began + Duration::from_nanos(due_ns)).elapsed();
        let mut sum = sum.lock().expect("nobody panics with it");
        *sum = (sum.0 + took.as_secs_f64(), sum.1 + 1);
    });
    app.connect(from, sink);
    let plan = Plan::new().threads(1).policy("single").every(|stage| stage.batch(1));
    let running = app.start(&plan).expect("three stages are a valid graph");
    for arrival in arrivals {
        let due = Duration::from_secs_f64(*arrival);
        thread::sleep((began + due).saturating_duration_since(Instant::now()));
        sender.send(due.as_nanos() as u64).expect("the stages take events until the last");
    }
    drop(sender);
    let _ = running.wait();
    let (sum, count) = *took.lock().expect("nobody panics with it");
    assert_eq!(count as usize, arrivals.len(), "no event is lost");
    1e3 * sum / f64::from(count)
}
