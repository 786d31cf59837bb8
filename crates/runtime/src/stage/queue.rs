//! Hop 3, enqueue: the queue behind a stage. It comes in kinds; the one in memory is first in first out.
//! Before: `permits`. After: `instances`, which makes the tokens that are now due.
//!
//! Everything here runs under the stage's lock: no user code and no I/O. What a kind needs of an event
//! (its key, its encoding) is computed before.
//!
//! A turn is over when its instance is idle again: not while an event waits to be retried, nor while results
//! wait in an outbox, where those of the next visit to the same lane would overtake them; nor while its event is
//! in flight. Events that are shed
//! or cancelled are removed, not taken, because a lane with a visit gives no turns.

use comporta_model::chunk::{Chunk, ChunkQueue, Slots};
use comporta_model::column::{Columns, Duty};
use comporta_model::event::Meta;

/// The events of a stage that wait for a visit.
pub(crate) trait EventQueue<T>: Send {
    /// Events in it.
    fn len(&self) -> usize;

    /// Visits that could be made now, of `stride` events each: fewer where some events wait for others.
    fn visits(&self, stride: usize) -> usize {
        let len = self.len();
        if len <= stride { usize::from(len > 0) } else { len.div_ceil(stride) }
    }

    /// Adds events, with what each carries of its own. Returns storage for the giver to go on with, from a
    /// free list if it is `short` of any.
    fn push(&mut self, meta: &Meta, columns: Columns, slots: Slots<T>, short: bool) -> Slots<T>;

    /// Takes up to `max` events that share one `Meta`, from the given end. They need not be a prefix:
    /// what is taken together is what one visit may handle.
    fn take(&mut self, max: usize, from: Side) -> Option<Taken<T>>;

    /// Takes out up to `max` events that end here, from the given end: shed, or cancelled by a stop. Those
    /// that wait for others can be removed too.
    fn remove(&mut self, max: usize, from: Side) -> Option<Chunk<T>>;

    /// Whether turns mean something to it: events wait for visits to others to be over. Of a stage whose
    /// handlers wait, visits then take one event, and an event in flight has its turn until it has landed.
    fn has_turns(&self) -> bool {
        false
    }

    /// A visit is over, and with it what others waited for: all it took has settled or was put back, and
    /// all it sent has entered the next queue.
    fn done(&mut self, turn: Turn) {
        let _ = turn;
    }

    /// Puts back what a visit did not come to, where it was taken.
    fn put_back(&mut self, chunk: Chunk<T>, from: Side);

    /// The oldest events, as far as they share everything.
    fn oldest(&self) -> Option<Oldest<'_>>;

    /// Keeps emptied storage for later use, up to a bound.
    fn recycle(&mut self, storage: Slots<T>);

    /// Somebody decides by how long its events have waited: those who come from now on are mixed less.
    fn set_guarded(&mut self, guarded: bool);
}

/// What a visit takes.
pub(crate) struct Taken<T> {
    pub(crate) chunk: Chunk<T>,
    pub(crate) turn: Turn,
}

/// The oldest events of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Oldest<'a> {
    pub(crate) meta: &'a Meta,
    pub(crate) duty: &'a Duty,
    pub(crate) n: usize,
}

/// By which a queue knows a visit again that it has to hear of; queues that need not do with the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Turn(pub(crate) u64);

/// An end of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Oldest,
    Newest,
}

impl<T: Send> EventQueue<T> for ChunkQueue<T> {
    fn len(&self) -> usize {
        ChunkQueue::len(self)
    }

    fn push(&mut self, meta: &Meta, columns: Columns, slots: Slots<T>, short: bool) -> Slots<T> {
        ChunkQueue::push(self, meta, columns, slots, short)
    }

    fn take(&mut self, max: usize, from: Side) -> Option<Taken<T>> {
        let chunk = match from {
            Side::Oldest => self.pop(max),
            Side::Newest => self.pop_last(max),
        };
        chunk.map(|chunk| Taken { chunk, turn: Turn::default() })
    }

    fn remove(&mut self, max: usize, from: Side) -> Option<Chunk<T>> {
        self.take(max, from).map(|taken| taken.chunk)
    }

