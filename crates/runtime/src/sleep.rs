//! Waiting and waking: how an idle worker goes to sleep without missing work.
//!
//! The protocol (`announce`, recheck, `commit` or `cancel`):
//! * a worker that found nothing counts itself among the *sleepers*, leaves the *searchers*, and
//!   then looks once more into every queue, for what it may take there, before it parks;
//! * whoever made work looks, after making it, whether anyone searches; if not, and someone
//!   sleeps, it wakes one, who counts as searching from that moment;
//! * a searcher that found work leaves the searchers and, if there is more, wakes the next.
//!
//! Either the maker sees no searcher and wakes a sleeper, or the searcher's last look comes after
//! the work was made and finds it. Both sides use sequentially consistent operations for this.
//!
//! Where a program has more threads than there are processors, nobody is woken while as many are
//! *up* as there are processors, and one of them is of this group: awake, and not in a visit that takes
//! long. Who is up looks for work before it ceases to be: before it sleeps, before a visit to a slow
//! stage, and before it leaves. Or the clock looks after it (`Timers::hurry`), and finds that its visit
//! takes longer than it should.

use std::fmt;
use std::time::Duration;

use comporta_model::event::Time;

use crate::env::{move_over, processor};
use crate::path::work::is_worker;
use crate::sync::{
    Arc, AtomicBool, AtomicUsize, CachePadded, Mutex, Relaxed, SeqCst, Thread, fence, spin, thread,
};
use crate::timer::Timers;

const SPINS: u32 = if cfg!(shuttle) { 1 } else { 16 };
/// How often an idle worker looks around before it sleeps: ten microseconds in all, or less.
const LOOKS: u32 = if cfg!(shuttle) { 1 } else { 24 };
/// How often it yields to others, where there are more than processors.
const YIELDS: u32 = if cfg!(shuttle) { 1 } else { 8 };

/// The sleepers and searchers of one workers.
pub(crate) struct Sleep {
    sleepers: Mutex<Vec<Sleeper>>,
    sleeping: AtomicUsize,
    searching: AtomicUsize,
    /// All workers of the group.
    workers: AtomicUsize,
    /// Those of them that will look for work soon.
    up: AtomicUsize,
    awake: Arc<Awake>,
}

/// A worker that sleeps, or is about to.
struct Sleeper {
    woken: Arc<Woken>,
    thread: Thread,
    /// Where it ran last.
    processor: Option<usize>,
}

/// Whom to wake: the one that fell asleep last, of whose data most is still in a cache. But a worker
/// that goes on itself, `here`, wakes one that ran elsewhere, if there is any: a system with few
/// processors may not look for one that is idle, and have the two take turns on this one.
fn whom(sleepers: &[Sleeper], here: Option<usize>) -> Option<usize> {
    let elsewhere = sleepers.iter().rposition(|sleeper| sleeper.processor != here);
    elsewhere.filter(|_| here.is_some()).or_else(|| sleepers.len().checked_sub(1))
}

/// Of one worker: set by whoever wakes it.
#[derive(Default)]
pub(crate) struct Woken(AtomicBool);

impl Sleep {
    pub(crate) fn new(awake: Arc<Awake>) -> Self {
        Sleep {
            sleepers: Mutex::default(),
            sleeping: AtomicUsize::new(0),
            searching: AtomicUsize::new(0),
            workers: AtomicUsize::new(0),
            up: AtomicUsize::new(0),
            awake,
        }
    }

    /// So many workers are in the group.
    pub(crate) fn set_workers(&self, workers: usize) {
        self.workers.store(workers, Relaxed);
    }

    /// A worker begins to work, or goes on.
    pub(crate) fn up(&self) {
        self.awake.threads.fetch_add(1, SeqCst);
        self.up.fetch_add(1, SeqCst);
    }

    /// A worker sleeps, ends, or will be away for long. It must look for work after this.
    pub(crate) fn down(&self) {
        let before = self.up.fetch_sub(1, SeqCst);
        debug_assert!(before > 0, "more went down than were up");
        self.awake.threads.fetch_sub(1, SeqCst);
    }

    /// This worker begins to search, unless half of the `workers` do already.
    pub(crate) fn begin_search(&self, workers: usize) -> bool {
        if self.searching.load(SeqCst) * 2 >= workers.max(2) {
            return false;
        }
        self.searching.fetch_add(1, SeqCst);
        true
    }

    /// This worker searched, and found something or leaves.
    pub(crate) fn end_search(&self) {
        self.searching.fetch_sub(1, SeqCst);
    }

    /// This worker will sleep unless a last look finds work. The caller must look after this.
    pub(crate) fn announce(&self, woken: &Arc<Woken>, searching: bool) {
        let (woken, thread, processor) = (woken.clone(), thread::current(), processor());
        self.sleepers.lock().push(Sleeper { woken, thread, processor });
        self.sleeping.fetch_add(1, SeqCst);
        if searching {
            self.searching.fetch_sub(1, SeqCst);
        }
        fence(SeqCst);
    }

