//! Hop 3 of a keyed stage: a queue that gives each key a lane, and serves the lanes in turn.
//! Before: `inlet`, which has asked the directory of keys for the lane of each event. After: `take`.
//! 0. [`asked`] is what a stage asks of it;
//! 1. [`events`] holds the events, in the chains of their lanes, and [`place`] what is known of a lane;
//! 2. this file has the lanes, lets events in, and knows which lanes are ready; [`fresh`] keeps chunks whole where it can;
//! 3. [`rounds`] takes events for a visit, and [`visits`] knows which visit has which;
//! 4. [`held`] keeps lanes from visits;
//! 5. [`alarms`] knows what is to happen to lanes at a time, and [`due`] does it;
//! 6. [`watermark`] knows how far event time has come, [`progress`] how far it has been handed on, and [`event_time`] brings
//!    these and the lanes together.
//!
//! A round serves every lane that is ready once, by as many events as its weight, before any is served again. A visit
//! takes its share of the ready lanes, an event or more of each; it goes on to further rounds of the same lanes
//! only if no other lane waits. The lanes are closed until the visit is over; those whose events were all put back
//! are open again at once.
//!
//! Invariants: a lane stands in `ready` at most once, and only if it is open and has, or had, something to do; it belongs
//! to one turn at most; events of a lane leave in the order in which they came. A lane without events, turn, alarm and
//! state has no place here: its key then costs nothing.

mod asked;
mod events;
mod place;
mod fresh;
mod rounds;
mod visits;
mod held;
mod alarms;
mod due;
pub(crate) mod watermark;
pub(crate) mod progress;
mod event_time;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use comporta_model::chunk::{Chunk, Slots};
use comporta_model::column::{Columns, Lanes};
use comporta_model::event::{Meta, Time};
use comporta_model::keyed::LaneRef;

use super::queue::{EventQueue, Oldest, Side, Taken, Turn, Want};
use alarms::Alarms;
pub(crate) use asked::{EventTimeParts, KeyedQueue, LaneRules, LanesAsked, keyed_queue};
pub(crate) use due::Call;
use events::{Events, With};
use fresh::Further;
use place::Place;
pub(crate) use place::{Doom, Due};
use progress::Progress;
use rounds::{GUARDED_SPREAD_NS, SPREAD_NS};
use visits::{Row, Visiting};
use watermark::Watermark;

/// A queue with a lane for each key.
pub(crate) struct LaneQueue<T> {
    rules: LaneRules,
    events: Events<T>,
    places: Vec<Place>,
    places_free: Vec<usize>,
    /// Lanes with something to do, in the order in which they are served.
    ready: VecDeque<Ready>,
    /// How many lanes that are, and what there is to do for them.
    ready_lanes: usize,
    ready_work: usize,
    /// Events of fresh turns.
    fresh: usize,
    /// For each visit, which lanes the events belong to that it has, in their order.
    turns: Vec<Visiting<T>>,
    turns_free: Vec<usize>,
    /// Of the visit that takes events now: the lanes of its events, for whoever wants to know.
    lanes: Lanes,
    lanes_spare: Vec<Lanes>,
    /// Storage for what comes and is not the first of its lane.
    others: Vec<(Row, Time)>,
    further: Further<T>,
    /// Of the same: lanes that have more to give. Storage for a round of them.
    again: Vec<usize>,
    round: Vec<usize>,
    /// Lanes that are closed for those who are no visits: the stage does not end while they have the state.
    lent: usize,
    alarms: Alarms,
    /// If the stage has event time.
    watermark: Option<Watermark>,
    progress: Option<Progress>,
    /// Lanes that wait to try an event again.
    waiting: usize,
    /// Lanes that have left; the directory may forget them.
    retired: Vec<LaneRef>,
    /// Events of lanes that were full.
    rejected: Option<Chunk<T>>,
    /// Storage for the lanes of what comes.
    spare: Option<Columns>,
    spread_ns: u64,
    now: Time,
    /// Nobody looks after lanes with state: neither is there event time, nor does state expire.
    is_plain: bool,
}

