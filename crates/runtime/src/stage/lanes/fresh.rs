//! Events that came together, each the first of its lane: they stay in the chunk they came in, and the chunk is what a visit
//! takes, as if it were that of a queue without lanes. Most events are such; the others stand in the chains of their lanes.
//! Before: `mod.rs`, to which events come. After: `rounds`.
//!
//! Behind them in the chunk stand those that came with them as the second, the third, ... of their lanes: further rounds, for
//! a visit that no other lane waits for. When others wait, these go to the chains. So a key that is alone needs no chain.
//!
//! The turn of the visit is made when the events come, and their lanes belong to it from then on: nothing is to be done for
//! each event when it is taken. Whoever wants to get at one of the events has all of them put into the chains first
//! ([`LaneQueue::dissolve`]).
//! Invariants: a fresh turn stands in `ready` once, and has a row and a lane for each of its events; an event of a further
//! round is older than those in the chain of its lane; there are no fresh turns while somebody wants events by age.

use comporta_model::chunk::{Chunk, Slots};
use comporta_model::column::Lanes;
use comporta_model::event::{Meta, Time};
use comporta_model::keyed::LaneRef;

use super::events::{Age, With};
use super::visits::{Row, Visiting};
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

/// Storage for the further rounds of a chunk while it comes.
pub(super) struct Further<T> {
    slots: Slots<T>,
    lanes: Lanes,
    rows: Vec<Row>,
    marks: Vec<Option<Time>>,
    /// Which round each event is of.
    rounds: Vec<u32>,
    /// Where the events of each round begin, and the events by round.
    begins: Vec<usize>,
    order: Vec<usize>,
}

impl<T> Default for Further<T> {
    fn default() -> Self {
        Further {
            slots: Slots::new(),
            lanes: Lanes::new(),
            rows: Vec::new(),
            marks: Vec::new(),
            rounds: Vec::new(),
            begins: Vec::new(),
            order: Vec::new(),
        }
    }
}

impl<T> Further<T> {
    /// Moves all events behind those of the first round, round by round.
    fn move_behind(&mut self, slots: &mut Slots<T>, lanes: &mut Lanes, visit: &mut Visiting<T>) {
        if self.rounds.is_sorted() {
            slots.append(&mut self.slots);
            lanes.append(&mut self.lanes);
            visit.rows.append(&mut self.rows);
            visit.marks.append(&mut self.marks);
        } else {
            self.sort();
            for at in self.order.drain(..) {
                slots.push(self.slots[at].take());
                lanes.push(self.lanes[at].take());
                visit.rows.push(self.rows[at]);
                visit.marks.extend(self.marks.get(at));
            }
            self.slots.clear();
            self.lanes.clear();
            self.rows.clear();
            self.marks.clear();
        }
        self.rounds.clear();
    }

    /// Sorts the events by round, and by arrival within a round.
    fn sort(&mut self) {
        let Further { rounds, begins, order, .. } = self;
        begins.clear();
        for round in rounds.iter().map(|round| *round as usize) {
            begins.resize(begins.len().max(round + 2), 0);
            begins[round + 1] += 1;
        }
        let mut before = 0;
        for begin in begins.iter_mut() {
            before += *begin;
            *begin = before;
        }
        order.resize(rounds.len(), 0);
        for (at, round) in rounds.iter().enumerate() {
            let to = &mut begins[*round as usize];
            order[*to] = at;
            *to += 1;
        }
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
        self.rules.lane_max.is_none() && !self.rules.one_each() && !self.events.is_by_age()
    }

