//! Handlers that sleep 5 ms, 1,000 keys, 64 threads: how near ours come to 64 threads that sleep and do nothing else.

use crate::options::Options;
use crate::report::{Better, Report, Table, show_ratio};
use crate::rounds::interleave;
use crate::stats::{Ratio, median};
use comporta::{App, Plan};
use std::thread;
use std::time::{Duration, Instant};

const KEYS: u64 = 1_000;
const THREADS: u64 = 64;
const WAIT: Duration = Duration::from_millis(5);
const EVENTS: u64 = THREADS * 100;
const EVENTS_QUICK: u64 = THREADS * 20;

struct Peer {
    name: &'static str,
    run: fn(u64),
}

const PEERS: [Peer; 2] =
    [Peer { name: "comporta", run: ours }, Peer { name: "bare_threads", run: bare }];

pub(super) fn run(options: &Options, report: &mut Report) {
    let events = if options.quick { EVENTS_QUICK } else { EVENTS };
    let series = interleave(&PEERS, options.rounds, options.seed, "waiting", |peer, _| {
        let began = Instant::now();
        (peer.run)(events);
        events as f64 / began.elapsed().as_secs_f64()
    });
    println!("\nwaiting: {events} events of {WAIT:?}, {KEYS} keys, {THREADS} threads");
    let mut table = Table::new(&["peer", "events/s", "CPU ms"]);
    for (peer, samples) in PEERS.iter().zip(&series) {
        let rate = format!("{:.0}", median(&samples.samples));
        table.row([peer.name.to_owned(), rate, format!("{:.0}", samples.own_cpu_ms)]);
    }
    table.print();
    let ratio = Ratio::paired(&series[0].samples, &series[1].samples, options.seed);
    println!("ours over bare threads: {}", show_ratio(&ratio));
    report.ratio("speedup_waiting", &ratio, Better::More);
}

fn ours(events: u64) {
    let app = App::new("waiting");
    let source = app.source("source", move || 0..events);
    let wait = app.sink("wait", |_: u64| thread::sleep(WAIT)).keyed(|n| n % KEYS);
    app.connect(source, wait);
    let threads = THREADS as usize;
    let plan = Plan::new().threads(threads).stage("wait", |wait| wait.instances(threads));
    let summary = app.run(&plan).expect("a valid graph");
    let handled = summary.snapshot.stage("wait").map_or(0, |wait| wait.counts.handled);
    assert_eq!(handled, events, "{summary}");
}

fn bare(events: u64) {
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..events / THREADS).for_each(|_| thread::sleep(WAIT)));
        }
    });
}
