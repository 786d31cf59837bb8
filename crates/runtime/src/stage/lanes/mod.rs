//! Hop 3 of a keyed stage: a queue that gives each key a lane, and serves the lanes in turn.
//! Before: `inlet`, which has asked the directory of keys for the lane of each event. After: `take`.
//! 1. [`events`] holds the events, in the chains of their lanes;
//! 2. [`alarms`] knows what is to happen to lanes at a time;
//! 3. [`watermark`] knows how far event time has come, [`progress`] how far it has been handed on;
//! 4. [`event_time`] brings these and the lanes together;
//! 5. this file has the lanes, which of them are ready, and which visit has which.
//!
//! A round serves every lane that is ready once, by as many events as its weight, before any is served again. A visit
//! takes its share of the ready lanes, an event or more of each; it goes on to further rounds of the same lanes
//! only if no other lane waits. The lanes are closed until the visit is over; those whose events were all put back
//! are open again at once.
//!
//! Invariants: a lane stands in `ready` at most once, and only if it is open and has, or had, something to do; it belongs
//! to one turn at most; events of a lane leave in the order in which they came. A lane without events, turn and alarm
//! has no place here: its key then costs nothing, or its state alone.

mod events;
mod alarms;
pub(crate) mod watermark;
pub(crate) mod progress;
mod event_time;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::Duration;

use comporta_model::chunk::{Chunk, Slots};
use comporta_model::column::Columns;
use comporta_model::error::Error;
use comporta_model::event::{Meta, Time};
use comporta_model::keyed::LaneRef;

use super::queue::{EventQueue, Oldest, Side, Taken, Turn, Want};
use alarms::{Alarm, Alarms};
use events::{Chain, Events, With};
use progress::Progress;
use watermark::Watermark;

/// How far apart events of one visit may have come. They share the times of the oldest, so that batches stay whole
/// behind a backlog; where handlers are slow, visits take one event and nothing is shared.
const SPREAD_NS: u64 = 10_000_000;
/// The same with an admission controller, which decides by waiting times.
const GUARDED_SPREAD_NS: u64 = 1_000_000;

/// A visit takes at least this part of its stride, however many others could run beside it: lanes of quick handlers
/// are cheaper together than side by side.
const SHARE_OF_STRIDE: usize = 16;

/// What the plan says of the lanes of a stage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneRules {
    /// Events that one key may have in the queue.
    pub(crate) lane_max: Option<NonZeroUsize>,
    /// For how long state is kept that no event has asked for.
    pub(crate) idle: Option<Duration>,
    /// Keys without events whose state is kept.
    pub(crate) keys_max: Option<NonZeroUsize>,
    /// A failed event holds its lane until it is replayed or taken away.
    pub(crate) holds: bool,
    /// Its handlers wait.
    pub(crate) waits: bool,
}

impl LaneRules {
    /// Whether a visit takes one event of a lane at most: what comes after it may have to wait for it.
    fn one_each(&self) -> bool {
        self.holds || self.waits
    }
}

/// A lane that has something to do, or is at it. A place without a lane is as new.
struct Place {
    lane: Option<LaneRef>,
    events: Chain,
    /// It stands in `ready`.
    ready: bool,
    /// The visit it belongs to, and how many of its events that has.
    turn: Option<Turn>,
    out: usize,
    /// Which try at the first event comes next, and when.
    attempt: u32,
    waits: Option<Time>,
    /// A failed event holds it.
    held: bool,
    /// It was held when no more events could come: those it has fail behind the one that held it.
    given_up: bool,
    due: Option<Due>,
    /// Where an event timer that is due holds event time.
    holds: Option<Time>,
    /// As its lane has it.
    weight: usize,
    keyless: bool,
}

impl Doom {
    /// What is said of them.
    pub(crate) fn error(self) -> Error {
        Error::permanent(Error::msg(match self {
            Doom::Keyless => "its key cannot be had: the key function panicked",
            Doom::Held => "its key is held by an event that failed before it",
        }))
    }
}

