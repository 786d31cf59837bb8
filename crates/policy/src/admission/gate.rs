//! What an admission controller is, and what it is asked: on entry, when a visit takes events,
//! and when events were handled. Each question is about a batch that shares one origin. The thread
//! that asks holds no lock, but waits for the answer: it should come in constant time. Times are
//! those spent at this stage, not elsewhere in the program; only a deadline is of the whole way.

use std::time::Duration;

use comporta_model::event::Time;

/// Decides who is let into the queue of a stage, and who of those that wait is served next.
///
/// A stage has one of its own; its methods are called one at a time. What it refuses is counted as
/// shed under its name, or goes back to the sender where the sender can take it. Beyond it, what
/// the plan says of a full queue holds as ever.
///
/// A thread that comes while another is in a call waits for it, but not for long: if the other does not
/// return, or the system lets it wait for a processor, the events go on as if there were no controller,
/// and it is not told of them. So what it hears through [`entered`](Self::entered) and
/// [`settled`](Self::settled) may fall short of what happened: a controller that counts should go by
/// what it is asked with ([`Ask::queued`], [`Ask::in_flight`]), not by its own sums.
///
/// ```
/// use comporta_policy::admission::{Admission, Ask};
///
/// /// Lets in one of two.
/// struct Half(usize);
///
/// impl Admission for Half {
///     fn admit(&mut self, ask: &Ask) -> usize {
///         (ask.n + self.0) / 2
///     }
///     fn entered(&mut self, ask: &Ask, _: usize) {
///         self.0 = (self.0 + ask.n) % 2;
///     }
/// }
/// ```
pub trait Admission: Send {
    /// How many of the events that ask to enter may do so, the front ones first. Only asks: the same
    /// events may be asked about twice, or go elsewhere after all. What came of it is reported to
    /// [`entered`](Self::entered).
    fn admit(&mut self, ask: &Ask) -> usize {
        ask.n
    }

    /// So many of those asked about entered, or wait with their sender until there is room; maybe
    /// none.
    fn entered(&mut self, _ask: &Ask, _n: usize) {}

    /// Whom a visit takes next. Asked about the batch that has waited longest, again after each
    /// time it sheds.
    fn next(&mut self, _look: &Look) -> Next {
        Next::Oldest
    }

    /// Events were handled.
    fn settled(&mut self, _done: &Done) {}

    /// Returns what it allows now, in a few words for people.
    fn describe(&self) -> String {
        String::new()
    }
}

/// Events that ask to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The time.
    pub now: Time,
    /// How many they are; at least one.
    pub n: usize,
    /// Events that wait in the queue.
    pub queued: usize,
    /// Events that are being handled.
    pub in_flight: usize,
    /// Places in the queue.
    pub capacity: usize,
    /// Events that can be handled at once at most; the threads may be fewer.
    pub instances: usize,
    /// How long the one that has waited longest has been in the queue; zero if none waits.
    pub oldest: Duration,
    /// The higher, the more they matter.
    pub tier: u8,
    /// When they stop being of use, if ever.
    pub deadline: Option<Time>,
}

impl Ask {
    /// Events in the stage: they wait, or are being handled.
    #[must_use]
    pub fn inside(&self) -> usize {
        self.queued + self.in_flight
    }
}

/// Events that have waited longest, when a visit is about to take some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The time.
    pub now: Time,
    /// How many they are; at least one.
    pub n: usize,
    /// Events that wait in the queue, these among them.
    pub queued: usize,
    /// How long they have been in the queue.
    pub age: Duration,
    /// The higher, the more they matter.
    pub tier: u8,
    /// When they stop being of use, if ever.
    pub deadline: Option<Time>,
}

/// Whom a visit takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Those that have waited longest.
    Oldest,
    /// Those that came last. A stage that must keep the order takes the oldest all the same.
    Newest,
    /// Sheds so many of those it was asked about, one at least, and asks again.
    Shed(usize),
}

/// Events that were handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The time.
    pub now: Time,
    /// How many they are; at least one.
    pub n: usize,
    /// How long they were at this stage: in its queue, and being handled.
    pub response: Duration,
    /// How long the handler took for one of them.
    pub service: Duration,
}

/// Nanoseconds, to calculate with.
pub(super) fn ns(span: Duration) -> f64 {
    span.as_nanos() as f64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::admission::Open;

    /// One event that asks to enter an empty stage, at the start.
    pub(in crate::admission) const ASK: Ask = Ask {
        now: Time::ZERO,
        n: 1,
        queued: 0,
        in_flight: 0,
        capacity: 1_000_000,
        instances: 1,
        oldest: Duration::ZERO,
        tier: 0,
        deadline: None,
    };

    /// One event that has just come.
    pub(in crate::admission) const LOOK: Look =
        Look { now: Time::ZERO, n: 1, queued: 1, age: Duration::ZERO, tier: 0, deadline: None };

    pub(in crate::admission) fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_controller_that_says_nothing_lets_everybody_in_in_order() {
        assert_eq!(Open.admit(&Ask { n: 7, ..ASK }), 7);
        assert_eq!(Open.next(&LOOK), Next::Oldest);
    }
}
