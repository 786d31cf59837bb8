//! Pools: how many workers of a cluster (`workers.rs`) may be in visits to their stages at once; a pool's
//! threads, as a policy counts them. A group has as many as its pools together, so whoever may enter a
//! pool finds a thread sooner or later, and a pool whose handlers wait keeps none of another's from its
//! work; but which thread it is does not matter, and the one that has the events in its cache goes first.
//!
//! A token that finds its pool full waits there; whoever leaves the pool lets the next one go.
//! Invariants: a pool that has stages is to have a thread. A token waits in a pool only while as many
//! visits as may be are there, or it has no threads yet: so someone will leave, or come. Who moves a
//! stage, or gives a pool up, says so first and then takes out what waits; who is about to wait looks
//! under the pool's lock whether that was said.
//!
//! Threads are counted, not named: with threads of its own for each pool, every chunk went from core to core
//! at every hop, and SEDA had 0.35 of the default's throughput on trivial stages, above 0.8 since
//! (`comporta-bench policies`).

use std::collections::VecDeque;
use std::fmt;
use std::sync::OnceLock;

use comporta_model::graph::StageId;

use crate::core::Core;
use crate::path::ready::Token;
use crate::sync::{CachePadded, Mutex, MutexGuard};

/// How many workers of a cluster may be in visits to its stages at once.
pub(crate) struct Pool {
    pub(crate) index: usize,
    pub(crate) name: String,
    /// The cluster whose stages it runs.
    pub(crate) cluster: usize,
    places: CachePadded<Mutex<Places>>,
}

#[derive(Debug, Default)]
struct Places {
    /// Threads it has, stand-ins apart, and those that are still to come from other pools.
    threads: usize,
    coming: usize,
    stand_ins: usize,
    /// Visits that are there.
    busy: usize,
    /// Tokens that wait for a visit to end, in the order in which they came.
    waiting: Vec<Waiting>,
    /// Threads that other pools asked for, in line.
    asks: VecDeque<ThreadRequest>,
}

/// A token that waits, and the priority of its stage.
#[derive(Debug)]
struct Waiting {
    priority: i32,
    token: Token,
}

/// So many threads that a pool wants of another.
#[derive(Debug)]
struct ThreadRequest {
    to: usize,
    threads: usize,
}

/// What came of a token that was to enter a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnterOutcome {
    /// Its visit can be made; the pool is then to be left.
    Entered,
    /// It waits here.
    Waits,
    /// It does not belong here any more.
    Moved,
}

impl Places {
    /// Threads that are to go.
    fn owed(&self) -> usize {
        self.asks.iter().map(|ask| ask.threads).sum()
    }

    fn free(&self) -> usize {
        (self.threads.saturating_sub(self.owed()) + self.stand_ins).saturating_sub(self.busy)
    }

    /// Who gets the next thread that has no visit, if there are both.
    fn next_ask(&mut self) -> Option<usize> {
        if self.threads <= self.busy {
            return None;
        }
        let ThreadRequest { to, threads } = self.asks.pop_front()?;
        if threads > 1 {
            self.asks.push_back(ThreadRequest { to, threads: threads - 1 }); // to the end: all are served evenly
        }
        self.threads -= 1;
        Some(to)
    }

    /// Lets go what now finds a place: by priority, and then in the order in which it came.
    fn let_go(&mut self, ready: &mut Vec<Token>) {
        for _ in 0..self.free() {
            let waiting = self.waiting.iter().enumerate();
            let Some((at, _)) = waiting.rev().max_by_key(|(_, waiting)| waiting.priority) else {
                return;
            };
            ready.push(self.waiting.remove(at).token);
        }
    }
}

impl Pool {
    pub(crate) fn new(index: usize, name: String, cluster: usize) -> Self {
        Pool { index, name, cluster, places: CachePadded::default() }
    }

    /// Threads it should have, stand-ins apart: those on their way here count, and those that are to
    /// go do not.
    pub(crate) fn threads(&self) -> usize {
        let places = self.places.lock();
        (places.threads + places.coming).saturating_sub(places.owed())
    }

