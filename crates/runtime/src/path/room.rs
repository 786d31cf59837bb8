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
    /// Whether, when it is full, nobody waits.
    sheds: AtomicBool,
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
        self.sheds.store(when_full != WhenFull::Block, Relaxed);
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
    #[inline(always)]
    pub(crate) fn room(&self, rule: Option<WhenFull>) -> Room {
        let free = self.free.load(Relaxed);
        let waits = match rule {
            None => !self.sheds.load(Relaxed),
            Some(rule) => rule == WhenFull::Block,
        };
        if waits {
            return Room { before_waiting: free, before_refusing: free };
        }
        self.room_where_none_waits(rule, free)
    }

    #[inline(never)]
    fn room_where_none_waits(&self, rule: Option<WhenFull>, free: usize) -> Room {
        let rule = rule.unwrap_or_else(|| WhenFull::ALL[self.when_full.load(Relaxed)].0);
        let before_refusing = if rule == WhenFull::Reject { free } else { usize::MAX };
        Room { before_waiting: usize::MAX, before_refusing }
    }
}
