//! An I/O-bound stage: each event waits a millisecond on tokio's timer, 1,000 in flight. Against a stream with
//! `buffer_unordered`, which is what one writes by hand; both on the same number of threads, in any order.

use crate::options::Options;
use crate::report::{Better, Report, Table, show_ratio};
use crate::rounds::interleave;
use crate::stats::{Ratio, median};
use comporta::{App, Plan};
use futures_util::{StreamExt, stream};
use std::time::{Duration, Instant};

const IN_FLIGHT: usize = 1_000;
const WAIT: Duration = Duration::from_millis(1);
const EVENTS: u64 = 100_000;
const EVENTS_QUICK: u64 = 30_000;

struct Peer {
    name: &'static str,
    run: fn(u64, usize) -> u64,
}

const PEERS: [Peer; 2] =
    [Peer { name: "comporta", run: ours }, Peer { name: "buffer_unordered", run: buffered }];

pub(super) fn run(options: &Options, report: &mut Report) {
    let events = if options.quick { EVENTS_QUICK } else { EVENTS };
    let series = interleave(&PEERS, options.rounds, options.seed, "timers", |peer, _| {
        let began = Instant::now();
        assert_eq!((peer.run)(events, options.threads), events, "{} lost events", peer.name);
        events as f64 / began.elapsed().as_secs_f64()
    });
    println!("\ntimers: k events a second, {WAIT:?} each, {IN_FLIGHT} in flight, {events} events");
    let mut table = Table::new(&["peer", "k events/s", "CPU ms"]);
    for (peer, samples) in PEERS.iter().zip(&series) {
        let rate = format!("{:.0}", median(&samples.samples) / 1e3);
        table.row([peer.name.to_owned(), rate, format!("{:.0}", samples.own_cpu_ms)]);
    }
    table.print();
    let ratio = Ratio::paired(&series[0].samples, &series[1].samples, options.seed);
    println!("ours over buffer_unordered: {}", show_ratio(&ratio));
    report.ratio("io_vs_buffer_unordered", &ratio, Better::More);
}

async fn waits(n: u64) -> u64 {
    tokio::time::sleep(WAIT).await;
    n
}

fn ours(events: u64, threads: usize) -> u64 {
    let app = App::new("timers");
    let source = app.source("source", move || 0..events);
    let wait = app.map_async("wait", waits);
    app.connect(source, wait);
    app.connect(wait, app.sink("sink", |_: u64| ()));
    let plan = Plan::new().threads(threads).stage("wait", |wait| wait.instances(IN_FLIGHT));
    let summary = app.run(&plan).expect("a valid graph");
    summary.snapshot.stage("sink").map_or(0, |sink| sink.counts.handled)
}

fn buffered(events: u64, threads: usize) -> u64 {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_time()
        .build()
        .expect("the system has threads");
    let all = async move {
        let waiting = stream::iter(0..events).map(waits).buffer_unordered(IN_FLIGHT);
        waiting.fold(0, |count, _| async move { count + 1 }).await
    };
    runtime.block_on(async { tokio::spawn(all).await.expect("the stream ends") })
}
