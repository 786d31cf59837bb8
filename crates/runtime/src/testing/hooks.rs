//! What a test has said of the program it runs: its workers, its processors, the stages it holds back. The path of events asks here;
//! [`TestRuntime`] answers.
//!
//! [`TestRuntime`]: super::TestRuntime

use std::collections::HashMap;
use std::sync::OnceLock;

use super::VirtualWorkers;
use crate::core::Core;
use crate::env::{self, Ticks};
use crate::path::ready::Token;
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicUsize, Mutex, Relaxed, SeqCst};

/// What a test has said; nothing in a program that is none.
pub(crate) struct Hooks {
    workers: OnceLock<Arc<VirtualWorkers>>,
    /// How busy others keep the processors, and how many there are.
    pub(super) cpu_usage: AtomicU32,
    pub(super) cpus: AtomicUsize,
    /// Stages that are held back, and their tokens.
    held: Mutex<HashMap<u32, Vec<Token>>>,
    /// Some stage was ever held back: most programs never look.
    holds: AtomicBool,
    /// No visit is plain.
    pub(super) at_large: AtomicBool,
}

impl Hooks {
    pub(crate) fn new() -> Self {
        Hooks {
            workers: OnceLock::new(),
            cpu_usage: AtomicU32::new(0),
            cpus: AtomicUsize::new(env::cpus()),
            held: Mutex::default(),
            holds: AtomicBool::new(false),
            at_large: AtomicBool::new(false),
        }
    }
}

impl Core {
    /// How busy others keep the processors: what a test says, from 0 to 100.
    pub(crate) fn cpu_said(&self) -> u32 {
        self.hooks.cpu_usage.load(Relaxed)
    }

    /// How many processors there are, if this is a test: what it says.
    pub(crate) fn cpus_said(&self) -> Option<usize> {
        self.is_tested().then(|| self.hooks.cpus.load(Relaxed))
    }

    /// How much its handlers have used of the processors, if this is a test: in nanoseconds.
    pub(crate) fn cpu_ticks(&self) -> Option<Ticks> {
        let now = self.clock.now();
        let busy = self.hooks.workers.get().map_or(0, |workers| workers.cpu_ns(now));
        self.cpus_said().map(|cpus| Ticks { busy, all: now.as_nanos() * cpus as u64 })
    }

    pub(crate) fn set_virtual_workers(&self, workers: Arc<VirtualWorkers>) {
        let _ = self.hooks.workers.set(workers);
    }

    /// Whether this is a test in which the handler of a stage takes virtual time.
    #[inline]
    pub(crate) fn is_timed(&self, stage: u32) -> bool {
        let timed = |workers: &Arc<VirtualWorkers>| workers.is_timed(self.replicas.stage_of(stage));
        self.is_tested() && self.hooks.workers.get().is_some_and(timed)
    }

    /// Whether this is a test whose visits are not plain.
    pub(crate) fn visits_at_large(&self) -> bool {
        self.hooks.at_large.load(Relaxed)
    }

    /// The handler of a stage takes the time that a test gives it for so many events.
    #[cold]
    #[inline(never)]
    pub(crate) fn serve(&self, stage: u32, events: usize) {
        if let Some(workers) = self.hooks.workers.get() {
            workers.serve(self, self.replicas.stage_of(stage), events);
        }
    }

    /// A held stage's tokens are set aside until it is let go: it is not visited. For tests.
    pub(crate) fn hold(&self, stage: u32, hold: bool) {
        let mut held = self.hooks.held.lock();
        if hold {
            self.hooks.holds.store(true, SeqCst);
            held.entry(stage).or_default();
        } else if let Some(tokens) = held.remove(&stage) {
            drop(held);
            tokens.into_iter().for_each(|token| self.make_ready(token));
        }
    }

    /// Whether a stage was ever held back.
    #[inline]
    pub(crate) fn has_held(&self) -> bool {
        self.hooks.holds.load(Relaxed)
    }

    /// Whether a token belongs to a held stage, which then keeps it.
    #[inline]
    pub(crate) fn is_held(&self, token: Token) -> bool {
        self.hooks.holds.load(Relaxed)
            && self.hooks.held.lock().get_mut(&token.stage).map(|kept| kept.push(token)).is_some()
    }
}
