//! Windows by event time: a window holds the events of a span of event time, whenever they arrived.
//!
//! The *watermark* is the greatest event time seen less the lateness allowed. A window leaves when
//! the watermark reaches its end. An event is late when all of its windows have ended: it leaves through
//! the port `late`. If only some have ended, it counts in the others.
//!
//! Memory: the events of the span size + lateness, each once, at most `held_max`; a sliding window
//! is copied when it leaves. Empty windows cost nothing, so a jump in event time closes the open windows
//! and no more.
//! Invariants: every event held has a window that has not ended; windows leave in order of start.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::{OPEN_MAX, Timed, Window, steps};
use crate::ack::Obligation;
use crate::error::{Error, Result};
use crate::event::{Ev, Held};
use crate::port::Out;
use crate::stage::{Cx, Stage};

/// Returns a stage that makes windows of `size` of event time. `time` returns the event time in milliseconds
/// since any fixed moment, as `timestamp_millis` does; it may be negative. Windows begin at multiples of the
/// size, whatever the first event. Their events are in order of event time, and within a millisecond in order
/// of arrival.
///
/// Time is taken from the events alone. An event whose clock is far ahead closes every window and makes all
/// events after it late: if clocks cannot be trusted, filter the events in a stage before this one.
///
/// Sizes, steps and lateness are whole milliseconds. Times are clamped to 2^61 ms (73 million years) either
/// way.
///
/// ```
/// use std::time::Duration;
/// # mod comporta { pub use comporta_model::window as windows; }
/// use comporta::windows;
///
/// // A minute's windows, one every ten seconds, for readings that come up to five seconds late.
/// let readings = windows::by_time(|reading: &(i64, f64)| reading.0, Duration::from_secs(60))
///     .sliding(Duration::from_secs(10))
///     .lateness(Duration::from_secs(5));
/// ```
#[must_use]
pub fn by_time<T, F: Fn(&T) -> i64>(time: F, size: Duration) -> ByTime<T, F> {
    ByTime {
        time,
        size,
        step: size,
        lateness: Duration::ZERO,
        held_max: HELD_MAX,
        copy: None,
        ms: Spans::default(),
        greatest: None,
        next: i64::MIN,
        arrived: 0,
        held: BTreeMap::new(),
    }
}

/// Events held at most, unless said otherwise.
const HELD_MAX: usize = 1 << 20;
/// The greatest time, size, step and lateness, so that their sums fit: 73 million years.
const TIME_MAX: i64 = 1 << 61;

/// Windows by event time; see [`by_time`].
#[derive(Clone)]
pub struct ByTime<T, F> {
    time: F,
    size: Duration,
    step: Duration,
    lateness: Duration,
    held_max: usize,
    /// How to copy an event that the next window needs too; not needed where windows tumble.
    copy: Option<fn(&T) -> T>,
    ms: Spans,
    greatest: Option<i64>,
    /// Windows that begin before this have ended.
    next: i64,
    arrived: u64,
    /// By time, then by arrival.
    held: BTreeMap<(i64, u64), Held<T>>,
}

/// In milliseconds, once they are known to make sense.
#[derive(Clone, Copy, Debug, Default)]
struct Spans {
    size: i64,
    step: i64,
    lateness: i64,
}

impl<T: Clone, F> ByTime<T, F> {
    /// Makes a window begin at every multiple of `step`, which is from 1 ms to the size.
    #[must_use]
    pub fn sliding(self, step: Duration) -> Self {
        ByTime { step, copy: Some(T::clone), ..self }
    }
}

impl<T, F> ByTime<T, F> {
    /// Sets how long a window waits for late events: it closes when an event arrives whose time is at or
    /// after the end of the window plus `lateness`. The default is zero.
    #[must_use]
    pub fn lateness(self, lateness: Duration) -> Self {
        ByTime { lateness, ..self }
    }

    /// Sets the most events held at once. The default is 1,048,576. An event beyond the bound fails with this
    /// reason, unless it closes a window and so makes room.
    #[must_use]
    pub fn held_max(self, events: usize) -> Self {
        ByTime { held_max: events, ..self }
    }

