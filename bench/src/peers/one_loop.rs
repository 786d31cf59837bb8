//! Peer `one_loop`: a single thread calls source, handlers and sink in turn. No queues, no
//! concurrency: what the work itself costs.

use crate::load::{BenchEvent, Case, Outcome, Sink, Source, handle};
use std::ops::Range;
use std::time::Instant;

pub(crate) fn run<E: BenchEvent>(case: &Case) -> Outcome {
    let started = Instant::now();
    run_range::<E>(case, 0..case.events).outcome(started, case)
}

/// The loop over part of the events, for `two_loops` as well.
pub(crate) fn run_range<E: BenchEvent>(case: &Case, range: Range<u64>) -> Sink {
    let mut sink = Sink::new(range.clone());
    for mut event in Source::<E>::new(range) {
        for _ in 0..case.stages {
            handle(&mut event, case.work);
        }
        sink.accept(&event);
    }
    sink
}
