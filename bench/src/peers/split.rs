//! Peer `split`: two threads, split by hand. The first runs the source and some of the handlers, the second the rest and
//! the sink; `Vec` batches go from one to the other through a bounded crossbeam channel, and come back empty.

use crate::load::{BATCH, BenchEvent, CAPACITY_BATCHES, Case, Outcome, Sink, Source, handle};
use crossbeam_channel::bounded;
use std::thread;
use std::time::Instant;

/// With this many handlers on the first thread.
pub(crate) fn run<E: BenchEvent>(case: &Case, first: usize) -> Outcome {
    let mut sink = Sink::new(0..case.events);
    let started = Instant::now();
    thread::scope(|scope| {
        let (full, inlet) = bounded::<Vec<E>>(CAPACITY_BATCHES);
        let (empty, emptied) = bounded::<Vec<E>>(CAPACITY_BATCHES);
        scope.spawn(move || {
            let mut source = Source::<E>::new(0..case.events);
            loop {
                let mut batch = emptied.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH));
                if !source.fill(&mut batch, BATCH) {
                    return;
                }
                run_handlers(&mut batch, first, case);
                if full.send(batch).is_err() {
                    return; // the sink has panicked
                }
            }
        });
        for mut batch in inlet {
            run_handlers(&mut batch, case.stages - first, case);
            batch.iter().for_each(|event| sink.accept(event));
            batch.clear();
            let _ = empty.try_send(batch); // if there are enough, this one goes
        }
    });
    sink.outcome(started, case)
}

fn run_handlers<E: BenchEvent>(batch: &mut [E], handlers: usize, case: &Case) {
    for event in batch {
        (0..handlers).for_each(|_| handle(event, case.work));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Event64, Work, expected_checksum};

    #[test]
    fn every_split_runs_every_handler() {
        let case = Case { stages: 3, work: Work::TRIVIAL, threads: 2, events: 2_000 };
        for first in 0..=3 {
            assert_eq!(run::<Event64>(&case, first).checksum, expected_checksum::<Event64>(&case));
        }
    }
}