    fn spans(&self) -> Result<Spans, String> {
        let size = millis("window", self.size)?;
        let step = millis("step", self.step)?;
        let lateness = millis("lateness", self.lateness)?;
        steps(size, step, "ms")?;
        let open = (size + lateness).div_ceil(step) + 1;
        if open > OPEN_MAX {
            return Err(format!(
                "a window of {size} ms, one every {step}, {lateness} ms late, has {open} open at once: use at most {OPEN_MAX}"
            ));
        }
        if self.held_max == 0 {
            return Err("a window that may hold 0 events holds nothing: use at least 1".to_owned());
        }
        Ok(Spans { size: size as i64, step: step as i64, lateness: lateness as i64 })
    }

    /// The start of the first window that ends after `time`.
    fn first_start(&self, time: i64) -> i64 {
        let Spans { size, step, .. } = self.ms;
        ((time - size).div_euclid(step) + 1) * step
    }

    /// Sends every window that ends by `watermark`.
    fn close(&mut self, watermark: i64, out: &mut Out<Window<T>>) {
        let Spans { size, step, .. } = self.ms;
        while let Some(((oldest, _), _)) = self.held.first_key_value() {
            let start = self.first_start(*oldest).max(self.next);
            if start + size > watermark {
                return;
            }
            let next = start + step;
            // The copies first: a `Clone` that panics leaves all as it was.
            let mut copies = Vec::new();
            if let Some(copy) = self.copy {
                let staying = self.held.range((next, 0)..(start + size, 0));
                copies.extend(staying.map(|(_, Held { event, obligation })| Held {
                    event: copy(event),
                    obligation: obligation.clone(),
                }));
            }
            self.next = next;
            let after = self.held.split_off(&(next, 0));
            let leaving = std::mem::replace(&mut self.held, after);
            let (mut events, mut owed) = (Vec::with_capacity(leaving.len()), Vec::new());
            for Held { event, obligation } in leaving.into_values().chain(copies) {
                events.push(event);
                owed.extend(Some(obligation).filter(Obligation::is_owed));
            }
            out.send_for(Obligation::all(owed), Window { start, end: start + size, events });
        }
    }
}

/// A span as whole milliseconds, or why it is none.
fn millis(what: &str, span: Duration) -> Result<u64, String> {
    if !span.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(format!("a {what} of {span:?}: event time goes by whole milliseconds"));
    }
    u64::try_from(span.as_millis())
        .ok()
        .filter(|ms| *ms <= TIME_MAX as u64)
        .ok_or_else(|| format!("a {what} of {span:?}: use at most {TIME_MAX} ms"))
}

impl<T, F> Stage for ByTime<T, F>
where
    T: Send + 'static,
    F: Fn(&T) -> i64 + Send + 'static,
{
    type In = T;
    type Ports = Timed<T>;
    const STATEFUL: bool = true;
    const BOUNDS_ITSELF: bool = true;

    fn init(&mut self, _: &Cx) -> Result {
        self.ms = self.spans().map_err(Error::msg)?;
        Ok(())
    }

    fn handle(&mut self, event: Ev<'_, T>, out: &mut Timed<T>, _: &Cx) -> Result {
        let time = (self.time)(&event).clamp(-TIME_MAX, TIME_MAX);
        let greatest = self.greatest.map_or(time, |greatest| greatest.max(time));
        let watermark = greatest - self.ms.lateness;
        let Spans { size, step, .. } = self.ms;
        if time.div_euclid(step) * step + size <= watermark {
            out.late.send(event.take());
            return Ok(());
        }
        // Before anything has changed: an event that fails takes back what it sent.
        if self.held.len() >= self.held_max
            && let Some(((oldest, _), _)) = self.held.first_key_value()
            && *oldest >= self.first_start(watermark)
        {
            let held = self.held.len();
            return Err(Error::msg(format!("{held} events are held already (`held_max`)")));
        }
        self.greatest = Some(greatest);
        self.close(watermark, &mut out.windows);
        // Those that nothing was in have ended too.
        self.next = self.next.max(self.first_start(watermark));
        self.held.insert((time, self.arrived), event.hold());
        self.arrived += 1;
        Ok(())
    }

    fn finish(&mut self, out: &mut Timed<T>, _: &Cx) -> Result {
        self.close(i64::MAX, &mut out.windows);
        Ok(())
    }
}

impl<T, F> fmt::Debug for ByTime<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByTime")
            .field("size", &self.size)
            .field("step", &self.step)
            .field("lateness", &self.lateness)
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}
