//! Where windows by event time send: windows through one port, late events through the other. Used by `time` and `keyed`.

use std::fmt;

use super::Window;
use crate::port::{Out, Port, PortVisitor, Ports, StageKey, Turns, in_turn};

/// The ports of windows by event time ([`ByTime`](super::ByTime), [`KeyedWindows`](super::KeyedWindows)): windows, and
/// late events.
pub struct Timed<T, W = Window<T>> {
    /// Windows; of one key, in order.
    pub windows: Out<W>,
    /// Events that were too late for all of their windows, in order of arrival.
    pub late: Out<T>,
}

/// Handles to the ports of [`Timed`], for `connect`.
pub struct TimedRefs<T, W = Window<T>> {
    /// Windows; of one key, in order.
    pub windows: Port<W>,
    /// Events that were too late for all of their windows, in order of arrival.
    pub late: Port<T>,
}

// By hand what `#[derive(Ports)]` writes: that names types of the facade, and takes no generics.
impl<T: Send + 'static, W: Send + 'static> Ports for Timed<T, W> {
    type Refs = TimedRefs<T, W>;
    const NAMES: &'static [&'static str] = &["windows", "late"];

    fn new() -> Self {
        let turns = Turns::shared();
        Timed { windows: Out::one_of(&turns, 0), late: Out::one_of(&turns, 1) }
    }

    fn refs(of: StageKey) -> TimedRefs<T, W> {
        TimedRefs { windows: Port::of(of, 0), late: Port::of(of, 1) }
    }

    #[inline(always)]
    fn each<V: PortVisitor>(&mut self, visitor: &mut V) {
        visitor.port(0, &mut self.windows);
        visitor.port(1, &mut self.late);
    }

    fn append(&mut self, from: &mut Self) {
        let (mut windows, mut late) = (from.windows.take_sent(), from.late.take_sent());
        let runs: Vec<_> = windows.runs(0).chain(late.runs(1)).collect();
        in_turn(runs.into_iter(), |port, n| match port {
            0 => self.windows.append(&mut windows, n),
            _ => self.late.append(&mut late, n),
        });
    }
}

impl<T, W> Clone for TimedRefs<T, W> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, W> Copy for TimedRefs<T, W> {}

impl<T, W> fmt::Debug for TimedRefs<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedRefs").field("of", &self.windows.of).finish_non_exhaustive()
    }
}

impl<T, W> fmt::Debug for Timed<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timed").field("windows", &self.windows).field("late", &self.late).finish()
    }
}
