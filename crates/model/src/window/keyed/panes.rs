//! The open windows of one key: accumulators of spans of time (panes), of which windows are made. Before: `stage`.
//!
//! Windows that slide share panes, as wide as the greatest span of which both size and step are multiples: an event is
//! added to one pane, however many windows it is in. A session is a pane that grows.
//! Invariants: panes stand in order and do not overlap; a pane has at least one event, and a window that has not ended.

use std::collections::VecDeque;

use super::{Aggregate, Shape};
use crate::ack::Obligation;
use crate::event::Time;

/// The open windows of a key.
#[derive(Debug)]
pub struct Panes<Acc> {
    panes: VecDeque<Pane<Acc>>,
    /// Windows that end by then have been sent, or had no events.
    closed: Time,
    /// When early results are due, if they are.
    pub(super) early: Option<Time>,
    /// Events have come since the last early results.
    pub(super) changed: bool,
}

impl<Acc> Default for Panes<Acc> {
    fn default() -> Self {
        Panes { panes: VecDeque::new(), closed: Time::ZERO, early: None, changed: false }
    }
}

#[derive(Debug)]
struct Pane<Acc> {
    start: Time,
    /// The first moment that is no longer in it.
    end: Time,
    acc: Acc,
    owed: Vec<Obligation>,
}

/// A window that has ended, or how far one has come.
pub(super) struct Result<R> {
    pub(super) start: Time,
    pub(super) end: Time,
    pub(super) value: R,
    pub(super) owed: Obligation,
}

impl<Acc> Panes<Acc> {
    pub(super) fn is_empty(&self) -> bool {
        self.panes.is_empty()
    }

    /// Whether all windows of an event of this time have ended when time has come to `now`.
    pub(super) fn is_over(&self, shape: Shape, time: Time, now: Time) -> bool {
        match shape {
            Shape::Sliding { size, step, .. } => {
                let last = Time::from_nanos(time.as_nanos() / step * step);
                plus(last, size) <= now
            }
            Shape::Session { gap } => {
                let end = plus(time, gap);
                end <= now && !self.panes.iter().any(|pane| pane.start < end && pane.end > time)
            }
        }
    }

    /// Windows that end by then have been sent, or had no events.
    pub(super) fn have_closed(&mut self, by: Time) {
        self.closed = self.closed.max(by);
    }

    /// Adds an event of this time. Returns the pane that it is in, and when the windows are to be looked at for it, if
    /// that is not known yet.
    pub(super) fn add<T, A: Aggregate<T, Acc = Acc>>(
        &mut self,
        shape: Shape,
        aggregate: &A,
        time: Time,
        event: &T,
    ) -> (usize, Option<Time>) {
        self.changed = true;
        match shape {
            Shape::Sliding { pane, .. } => {
                let start = Time::from_nanos(time.as_nanos() / pane * pane);
                let at = match self.find(start) {
                    Ok(at) => {
                        aggregate.add(&mut self.panes[at].acc, event);
                        return (at, None);
                    }
                    Err(at) => at,
                };
                let mut acc = aggregate.init();
                aggregate.add(&mut acc, event);
                let end = plus(start, pane);
                self.panes.insert(at, Pane { start, end, acc, owed: Vec::new() });
                (at, Some(self.end_after(shape, end)))
            }
            Shape::Session { gap } => self.add_to_session(gap, aggregate, time, event),
        }
    }

    /// Where the pane that starts then stands, or would; most events are in the last.
    fn find(&self, start: Time) -> std::result::Result<usize, usize> {
        match self.panes.back() {
            Some(last) if last.start == start => Ok(self.panes.len() - 1),
            Some(last) if last.start < start => Err(self.panes.len()),
            _ => self.panes.binary_search_by_key(&start, |pane| pane.start),
        }
    }

    fn add_to_session<T, A: Aggregate<T, Acc = Acc>>(
        &mut self,
        gap: u64,
        aggregate: &A,
        time: Time,
        event: &T,
    ) -> (usize, Option<Time>) {
        let end = plus(time, gap);
        let first = self.panes.partition_point(|pane| pane.end <= time);
        let joins = |pane: &Pane<Acc>| pane.start < end;
        if !self.panes.get(first).is_some_and(joins) {
            let mut acc = aggregate.init();
            aggregate.add(&mut acc, event);
            self.panes.insert(first, Pane { start: time, end, acc, owed: Vec::new() });
            return (first, Some(end));
        }
        // It may join two sessions, which are one from now on.
        while self.panes.get(first + 1).is_some_and(joins) {
            let other = &self.panes[first + 1];
            let (other_end, other_acc) = (other.end, &other.acc);
            let own = &self.panes[first];
            let mut acc = aggregate.init();
            aggregate.merge(&mut acc, &own.acc);
            aggregate.merge(&mut acc, other_acc);
            let gone = self.panes.remove(first + 1);
            let own = &mut self.panes[first];
            own.acc = acc;
            own.end = other_end;
            own.owed.extend(gone.into_iter().flat_map(|pane| pane.owed));
        }
        let own = &mut self.panes[first];
        aggregate.add(&mut own.acc, event);
        own.start = own.start.min(time);
        own.end = own.end.max(end);
        (first, None) // the timer of its former end finds the new one
    }

