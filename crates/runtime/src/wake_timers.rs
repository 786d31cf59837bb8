//! Timers of handlers that wait: wakers to be called at a time. One alarm of `timer` stands for the
//! earliest of them. Used by `Host`, which is what a handler's context asks.
//! The waker of an event in flight is ours, and called by the clock. Any other is user code, as a future may be
//! polled with whatever waker its parent has: those are called elsewhere (`Core::call_wakers`).
//! Invariant: while there is a timer, the clock was asked for a time no later than its own.

use std::collections::BTreeMap;
use std::task::Waker;

use comporta_model::event::Time;

use crate::core::Core;
use crate::stage::flight::Wakeup;
use crate::sync::{Arc, Mutex};
use crate::timer::{Alarm, Armed};
use crate::user;

#[derive(Default)]
pub(crate) struct WakeTimers(Mutex<State>);

#[derive(Default)]
struct State {
    timers: BTreeMap<(Time, u64), Waker>,
    made: u64,
    armed: Armed,
}

impl State {
    /// The time for which the clock is to be asked, if it was not.
    fn arm(&mut self) -> Option<Time> {
        let (&(first, _), _) = self.timers.first_key_value()?;
        self.armed.arm(first)
    }
}

impl WakeTimers {
    /// Has `waker` called at `due`. Returns the number to forget it by.
    pub(crate) fn add(&self, core: &Core, due: Time, waker: Waker) -> u64 {
        let mut state = self.0.lock();
        state.made += 1;
        let number = state.made;
        state.timers.insert((due, number), waker);
        let armed = state.arm();
        drop(state);
        if let Some(due) = armed {
            core.timers.add(due, Alarm::Wakers);
        }
        number
    }

    /// Takes a timer back.
    pub(crate) fn forget(&self, due: Time, number: u64) {
        let waker = self.0.lock().timers.remove(&(due, number));
        user::discard(waker);
    }

    /// Calls the wakers whose time has come.
    pub(crate) fn ring(&self, core: &Arc<Core>) {
        let now = core.clock.now();
        let mut state = self.0.lock();
        state.armed.ring(now);
        let later = state.timers.split_off(&(Time::from_nanos(now.as_nanos() + 1), 0));
        let due = std::mem::replace(&mut state.timers, later);
        let armed = state.arm();
        drop(state);
        if let Some(due) = armed {
            core.timers.add(due, Alarm::Wakers);
        }
        let (own, others): (Vec<_>, Vec<_>) = due.into_values().partition(Wakeup::is_woken_by);
        own.into_iter().for_each(Waker::wake);
        core.call_wakers(others);
    }
}
