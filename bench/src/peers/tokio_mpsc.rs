//! Peer `tokio_mpsc`: a task per stage, one event per message of a bounded tokio channel, as most
//! tokio programs are written. Also the `tokio` peer of the wake bench.

use super::Paced;
use crate::load::{BenchEvent, CAPACITY, Case, Event64, Outcome, Sink, Source, handle};
use crate::pacer::Pacer;
use crate::wake::{Probe, Program};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The runtime of every peer that stands on tokio.
pub(crate) fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .build()
        .expect("a tokio runtime of a few threads can be built")
}

pub(crate) fn run<E: BenchEvent>(case: &Case) -> Outcome {
    let runtime = runtime(case.threads);
    let mut source = Source::<E>::new(0..case.events);
    let mut sink = Sink::new(0..case.events);
    let started = Instant::now();
    let (first, mut inlet) = stages::<E>(&runtime, case);
    runtime.spawn(async move {
        for event in source.by_ref() {
            if first.send(event).await.is_err() {
                return;
            }
        }
    });
    let sink = runtime.spawn(async move {
        while let Some(event) = inlet.recv().await {
            sink.accept(&event);
        }
        sink
    });
    runtime.block_on(sink).expect("the sink panicked").outcome(started, case)
}

pub(crate) fn paced(case: &Case, pacer: Pacer) -> Paced {
    let runtime = runtime(case.threads);
    let mut sink = pacer.sink();
    let (first, mut inlet) = stages::<Event64>(&runtime, case);
    let sink = runtime.spawn(async move {
        while let Some(event) = inlet.recv().await {
            sink.accept(&event);
        }
        sink
    });
    let pace = pacer.run(|clump| {
        for event in clump {
            first.blocking_send(event).expect("the stages take events until the pacer ends");
        }
    });
    drop(first);
    Paced { pace, sink: runtime.block_on(sink).expect("the sink panicked") }
}

/// Spawns the stages; what is sent into the one end comes out, handled, at the other.
fn stages<E: BenchEvent>(runtime: &Runtime, case: &Case) -> (Sender<E>, Receiver<E>) {
    let work = case.work;
    let (first, mut inlet) = channel::<E>(CAPACITY);
    for _ in 0..case.stages {
        let (outlet, next) = channel::<E>(CAPACITY);
        let mut queue = std::mem::replace(&mut inlet, next);
        runtime.spawn(async move {
            while let Some(mut event) = queue.recv().await {
                handle(&mut event, work);
                if outlet.send(event).await.is_err() {
                    return;
                }
            }
        });
    }
    (first, inlet)
}

struct Waiting {
    sender: Sender<u64>,
    _runtime: Runtime,
}

impl Program for Waiting {
    fn push(&mut self, pushed_ns: u64) {
        self.sender.try_send(pushed_ns).expect("the task drained the queue before this push");
    }
}

pub(crate) fn up(threads: usize, probe: Arc<Probe>) -> Box<dyn Program> {
    let runtime = runtime(threads);
    let (sender, mut queue) = channel(CAPACITY);
    runtime.spawn(async move {
        while let Some(pushed_ns) = queue.recv().await {
            probe.handled(pushed_ns);
        }
    });
    Box::new(Waiting { sender, _runtime: runtime })
}
