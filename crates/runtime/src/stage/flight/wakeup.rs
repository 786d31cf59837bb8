//! How an event in flight is woken: its waker, and the list of those that were woken, which a visit takes whole.
//! Before: user code, on any thread. After: `slots`, by the visit that the token of the list stands for.
//!
//! Wake-ups come in bursts, from a timer or a socket that many wait for: one costs a place in the list, and only
//! the one that finds the list empty takes the lock of the stage and sees to a token.
//! Invariants: of a wake-up and the moment its flight is parked, whichever comes second makes it ready. While
//! the list holds any, whoever found it empty has made a token or is about to, or every instance is at work and
//! looks at the list when it is free (`Stage::claim`).

use std::collections::VecDeque;
use std::sync::Weak;
use std::task::{Wake, Waker};

use super::slots::FlightId;
use crate::core::Core;
use crate::effects::Effects;
use crate::sync::{
    AcqRel, Acquire, Arc, AtomicU32, AtomicU64, AtomicUsize, Mutex, OnceLock, Relaxed, SeqCst,
};

/// The flights of a stage that were woken and not yet taken by a visit, first in first out.
#[derive(Default)]
pub(in crate::stage) struct WokenList {
    /// A leaf lock: taken under the stage's lock, or alone.
    ids: Mutex<Vec<FlightId>>,
    /// How many there are, for those who ask without the lock; changed under it.
    len: AtomicUsize,
    /// Whose they are, and where tokens go; known from the first instance on.
    of: OnceLock<(Weak<Core>, u32)>,
}

impl WokenList {
    /// The stage starts.
    pub(in crate::stage) fn start(&self, core: &Arc<Core>, stage: u32) {
        self.of.get_or_init(|| (Arc::downgrade(core), stage));
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(SeqCst)
    }

    /// Adds one. Returns whether it is the first: then a token may be due.
    #[must_use]
    fn push(&self, id: FlightId) -> bool {
        let mut ids = self.ids.lock();
        ids.push(id);
        self.len.store(ids.len(), SeqCst);
        ids.len() == 1
    }

    /// Moves all to the end of `into`.
    pub(super) fn take(&self, into: &mut VecDeque<FlightId>) {
        if self.len() > 0 {
            let mut ids = self.ids.lock();
            into.extend(ids.drain(..));
            self.len.store(0, SeqCst);
        }
    }

    #[cold]
    fn make_token(&self) {
        let Some((core, stage)) = self.of.get() else { return };
        let Some(core) = core.upgrade() else { return };
        let mut effects = Effects::default();
        core.node(*stage).woken(&mut effects);
        core.dispatch(effects);
    }
}

/// What the waker of an event wakes.
pub(crate) struct Wakeup {
    state: AtomicU32,
    id: AtomicU64,
    list: Arc<WokenList>,
}

/// It is being polled, or was not polled yet.
const POLLED: u32 = 0;
/// It was woken since it was last polled.
const WOKEN: u32 = 1;
/// It stands in its slot, and nobody woke it.
const PARKED: u32 = 2;

impl Wakeup {
    pub(in crate::stage) fn new(list: &Arc<WokenList>) -> Arc<Self> {
        let (state, id) = (AtomicU32::new(POLLED), AtomicU64::new(0));
        Arc::new(Wakeup { state, id, list: list.clone() })
    }

    /// Whether this is the waker of an event in flight, which runs no user code. It may say no of one that is:
    /// nothing promises that the functions of a type have one address.
    pub(crate) fn is_woken_by(waker: &Waker) -> bool {
        thread_local! {
            static OWN: Waker = Wakeup::new(&Arc::default()).into();
        }
        OWN.with(|own| own.vtable() == waker.vtable())
    }

    /// As new, of one that an event was woken by that has landed; or a new one, if a waker of it is left.
    pub(in crate::stage) fn renew(mut self: Arc<Self>) -> Arc<Self> {
        match Arc::get_mut(&mut self) {
            Some(own) => {
                own.state = AtomicU32::new(POLLED);
                self
            }
            None => self.another(),
        }
    }

    /// A new one of the same stage.
    pub(in crate::stage) fn another(&self) -> Arc<Self> {
        Wakeup::new(&self.list)
    }

    /// It stands in its slot now. Returns whether it was woken meanwhile.
    pub(super) fn park(&self, id: FlightId) -> bool {
        self.id.store(id.number(), Relaxed);
        self.state.compare_exchange(POLLED, PARKED, AcqRel, Acquire).is_err()
    }

    /// It is about to be polled.
    pub(super) fn unpark(&self) {
        self.state.swap(POLLED, SeqCst);
    }

    /// It is to be polled. Returns whether it stood in its slot, and nobody else sees to it.
    pub(super) fn claim(&self) -> bool {
        self.state.swap(WOKEN, SeqCst) == PARKED
    }
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.claim() && self.list.push(FlightId::numbered(self.id.load(Relaxed))) {
            self.list.make_token();
        }
    }
}
