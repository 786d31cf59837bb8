//! A future that is ready at once: what a stage costs that would wait and does not. Counted in instructions,
//! one thread each: ours as the difference that the stage makes to a program; tokio's as a hop from task to
//! task through its bounded channel, an event a message.
//! Where there is no valgrind the bar is not run.

use crate::instructions::{Operation, each};
use crate::load::CAPACITY;
use crate::report::{Report, Table};
use comporta::{App, Plan};
use std::hint::black_box;
use tokio::runtime::Builder;
use tokio::sync::mpsc;

pub(super) const OPERATIONS: [Operation; 4] = [
    Operation { name: "without", about: "source and sink", run: without },
    Operation { name: "map", about: "a synchronous stage between them", run: map },
    Operation { name: "ready", about: "a stage whose future is ready between them", run: ready },
    Operation { name: "tokio_hop", about: "from task to task by tokio's mpsc", run: tokio_hop },
];

const FEW: u64 = 20_000;

pub(super) fn run(report: &mut Report) {
    println!("\nready: instructions of an event, in user space, one thread");
    let mut table = Table::new(&["program", "instructions", "meaning"]);
    let mut counted = Vec::new();
    for operation in &OPERATIONS {
        let Some(each) = each("async", operation.name, FEW) else {
            println!("valgrind is not there, or did not count: this is not run");
            return;
        };
        let (name, about) = (operation.name.to_owned(), operation.about.to_owned());
        table.row([name, format!("{each:.1}"), about]);
        report.figure(format!("{}_instructions", operation.name), each);
        counted.push(each);
    }
    table.print();
    if let [without, map, ready, tokio] = counted[..] {
        println!("a stage: {:.1} synchronous, {:.1} ready at once", map - without, ready - without);
        report.figure("ready_vs_tokio", (ready - without) / tokio);
    }
}

fn used(n: u64) {
    black_box(n);
}

fn plan() -> Plan {
    Plan::new().threads(1).every(|stage| stage.capacity(CAPACITY))
}

fn without(events: u64) {
    let app = App::new("without");
    let source = app.source("source", move || 0..events);
    app.connect(source, app.sink("sink", |n: u64| used(n)));
    let _ = app.run(&plan()).expect("a valid graph");
}

fn map(events: u64) {
    let app = App::new("map");
    let source = app.source("source", move || 0..events);
    let map = app.map("map", |n: u64| n + 1);
    app.connect(source, map);
    app.connect(map, app.sink("sink", |n: u64| used(n)));
    let _ = app.run(&plan()).expect("a valid graph");
}

fn ready(events: u64) {
    let app = App::new("ready");
    let source = app.source("source", move || 0..events);
    let ready = app.map_async("ready", |n: u64| async move { n + 1 });
    app.connect(source, ready);
    app.connect(ready, app.sink("sink", |n: u64| used(n)));
    let _ = app.run(&plan()).expect("a valid graph");
}

fn tokio_hop(events: u64) {
    let runtime = Builder::new_current_thread().build().expect("the system has descriptors");
    runtime.block_on(async {
        let (sender, mut receiver) = mpsc::channel(CAPACITY);
        let sink = tokio::spawn(async move {
            while let Some(n) = receiver.recv().await {
                black_box::<u64>(n);
            }
        });
        for n in 0..events {
            sender.send(n).await.expect("the sink takes all");
        }
        drop(sender);
        sink.await.expect("the sink ends");
    });
}
