//! Peer `two_loops`: as many concurrent loops as threads, each over its share of the events; the
//! machine's ceiling for a program that never hands an event from one core to another.
//! Order is asserted within each share; there is none between shares.

use super::one_loop;
use crate::load::{BenchEvent, Case, Outcome};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

pub(crate) fn run<E: BenchEvent>(case: &Case) -> Outcome {
    // A share must not be empty: a sink that expects nothing never finishes.
    let loops = (case.threads as u64).min(case.events);
    let line = Barrier::new(loops as usize);
    let ends: Vec<(Instant, Instant, u64)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..loops)
            .map(|number| {
                let share = number * case.events / loops..(number + 1) * case.events / loops;
                let line = &line;
                scope.spawn(move || {
                    line.wait();
                    let started = Instant::now();
                    let sink = one_loop::run_range::<E>(case, share);
                    (started, sink.finished(), sink.checksum())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a loop panicked")).collect()
    });
    let started = ends.iter().map(|end| end.0).min().expect("at least one loop");
    let finished = ends.iter().map(|end| end.1).max().expect("at least one loop");
    Outcome {
        elapsed: finished.duration_since(started),
        events: case.events,
        checksum: ends.iter().fold(0, |sum, end| sum.wrapping_add(end.2)),
    }
}
