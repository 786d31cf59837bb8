//! Hop 3, enqueue: the queue behind a stage. It comes in kinds; the one in memory is first in first out.
//! Before: `permits`. After: `instances`, which makes the tokens that are now due.
//!
//! Everything here runs under the stage's lock: no user code and no I/O. What a kind needs of an event
//! (its key, its encoding) is computed before.

use comporta_model::chunk::{Chunk, ChunkQueue, Slots};
use comporta_model::column::{Columns, Duty};
use comporta_model::event::Meta;

/// The events of a stage that wait for a visit.
pub(crate) trait EventQueue<T>: Send {
    /// Events in it.
    fn len(&self) -> usize;

    /// Visits that could be made now, of `stride` events each: fewer where some events wait for others.
    fn visits(&self, stride: usize) -> usize {
        self.len().div_ceil(stride)
    }

    /// Adds events, with what each carries of its own. Returns storage for the giver to go on with, from a
    /// free list if it is `short` of any.
    fn push(&mut self, meta: &Meta, columns: Columns, slots: Slots<T>, short: bool) -> Slots<T>;

    /// Takes up to `max` events that share one `Meta`, from the given end. They need not be a prefix:
    /// what is taken together is what one visit may handle.
    fn take(&mut self, max: usize, from: Side) -> Option<Taken<T>>;

    /// A visit is over, and with it what others waited for: all it took has settled, or was put back.
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
    //! until its visit is over, across retries. What it taught: the key has to travel with the event, so
    //! that it is not computed under the stage's lock as it is here.

    use std::collections::{BTreeMap, HashSet, VecDeque};
    use std::sync::{Arc, Barrier, Mutex};

    use comporta_model::error::Error;
    use comporta_model::plan::Plan;

    use super::*;
    use crate::app::App;
    use crate::running::Ended;

    struct Lanes {
        key: fn(&u64) -> u64,
        lanes: BTreeMap<u64, VecDeque<(Meta, u64)>>,
        /// Lanes with events and no visit, in the order in which they are served.
        ready: VecDeque<u64>,
        busy: HashSet<u64>,
        len: usize,
    }

    impl Lanes {
        fn boxed(key: fn(&u64) -> u64) -> Box<Self> {
            let (lanes, ready, busy) = (BTreeMap::new(), VecDeque::new(), HashSet::new());
            Box::new(Lanes { key, lanes, ready, busy, len: 0 })
        }

        fn make_ready(&mut self, lane: u64) {
            let waits = self.lanes.get(&lane).is_some_and(|events| !events.is_empty());
            if waits && !self.busy.contains(&lane) && !self.ready.contains(&lane) {
                self.ready.push_back(lane);
            }
        }
    }

    impl EventQueue<u64> for Lanes {
        fn len(&self) -> usize {
            self.len
        }

        fn visits(&self, _: usize) -> usize {
            self.ready.len()
        }

        fn push(&mut self, meta: &Meta, _: Columns, mut slots: Slots<u64>, _: bool) -> Slots<u64> {
            for event in slots.drain(..).flatten() {
                let lane = (self.key)(&event);
                self.lanes.entry(lane).or_default().push_back((meta.clone(), event));
                self.len += 1;
                self.make_ready(lane);
            }
            slots
        }

        fn take(&mut self, max: usize, _: Side) -> Option<Taken<u64>> {
            let lane = self.ready.pop_front()?;
            let events = self.lanes.get_mut(&lane)?;
            let (meta, first) = events.pop_front()?;
            let mut chunk = Chunk::new(meta, vec![Some(first)]);
            while chunk.len() < max
                && let Some((meta, event)) = events.pop_front()
            {
                chunk.append(&meta, Columns::default(), &mut vec![Some(event)]);
            }
            self.busy.insert(lane);
            self.len -= chunk.len();
            Some(Taken { chunk, turn: Turn(lane) })
        }

        fn done(&mut self, Turn(lane): Turn) {
            self.busy.remove(&lane);
            self.make_ready(lane);
        }

        fn put_back(&mut self, chunk: Chunk<u64>, _: Side) {
            let (meta, _, events) = chunk.into_parts();
            for event in events.into_iter().flatten().rev() {
                let lane = self.lanes.entry((self.key)(&event)).or_default();
                lane.push_front((meta.clone(), event));
                self.len += 1;
            }
        }

        fn oldest(&self) -> Option<Oldest<'_>> {
            let (meta, _) = self.lanes.get(self.ready.front()?)?.front()?;
            Some(Oldest { meta, duty: &meta.duty, n: 1 })
        }

        fn recycle(&mut self, _: Slots<u64>) {}
        fn set_guarded(&mut self, _: bool) {}
    }

    const KEYS: u64 = 3;

    #[test]
    fn lanes_by_key_run_side_by_side_and_each_in_order_across_retries() {
        let seen: Arc<Mutex<Vec<Vec<u64>>>> = Arc::new(Mutex::new(vec![Vec::new(); KEYS as usize]));
        let (all_at_once, see) = (Arc::new(Barrier::new(KEYS as usize)), seen.clone());
        let inside = Arc::new(Mutex::new(HashSet::new()));
        let failed = Arc::new(Mutex::new(HashSet::new()));
        let app = App::new("lanes");
        let numbers = app.source("numbers", || 0..300_u64);
        let work = app.sink("work", move |n: u64| {
            let lane = n % KEYS;
            assert!(inside.lock().unwrap().insert(lane), "two visits to one lane");
            if n < KEYS {
                all_at_once.wait(); // the first of each lane wait for each other
            }
            let fails = n % 7 == 3 && failed.lock().unwrap().insert(n);
            if !fails {
                see.lock().unwrap()[lane as usize].push(n);
            }
            inside.lock().unwrap().remove(&lane);
            if fails { Err(Error::msg("once")) } else { Ok(()) }
        });
        let work = work.with_queue(|| Lanes::boxed(|n| n % KEYS));
        app.connect(numbers, work);
        let wait = std::time::Duration::from_micros(50);
        let plan =
            Plan::new().threads(4).stage("work", |work| work.instances(4).tries(3).backoff(wait));
        let running = app.start(&plan).unwrap();
        let summary =
            running.wait_for(std::time::Duration::from_secs(30)).expect("no lane is stuck");
        assert_eq!(summary.ended, Ended::Complete);
        let counts = summary.snapshot.stage("work").unwrap().counts;
        assert_eq!((counts.handled, counts.failed), (300, 0), "{summary}");
        for (lane, seen) in (0..KEYS).zip(&*seen.lock().unwrap()) {
            assert!(seen.iter().copied().eq((lane..300).step_by(KEYS as usize)), "{seen:?}");
        }
    }
}
