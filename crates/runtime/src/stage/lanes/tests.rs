//! The queue of a keyed stage beside a plain model of it, under random operations.
//!
//! The model knows which events each lane has, in which order all of them came, and which visit has which. It does not
//! know how many lanes a visit takes; of what a visit takes it says whether it may.
//! Long because the model is in one piece.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;

use comporta_model::column::Columns;
use comporta_model::error::Result;
use comporta_model::event::{Ev, Meta, Time};
use comporta_model::keyed::{EventTime, KeyedCx, KeyedStage, Keys};
use comporta_model::stage::{Handler, IntoStage};
use proptest::prelude::*;

use super::progress::HandedOn;
use super::watermark::{EdgeFrom, Origin, Watermark};
use super::{LaneQueue, LaneRules, Ready};
use crate::stage::queue::{EventQueue, Side, Turn, Want};

const LANES: u32 = 7;

/// An event: its key, and a number that no other has.
type Event = (u32, u32);

/// Keys with weights: every third may have two events served in a round, and the last three.
#[derive(Clone)]
struct Weighted {
    /// There is event time.
    timed: bool,
}

/// When an event happened: later than those before it, mostly.
fn happened((_, number): &Event) -> Time {
    Time::from_nanos(u64::from(number * 10 + number * 37 % 50))
}

/// Some lanes have state, and keep their places.
fn has_state(lane: u32) -> bool {
    lane.is_multiple_of(2)
}

fn weight(lane: u32) -> usize {
    match lane {
        6 => 3,
        lane if lane % 3 == 1 => 2,
        _ => 1,
    }
}

impl KeyedStage for Weighted {
    type In = Event;
    type Key = u32;
    type State = u8;
    type Ports = ();

    fn key(&self, (lane, _): &Event) -> u32 {
        *lane
    }

    fn weight(&self, lane: &u32) -> NonZeroU32 {
        NonZeroU32::new(weight(*lane) as u32).unwrap()
    }

    fn event_time(&self) -> Option<EventTime> {
        self.timed.then(EventTime::new)
    }

    fn time(&self, event: &Event) -> Option<Time> {
        Some(happened(event))
    }