    /// The last look found work. Returns whether the worker now counts as searching, because someone
    /// woke it meanwhile.
    pub(crate) fn cancel(&self, woken: &Arc<Woken>) -> bool {
        let mut sleepers = self.sleepers.lock();
        if let Some(at) = sleepers.iter().position(|one| Arc::ptr_eq(&one.woken, woken)) {
            sleepers.swap_remove(at);
            self.sleeping.fetch_sub(1, SeqCst);
            return false;
        }
        drop(sleepers);
        self.commit(woken);
        true
    }

    /// The last look found nothing: sleeps until woken. The worker then counts as searching.
    pub(crate) fn commit(&self, woken: &Woken) {
        while !woken.0.swap(false, SeqCst) {
            thread::park();
        }
    }

    /// After work was made: sees to it that someone finds it.
    pub(crate) fn work_made(&self) {
        fence(SeqCst);
        if self.searching.load(SeqCst) > 0 {
            return;
        }
        if self.sleeping.load(SeqCst) == 0 {
            if self.workers.load(Relaxed) > 1 {
                // All are at work. One that has the work in its queue may not return from its visit, and
                // the others may always have enough to do.
                self.awake.timers.hurry();
            }
        } else if self.up.load(SeqCst) > 0 && self.awake.are_enough() {
            self.awake.timers.hurry();
        } else {
            self.wake_one();
        }
    }

    /// There is work, and whoever might have come to it is away: wakes someone, if anyone sleeps.
    pub(crate) fn work_left(&self) {
        fence(SeqCst);
        if self.sleeping.load(SeqCst) > 0 && self.searching.load(SeqCst) == 0 {
            self.wake_one();
        }
    }

    /// Whether there may be a processor for each thread that is awake.
    pub(crate) fn has_processors(&self) -> bool {
        self.awake.threads.load(SeqCst) <= self.awake.cpus
    }

    /// As [`Awake::linger`].
    pub(crate) fn linger(&self, sees_work: impl FnMut() -> bool) -> bool {
        self.awake.linger(sees_work)
    }

    /// Wakes every sleeper.
    pub(crate) fn wake_all(&self) {
        while self.wake_one() {}
    }

    fn wake_one(&self) -> bool {
        let here = if is_worker() { processor() } else { None };
        let mut sleepers = self.sleepers.lock();
        let Some(at) = whom(&sleepers, here) else { return false };
        let Sleeper { woken, thread, .. } = sleepers.remove(at);
        self.sleeping.fetch_sub(1, SeqCst);
        self.searching.fetch_add(1, SeqCst);
        drop(sleepers);
        woken.0.store(true, SeqCst);
        thread.unpark();
        true
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("sleeping", &self.sleeping)
            .field("searching", &self.searching)
            .field("up", &self.up)
            .finish_non_exhaustive()
    }
}

/// How many threads of a program are up, all its groups together; and what one of them that has
/// nothing to do does until it sleeps.
pub(crate) struct Awake {
    threads: CachePadded<AtomicUsize>,
    cpus: usize,
    timers: Arc<Timers>,
}

impl Awake {
    pub(crate) fn new(cpus: usize, timers: Arc<Timers>) -> Self {
        Awake { threads: CachePadded::default(), cpus, timers }
    }

    /// Whether every processor has a thread.
    fn are_enough(&self) -> bool {
        self.threads.load(SeqCst) >= self.cpus
    }

    /// Waits a little while for work that others may be about to make; returns whether some was seen.
    ///
    /// Nobody else awake makes any, and callers from outside find a thread sooner that has used less
    /// of its time: the scheduler lets it run at once, in place of the caller. Where every thread has
    /// a processor, one that spins is there at once. Where they are more, it yields to those that
    /// have work, which is a switch of threads without a sleep and a wake.
    fn linger(&self, mut sees_work: impl FnMut() -> bool) -> bool {
        let (looks, pause): (u32, fn()) = match self.threads.load(SeqCst) {
            ..=1 => return sees_work(),
            awake if awake <= self.cpus => (LOOKS, pause),
            _ => (YIELDS, thread::yield_now),
        };
        (0..looks).any(|_| {
            pause();
            sees_work()
        })
    }
}

/// For how long a worker makes visits before it lets other threads have the processor.
const SPELL: Duration = Duration::from_micros(200);
/// Who was away for so long has its processor together with another worker: a little less than a
/// spell, and more than threads take that have something to hand over.
const SHARED: Duration = Duration::from_micros(180);
/// How long it then sleeps: long enough that the system does not let it go on at once.
const NAP: Duration = Duration::from_micros(20);
/// Who was away for longer than this, twice, met a thread that takes all it gets, and yields so
/// many times more rarely than it was away: else it would get a twentieth of the processor, not half.
const AWAY_FOR_LONG: Duration = Duration::from_micros(500);
const LONG_TIMES: u32 = 64;

