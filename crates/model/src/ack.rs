//! Acknowledgement: who is told how events ended, and when all they led to has. An `AckGroup` counts the
//! unsettled events of one pull of a source; an `Obligation` is one of them, held by a program.
//! Invariant of a group: its count reaches zero once, after the last event it covers settled.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

#[cfg(shuttle)]
use shuttle::sync::atomic::AtomicU64; // its interleavings are explored with the runtime's
#[cfg(not(shuttle))]
use std::sync::atomic::AtomicU64;

/// How the events of a group ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// Number given by the source.
    pub group: u64,
    /// Events that failed for good.
    pub failed: u64,
    /// Events shed by a queue or a controller.
    pub shed: u64,
    /// Events cancelled by a stop.
    pub cancelled: u64,
}

impl Settled {
    /// Returns `true` if every event the group led to was handled.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.failed == 0 && self.shed == 0 && self.cancelled == 0
    }
}

/// How an event left a queue, as far as its group is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// By a handler that returned.
    Handled,
    /// Set aside, its tries used up.
    Failed,
    /// Shed.
    Shed,
    /// Cancelled by a stop.
    Cancelled,
}

/// Whoever waits for a group.
pub trait Awaits: Send + Sync {
    /// Everything the group led to has ended. Called once, under locks of the runtime perhaps.
    fn settled(&self, settled: Settled);

    /// Whether the program was stopped: what is dropped from then on counts as cancelled.
    fn is_stopped(&self) -> bool {
        false
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
    waiting: Box<dyn Awaits>,
}

impl AckGroup {
    /// A group held open by its creator, who calls [`settle`](Self::settle) once with one
    /// `Handled` event when everything of it has been emitted.
    pub fn open(number: u64, waiting: impl Awaits + 'static) -> Arc<Self> {
        Arc::new(AckGroup {
            number,
            pending: AtomicU64::new(1),
            failed: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            waiting: Box::new(waiting),
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
        if self.pending.fetch_sub(n, AcqRel) == n {
            self.waiting.settled(Settled {
                group: self.number,
                failed: self.failed.load(Acquire),
                shed: self.shed.load(Acquire),
                cancelled: self.cancelled.load(Acquire),
            });
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

/// Several groups that wait for what was made of events of all of them: one event of each.
struct Joined(Vec<Arc<AckGroup>>);

impl Awaits for Joined {
    fn settled(&self, settled: Settled) {
        for group in &self.0 {
            group.failed.fetch_add(settled.failed, AcqRel);
            group.shed.fetch_add(settled.shed, AcqRel);
            group.cancelled.fetch_add(settled.cancelled, AcqRel);
            group.settle(1, Fate::Handled);
        }
    }

    fn is_stopped(&self) -> bool {
        self.0.iter().any(|group| group.waiting.is_stopped())
    }
}

/// What is owed for an event: whoever waits for it is told only when all that carries the obligation on has
/// ended. [`Ev::hold`](crate::event::Ev::hold) gives it together with the event;
/// [`Out::send_for`](crate::port::Out::send_for) carries it on; a clone is owed as well.
///
/// Dropping it settles it: as handled, as failed while a panic unwinds, or as cancelled once the program
/// was stopped. Where nobody waits for the event it is empty, and costs nothing.
#[derive(Default)]
#[must_use = "dropping an obligation settles it"]
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

    /// One for all: whoever waits for any of them waits for what carries this on.
    pub fn all(obligations: impl IntoIterator<Item = Obligation>) -> Self {
        let mut first = Obligation::default();
        let mut others: Vec<Obligation> = Vec::new();
        for obligation in obligations {
            if first.0.is_none() {
                first = obligation;
            } else if obligation.0.is_some() && !obligation.is_like(&first) {
                others.push(obligation);
            } // else dropped: `first` is owed to the same
        }
        if others.is_empty() {
            return first;
        }
        let all = std::iter::once(first).chain(others);
        let mut groups: Vec<_> = all.filter_map(|mut one| one.0.take()).collect();
        groups.sort_unstable_by_key(Arc::as_ptr);
        groups.dedup_by(|a, b| {
            let same = Arc::ptr_eq(a, b);
            if same {
                a.settle(1, Fate::Handled); // the other is still owed
            }
            same
        });
        Obligation(Some(AckGroup::open(0, Joined(groups))))
    }

    /// Whether the two are owed to the same.
    pub(crate) fn is_like(&self, other: &Obligation) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }

    /// Returns `true` if somebody waits.
    #[must_use]
    pub fn is_owed(&self) -> bool {
        self.0.is_some()
    }

    /// What came of the event has failed: whoever waits is told so.
    pub fn fail(mut self) {
        if let Some(group) = self.0.take() {
            group.settle(1, Fate::Failed);
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
    fn drop(&mut self) {
        if let Some(group) = self.0.take() {
            let fate = if group.waiting.is_stopped() {
                Fate::Cancelled
            } else if std::thread::panicking() {
                Fate::Failed
            } else {
                Fate::Handled
            };
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
        drop(held);
        assert!(told.lock().unwrap().is_empty());
        copy.fail();
        assert_eq!(told.lock().unwrap()[0].failed, 1);
    }

    #[test]
    fn one_for_all_is_owed_to_each_group_once_and_tells_all_what_went_wrong() {
        let told = Told::default();
        let groups = [group(1, &told), group(2, &told)];
        let owed = [0, 1, 0, 0, 1].map(|of: usize| Obligation::of(Some(&groups[of])));
        groups.iter().for_each(|group| group.settle(1, Fate::Handled));
        let all = Obligation::all(owed.into_iter().chain([Obligation::default()]));
        assert!(told.lock().unwrap().is_empty());
        let carried = all.clone();
        drop(all);
        carried.fail();
        let mut told = told.lock().unwrap().clone();
        told.sort_unstable_by_key(|told| told.group);
        assert_eq!(
            told.iter().map(|told| (told.group, told.failed)).collect::<Vec<_>>(),
            [(1, 1), (2, 1)]
        );
    }

    #[test]
    fn one_for_all_of_one_group_is_that_group() {
        let told = Told::default();
        let group = group(1, &told);
        let owed: Vec<_> = (0..4).map(|_| Obligation::of(Some(&group))).collect();
        group.settle(1, Fate::Handled);
        let all = Obligation::all(owed);
        assert!(Arc::ptr_eq(all.group().unwrap(), &group));
        drop(all);
        assert_eq!(told.lock().unwrap().len(), 1);
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