    fn handle(
        &mut self,
        _: &mut u8,
        _: Ev<'_, Event>,
        (): &mut (),
        _: &KeyedCx<'_, u32>,
    ) -> Result {
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// Events come, of these lanes, so long after those before.
    Push {
        lanes: Vec<u32>,
        later_ns: u64,
    },
    Take {
        max: usize,
        side_by_side: usize,
    },
    /// Of what a visit took, some is shed before it begins.
    Shed {
        visit: usize,
        which: Vec<bool>,
    },
    /// A visit has handled some of its events and puts back the rest; `retry_ns`: the first of them is to be tried again.
    PutBack {
        visit: usize,
        handled: usize,
        retry_ns: Option<u64>,
    },
    /// The event at some place of a visit gets a turn of its own.
    Detach {
        visit: usize,
        at: usize,
    },
    Done {
        visit: usize,
    },
    Remove {
        max: usize,
        newest: bool,
    },
    Ring {
        later_ns: u64,
    },
    Sort,
}

/// A lane: half of them are the same two, so that they come more often than once together.
fn few() -> impl Strategy<Value = u32> {
    prop_oneof![1 => 0..2_u32, 1 => 0..LANES]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let visit = 0..8_usize;
    let spread = prop_oneof![4 => Just(0_u64), 1 => 0..30_000_000_u64];
    let op = prop_oneof![
        5 => (prop::collection::vec(few(), 1..12), spread)
            .prop_map(|(lanes, later_ns)| Op::Push { lanes, later_ns }),
        5 => (1..9_usize, 1..4_usize)
            .prop_map(|(max, side_by_side)| Op::Take { max, side_by_side }),
        1 => (visit.clone(), prop::collection::vec(any::<bool>(), 8))
            .prop_map(|(visit, which)| Op::Shed { visit, which }),
        2 => (visit.clone(), 0..4_usize, prop::option::of(0..40_000_000_u64))
            .prop_map(|(visit, handled, retry_ns)| Op::PutBack { visit, handled, retry_ns }),
        1 => (visit.clone(), 0..4_usize).prop_map(|(visit, at)| Op::Detach { visit, at }),
        4 => visit.prop_map(|visit| Op::Done { visit }),
        1 => (1..6_usize, any::<bool>()).prop_map(|(max, newest)| Op::Remove { max, newest }),
        1 => (0..40_000_000_u64).prop_map(|later_ns| Op::Ring { later_ns }),
        1 => Just(Op::Sort),
    ];
    prop::collection::vec(op, 1..80)
}

/// A visit, as the model knows it.
struct Visit {
    turn: Turn,
    /// What it has in hand.
    events: VecDeque<Event>,
    /// Lanes that stay closed until it is over: it has, or has handled, events of them.
    closed: BTreeSet<u32>,
    /// Lanes it has handled events of.
    touched: BTreeSet<u32>,
    /// Who waited while it served which lane: the waiting lane, which wait of it that was, and the lane served.
    passed: Vec<(u32, u32, u32)>,
    /// Nothing was done with it yet.
    is_fresh: bool,
}

/// How long a lane waits, told in what is served meanwhile.
#[derive(Default)]
struct Wait {
    ready: bool,
    /// Numbers its waits.
    number: u32,
    /// How often each other lane was served since.
    served: BTreeMap<u32, usize>,
}

struct Model {
    rules: LaneRules,
    queue: LaneQueue<Event>,
    keys: Arc<dyn Keys<Event>>,
    now: Time,
    made: u32,
    lanes: BTreeMap<u32, VecDeque<u32>>,
    /// All events, the oldest first.
    by_age: VecDeque<Event>,
    visits: Vec<Visit>,
    /// Until when a lane waits to try its first event again.
    retries: BTreeMap<u32, Time>,
    waits: BTreeMap<u32, Wait>,
    /// If there is event time: how far it has been handed on.
    handed_on: Option<Arc<HandedOn>>,
    /// How far it has come, and had when each event came.
    watermark: Time,
    found: BTreeMap<u32, Time>,
}

impl Model {
    fn new(rules: LaneRules, timed: bool) -> Self {
        let keys = Weighted { timed }.into_handler().keys().unwrap();
        let (mut queue, mut out) = (LaneQueue::new(rules), None);
        if timed {
            let from = EdgeFrom { origin: Origin::Outside, handed_on: Arc::default() };
            let handed_on = out.get_or_insert_with(Arc::<HandedOn>::default).clone();
            queue = queue.with_event_time(Watermark::new(EventTime::new(), [from]), handed_on);
            queue.from(Origin::Outside);
        }
        Model {
            handed_on: out,
            watermark: Time::ZERO,
            found: BTreeMap::new(),
            rules,
            queue,
            keys,
            now: Time::ZERO,
            made: 0,
            lanes: (0..LANES).map(|lane| (lane, VecDeque::new())).collect(),
            by_age: VecDeque::new(),
            visits: Vec::new(),
            retries: BTreeMap::new(),
            waits: (0..LANES).map(|lane| (lane, Wait::default())).collect(),
        }
    }

    fn is_open(&self, lane: u32) -> bool {
        !self.retries.contains_key(&lane)
            && !self.visits.iter().any(|visit| visit.closed.contains(&lane))
    }

    fn is_ready(&self, lane: u32) -> bool {
        self.is_open(lane) && !self.lanes[&lane].is_empty()
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Push { lanes, later_ns } => self.push(&lanes, later_ns),
            Op::Take { max, side_by_side } => self.take(max, side_by_side),
            Op::Shed { visit, which } => self.shed(visit, &which),
            Op::PutBack { visit, handled, retry_ns } => self.put_back(visit, handled, retry_ns),
            Op::Detach { visit, at } => self.detach(visit, at),
            Op::Done { visit } => self.done(visit),
            Op::Remove { max, newest } => self.remove(max, newest),
            Op::Ring { later_ns } => {
                self.now = Time::from_nanos(self.now.as_nanos() + later_ns);
                self.queue.ring(self.now);
                self.retries.retain(|_, due| *due > self.now);
            }
            Op::Sort => {
                self.queue.sort();
                self.waits.values_mut().for_each(|wait| wait.served.clear());
            }
        }
        self.check();
    }

