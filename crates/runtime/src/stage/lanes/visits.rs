//! Which visit has which lanes, from when it takes events to when it is over; it may give events back before.
//! Before: `rounds`. After: `mod.rs`, where lanes that are open again stand in line.
//! Invariant: a lane belongs to one turn at most; a turn has an entry for each event that its visit has, in their order.

use comporta_model::chunk::Chunk;
use comporta_model::column::Columns;
use comporta_model::event::Time;
use comporta_model::keyed::LaneRef;

use super::LaneQueue;
use super::alarms::Alarm;
use super::events::With;
use super::place::Doom;
use crate::stage::queue::{Side, Turn};

/// An event that a visit has, or a lane that it looks after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub(super) at: usize,
    /// The watermark that the event found; none where it is no event.
    pub(super) mark: Option<Time>,
}

impl<T: Send> LaneQueue<T> {
    pub(super) fn new_turn(&mut self) -> Turn {
        let at = self.turns_free.pop().unwrap_or_else(|| {
            self.turns.push(Vec::new());
            self.turns.len() - 1
        });
        Turn(u32::try_from(at).expect("fewer visits than events"))
    }

    /// Takes out which lanes the events belong to that were just taken, in their order.
    pub(crate) fn take_lanes(&mut self, into: &mut Vec<LaneRef>) {
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
            let marks = self.turns[turn.index()].iter().map(|served| served.mark);
            into.extend(marks.map(Option::unwrap_or_default));
        }
    }

    /// Why the events that a visit took fail as they are, if they do.
    pub(crate) fn doom(&self, turn: Turn) -> Option<Doom> {
        let first = self.turns[turn.index()].first()?;
        self.places[first.at].doom()
    }

    /// Gives an event a turn of its own: the one after which the visit has `left` more.
    pub(crate) fn detach(&mut self, turn: Turn, left: usize) -> Turn {
        let own = self.new_turn();
        let order = &mut self.turns[turn.index()];
        if let Some(index) = order.len().checked_sub(left + 1) {
            let served = order.remove(index);
            self.turns[own.index()].push(served);
            self.place(served.at).turn = Some(own);
        }
        own
    }

    /// Of the events that a visit just took, those are shed of which `shed` is true.
    pub(crate) fn shed_of(&mut self, turn: Turn, mut shed: impl Iterator<Item = bool>) {
        let mut order = std::mem::take(&mut self.turns[turn.index()]);
        let mut lanes = std::mem::take(&mut self.lanes).into_iter();
        let mut kept = Vec::with_capacity(order.len());
        order.retain(|served| {
            let (gone, lane) = (shed.next().unwrap_or(false), lanes.next());
            if gone {
                self.release_time(served.mark);
                self.give_back(served.at);
            } else {
                kept.extend(lane);
            }
            !gone
        });
        self.turns[turn.index()] = order;
        self.lanes = kept;
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
            let (Some(event), Some(served)) = (event, self.turns[turn.index()].pop()) else {
                continue;
            };
            let (at, mark) = (served.at, served.mark.unwrap_or_default());
            let lane = self.places[at].lane.clone();
            self.link(at, event, With { lane, meta, own: rows.pop(), mark }, Side::Oldest);
            if let Some((due, attempt)) = retry.filter(|_| slots.is_empty()) {
                let place = self.place(at);
                place.attempt = attempt;
                place.wait_until(due);
                self.waiting += 1;
                self.alarms.add(due, Alarm::Retry(at));
            }
            self.give_back(at);
        }
        self.events.close(meta);
        self.events.recycle(slots);
    }

    /// A visit is over: its lanes are open.
    pub(super) fn end_visit(&mut self, turn: Turn) {
        let mut order = std::mem::take(&mut self.turns[turn.index()]);
        let now = self.now;
        for Served { at, mark } in order.drain(..) {
            let place = &mut self.places[at];
            if place.turn != Some(turn) {
                self.release_time(mark);
                continue; // seen already: the visit had several of its events
            }
            place.turn = None;
            self.look_at_hold(at); // before what it held is let go of
            self.release_time(mark);
            let place = &mut self.places[at];
            place.out = 0;
            if let Some(lane) = &place.lane
                && let Some(due) = lane.visited(now)
            {
                self.alarms.add(due, Alarm::Timer(lane.clone()));
            }
            self.look_at(at, Side::Newest);
        }
        self.turns[turn.index()] = order;
        self.turns_free.push(turn.index());
        self.expire_surplus();
        self.fire_event_timers();
    }
}

impl Turn {
    #[inline]
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}
