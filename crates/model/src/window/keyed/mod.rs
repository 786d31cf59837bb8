//! Windows of each key, over event time or the program's clock, that send what an aggregate makes of their events.
//!
//! 1. this file: what a program says of them ([`Windows`]), and what they send ([`Windowed`]);
//! 2. `aggregate`: what is made of the events;
//! 3. `panes`: the open windows of one key;
//! 4. `stage`: the stage.

mod aggregate;
mod panes;
mod stage;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use aggregate::{Aggregate, Count, Fold, Max, Mean, Min, Sum, fold, max, mean, min, sum};
pub use stage::{KeyedWindows, keyed, keyed_on_clock};

use super::{OPEN_MAX, steps};
use crate::event::Time;
use crate::keyed::EventTime;

/// Which windows there are, and when their results are sent.
///
/// ```
/// use std::time::Duration;
/// # mod comporta { pub use comporta_model::window as windows; }
/// use comporta::windows::Windows;
///
/// let second = Duration::from_secs(1);
/// let minutes = Windows::tumbling(60 * second); // 0..60, 60..120, ...
/// let recent = Windows::sliding(10 * second, 2 * second); // 0..10, 2..12, 4..14, ...
/// let visits = Windows::session(30 * second); // until nothing has happened for 30 seconds
/// // Events come up to 5 seconds late; a source that is silent for 3 seconds holds nobody up.
/// let late = minutes.lateness(5 * second).idle(3 * second);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    kind: Kind,
    time: EventTime,
    early: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sliding { size: Duration, step: Duration },
    Session { gap: Duration },
}

/// What a window sends.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Windowed<K, R> {
    /// Whose events.
    pub key: K,
    /// The first moment of the window; of a session, the time of its first event. A window that would begin before
    /// [`Time::ZERO`] begins there.
    pub start: Time,
    /// The first moment that is no longer in it; of a session, the time of its last event and the gap.
    pub end: Time,
    /// What the aggregate made of its events.
    pub value: R,
    /// Whether this is an [early](Windows::early) result, of events so far.
    pub early: bool,
}

impl<K, R> Windowed<K, R> {
    /// Returns the last moment of the window: the event time of a result, for a stage that gathers results by window.
    #[must_use]
    pub fn time(&self) -> Time {
        self.end - Duration::from_nanos(1)
    }
}

impl Windows {
    const fn new(kind: Kind) -> Self {
        Windows { kind, time: EventTime::new(), early: None }
    }

    /// Windows of this size, one after the other, from multiples of it.
    #[must_use]
    pub const fn tumbling(size: Duration) -> Self {
        Windows::new(Kind::Sliding { size, step: size })
    }

    /// Windows of this size, one from every multiple of `step`, which is at most the size. An event is in all that
    /// cover its time.
    #[must_use]
    pub const fn sliding(size: Duration, step: Duration) -> Self {
        Windows::new(Kind::Sliding { size, step })
    }

    /// A window for each run of events of a key that are less than `gap` apart.
    #[must_use]
    pub const fn session(gap: Duration) -> Self {
        Windows::new(Kind::Session { gap })
    }

    /// Sets how far behind the greatest event time of its input an event may be and still count:
    /// [`EventTime::lateness`]. A window is sent when the greatest event time is its end and this much more.
    #[must_use]
    pub const fn lateness(self, lateness: Duration) -> Self {
        Windows { time: self.time.lateness(lateness), ..self }
    }

    /// Sets after how long without an event an input is idle, on the program's clock: [`EventTime::idle`]. When all are,
    /// event time goes on with the clock, so that the last window does not wait for the next event.
    #[must_use]
    pub const fn idle(self, after: Duration) -> Self {
        Windows { time: self.time.idle(after), ..self }
    }

    /// Has the results so far of open windows sent every so often, on the program's clock, if events came since.
    #[must_use]
    pub const fn early(self, every: Duration) -> Self {
        Windows { early: Some(every), ..self }
    }

    /// Why they make no sense, if they do not.
    #[doc(hidden)]
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.shape().err()
    }

    /// The windows in nanoseconds; or why they make no sense.
    fn shape(&self) -> Result<Shape, String> {
        if self.early == Some(Duration::ZERO) {
            return Err("early results every 0 ns never end: use at least 1".to_owned());
        }
        match self.kind {
            Kind::Session { gap } => match nanos("gap", gap)? {
                0 => Err("a session with a gap of 0 ns holds nothing: use at least 1".to_owned()),
                gap => Ok(Shape::Session { gap }),
            },
            Kind::Sliding { size, step } => {
                let (length, each) = (nanos("window", size)?, nanos("step", step)?);
                if length > 0 && each > length {
                    return Err(format!(
                        "a step of {step:?} is beyond the window of {size:?}: what lies between two windows would be lost"
                    ));
                }
                let (size, step) = (length, each);
                steps(size, step, "ns")?;
                let pane = greatest_divisor(size, step);
                if size / pane > OPEN_MAX {
                    return Err(format!(
                        "a window of {size} ns, one every {step}, has {} parts of {pane} ns: use at most {OPEN_MAX}",
                        size / pane
                    ));
                }
                Ok(Shape::Sliding { size, step, pane })
            }
        }
    }
}

/// The greatest time and span, so that their sums fit: 292 years.
const TIME_MAX: u64 = i64::MAX as u64 / 2;

fn nanos(what: &str, span: Duration) -> Result<u64, String> {
    let ns = u64::try_from(span.as_nanos()).ok().filter(|ns| *ns <= TIME_MAX);
    ns.ok_or_else(|| format!("a {what} of {span:?}: use at most {TIME_MAX} ns"))
}

fn greatest_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

/// Windows that make sense, in nanoseconds.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Size and step are multiples of `pane`.
    Sliding {
        size: u64,
        step: u64,
        pane: u64,
    },
    Session {
        gap: u64,
    },
}

impl Shape {
    /// The first end of a window after a moment.
    fn next_end(self, after: Time) -> Time {
        let Shape::Sliding { size, step, .. } = self else { return Time::MAX };
        // Ends are as far from a multiple of the step as the size is.
        let (first, off) = (after.as_nanos().saturating_add(1), size % step);
        let wait = (off + step - first % step) % step;
        Time::from_nanos(first.saturating_add(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_where_a_step_and_the_size_say() {
        let shape = Shape::Sliding { size: 10, step: 4, pane: 2 };
        let end = |after| shape.next_end(Time::from_nanos(after)).as_nanos();
        assert_eq!([end(0), end(1), end(2), end(9), end(10)], [2, 2, 6, 10, 14]);
    }

    #[test]
    fn windows_that_make_no_sense_are_refused() {
        let ns = Duration::from_nanos;
        let no = |windows: Windows| windows.shape().unwrap_err();
        assert!(no(Windows::tumbling(ns(0))).contains("holds nothing"));
        assert!(no(Windows::sliding(ns(5), ns(6))).contains("would be lost"));
        assert!(no(Windows::sliding(ns(3_000_001), ns(2))).contains("use at most"));
        assert!(no(Windows::session(ns(0))).contains("gap of 0"));
        assert!(no(Windows::session(Duration::MAX)).contains("use at most"));
        assert!(no(Windows::tumbling(ns(1)).early(ns(0))).contains("early"));
    }
}