    fn push(&mut self, lanes: &[u32], later_ns: u64) {
        self.now = Time::from_nanos(self.now.as_nanos() + later_ns);
        let meta = Meta { enqueued: self.now, ..Meta::default() };
        let first = self.made;
        self.made += lanes.len() as u32;
        let events: Vec<Event> = lanes.iter().copied().zip(first..).collect();
        let (mut columns, slots) =
            (Columns::default(), events.iter().copied().map(Some).collect::<Vec<_>>());
        self.keys.lanes_of(&slots, &mut columns, &mut |_| unreachable!("keys are numbers"));
        for lane in events.iter().filter(|(lane, _)| has_state(*lane)) {
            self.keys.lane_of(lane).set_state::<u32, u8>(1);
        }
        let storage = self.queue.push(&meta, columns, slots, false);
        assert!(storage.is_empty());
        let mut full = Vec::new();
        for (lane, event) in events {
            self.found.insert(event, self.watermark);
            self.watermark = self.watermark.max(happened(&(lane, event)));
            let own = self.lanes.get_mut(&lane).unwrap();
            if self.rules.lane_max.is_some_and(|max| own.len() >= max.get()) {
                full.push((lane, event));
            } else {
                own.push_back(event);
                self.by_age.push_back((lane, event));
            }
        }
        let rejected = self.queue.take_rejected().map_or(Vec::new(), |chunk| chunk.into_events());
        assert_eq!(rejected.into_iter().flatten().collect::<Vec<_>>(), full, "of full lanes");
    }

    fn take(&mut self, max: usize, side_by_side: usize) {
        let want = Want { max, from: Side::Oldest, side_by_side, now: self.now };
        let waiting: Vec<u32> = (0..LANES).filter(|lane| self.is_ready(*lane)).collect();
        let Some(taken) = self.queue.take(want) else {
            assert!(waiting.is_empty(), "lanes {waiting:?} are ready, and nothing is taken");
            return;
        };
        let events: VecDeque<Event> = taken.chunk.into_events().into_iter().flatten().collect();
        let mut lanes = Vec::new();
        self.queue.take_lanes(&mut lanes);
        let own: Vec<_> = events.iter().map(|event| Some(self.keys.lane_of(event))).collect();
        assert_eq!(lanes, own, "each event comes with its lane");
        if self.handed_on.is_some() {
            let mut marks = Vec::new();
            self.queue.marks_of(taken.turn, &mut marks);
            let found: Vec<Time> = events.iter().map(|(_, event)| self.found[event]).collect();
            assert_eq!(marks, found, "each event comes with the watermark that it found");
        }
        assert!(!events.is_empty() && events.len() <= max, "{events:?} of at most {max}");
        let mut each: BTreeMap<u32, usize> = BTreeMap::new();
        for (lane, event) in &events {
            assert!(waiting.contains(lane), "lane {lane} is served and was not ready");
            assert_eq!(self.lanes.get_mut(lane).unwrap().pop_front(), Some(*event), "in order");
            *each.entry(*lane).or_default() += 1;
        }
        self.by_age.retain(|event| !events.contains(event));
        let left: Vec<u32> =
            waiting.iter().copied().filter(|lane| !each.contains_key(lane)).collect();
        let mut passed = Vec::new();
        for (served, n) in &each {
            let most = if self.rules.one_each() { 1 } else { weight(*served) };
            assert!(left.is_empty() || *n <= most, "lane {served} has {n} while {left:?} wait");
            for waits in &left {
                let wait = self.waits.get_mut(waits).unwrap();
                let times = wait.served.entry(*served).or_default();
                *times += 1;
                assert!(*times <= 1, "lane {served} is served twice while {waits} waits");
                passed.push((*waits, wait.number, *served));
            }
        }
        let closed = each.into_keys().collect();
        let (turn, touched) = (taken.turn, BTreeSet::new());
        self.visits.push(Visit { turn, events, closed, touched, passed, is_fresh: true });
    }

    /// A visit has nothing to do with a lane any more.
    fn let_go(&mut self, visit: usize, lane: u32) {
        let visit = &mut self.visits[visit];
        if visit.touched.contains(&lane) || visit.events.iter().any(|(own, _)| *own == lane) {
            return;
        }
        visit.closed.remove(&lane);
        // As if it had not been served.
        for (waits, number, _) in visit.passed.extract_if(.., |(_, _, served)| *served == lane) {
            let wait = self.waits.get_mut(&waits).unwrap();
            if wait.number == number
                && let Some(times) = wait.served.get_mut(&lane)
            {
                *times = times.saturating_sub(1);
            }
        }
    }

    fn choose(&self, visit: usize) -> Option<usize> {
        visit.checked_rem(self.visits.len())
    }

