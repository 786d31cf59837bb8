//! The trait of admission controllers, which are called when events arrive, when a visit takes events, and when
//! events were handled. Each call is about a batch that shares one origin. The calling thread holds no lock,
//! but waits for the answer, which should take constant time. Times are those spent at this stage; only a
//! deadline covers the whole way through the program.

use std::time::Duration;

use comporta_model::event::Time;

/// Decides which events are admitted to the queue of a stage, and which of the queued events is served next.
///
/// Each stage has its own controller, whose methods are called one at a time. Events that it refuses are
/// counted as shed under its name, or returned to a sender that can take them back. An event that it admits
/// still needs room in the queue.
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
/// /// Admits every other event.
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
    /// Returns how many of the arriving events may enter, from the front. This is only a question: it may be
    /// asked twice for the same events, or they may go elsewhere after all. [`entered`](Self::entered) reports
    /// how many entered.
    fn admit(&mut self, ask: &Ask) -> usize {
        ask.n
    }

    /// Called when `n` of these events have entered, or wait with their sender for room; `n` may be zero.
    fn entered(&mut self, _ask: &Ask, _n: usize) {}

    /// Returns which events a visit takes next. It is shown the batch that has waited longest, and called
    /// again each time after it sheds.
    fn next(&mut self, _look: &Look) -> Next {
        Next::Oldest
    }

    /// Called when events were handled.
    fn settled(&mut self, _done: &Done) {}

    /// Describes what it admits now, in a few words.
    fn describe(&self) -> String {
        String::new()
    }
}

/// Events that arrive at a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The time.
    pub now: Time,
    /// Their number, at least one.
    pub n: usize,
    /// Events that wait in the queue.
    pub queued: usize,
    /// Events that are being handled.
    pub in_flight: usize,
    /// Places in the queue.
    pub capacity: usize,
    /// The number of instances; there may be fewer threads.
    pub instances: usize,
    /// How long the oldest event has been in the queue; zero if it is empty.
    pub oldest: Duration,
    /// How important they are, from 0 to 255.
    pub tier: u8,
    /// Their deadline, if they have one.
    pub deadline: Option<Time>,
}

impl Ask {
    /// Returns the number of events in the stage, waiting or being handled.
    #[must_use]
    pub fn inside(&self) -> usize {
        self.queued + self.in_flight
    }
}

/// The oldest events of a queue, when a visit is about to take some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The time.
    pub now: Time,
    /// Their number, at least one.
    pub n: usize,
    /// Events that wait in the queue, these among them.
    pub queued: usize,
    /// How long they have been in the queue.
    pub age: Duration,
    /// How important they are, from 0 to 255.
    pub tier: u8,
    /// Their deadline, if they have one.
    pub deadline: Option<Time>,
}

/// Which events a visit takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The oldest.
    Oldest,
    /// The newest. A stage that must keep the order takes the oldest all the same.
    Newest,
    /// Sheds this many of the events shown, at least one, and asks again.
    Shed(usize),
}

/// Events that were handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The time.
    pub now: Time,
    /// Their number, at least one.
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
