//! Acknowledgement: reports to a source how its events, and everything that they led to, ended. An `AckGroup`
//! counts the unsettled events of one pull of a source; an `Obligation` is one of them, held by a program.
//! Invariant of a group: its count reaches zero once, after the last event it covers settled.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

#[cfg(shuttle)]
use shuttle::sync::atomic::AtomicU64; // its interleavings are explored with the runtime's
#[cfg(not(shuttle))]
use std::sync::atomic::AtomicU64;

use crate::event::Time;

/// How the events of a group ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// The number of the group, as in `Demand::group`.
    pub group: u64,
    /// Events, and obligations that handlers held for them, that failed for good.
    pub failed: u64,
    /// Events shed by a queue or a controller.
    pub shed: u64,
    /// Events cancelled by a stop; at least one, if the group was still open when the program had stopped.
    pub cancelled: u64,
}

impl Settled {
    /// Of a group that was still open when the program had stopped.
    #[doc(hidden)]
    #[must_use]
    pub fn cut_off(group: u64) -> Self {
        Settled { group, cancelled: 1, ..Settled::default() }
    }

    /// Returns `true` if every event the group led to was handled.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.failed == 0 && self.shed == 0 && self.cancelled == 0
    }
}

/// How an event left a queue, as far as its group is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was handled.
    Handled,
    /// It failed for good.
    Failed,
    /// Shed.
    Shed,
    /// Cancelled by a stop.
    Cancelled,
}

/// Why an event failed or was shed, for whoever waits for it.
#[derive(Clone, Copy)]
pub enum Because<'a> {
    /// Its handler failed for good.
    Failed {
        /// The stage.
        stage: &'a str,
        /// What the handler returned, or panicked with.
        reason: &'a dyn fmt::Display,
    },
    /// It was shed.
    Shed {
        /// The stage.
        stage: &'a str,
        /// The word for the reason.
        reason: &'static str,
    },
}

impl fmt::Debug for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::Failed { stage, reason } => write!(f, "failed in `{stage}`: {reason}"),
            Because::Shed { stage, reason } => write!(f, "shed by `{stage}`: {reason}"),
        }
    }
}

/// The owner of a group, which is notified when it has settled.
pub trait Awaits: Send + Sync {
    /// Called once, when everything that the group led to has ended; possibly under locks of the runtime.
    fn settled(&self, settled: Settled);

    /// Returns `true` if the program was stopped: obligations dropped from then on count as cancelled.
    fn is_stopped(&self) -> bool {
        false
    }

