//! What every peer is given: the same events, the same source, the same handlers, the same sink.
//! Neighbours: `spin` sets the work of a handler, `pacer` feeds the latency bench.
//! Invariant: source, handler and sink are `inline(never)`, so that no peer's compiler output can
//! merge or vectorise the work away; a peer differs from another only in how it moves events.

use crate::spin;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::hint::black_box;
use std::marker::PhantomData;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Events a queue between two stages may hold, for every peer that has a bound.
pub(crate) const CAPACITY: usize = 1024;
/// Events that move as one message, for every peer that batches.
pub(crate) const BATCH: usize = 512;
/// Messages a queue of batches may hold: the same bound in events.
pub(crate) const CAPACITY_BATCHES: usize = CAPACITY / BATCH;

/// One way to run: what all peers of a comparison share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) stages: usize,
    pub(crate) work: Work,
    pub(crate) threads: usize,
    pub(crate) events: u64,
}

/// What a handler does beyond touching its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// Iterations of `spin::burn`; 0 is the trivial handler.
    pub(crate) spins: u32,
}

impl Work {
    pub(crate) const TRIVIAL: Work = Work { spins: 0 };
}

/// What a peer reports of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) elapsed: Duration,
    pub(crate) events: u64,
    pub(crate) checksum: u64,
}

/// An event type of the pipeline bench. Serde and Clone are asked for by peers that may cross a
/// process boundary (timely, Comporta); no peer here serialises or clones.
pub(crate) trait BenchEvent:
    Clone + Send + Sync + Serialize + DeserializeOwned + 'static
{
    fn make(seq: u64) -> Self;
    fn seq(&self) -> u64;
    /// The trivial handler's whole work: a change that the checksum sees.
    fn touch(&mut self);
    fn digest(&self) -> u64;
}

/// 64 bytes, no pointers. `payload[0]` is the scheduled time in the latency bench and is left
/// alone by handlers; `payload[1]` is what they change.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Event64 {
    pub(crate) seq: u64,
    pub(crate) payload: [u64; 7],
}

const _: () = assert!(size_of::<Event64>() == 64);

impl BenchEvent for Event64 {
    #[inline]
    fn make(seq: u64) -> Self {
        Event64 { seq, payload: [seq; 7] }
    }
    #[inline]
    fn seq(&self) -> u64 {
        self.seq
    }
    #[inline]
    fn touch(&mut self) {
        self.payload[1] = self.payload[1].wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.payload[6];
    }
    #[inline]
    fn digest(&self) -> u64 {
        self.payload[1]
    }
}

/// Bytes a `String` event is born with; handlers append one each and never outgrow it.
const TEXT_BYTES: usize = 64;

impl BenchEvent for String {
    fn make(seq: u64) -> Self {
        use std::fmt::Write;
        let mut text = String::with_capacity(TEXT_BYTES);
        write!(text, "{seq:016x}").expect("writing to a String cannot fail");
        text
    }
    #[inline]
    fn seq(&self) -> u64 {
        u64::from_str_radix(&self[..16], 16).expect("make() wrote 16 hex digits")
    }
    #[inline]
    fn touch(&mut self) {
        self.push('.');
    }
    #[inline]
    fn digest(&self) -> u64 {
        self.seq() ^ ((self.len() as u64) << 32)
    }
}

/// The sequential source: one event at a time, in order.
pub(crate) struct Source<E> {
    range: Range<u64>,
    event: PhantomData<fn() -> E>,
}

impl<E: BenchEvent> Source<E> {
    pub(crate) fn new(range: Range<u64>) -> Self {
        Source { range, event: PhantomData }
    }

    /// Pulls up to `limit` events into an empty vector: false when the source is dry.
    pub(crate) fn fill(&mut self, batch: &mut Vec<E>, limit: usize) -> bool {
        batch.extend(self.take(limit));
        !batch.is_empty()
    }
}

