//! Injects the faults of a case into its user code while it runs, and counts them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use comporta::{SendError, Sender};

use crate::dice::mix2;
use crate::event::{Event, Facts, Live, Tally, UNNUMBERED};
use crate::faults::{
    Fault, Faults, KEPT_FAILURES_PANIC_WHEN_DROPPED, WITHDRAWN_EVENTS_PANIC_WHEN_DROPPED,
};

/// Handlers of a case that block at all, so that a case does not take long.
const BLOCKED_MAX: u64 = 3;
/// A handler blocks no longer than this, also where nothing but itself could unblock it.
const BLOCKED_FOR_MAX: Duration = Duration::from_millis(10);

#[derive(Default)]
pub(crate) struct Injector {
    faults: Faults,
    on_threads: bool,
    /// The run is over, and what is dropped now was kept.
    over: AtomicBool,
    /// `Clone`s that panicked.
    pub(crate) clones: AtomicU64,
    /// Key functions that panicked.
    pub(crate) keys: AtomicU64,
    /// Events that were pushed by events that were dropped.
    pub(crate) echoes: Tally,
    /// Pushes of these that are under way.
    pub(crate) echoing: AtomicU64,
    echo: Mutex<Option<Arc<Sender<Live>>>>,
    blocked: AtomicU64,
    /// How many handlers were called.
    calls: Mutex<u64>,
    called: Condvar,
}

impl fmt::Debug for Injector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injector").finish_non_exhaustive()
    }
}

/// What became of a push.
pub(crate) enum Pushed {
    Taken,
    Refused,
    Closed,
}

impl Injector {
    pub(crate) fn new(faults: Faults, on_threads: bool) -> Arc<Self> {
        Arc::new(Injector { faults, on_threads, ..Injector::default() })
    }

    /// Whether the run is one on threads.
    pub(crate) fn is_on_threads(&self) -> bool {
        self.on_threads
    }

    pub(crate) fn strikes(&self, fault: Fault, facts: &Facts) -> bool {
        let harmless = facts.doomed && !WITHDRAWN_EVENTS_PANIC_WHEN_DROPPED;
        let off = matches!(fault, Fault::Drop) && (harmless || self.over.load(SeqCst));
        !off && self.faults.strikes(fault, facts.id)
    }

    /// The run is over; its program is about to be dropped.
    pub(crate) fn is_over(&self) {
        self.over.store(!KEPT_FAILURES_PANIC_WHEN_DROPPED, SeqCst);
    }

    /// The key of an event.
    pub(crate) fn key(&self, facts: &Facts) -> u64 {
        if self.strikes(Fault::Key, facts) {
            self.keys.fetch_add(1, SeqCst);
            panic!("an event without a key");
        }
        facts.id % 5
    }

    /// Pushes an event. A panic of its `Clone` or its key is the pusher's, and so is its `Drop` where
    /// it is given back.
    pub(crate) fn push<E: Event>(
        &self,
        event: E,
        push: impl FnOnce(E) -> Result<(), SendError<E>>,
    ) -> Pushed {
        let Ok(pushed) = catch_unwind(AssertUnwindSafe(|| push(event))) else {
            return Pushed::Refused;
        };
        let Err(error) = pushed else { return Pushed::Taken };
        let became = match error {
            SendError::Full(_) | SendError::Refused(..) => Pushed::Refused,
            SendError::Closed(_) | SendError::Cancelled => Pushed::Closed,
            error => panic!("{error}"),
        };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(error)));
        became
    }

    /// Lends a handle to the events that push when they are dropped.
    pub(crate) fn lend(&self, sender: Sender<Live>) {
        *self.echo.lock().unwrap() = Some(Arc::new(sender));
    }

    /// Takes the handle back, without which the input would not end.
    pub(crate) fn take_back(&self) {
        let lent = self.echo.lock().unwrap().take();
        drop(lent);
    }

    /// An event is dropped, and pushes another.
    pub(crate) fn echo(self: &Arc<Self>, of: &Facts) {
        let lent = self.echo.lock().unwrap().clone();
        let Some(sender) = lent else { return };
        let facts = Facts { echo: true, ..Facts::new(mix2(of.id, !0), 1, UNNUMBERED, 0) };
        self.echoing.fetch_add(1, SeqCst);
        self.echoes.add(&facts); // before it can arrive
        if !matches!(self.push(Live::new(facts, self), |e| sender.try_send(e)), Pushed::Taken) {
            self.echoes.take_back(&facts);
        }
        drop(sender);
        self.echoing.fetch_sub(1, SeqCst);
    }

    /// A handler was called, which unblocks others, and blocks if this event makes it.
    pub(crate) fn called(&self, facts: &Facts) {
        if self.faults.blocks == 0 || !self.on_threads {
            return;
        }
        self.unblock(1);
        if self.strikes(Fault::Block, facts) && self.blocked.fetch_add(1, SeqCst) < BLOCKED_MAX {
            let calls = self.calls.lock().unwrap();
            let until = *calls + self.faults.block_until;
            let blocked = |calls: &mut u64| *calls < until;
            drop(self.called.wait_timeout_while(calls, BLOCKED_FOR_MAX, blocked).unwrap());
        }
    }

    /// A source has ended, which unblocks all.
    pub(crate) fn source_ended(&self) {
        self.unblock(self.faults.block_until);
    }

    fn unblock(&self, calls: u64) {
        *self.calls.lock().unwrap() += calls;
        self.called.notify_all();
    }
}
