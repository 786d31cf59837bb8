//! The instances of a stage, and the tokens that stand for those with something to do.
//!
//! An instance is owned, not locked: idle ones stand in `last_idle` and `other_idle`, waiting ones in `parked`, a
//! running one belongs to its visit. So none can run twice at once, and its state is where it stands.
//! Invariant: events that can be taken and an instance that is idle imply a good token (`claims`), which
//! is one that some ready queue holds. A token too many finds no claim, and is dropped.

use std::collections::BTreeMap;

use comporta_model::kind::Kind;
use comporta_model::replicas::Part;

use super::handle::Instance;

pub(super) struct Instances<H: Kind> {
    /// Idle; the one that was put here last has a place of its own: mostly there is no other.
    last_idle: Option<Box<Instance<H>>>,
    other_idle: Vec<Box<Instance<H>>>,
    /// By their numbers: a stop takes them out in this order.
    parked: BTreeMap<u32, Box<Instance<H>>>,
    claims: usize,
    count: usize,
    wanted: usize,
    /// Those no longer counted that have yet to finish.
    retiring: usize,
    /// The number of the next one, and by how much the next differs from that: replicas of a stage number theirs in turn.
    next: u32,
    step: u32,
    /// The worker that began the last visit.
    visitor: u32,
}

impl<H: Kind> Instances<H> {
    /// None yet, and so many wanted.
    pub(super) fn new(wanted: usize, replica: Part) -> Self {
        Instances {
            last_idle: None,
            other_idle: Vec::new(),
            parked: BTreeMap::new(),
            claims: 0,
            count: 0,
            wanted,
            retiring: 0,
            next: replica.index() as u32,
            step: replica.count() as u32,
            visitor: 0,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn idle(&self) -> usize {
        self.other_idle.len() + usize::from(self.last_idle.is_some())
    }

    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    pub(super) fn set_wanted(&mut self, wanted: usize) {
        self.wanted = wanted;
    }

    /// A number for a new one.
    pub(super) fn next_index(&mut self) -> u32 {
        let index = self.next;
        self.next += self.step;
        index
    }

    /// Adds new ones, idle.
    pub(super) fn add(&mut self, mut made: Vec<Box<Instance<H>>>) {
        self.count += made.len();
        self.wanted = self.wanted.max(self.count);
        self.other_idle.append(&mut made);
    }

    // --- tokens

    /// Good tokens: so many idle instances are ready, and stand for an event that waits.
    pub(super) fn claims(&self) -> usize {
        self.claims
    }

    /// Whether an idle instance is not ready yet.
    #[inline]
    pub(super) fn has_unclaimed(&self) -> bool {
        self.idle() > self.claims
    }

    /// Good tokens there should be and are not yet, if so many visits could be made.
    pub(super) fn claims_missing(&self, visits: usize) -> usize {
        visits.min(self.idle()).saturating_sub(self.claims)
    }

    pub(super) fn add_claims(&mut self, n: usize) {
        self.claims += n;
    }

    /// Uses a good token up; returns `false` if there is none: the token was a copy.
    pub(super) fn use_claim(&mut self) -> bool {
        let good = self.claims > 0;
        self.claims -= usize::from(good);
        good
    }

    /// The worker that visits the stage, if one does; of several, the one that came last.
    pub(super) fn visitor(&self) -> Option<u32> {
        let visited = self.count + self.retiring > self.idle() + self.parked.len();
        visited.then_some(self.visitor)
    }

    /// Drops all good tokens; returns how many there were.
    pub(super) fn take_claims(&mut self) -> usize {
        std::mem::take(&mut self.claims)
    }

    /// Drops the good tokens that no idle instance stands for; returns how many.
    pub(super) fn drop_surplus_claims(&mut self) -> usize {
        let surplus = self.claims.saturating_sub(self.idle());
        self.claims -= surplus;
        surplus
    }

    // --- from state to state

    /// Takes out an idle instance, for a visit by this worker.
    pub(super) fn take_idle(&mut self, visitor: u32) -> Option<Box<Instance<H>>> {
        self.visitor = visitor;
        self.pop_idle()
    }

    /// As [`use_claim`](Self::use_claim) and [`take_idle`](Self::take_idle); neither, if there is not both.
    #[inline]
    pub(super) fn take_claimed(&mut self, visitor: u32) -> Option<Box<Instance<H>>> {
        if self.claims == 0 {
            return None;
        }
        let instance = self.pop_idle()?;
        (self.claims, self.visitor) = (self.claims - 1, visitor);
        Some(instance)
    }

    /// Puts one back that [`take_claimed`](Self::take_claimed) has taken.
    #[cold]
    pub(super) fn put_claimed(&mut self, instance: Box<Instance<H>>) {
        self.claims += 1;
        self.put_idle(instance);
    }

    #[inline]
    pub(super) fn put_idle(&mut self, instance: Box<Instance<H>>) {
        if let Some(other) = self.last_idle.replace(instance) {
            self.other_idle.push(other);
        }
    }

    #[inline]
    fn pop_idle(&mut self) -> Option<Box<Instance<H>>> {
        self.last_idle.take().or_else(|| self.other_idle.pop())
    }

    fn all_idle(&mut self) -> Vec<Box<Instance<H>>> {
        self.other_idle.extend(self.last_idle.take());
        std::mem::take(&mut self.other_idle)
    }

    pub(super) fn park(&mut self, instance: Box<Instance<H>>) {
        self.parked.insert(instance.index, instance);
    }

    /// Takes out an instance that waits, for a visit by this worker.
    pub(super) fn unpark(&mut self, index: u32, visitor: u32) -> Option<Box<Instance<H>>> {
        self.visitor = visitor;
        self.parked.remove(&index)
    }

    #[inline]
    pub(super) fn are_more_than_wanted(&self) -> bool {
        self.count > self.wanted
    }

    /// Takes out an idle instance if there are more than wanted; it is to finish.
    pub(super) fn retire_one(&mut self) -> Option<Box<Instance<H>>> {
        if !self.are_more_than_wanted() {
            return None;
        }
        let instance = self.pop_idle()?;
        self.count -= 1;
        self.retiring += 1;
        Some(instance)
    }

    /// One that was retired has finished.
    pub(super) fn retired(&mut self) {
        self.retiring -= 1;
    }

    /// Whether all there are are idle, and none is about to go.
    pub(super) fn at_rest(&self) -> bool {
        self.retiring == 0 && self.idle() == self.count
    }

    /// The stage ends: takes out the idle ones. Returns how many have yet to finish, with those that
    /// wait elsewhere or are on their way out.
    pub(super) fn finish(&mut self) -> (usize, Vec<Box<Instance<H>>>) {
        let left = self.count + std::mem::take(&mut self.retiring);
        (left, self.all_idle())
    }

    /// None is left.
    pub(super) fn ended(&mut self) {
        self.count = 0;
    }

    /// The program stops: takes out all that are not in a visit.
    pub(super) fn cancel(&mut self) -> Vec<Box<Instance<H>>> {
        self.claims = 0;
        let parked = std::mem::take(&mut self.parked).into_values();
        self.all_idle().into_iter().chain(parked).collect()
    }
}

/// How many instances a stage has for which the plan says `instances`. Of a stage whose handlers wait, that
/// is how many events may be in flight: an instance only polls, so as many do as there are processors.
pub(super) fn instances_for<H: Kind>(instances: usize) -> usize {
    if H::WAITS { instances.min(crate::env::cpus().max(2)) } else { instances }
}