    /// Adds events that carry nothing of their own but their lanes and times. Those that neither are the first of their
    /// lanes nor came with it go to the chains.
    pub(super) fn push_fresh(
        &mut self,
        meta: &Meta,
        lanes: &mut Lanes,
        mut times: impl Iterator<Item = Option<Time>>,
        mut slots: Slots<T>,
    ) {
        let turn = self.new_turn();
        let age = self.events.ages(slots.len());
        let spare = self.lanes_spare.pop().unwrap_or_default();
        let mut own = std::mem::replace(lanes, spare);
        let mut visit = std::mem::take(&mut self.turns[turn.index()]);
        let mut others = std::mem::take(&mut self.others);
        let timed = self.watermark.is_some();
        for (lane, offset) in own.iter().zip(0..) {
            let mark = if timed { self.arrive(times.next().flatten()) } else { Time::ZERO };
            let Some(lane) = lane else { continue };
            let at = self.place_of(lane);
            let place = &mut self.places[at];
            let row = Row { place: at as u32, offset };
            if place.is_fresh() {
                (place.turn, place.out) = (Some(turn), 1);
                visit.rows.push(row);
                if timed {
                    visit.marks.push(Some(mark));
                }
            } else {
                others.push((row, mark));
            }
        }
        let kept = visit.rows.len();
        let first = visit.rows.first().copied();
        if let Some(first) = first.filter(|first| kept == 1 && are_of_one_lane(*first, &others)) {
            // They are in order as they are.
            self.place(first.index()).out += others.len() as u32;
            let marks = others.iter().map(|(_, mark)| Some(*mark));
            visit.marks.extend(marks.filter(|_| timed));
            visit.rows.extend(others.drain(..).map(|(row, _)| row));
        } else if !others.is_empty() {
            self.push_others(meta, age, (turn, &mut visit), &others, (&mut slots, &mut own));
            others.clear();
        }
        self.others = others;
        self.turns[turn.index()] = visit;
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

    /// Puts those of the events that came together that are not the first of their lanes where they belong: behind the
    /// first, if these came with them, or into the chains.
    fn push_others(
        &mut self,
        meta: &Meta,
        age: Age,
        (turn, visit): (Turn, &mut Visiting<T>),
        others: &[(Row, Time)],
        (slots, lanes): (&mut Slots<T>, &mut Lanes),
    ) {
        let mut shared = None;
        for (row, mark) in others {
            let index = row.offset as usize;
            let (event, lane) = (slots[index].take(), lanes[index].take());
            let place = &mut self.places[row.index()];
            if place.turn == Some(turn) && place.events.len() == 0 {
                place.out += 1;
                self.further.rounds.push(place.out);
                self.further.rows.push(*row);
                self.further.marks.extend(self.watermark.is_some().then_some(Some(*mark)));
                self.further.slots.push(event);
                self.further.lanes.push(lane);
            } else if let Some(event) = event {
                let meta = *shared.get_or_insert_with(|| self.events.open(meta));
                let with = With { lane, meta, own: None, mark: *mark };
                self.push_behind(row.index(), event, with, age.after(row.offset), (turn, visit));
            }
        }
        shared.into_iter().for_each(|shared| self.events.close(shared));
        slots.retain(Option::is_some);
        lanes.retain(Option::is_some);
        if !self.further.rounds.is_empty() {
            self.further.move_behind(slots, lanes, visit);
        }
    }

    /// Puts an event into the chain of its lane, behind others; `new` is the turn that is being made.
    fn push_behind(
        &mut self,
        at: usize,
        event: T,
        with: With,
        age: Age,
        new: (Turn, &mut Visiting<T>),
    ) {
        let place = &self.places[at];
        if place.events.len() == 0
            && let Some(turn) = place.turn
        {
            let (is_new, visit) = match new {
                (new, visit) if new == turn => (true, visit),
                _ => (false, &mut self.turns[turn.index()]),
            };
            if is_new || visit.fresh.is_some() {
                visit.behind.push(at);
            }
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
        visit.marks.drain(..head.min(visit.marks.len()));
        self.ready.pop_front();
        self.fresh -= fresh.slots.len();
        self.ready_lanes -= fresh.first;
        self.ready_work -= fresh.slots.len();
        Some(fresh)
    }

    /// Puts all but the first `keep` events of a fresh turn into the chains of their lanes; none of those is of the first
    /// round.
    fn drop_further(&mut self, turn: Turn, keep: usize) {
        let visit = &mut self.turns[turn.index()];
        let Some(fresh) = &mut visit.fresh else { return };
        let n = fresh.len() - keep;
        if n == 0 {
            return;
        }
        let meta = self.events.open(&fresh.meta);
        for row in visit.rows.drain(fresh.head + keep..).rev() {
            let place = &mut self.places[row.index()];
            place.out -= 1;
            if place.events.len() == 0 {
                visit.behind.push(row.index());
            }
            let mark = visit.marks.pop().flatten().unwrap_or_default();
            if let (Some(event), Some(lane)) = (fresh.slots.pop().flatten(), fresh.lanes.pop()) {
                let with = With { lane, meta, own: None, mark };
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
        let most = max.min(lanes).max(1);
        let alone = self.ready.len() == 1 && first <= most;
        self.drop_further(turn, if alone { n.min(max.max(first)) } else { first });
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
        let mut own = std::mem::take(&mut self.turns[first.index()]);
        let visit = &mut self.turns[turn.index()];
        let fresh = visit.fresh.as_mut()?;
        let (meta, age) = (fresh.meta.clone(), fresh.age);
        let taken = fresh.head..fresh.head + n;
        slots.extend(fresh.slots[taken.clone()].iter_mut().map(Option::take));
        lanes.extend(fresh.lanes[taken.clone()].iter_mut().map(Option::take));
        own.rows.extend_from_slice(&visit.rows[taken.clone()]);
        own.marks.extend_from_slice(visit.marks.get(taken).unwrap_or_default());
        fresh.head += n;
        fresh.first -= n;
        for row in &own.rows {
            self.places[row.index()].turn = Some(first);
        }
        let of_first = |at: &mut usize| self.places[*at].turn == Some(first);
        own.behind.extend(visit.behind.extract_if(.., of_first));
        own.fresh = Some(Fresh { meta, slots, lanes, head: 0, first: n, age });
        self.turns[first.index()] = own;
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
        self.drop_further(turn, n);
        let Some(Fresh { meta, mut slots, mut lanes, .. }) = self.pop_fresh(turn) else { return 0 };
        chunk.append(&meta, Default::default(), &mut slots);
        self.events.recycle(slots);
        self.events.mix_others();
        self.lanes.append(&mut lanes);
        self.keep_lanes(lanes);
        let mut visit = std::mem::take(&mut self.turns[turn.index()]);
        for row in &visit.rows {
            self.places[row.index()].turn = Some(into);
        }
        let to = &mut self.turns[into.index()];
        to.rows.append(&mut visit.rows);
        to.marks.append(&mut visit.marks);
        self.again.append(&mut visit.behind);
        self.turns[turn.index()] = visit;
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
        let first = self.turns[turn.index()].fresh.as_ref().map_or(0, |fresh| fresh.first);
        self.drop_further(turn, first);
        let Some(Fresh { meta, mut slots, mut lanes, age, .. }) = self.pop_fresh(turn) else {
            return;
        };
        let meta = self.events.open(&meta);
        let mut visit = std::mem::take(&mut self.turns[turn.index()]);
        let mut marks = visit.marks.drain(..);
        for ((event, lane), row) in slots.drain(..).zip(lanes.drain(..)).zip(visit.rows.drain(..)) {
            let mark = marks.next().flatten().unwrap_or_default();
            let place = &mut self.places[row.index()];
            (place.turn, place.out) = (None, 0);
            if let Some(event) = event {
                let with = With { lane, meta, own: None, mark };
                let to = (row.index(), &mut place.events);
                self.events.link_before(to, event, with, age.after(row.offset));
            }
            self.look_at(row.index(), Side::Newest);
        }
        drop(marks);
        self.turns[turn.index()] = visit;
        self.events.close(meta);
        self.free_turn(turn);
        self.events.recycle(slots);
        self.keep_lanes(lanes);
    }
}

/// Whether all events that came together are of the lane of the first, which was fresh.
fn are_of_one_lane(first: Row, others: &[(Row, Time)]) -> bool {
    others.iter().all(|(row, _)| row.place == first.place)
}
