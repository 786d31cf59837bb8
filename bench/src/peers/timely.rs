//! Peer `timely`: timely-dataflow, `map_in_place` per stage, batches into the input, and a probe
//! that bounds what is in flight.
//!
//! Its best form depends on the handlers. Trivial ones run fastest on a single worker, where a
//! batch passes from operator to operator by pointer; handlers with real work are spread over the
//! workers in contiguous runs joined by `exchange`, which keeps the order (one sender, one
//! receiver, first in first out).

use crate::load::{BATCH, BenchEvent, CAPACITY, Case, Outcome, Sink, Source, Work, handle};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;
use timely::Config;
use timely::dataflow::operators::vec::Map;
use timely::dataflow::operators::{Exchange, Input, Inspect, Probe};
use timely::dataflow::{InputHandleVec, ProbeHandle};
use timely::worker::Worker;

pub(crate) fn run<E: BenchEvent>(case: &Case) -> Outcome {
    let case = *case;
    let workers = if case.work == Work::TRIVIAL { 1 } else { case.threads.min(case.stages) };
    let started = Instant::now();
    let ends =
        timely::execute(Config::process(workers), move |worker| work::<E>(worker, &case, workers))
            .expect("timely workers in one process can be started")
            .join();
    let sink = ends
        .into_iter()
        .map(|end| end.expect("a timely worker panicked"))
        .find(Sink::is_complete)
        .expect("one worker holds the sink");
    sink.outcome(started, &case)
}

/// What each worker runs: the same dataflow everywhere, the source on the first.
fn work<E: BenchEvent>(worker: &mut Worker, case: &Case, workers: usize) -> Sink {
    let mut input = InputHandleVec::<u64, E>::new();
    let probe = ProbeHandle::new();
    let sink = Rc::new(RefCell::new(Sink::new(0..case.events)));
    let (work, stages) = (case.work, case.stages);
    let accepting = Rc::clone(&sink);
    worker.dataflow(|scope| {
        let mut stream = scope.input_from(&mut input);
        for stage in 0..stages {
            let home = stage * workers / stages;
            if stage > 0 && home != (stage - 1) * workers / stages {
                stream = stream.exchange(move |_| home as u64);
            }
            stream = stream.map_in_place(move |event| handle(event, work));
        }
        stream
            .inspect_batch(move |_, events| {
                let mut sink = accepting.borrow_mut();
                for event in events {
                    sink.accept(event);
                }
            })
            .probe_with(&probe);
    });
    if worker.index() == 0 {
        feed(worker, &mut input, &probe, case);
    }
    input.close();
    worker.step_or_park_while(None, || !probe.done());
    // The finished dataflow may still hold its share of the sink: take the value, not the Rc.
    sink.replace(Sink::new(0..0))
}

/// An epoch is a queue's worth of events; as many may be in flight as other peers have queues.
fn feed<E: BenchEvent>(
    worker: &mut Worker,
    input: &mut InputHandleVec<u64, E>,
    probe: &ProbeHandle<u64>,
    case: &Case,
) {
    let in_flight = case.stages as u64 + 1;
    let mut source = Source::<E>::new(0..case.events);
    let mut batch = Vec::with_capacity(BATCH);
    for epoch in 1.. {
        for _ in 0..CAPACITY / BATCH {
            if !source.fill(&mut batch, BATCH) {
                return;
            }
            input.send_batch(&mut batch);
            batch.clear();
        }
        input.advance_to(epoch);
        worker.step();
        while probe.less_than(&epoch.saturating_sub(in_flight)) {
            worker.step();
        }
    }
}