    fn put_back(&mut self, chunk: Chunk<T>, from: Side) {
        match from {
            Side::Oldest => self.push_front(chunk),
            Side::Newest => self.push_last(chunk),
        }
    }

    fn oldest(&self) -> Option<Oldest<'_>> {
        self.first().map(|chunk| {
            let (duty, n) = chunk.first_duty();
            Oldest { meta: &chunk.meta, duty, n }
        })
    }

    fn recycle(&mut self, storage: Slots<T>) {
        ChunkQueue::recycle(self, storage);
    }

    fn set_guarded(&mut self, guarded: bool) {
        ChunkQueue::set_guarded(self, guarded);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    //! A spike: a queue of another kind behind the same stage, lanes by key. It shows that a turn need not
    //! be a prefix, that fewer visits may be possible than there are events, and that a lane stays closed
    //! until its visit is over, across retries. The key stands in a column: the queue calls no user code.

    use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use comporta_model::error::Error;
    use comporta_model::plan::Plan;
    use comporta_model::port::Out;

    use super::*;
    use crate::app::App;
    use crate::running::{Ended, Running, Summary};
    use crate::sync::{Arc, Mutex};

    /// What has no key has a lane too.
    type Lane = Option<u64>;

    #[derive(Default)]
    struct Lanes {
        lanes: BTreeMap<Lane, VecDeque<(Meta, Columns, u64)>>,
        /// Lanes with events and no visit, in the order in which they are served.
        ready: VecDeque<Lane>,
        /// Lanes with a visit.
        busy: HashMap<Turn, Lane>,
        turns: u64,
        len: usize,
        put_back: Arc<AtomicUsize>,
    }

    impl Lanes {
        fn make_ready(&mut self, lane: Lane) {
            let waits = self.lanes.get(&lane).is_some_and(|events| !events.is_empty());
            let busy = self.busy.values().any(|busy| *busy == lane);
            if waits && !busy && !self.ready.contains(&lane) {
                self.ready.push_back(lane);
            }
        }

        fn take_from(&mut self, lane: Lane, max: usize) -> Option<Chunk<u64>> {
            let events = self.lanes.get_mut(&lane)?;
            let (meta, columns, first) = events.pop_front()?;
            let mut chunk = Chunk::with_columns(meta, columns, vec![Some(first)]);
            while chunk.len() < max
                && let Some((meta, columns, event)) = events.pop_front()
            {
                chunk.append(&meta, columns, &mut vec![Some(event)]);
            }
            self.len -= chunk.len();
            Some(chunk)
        }
    }

    impl EventQueue<u64> for Lanes {
        fn len(&self) -> usize {
            self.len
        }

        fn visits(&self, _: usize) -> usize {
            self.ready.len()
        }

        fn push(
            &mut self,
            meta: &Meta,
            mut columns: Columns,
            mut slots: Slots<u64>,
            _: bool,
        ) -> Slots<u64> {
            for event in slots.drain(..).flatten() {
                let own = columns.split_front(1);
                let lane = own.keys(1).next().flatten();
                self.lanes.entry(lane).or_default().push_back((meta.clone(), own, event));
                self.len += 1;
                self.make_ready(lane);
            }
            slots
        }

        fn take(&mut self, max: usize, _: Side) -> Option<Taken<u64>> {
            let lane = self.ready.pop_front()?;
            let chunk = self.take_from(lane, max)?;
            self.turns += 1;
            let turn = Turn(self.turns);
            self.busy.insert(turn, lane);
            Some(Taken { chunk, turn })
        }

        fn remove(&mut self, max: usize, _: Side) -> Option<Chunk<u64>> {
            let lane = *self.lanes.iter().find(|(_, events)| !events.is_empty())?.0;
            let chunk = self.take_from(lane, max);
            self.ready.retain(|ready| !self.lanes[ready].is_empty());
            chunk
        }

        fn has_turns(&self) -> bool {
            true
        }

        fn done(&mut self, turn: Turn) {
            if let Some(lane) = self.busy.remove(&turn) {
                self.make_ready(lane);
            }
        }

        fn put_back(&mut self, mut chunk: Chunk<u64>, _: Side) {
            let meta = chunk.meta.clone();
            let mut events: Vec<_> = std::iter::from_fn(|| chunk.pop_front()).collect();
            self.put_back.fetch_add(events.len(), SeqCst);
            while let Some((event, own)) = events.pop() {
                let lane = self.lanes.entry(own.keys(1).next().flatten()).or_default();
                lane.push_front((meta.clone(), own, event));
                self.len += 1;
            }
        }

        fn oldest(&self) -> Option<Oldest<'_>> {
            let (meta, columns, _) = self.lanes.get(self.ready.front()?)?.front()?;
            let duty = columns.duties().and_then(|duties| duties.first());
            Some(Oldest { meta, duty: duty.map_or(&meta.duty, |(duty, _)| duty), n: 1 })
        }

        fn recycle(&mut self, _: Slots<u64>) {}
        fn set_guarded(&mut self, _: bool) {}
    }

    const KEYS: u64 = 3;
    const BOUND: Duration = Duration::from_secs(30);

    /// The lane of a number: none for some, whose key cannot be had.
    fn lane(n: u64) -> Lane {
        Some(n % (KEYS + 1)).filter(|key| *key < KEYS)
    }

    fn key(n: &u64) -> u64 {
        lane(*n).expect("this event has no key")
    }

    fn complete(running: Running) -> Summary {
        let summary = running.wait_for(BOUND).unwrap_or_else(|_| panic!("a lane is stuck"));
        assert_eq!(summary.ended, Ended::Complete);
        assert!(summary.snapshot.adds_up(), "{summary}");
        summary
    }

    /// Visits to lanes: two to one at once are a fault.
    #[derive(Clone, Default)]
    struct Visits {
        inside: Arc<Mutex<HashSet<Lane>>>,
        seen: Arc<Mutex<BTreeMap<Lane, Vec<u64>>>>,
    }

    impl Visits {
        fn enter(&self, n: u64) {
            assert!(self.inside.lock().insert(lane(n)), "two visits to one lane");
        }

        fn leave(&self, n: u64, handled: bool) {
            if handled {
                self.seen.lock().entry(lane(n)).or_default().push(n);
            }
            self.inside.lock().remove(&lane(n));
        }

        /// Each lane has seen its own, in order.
        fn assert_in_order(&self, numbers: u64) {
            let seen = self.seen.lock();
            assert_eq!(seen.len(), KEYS as usize + 1);
            for (of, seen) in &*seen {
                let own = (0..numbers).filter(|n| lane(*n) == *of);
                assert!(seen.iter().copied().eq(own), "{of:?}: {seen:?}");
            }
        }
    }

    #[test]
    fn lanes_by_key_run_side_by_side_and_each_in_order_across_retries() {
        let visits = Visits::default();
        let (all_at_once, of) = (Arc::new(Barrier::new(KEYS as usize + 1)), visits.clone());
        let failed = Arc::new(Mutex::new(HashSet::new()));
        let app = App::new("lanes");
        let numbers = app.source("numbers", || 0..300_u64);
        let work = app.sink("work", move |n: u64| {
            of.enter(n);
            if n <= KEYS {
                all_at_once.wait(); // the first of each lane wait for each other
            }
            let fails = n % 7 == 4 && failed.lock().insert(n);
            of.leave(n, !fails);
            if fails { Err(Error::msg("once")) } else { Ok(()) }
        });
        app.connect(numbers, work.with_queue(Box::new(Lanes::default()), key));
        let wait = Duration::from_micros(50);
        let plan =
            Plan::new().threads(4).stage("work", |work| work.instances(4).tries(3).backoff(wait));
        let summary = complete(app.start(&plan).unwrap());
        let counts = summary.snapshot.stage("work").unwrap().counts;
        assert_eq!((counts.handled, counts.failed), (300, 0), "{summary}");
        visits.assert_in_order(300);
        let problems = &summary.problems;
        assert_eq!(problems.len(), 75, "each key that cannot be had is reported");
        assert!(problems[0].contains("this event has no key"), "{problems:?}");
    }

    #[test]
    fn a_key_stays_with_its_event_in_an_outbox_and_when_it_is_put_back() {
        const NUMBERS: u64 = 2_000;
        let visits = Visits::default();
        let (of, ends) = (visits.clone(), Visits::default());
        let (put_back, at_end) = (Arc::new(AtomicUsize::new(0)), ends.clone());
        let lanes = Lanes { put_back: put_back.clone(), ..Lanes::default() };
        let keys = Arc::new(AtomicUsize::new(0));
        let computed = keys.clone();
        let app = App::new("lanes");
        let numbers = app.source("numbers", || 0..NUMBERS);
        let pass = app.process("pass", move |n: u64, out: &mut Out<u64>| {
            of.enter(n);
            out.send(n); // more than there is room for: the visit stops, and puts the rest back
            of.leave(n, true);
        });
        let end = app.sink("end", move |n: u64| {
            at_end.enter(n);
            at_end.leave(n, true);
        });
        let pass = pass.with_queue(Box::new(lanes), move |n| {
            computed.fetch_add(1, SeqCst);
            key(n)
        });
        app.connect(numbers, pass);
        app.connect(pass, end);
        let plan = Plan::new().threads(2).stage("pass", |pass| pass.instances(2).capacity(32));
        let summary = complete(app.start(&plan.stage("end", |end| end.capacity(2))).unwrap());
        assert_eq!(summary.snapshot.stage("end").unwrap().counts.handled, NUMBERS);
        visits.assert_in_order(NUMBERS);
        ends.assert_in_order(NUMBERS);
        assert!(put_back.load(SeqCst) > 0, "nothing was put back");
        assert_eq!(keys.load(SeqCst), NUMBERS as usize, "a key is computed once");
    }

    #[test]
    fn a_lane_stays_closed_while_its_event_is_in_flight_and_its_results_wait_for_room() {
        const NUMBERS: u64 = 600;
        let (visits, ends) = (Visits::default(), Visits::default());
        let (of, at_end) = (visits.clone(), ends.clone());
        let app = App::new("lanes");
        let numbers = app.source("numbers", || 0..NUMBERS);
        let work = app.map_async("work", move |n: u64| {
            let of = of.clone();
            async move {
                of.enter(n);
                let mut left = n % 4;
                std::future::poll_fn(|cx| {
                    if left == 0 {
                        return std::task::Poll::Ready(());
                    }
                    left -= 1;
                    cx.waker().wake_by_ref();
                    std::task::Poll::Pending
                })
                .await;
                of.leave(n, true);
                n
            }
        });
        let end = app.sink("end", move |n: u64| {
            at_end.enter(n);
            at_end.leave(n, true);
        });
        app.connect(numbers, work.with_queue(Box::new(Lanes::default()), key));
        app.connect(work, end);
        let plan = Plan::new().threads(3).stage("work", |work| work.instances(8));
        let summary = complete(app.start(&plan.stage("end", |end| end.capacity(1))).unwrap());
        let counts = summary.snapshot.stage("work").unwrap().counts;
        assert_eq!((counts.handled, counts.failed), (NUMBERS, 0), "{summary}");
        visits.assert_in_order(NUMBERS);
        ends.assert_in_order(NUMBERS);
    }

    #[test]
    fn a_stop_cancels_what_stands_in_a_lane_that_is_closed() {
        let app = App::new("lanes");
        let numbers = app.source("numbers", || 0..40_u64);
        let (failing, fails) = std::sync::mpsc::channel();
        let work = app.sink("work", move |_: u64| {
            let _ = failing.send(());
            Err::<(), _>(Error::msg("always"))
        });
        app.connect(numbers, work.with_queue(Box::new(Lanes::default()), |n| n % 2));
        let plan = Plan::new().stage("work", |work| work.tries(9).backoff(BOUND));
        let running = app.start(&plan.threads(2)).unwrap();
        fails.recv().unwrap();
        let summary = running.stop();
        let work = summary.snapshot.stage("work").unwrap();
        assert!(work.adds_up() && work.queued == 0, "{work:?}");
    }
}
