//! Hop 4, ready: the tokens that say which stage has work, and the queue of one worker, where they wait under
//! a policy that steals. Before: a stage makes a token. After: `work` takes it. The other queue is `shared`.
//! Invariant: a token pushed is popped by some worker of the group; takers look in every place, whatever the
//! policy of the moment, so a change of policy strands none. A worker that leaves hands on what stands in
//! its own queue.

use std::collections::VecDeque;

use crate::sync::{AtomicUsize, Mutex, SeqCst};

/// Says that a stage has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) stage: u32,
    pub(crate) task: Task,
    /// The worker in whose cache the events are, if any: see
    /// [`Meta::home`](comporta_model::event::Meta::home).
    pub(crate) home: u32,
}

impl Token {
    pub(crate) fn new(stage: u32, task: Task) -> Self {
        Token { stage, task, home: 0 }
    }
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Events wait and an instance is free. A copy of such a token does no harm: the stage counts
    /// how many are good.
    Any,
    /// Room was granted to an instance that waited for it.
    Resume { instance: u32 },
    /// Room was granted to results of an ordered stage that waited for it.
    Release,
    /// An instance has waited long enough to try an event again.
    Retry { instance: u32 },
    /// An instance has seen its last event.
    Finish { instance: u32 },
    /// A group has gathered for long enough.
    Flush,
    /// The time of an event in flight has come.
    Alarm,
}

/// When a worker should come to one of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Before all that is there: its last visit woke the stage, and the events are in its cache.
    Lifo,
    /// After what is there.
    Fifo,
    /// When there is nothing else: what a source would bring is in nobody's cache yet, and what is
    /// there should leave first. A thief takes this first, for the same reason.
    Last,
}

/// The queue of one worker.
#[derive(Default)]
pub(crate) struct Local {
    tokens: Mutex<LocalTokens>,
    len: AtomicUsize,
}

#[derive(Default)]
struct LocalTokens {
    /// Its worker has left: nothing may be put here any more.
    closed: bool,
    /// The latest is taken first.
    lifo: VecDeque<Token>,
    fifo: VecDeque<Token>,
    last: VecDeque<Token>,
    /// Of those who want the oldest, the next begins with `last`: nothing is passed over for ever.
    last_first: bool,
}

impl LocalTokens {
    fn pop_latest(&mut self) -> Option<Token> {
        self.lifo.pop_back().or_else(|| self.fifo.pop_front())
    }

    fn pop_oldest(&mut self) -> Option<Token> {
        self.fifo.pop_front().or_else(|| self.lifo.pop_front())
    }

    fn pop_fairly(&mut self) -> Option<Token> {
        self.last_first = !self.last_first;
        if self.last_first
            && let Some(token) = self.last.pop_front()
        {
            return Some(token);
        }
        self.pop_oldest()
    }
}

impl Local {
    /// Adds a token.
    pub(crate) fn push(&self, token: Token, when: When) {
        let mut tokens = self.tokens.lock();
        match when {
            When::Lifo => tokens.lifo.push_back(token),
            When::Fifo => tokens.fifo.push_back(token),
            When::Last => tokens.last.push_back(token),
        }
        self.len.fetch_add(1, SeqCst);
    }

    /// Adds a token from another worker; gives it back if the owner has left.
    pub(crate) fn offer(&self, token: Token) -> Result<(), Token> {
        let mut tokens = self.tokens.lock();
        if tokens.closed {
            return Err(token);
        }
        tokens.fifo.push_back(token);
        self.len.fetch_add(1, SeqCst);
        Ok(())
    }

    /// The owner leaves; says what was left.
    pub(crate) fn close(&self) -> Vec<Token> {
        let mut tokens = self.tokens.lock();
        tokens.closed = true;
        self.drain(&mut tokens)
    }

    /// Takes everything: the owner will not come to it soon.
    pub(crate) fn take_all(&self) -> Vec<Token> {
        self.drain(&mut self.tokens.lock())
    }

