//! From a wake-up to the handler that waited for it. Both sides wait for the same channel of tokio's, and are
//! sent to from an OS thread outside; ours is a handler, polled by our workers, tokio's a task.

use crate::options::Options;
use crate::peers::WakePeer;
use crate::report::{Better, Report, Table, show_ratio};
use crate::rounds::interleave_unwatched;
use crate::stats::{Ratio, median};
use crate::wake::{Probe, Program, wakes};
use comporta::{App, Plan, Running};
use std::sync::{Arc, Mutex};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const PUSHES: u64 = 200;
const PUSHES_QUICK: u64 = 60;

const PEERS: [WakePeer; 2] = [
    WakePeer { name: "comporta", about: "a handler that waits for a channel", up: ours },
    WakePeer { name: "tokio", about: "a task that waits for it", up: task },
];

pub(super) fn run(options: &Options, report: &mut Report) {
    let pushes = if options.quick { PUSHES_QUICK } else { PUSHES };
    let series = interleave_unwatched(&PEERS, options.rounds, options.seed, "wake", |peer, _| {
        wakes(peer, pushes, options).p50_us
    });
    println!(
        "\nwake: median µs from a wake-up to its handler, {} rounds of {pushes}",
        options.rounds
    );
    let mut table = Table::new(&["peer", "p50 µs", "meaning"]);
    for (peer, samples) in PEERS.iter().zip(&series) {
        let p50 = format!("{:.1}", median(&samples.samples));
        table.row([peer.name.to_owned(), p50, peer.about.to_owned()]);
    }
    table.print();
    let ratio = Ratio::paired(&series[0].samples, &series[1].samples, options.seed);
    println!("ours over tokio's: {}", show_ratio(&ratio));
    report.ratio("wake_vs_tokio", &ratio, Better::Less);
}

async fn answer(mut receiver: UnboundedReceiver<u64>, probe: Arc<Probe>) {
    while let Some(pushed_ns) = receiver.recv().await {
        probe.handled(pushed_ns);
    }
}

struct Ours {
    sender: UnboundedSender<u64>,
    running: Option<Running>,
}

impl Program for Ours {
    fn push(&mut self, pushed_ns: u64) {
        self.sender.send(pushed_ns).expect("the program runs until it is dropped");
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = running.stop();
        }
    }
}

fn ours(threads: usize, probe: Arc<Probe>) -> Box<dyn Program> {
    let (sender, receiver) = unbounded_channel();
    let receiver = Mutex::new(Some(receiver));
    let app = App::new("wake");
    let wait = app.sink_async("wait", move |(): ()| {
        let receiver = receiver.lock().map_or(None, |mut receiver| receiver.take());
        answer(receiver.expect("there is one event"), probe.clone())
    });
    let _ = wait.autostart(());
    let running = app.start(&Plan::new().threads(threads)).expect("one stage is a valid graph");
    Box::new(Ours { sender, running: Some(running) })
}

struct Task {
    sender: UnboundedSender<u64>,
    _runtime: Runtime,
}

impl Program for Task {
    fn push(&mut self, pushed_ns: u64) {
        self.sender.send(pushed_ns).expect("the task runs until it is dropped");
    }
}

fn task(threads: usize, probe: Arc<Probe>) -> Box<dyn Program> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build();
    let runtime = runtime.expect("the system has threads");
    let (sender, receiver) = unbounded_channel();
    runtime.spawn(answer(receiver, probe));
    Box::new(Task { sender, _runtime: runtime })
}