/// What stands in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    /// An open lane, by its place.
    Lane(usize),
    /// The lanes of a visit that has not begun.
    Fresh(Turn),
}

const LINKED: &str = "a lane that is linked has a place";

impl<T: Send> LaneQueue<T> {
    pub(crate) fn new(rules: LaneRules) -> Self {
        LaneQueue {
            rules,
            events: Events::default(),
            places: Vec::new(),
            places_free: Vec::new(),
            ready: VecDeque::new(),
            ready_lanes: 0,
            ready_work: 0,
            fresh: 0,
            turns: Vec::new(),
            turns_free: Vec::new(),
            lanes: Vec::new(),
            lanes_spare: Vec::new(),
            others: Vec::new(),
            further: Further::default(),
            again: Vec::new(),
            round: Vec::new(),
            lent: 0,
            alarms: Alarms::default(),
            watermark: None,
            progress: None,
            waiting: 0,
            retired: Vec::new(),
            rejected: None,
            spare: None,
            spread_ns: SPREAD_NS,
            now: Time::ZERO,
            is_plain: rules.idle.is_none() && rules.keys_max.is_none(),
        }
    }

    // --- lanes

    #[inline]
    fn place(&mut self, at: usize) -> &mut Place {
        &mut self.places[at]
    }

    /// The lane that stands first in line, unless a fresh turn does.
    #[inline]
    fn first_ready(&self) -> Option<&Place> {
        match self.ready.front() {
            Some(Ready::Lane(at)) => Some(&self.places[*at]),
            _ => None,
        }
    }

    /// Where a lane stands; it gets a place if it has none.
    #[inline(always)] // each event comes here
    fn place_of(&mut self, lane: &LaneRef) -> usize {
        match lane.slot() {
            Some(slot) => slot as usize,
            None => self.new_place(lane.clone()),
        }
    }

    #[cold]
    #[inline(never)]
    fn new_place(&mut self, lane: LaneRef) -> usize {
        let at = self.places_free.pop().unwrap_or_else(|| {
            self.places.push(Place::new());
            self.places.len() - 1
        });
        lane.set_slot(u32::try_from(at).expect("fewer than 2^32 lanes"));
        let place = &mut self.places[at];
        (place.weight, place.keyless) = (lane.weight().get(), lane.is_keyless());
        place.lane = Some(lane);
        at
    }

    /// A lane that is open and has something to do stands in line; one that has nothing to do rests, or leaves.
    #[inline]
    fn look_at(&mut self, at: usize, side: Side) {
        let place = self.place(at);
        if place.ready || !place.is_open() {
            return;
        }
        let work = place.work();
        if work == 0 {
            return self.rest(at);
        }
        place.ready = true;
        self.ready_work += work;
        self.ready_lanes += 1;
        match side {
            Side::Newest => self.ready.push_back(Ready::Lane(at)),
            Side::Oldest => self.ready.push_front(Ready::Lane(at)),
        }
    }

    /// A lane has nothing to do. One with state keeps its place.
    #[inline]
    fn rest(&mut self, at: usize) {
        if let Some(watermark) = self.watermark.as_ref().map(Watermark::at)
            && let Some(lane) = self.places[at].lane.clone()
            && self.look_at_event_timers(&lane, watermark)
        {
            return;
        }
        let place = &mut self.places[at];
        place.attempt = 1;
        let given_up = place.given_up;
        if self.progress.is_some() {
            let holds = place.set_holds(None);
            self.release_time(holds);
        }
        if given_up {
            return; // it stays: what comes to it fails too
        }
        let Some(lane) = &self.places[at].lane else { return };
        if !lane.has_state() {
            self.vacate(at);
        } else if (self.rules.idle.is_some() || self.rules.keys_max.is_some()) && !lane.watch(true)
        {
            self.alarms.watch(lane.used(), lane.clone());
        }
    }

    /// A lane has nothing to do, and nothing to keep.
    fn vacate(&mut self, at: usize) {
        let place = std::mem::replace(&mut self.places[at], Place::new());
        if let Some(lane) = place.lane {
            lane.leave();
            self.alarms.forget_timers(&lane);
            self.places_free.push(at);
            self.retired.push(lane);
        }
    }