    fn shed(&mut self, visit: usize, which: &[bool]) {
        let Some(at) = self.choose(visit).filter(|at| self.visits[*at].is_fresh) else { return };
        let visit = &mut self.visits[at];
        visit.is_fresh = false;
        let mut which = which.iter().copied().chain(std::iter::repeat(false));
        let shed: Vec<bool> = visit.events.iter().map(|_| which.next().unwrap_or(false)).collect();
        self.queue.shed_of(visit.turn, &mut shed.iter().copied());
        let (mut flags, mut gone) = (shed.into_iter(), Vec::new());
        visit.events.retain(|(lane, _)| {
            let shed = flags.next().unwrap_or(false);
            gone.extend(shed.then_some(*lane));
            !shed
        });
        gone.into_iter().for_each(|lane| self.let_go(at, lane));
    }

    /// A visit handles so many of its events.
    fn handle(&mut self, at: usize, n: usize) {
        let visit = &mut self.visits[at];
        visit.is_fresh = false;
        for (lane, _) in visit.events.drain(..n) {
            visit.touched.insert(lane);
        }
    }

    fn put_back(&mut self, visit: usize, handled: usize, retry_ns: Option<u64>) {
        let Some(at) = self.choose(visit) else { return };
        let len = self.visits[at].events.len();
        if len == 0 {
            return;
        }
        self.handle(at, handled.min(len - 1));
        let visit = &mut self.visits[at];
        let rest = std::mem::take(&mut visit.events);
        let slots = rest.iter().copied().map(Some).collect();
        let meta = Meta { enqueued: self.now, ..Meta::default() };
        let due = retry_ns.map(|wait| Time::from_nanos(self.now.as_nanos() + wait));
        let chunk = comporta_model::chunk::Chunk::new(meta, slots);
        self.queue.put_back_of(visit.turn, chunk, due.map(|due| (due, 2)));
        if let Some(due) = due {
            self.retries.insert(rest[0].0, due);
        }
        for (lane, event) in rest.iter().rev() {
            self.lanes.get_mut(lane).unwrap().push_front(*event);
            self.by_age.push_front((*lane, *event));
        }
        rest.iter().for_each(|(lane, _)| self.let_go(at, *lane));
    }

    fn detach(&mut self, visit: usize, place: usize) {
        let Some(at) = self.choose(visit).filter(|_| self.rules.waits) else { return };
        let visit = &mut self.visits[at];
        let Some(place) = place.checked_rem(visit.events.len()) else { return };
        let left = visit.events.len() - place - 1;
        let turn = self.queue.detach(visit.turn, left);
        visit.is_fresh = false;
        let (lane, event) = visit.events.remove(place).unwrap();
        visit.closed.remove(&lane);
        let (own, one) = (BTreeSet::from([lane]), VecDeque::from([(lane, event)]));
        let passed = visit.passed.extract_if(.., |(_, _, served)| *served == lane).collect();
        let touched = BTreeSet::new();
        self.visits.push(Visit {
            turn,
            events: one,
            closed: own,
            touched,
            passed,
            is_fresh: false,
        });
    }

    fn done(&mut self, visit: usize) {
        let Some(at) = self.choose(visit) else { return };
        let Visit { turn, .. } = self.visits.swap_remove(at);
        self.queue.done(turn);
    }

    fn remove(&mut self, max: usize, newest: bool) {
        let side = if newest { Side::Newest } else { Side::Oldest };
        let removed = self.queue.remove(max, side).map_or(Vec::new(), |chunk| chunk.into_events());
        let removed: Vec<Event> = removed.into_iter().flatten().collect();
        let n = max.min(self.by_age.len());
        let wanted: Vec<Event> = if newest {
            self.by_age.drain(self.by_age.len() - n..).rev().collect()
        } else {
            self.by_age.drain(..n).collect()
        };
        assert_eq!(removed, wanted, "by age");
        for (lane, event) in wanted {
            let own = self.lanes.get_mut(&lane).unwrap();
            own.retain(|other| *other != event);
            if own.is_empty() {
                self.retries.remove(&lane);
            }
        }
    }

