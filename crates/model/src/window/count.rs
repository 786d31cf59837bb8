//! Windows by count, in order of arrival.
//! Memory: at most `size` events, each once; a sliding window is copied when it leaves.
//! Invariant: `held` begins with the first event of the window that leaves next.

use std::collections::VecDeque;
use std::fmt;

use super::{OPEN_MAX, Window, steps};
use crate::ack::Obligation;
use crate::error::{Error, Result};
use crate::event::{Ev, Held};
use crate::port::Out;
use crate::stage::{Cx, Stage};

/// Returns a stage that makes windows of `size` events: 0 to size - 1, size to 2 size - 1, ... The last window
/// holds the events left when the stream ended.
///
/// ```
/// # mod comporta { pub use comporta_model::{plan::Plan, window as windows}; pub use comporta_model::window::Window; }
/// use comporta::windows::{self, Window};
///
/// let mut pairs = windows::by_count::<u64>(2);
/// let mut overlapping = windows::by_count::<u64>(10).sliding(5); // 0..10, 5..15, 10..20, ...
/// ```
#[must_use]
pub fn by_count<T>(size: usize) -> ByCount<T> {
    ByCount { size, step: size, copy: None, start: 0, held: VecDeque::new(), owed: Owed::default() }
}

/// Windows by count; see [`by_count`].
#[derive(Clone)]
pub struct ByCount<T> {
    size: usize,
    step: usize,
    /// How to copy an event that the next window needs too; not needed where windows tumble.
    copy: Option<fn(&T) -> T>,
    /// The number of the first event held.
    start: i64,
    held: VecDeque<T>,
    /// What is owed for each of these.
    owed: Owed,
}

/// What is owed for each event held, as runs: mostly nothing.
#[derive(Clone, Default)]
struct Owed(VecDeque<(Obligation, usize)>);

impl Owed {
    fn push(&mut self, obligation: Obligation) {
        match self.0.back_mut() {
            Some((last, n)) if last.is_like(&obligation) => {
                *n += 1;
                obligation.settle(); // one is owed for them all
            }
            _ => self.0.push_back((obligation, 1)),
        }
    }

    /// What is owed for all of them; the first `leaving` of them go.
    fn close(&mut self, leaving: usize) -> Obligation {
        let mut left = leaving;
        let mut all = Vec::new();
        while left > 0
            && let Some((_, n)) = self.0.front_mut()
        {
            let gone = left.min(*n);
            left -= gone;
            *n -= gone;
            if *n > 0 {
                break;
            }
            all.extend(self.0.pop_front().map(|(obligation, _)| obligation));
        }
        all.extend(self.0.iter().map(|(obligation, _)| obligation.clone()));
        Obligation::all(all)
    }
}

impl<T: Clone> ByCount<T> {
    /// Makes a window begin every `step` events, from 1 to the size. Windows that have begun when the stream
    /// ends are sent then.
    #[must_use]
    pub fn sliding(self, step: usize) -> Self {
        ByCount { step, copy: Some(T::clone), ..self }
    }
}

impl<T> ByCount<T> {
    /// Sends the window that begins at `start`, and moves to the next.
    fn close(&mut self, out: &mut Out<Window<T>>) {
        let held = self.held.len();
        let leaving = self.step.min(held);
        let events: Vec<T> = if leaving == held {
            // They move on where they lie: this is what makes tumbling windows cheap.
            std::mem::replace(&mut self.held, VecDeque::with_capacity(held)).into()
        } else {
            // The copies first: a `Clone` that panics leaves all as it was.
            let staying = self.held.range(leaving..);
            let copies: Vec<T> =
                self.copy.iter().flat_map(|copy| staying.clone().map(copy)).collect();
            let mut events = Vec::with_capacity(held);
            events.extend(self.held.drain(..leaving));
            events.extend(copies);
            events
        };
        let (start, len) = (self.start, events.len() as i64);
        let owed = self.owed.close(leaving);
        out.send_for(owed, Window { start, end: start + len, events });
        self.start += leaving as i64;
    }
}

impl<T: Send + 'static> Stage for ByCount<T> {
    type In = T;
    type Ports = Out<Window<T>>;
    const STATEFUL: bool = true;
    const BOUNDS_ITSELF: bool = true;

    fn init(&mut self, _: &Cx) -> Result {
        let open = steps(self.size as u64, self.step as u64, "events").map_err(Error::msg)?;
        if open > OPEN_MAX {
            return Err(Error::msg(format!(
                "a window of {} events, one every {}, has {open} open at once: use at most {OPEN_MAX}",
                self.size, self.step
            )));
        }
        Ok(())
    }

    #[inline]
    fn handle(&mut self, event: Ev<'_, T>, out: &mut Out<Window<T>>, _: &Cx) -> Result {
        let Held { event, obligation } = event.hold();
        self.held.push_back(event);
        self.owed.push(obligation);
        if self.held.len() >= self.size {
            self.close(out);
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Out<Window<T>>, _: &Cx) -> Result {
        while !self.held.is_empty() {
            self.close(out);
        }
        Ok(())
    }
}

impl<T> fmt::Debug for ByCount<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByCount")
            .field("size", &self.size)
            .field("step", &self.step)
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}
