//! The open requests of a gateway: how many there may be, when they are late, and who is woken when they end.
//! Before: `slot`. After: `core`, which sounds its alarm.
//! Invariant: there is one alarm at a time, for the next deadline, or for wakers that could not be called under
//! a lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::task::Waker;

use comporta_model::event::Time;

use super::slot::{Ended, Why};
use crate::core::Core;
use crate::effects::Effects;
use crate::snapshot::GatewaySnapshot;
use crate::sync::{Arc, Mutex, OnceLock};
use crate::timer::Alarm;
use crate::user;

/// A slot, whatever its reply.
pub(super) trait AnySlot: Send + Sync {
    /// The request ends without a reply. Returns whom to wake.
    fn refuse(&self, why: Why) -> Result<Option<Waker>, Ended>;
}

/// Why no request can be opened.
pub(super) enum Shut {
    Full,
    Closed,
}

/// The open requests of a gateway.
pub(crate) struct Requests {
    /// The input of the gateway, and its reply stage.
    input: u32,
    pub(super) replies: OnceLock<u32>,
    core: OnceLock<Weak<Core>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Requests ever opened: the next number.
    made: u64,
    open: BTreeMap<u64, Arc<dyn AnySlot>>,
    due: BTreeSet<(Time, u64)>,
    /// Those whose requests ended under a lock.
    wakers: Vec<Waker>,
    /// When the alarm is set.
    alarm: Option<Time>,
    /// How many may be open.
    limit: usize,
    closed: bool,
    counts: GatewaySnapshot,
}

impl Requests {
    pub(super) fn new(input: u32) -> Arc<Self> {
        let (replies, core) = (OnceLock::new(), OnceLock::new());
        Arc::new(Requests { input, replies, core, state: Mutex::default() })
    }

    /// The program starts.
    pub(crate) fn start(&self, core: &Arc<Core>) {
        let _ = self.core.set(Arc::downgrade(core));
        self.state.lock().limit = core.settings.stages[self.input as usize].in_flight;
    }

    pub(super) fn core(&self) -> Option<Arc<Core>> {
        self.core.get().and_then(Weak::upgrade)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Opens a request, in the slot that `make` returns.
    pub(super) fn open<S: AnySlot + 'static>(
        &self,
        core: &Core,
        deadline: Option<Time>,
        make: impl FnOnce(u64) -> Arc<S>,
    ) -> Result<Arc<S>, Shut> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Shut::Closed);
        }
        if state.open.len() >= state.limit {
            state.counts.rejected += 1;
            return Err(Shut::Full);
        }
        let number = state.made;
        state.made += 1;
        state.counts.requests += 1;
        let slot = make(number);
        state.open.insert(number, slot.clone());
        if let Some(deadline) = deadline {
            state.due.insert((deadline, number));
            self.set_alarm(core, &mut state, deadline);
        }
        Ok(slot)
    }

    /// A request is not open any more.
    pub(super) fn close(
        &self,
        number: u64,
        deadline: Option<Time>,
        count: impl FnOnce(&mut GatewaySnapshot),
    ) {
        let mut state = self.state.lock();
        count(&mut state.counts);
        if let Some(deadline) = deadline {
            state.due.remove(&(deadline, number));
        }
        let slot = state.open.remove(&number);
        drop(state);
        drop(slot);
    }

    /// Has a waker called where no lock is held.
    pub(super) fn wake_later(&self, waker: Option<Waker>) {
        let (Some(waker), Some(core)) = (waker, self.core()) else { return };
        let mut state = self.state.lock();
        state.wakers.push(waker);
        self.set_alarm(&core, &mut state, core.clock.now());
    }

    fn set_alarm(&self, core: &Core, state: &mut State, due: Time) {
        if state.alarm.is_none_or(|alarm| due < alarm) {
            state.alarm = Some(due);
            core.timers.set(due, Alarm::Gateway(self.input));
        }
    }

    /// The alarm: requests that are late end, and those who wait for the end of theirs are woken.
    pub(crate) fn alarm(&self, core: &Arc<Core>) {
        let now = core.clock.now();
        let mut late: Vec<(u64, Arc<dyn AnySlot>)> = Vec::new();
        let mut wakers = {
            let mut state = self.state.lock();
            state.alarm = None;
            while let Some((deadline, number)) = state.due.first().copied() {
                if deadline > now {
                    self.set_alarm(core, &mut state, deadline);
                    break;
                }
                state.due.pop_first();
                late.extend(state.open.get(&number).map(|slot| (number, slot.clone())));
            }
            std::mem::take(&mut state.wakers)
        };
        wakers.extend(self.refuse_all(late, || Why::Deadline, |counts| counts.expired += 1));
        core.call_wakers(wakers);
    }

    /// The program was stopped: every open request is cancelled.
    pub(crate) fn cancel(&self, effects: &mut Effects) {
        let (open, mut wakers) = {
            let mut state = self.state.lock();
            state.closed = true;
            state.due.clear();
            let open = state.open.iter().map(|(number, slot)| (*number, slot.clone())).collect();
            (open, std::mem::take(&mut state.wakers))
        };
        wakers.extend(self.refuse_all(open, || Why::Cancelled, |counts| counts.cancelled += 1));
        for waker in wakers {
            effects.call_later(vec![Box::new(move || waker.wake())]);
        }
    }

    /// Ends those of these requests that have not ended; the others are counted by whoever ended them. Returns
    /// whom to wake.
    fn refuse_all(
        &self,
        open: Vec<(u64, Arc<dyn AnySlot>)>,
        why: fn() -> Why,
        count: fn(&mut GatewaySnapshot),
    ) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for (number, slot) in open {
            if let Ok(waker) = slot.refuse(why()) {
                self.close(number, None, count);
                wakers.extend(waker);
            }
        }
        wakers
    }

    /// A reply came that nobody waited for.
    pub(super) fn unclaimed(&self) {
        self.state.lock().counts.unclaimed += 1;
    }

    /// Its numbers, for the snapshot of this stage.
    pub(crate) fn snapshot(&self, stage: u32) -> Option<GatewaySnapshot> {
        let own = stage == self.input || self.replies.get() == Some(&stage);
        own.then(|| {
            let state = self.state.lock();
            GatewaySnapshot { in_flight: state.open.len(), ..state.counts }
        })
    }
}

pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        let _ = user::call(|| waker.wake());
    }
}
