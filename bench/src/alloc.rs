//! Counts allocations and the bytes they hold: the system allocator with sharded counters that are
//! off by default.
//! The only file with `unsafe`: a global allocator cannot be written without it.
//! Off, it costs one relaxed load of a line nobody writes; timed rounds run with it off.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Enough that the threads of one run seldom share a shard.
const SHARDS: usize = 64;

/// Counters alone on their cache lines (two: the prefetcher pulls pairs).
#[repr(align(128))]
struct Shard {
    allocations: AtomicU64,
    /// Allocated less freed, modulo 2^64: one thread may free what another allocated.
    bytes: AtomicU64,
}

static COUNTING: AtomicBool = AtomicBool::new(false);
static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);
static COUNTS: [Shard; SHARDS] =
    [const { Shard { allocations: AtomicU64::new(0), bytes: AtomicU64::new(0) } }; SHARDS];

thread_local! {
    // Const and without a destructor: reading it never allocates, even as the thread ends.
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

pub(crate) struct Counting;

#[inline]
fn count(allocations: u64, allocated: usize, freed: usize) {
    if COUNTING.load(Relaxed) {
        let shard = SHARD.with(|mine| {
            if mine.get() == usize::MAX {
                mine.set(NEXT_SHARD.fetch_add(1, Relaxed) % SHARDS);
            }
            mine.get()
        });
        COUNTS[shard].allocations.fetch_add(allocations, Relaxed);
        COUNTS[shard].bytes.fetch_add((allocated as u64).wrapping_sub(freed as u64), Relaxed);
    }
}

// SAFETY: every call is passed on to `System` unchanged; counting touches only atomics and a
// const thread-local without destructor, so it neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size(), 0);
        // SAFETY: the caller's contract is `System`'s.
        unsafe { System.alloc(layout) }
    }
    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(0, 0, layout.size());
        // SAFETY: `place` came from `System` by way of this allocator.
        unsafe { System.dealloc(place, layout) }
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size(), 0);
        // SAFETY: the caller's contract is `System`'s.
        unsafe { System.alloc_zeroed(layout) }
    }
    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size, layout.size());
        // SAFETY: `place` came from `System` by way of this allocator.
        unsafe { System.realloc(place, layout, size) }
    }
}

fn total(counter: fn(&Shard) -> &AtomicU64) -> u64 {
    COUNTS.iter().fold(0, |sum, shard| sum.wrapping_add(counter(shard).load(Relaxed)))
}

fn rise<R>(counter: fn(&Shard) -> &AtomicU64, work: impl FnOnce() -> R) -> (R, u64) {
    let before = total(counter);
    COUNTING.store(true, Relaxed);
    let result = work();
    COUNTING.store(false, Relaxed);
    (result, total(counter).wrapping_sub(before))
}

/// Runs `work` with counting on: its result, and the allocations of all threads meanwhile.
pub(crate) fn counted<R>(work: impl FnOnce() -> R) -> (R, u64) {
    rise(|shard| &shard.allocations, work)
}

/// Runs `work` with counting on: its result, and the heap bytes that all threads allocated and did
/// not free meanwhile, which is what the result holds. Negative if `work` freed older things.
pub(crate) fn held<R>(work: impl FnOnce() -> R) -> (R, i64) {
    let (result, bytes) = rise(|shard| &shard.bytes, work);
    (result, bytes.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counting is the process's: tests that count take turns.
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn allocations_of_other_threads_are_counted() {
        let _turn = TURN.lock().unwrap();
        let (_, allocations) = counted(|| {
            std::thread::spawn(|| {
                let boxes: Vec<Box<u64>> = (0..1000).map(Box::new).collect();
                boxes.len()
            })
            .join()
        });
        assert!(allocations >= 1000);
    }

    #[test]
    fn held_bytes_are_those_not_freed() {
        let _turn = TURN.lock().unwrap();
        const MIB: usize = 1 << 20;
        // Other tests of this process allocate too, but far less than this.
        let (kept, bytes) = held(|| {
            drop(vec![0u8; 64 * MIB]);
            let mut kept: Vec<u8> = Vec::with_capacity(8 * MIB);
            kept.reserve_exact(32 * MIB); // grows: the old place is freed
            kept
        });
        assert!((28..36).contains(&(bytes / MIB as i64)), "{bytes}");
        let ((), freed) = held(move || drop(kept));
        assert!((-36..-28).contains(&(freed / MIB as i64)), "{freed}");
    }
}