/// When a worker lets other threads have the processor, between two visits. One that the system
/// sends away within a visit takes the stage's instance with it, and all that must pass through it
/// waits for milliseconds; so it goes by itself, often enough that the system need not send it.
#[derive(Debug)]
pub(crate) struct YieldTimer {
    due: Time,
    /// It has yet to yield.
    new: bool,
    /// When it last yielded, another worked on its processor.
    shares: bool,
    /// When it last yielded, it was away for long.
    long: bool,
}

impl Default for YieldTimer {
    /// At once, and by a nap, so that it is placed anew: threads that are started together often stand on one processor.
    fn default() -> Self {
        YieldTimer { due: Time::ZERO, new: true, shares: false, long: false }
    }
}

impl YieldTimer {
    /// Whether it is time.
    pub(crate) fn asks(&self, now: Time) -> bool {
        now >= self.due
    }

    /// Whether another thread had the processor for a while when it last yielded.
    pub(crate) fn met_another(&self) -> bool {
        self.new || self.shares || self.long
    }

    /// Yields the processor; returns when it was back.
    ///
    /// Two workers that take turns on one processor would do so for long while another is idle: each
    /// has run too lately for the system to move it. So the one that finds out moves.
    /// If there are more than processors (not `spare`), to move would only take another's.
    pub(crate) fn yield_now(&mut self, now: Time, spare: bool, clock: impl Fn() -> Time) -> Time {
        if self.new && !cfg!(shuttle) {
            thread::park_timeout(NAP); // nobody wakes it: it is no sleeper
        } else {
            thread::yield_now();
        }
        let back = clock();
        self.new = false;
        self.note(now, back);
        if spare && self.shares && move_over() { clock() } else { back }
    }

    fn note(&mut self, left: Time, back: Time) {
        let away = back.duration_since(left);
        self.shares = away > SHARED;
        let long = away > AWAY_FOR_LONG;
        let pause = if long && self.long { away * LONG_TIMES } else { SPELL };
        self.long = long;
        self.due = back + pause;
    }
}

fn pause() {
    for _ in 0..SPINS {
        spin();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    #[test]
    fn a_worker_wakes_the_last_that_ran_elsewhere_and_others_the_last() {
        let sleepers = |processors: &[usize]| -> Vec<Sleeper> {
            let ran_on = |on: &usize| Sleeper {
                woken: Arc::default(),
                thread: thread::current(),
                processor: Some(*on),
            };
            processors.iter().map(ran_on).collect()
        };
        assert_eq!(whom(&sleepers(&[]), Some(0)), None);
        assert_eq!(whom(&sleepers(&[1, 1, 0, 0]), Some(0)), Some(1));
        assert_eq!(whom(&sleepers(&[1, 1, 0, 0]), Some(1)), Some(3));
        assert_eq!(whom(&sleepers(&[0, 0]), Some(0)), Some(1), "better here than not at all");
        assert_eq!(whom(&sleepers(&[1, 0]), None), Some(1));
    }

    /// Away for so many microseconds, one time after the other: after how many it yields again,
    /// and whether it then moves.
    fn away(times_us: &[u64]) -> Vec<(u64, bool)> {
        let mut yield_timer = YieldTimer::default();
        yield_timer.note(Time::ZERO, Time::ZERO); // the nap at the start
        let told = times_us.iter().map(|us| {
            let left = yield_timer.due;
            let back = left + Duration::from_micros(*us);
            assert!(yield_timer.asks(left));
            yield_timer.note(left, back);
            (yield_timer.due.duration_since(back).as_nanos() as u64 / US, yield_timer.shares)
        });
        told.collect()
    }

    #[test]
    fn who_comes_back_soon_gives_way_after_every_spell() {
        assert_eq!(away(&[0, 1, 40, 170]), [(200, false); 4]);
    }

    #[test]
    fn who_shares_its_processor_with_a_worker_moves_until_it_has_one_to_itself() {
        assert_eq!(away(&[210, 60, 210]), [(200, true), (200, false), (200, true)]);
        assert_eq!(away(&[210, 210, 1]), [(200, true), (200, true), (200, false)]);
    }

    #[test]
    fn beside_a_thread_that_takes_all_it_gets_a_worker_gives_way_rarely() {
        let told = away(&[3_000, 3_000, 1_000, 1, 3_000]);
        assert_eq!(
            told.iter().map(|(after, _)| *after).collect::<Vec<_>>(),
            [200, 3_000 * 64, 1_000 * 64, 200, 200]
        );
    }
}
