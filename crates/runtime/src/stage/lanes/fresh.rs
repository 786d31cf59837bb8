//! Events that came together, each the first of its lane: they stay in the chunk they came in, and the chunk is what a visit
//! takes, as if it were that of a queue without lanes. Most events are such; the others stand in the chains of their lanes.
//! Before: `mod.rs`, to which events come. After: `rounds`.
//!
//! Behind them in the chunk stand those that came with them as the second of their lanes: the second round, for a visit
//! that no other lane waits for. When others wait, these go to the chains.
//!
//! The turn of the visit is made when the events come, and their lanes belong to it from then on: nothing is to be done for
//! each event when it is taken. Whoever wants to get at one of the events has all of them put into the chains first
//! ([`LaneQueue::dissolve`]).
//! Invariants: a fresh turn stands in `ready` once, and has a row and a lane for each of its events; an event of the second
//! round is older than those in the chain of its lane; there are no fresh turns while somebody wants events by age.

use comporta_model::chunk::{Chunk, Slots};
use comporta_model::column::Lanes;
use comporta_model::event::{Meta, Time};
use comporta_model::keyed::LaneRef;

use super::events::{Age, With};
use super::visits::Row;
use super::{LaneQueue, Ready};
use crate::stage::queue::{Side, Turn};

/// Storage kept for the lanes of events.
const SPARE_MAX: usize = 4;

/// The events of a visit that has not begun.
pub(super) struct Fresh<T> {
    pub(super) meta: Meta,
    slots: Slots<T>,
    lanes: Lanes,
    /// How many were given to other turns: their slots, lanes and rows are spent.
    pub(super) head: usize,
    /// How many of the others are of the first round, and so how many lanes there are.
    pub(super) first: usize,
    /// The age of the first event of the chunk they came in.
    age: Age,
}

impl<T> Fresh<T> {
    fn len(&self) -> usize {
        self.slots.len() - self.head
    }
}

/// Storage for the second round of a chunk while it comes.
pub(super) struct Second<T> {
    slots: Slots<T>,
    lanes: Lanes,
    rows: Vec<Row>,
}

impl<T> Default for Second<T> {
    fn default() -> Self {
        Second { slots: Slots::new(), lanes: Lanes::new(), rows: Vec::new() }
    }
}

impl<T: Send> LaneQueue<T> {
    /// Events of a lane that wait here.
    pub(crate) fn queued_of(&self, lane: &LaneRef) -> usize {
        lane.slot().map_or(0, |at| {
            let place = &self.places[at as usize];
            let fresh = place.turn.is_some_and(|turn| self.is_fresh(turn));
            place.events.len() + if fresh { place.out as usize } else { 0 }
        })
    }

    /// Whether events may stay in the chunk they came in.
    pub(super) fn takes_fresh(&self) -> bool {
        let by_lane = self.watermark.is_some() || self.rules.lane_max.is_some();
        !by_lane && !self.rules.one_each() && !self.events.is_by_age()
    }

    /// Adds events that carry nothing of their own but their lanes. Those that are not the first of their lanes go to the
    /// chains.
    pub(super) fn push_fresh(&mut self, meta: &Meta, lanes: &mut Lanes, mut slots: Slots<T>) {
        let turn = self.new_turn();
        let age = self.events.ages(slots.len());
        let spare = self.lanes_spare.pop().unwrap_or_default();
        let mut own = std::mem::replace(lanes, spare);
        let mut rows = std::mem::take(&mut self.turns[turn.index()].rows);
        let (mut shared, mut kept) = (None, 0);
        for index in 0..own.len().min(slots.len()) {
            let Some(lane) = &own[index] else { continue };
            let (at, offset) = (self.place_of(lane), index as u32);
            let place = &mut self.places[at];
            if place.is_fresh() {
                place.turn = Some(turn);
                place.out = 1;
                rows.push(Row { place: at as u32, offset });
                if kept < index {
                    slots.swap(kept, index);
                    own.swap(kept, index);
                }
                kept += 1;
            } else if place.turn == Some(turn) && place.out == 1 && place.events.len() == 0 {
                place.out = 2;
                self.second.rows.push(Row { place: at as u32, offset });
                self.second.slots.push(slots[index].take());
                self.second.lanes.push(own[index].take());
            } else if let (Some(event), lane) = (slots[index].take(), own[index].take()) {
                let meta = *shared.get_or_insert_with(|| self.events.open(meta));
                let with = With { lane, meta, own: None, mark: Time::ZERO };
                self.push_behind(at, event, with, age.after(offset), turn);
            }
        }
        shared.into_iter().for_each(|shared| self.events.close(shared));
        slots.truncate(kept);
        own.truncate(kept);
        slots.append(&mut self.second.slots);
        own.append(&mut self.second.lanes);
        rows.append(&mut self.second.rows);
        self.turns[turn.index()].rows = rows;
        if kept == 0 {
            self.keep_lanes(own);
            self.events.recycle(slots);
            return self.free_turn(turn);
        }
        self.fresh += slots.len();
        self.ready_lanes += kept;
        self.ready_work += slots.len();
        let fresh = Fresh { meta: meta.clone(), slots, lanes: own, head: 0, first: kept, age };
        self.turns[turn.index()].fresh = Some(fresh);
        self.ready.push_back(Ready::Fresh(turn));
    }

