//! What 100,000 handlers that wait hold: bytes each, beyond the future itself, and how long it takes to wake
//! them all. Taken once: the bytes repeat, and the time is for the eye.

use crate::alloc;
use crate::report::{Report, Table};
use comporta::{App, Plan};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

const MANY: usize = 100_000;

async fn waits(go: Arc<Notify>, waiting: Arc<AtomicUsize>) {
    let notified = go.notified();
    waiting.fetch_add(1, SeqCst);
    notified.await;
}

pub(super) fn run(report: &mut Report) {
    let (go, waiting) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let size = Arc::new(OnceLock::new());
    let app = App::new("memory");
    let source = app.source("source", || 0..MANY as u64);
    let (notify, count, told) = (go.clone(), waiting.clone(), size.clone());
    let wait = app.sink_async("wait", move |_: u64| {
        let future = waits(notify.clone(), count.clone());
        let _ = told.set(size_of_val(&future));
        future
    });
    app.connect(source, wait);
    let plan = Plan::new().threads(2).stage("wait", |wait| wait.instances(MANY));
    let (running, bytes) = alloc::held(|| {
        let running = app.start(&plan).expect("a valid graph");
        while waiting.load(SeqCst) < MANY {
            thread::sleep(Duration::from_millis(1));
        }
        running
    });
    let future = size.get().copied().unwrap_or(0);
    let beyond = bytes as f64 / MANY as f64 - future as f64;
    let began = Instant::now();
    go.notify_waiters();
    let summary = running.wait();
    let woken = began.elapsed();
    assert_eq!(summary.snapshot.stage("wait").map(|wait| wait.counts.handled), Some(MANY as u64));
    println!("\nmemory: {MANY} handlers that wait");
    let mut table = Table::new(&["the future", "beyond it", "all woken in"]);
    table.row([
        format!("{future} B"),
        format!("{beyond:.0} B"),
        format!("{} ms", woken.as_millis()),
    ]);
    table.print();
    report.figure("bytes_per_waiting", beyond);
    report.figure("bytes_of_future", future as f64);
    report.figure("wake_all_ms", woken.as_secs_f64() * 1e3);
}
