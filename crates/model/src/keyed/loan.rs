//! The state of a lane, lent to the call or the flight that handles an event of it. Before: `lane`, which has the state.
//! After: `handler`, which calls the program with it.
//! Invariant: a state that is lent comes back when the loan is dropped, unless it was taken for good.

use std::fmt;
use std::marker::PhantomData;
use std::sync::MutexGuard;

use super::lane::{LaneRef, Typed};

impl<'a, K, S> Typed<'a, K, S> {
    /// Lends the state to one call.
    #[inline]
    pub(super) fn lend(self) -> Loan<'a, K, S> {
        Loan { lane: self, state: self.borrow() }
    }

    /// Lends the state to the last call.
    pub(super) fn lend_at_last(self) -> Loan<'a, K, S> {
        Loan { lane: self, state: self.borrow_at_last() }
    }
}

/// The state of a lane while a call has it. Nothing is moved: a state may be large.
pub(super) struct Loan<'a, K, S> {
    lane: Typed<'a, K, S>,
    state: MutexGuard<'a, Option<S>>,
}

impl<K, S: Default> Loan<'_, K, S> {
    /// The state, made if there is none.
    #[inline]
    pub(super) fn state(&mut self) -> &mut S {
        self.state.get_or_insert_default()
    }
}

impl<K, S> Loan<'_, K, S> {
    /// The state, which does not come back.
    pub(super) fn take(&mut self) -> Option<S> {
        self.state.take()
    }

    /// Replaces the state.
    pub(super) fn put(&mut self, state: S) -> Option<S> {
        self.state.replace(state)
    }

    /// The state as it is.
    pub(super) fn peek(&self) -> Option<&S> {
        self.state.as_ref()
    }
}

impl<K, S> Drop for Loan<'_, K, S> {
    #[inline]
    fn drop(&mut self) {
        self.lane.note_state(self.state.is_some());
    }
}

/// The state of a lane, with the lane: the state is back when this is dropped.
pub struct OwnedLoan<K: 'static, S: 'static> {
    lane: LaneRef,
    state: Option<S>,
    of: PhantomData<fn(K)>,
}

impl<K, S> fmt::Debug for OwnedLoan<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnedLoan")
    }
}

impl<K: 'static, S: Default + 'static> OwnedLoan<K, S> {
    /// Takes the state of a lane.
    pub(crate) fn new(lane: LaneRef) -> Self {
        let state = lane.typed::<K, S>().and_then(|lane| lane.lend().take());
        OwnedLoan { lane, state, of: PhantomData }
    }

    /// The state, which does not come back.
    pub(crate) fn take(&mut self) -> Option<S> {
        self.state.take()
    }

    /// The state, made if there is none.
    pub(crate) fn state(&mut self) -> &mut S {
        self.state.get_or_insert_default()
    }
}

impl<K: 'static, S: 'static> Drop for OwnedLoan<K, S> {
    fn drop(&mut self) {
        if let Some((lane, state)) = self.lane.typed::<K, S>().zip(self.state.take()) {
            let before = lane.lend().put(state);
            drop(before); // none: it was lent
        }
    }
}
