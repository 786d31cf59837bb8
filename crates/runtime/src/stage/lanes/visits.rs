//! Which visit has which lanes, from when it takes events to when it is over; it may give events back before.
//! Before: `rounds`. After: `mod.rs`, where lanes that are open again stand in line.
//! Invariant: a lane belongs to one turn at most; a turn has an entry for each event that its visit has, in their order.

use comporta_model::chunk::Chunk;
use comporta_model::column::{Columns, Lanes};
use comporta_model::event::Time;
use comporta_model::keyed::Clock;

use super::LaneQueue;
use super::events::With;
use super::fresh::Fresh;
use super::place::Doom;
use crate::stage::queue::{Side, Turn};

/// What the queue knows of a visit, or of one that has not begun.
pub(super) struct Visiting<T> {
    /// The lanes of the events that it has, in their order, or those that it looks after.
    pub(super) rows: Vec<Row>,
    /// If the stage has event time: the watermark that each event found; none where a row is no event.
    pub(super) marks: Vec<Option<Time>>,
    /// Its events, if it has not begun.
    pub(super) fresh: Option<Fresh<T>>,
    /// Of a visit that has not begun: lanes to which more events came.
    pub(super) behind: Vec<usize>,
}

impl<T> Default for Visiting<T> {
    fn default() -> Self {
        Visiting { rows: Vec::new(), marks: Vec::new(), fresh: None, behind: Vec::new() }
    }
}

impl<T> Visiting<T> {
    /// Adds an event of the lane that has this place, and what it found if the stage has event time.
    #[inline]
    pub(super) fn push(&mut self, at: usize, mark: Option<Option<Time>>) {
        self.rows.push(Row { place: at as u32, offset: 0 });
        self.marks.extend(mark);
    }

    /// Takes out the last event.
    fn pop(&mut self) -> Option<(usize, Option<Time>)> {
        let row = self.rows.pop()?;
        Some((row.index(), self.marks.pop().flatten()))
    }

    fn mark(&self, index: usize) -> Option<Time> {
        self.marks.get(index).copied().flatten()
    }
}

/// A lane that a visit has, by its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) place: u32,
    /// Of a fresh event: how many came before it in its chunk.
    pub(super) offset: u32,
}

impl Row {
    #[inline]
    pub(super) fn index(self) -> usize {
        self.place as usize
    }
}

impl<T: Send> LaneQueue<T> {
    pub(super) fn new_turn(&mut self) -> Turn {
        let at = self.turns_free.pop().unwrap_or_else(|| {
            self.turns.push(Visiting::default());
            self.turns.len() - 1
        });
        Turn(u32::try_from(at).expect("fewer visits than events"))
    }

    /// A turn is over, or was not needed.
    pub(super) fn free_turn(&mut self, turn: Turn) {
        let visit = &mut self.turns[turn.index()];
        visit.rows.clear();
        visit.marks.clear();
        visit.behind.clear();
        self.turns_free.push(turn.index());
    }

    /// Adds a lane to a visit that has none of its events.
    pub(super) fn add_lane(&mut self, turn: Turn, at: usize) {
        let mark = self.watermark.is_some().then_some(None);
        self.turns[turn.index()].push(at, mark);
        self.place(at).turn = Some(turn);
    }

    /// Takes out which lanes the events belong to that were just taken, in their order.
    pub(crate) fn take_lanes(&mut self, into: &mut Lanes) {
        debug_assert!(into.is_empty(), "storage for lanes has lanes");
        std::mem::swap(into, &mut self.lanes);
    }

    /// Nobody wants to know which lanes the events belong to that were just taken.
    pub(crate) fn skip_lanes(&mut self) {
        self.lanes.clear(); // their places have them too
    }

    /// The watermarks that these events found, if the stage has event time.
    pub(crate) fn marks_of(&self, turn: Turn, into: &mut Vec<Time>) {
        if self.watermark.is_some() {
            let marks = self.turns[turn.index()].marks.iter();
            into.extend(marks.map(|mark| mark.unwrap_or_default()));
        }
    }

    /// Why the events that a visit took fail as they are, if they do.
    pub(crate) fn doom(&self, turn: Turn) -> Option<Doom> {
        let first = self.turns[turn.index()].rows.first()?;
        self.places[first.index()].doom()
    }

