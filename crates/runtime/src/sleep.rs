//! Waiting and waking: how an idle worker goes to sleep without missing work.
//!
//! The protocol (`announce`, recheck, `commit` or `cancel`):
//! * a worker that found nothing counts itself among the *sleepers*, leaves the *searchers*, and
//!   then looks once more into every queue before it parks;
//! * whoever made work looks, after making it, whether anyone searches; if not, and someone
//!   sleeps, it wakes one, who counts as searching from that moment;
//! * a searcher that found work leaves the searchers and, if there is more, wakes the next.
//!
//! Either the maker sees no searcher and wakes a sleeper, or the searcher's last look comes after
//! the work was made and finds it. Both sides use sequentially consistent operations for this.

use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, SeqCst, Thread, fence, spin, thread};

const SPINS: u32 = if cfg!(shuttle) { 1 } else { 16 };

/// The sleepers and searchers of one pool.
#[derive(Default)]
pub(crate) struct Sleep {
    sleepers: Mutex<Vec<(Arc<Woken>, Thread)>>,
    sleeping: AtomicUsize,
    searching: AtomicUsize,
}

/// Of one worker: set by whoever wakes it.
#[derive(Default)]
pub(crate) struct Woken(AtomicBool);

impl Sleep {
    /// This worker begins to search, unless half of the `crew` do already.
    pub(crate) fn begin_search(&self, crew: usize) -> bool {
        if self.searching.load(SeqCst) * 2 >= crew.max(2) {
            return false;
        }
        self.searching.fetch_add(1, SeqCst);
        true
    }

    /// This worker searched, and found something or leaves.
    pub(crate) fn end_search(&self) {
        self.searching.fetch_sub(1, SeqCst);
    }

    /// This worker will sleep unless a last look finds work. The caller must look after this.
    pub(crate) fn announce(&self, woken: &Arc<Woken>, searching: bool) {
        self.sleepers.lock().push((woken.clone(), thread::current()));
        self.sleeping.fetch_add(1, SeqCst);
        if searching {
            self.searching.fetch_sub(1, SeqCst);
        }
        fence(SeqCst);
    }

    /// The last look found work. Says whether the worker now counts as searching, because someone
    /// woke it meanwhile.
    pub(crate) fn cancel(&self, woken: &Arc<Woken>) -> bool {
        let mut sleepers = self.sleepers.lock();
        if let Some(at) = sleepers.iter().position(|(sleeper, _)| Arc::ptr_eq(sleeper, woken)) {
            sleepers.swap_remove(at);
            self.sleeping.fetch_sub(1, SeqCst);
            return false;
        }
        drop(sleepers);
        self.commit(woken);
        true
    }

    /// The last look found nothing: sleeps until woken. The worker then counts as searching.
    pub(crate) fn commit(&self, woken: &Woken) {
        while !woken.0.swap(false, SeqCst) {
            thread::park();
        }
    }

    /// After work was made: sees to it that someone finds it.
    pub(crate) fn work_made(&self) {
        fence(SeqCst);
        if self.sleeping.load(SeqCst) > 0 && self.searching.load(SeqCst) == 0 {
            self.wake_one();
        }
    }

    /// Wakes every sleeper.
    pub(crate) fn wake_all(&self) {
        while self.wake_one() {}
    }

    fn wake_one(&self) -> bool {
        let mut sleepers = self.sleepers.lock();
        let Some((woken, thread)) = sleepers.pop() else { return false };
        self.sleeping.fetch_sub(1, SeqCst);
        self.searching.fetch_add(1, SeqCst);
        drop(sleepers);
        woken.0.store(true, SeqCst);
        thread.unpark();
        true
    }

    /// A short pause between two looks.
    pub(crate) fn pause() {
        for _ in 0..SPINS {
            spin();
        }
    }
}
