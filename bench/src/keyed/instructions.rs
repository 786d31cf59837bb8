//! An event through a keyed stage, in instructions and allocations, in steady state: every key has state before the
//! events that are counted. The measure is what one would write by hand, the update of a `HashMap` with its usual
//! hasher, and a hop of ours; both are counted beside it.
//!
//! It runs on virtual time: under valgrind every handler seems slow, and visits of slow handlers are short.
//! Where there is no valgrind the bar is not run.

use super::load::{Click, fold, mixed};
use crate::alloc;
use crate::instructions::{Operation, each};
use crate::load::CAPACITY;
use crate::report::{Report, Table};
use comporta::testing::TestRuntime;
use comporta::{App, Out, Plan};
use std::collections::HashMap;
use std::hint::black_box;

const SOME: u64 = 1_000;
const MANY: u64 = 1_000_000;

pub(super) const OPERATIONS: [Operation; 9] = [
    Operation { name: "map_1k", about: "a hash map's update, 1,000 keys", run: |n| map(SOME, n) },
    Operation { name: "without_1k", about: "source and sink", run: |n| without(SOME, n) },
    Operation { name: "hop_1k", about: "a plain stage between them", run: |n| hop(SOME, n) },
    Operation { name: "keyed_1k", about: "a keyed stage between them", run: |n| keyed(SOME, n) },
    Operation { name: "map_1m", about: "a hash map's update, 1,000,000", run: |n| map(MANY, n) },
    Operation { name: "without_1m", about: "source and sink", run: |n| without(MANY, n) },
    Operation { name: "hop_1m", about: "a plain stage between them", run: |n| hop(MANY, n) },
    Operation { name: "keyed_1m", about: "a keyed stage between them", run: |n| keyed(MANY, n) },
    Operation { name: "keyed_1", about: "the same with one key", run: |n| keyed(1, n) },
];

const FEW: u64 = 20_000;

pub(super) fn run(report: &mut Report) {
    let allocations = allocations(SOME).max(allocations(MANY));
    println!("\nallocations of an event whose key has state: {allocations:.5}");
    report.figure("allocations_per_event", allocations);
    println!("\ninstructions of an event, in user space, one thread, virtual time");
    let mut table = Table::new(&["program", "instructions", "meaning"]);
    let mut counted = Vec::new();
    for operation in &OPERATIONS {
        let Some(each) = each("keyed", operation.name, FEW) else {
            println!("valgrind is not there, or did not count: this is not run");
            return;
        };
        let (name, about) = (operation.name.to_owned(), operation.about.to_owned());
        table.row([name, format!("{each:.1}"), about]);
        report.figure(format!("{}_instructions", operation.name), each);
        counted.push(each);
    }
    table.print();
    let ratio = |of: &[f64]| match of {
        [map, without, hop, keyed] => (keyed - without) / (map + hop - without),
        _ => f64::NAN,
    };
    let worse = counted.chunks_exact(4).map(ratio).fold(0.0, f64::max);
    println!("a keyed stage over a hash map's update and a hop: {worse:.2}");
    report.figure("instructions_vs_map", worse);
}

/// Every key once, then `n` more in no order.
fn clicks(keys: u64, n: u64) -> impl Iterator<Item = Click> + Send {
    (0..keys + n).map(move |value| {
        let key = if value < keys { value } else { mixed(value) % keys };
        Click { key, value }
    })
}

fn map(keys: u64, n: u64) {
    let mut states: HashMap<u64, u64> = HashMap::new();
    clicks(keys, n).for_each(|click| fold(states.entry(click.key).or_default(), &click));
    black_box(states);
}

fn used(n: u64) {
    black_box(n);
}

fn run_to_its_end(app: App) {
    let plan = Plan::new().threads(1).every(|stage| stage.capacity(CAPACITY));
    let mut runtime = TestRuntime::new(app, &plan).expect("a valid graph");
    assert!(runtime.run(), "the program comes to its end");
}

fn without(keys: u64, n: u64) {
    let app = App::new("without");
    let source = app.source("source", move || clicks(keys, n));
    app.connect(source, app.sink("sink", |click: Click| used(click.value)));
    run_to_its_end(app);
}

fn hop(keys: u64, n: u64) {
    let app = App::new("hop");
    let source = app.source("source", move || clicks(keys, n));
    let hop = app.map("hop", |click: Click| click.value);
    app.connect(source, hop);
    app.connect(hop, app.sink("sink", |value: u64| used(value)));
    run_to_its_end(app);
}

fn keyed(keys: u64, n: u64) {
    let app = App::new("keyed");
    let source = app.source("source", move || clicks(keys, n));
    let keyed = app.keyed(
        "keyed",
        |click: &Click| click.key,
        |state: &mut u64, click: Click, out: &mut Out<u64>| {
            fold(state, &click);
            out.send(*state);
        },
    );
    app.connect(source, keyed);
    app.connect(keyed, app.sink("sink", |state: u64| used(state)));
    run_to_its_end(app);
}

/// Allocations of an event, by the difference between many and few.
fn allocations(keys: u64) -> f64 {
    let counted = |n| alloc::counted(|| keyed(keys, n)).1 as f64;
    (counted(11 * FEW) - counted(FEW)) / (10 * FEW) as f64
}