    /// An event of the group failed, or was shed, for this reason. Called before the event settles, under
    /// locks of the runtime perhaps.
    fn because(&self, _: &Because<'_>) {}

    /// Whether nobody waits any more at this time: then the events of the group are shed where they are taken.
    fn is_over(&self, _now: Time) -> bool {
        false
    }

    /// What it is, for a stage that has something to say to it.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

impl<F: Fn(Settled) + Send + Sync> Awaits for F {
    fn settled(&self, settled: Settled) {
        self(settled);
    }
}

/// Counts the unsettled events that descend from one pull of a source.
pub struct AckGroup {
    number: u64,
    pending: AtomicU64,
    failed: AtomicU64,
    shed: AtomicU64,
    cancelled: AtomicU64,
    waiting: Waiting,
}

/// The owners that wait for a group.
enum Waiting {
    One(Box<dyn Awaits>),
    /// Several groups of which each is one of the other kind, for what was made of events of all of them:
    /// one event of each.
    All(Vec<Arc<AckGroup>>),
}

impl AckGroup {
    /// Creates a group, held open until its creator calls [`settle`](Self::settle) with one `Handled` event,
    /// when everything of it has been emitted.
    pub fn open(number: u64, waiting: impl Awaits + 'static) -> Arc<Self> {
        AckGroup::new(number, Waiting::One(Box::new(waiting)))
    }

    fn new(number: u64, waiting: Waiting) -> Arc<Self> {
        Arc::new(AckGroup {
            number,
            pending: AtomicU64::new(1),
            failed: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            waiting,
        })
    }

    /// `n` more events belong to it. The caller holds an unsettled event of the group, so the
    /// count cannot have reached zero.
    pub fn join(&self, n: u64) {
        self.pending.fetch_add(n, AcqRel);
    }

    /// `n` of its events ended.
    pub fn settle(&self, n: u64, fate: Fate) {
        if n == 0 {
            return;
        }
        match fate {
            Fate::Handled => 0,
            Fate::Failed => self.failed.fetch_add(n, AcqRel),
            Fate::Shed => self.shed.fetch_add(n, AcqRel),
            Fate::Cancelled => self.cancelled.fetch_add(n, AcqRel),
        };
        if self.pending.fetch_sub(n, AcqRel) != n {
            return;
        }
        let settled = Settled {
            group: self.number,
            failed: self.failed.load(Acquire),
            shed: self.shed.load(Acquire),
            cancelled: self.cancelled.load(Acquire),
        };
        match &self.waiting {
            Waiting::One(waiting) => waiting.settled(settled),
            Waiting::All(groups) => {
                for group in groups {
                    group.failed.fetch_add(settled.failed, AcqRel);
                    group.shed.fetch_add(settled.shed, AcqRel);
                    group.cancelled.fetch_add(settled.cancelled, AcqRel);
                    group.settle(1, Fate::Handled);
                }
            }
        }
    }

    /// Shows everybody who waits.
    pub fn each_waiting(&self, mut see: impl FnMut(&dyn Awaits)) {
        match &self.waiting {
            Waiting::One(waiting) => see(&**waiting),
            Waiting::All(groups) => {
                for group in groups {
                    if let Waiting::One(waiting) = &group.waiting {
                        see(&**waiting);
                    }
                }
            }
        }
    }

    /// Whether nobody waits any more at this time.
    #[must_use]
    pub fn is_over(&self, now: Time) -> bool {
        match &self.waiting {
            Waiting::One(waiting) => waiting.is_over(now),
            Waiting::All(groups) => groups.iter().all(|group| group.is_over(now)),
        }
    }

    fn is_stopped(&self) -> bool {
        match &self.waiting {
            Waiting::One(waiting) => waiting.is_stopped(),
            Waiting::All(groups) => groups.iter().all(|group| group.is_stopped()),
        }
    }
}

impl fmt::Debug for AckGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AckGroup")
            .field("number", &self.number)
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

/// An unsettled event of an acknowledged source, held by a program: the event is acknowledged only when its
/// obligation, and all clones of it, have been settled. [`Ev::hold`](crate::event::Ev::hold) returns it
/// together with the event; [`Out::send_for`](crate::port::Out::send_for) passes it on to a result of the
/// event, which settles it when it has been handled; [`settle`](Self::settle) settles it at once.
///
/// An obligation that is dropped counts as failed, so that a lost event is never acknowledged; or as
/// cancelled, if the program was stopped. If no source waits for the event, the obligation is empty and costs
/// nothing.
#[derive(Default)]
#[must_use = "an obligation that is dropped counts as failed"]
pub struct Obligation(Option<Arc<AckGroup>>);

impl Obligation {
    /// One more event of a group, whose caller holds an unsettled one.
    #[doc(hidden)]
    pub fn of(group: Option<&Arc<AckGroup>>) -> Self {
        if let Some(group) = group {
            group.join(1);
        }
        Obligation(group.cloned())
    }

    /// Combines obligations into one: the sources of all of them wait for it, and are informed in their order.
    pub fn all(obligations: impl IntoIterator<Item = Obligation>) -> Self {
        let mut first = Obligation::default();
        let mut others: Vec<Obligation> = Vec::new();
        for obligation in obligations {
            if first.0.is_none() {
                first = obligation;
            } else if obligation.is_like(&first) {
                obligation.settle(); // `first` is owed to the same
            } else if obligation.0.is_some() {
                others.push(obligation);
            }
        }
        if others.is_empty() {
            return first;
        }
        let mut groups = Vec::with_capacity(others.len() + 1);
        for mut one in std::iter::once(first).chain(others) {
            let Some(group) = one.0.take() else { continue };
            match &group.waiting {
                Waiting::One(_) => groups.push(group),
                // Owed to those directly: joined one by one, as a fold does, groups must not become a chain.
                Waiting::All(parts) => {
                    parts.iter().for_each(|part| part.join(1));
                    groups.extend(parts.iter().cloned());
                    group.settle(1, Fate::Handled);
                }
            }
        }
        // By their addresses to find those that are there twice, and then as they came: a program goes by no address.
        let mut groups: Vec<_> = groups.into_iter().enumerate().collect();
        groups.sort_unstable_by_key(|(at, group)| (Arc::as_ptr(group), *at));
        groups.dedup_by(|(_, a), (_, b)| {
            let same = Arc::ptr_eq(a, b);
            if same {
                a.settle(1, Fate::Handled); // the other is still owed
            }
            same
        });
        groups.sort_unstable_by_key(|(at, _)| *at);
        let mut groups: Vec<_> = groups.into_iter().map(|(_, group)| group).collect();
        match groups.len() {
            1 => Obligation(groups.pop()),
            _ => Obligation(Some(AckGroup::new(0, Waiting::All(groups)))),
        }
    }

    /// Whether the two are owed to the same.
    pub(crate) fn is_like(&self, other: &Obligation) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }

    /// Returns `true` if a source waits for it.
    #[must_use]
    pub fn is_owed(&self) -> bool {
        self.0.is_some()
    }

    /// Settles the obligation: the event has been handled.
    #[inline]
    pub fn settle(mut self) {
        if let Some(group) = self.0.take() {
            group.settle(1, Fate::Handled);
        }
    }

    #[doc(hidden)]
    #[must_use]
    pub fn group(&self) -> Option<&Arc<AckGroup>> {
        self.0.as_ref()
    }
}

impl Clone for Obligation {
    fn clone(&self) -> Self {
        Obligation::of(self.0.as_ref())
    }
}

impl Drop for Obligation {
    #[inline]
    fn drop(&mut self) {
        if let Some(group) = self.0.take() {
            let fate = if group.is_stopped() { Fate::Cancelled } else { Fate::Failed };
            group.settle(1, fate);
        }
    }
}

impl fmt::Debug for Obligation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Obligation").field("is_owed", &self.is_owed()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    type Told = Arc<Mutex<Vec<Settled>>>;