    /// The place of a lane that has something to do, is at it, or is kept from it.
    fn busy_place(&self, lane: &LaneRef) -> Option<usize> {
        let at = lane.slot()? as usize;
        self.places[at].is_busy().then_some(at)
    }

    /// No more events come: lanes that rest lose their places.
    pub(crate) fn take_resting(&mut self) -> Vec<LaneRef> {
        let mut resting = Vec::new();
        for (at, place) in self.places.iter_mut().enumerate() {
            if !place.is_busy()
                && let Some(lane) = std::mem::replace(place, Place::new()).lane
            {
                lane.leave();
                self.places_free.push(at);
                resting.push(lane);
            }
        }
        if self.places_free.len() == self.places.len() {
            (self.places, self.places_free) = Default::default();
        }
        resting
    }

    /// Takes the first ready lane out of the line, unless a fresh turn stands there.
    #[inline]
    fn pop_ready(&mut self) -> Option<usize> {
        let Some(Ready::Lane(at)) = self.ready.front() else { return None };
        let at = *at;
        self.ready.pop_front();
        self.ready_lanes -= 1;
        let place = &mut self.places[at];
        place.ready = false;
        self.ready_work -= place.work();
        Some(at)
    }

    /// Lanes whose events were removed while they stood in line leave it.
    fn skip_empty(&mut self) {
        while self.first_ready().is_some_and(|place| place.work() == 0)
            && let Some(at) = self.pop_ready()
        {
            self.look_at(at, Side::Newest);
        }
    }

    // --- events

    /// Puts an event that came at the end of its lane.
    #[inline]
    fn link_last(&mut self, at: usize, event: T, with: With, age: events::Age) {
        let place = &mut self.places[at];
        self.events.link_last((at, &mut place.events), event, with, age);
        self.ready_work += usize::from(place.ready);
    }

    /// Puts an event that was there before at the beginning of its lane.
    fn link_first(&mut self, at: usize, event: T, with: With) {
        let place = &mut self.places[at];
        self.events.link_first((at, &mut place.events), event, with);
        self.ready_work += usize::from(place.ready);
    }

    /// Takes the event at one end of a lane.
    #[inline]
    fn unlink(&mut self, at: usize, event: events::At, chunk: &mut Chunk<T>) {
        let place = &mut self.places[at];
        if place.events.first() == Some(event) {
            place.attempt = 1;
        }
        let _ = self.events.unlink(event, &mut place.events, chunk); // its place has the lane
        self.ready_work -= usize::from(place.ready);
    }

    /// The event that is handled next, if it stands in its lane; if none can be, the oldest.
    fn next_event(&self) -> Option<events::At> {
        let ready = self.first_ready().and_then(|place| place.events.first());
        ready.or_else(|| self.events.oldest())
    }

    /// Takes an event out of its lane that ends here.
    fn remove_one(&mut self, event: events::At, chunk: &mut Chunk<T>) {
        let (at, mark) = (self.events.place(event), self.events.mark(event));
        self.release_time(Some(mark));
        self.unlink(at, event, chunk);
        let place = self.place(at);
        if place.events.len() == 0 {
            let waited = place.end_wait(None); // to try what is gone
            self.waiting -= usize::from(waited);
        }
        // One that stands in line with nothing to do leaves when its turn comes.
        self.look_at(at, Side::Newest);
    }

    pub(crate) fn rules(&self) -> LaneRules {
        self.rules
    }

    // --- what else the stage asks for

    /// Lanes that wait to try an event again.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes out lanes that have left.
    pub(crate) fn take_retired(&mut self) -> Vec<LaneRef> {
        self.retired.append(&mut self.alarms.take_forgotten());
        std::mem::take(&mut self.retired)
    }

    /// Takes out storage for the lanes of what comes, if there is any.
    pub(crate) fn take_spare(&mut self) -> Option<Columns> {
        self.spare.take()
    }

    /// Takes out events that came to a lane that was full.
    pub(crate) fn take_rejected(&mut self) -> Option<Chunk<T>> {
        self.rejected.take()
    }
}