    /// Gives an event a turn of its own: the one after which the visit has `left` more.
    pub(crate) fn detach(&mut self, turn: Turn, left: usize) -> Turn {
        let own = self.new_turn();
        let visit = &mut self.turns[turn.index()];
        if let Some(index) = visit.rows.len().checked_sub(left + 1) {
            let at = visit.rows.remove(index).index();
            let mark = (index < visit.marks.len()).then(|| visit.marks.remove(index));
            self.turns[own.index()].push(at, mark);
            self.place(at).turn = Some(own);
        }
        own
    }

    /// Of the events that a visit just took, those are shed of which `shed` is true.
    pub(crate) fn shed_of(&mut self, turn: Turn, shed: &mut dyn Iterator<Item = bool>) {
        let visit = &mut self.turns[turn.index()];
        let (rows, marks) = (std::mem::take(&mut visit.rows), std::mem::take(&mut visit.marks));
        let mut marks = marks.into_iter();
        let mut lanes = std::mem::take(&mut self.lanes).into_iter();
        for row in rows {
            let (mark, lane) = (marks.next(), lanes.next());
            if shed.next().unwrap_or(false) {
                self.release_time(mark.flatten());
                self.give_back(row.index());
            } else {
                self.turns[turn.index()].push(row.index(), mark);
                self.lanes.push(lane.flatten());
            }
        }
    }

    /// A visit has one event of a lane fewer, and has done nothing with it.
    fn give_back(&mut self, at: usize) {
        let place = self.place(at);
        place.out -= 1;
        if place.out == 0 {
            place.turn = None;
            self.look_at(at, Side::Oldest);
        }
    }

    /// Puts back events that a visit has not come to, the last of those it has. The first of them is tried again
    /// as `retry` says: when, and which try that is.
    pub(crate) fn put_back_of(&mut self, turn: Turn, chunk: Chunk<T>, retry: Option<(Time, u32)>) {
        let (meta, mut columns, mut slots) = chunk.into_parts();
        let mut rows: Vec<Columns> = Vec::new();
        if !columns.is_empty() {
            rows.extend((0..slots.len()).map(|_| columns.split_front(1)));
        }
        let meta = self.events.open(&meta);
        while let Some(event) = slots.pop() {
            let (Some(event), Some((at, mark))) = (event, self.turns[turn.index()].pop()) else {
                continue;
            };
            let (lane, mark) = (self.places[at].lane.clone(), mark.unwrap_or_default());
            self.link_first(at, event, With { lane, meta, own: rows.pop(), mark });
            if let Some((due, attempt)) = retry.filter(|_| slots.is_empty()) {
                let place = self.place(at);
                place.attempt = attempt;
                place.wait_until(due);
                self.waiting += 1;
                self.alarms.add_retry(due, at);
            }
            self.give_back(at);
        }
        self.events.close(meta);
        self.events.recycle(slots);
    }

    /// A visit is over: its lanes are open.
    pub(super) fn end_visit(&mut self, turn: Turn) {
        let rows = std::mem::take(&mut self.turns[turn.index()].rows);
        for (index, row) in rows.iter().enumerate() {
            self.end_row(turn, row.index(), index);
        }
        self.turns[turn.index()].rows = rows;
        self.free_turn(turn);
        self.expire_surplus();
        self.fire_event_timers();
    }

    /// A visit is over that had an event of a lane.
    #[inline]
    fn end_row(&mut self, turn: Turn, at: usize, index: usize) {
        let place = &mut self.places[at];
        if place.turn != Some(turn) {
            let mark = self.turns[turn.index()].mark(index);
            return self.release_time(mark); // seen already: the visit had several of its events
        }
        place.turn = None;
        let used = std::mem::take(&mut place.out) > 0;
        if self.is_plain
            && used
            && place.is_quiet()
            && place.lane.as_ref().is_some_and(|lane| lane.rests(self.now))
        {
            return; // as most do
        }
        self.end_row_in_full(turn, at, index, used);
    }

    fn end_row_in_full(&mut self, turn: Turn, at: usize, index: usize, used: bool) {
        if self.progress.is_some() {
            self.look_at_hold(at); // before what it held is let go of
            let mark = self.turns[turn.index()].mark(index);
            self.release_time(mark);
        }
        if let Some(lane) = &self.places[at].lane
            && let Some(due) = lane.visited(self.now, used)
        {
            self.alarms.add_timer(Clock::Program, due, lane.clone());
        }
        self.look_at(at, Side::Newest);
    }
}

impl Turn {
    #[inline]
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}