    fn group(number: u64, told: &Told) -> Arc<AckGroup> {
        let told = told.clone();
        AckGroup::open(number, move |settled| told.lock().unwrap().push(settled))
    }

    #[test]
    fn a_group_settles_once_and_tells_what_went_wrong() {
        let told = Told::default();
        let group = group(7, &told);
        group.join(3);
        group.settle(2, Fate::Handled);
        group.settle(1, Fate::Handled); // the creator lets go
        assert!(told.lock().unwrap().is_empty());
        group.settle(1, Fate::Failed);
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].group, told[0].failed), (7, 1));
        assert!(!told[0].is_clean());
    }

    #[test]
    fn an_obligation_keeps_its_group_open_until_the_last_clone_is_dropped() {
        let told = Told::default();
        let group = group(1, &told);
        let held = Obligation::of(Some(&group));
        group.settle(1, Fate::Handled);
        let copy = held.clone();
        held.settle();
        assert!(told.lock().unwrap().is_empty());
        drop(copy);
        assert_eq!(told.lock().unwrap()[0].failed, 1, "it was dropped, and not dealt with");
    }

    #[test]
    fn one_for_all_is_owed_to_each_group_once_and_tells_all_in_order_what_went_wrong() {
        let told = Told::default();
        let mut groups = [group(1, &told), group(2, &told)];
        groups.sort_unstable_by_key(|group| std::cmp::Reverse(Arc::as_ptr(group)));
        let numbers = groups.each_ref().map(|group| group.number);
        let owed = [0, 1, 0, 0, 1].map(|of: usize| Obligation::of(Some(&groups[of])));
        groups.iter().for_each(|group| group.settle(1, Fate::Handled));
        let all = Obligation::all(owed.into_iter().chain([Obligation::default()]));
        assert!(told.lock().unwrap().is_empty());
        let carried = all.clone();
        all.settle();
        drop(carried);
        let told: Vec<_> =
            told.lock().unwrap().iter().map(|told| (told.group, told.failed)).collect();
        assert_eq!(told, numbers.map(|number| (number, 1)));
    }

    #[test]
    fn one_for_all_of_one_group_is_that_group() {
        let told = Told::default();
        let group = group(1, &told);
        let owed: Vec<_> = (0..4).map(|_| Obligation::of(Some(&group))).collect();
        group.settle(1, Fate::Handled);
        let all = Obligation::all(owed);
        assert!(Arc::ptr_eq(all.group().unwrap(), &group));
        all.settle();
        assert_eq!(told.lock().unwrap().len(), 1);
        assert!(told.lock().unwrap()[0].is_clean());
    }

    const MANY: u64 = 100_000;

    #[test]
    fn obligations_joined_one_by_one_are_one_for_all() {
        let told = Told::default();
        let mut folded = Obligation::default();
        for number in 0..MANY / 100 {
            let group = group(number, &told);
            let held = Obligation::of(Some(&group));
            group.settle(1, Fate::Handled);
            folded = Obligation::all([folded, held]);
        }
        assert!(told.lock().unwrap().is_empty());
        folded.settle();
        assert_eq!(told.lock().unwrap().len() as u64, MANY / 100);
    }

    #[test]
    fn what_is_made_again_and_again_of_the_same_groups_is_owed_to_each_once() {
        let told = Told::default();
        let groups = [group(1, &told), group(2, &told)];
        let mut made = Vec::new();
        let mut total = Obligation::of(Some(&groups[0]));
        for _ in 0..MANY {
            total = Obligation::all([total, Obligation::of(Some(&groups[1]))]);
            made.push(total.clone());
        }
        groups.iter().for_each(|group| group.settle(1, Fate::Handled));
        total.settle();
        made.pop(); // dropped: one of them has failed
        assert!(told.lock().unwrap().is_empty());
        made.into_iter().for_each(Obligation::settle);
        assert_eq!(told.lock().unwrap().iter().map(|told| told.failed).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn what_is_made_of_several_is_over_when_nobody_waits_for_any_of_them() {
        struct Until(Time);
        impl Awaits for Until {
            fn settled(&self, _: Settled) {}
            fn is_over(&self, now: Time) -> bool {
                now >= self.0
            }
        }
        let groups = [3, 5].map(|at| AckGroup::open(at, Until(Time::from_nanos(at))));
        let owed = groups.iter().map(|group| Obligation::of(Some(group)));
        let both = Obligation::all(owed);
        let joined = both.group().unwrap();
        let over = [2, 3, 5].map(|now| joined.is_over(Time::from_nanos(now)));
        assert_eq!(over, [false, false, true]);
        let mut waiting = 0;
        joined.each_waiting(|_| waiting += 1);
        assert_eq!(waiting, 2);
        both.settle();
    }

    #[test]
    fn what_is_dropped_after_a_stop_counts_as_cancelled() {
        struct Stopped(Told);
        impl Awaits for Stopped {
            fn settled(&self, settled: Settled) {
                self.0.lock().unwrap().push(settled);
            }
            fn is_stopped(&self) -> bool {
                true
            }
        }
        let told = Told::default();
        let group = AckGroup::open(1, Stopped(told.clone()));
        let held = Obligation::of(Some(&group));
        group.settle(1, Fate::Handled);
        drop(held);
        assert_eq!(told.lock().unwrap()[0].cancelled, 1);
    }
}
