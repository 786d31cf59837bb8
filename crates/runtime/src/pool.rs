//! Pools: threads that share their work. Who is in a pool's crew, who is to come and who to go; and
//! the line of other pools that ask it for threads.
//! Invariant: a pool that has stages is to have a thread. `target` is how many it is to have; members
//! that stay, and those on their way from other pools less those that need not come, add up to it.

use std::collections::VecDeque;
use std::sync::OnceLock;

use crate::path::ready::{Local, Shared};
use crate::sleep::{Sleep, Woken};
use crate::sync::{
    Acquire, Apart, Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, Release, SeqCst,
};

/// Threads that share their work.
pub(crate) struct Pool {
    pub(crate) index: usize,
    pub(crate) name: String,
    /// The cluster whose stages it runs.
    pub(crate) cluster: usize,
    pub(crate) shared: Apart<Shared>,
    pub(crate) sleep: Apart<Sleep>,
    /// Workers have ready queues of their own, and steal.
    own_queues: AtomicBool,
    crew: Apart<Mutex<Crew>>,
    /// Rises with every change of the crew; workers compare it once per visit.
    epoch: AtomicU64,
    /// Threads other pools ask for, in line; and how many lines there are.
    asks: Mutex<VecDeque<Ask>>,
    asked: AtomicUsize,
}

/// So many threads are wanted by a pool.
struct Ask {
    to: usize,
    threads: usize,
}

#[derive(Default)]
struct Crew {
    members: Arc<Vec<Arc<Member>>>,
    made: usize,
    /// Threads it should have, stand-ins apart: members that stay, and those on their way here.
    target: usize,
    /// So many of those on their way need not come any more.
    owed: usize,
}

/// One worker, as others see it.
pub(crate) struct Member {
    pub(crate) number: usize,
    pub(crate) local: Apart<Local>,
    pub(crate) woken: Arc<Woken>,
    pub(crate) leaving: AtomicBool,
    /// Since when it has been in one visit (nanoseconds; 0 if in none), and to which stage.
    pub(crate) since: AtomicU64,
    pub(crate) stage: AtomicU32,
    /// It stands in for a stuck one.
    pub(crate) stand_in: bool,
}

impl Pool {
    pub(crate) fn new(index: usize, name: String, cluster: usize) -> Self {
        Pool {
            index,
            name,
            cluster,
            shared: Apart::default(),
            sleep: Apart::default(),
            own_queues: AtomicBool::new(false),
            crew: Apart::default(),
            epoch: AtomicU64::new(1),
            asks: Mutex::default(),
            asked: AtomicUsize::new(0),
        }
    }

    /// Whether its workers have ready queues of their own.
    pub(crate) fn own_queues(&self) -> bool {
        self.own_queues.load(Acquire)
    }

    pub(crate) fn set_own_queues(&self, own: bool) {
        self.own_queues.store(own, Release);
    }

    pub(crate) fn members(&self) -> Arc<Vec<Arc<Member>>> {
        self.crew.lock().members.clone()
    }

    /// Adds a member to the crew; the caller gives it a thread.
    pub(crate) fn hire(&self, stand_in: bool) -> Arc<Member> {
        let mut crew = self.crew.lock();
        crew.target += usize::from(!stand_in);
        self.enlist(&mut crew, stand_in)
    }

    fn enlist(&self, crew: &mut Crew, stand_in: bool) -> Arc<Member> {
        let member = Arc::new(Member {
            number: crew.made,
            local: Apart::default(),
            woken: Arc::default(),
            leaving: AtomicBool::new(false),
            since: AtomicU64::new(0),
            stage: AtomicU32::new(0),
            stand_in,
        });
        crew.made += 1;
        let members = crew.members.iter().cloned().chain([member.clone()]).collect();
        crew.members = Arc::new(members);
        self.epoch.fetch_add(1, SeqCst);
        member
    }

    /// Tells `n` threads to leave, the last hired first; those on their way count.
    pub(crate) fn dismiss(&self, n: usize) {
        let mut crew = self.crew.lock();
        crew.target -= n.min(crew.target);
        let told = Self::tell(&crew, n, |member| !member.stand_in);
        crew.owed += n - told;
        drop(crew);
        self.sleep.wake_all();
    }

    /// Tells up to `n` stand-ins to leave.
    pub(crate) fn dismiss_stand_ins(&self, n: usize) {
        if n > 0 {
            Self::tell(&self.crew.lock(), n, |member| member.stand_in);
            self.sleep.wake_all();
        }
    }