    /// A token comes, with the `priority` that its stage has now; `belongs` returns whether it still
    /// should.
    pub(crate) fn enter(
        &self,
        token: Token,
        priority: impl FnOnce() -> i32,
        belongs: impl FnOnce() -> bool,
    ) -> EnterOutcome {
        let mut places = self.places.lock();
        if !belongs() {
            return EnterOutcome::Moved;
        }
        if places.free() == 0 {
            places.waiting.push(Waiting { priority: priority(), token });
            return EnterOutcome::Waits;
        }
        places.busy += 1;
        EnterOutcome::Entered
    }

    /// What waits of a stage has this priority from now on.
    pub(crate) fn rank(&self, stage: u32, priority: i32) {
        let mut places = self.places.lock();
        for waiting in places.waiting.iter_mut().filter(|waiting| waiting.token.stage == stage) {
            waiting.priority = priority;
        }
    }

    /// A visit has ended: its thread goes to the pool that asked first, or the next token may come.
    pub(crate) fn leave(&self, pools: &Pools, ready: &mut Vec<Token>) {
        let mut places = self.places.lock();
        places.busy -= 1;
        self.serve(places, pools, ready);
    }

    /// Hands over threads that are asked for and have no visit; then lets go what finds a place.
    fn serve<'a>(
        &'a self,
        mut places: MutexGuard<'a, Places>,
        pools: &Pools,
        ready: &mut Vec<Token>,
    ) {
        while let Some(to) = places.next_ask() {
            drop(places); // one pool at a time: two may ask each other
            pools[to].arrive(pools, ready);
            places = self.places.lock();
        }
        places.let_go(ready);
    }

    /// A thread that was asked for arrives, if it is still wanted.
    fn arrive(&self, pools: &Pools, ready: &mut Vec<Token>) {
        let mut places = self.places.lock();
        if places.coming > 0 {
            places.coming -= 1;
            places.threads += 1;
            self.serve(places, pools, ready);
        }
    }

    /// It has so many threads more.
    pub(crate) fn add(&self, n: usize, ready: &mut Vec<Token>) {
        let mut places = self.places.lock();
        places.threads += n;
        places.let_go(ready);
    }

    /// It has so many threads fewer; the caller has seen that there are so many, those on their way
    /// included. Visits that are there go on.
    pub(crate) fn cut(&self, n: usize) {
        let mut places = self.places.lock();
        let here = n.min(places.threads);
        places.threads -= here;
        places.coming -= n - here;
    }

    /// So many stand in for threads that are stuck in visits there.
    pub(crate) fn set_stand_ins(&self, n: usize, ready: &mut Vec<Token>) {
        let mut places = self.places.lock();
        places.stand_ins = n;
        places.let_go(ready);
    }

    /// Asks this pool for threads on behalf of another. Both are to have that many fewer or more
    /// from now on: those without a visit go at once, the others when theirs has ended. The caller has
    /// seen that there are so many.
    pub(crate) fn ask(&self, to: &Pool, threads: usize, pools: &Pools, ready: &mut Vec<Token>) {
        to.places.lock().coming += threads;
        let mut places = self.places.lock();
        places.asks.push_back(ThreadRequest { to: to.index, threads });
        self.serve(places, pools, ready);
    }

    /// Takes back what is asked of this pool and not yet done.
    pub(crate) fn forget_asks(&self, pools: &Pools) {
        let asks = std::mem::take(&mut self.places.lock().asks);
        for ThreadRequest { to, threads } in asks {
            let mut taker = pools[to].places.lock();
            let wanted = taker.coming.min(threads);
            taker.coming -= wanted;
            drop(taker);
            // What it did not want any more has left the workers already.
            self.cut(threads - wanted);
        }
    }

    /// Takes out what waits: it belongs elsewhere, or need not wait any more.
    pub(crate) fn take_waiting(&self, ready: &mut Vec<Token>) {
        ready.extend(self.places.lock().waiting.drain(..).map(|waiting| waiting.token));
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.index, self.name)?;
        self.places.lock().fmt(f)
    }
}

/// The pools of a program, by number. One that is made stays; one that is not needed any more
/// has no stages and no threads until it is used again.
pub(crate) struct Pools(Vec<OnceLock<Box<Pool>>>);

