//! Peer `rayon_fused`: batches from the sequential source, all handlers fused in one parallel
//! pass over the batch, then the sink in order. Stages are not separate: no queue between them,
//! no state of their own, nothing to bound or to schedule; the lower limit of what hand-offs cost.
//!
//! Its best form: the parallel pass over one batch runs beside (`rayon::join`) the sink of the
//! previous batch and the source of the next.

use crate::load::{BenchEvent, Case, Outcome, Sink, Source, handle};
use rayon::prelude::*;
use std::time::Instant;

/// Events a pass works on; two passes are in memory. Best of 512 to 16,384: 8.2 ns an event with
/// the trivial handler on two cores, against 12.0 for the best form without the overlap.
const PASS: usize = 4096;
/// Events one rayon task takes at least. Best of 64 to 1024 over trivial and 1 µs handlers.
const GRAIN: usize = 256;

pub(crate) fn run<E: BenchEvent>(case: &Case) -> Outcome {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(case.threads)
        .build()
        .expect("a rayon pool of a few threads can be built");
    pool.install(|| overlapped::<E>(case))
}

fn overlapped<E: BenchEvent>(case: &Case) -> Outcome {
    let started = Instant::now();
    let mut source = Source::<E>::new(0..case.events);
    let mut sink = Sink::new(0..case.events);
    let mut working = Vec::with_capacity(PASS);
    let mut other: Vec<E> = Vec::with_capacity(PASS);
    source.fill(&mut working, PASS);
    while !working.is_empty() {
        rayon::join(
            || pass(&mut working, case),
            || {
                drain(&mut other, &mut sink);
                source.fill(&mut other, PASS);
            },
        );
        std::mem::swap(&mut working, &mut other);
    }
    drain(&mut other, &mut sink);
    sink.outcome(started, case)
}

fn pass<E: BenchEvent>(batch: &mut [E], case: &Case) {
    batch.par_chunks_mut(GRAIN).for_each(|chunk| {
        for event in chunk {
            for _ in 0..case.stages {
                handle(event, case.work);
            }
        }
    });
}

/// By reference, then cleared: drawing events out one by one would copy each once more.
fn drain<E: BenchEvent>(batch: &mut Vec<E>, sink: &mut Sink) {
    for event in batch.iter() {
        sink.accept(event);
    }
    batch.clear();
}