impl<E: BenchEvent> Iterator for Source<E> {
    type Item = E;
    #[inline(never)]
    fn next(&mut self) -> Option<E> {
        // The number is hidden from the compiler, not the event: that would be built on the stack
        // first, and whose stack has a page end there, by chance, would pay twice for each event.
        let seq = black_box(self.range.next()?);
        Some(E::make(seq))
    }
}

/// The handler of every stage of every peer.
#[inline(never)]
pub(crate) fn handle<E: BenchEvent>(event: &mut E, work: Work) {
    event.touch();
    if work.spins > 0 {
        black_box(spin::burn(work.spins, event.digest()));
    }
    black_box(event);
}

/// The sink of every peer: asserts the order, folds a checksum, notes when the last event came.
pub(crate) struct Sink {
    expected: Range<u64>,
    checksum: u64,
    finished: Option<Instant>,
}

impl Sink {
    pub(crate) fn new(expected: Range<u64>) -> Self {
        Sink { expected, checksum: 0, finished: None }
    }

    #[inline(never)]
    pub(crate) fn accept<E: BenchEvent>(&mut self, event: &E) {
        let seq = event.seq();
        assert!(
            seq == self.expected.start && seq < self.expected.end,
            "event {seq} came where {} was due",
            self.expected.start
        );
        self.expected.start += 1;
        self.checksum = self.checksum.wrapping_add(event.digest());
        if self.expected.start == self.expected.end {
            self.finished = Some(Instant::now());
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.finished.is_some()
    }

    pub(crate) fn checksum(&self) -> u64 {
        self.checksum
    }

    /// When the last event came. Panics if one is missing: a peer that loses events has no time.
    pub(crate) fn finished(&self) -> Instant {
        self.finished
            .unwrap_or_else(|| panic!("{} events never came", self.expected.clone().count()))
    }

    pub(crate) fn outcome(&self, started: Instant, case: &Case) -> Outcome {
        Outcome {
            elapsed: self.finished().duration_since(started),
            events: case.events,
            checksum: self.checksum,
        }
    }
}

/// The checksum any peer must arrive at, whatever its order of execution.
pub(crate) fn expected_checksum<E: BenchEvent>(case: &Case) -> u64 {
    let mut checksum = 0u64;
    for mut event in Source::<E>::new(0..case.events) {
        for _ in 0..case.stages {
            handle(&mut event, Work::TRIVIAL);
        }
        checksum = checksum.wrapping_add(event.digest());
    }
    checksum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sunk<E: BenchEvent>(seqs: &[u64]) -> Sink {
        let mut sink = Sink::new(0..3);
        for &seq in seqs {
            sink.accept(&E::make(seq));
        }
        sink
    }

    #[test]
    fn complete_run_in_order_is_accepted() {
        assert!(sunk::<Event64>(&[0, 1, 2]).is_complete());
        assert!(sunk::<String>(&[0, 1, 2]).is_complete());
        assert!(!sunk::<Event64>(&[0, 1]).is_complete());
    }

    #[test]
    #[should_panic(expected = "event 2 came where 1 was due")]
    fn overtaking_is_noticed() {
        sunk::<Event64>(&[0, 2]);
    }

    #[test]
    #[should_panic(expected = "event 3 came")]
    fn surplus_is_noticed() {
        sunk::<Event64>(&[0, 1, 2, 3]);
    }

    #[test]
    fn checksum_sees_a_skipped_handler() {
        let case = Case { stages: 3, work: Work::TRIVIAL, threads: 1, events: 100 };
        let skipped = Case { stages: 2, ..case };
        assert_ne!(expected_checksum::<Event64>(&case), expected_checksum::<Event64>(&skipped));
        assert_ne!(expected_checksum::<String>(&case), expected_checksum::<String>(&skipped));
    }

    #[test]
    fn text_events_never_outgrow_their_first_allocation() {
        let mut text = String::make(7);
        let capacity = text.capacity();
        (0..10).for_each(|_| text.touch());
        assert_eq!((text.seq(), text.capacity()), (7, capacity));
    }
}