    /// Puts an event into the chain of its lane, behind others; `new` is the turn that is being made.
    fn push_behind(&mut self, at: usize, event: T, with: With, age: Age, new: Turn) {
        let place = &self.places[at];
        if place.events.len() == 0
            && let Some(turn) = place.turn
            && let visit = &mut self.turns[turn.index()]
            && (turn == new || visit.fresh.is_some())
        {
            visit.behind.push(at);
        }
        self.link_last(at, event, with, age);
        self.look_at(at, Side::Newest);
    }

    /// Storage for the lanes of events.
    fn keep_lanes(&mut self, mut lanes: Lanes) {
        lanes.clear();
        if self.lanes_spare.len() < SPARE_MAX && lanes.capacity() > 0 {
            self.lanes_spare.push(lanes);
        }
    }

    /// Whether a visit has not begun.
    pub(super) fn is_fresh(&self, turn: Turn) -> bool {
        self.turns[turn.index()].fresh.is_some()
    }

    /// The turn that stands first in line, if it is fresh, and its events.
    pub(super) fn first_fresh(&self) -> Option<(Turn, &Fresh<T>)> {
        let Some(Ready::Fresh(turn)) = self.ready.front() else { return None };
        self.turns[turn.index()].fresh.as_ref().map(|fresh| (*turn, fresh))
    }

    /// Takes out the turn that stands first in line, which is fresh.
    fn pop_fresh(&mut self, turn: Turn) -> Option<Fresh<T>> {
        let visit = &mut self.turns[turn.index()];
        let mut fresh = visit.fresh.take()?;
        let head = std::mem::take(&mut fresh.head);
        fresh.slots.drain(..head);
        fresh.lanes.drain(..head);
        visit.rows.drain(..head);
        self.ready.pop_front();
        self.fresh -= fresh.slots.len();
        self.ready_lanes -= fresh.first;
        self.ready_work -= fresh.slots.len();
        Some(fresh)
    }

    /// Puts the second round of a fresh turn into the chains of its lanes.
    fn drop_second(&mut self, turn: Turn) {
        let visit = &mut self.turns[turn.index()];
        let Some(fresh) = &mut visit.fresh else { return };
        let n = fresh.len() - fresh.first;
        if n == 0 {
            return;
        }
        let meta = self.events.open(&fresh.meta);
        for row in visit.rows.drain(fresh.head + fresh.first..).rev() {
            let place = &mut self.places[row.index()];
            place.out -= 1;
            if place.events.len() == 0 {
                visit.behind.push(row.index());
            }
            if let (Some(event), Some(lane)) = (fresh.slots.pop().flatten(), fresh.lanes.pop()) {
                let with = With { lane, meta, own: None, mark: Time::ZERO };
                let (to, age) = ((row.index(), &mut place.events), fresh.age.after(row.offset));
                self.events.link_before(to, event, with, age);
            }
        }
        self.events.close(meta);
        self.fresh -= n;
        self.ready_work -= n;
    }

    /// The events of the turn that stands first in line, which is fresh, for a visit that takes `max` events of `lanes` lanes
    /// at most.
    pub(super) fn take_fresh(
        &mut self,
        turn: Turn,
        max: usize,
        lanes: usize,
    ) -> Option<(Turn, Chunk<T>)> {
        let fresh = self.turns[turn.index()].fresh.as_ref()?;
        let (n, first) = (fresh.len(), fresh.first);
        if n > first && (self.ready.len() > 1 || n > max || first > lanes) {
            self.drop_second(turn);
        }
        let most = max.min(lanes).max(1);
        let turn = if first > most { self.split_fresh(turn, most)? } else { turn };
        let Fresh { meta, slots, lanes, .. } = self.pop_fresh(turn)?;
        let storage = std::mem::replace(&mut self.lanes, lanes);
        self.keep_lanes(storage);
        self.again.append(&mut self.turns[turn.index()].behind);
        self.events.mix_others();
        Some((turn, Chunk::new(meta, slots)))
    }

