//! Peer `tokio_vec`: a task per stage, vectors of events through bounded tokio channels. A vector
//! is made by the source, changed in place, passed on, and dropped by the sink: what a careful
//! tokio programmer writes for throughput.

use super::Paced;
use super::tokio_mpsc::runtime;
use crate::load::{
    BATCH, BenchEvent, CAPACITY_BATCHES, Case, Event64, Outcome, Sink, Source, handle,
};
use crate::pacer::Pacer;
use std::time::Instant;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{Receiver, Sender, channel};

pub(crate) fn run<E: BenchEvent>(case: &Case) -> Outcome {
    let runtime = runtime(case.threads);
    let mut source = Source::<E>::new(0..case.events);
    let mut sink = Sink::new(0..case.events);
    let started = Instant::now();
    let (first, mut inlet) = stages::<E>(&runtime, case);
    runtime.spawn(async move {
        loop {
            let mut batch = Vec::with_capacity(BATCH);
            if !source.fill(&mut batch, BATCH) || first.send(batch).await.is_err() {
                return;
            }
        }
    });
    let sink = runtime.spawn(async move {
        while let Some(batch) = inlet.recv().await {
            for event in &batch {
                sink.accept(event);
            }
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
        while let Some(batch) = inlet.recv().await {
            for event in &batch {
                sink.accept(event);
            }
        }
        sink
    });
    let pace = pacer.run(|mut clump| {
        while clump.len() > 0 {
            let batch: Vec<Event64> = clump.by_ref().take(BATCH).collect();
            first.blocking_send(batch).expect("the stages take events until the pacer ends");
        }
    });
    drop(first);
    Paced { pace, sink: runtime.block_on(sink).expect("the sink panicked") }
}

type Ends<E> = (Sender<Vec<E>>, Receiver<Vec<E>>);

/// Spawns the stages; what is sent into the one end comes out, handled, at the other.
fn stages<E: BenchEvent>(runtime: &Runtime, case: &Case) -> Ends<E> {
    let work = case.work;
    let (first, mut inlet) = channel::<Vec<E>>(CAPACITY_BATCHES);
    for _ in 0..case.stages {
        let (outlet, next) = channel::<Vec<E>>(CAPACITY_BATCHES);
        let mut queue = std::mem::replace(&mut inlet, next);
        runtime.spawn(async move {
            while let Some(mut batch) = queue.recv().await {
                for event in &mut batch {
                    handle(event, work);
                }
                if outlet.send(batch).await.is_err() {
                    return;
                }
            }
        });
    }
    (first, inlet)
}
