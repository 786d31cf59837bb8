//! Requests for threads that a pool cannot serve yet, in line: for a program and for a mock alike.
//! LEDA has a steal queue for each pool, from which its threads serve one request each in turn.
//!
//! Bounds: a request for each pair of pools, of as many threads as a cluster may have.

use std::collections::VecDeque;

use comporta_model::plan::defaults::THREADS_MAX;

use crate::control::PoolId;

/// A thread that goes from one pool to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stolen {
    /// The pool that asked for it.
    pub to: PoolId,
    /// The pool it leaves.
    pub from: PoolId,
}

/// Threads that pools have requested and not received yet.
#[derive(Clone, Debug, Default)]
pub struct StealQueue(VecDeque<Request>);

#[derive(Clone, Copy, Debug)]
struct Request {
    of: Stolen,
    threads: usize,
}

impl StealQueue {
    /// Adds a request for `threads` threads, behind earlier requests.
    pub fn ask(&mut self, of: Stolen, threads: usize) {
        let before = self.0.iter().position(|request| request.of == of);
        let before = before.and_then(|at| self.0.remove(at)).map_or(0, |request| request.threads);
        let threads = before.saturating_add(threads).min(THREADS_MAX);
        if threads > 0 && of.to != of.from {
            self.0.push_back(Request { of, threads });
        }
    }

    /// Removes and returns the next thread that can go, if there is one; `spare` returns how many a pool can give. A
    /// request for more threads goes to the end of the line, so that several requests are served evenly.
    pub fn next(&mut self, spare: impl Fn(PoolId) -> usize) -> Option<Stolen> {
        let at = self.0.iter().position(|request| spare(request.of.from) > 0)?;
        let Request { of, threads } = self.0.remove(at)?;
        if threads > 1 {
            self.0.push_back(Request { of, threads: threads - 1 });
        }
        Some(of)
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(to: u32, from: u32) -> Stolen {
        Stolen { to: PoolId(to), from: PoolId(from) }
    }

    /// Who is served while the pool 0 has so many threads to give, and others none.
    fn served(queue: &mut StealQueue, mut spare: usize) -> Vec<u32> {
        let mut order = Vec::new();
        while let Some(stolen) = queue.next(|pool| if pool == PoolId(0) { spare } else { 0 }) {
            assert_eq!(stolen.from, PoolId(0));
            order.push(stolen.to.0);
            spare -= 1;
        }
        order
    }

    #[test]
    fn those_who_ask_are_served_evenly_and_what_is_left_waits() {
        let mut queue = StealQueue::default();
        queue.ask(of(1, 0), 3);
        queue.ask(of(2, 0), 2);
        queue.ask(of(2, 1), 1); // which pool 1 cannot give
        assert_eq!(served(&mut queue, 3), [1, 2, 1]);
        assert_eq!(served(&mut queue, 9), [2, 1]);
        assert!(served(&mut queue, 9).is_empty());
        assert_eq!(queue.next(|_| 1), Some(of(2, 1)));
    }

    #[test]
    fn a_pool_asks_for_no_more_than_there_may_be_and_not_for_its_own() {
        let mut queue = StealQueue::default();
        queue.ask(of(1, 0), usize::MAX);
        queue.ask(of(1, 0), usize::MAX);
        queue.ask(of(0, 0), 5);
        queue.ask(of(2, 0), 0);
        assert_eq!(served(&mut queue, 5_000).len(), THREADS_MAX);
        queue.ask(of(1, 0), 2);
        queue.clear();
        assert!(served(&mut queue, 1).is_empty());
    }
}