    /// After every operation.
    fn check(&mut self) {
        for lane in 0..LANES {
            let is_ready = self.is_ready(lane);
            let wait = self.waits.get_mut(&lane).unwrap();
            if is_ready && !wait.ready {
                wait.number += 1;
                wait.served.clear();
            }
            wait.ready = is_ready;
        }
        let queued: usize = self.lanes.values().map(VecDeque::len).sum();
        assert_eq!((self.queue.len(), self.by_age.len()), (queued, queued));
        let ready: Vec<u32> = (0..LANES).filter(|lane| self.is_ready(*lane)).collect();
        assert_eq!(self.queue.visits(4) > 0, !ready.is_empty(), "lanes {ready:?} are ready");
        assert_eq!(self.queue.waiting(), self.retries.len(), "lanes that wait to try again");
        // What the queue says of itself.
        let mut standing = Vec::new();
        for ready in &self.queue.ready {
            match ready {
                Ready::Lane(at) => standing.push(*at),
                Ready::Fresh(turn) => {
                    let visit = &self.queue.turns[turn.index()];
                    let fresh = visit.fresh.as_ref().unwrap();
                    let (rows, second) = visit.rows[fresh.head..].split_at(fresh.first);
                    let own = |at: &usize| self.queue.places[*at].turn == Some(*turn);
                    let all = rows.iter().chain(second).map(|row| row.index());
                    assert!(all.into_iter().all(|at| own(&at)), "closed");
                    standing.extend(rows.iter().map(|row| row.index()));
                }
            }
        }
        let once: BTreeSet<usize> = standing.iter().copied().collect();
        assert_eq!(once.len(), standing.len(), "a lane stands in line twice");
        assert_eq!(once.len(), self.queue.ready_lanes);
        let places = self.queue.places.iter().enumerate();
        assert!(places.clone().all(|(at, place)| !place.ready || once.contains(&at)));
        let work: usize =
            places.filter(|(_, place)| place.ready).map(|(_, place)| place.work()).sum();
        assert_eq!(self.queue.ready_work, work + self.queue.fresh);
        for lane in self.queue.take_retired() {
            assert!(lane.slot().is_none(), "a lane that has left stands nowhere");
            assert!(!lane.has_state(), "a lane with state keeps its place");
            self.keys.retire(lane);
        }
    }

    /// Nothing more comes, and all visits end: everything is taken, and nothing is left behind.
    fn drain(&mut self) {
        while !self.visits.is_empty() {
            self.done(0);
            self.check();
        }
        self.apply(Op::Ring { later_ns: 1_000_000_000 });
        while self.queue.len() > 0 {
            self.take(4, 1);
            self.check();
            self.done(0);
            self.check();
        }
        if let Some(handed_on) = &self.handed_on {
            assert_eq!(handed_on.to(), Some(self.watermark), "nothing holds event time any more");
        }
        let places = self.queue.places.iter().filter(|place| !place.ready);
        let without = places.filter_map(|place| place.lane.as_ref()).find(|lane| !lane.has_state());
        assert_eq!(without, None, "a lane with nothing to do and no state has a place");
        let resting = self.queue.take_resting();
        assert!(resting.iter().all(|lane| lane.has_state() && lane.slot().is_none()));
        assert!(resting.len() <= self.keys.count());
    }
}

fn follow(rules: LaneRules, ops: Vec<Op>) {
    follow_in(Model::new(rules, false), ops);
}

fn follow_in(mut model: Model, ops: Vec<Op>) {
    ops.into_iter().for_each(|op| model.apply(op));
    model.drain();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lanes_keep_order_exclusion_fair_rounds_and_every_event(ops in ops()) {
        follow(LaneRules::default(), ops);
    }

    #[test]
    fn events_come_with_the_watermark_they_found_and_hold_event_time(ops in ops()) {
        follow_in(Model::new(LaneRules::default(), true), ops);
    }

    #[test]
    fn a_full_lane_returns_the_event_and_nothing_else_changes(ops in ops(), most in 1..5_usize) {
        follow(LaneRules { lane_max: NonZeroUsize::new(most), ..LaneRules::default() }, ops);
    }

    #[test]
    fn events_that_wait_have_turns_of_their_own(ops in ops()) {
        follow(LaneRules { waits: true, ..LaneRules::default() }, ops);
    }
}

#[test]
fn events_that_came_together_are_served_in_rounds_and_one_lane_alone_as_they_came() {
    for (came, served) in
        [([0, 0, 0, 2, 3, 2], [0, 3, 4, 1, 5, 2]), ([5, 5, 5, 5, 5, 5], [0, 1, 2, 3, 4, 5])]
    {
        let mut model = Model::new(LaneRules::default(), true);
        model.push(&came, 0);
        model.take(16, 1);
        let taken: Vec<u32> = model.visits[0].events.iter().map(|(_, number)| *number).collect();
        assert_eq!(taken, served);
        model.drain();
    }
}
