//! Peer `crossbeam`: a thread per stage, one event per message of a bounded crossbeam channel.

use crate::load::{BenchEvent, CAPACITY, Case, Outcome, Sink, Source, handle};
use crossbeam_channel::bounded;
use std::thread;
use std::time::Instant;

pub(crate) fn run<E: BenchEvent>(case: &Case) -> Outcome {
    let mut sink = Sink::new(0..case.events);
    let started = Instant::now();
    thread::scope(|scope| {
        let (first, mut inlet) = bounded::<E>(CAPACITY);
        for _ in 0..case.stages {
            let (outlet, next) = bounded::<E>(CAPACITY);
            let queue = std::mem::replace(&mut inlet, next);
            scope.spawn(move || {
                for mut event in queue {
                    handle(&mut event, case.work);
                    if outlet.send(event).is_err() {
                        return;
                    }
                }
            });
        }
        scope.spawn(move || {
            for event in Source::<E>::new(0..case.events) {
                if first.send(event).is_err() {
                    return;
                }
            }
        });
        for event in inlet {
            sink.accept(&event);
        }
    });
    sink.outcome(started, case)
}