    /// What is owed for the event that was added at `at`.
    pub(super) fn owe(&mut self, at: usize, obligation: Obligation) {
        let owed = &mut self.panes[at].owed;
        if !obligation.is_owed() || owed.last().is_some_and(|last| last.is_like(&obligation)) {
            obligation.settle(); // one is owed for them all
        } else {
            owed.push(obligation);
        }
    }

    /// Takes out the next window that ends by `now`.
    pub(super) fn close<T, A: Aggregate<T, Acc = Acc>>(
        &mut self,
        shape: Shape,
        aggregate: &A,
        now: Time,
    ) -> Option<Result<A::Out>> {
        let first = self.panes.front()?;
        match shape {
            Shape::Sliding { size, step, pane } => {
                let end = self.end_after(shape, first.end);
                if end > now {
                    return None;
                }
                let value = self.value(aggregate, end);
                self.closed = end;
                let next = minus(plus(end, step), size);
                let mut owed = Vec::new();
                // Those that no later window has go.
                while let Some(gone) = self.panes.pop_front_if(|pane| pane.start < next) {
                    owed.extend(gone.owed);
                }
                if pane < size {
                    let stays = self.panes.iter().take_while(|pane| pane.start < end);
                    owed.extend(stays.flat_map(|pane| pane.owed.iter().cloned()));
                }
                let (start, owed) = (minus(end, size), Obligation::all(owed));
                Some(Result { start, end, value, owed })
            }
            Shape::Session { .. } => {
                let at = self.panes.iter().position(|pane| pane.end <= now)?;
                let value = aggregate.result(&self.panes[at].acc);
                let Pane { start, end, owed, .. } = self.panes.remove(at)?;
                Some(Result { start, end, value, owed: Obligation::all(owed) })
            }
        }
    }

    /// What a window amounts to that ends then and has events.
    fn value<T, A: Aggregate<T, Acc = Acc>>(&self, aggregate: &A, end: Time) -> A::Out {
        let mut own = self.panes.iter().take_while(|pane| pane.start < end);
        match (own.next(), own.next()) {
            (Some(only), None) => aggregate.result(&only.acc),
            _ => {
                let mut acc = aggregate.init();
                let own = self.panes.iter().take_while(|pane| pane.start < end);
                own.for_each(|pane| aggregate.merge(&mut acc, &pane.acc));
                aggregate.result(&acc)
            }
        }
    }

    /// When the first open window ends that has a pane with this end.
    fn end_after(&self, shape: Shape, pane_end: Time) -> Time {
        shape.next_end(minus(pane_end, 1).max(self.closed))
    }

    /// When the next window ends, if there is one.
    pub(super) fn next_end(&self, shape: Shape) -> Option<Time> {
        let first = self.panes.front()?;
        match shape {
            Shape::Sliding { .. } => Some(self.end_after(shape, first.end)),
            Shape::Session { .. } => self.panes.iter().map(|pane| pane.end).min(),
        }
    }

    /// How far each open window has come.
    pub(super) fn so_far<T, A: Aggregate<T, Acc = Acc>>(
        &self,
        shape: Shape,
        aggregate: &A,
    ) -> Vec<Result<A::Out>> {
        let Some(last) = self.panes.back() else { return Vec::new() };
        let Shape::Sliding { size, step, .. } = shape else {
            let all = self.panes.iter().map(|pane| Result {
                start: pane.start,
                end: pane.end,
                value: aggregate.result(&pane.acc),
                owed: Obligation::default(),
            });
            return all.collect();
        };
        let mut all = Vec::new();
        let mut end = self.next_end(shape).unwrap_or(Time::MAX);
        while minus(end, size) <= last.start && end < Time::MAX {
            let start = minus(end, size);
            let mut own = self.panes.iter().filter(|pane| start <= pane.start && pane.start < end);
            if own.clone().next().is_some() {
                let mut acc = aggregate.init();
                own.by_ref().for_each(|pane| aggregate.merge(&mut acc, &pane.acc));
                let (value, owed) = (aggregate.result(&acc), Obligation::default());
                all.push(Result { start, end, value, owed });
            }
            end = plus(end, step);
        }
        all
    }
}

pub(super) fn plus(time: Time, ns: u64) -> Time {
    Time::from_nanos(time.as_nanos().saturating_add(ns))
}

pub(super) fn minus(time: Time, ns: u64) -> Time {
    Time::from_nanos(time.as_nanos().saturating_sub(ns))
}
