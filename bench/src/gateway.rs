//! `gateway`: a request through a graph and back, against what one writes by hand: a service that takes requests
//! from a bounded channel, each with a oneshot for its reply. One request after the other, and 64 at once; one
//! stage, which adds one.
//!
//! All are asked by tasks of one tokio runtime. The graph has threads of its own, as many as the plan says; so
//! has the service of the peer `tokio`, which is a task of another runtime with as many threads: a reply comes
//! from another thread on both sides. For comparison, the peer `task` is a task of the askers' own runtime, which
//! may run it on the thread of the asker, between its two polls: no thread is woken. That is what a function call
//! costs there, not a service, and no bar.

use crate::load::CAPACITY;
use crate::options::Options;
use crate::report::{Bar, Better, Limit, Report, Table, show_ratio};
use crate::rounds::interleave;
use crate::stats::{Ratio, median};
use comporta::{App, Plan};
use std::time::Instant;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, oneshot};

pub(crate) const ABOUT: &str =
    "a request through a graph and its reply, against oneshot through mpsc";

const BARS: &[Bar] = &[Bar {
    name: "round_trip_vs_tokio",
    limit: Limit::AtMost(2.0),
    about: "time of a request and its reply, one after the other, against oneshot through mpsc to another runtime",
}];

const REQUESTS: u64 = 20_000;
const REQUESTS_QUICK: u64 = 4_000;
/// How many ask at once, and what distinguishes their JSON fields.
const ASKERS: [(u64, &str); 2] = [(1, ""), (64, "_64")];

struct Peer {
    name: &'static str,
    /// Asks so many times, by so many tasks; returns the sum of the replies.
    run: fn(&Runtime, u64, u64) -> u64,
}

const PEERS: [Peer; 3] = [
    Peer { name: "comporta", run: ours },
    Peer { name: "tokio", run: service },
    Peer { name: "task", run: task },
];

/// Threads of the graph, and of the service.
const THREADS: usize = 2;

pub(crate) fn run(options: &Options) -> Report {
    let mut report = Report::new("gateway", options, BARS);
    let requests = if options.quick { REQUESTS_QUICK } else { REQUESTS };
    let runtime = Builder::new_multi_thread().worker_threads(options.threads).build();
    let runtime = runtime.expect("the system has threads");
    for (askers, suffix) in ASKERS {
        let name = format!("askers_{askers}");
        if !options.takes_case(&name) {
            continue;
        }
        let series = interleave(&PEERS, options.rounds, options.seed, &name, |peer, _| {
            let began = Instant::now();
            let sum = (peer.run)(&runtime, requests / askers, askers);
            let us = began.elapsed().as_secs_f64() * 1e6 / (requests / askers * askers) as f64;
            assert_eq!(sum, askers * (1..=requests / askers).sum::<u64>(), "{}", peer.name);
            us
        });
        println!("\n{askers} at once: µs a request, {} rounds of {requests}", options.rounds);
        let mut table = Table::new(&["peer", "µs"]);
        for (peer, samples) in PEERS.iter().zip(&series) {
            let us = median(&samples.samples);
            table.row([peer.name.to_owned(), format!("{us:.2}")]);
            report.detail(&name, peer.name, &[("us", us)]);
        }
        table.print();
        for (peer, samples) in PEERS.iter().zip(&series).skip(1) {
            let ratio = Ratio::paired(&series[0].samples, &samples.samples, options.seed);
            println!("ours over {}'s: {}", peer.name, show_ratio(&ratio));
            report.ratio(&format!("round_trip_vs_{}{suffix}", peer.name), &ratio, Better::Less);
        }
    }
    report.close();
    report
}

fn ours(runtime: &Runtime, each: u64, askers: u64) -> u64 {
    let app = App::new("gateway");
    let gateway = app.gateway::<u64, u64>("gateway");
    let add = app.map("add", |n: u64| n + 1);
    app.connect(gateway.requests, add);
    app.connect(add, gateway.replies);
    let client = gateway.client;
    let plan = Plan::new().threads(THREADS).every(|stage| stage.capacity(CAPACITY));
    let running = app.start(&plan).expect("a valid graph");
    let sum = runtime.block_on(async {
        let ask = |_| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut sum = 0;
                for n in 0..each {
                    sum += client.request(n).await.expect("every request is answered");
                }
                sum
            })
        };
        let mut sum = 0;
        for asker in (0..askers).map(ask).collect::<Vec<_>>() {
            sum += asker.await.expect("an asker ends");
        }
        sum
    });
    drop(client);
    let _ = running.wait();
    sum
}

/// A service on threads of its own.
fn service(runtime: &Runtime, each: u64, askers: u64) -> u64 {
    let own = Builder::new_multi_thread().worker_threads(THREADS).build();
    let own = own.expect("the system has threads");
    let sum = by_hand(runtime, own.handle(), each, askers);
    own.shutdown_background();
    sum
}

/// A task among the askers.
fn task(runtime: &Runtime, each: u64, askers: u64) -> u64 {
    by_hand(runtime, runtime.handle(), each, askers)
}

fn by_hand(runtime: &Runtime, serves: &Handle, each: u64, askers: u64) -> u64 {
    let (sender, mut receiver) = mpsc::channel::<(u64, oneshot::Sender<u64>)>(CAPACITY);
    serves.spawn(async move {
        while let Some((n, reply)) = receiver.recv().await {
            let _ = reply.send(n + 1); // its asker waits
        }
    });
    runtime.block_on(async {
        let ask = |_| {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut sum = 0;
                for n in 0..each {
                    let (reply, replied) = oneshot::channel();
                    sender.send((n, reply)).await.expect("the service takes requests");
                    sum += replied.await.expect("every request is answered");
                }
                sum
            })
        };
        let mut sum = 0;
        for asker in (0..askers).map(ask).collect::<Vec<_>>() {
            sum += asker.await.expect("an asker ends");
        }
        sum
    })
}