/// Why events fail as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doom {
    /// Their key cannot be had.
    Keyless,
    /// An event of their key before them has failed.
    Held,
}

/// What is to be done for a lane beside its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// A timer is due.
    Timer,
    /// Its state has expired.
    Expiry,
}

impl Place {
    fn new() -> Self {
        Place {
            lane: None,
            weight: 1,
            keyless: false,
            events: Chain::default(),
            ready: false,
            turn: None,
            out: 0,
            attempt: 1,
            waits: None,
            held: false,
            given_up: false,
            due: None,
            holds: None,
        }
    }

    /// Visits could be made for so much.
    #[inline]
    fn work(&self) -> usize {
        self.events.len() + usize::from(self.due.is_some())
    }

    #[inline]
    fn is_open(&self) -> bool {
        self.turn.is_none() && self.waits.is_none() && !self.held
    }

    #[inline]
    fn doom(&self) -> Option<Doom> {
        if self.keyless { Some(Doom::Keyless) } else { self.given_up.then_some(Doom::Held) }
    }

    /// Whether a visit to it takes nothing else.
    #[inline]
    fn is_alone(&self) -> bool {
        self.attempt > 1 || self.due.is_some() || self.doom().is_some()
    }
}

/// An event that a visit has, or a lane that it looks after.
#[derive(Clone, Copy, Debug)]
struct Served {
    at: usize,
    /// The watermark that the event found; none where it is no event.
    mark: Option<Time>,
}

/// A visit to a lane for something other than its events.
pub(crate) struct Call {
    pub(crate) lane: LaneRef,
    pub(crate) due: Due,
    /// How far event time has come for the lane: events that wait in it hold it back.
    pub(crate) watermark: Time,
    pub(crate) turn: Turn,
}

