//! Counts allocations: the system allocator with a sharded counter that is off by default.
//! The only file with `unsafe`: a global allocator cannot be written without it.
//! Off, it costs one relaxed load of a line nobody writes; timed rounds run with it off.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Enough that the threads of one run seldom share a shard.
const SHARDS: usize = 64;

/// A counter alone on its cache lines (two: the prefetcher pulls pairs).
#[repr(align(128))]
struct Shard(AtomicU64);

static COUNTING: AtomicBool = AtomicBool::new(false);
static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);
static COUNTS: [Shard; SHARDS] = [const { Shard(AtomicU64::new(0)) }; SHARDS];

thread_local! {
    // Const and without a destructor: reading it never allocates, even as the thread ends.
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

pub(crate) struct Counting;

#[inline]
fn count() {
    if COUNTING.load(Relaxed) {
        let shard = SHARD.with(|mine| {
            if mine.get() == usize::MAX {
                mine.set(NEXT_SHARD.fetch_add(1, Relaxed) % SHARDS);
            }
            mine.get()
        });
        COUNTS[shard].0.fetch_add(1, Relaxed);
    }
}

// SAFETY: every call is passed on to `System` unchanged; counting touches only atomics and a
// const thread-local without destructor, so it neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract is `System`'s.
        unsafe { System.alloc(layout) }
    }
    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: `place` came from `System` by way of this allocator.
        unsafe { System.dealloc(place, layout) }
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract is `System`'s.
        unsafe { System.alloc_zeroed(layout) }
    }
    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: `place` came from `System` by way of this allocator.
        unsafe { System.realloc(place, layout, size) }
    }
}

fn total() -> u64 {
    COUNTS.iter().map(|shard| shard.0.load(Relaxed)).sum()
}

/// Runs `work` with counting on: its result, and the allocations of all threads meanwhile.
pub(crate) fn counted<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let before = total();
    COUNTING.store(true, Relaxed);
    let result = work();
    COUNTING.store(false, Relaxed);
    (result, total() - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_of_other_threads_are_counted() {
        let (_, allocations) = counted(|| {
            std::thread::spawn(|| {
                let boxes: Vec<Box<u64>> = (0..1000).map(Box::new).collect();
                boxes.len()
            })
            .join()
        });
        assert!(allocations >= 1000);
    }
}