impl Pools {
    pub(crate) fn new(most: usize) -> Self {
        Pools((0..most).map(|_| OnceLock::new()).collect())
    }

    /// A new pool, unless there are as many as there may be.
    pub(crate) fn make(&self, name: impl Fn(usize) -> String, cluster: usize) -> Option<&Pool> {
        self.0.iter().enumerate().filter(|(_, slot)| slot.get().is_none()).find_map(
            |(index, slot)| {
                let pool = Box::new(Pool::new(index, name(index), cluster));
                slot.set(pool).ok().and_then(|()| slot.get()).map(|pool| &**pool)
            },
        )
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.0.iter().map_while(|slot| slot.get().map(|pool| &**pool))
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Pool> {
        self.0.get(index)?.get().map(|pool| &**pool)
    }
}

impl std::ops::Index<usize> for Pools {
    type Output = Pool;
    #[inline]
    fn index(&self, index: usize) -> &Pool {
        self.0[index].get().expect("a pool's number is known only after it was made")
    }
}

impl Core {
    /// The names of the stages that a pool runs.
    pub(crate) fn stages_in(&self, pool: &Pool) -> Vec<String> {
        let is_here = |id: &StageId| self.pool_of(id.0) == pool.index;
        let here =
            self.replicas.all().filter_map(|replicas| replicas.iter().find(|id| is_here(id)));
        here.map(|id| self.name(*id).to_owned()).collect()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::path::ready::Task;

    const STAYS: fn() -> bool = || true;

    fn token(stage: u32) -> Token {
        Token::new(stage, Task::Any)
    }

    /// Three pools; the first has so many threads, and as many visits.
    fn three(threads: usize) -> Pools {
        let pools = Pools::new(3);
        for name in ["asked", "one", "other"] {
            pools.make(|_| name.to_owned(), 0);
        }
        pools[0].add(threads, &mut Vec::new());
        for _ in 0..threads {
            assert_eq!(pools[0].enter(token(0), || 0, STAYS), EnterOutcome::Entered);
        }
        pools
    }

    fn threads(pools: &Pools) -> [usize; 3] {
        [0, 1, 2].map(|pool| pools[pool].threads())
    }

    /// How many visits each could have beside those it has.
    fn free(pools: &Pools) -> [usize; 3] {
        [0, 1, 2].map(|pool| pools[pool].places.lock().free())
    }

    fn leave(pools: &Pools, pool: usize) -> Vec<Token> {
        let mut ready = Vec::new();
        pools[pool].leave(pools, &mut ready);
        ready
    }

    #[test]
    fn a_token_waits_while_there_are_as_many_visits_as_threads() {
        let pools = three(2);
        assert_eq!(pools[0].enter(token(1), || 0, STAYS), EnterOutcome::Waits);
        assert_eq!(pools[0].enter(token(2), || 0, STAYS), EnterOutcome::Waits);
        assert_eq!(pools[0].enter(token(3), || 0, || false), EnterOutcome::Moved);
        assert_eq!(leave(&pools, 0), [token(1)]);
        pools[0].cut(1);
        assert_eq!(
            pools[0].enter(token(1), || 0, STAYS),
            EnterOutcome::Waits,
            "one thread, one visit"
        );
        let mut ready = Vec::new();
        pools[0].set_stand_ins(1, &mut ready);
        assert_eq!(ready, [token(2)]);
        pools[0].take_waiting(&mut ready);
        assert_eq!(ready, [token(2), token(1)]);
    }

    #[test]
    fn what_waits_goes_on_by_priority_and_then_in_the_order_in_which_it_came() {
        let pools = three(1);
        for (stage, priority) in [(1, 0), (2, 5), (3, 0), (4, 5), (5, -1)] {
            assert_eq!(pools[0].enter(token(stage), || priority, STAYS), EnterOutcome::Waits);
        }
        let mut order = Vec::new();
        for _ in 0..5 {
            let went = leave(&pools, 0);
            assert_eq!(pools[0].enter(went[0], || 0, STAYS), EnterOutcome::Entered);
            order.extend(went.iter().map(|token| token.stage));
        }
        assert_eq!(order, [2, 4, 1, 3, 5]);
    }

    #[test]
    fn what_waits_goes_by_the_priority_that_its_stage_has_meanwhile() {
        let pools = three(1);
        for (stage, priority) in [(1, 5), (2, 0), (3, 0), (2, 0)] {
            assert_eq!(pools[0].enter(token(stage), || priority, STAYS), EnterOutcome::Waits);
        }
        pools[0].rank(2, 9);
        pools[0].rank(1, -1);
        let mut order = Vec::new();
        for _ in 0..4 {
            let went = leave(&pools, 0);
            assert_eq!(pools[0].enter(went[0], || 0, STAYS), EnterOutcome::Entered);
            order.extend(went.iter().map(|token| token.stage));
        }
        assert_eq!(order, [2, 2, 3, 1]);
    }

    #[test]
    fn those_who_ask_for_threads_are_served_in_turn_as_visits_end() {
        let pools = three(6);
        let mut ready = Vec::new();
        pools[0].ask(&pools[1], 3, &pools, &mut ready);
        pools[0].ask(&pools[2], 2, &pools, &mut ready);
        assert_eq!((threads(&pools), free(&pools)), ([1, 3, 2], [0, 0, 0]));
        let served: Vec<_> = (0..6).map(|_| (leave(&pools, 0), free(&pools)).1).collect();
        assert_eq!(served, [[0, 1, 0], [0, 1, 1], [0, 2, 1], [0, 2, 2], [0, 3, 2], [1, 3, 2]]);
        assert_eq!(threads(&pools), [1, 3, 2]);
    }

    #[test]
    fn a_thread_without_a_visit_goes_at_once_and_takes_what_waits() {
        let pools = three(1);
        pools[0].add(1, &mut Vec::new());
        assert_eq!(
            pools[1].enter(token(7), || 0, STAYS),
            EnterOutcome::Waits,
            "it has no thread yet"
        );
        let mut ready = Vec::new();
        pools[0].ask(&pools[1], 1, &pools, &mut ready);
        assert_eq!((ready, threads(&pools)), (vec![token(7)], [1, 1, 0]));
    }

    #[test]
    fn a_thread_that_is_on_its_way_can_be_asked_for_and_two_can_ask_each_other() {
        let pools = three(2);
        let mut ready = Vec::new();
        pools[0].ask(&pools[1], 2, &pools, &mut ready);
        pools[1].ask(&pools[2], 1, &pools, &mut ready);
        pools[1].ask(&pools[0], 1, &pools, &mut ready);
        assert_eq!((threads(&pools), free(&pools)), ([1, 0, 1], [0, 0, 0]));
        leave(&pools, 0);
        assert_eq!(free(&pools), [0, 0, 1]);
        leave(&pools, 0);
        assert_eq!((threads(&pools), free(&pools)), ([1, 0, 1], [1, 0, 1]));
    }

    #[test]
    fn what_is_not_wanted_any_more_may_still_be_on_its_way_through_another_pool() {
        let pools = three(1);
        let mut ready = Vec::new();
        pools[0].ask(&pools[1], 1, &pools, &mut ready);
        pools[1].ask(&pools[2], 1, &pools, &mut ready);
        pools[2].cut(1);
        for pool in [1, 0, 2] {
            pools[pool].forget_asks(&pools);
        }
        assert_eq!(threads(&pools), [0, 0, 0]);
        leave(&pools, 0);
        assert_eq!(free(&pools), [0, 0, 0]);
    }

    #[test]
    fn what_is_asked_and_taken_back_leaves_everybody_with_what_they_had() {
        let pools = three(4);
        pools[0].ask(&pools[1], 3, &pools, &mut Vec::new());
        leave(&pools, 0); // one arrives, two are still asked for
        pools[1].cut(2); // the one that is there, and one that was to come
        pools[0].forget_asks(&pools);
        assert_eq!(threads(&pools), [2, 0, 0]);
        leave(&pools, 0);
        assert_eq!((threads(&pools), free(&pools)), ([2, 0, 0], [0, 0, 0]));
        leave(&pools, 0);
        assert_eq!(free(&pools), [1, 0, 0]);
    }
}
