//! Cycles: stages that reach each other end as one, and cannot wait for each other for ever.
//!
//! Under `block` such stages could all come to wait for room in each other's queues. Two rules
//! prevent it: who enters the cycle from outside leaves one place free (the bubble rule, in
//! `permits`), and when nobody in the cycle can act any more although some wait for room in it, the
//! newest event of a queue waited for is shed with reason `cycle`.
//!
//! `active` counts what can still act: good tokens, running instances, and instances that wait for
//! something outside the cycle (a timer, room elsewhere). It rises before what it replaces falls,
//! so it reaches zero only when nothing can act.

use crate::sync::{AtomicI64, AtomicUsize, SeqCst};

pub(crate) struct Cycle {
    /// Its stages, in ascending order.
    pub(crate) stages: Vec<u32>,
    active: AtomicI64,
    waiting: AtomicI64,
    events: AtomicI64,
    open: AtomicUsize,
}

impl Cycle {
    pub(crate) fn new(stages: Vec<u32>, open: usize) -> Self {
        Cycle {
            stages,
            active: AtomicI64::new(0),
            waiting: AtomicI64::new(0),
            events: AtomicI64::new(0),
            open: AtomicUsize::new(open),
        }
    }

    /// Something more can act.
    pub(crate) fn activate(&self) {
        self.active.fetch_add(1, SeqCst);
    }

    /// Something can act no more. Returns whether the cycle is stuck: the caller then breaks it.
    #[must_use]
    pub(crate) fn deactivate(&self) -> bool {
        self.active.fetch_sub(1, SeqCst) == 1 && self.waiting.load(SeqCst) > 0
    }

    /// An instance of the cycle waits for room in it (`1`), or no longer (`-1`).
    pub(crate) fn wait_inside(&self, change: i64) {
        self.waiting.fetch_add(change, SeqCst);
    }

    /// Whether it is stuck at this moment.
    pub(crate) fn is_stuck(&self) -> bool {
        self.active.load(SeqCst) == 0 && self.waiting.load(SeqCst) > 0
    }

    /// `n` events entered one of its queues or outboxes.
    pub(crate) fn arrived(&self, n: usize) {
        self.events.fetch_add(n as i64, SeqCst);
    }

    /// `n` of its events ended. Returns whether the cycle has ended with them.
    #[must_use]
    pub(crate) fn ended(&self, n: usize) -> bool {
        n > 0 && self.events.fetch_sub(n as i64, SeqCst) == n as i64 && self.is_over()
    }

    /// A producer outside ended. Returns whether the cycle has ended with it.
    #[must_use]
    pub(crate) fn close_edge(&self) -> bool {
        self.open.fetch_sub(1, SeqCst) == 1 && self.is_over()
    }

    /// Nothing is in it and nothing can come.
    pub(crate) fn is_over(&self) -> bool {
        self.open.load(SeqCst) == 0 && self.events.load(SeqCst) == 0
    }
}
