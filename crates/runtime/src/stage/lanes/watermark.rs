//! How far event time has come in a stage: its watermark. Used by `mod.rs`, which tells it of every event that arrives
//! and gives each the watermark of its arrival.
//!
//! The watermark is the least over the inputs of the greatest time that came from there, less the lateness allowed. Inputs
//! that have ended, or are idle, do not count; where all are idle it goes on with the clock. A stage that keeps event time
//! itself says how far it has handed that on (`progress`), and then that is what counts of it.
//! Invariant: it never goes back.

use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::keyed::EventTime;

use super::progress::HandedOn;
use crate::sync::Arc;

/// Where events come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A stage or a source.
    Node(u32),
    /// Handles outside of the program, all of them.
    Outside,
}

/// Where an edge comes from.
pub(crate) struct EdgeFrom {
    pub(crate) origin: Origin,
    pub(crate) handed_on: Arc<HandedOn>,
}

struct Input {
    origin: Origin,
    handed_on: Arc<HandedOn>,
    /// Edges that have not ended.
    edges: usize,
    greatest: Option<Time>,
    /// When an event last came, on the program's clock.
    seen: Time,
}

impl Input {
    /// How far event time has come there.
    fn time(&self) -> Option<Time> {
        self.handed_on.to().or(self.greatest)
    }
}

/// The watermark of a stage, and what it is made of.
pub(crate) struct Watermark {
    rules: EventTime,
    inputs: Vec<Input>,
    /// From which of them events come now, if it is known.
    from: Option<usize>,
    at: Time,
    late: u64,
}

impl Watermark {
    /// Of a stage with these inputs: one for each edge.
    pub(crate) fn new(rules: EventTime, edges: impl IntoIterator<Item = EdgeFrom>) -> Self {
        let mut inputs: Vec<Input> = Vec::new();
        for EdgeFrom { origin, handed_on } in edges {
            match inputs.iter_mut().find(|input| input.origin == origin) {
                Some(input) => input.edges += 1,
                None => {
                    let (edges, greatest, seen) = (1, None, Time::ZERO);
                    inputs.push(Input { origin, handed_on, edges, greatest, seen });
                }
            }
        }
        Watermark { rules, inputs, from: None, at: Time::ZERO, late: 0 }
    }

    /// How far event time has come.
    #[inline]
    pub(crate) fn at(&self) -> Time {
        self.at
    }

    /// Events that were late.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// The events that come next are from there.
    pub(crate) fn from(&mut self, origin: Origin) {
        self.from = self.inputs.iter().position(|input| input.origin == origin);
    }

    /// An event has come. Returns the watermark that it found.
    #[inline]
    pub(crate) fn pass(&mut self, time: Option<Time>, now: Time) -> Time {
        let found = self.at;
        let Some(input) = self.from.map(|from| &mut self.inputs[from]) else { return found };
        input.seen = input.seen.max(now);
        if let Some(time) = time {
            self.late += u64::from(time < found);
            if input.greatest.is_none_or(|greatest| time > greatest) {
                input.greatest = Some(time);
                self.go_on(time, now);
            }
        }
        found
    }

    /// An event of the greatest time so far has come from an input.
    #[inline]
    fn go_on(&mut self, time: Time, now: Time) {
        match &self.inputs[..] {
            // Mostly there is one, and it is as far as its last event.
            [one] if one.edges > 0 && !one.handed_on.keeps_time() && !self.is_idle(one, now) => {
                self.at = self.at.max(time - self.rules.lateness_allowed());
            }
            _ => self.look(now),
        }
    }

    /// An edge from there has ended. Others are waited for from now on.
    pub(crate) fn end(&mut self, origin: Origin, now: Time) {
        if let Some(input) = self.inputs.iter_mut().find(|input| input.origin == origin) {
            input.edges = input.edges.saturating_sub(1);
        }
        self.look(now);
    }

    /// When an input is idle that had its last event then.
    fn idle_from(&self, seen: Time) -> Option<Time> {
        self.rules.idle_after().map(|idle| seen + idle)
    }

    fn is_idle(&self, input: &Input, now: Time) -> bool {
        !input.handed_on.keeps_time() && self.idle_from(input.seen).is_some_and(|idle| idle <= now)
    }

