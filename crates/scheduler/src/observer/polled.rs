//! The demultiplexer of synchronous sources with a time limit: each is a function that waits for an
//! event no longer than it is told. They are asked in turn, on the loop's thread, which they hold up
//! meanwhile: the observer keeps their waits short.

use super::{Observer, Source};
use crate::table::Key;
use std::time::{Duration, Instant};

/// What a source reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    Nothing,
    Event,
    /// It failed, and will not be asked again.
    Over,
}

/// Asks a source, and puts what it reports into its mailbox.
type PollFn = Box<dyn FnMut(Duration) -> Reported>;

/// Such a source; empty while it is asked.
pub(super) struct Polled(Option<PollFn>);

impl Observer {
    pub(crate) fn add_polled(&self, ask: impl FnMut(Duration) -> Reported + 'static) -> Key {
        let key =
            self.sources.borrow_mut().table.insert(Source::Polled(Polled(Some(Box::new(ask)))));
        self.polled.borrow_mut().push(key);
        self.others.set(self.others.get() + 1);
        key
    }

    /// It will not be asked again.
    pub(super) fn forget_polled(&self, key: Key) {
        let mut polled = self.polled.borrow_mut();
        if let Some(place) = polled.iter().position(|other| *other == key) {
            polled.remove(place);
            self.others.set(self.others.get() - 1);
        }
    }

    pub(super) fn has_polled(&self) -> bool {
        !self.polled.borrow().is_empty()
    }

    /// Asks each synchronous source. If nothing is ready yet each has a bounded wait, which does not go on after
    /// `end`; after the first report, none.
    pub(super) fn ask_polled(&self, mut found: bool, end: Option<Instant>) -> bool {
        let keys = self.polled.borrow().clone();
        let mut any = false;
        for key in keys {
            let left = end.map(|end| end.saturating_duration_since(self.now()));
            let wait = if found { Duration::ZERO } else { self.wait_max };
            let wait = left.map_or(wait, |left| wait.min(left));
            let reported = self.ask_one(key, wait) != Reported::Nothing;
            found |= reported;
            any |= reported;
        }
        any
    }

    fn ask_one(&self, key: Key, wait: Duration) -> Reported {
        let taken = match self.sources.borrow_mut().table.get_mut(key) {
            Some(Source::Polled(polled)) => polled.0.take(),
            _ => None,
        };
        let Some(mut ask) = taken else { return Reported::Nothing };
        let reported = ask(wait);
        if reported == Reported::Over {
            self.forget_polled(key);
        }
        let unused = match self.sources.borrow_mut().table.get_mut(key) {
            Some(Source::Polled(polled)) if reported != Reported::Over => polled.0.replace(ask),
            _ => Some(ask),
        };
        // Dropped outside of every borrow: it is user code.
        drop(unused);
        reported
    }
}