impl<T: Send> EventQueue<T> for LaneQueue<T> {
    fn len(&self) -> usize {
        self.events.len() + self.fresh
    }

    fn visits(&self, stride: usize) -> usize {
        let stride = if self.rules.one_each() { 1 } else { stride };
        self.ready_lanes.min(self.ready_work.div_ceil(stride))
    }

    fn push(
        &mut self,
        meta: &Meta,
        mut columns: Columns,
        mut slots: Slots<T>,
        short: bool,
    ) -> Slots<T> {
        let mut times = columns.take_times();
        let mut lanes = std::mem::take(columns.lanes_and_times_mut().0);
        let rows = !columns.is_empty();
        self.now = self.now.max(meta.enqueued);
        if !rows && lanes.len() == slots.len() && self.takes_fresh() {
            self.push_fresh(meta, &mut lanes, times, slots);
            *columns.lanes_and_times_mut().0 = lanes;
            self.spare = Some(columns);
            self.fire_event_timers();
            return if short { self.events.storage() } else { Slots::new() };
        }
        let shared = self.events.open(meta);
        for (lane, event) in lanes.drain(..).zip(slots.iter_mut().filter_map(Option::take)) {
            let Some(lane) = lane else { continue };
            let at = self.place_of(&lane);
            let own = rows.then(|| columns.split_front(1));
            let mark = self.pass(times.next().flatten());
            let len = self.place(at).events.len();
            if self.rules.lane_max.is_some_and(|max| len >= max.get()) {
                let empty = || Chunk::new(meta.clone(), Slots::new());
                self.rejected.get_or_insert_with(empty).push(meta, own, event);
            } else {
                self.hold_time(mark);
                let age = self.events.ages(1);
                let with = With { lane: Some(lane), meta: shared, own, mark };
                self.link_last(at, event, with, age);
            }
            self.look_at(at, Side::Newest);
        }
        debug_assert!(slots.iter().all(Option::is_none), "events come with their lanes");
        slots.clear();
        self.events.close(shared);
        if !rows {
            *columns.lanes_and_times_mut().0 = lanes;
            self.spare = Some(columns);
        }
        self.fire_event_timers();
        slots
    }

    fn take(&mut self, want: Want) -> Option<Taken<T>> {
        self.take_round(want)
    }

    fn remove(&mut self, max: usize, from: Side) -> Option<Chunk<T>> {
        self.dissolve();
        let first = self.events.at_end(from)?;
        let mut chunk = self.events.chunk_for(first);
        while chunk.len() < max
            && let Some(event) = self.events.at_end(from)
        {
            self.remove_one(event, &mut chunk);
        }
        Some(chunk)
    }

    fn remove_oldest(&mut self, _: usize) -> Option<Chunk<T>> {
        self.dissolve();
        let event = self.next_event()?;
        let mut chunk = self.events.chunk_for(event);
        self.remove_one(event, &mut chunk);
        Some(chunk)
    }

    fn done(&mut self, turn: Turn) {
        self.end_visit(turn);
    }

    fn put_back(&mut self, chunk: Chunk<T>, _: Side, turn: Turn) {
        self.put_back_of(turn, chunk, None);
    }

    fn oldest(&self) -> Option<Oldest<'_>> {
        if let Some((_, fresh)) = self.first_fresh() {
            return Some(Oldest { meta: &fresh.meta, duty: &fresh.meta.duty, n: 1 });
        }
        self.next_event().map(|at| self.events.look(at))
    }

    fn recycle(&mut self, storage: Slots<T>) {
        self.events.recycle(storage);
    }

    fn set_guarded(&mut self, guarded: bool) {
        self.spread_ns = if guarded { GUARDED_SPREAD_NS } else { SPREAD_NS };
        self.dissolve();
        self.events.keep_by_age(guarded); // it is looked at whenever events come
    }

    fn is_at_rest(&self) -> bool {
        let watermark = self.watermark.as_ref().map_or(Time::ZERO, Watermark::at);
        self.ready_work == 0 && self.lent == 0 && !self.alarms.has_event_timers(watermark)
    }

    fn as_lanes(&mut self) -> Option<&mut dyn LanesAsked<T>> {
        Some(self)
    }
}
