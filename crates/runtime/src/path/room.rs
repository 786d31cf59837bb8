//! How much room a queue seems to have, for senders that look before a visit, without its lock: it may have changed since.
//! Published by the stage after every change, read by `emit`.

use comporta_model::plan::WhenFull;

use crate::sync::{AtomicBool, AtomicUsize, Relaxed};

/// How much room there seems to be.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// So many can be sent before some would have to wait.
    pub(crate) before_waiting: usize,
    /// So many can be sent before some would be refused or wait.
    pub(crate) before_refusing: usize,
}

/// What a queue publishes.
#[derive(Default)]
pub(crate) struct RoomHint {
    free: AtomicUsize,
    when_full: AtomicUsize,
    /// An admission controller has a say.
    guarded: AtomicBool,
}

impl RoomHint {
    #[inline]
    pub(crate) fn publish(&self, free: usize) {
        // Read by every sender at each of its visits, and mostly the same.
        if self.free.load(Relaxed) != free {
            self.free.store(free, Relaxed);
        }
    }

    pub(crate) fn set_when_full(&self, when_full: WhenFull) {
        let at = WhenFull::ALL.iter().position(|(known, _)| *known == when_full);
        self.when_full.store(at.unwrap_or(0), Relaxed);
    }

    pub(crate) fn set_guarded(&self, guarded: bool) {
        self.guarded.store(guarded, Relaxed);
    }

    /// Whether an admission controller has to be asked.
    #[inline]
    pub(crate) fn is_guarded(&self) -> bool {
        self.guarded.load(Relaxed)
    }

    /// Places that are free.
    pub(crate) fn free(&self) -> usize {
        self.free.load(Relaxed)
    }

    /// The room for what comes by a way of this rule, or by that of the queue.
    #[inline]
    pub(crate) fn room(&self, rule: Option<WhenFull>) -> Room {
        let free = self.free.load(Relaxed);
        match rule.unwrap_or_else(|| WhenFull::ALL[self.when_full.load(Relaxed)].0) {
            WhenFull::Block => Room { before_waiting: free, before_refusing: free },
            WhenFull::Reject => Room { before_waiting: usize::MAX, before_refusing: free },
            _ => Room { before_waiting: usize::MAX, before_refusing: usize::MAX },
        }
    }
}
