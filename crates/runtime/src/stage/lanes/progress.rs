//! How far a stage has handed event time on: what its results have been sent for. A stage behind it goes by that, and not
//! by the results it happens to have seen, since keys overtake each other. Used by `mod.rs`.
//!
//! Each piece of work *holds* event time at a point: an event at the watermark that it found, an event timer just before
//! its time. The point that has been handed on is one below which nothing is held. Work is counted in two parts, what is
//! held before the next such point and what is not; when the first is empty, that point has been handed on, and the
//! watermark becomes the next.
//! Invariant: what has been handed on never exceeds what is held, and never goes back.

use comporta_model::event::Time;

use crate::sync::{Arc, AtomicBool, AtomicU64, Relaxed, SeqCst};

/// What is known of a stage beyond it: whether it keeps event time, and how far it has handed that on.
#[derive(Default)]
pub(crate) struct HandedOn {
    keeps_time: AtomicBool,
    to: AtomicU64,
    /// It has been asked to look at the stages before it.
    told: AtomicBool,
}

impl HandedOn {
    /// The stage keeps event time.
    pub(crate) fn set_keeps_time(&self) {
        self.keeps_time.store(true, Relaxed);
    }

    pub(crate) fn keeps_time(&self) -> bool {
        self.keeps_time.load(Relaxed)
    }

    /// How far event time has been handed on, if the stage keeps it.
    pub(crate) fn to(&self) -> Option<Time> {
        self.keeps_time().then(|| Time::from_nanos(self.to.load(SeqCst)))
    }

    /// Asks the stage to look at those before it. Returns `false` if it has been asked.
    pub(crate) fn tell(&self) -> bool {
        self.keeps_time() && !self.told.swap(true, SeqCst)
    }

    /// It looks.
    pub(crate) fn listen(&self) {
        self.told.store(false, SeqCst);
    }
}

/// What is held, and how far event time has been handed on.
pub(super) struct Progress {
    /// What will have been handed on next.
    next: Time,
    /// Work that holds event time before that, and from there on.
    before: usize,
    after: usize,
    /// Of the latter, what holds it at the watermark.
    latest: usize,
    watermark: Time,
    changed: bool,
    out: Arc<HandedOn>,
}

impl Progress {
    pub(super) fn new(out: Arc<HandedOn>) -> Self {
        out.set_keeps_time();
        let (next, watermark) = (Time::ZERO, Time::ZERO);
        Progress { next, before: 0, after: 0, latest: 0, watermark, changed: false, out }
    }

    /// The watermark has come to this.
    #[inline]
    pub(super) fn advance(&mut self, watermark: Time) {
        if watermark > self.watermark {
            self.watermark = watermark;
            self.latest = 0;
        }
    }

    /// A piece of work holds event time there.
    #[inline]
    pub(super) fn hold(&mut self, at: Time) {
        if at < self.next {
            self.before += 1;
        } else {
            self.after += 1;
            self.latest += usize::from(at == self.watermark);
        }
    }

    /// It does no longer.
    #[inline]
    pub(super) fn release(&mut self, at: Time) {
        if at < self.next {
            self.before -= 1;
        } else {
            self.after -= 1;
            self.latest -= usize::from(at == self.watermark);
        }
    }

    /// Hands on what nothing holds. `pending` is whether timers that are due have yet to be counted.
    pub(super) fn hand_on(&mut self, pending: bool) {
        // At the end of the stream there is still what `finish` sends: then the edges say it.
        while self.before == 0 && !pending && self.next < Time::MAX {
            if self.out.to.swap(self.next.as_nanos(), SeqCst) != self.next.as_nanos() {
                self.changed = true;
            }
            if self.next == self.watermark {
                return;
            }
            self.next = self.watermark;
            self.before = self.after - self.latest;
            self.after = self.latest;
        }
    }

    /// The stage looks at those before it.
    pub(super) fn listen(&self) {
        self.out.listen();
    }

    /// Whether it was handed on since this was last asked.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::from_nanos(ns)
    }

    #[test]
    fn nothing_is_handed_on_that_is_held_and_everything_else_is() {
        let out = Arc::new(HandedOn::default());
        let mut progress = Progress::new(out.clone());
        progress.hold(at(0)); // an event that found 0
        progress.advance(at(10));
        progress.hold(at(10));
        progress.hand_on(false);
        assert_eq!(out.to(), Some(at(0)));
        progress.release(at(0));
        progress.hand_on(true);
        assert_eq!(out.to(), Some(at(0))); // a timer may be due
        progress.hand_on(false);
        assert_eq!(out.to(), Some(at(10)));
        progress.advance(at(20));
        progress.hold(at(14)); // a timer for 15
        progress.release(at(10));
        progress.hand_on(false);
        assert!(out.to() < Some(at(15)));
        progress.release(at(14));
        progress.hand_on(false);
        assert_eq!(out.to(), Some(at(20)));
        assert!(progress.take_changed() && !progress.take_changed());
    }
}