    /// Gives the first `n` events of a fresh turn, which stands first in line and has one round, a turn of their own before
    /// it.
    fn split_fresh(&mut self, turn: Turn, n: usize) -> Option<Turn> {
        let first = self.new_turn();
        let mut slots = self.events.storage();
        let mut lanes = self.lanes_spare.pop().unwrap_or_default();
        let mut rows = std::mem::take(&mut self.turns[first.index()].rows);
        let visit = &mut self.turns[turn.index()];
        let fresh = visit.fresh.as_mut()?;
        let (meta, age) = (fresh.meta.clone(), fresh.age);
        let taken = fresh.head..fresh.head + n;
        slots.extend(fresh.slots[taken.clone()].iter_mut().map(Option::take));
        lanes.extend(fresh.lanes[taken.clone()].iter_mut().map(Option::take));
        rows.extend_from_slice(&visit.rows[taken]);
        fresh.head += n;
        fresh.first -= n;
        for row in &rows {
            self.places[row.index()].turn = Some(first);
        }
        let of_first = |at: &mut usize| self.places[*at].turn == Some(first);
        let behind = visit.behind.extract_if(.., of_first).collect();
        let own = &mut self.turns[first.index()];
        (own.rows, own.behind) = (rows, behind);
        own.fresh = Some(Fresh { meta, slots, lanes, head: 0, first: n, age });
        self.ready.push_front(Ready::Fresh(first));
        Some(first)
    }

    /// Adds the events of the turn that stands first in line, which is fresh, to those of a visit that takes no more than
    /// `max` further ones. Returns how many there are: none if they do not fit.
    pub(super) fn join_fresh(&mut self, into: Turn, max: usize, chunk: &mut Chunk<T>) -> usize {
        let Some((turn, fresh)) = self.first_fresh() else { return 0 };
        let n = fresh.first;
        if n > max {
            return 0;
        }
        self.drop_second(turn);
        let Some(Fresh { meta, mut slots, mut lanes, .. }) = self.pop_fresh(turn) else { return 0 };
        chunk.append(&meta, Default::default(), &mut slots);
        self.events.recycle(slots);
        self.events.mix_others();
        self.lanes.append(&mut lanes);
        self.keep_lanes(lanes);
        let mut rows = std::mem::take(&mut self.turns[turn.index()].rows);
        for row in &rows {
            self.places[row.index()].turn = Some(into);
        }
        self.turns[into.index()].rows.append(&mut rows);
        self.turns[turn.index()].rows = rows;
        self.again.append(&mut self.turns[turn.index()].behind);
        self.free_turn(turn);
        n
    }

    /// Puts all fresh events into the chains of their lanes: somebody wants to get at some of them.
    pub(super) fn dissolve(&mut self) {
        if self.fresh == 0 {
            return;
        }
        for _ in 0..self.ready.len() {
            match self.first_fresh() {
                Some((turn, _)) => self.dissolve_first(turn),
                None => self.ready.rotate_left(1),
            }
        }
    }

    fn dissolve_first(&mut self, turn: Turn) {
        self.drop_second(turn);
        let Some(Fresh { meta, mut slots, mut lanes, age, .. }) = self.pop_fresh(turn) else {
            return;
        };
        let meta = self.events.open(&meta);
        let rows = std::mem::take(&mut self.turns[turn.index()].rows);
        for ((event, lane), row) in slots.drain(..).zip(lanes.drain(..)).zip(rows) {
            let place = &mut self.places[row.index()];
            (place.turn, place.out) = (None, 0);
            if let Some(event) = event {
                let with = With { lane, meta, own: None, mark: Time::ZERO };
                let to = (row.index(), &mut place.events);
                self.events.link_before(to, event, with, age.after(row.offset));
            }
            self.look_at(row.index(), Side::Newest);
        }
        self.events.close(meta);
        self.turns[turn.index()].behind.clear();
        self.free_turn(turn);
        self.events.recycle(slots);
        self.keep_lanes(lanes);
    }
}
