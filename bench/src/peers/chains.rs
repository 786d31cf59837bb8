//! The peers of the benches that run a chain of stages: `pipeline`, `latency` and `wake`.

use super::{
    comporta, crossbeam, flume, kameo, one_loop, park, rayon_fused, timely, tokio_mpsc, tokio_vec,
    two_loops,
};
use crate::load::{Case, Event64, Outcome};
use crate::pacer::{LatencySink, Pace, Pacer};
use crate::wake::{Probe, Program};
use std::sync::Arc;

pub(crate) struct PipelinePeer {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) plain: fn(&Case) -> Outcome,
    pub(crate) text: fn(&Case) -> Outcome,
}

/// A row of `PIPELINE`: the module's `run`, once per event type.
macro_rules! pipeline {
    ($name:ident, $about:literal) => {
        PipelinePeer {
            name: stringify!($name),
            about: $about,
            plain: $name::run::<Event64>,
            text: $name::run::<String>,
        }
    };
}

pub(crate) const PIPELINE: &[PipelinePeer] = &[
    pipeline!(comporta, "a stage per handler, one instance each, the default policy"),
    PipelinePeer {
        name: "comporta_replicas",
        about: "the same with a source in parts, and a replica of every stage for each thread",
        plain: comporta::run_replicas::<Event64>,
        text: comporta::run_replicas::<String>,
    },
    pipeline!(one_loop, "one thread, one loop: source, handlers, sink in turn"),
    pipeline!(two_loops, "a loop per thread, each over its share of the events: the ceiling"),
    pipeline!(
        rayon_fused,
        "batches, all handlers in one parallel pass, source and sink overlapped"
    ),
    pipeline!(timely, "timely-dataflow, map_in_place per stage, probe-bounded"),
    pipeline!(tokio_vec, "a task per stage, Vec batches through bounded tokio mpsc"),
    pipeline!(tokio_mpsc, "a task per stage, an event per bounded tokio mpsc message"),
    pipeline!(kameo, "an actor per stage, bounded mailboxes, on tokio"),
    pipeline!(crossbeam, "a thread per stage, bounded crossbeam-channel"),
    pipeline!(flume, "a thread per stage, bounded flume channel"),
];

/// What a latency peer hands back.
pub(crate) struct Paced {
    pub(crate) pace: Pace,
    pub(crate) sink: LatencySink,
}

pub(crate) struct LatencyPeer {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) paced: fn(&Case, Pacer) -> Paced,
}

pub(crate) const LATENCY: &[LatencyPeer] = &[
    LatencyPeer {
        name: "comporta",
        about: "an event per push, pushed from outside through an input",
        paced: comporta::paced,
    },
    LatencyPeer {
        name: "tokio_mpsc",
        about: "an event per message, pushed with blocking_send",
        paced: tokio_mpsc::paced,
    },
    LatencyPeer {
        name: "tokio_vec",
        about: "what is due as one Vec (up to a batch), pushed with blocking_send",
        paced: tokio_vec::paced,
    },
];

pub(crate) struct WakePeer {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Starts the program on so many threads; its handler calls `Probe::handled` first thing.
    pub(crate) up: fn(usize, Arc<Probe>) -> Box<dyn Program>,
}

pub(crate) const WAKE: &[WakePeer] = &[
    WakePeer {
        name: "comporta",
        about: "a stage fed by an input, pushed from an OS thread",
        up: comporta::up,
    },
    WakePeer {
        name: "tokio",
        about: "a task waiting on mpsc, woken by try_send from outside the runtime",
        up: tokio_mpsc::up,
    },
    WakePeer { name: "park", about: "thread::park and unpark, nothing else", up: park::up },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{BenchEvent, Work, expected_checksum};
    use crate::pacer::Schedule;
    use std::time::Duration;

    fn delivers<E: BenchEvent>(name: &str, run: fn(&Case) -> Outcome) {
        // 1 and 300: less and more than a batch; 5000: more than a queue holds.
        for (stages, events, threads) in [(3, 1, 2), (1, 300, 2), (3, 5000, 2), (10, 5000, 3)] {
            let work = Work { spins: (events % 2) as u32 };
            let case = Case { stages, work, threads, events };
            let outcome = run(&case);
            assert_eq!(outcome.checksum, expected_checksum::<E>(&case), "{name}: {case:?}");
        }
    }

    #[test]
    fn every_pipeline_peer_delivers_every_event_in_order() {
        for peer in PIPELINE {
            delivers::<Event64>(peer.name, peer.plain);
            delivers::<String>(peer.name, peer.text);
        }
    }

    #[test]
    fn every_latency_peer_delivers_open_and_closed_loads() {
        let case = Case { stages: 3, work: Work::TRIVIAL, threads: 2, events: 0 };
        for peer in LATENCY {
            for schedule in
                [Schedule::closed(3000), Schedule::open(50_000.0, Duration::from_millis(20))]
            {
                let paced = (peer.paced)(&case, Pacer::new(schedule));
                assert!(paced.sink.is_complete(), "{}", peer.name);
                assert_eq!(paced.sink.latencies.len(), schedule.judged());
            }
        }
    }
}