    fn tell(crew: &Crew, n: usize, which: impl Fn(&Member) -> bool) -> usize {
        let staying = crew.members.iter().rev().filter(|m| !m.leaving.load(SeqCst) && which(m));
        staying.take(n).map(|member| member.leaving.store(true, SeqCst)).count()
    }

    /// Rises with every change of the crew.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    /// Whether another pool asks for threads.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(SeqCst) > 0
    }

    /// Threads it should have, stand-ins apart.
    pub(crate) fn threads(&self) -> usize {
        self.crew.lock().target
    }

    /// Asks this pool for threads on behalf of another. Both are to have that many fewer or more
    /// from now on. The caller has seen that there are so many.
    pub(crate) fn ask(&self, to: &Pool, threads: usize) {
        self.crew.lock().target -= threads;
        to.crew.lock().target += threads;
        let mut asks = self.asks.lock();
        asks.push_back(Ask { to: to.index, threads });
        self.asked.store(asks.len(), SeqCst);
        drop(asks);
        self.sleep.wake_all();
    }

    /// Takes back what is asked of this pool and not yet done.
    pub(crate) fn forget_asks(&self, pools: &Pools) {
        let mut asks = self.asks.lock();
        for Ask { to, threads } in asks.drain(..) {
            let mut taker = pools[to].crew.lock();
            // Some of them it may not have wanted any more.
            let unwanted = taker.owed.min(threads);
            taker.owed -= unwanted;
            taker.target -= threads - unwanted;
            drop(taker);
            self.crew.lock().target += threads;
        }
        self.asked.store(0, SeqCst);
    }

    /// Where a member is wanted instead, if it is. It has then left this crew.
    pub(crate) fn release(&self, member: &Arc<Member>) -> Option<usize> {
        let mut asks = self.asks.lock();
        let mut crew = self.crew.lock();
        if member.stand_in || member.leaving.load(SeqCst) {
            return None;
        }
        let Ask { to, threads } = asks.pop_front()?;
        if threads > 1 {
            asks.push_back(Ask { to, threads: threads - 1 }); // to the end: all are served evenly
        }
        self.asked.store(asks.len(), SeqCst);
        self.strike(&mut crew, member);
        Some(to)
    }

    /// A member that another pool let go arrives, if it is still wanted.
    pub(crate) fn join(&self) -> Option<Arc<Member>> {
        let mut crew = self.crew.lock();
        if crew.owed > 0 {
            crew.owed -= 1;
            return None;
        }
        Some(self.enlist(&mut crew, false))
    }

    fn strike(&self, crew: &mut Crew, member: &Arc<Member>) {
        let rest = crew.members.iter().filter(|other| !Arc::ptr_eq(other, member)).cloned();
        crew.members = Arc::new(rest.collect());
        self.epoch.fetch_add(1, SeqCst);
    }

    /// A member has left.
    pub(crate) fn gone(&self, member: &Arc<Member>) {
        self.strike(&mut self.crew.lock(), member);
    }
}

/// The pools of a program, by number. One that is made stays; one that is not needed any more is
/// empty and closed until it is used again.
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// Three pools; the first has so many threads.
    fn three(threads: usize) -> (Pools, Vec<Arc<Member>>) {
        let pools = Pools::new(3);
        for name in ["asked", "one", "other"] {
            pools.make(|_| name.to_owned(), 0);
        }
        let members = (0..threads).map(|_| pools[0].hire(false)).collect();
        (pools, members)
    }

    #[test]
    fn those_who_ask_for_threads_are_served_in_turn() {
        let (pools, members) = three(6);
        pools[0].ask(&pools[1], 3);
        pools[0].ask(&pools[2], 2);
        assert_eq!([0, 1, 2].map(|pool| pools[pool].threads()), [1, 3, 2]);
        let went: Vec<_> = members.iter().map(|member| pools[0].release(member)).collect();
        assert_eq!(went, [Some(1), Some(2), Some(1), Some(2), Some(1), None]);
        assert!(!pools[0].is_asked());
        assert_eq!(pools[0].members().len(), 1);
    }

    #[test]
    fn what_is_asked_and_taken_back_leaves_everybody_with_what_they_had() {
        let (pools, members) = three(4);
        pools[0].ask(&pools[1], 3);
        assert_eq!(pools[0].release(&members[0]), Some(1));
        pools[1].dismiss(3); // one is on its way, two are still asked for
        pools[0].forget_asks(&pools);
        assert_eq!([0, 1].map(|pool| pools[pool].threads()), [3, 0]);
        assert!(pools[1].join().is_none(), "it need not come any more");
        let hired = pools[1].hire(false);
        assert_eq!((pools[1].threads(), hired.number), (1, 0));
        assert!(pools[1].join().is_some(), "nobody is owed for what was taken back");
    }
}