    fn drain(&self, tokens: &mut LocalTokens) -> Vec<Token> {
        let mut all: Vec<Token> = std::iter::from_fn(|| tokens.pop_latest()).collect();
        all.extend(tokens.last.drain(..));
        self.len.store(0, SeqCst);
        all
    }

    /// The worker's own next token: the latest; the oldest, or one that is to come last, if `fair`. Also says how many are left.
    pub(crate) fn pop(&self, fair: bool) -> Option<(Token, usize)> {
        if self.is_empty() {
            return None;
        }
        let mut tokens = self.tokens.lock();
        let first = if fair { tokens.pop_fairly() } else { tokens.pop_latest() };
        let token = first.or_else(|| tokens.last.pop_front());
        token.map(|token| (token, self.len.fetch_sub(1, SeqCst) - 1))
    }

    /// Takes a token for another worker: of those that are to come last; or, if `fair` too, the
    /// oldest.
    pub(crate) fn steal(&self, fair: bool) -> Option<Token> {
        if self.is_empty() {
            return None;
        }
        let mut tokens = self.tokens.lock();
        let first = if fair { tokens.pop_fairly() } else { tokens.last.pop_front() };
        let token = first.or_else(|| tokens.pop_oldest()).or_else(|| tokens.last.pop_front());
        token.inspect(|_| {
            self.len.fetch_sub(1, SeqCst);
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(SeqCst)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(stage: u32) -> Token {
        Token::new(stage, Task::Any)
    }

    #[test]
    fn a_worker_that_has_left_is_given_nothing() {
        let local = Local::default();
        local.push(any(1), When::Fifo);
        local.push(any(4), When::Last);
        assert_eq!(local.offer(any(2)), Ok(()));
        assert_eq!(local.close(), [any(1), any(2), any(4)]);
        assert_eq!(local.offer(any(3)), Err(any(3)));
        assert!(local.is_empty());
    }

    /// 1 and 2 in line, 3 and then 4 next, 5 last.
    fn some() -> Local {
        let local = Local::default();
        for (stage, when) in
            [(5, When::Last), (1, When::Fifo), (3, When::Lifo), (2, When::Fifo), (4, When::Lifo)]
        {
            local.push(any(stage), when);
        }
        local
    }

    #[test]
    fn its_worker_takes_what_is_in_its_cache_and_then_what_waits_and_last_what_is_to_come_last() {
        let local = some();
        let popped: Vec<_> = std::iter::from_fn(|| local.pop(false)).collect();
        assert_eq!(
            popped.iter().map(|(token, _)| token.stage).collect::<Vec<_>>(),
            [4, 3, 1, 2, 5]
        );
        assert_eq!(popped.iter().map(|(_, left)| *left).collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
        assert!(local.is_empty());
    }

    #[test]
    fn fairness_takes_what_is_to_come_last_and_the_oldest_in_turn() {
        let local = some();
        let popped = std::iter::from_fn(|| local.pop(true)).map(|(token, _)| token.stage);
        assert_eq!(popped.collect::<Vec<_>>(), [5, 1, 2, 3, 4]);
    }

    #[test]
    fn a_thief_takes_what_is_in_nobodys_cache_and_the_latest_last() {
        let local = some();
        let stolen = std::iter::from_fn(|| local.steal(false)).map(|token| token.stage);
        assert_eq!(stolen.collect::<Vec<_>>(), [5, 1, 2, 3, 4]);
        assert!(local.is_empty());
    }

    #[test]
    fn a_thief_that_is_fair_does_not_pass_over_the_oldest_for_ever() {
        let local = Local::default();
        local.push(any(1), When::Fifo);
        let mut stolen = Vec::new();
        for _ in 0..2 {
            local.push(any(9), When::Last); // a source that always has more
            stolen.extend(local.steal(true).map(|token| token.stage));
        }
        assert!(stolen.contains(&1), "{stolen:?}");
    }
}
