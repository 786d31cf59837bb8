//! Peer `park` of the wake bench: one thread, `park` and `unpark`, one word between them. The
//! floor: what the operating system itself takes to wake a thread.

use crate::wake::{Probe, Program};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

const EMPTY: u64 = 0;
const STOP: u64 = u64::MAX;

struct Parked {
    slot: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Program for Parked {
    fn push(&mut self, pushed_ns: u64) {
        self.slot.store(pushed_ns, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.push(STOP);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by then: the probe never answered.
            let _ = thread.join();
        }
    }
}

pub(crate) fn up(_threads: usize, probe: Arc<Probe>) -> Box<dyn Program> {
    let slot = Arc::new(AtomicU64::new(EMPTY));
    let watched = Arc::clone(&slot);
    let thread = thread::spawn(move || {
        loop {
            match watched.swap(EMPTY, Ordering::Acquire) {
                EMPTY => thread::park(),
                STOP => return,
                pushed_ns => probe.handled(pushed_ns),
            }
        }
    });
    Box::new(Parked { slot, thread: Some(thread) })
}
