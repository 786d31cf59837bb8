//! The demultiplexer of synchronous sources with a time limit: each is a function that waits for an
//! event no longer than it is told. They are asked in turn, on the loop's thread, which they hold up
//! meanwhile: the observer keeps their waits short.

use crate::wait_list::WaitList;
use std::time::Duration;

/// What a source reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    Nothing,
    Event,
    /// It failed, and will not be asked again.
    Over,
}

impl Reported {
    pub(super) fn is_over(self) -> bool {
        self == Reported::Over
    }

    /// Wakes who waits for the source, if it has something to say; returns whether it has.
    pub(super) fn wakes(self, waiting: &WaitList) -> bool {
        if self != Reported::Nothing {
            waiting.wake_all();
        }
        self != Reported::Nothing
    }
}

/// Asks a source, and puts what it reports into its mailbox.
pub(crate) type PollFn = Box<dyn FnMut(Duration) -> Reported>;

/// Such a source; empty while it is asked.
pub(crate) struct Polled(Option<PollFn>);

impl Polled {
    pub(super) fn new(ask: PollFn) -> Polled {
        Polled(Some(ask))
    }

    pub(super) fn take(&mut self) -> Option<PollFn> {
        self.0.take()
    }

    /// Puts it back; returns the one that has taken its place, if any.
    pub(super) fn put_back(&mut self, ask: PollFn) -> Option<PollFn> {
        self.0.replace(ask)
    }
}