/// A queue with a lane for each key.
pub(crate) struct LaneQueue<T> {
    rules: LaneRules,
    events: Events<T>,
    places: Vec<Place>,
    places_free: Vec<usize>,
    /// Open lanes with something to do, in the order in which they are served.
    ready: VecDeque<usize>,
    /// What there is to do for them.
    ready_work: usize,
    /// For each visit, which lanes the events belong to that it has, in their order.
    turns: Vec<Vec<Served>>,
    turns_free: Vec<usize>,
    /// Of the visit that takes events now: lanes that have more to give. Storage for a round of them.
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
            ready_work: 0,
            turns: Vec::new(),
            turns_free: Vec::new(),
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
        }
    }

    // --- lanes

    #[inline]
    fn place(&mut self, at: usize) -> &mut Place {
        &mut self.places[at]
    }

    #[inline]
    fn first_ready(&self) -> Option<&Place> {
        self.ready.front().map(|at| &self.places[*at])
    }

    /// Where a lane stands; it gets a place if it has none.
    #[inline]
    fn place_of(&mut self, lane: &LaneRef) -> usize {
        match lane.slot() {
            Some(slot) => slot as usize,
            None => self.new_place(lane.clone()),
        }
    }

    #[inline]
    fn new_place(&mut self, lane: LaneRef) -> usize {
        let at = self.places_free.pop().unwrap_or_else(|| {
            self.places.push(Place::new());
            self.places.len() - 1
        });
        lane.set_slot(u32::try_from(at).expect("fewer lanes than events"));
        let place = &mut self.places[at];
        (place.weight, place.keyless) = (lane.weight(), lane.is_keyless());
        place.lane = Some(lane);
        at
    }

    /// A lane that is open and has something to do stands in line; one that has nothing to do leaves.
    #[inline]
    fn look_at(&mut self, at: usize, side: Side) {
        let place = self.place(at);
        if place.ready || !place.is_open() {
            return;
        }
        let work = place.work();
        if work == 0 {
            return self.vacate(at);
        }
        place.ready = true;
        self.ready_work += work;
        match side {
            Side::Newest => self.ready.push_back(at),
            Side::Oldest => self.ready.push_front(at),
        }
    }

    /// A lane has nothing to do.
    #[inline]
    fn vacate(&mut self, at: usize) {
        if let Some(watermark) = self.watermark.as_ref().map(Watermark::at)
            && let Some(lane) = self.places[at].lane.clone()
            && self.look_at_event_timers(&lane, watermark)
        {
            return;
        }
        let place = &mut self.places[at];
        let Some(lane) = place.lane.take() else { return };
        place.attempt = 1;
        place.given_up = false;
        let holds = place.holds.take();
        self.release_time(holds);
        self.places_free.push(at);
        if !lane.leave() {
            self.retired.push(lane);
        } else if (self.rules.idle.is_some() || self.rules.keys_max.is_some()) && !lane.watch(true)
        {
            self.alarms.watch(lane.used(), lane);
        }
    }

    /// Takes the first ready lane out of the line.
    #[inline]
    fn pop_ready(&mut self) -> Option<usize> {
        let at = self.ready.pop_front()?;
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

    /// Puts an event at one end of its lane.
    #[inline]
    fn link(&mut self, at: usize, event: T, with: With, side: Side) {
        let place = &mut self.places[at];
        let to = (at, &mut place.events);
        match side {
            Side::Newest => self.events.link_last(to, event, with),
            Side::Oldest => self.events.link_first(to, event, with),
        }
        self.ready_work += usize::from(place.ready);
    }

    /// Takes the event at one end of a lane.
    #[inline]
    fn unlink(&mut self, at: usize, event: events::At, chunk: &mut Chunk<T>) {
        let place = &mut self.places[at];
        if place.events.first() == Some(event) {
            place.attempt = 1;
        }
        self.events.unlink(event, &mut place.events, chunk);
        self.ready_work -= usize::from(place.ready);
    }

    /// The event that is handled next; if none can be, the oldest.
    fn next_event(&self) -> Option<events::At> {
        let ready = self.first_ready().and_then(|place| place.events.first());
        ready.or(self.events.at_end(Side::Oldest))
    }

    /// Takes an event out of its lane that ends here.
    fn remove_one(&mut self, event: events::At, chunk: &mut Chunk<T>) {
        let (at, mark) = (self.events.lane(event), self.events.mark(event));
        self.release_time(Some(mark));
        self.unlink(at, event, chunk);
        let place = self.place(at);
        if place.events.len() == 0 {
            let waited = place.waits.take().is_some(); // to try what is gone
            self.waiting -= usize::from(waited);
        }
        // One that stands in line with nothing to do leaves when its turn comes.
        self.look_at(at, Side::Newest);
    }

    // --- visits

    fn new_turn(&mut self) -> Turn {
        let at = self.turns_free.pop().unwrap_or_else(|| {
            self.turns.push(Vec::new());
            self.turns.len() - 1
        });
        Turn(at as u64)
    }

    /// Takes events of a lane that stands in no line and belongs to `turn` from now on: as many as its weight, and no
    /// more than `max`.
    #[inline]
    fn serve(&mut self, at: usize, max: usize, turn: Turn, chunk: &mut Chunk<T>) {
        let LaneQueue { rules, places, events, turns, again, .. } = self;
        let place = &mut places[at];
        let share = if rules.one_each() || place.is_alone() { 1 } else { place.weight };
        let n = share.min(place.events.len()).min(max);
        place.turn = Some(turn);
        place.out += n;
        let order = &mut turns[turn.index()];
        for _ in 0..n {
            let Some(first) = place.events.first() else { break };
            let mark = events.mark(first);
            place.attempt = 1;
            events.unlink(first, &mut place.events, chunk);
            order.push(Served { at, mark: Some(mark) });
        }
        if place.events.len() > 0 {
            again.push(at);
        }
    }

    /// Nobody else waits: further rounds of the lanes that a visit has.
    fn serve_rounds(&mut self, turn: Turn, max: usize, chunk: &mut Chunk<T>) {
        let mut round = std::mem::take(&mut self.round);
        while !self.again.is_empty() && chunk.len() < max {
            std::mem::swap(&mut round, &mut self.again);
            for at in round.drain(..) {
                self.serve(at, max - chunk.len(), turn, chunk);
            }
        }
        self.round = round;
    }

    /// Whether a visit that has begun with these events may take the lane that is ready next too.
    #[inline]
    fn joins(&self, chunk: &Chunk<T>) -> bool {
        let next = self.first_ready().filter(|place| !place.is_alone());
        next.and_then(|place| place.events.first()).is_some_and(|first| {
            if self.events.is_alike(first) {
                return true;
            }
            let meta = self.events.meta(first);
            let apart = meta.enqueued.as_nanos().abs_diff(chunk.meta.enqueued.as_nanos());
            meta.tier == chunk.meta.tier && apart <= self.spread_ns
        })
    }

    /// Which lanes the events belong to that a visit took, in their order.
    pub(crate) fn lanes_of(&self, turn: Turn, into: &mut Vec<LaneRef>) {
        let order = &self.turns[turn.index()];
        into.reserve(order.len());
        into.extend(order.iter().filter_map(|served| self.places[served.at].lane.clone()));
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

    /// What the next visit is to do for a lane beside its events, if it is that: one that has begun goes on with `turn`.
    pub(crate) fn take_due(&mut self, turn: Option<Turn>) -> Option<Call> {
        self.skip_empty();
        let due = self.first_ready()?.due?;
        let at = self.pop_ready()?;
        let turn = turn.unwrap_or_else(|| self.new_turn());
        let place = self.place(at);
        place.due = None;
        place.turn = Some(turn);
        let (lane, first) = (place.lane.clone().expect(LINKED), place.events.first());
        let come = self.watermark.as_ref().map_or(Time::ZERO, Watermark::at);
        let watermark = first.map_or(come, |first| self.events.mark(first));
        self.turns[turn.index()].push(Served { at, mark: None });
        Some(Call { lane, due, watermark, turn })
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

    /// Of the events that a visit took, those are shed of which `shed` is true.
    pub(crate) fn shed_of(&mut self, turn: Turn, mut shed: impl Iterator<Item = bool>) {
        let mut order = std::mem::take(&mut self.turns[turn.index()]);
        order.retain(|served| {
            let gone = shed.next().unwrap_or(false);
            if gone {
                self.release_time(served.mark);
                self.give_back(served.at);
            }
            !gone
        });
        self.turns[turn.index()] = order;
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
            self.link(at, event, With { meta, own: rows.pop(), mark }, Side::Oldest);
            if let Some((due, attempt)) = retry.filter(|_| slots.is_empty()) {
                let place = self.place(at);
                place.attempt = attempt;
                place.waits = Some(due);
                self.waiting += 1;
                self.alarms.add(due, Alarm::Retry(at));
            }
            self.give_back(at);
        }
        self.events.close(meta);
        self.events.recycle(slots);
    }

    // --- time

    /// When the clock is to be asked, if it is another time than before.
    pub(crate) fn arm(&mut self) -> Option<Time> {
        self.alarms.arm(&self.rules, self.watermark.as_ref(), self.now)
    }

    /// The clock says that the time of some lanes has come.
    pub(crate) fn ring(&mut self, now: Time) {
        self.now = self.now.max(now);
        if let Some(progress) = &self.progress {
            progress.listen();
        }
        self.alarms.ring(now);
        while let Some((due, alarm)) = self.alarms.next(now) {
            match alarm {
                Alarm::Retry(at) => {
                    if self.place(at).waits.take_if(|waits| *waits == due).is_some() {
                        self.waiting -= 1;
                        self.look_at(at, Side::Newest);
                    }
                }
                Alarm::Timer(lane) => self.is_due(&lane, Due::Timer),
            }
        }
        while let Some(idle) = self.rules.idle
            && let Some(lane) = self.alarms.expire(now, |used| used + idle <= now)
        {
            self.is_due(&lane, Due::Expiry);
        }
        if let Some(watermark) = &mut self.watermark {
            watermark.look(self.now);
            self.fire_event_timers();
        }
    }

    /// Something is to be done for a lane.
    fn is_due(&mut self, lane: &LaneRef, due: Due) {
        let at = self.place_of(lane);
        let place = self.place(at);
        let work = place.work();
        place.due.get_or_insert(due);
        let (more, ready) = (place.work() - work, place.ready);
        self.ready_work += if ready { more } else { 0 };
        self.look_at(at, Side::Newest);
    }

    /// Has the oldest state expire if there is more than may be.
    fn expire_surplus(&mut self) {
        let Some(most) = self.rules.keys_max else { return };
        while self.alarms.watched() > most.get()
            && let Some(lane) = self.alarms.expire(self.now, |_| true)
        {
            self.is_due(&lane, Due::Expiry);
        }
    }

    /// Closes a lane for somebody who is no visit, unless a visit has it.
    pub(crate) fn close(&mut self, lane: &LaneRef) -> Option<Turn> {
        let at = self.place_of(lane);
        if self.place(at).turn.is_some() {
            return None;
        }
        self.lent += 1;
        let turn = self.new_turn();
        self.turns[turn.index()].push(Served { at, mark: None });
        let place = self.place(at);
        place.turn = Some(turn);
        if std::mem::take(&mut place.ready) {
            let work = place.work();
            self.ready_work -= work;
            self.ready.retain(|ready| *ready != at);
        }
        Some(turn)
    }

    /// Whoever had a lane [closed](Self::close) is done with it.
    pub(crate) fn reopen(&mut self, turn: Turn) {
        self.lent -= 1;
        self.done(turn);
    }

    // --- failed events that hold their lanes

    pub(crate) fn rules(&self) -> &LaneRules {
        &self.rules
    }

    /// A failed event holds its lane, which a visit has. Returns `false` if the lane was given up.
    pub(crate) fn hold(&mut self, lane: &LaneRef) -> bool {
        let at = self.place_of(lane);
        let place = self.place(at);
        debug_assert!(place.turn.is_some(), "a visit has the lane of an event that fails");
        place.held = !place.given_up;
        place.held
    }

    /// A lane is not held any more.
    pub(crate) fn release(&mut self, lane: &LaneRef) {
        let at = self.place_of(lane);
        self.place(at).held = false;
        self.look_at(at, Side::Newest);
    }

    /// Puts an event that failed, and held its lane, at the front of the lane again.
    pub(crate) fn replay(&mut self, lane: &LaneRef, meta: &Meta, own: Columns, event: T) {
        let at = self.place_of(lane);
        let shared = self.events.open(meta);
        let own = Some(own).filter(|own| !own.is_empty());
        let mark = self.watermark.as_ref().map_or(Time::ZERO, Watermark::at);
        self.hold_time(mark);
        self.link(at, event, With { meta: shared, own, mark }, Side::Oldest);
        self.events.close(shared);
        self.release(lane);
    }

    /// No more events will come, and nobody is at work: if all that is left stands in lanes that are held, it fails.
    pub(crate) fn give_up(&mut self) {
        let held = |place: &&mut Place| place.held;
        if !self.rules.holds || self.events.len() == 0 || self.ready_work > 0 {
            return;
        }
        let places = self.places.iter();
        if places.map(|place| if place.held { place.events.len() } else { 0 }).sum::<usize>()
            < self.events.len()
        {
            return; // some wait to be tried again
        }
        for place in self.places.iter_mut().filter(held) {
            (place.held, place.given_up) = (false, true);
        }
        for at in 0..self.places.len() {
            if self.places[at].lane.is_some() {
                self.look_at(at, Side::Newest);
            }
        }
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

    /// The number of threads has changed: those with most to do come first.
    pub(crate) fn sort(&mut self) {
        let work = |at: &usize| self.places[*at].work();
        let mut ready = std::mem::take(&mut self.ready);
        ready.make_contiguous().sort_by_key(|at| std::cmp::Reverse(work(at)));
        self.ready = ready;
    }
}

impl<T: Send> EventQueue<T> for LaneQueue<T> {
    fn len(&self) -> usize {
        self.events.len()
    }

    fn visits(&self, stride: usize) -> usize {
        let stride = if self.rules.one_each() { 1 } else { stride };
        self.ready.len().min(self.ready_work.div_ceil(stride))
    }

    fn push(
        &mut self,
        meta: &Meta,
        mut columns: Columns,
        mut slots: Slots<T>,
        _: bool,
    ) -> Slots<T> {
        let mut times = columns.take_times();
        let mut lanes = std::mem::take(columns.lanes_and_times_mut().0);
        let rows = !columns.is_empty();
        self.now = self.now.max(meta.enqueued);
        let shared = self.events.open(meta);
        let mut events = slots.iter_mut().filter_map(Option::take);
        for (lane, n) in lanes.drain() {
            let Some(lane) = lane else { continue };
            let at = match lane.slot() {
                Some(slot) => slot as usize,
                None => self.new_place(lane),
            };
            for event in events.by_ref().take(n) {
                let own = rows.then(|| columns.split_front(1));
                let mark = self.pass(times.next().flatten());
                let len = self.place(at).events.len();
                if self.rules.lane_max.is_some_and(|max| len >= max.get()) {
                    let empty = || Chunk::new(meta.clone(), Slots::new());
                    self.rejected.get_or_insert_with(empty).push(meta, own, event);
                } else {
                    self.hold_time(mark);
                    self.link(at, event, With { meta: shared, own, mark }, Side::Newest);
                }
            }
            self.look_at(at, Side::Newest);
        }
        debug_assert!(events.next().is_none(), "events of a keyed stage come with their lanes");
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
        self.now = self.now.max(want.now);
        self.skip_empty();
        let first = self.first_ready()?;
        let (event, alone, attempt) = (first.events.first()?, first.is_alone(), first.attempt);
        let share = self.ready.len().div_ceil(want.side_by_side.max(1));
        let lanes = if alone { 1 } else { share.max(want.max / SHARE_OF_STRIDE) };
        let mut chunk = self.events.chunk_for(event);
        let turn = self.new_turn();
        self.again.clear();
        let mut taken = 0;
        while taken < lanes
            && chunk.len() < want.max
            && (taken == 0 || self.joins(&chunk))
            && let Some(at) = self.pop_ready()
        {
            self.serve(at, want.max - chunk.len(), turn, &mut chunk);
            taken += 1;
        }
        if self.ready.is_empty() && !alone && !self.rules.one_each() {
            self.serve_rounds(turn, want.max, &mut chunk);
        }
        Some(Taken { chunk, turn, attempt })
    }

    fn remove(&mut self, max: usize, from: Side) -> Option<Chunk<T>> {
        let mut chunk = self.events.chunk_for(self.events.at_end(from)?);
        while chunk.len() < max
            && let Some(event) = self.events.at_end(from)
        {
            self.remove_one(event, &mut chunk);
        }
        Some(chunk)
    }

    fn remove_oldest(&mut self, _: usize) -> Option<Chunk<T>> {
        let event = self.next_event()?;
        let mut chunk = self.events.chunk_for(event);
        self.remove_one(event, &mut chunk);
        Some(chunk)
    }

    fn done(&mut self, turn: Turn) {
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

    fn put_back(&mut self, chunk: Chunk<T>, _: Side, turn: Turn) {
        self.put_back_of(turn, chunk, None);
    }

    fn oldest(&self) -> Option<Oldest<'_>> {
        self.next_event().map(|at| self.events.look(at))
    }

    fn recycle(&mut self, storage: Slots<T>) {
        self.events.recycle(storage);
    }

    fn set_guarded(&mut self, guarded: bool) {
        self.spread_ns = if guarded { GUARDED_SPREAD_NS } else { SPREAD_NS };
    }

    fn is_at_rest(&self) -> bool {
        let watermark = self.watermark.as_ref().map_or(Time::ZERO, Watermark::at);
        self.ready_work == 0 && self.lent == 0 && !self.alarms.has_event_timers(watermark)
    }

    fn as_lanes(&mut self) -> Option<&mut LaneQueue<T>> {
        Some(self)
    }
}

impl Turn {
    #[inline]
    fn index(self) -> usize {
        self.0 as usize
    }
}
