//! Priorities of stages: what the plan or a policy says, and what a stage inherits. The consumer of a
//! full queue inherits the greatest priority of those who wait for it, and passes it on to those that
//! it waits for itself.
//!
//! While no stage has a priority, nothing is kept and nothing costs. While one has, workers take their
//! tokens from the shared queue, whose order is exact, rather than from per-worker queues.

use std::collections::HashMap;

use crate::sync::{AtomicBool, AtomicI32, Mutex, Relaxed, SeqCst};

pub(crate) struct Priorities {
    used: AtomicBool,
    /// Of each stage, with what it inherits.
    effective: Vec<AtomicI32>,
    state: Mutex<State>,
}

struct State {
    /// Of each stage, without what it inherits.
    own: Vec<i32>,
    /// For each stage, those whose instances wait for room in its queue.
    waiting: HashMap<u32, Vec<u32>>,
}

impl Priorities {
    pub(crate) fn new(own: Vec<i32>) -> Self {
        Priorities {
            used: AtomicBool::new(own.iter().any(|priority| *priority != 0)),
            effective: own.iter().map(|priority| AtomicI32::new(*priority)).collect(),
            state: Mutex::new(State { own, waiting: HashMap::new() }),
        }
    }

    /// Whether any stage has a priority.
    #[inline]
    pub(crate) fn are_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// The priority a token of this stage has now.
    #[inline]
    pub(crate) fn of(&self, stage: u32) -> i32 {
        self.effective[stage as usize].load(Relaxed)
    }

    /// What the plan or a policy says.
    pub(crate) fn own(&self, stage: u32) -> i32 {
        self.state.lock().own[stage as usize]
    }

    /// Sets the priority of a stage. Returns whether priorities are used from now on and were not, so
    /// that the caller has to tell who waits for whom.
    #[must_use]
    pub(crate) fn set(&self, stage: u32, priority: i32) -> bool {
        let mut state = self.state.lock();
        state.own[stage as usize] = priority;
        let used = state.own.iter().any(|priority| *priority != 0);
        let before = self.used.swap(used, SeqCst);
        if !used {
            state.waiting.clear();
        }
        used && !before
    }

    /// Those who wait for room in the queue of a stage have changed.
    pub(crate) fn set_waiting(&self, stage: u32, waiting: Vec<u32>) {
        let mut state = self.state.lock();
        if waiting.is_empty() {
            state.waiting.remove(&stage);
        } else {
            state.waiting.insert(stage, waiting);
        }
    }

    /// Computes what stages inherit, and calls `rank` with those whose priority has changed by it: under
    /// the lock, so that later changes are ranked later.
    pub(crate) fn inherit(&self, mut rank: impl FnMut(u32, i32)) {
        let state = self.state.lock();
        let mut now = state.own.clone();
        let mut rises = true;
        while rises {
            rises = false;
            for (stage, waiting) in &state.waiting {
                let lent = waiting.iter().map(|waiter| now[*waiter as usize]).max();
                let at = &mut now[*stage as usize];
                rises |= lent.is_some_and(|lent| lent > *at);
                *at = (*at).max(lent.unwrap_or(i32::MIN));
            }
        }
        for ((stage, before), now) in (0u32..).zip(&self.effective).zip(now) {
            if before.swap(now, SeqCst) != now {
                rank(stage, now);
            }
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// Those whose priority has changed.
    fn changed(priorities: &Priorities) -> Vec<(u32, i32)> {
        let mut changed = Vec::new();
        priorities.inherit(|stage, priority| changed.push((stage, priority)));
        changed
    }

    #[test]
    fn a_consumer_inherits_from_who_waits_passes_it_on_and_gives_it_back() {
        let priorities = Priorities::new(vec![20, 0, 0, 5]);
        assert!(priorities.are_used() && changed(&priorities).is_empty());
        priorities.set_waiting(2, vec![1]); // 1 waits for 2,
        assert!(changed(&priorities).is_empty());
        priorities.set_waiting(1, vec![0, 3]); // and 0 for 1
        assert_eq!(changed(&priorities), [(1, 20), (2, 20)]);
        priorities.set_waiting(1, vec![3]);
        assert_eq!(changed(&priorities).len(), 2);
        assert_eq!([1, 2].map(|stage| priorities.of(stage)), [5, 5]);
        priorities.set_waiting(1, vec![]);
        assert_eq!(changed(&priorities).len(), 2);
        assert_eq!([0, 1, 2, 3].map(|stage| priorities.of(stage)), [20, 0, 0, 5]);
    }

    #[test]
    fn stages_that_wait_for_each_other_come_to_an_end() {
        let priorities = Priorities::new(vec![0, 0, 7]);
        priorities.set_waiting(0, vec![1, 2]);
        priorities.set_waiting(1, vec![0]);
        assert_eq!(changed(&priorities).len(), 2);
        assert!(!priorities.set(2, 0), "not used any more");
        assert!(!priorities.are_used());
        assert!(priorities.set(0, 1));
    }
}