    /// Works out the watermark at a time of the program's clock.
    pub(crate) fn look(&mut self, now: Time) {
        let open = || self.inputs.iter().filter(|input| input.edges > 0);
        let busy = || open().filter(|input| !self.is_idle(input, now));
        let at = if open().next().is_none() {
            Some(Time::MAX)
        } else if busy().next().is_some() {
            // One that has sent nothing yet holds it back.
            let least = busy().map(Input::time).min().flatten();
            least.map(|least| least - self.rules.lateness_allowed())
        } else {
            self.on_clock(now)
        };
        self.at = self.at.max(at.unwrap_or(Time::ZERO));
    }

    /// The greatest time of all inputs.
    fn greatest(&self) -> Option<Time> {
        self.inputs.iter().filter_map(|input| input.greatest).max()
    }

    /// Since when all inputs are idle, if they are at some time.
    fn all_idle_from(&self) -> Option<Time> {
        let open = self.inputs.iter().filter(|input| input.edges > 0);
        open.map(|input| input.seen).max().and_then(|seen| self.idle_from(seen))
    }

    /// As it goes on with the clock while all inputs are idle.
    fn on_clock(&self, now: Time) -> Option<Time> {
        let passed = now.duration_since(self.all_idle_from()?);
        Some(self.greatest()? - self.rules.lateness_allowed() + passed)
    }

    /// When the clock is to be asked, for a timer that is due when the watermark comes to `timer`.
    pub(crate) fn next_look(&self, timer: Time, now: Time) -> Option<Time> {
        let open = || self.inputs.iter().filter(|input| input.edges > 0);
        if timer <= self.at || self.at == Time::MAX {
            return None;
        }
        let may_idle = || open().filter(|input| !input.handed_on.keeps_time());
        let idle = may_idle().filter_map(|input| self.idle_from(input.seen));
        if let Some(next) = idle.filter(|idle| *idle > now).min() {
            return Some(next); // the watermark may go on then
        }
        if may_idle().count() < open().count() {
            return None; // a stage before this one says when
        }
        let from = self.all_idle_from()?;
        let base = self.greatest()? - self.rules.lateness_allowed();
        let wait: Duration = timer.duration_since(base);
        Some(from + wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Time {
        Time::from_millis(1_000 * seconds)
    }

    fn two(rules: EventTime) -> Watermark {
        let from = |origin| EdgeFrom { origin, handed_on: Arc::default() };
        Watermark::new(rules, [Origin::Node(1), Origin::Outside, Origin::Node(1)].map(from))
    }

    fn pass(mark: &mut Watermark, origin: Origin, time: u64, now: u64) -> Time {
        mark.from(origin);
        mark.pass(Some(at(time)), at(now));
        mark.at()
    }

    #[test]
    fn it_is_the_least_over_the_inputs_less_the_lateness_and_never_goes_back() {
        let mut mark = two(EventTime::new().lateness(2 * SECOND));
        assert_eq!(pass(&mut mark, Origin::Node(1), 10, 0), Time::ZERO); // the other has sent nothing
        assert_eq!(pass(&mut mark, Origin::Outside, 7, 0), at(5));
        assert_eq!(pass(&mut mark, Origin::Outside, 3, 0), at(5));
        assert_eq!(mark.late(), 1);
        assert_eq!(pass(&mut mark, Origin::Outside, 20, 0), at(8));
    }

    #[test]
    fn an_input_that_has_ended_holds_nothing_back_once_all_its_edges_have() {
        let mut mark = two(EventTime::new());
        let _ = pass(&mut mark, Origin::Outside, 7, 0);
        mark.end(Origin::Node(1), at(0));
        assert_eq!(mark.at(), Time::ZERO); // it has a second edge
        mark.end(Origin::Node(1), at(0));
        assert_eq!(mark.at(), at(7));
        mark.end(Origin::Outside, at(0));
        assert_eq!(mark.at(), Time::MAX);
    }

    #[test]
    fn idle_inputs_hold_nothing_back_and_when_all_are_it_goes_on_with_the_clock() {
        let mut mark = two(EventTime::new().idle(5 * SECOND).lateness(SECOND));
        assert_eq!(pass(&mut mark, Origin::Node(1), 100, 1), Time::ZERO);
        assert_eq!(mark.next_look(at(101), at(1)), Some(at(5))); // when the other is idle
        mark.look(at(5));
        assert_eq!(mark.at(), at(99));
        assert_eq!(mark.next_look(at(101), at(5)), Some(at(6)));
        mark.look(at(6));
        assert_eq!(mark.at(), at(99)); // all are idle from now on
        assert_eq!(mark.next_look(at(101), at(6)), Some(at(8)));
        mark.look(at(8));
        assert_eq!(mark.at(), at(101));
    }
}
