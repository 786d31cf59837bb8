//! Hop 4, ready: the tokens that say which stage has work, and where they wait.
//! Before: a stage makes a token. After: `work` takes it.
//! Workers that steal have a queue each; what comes from outside, and everything under a policy
//! of one queue, stands in the group's shared queue, by priority and then first come first served.
//! Under a policy with a visit order, tokens that say no more than that events wait are counted
//! by stage (`visit_order`), and a worker takes that of the next stage on its way.
//! Invariant: a token pushed is popped by some worker of the workers; takers look in every place,
//! whatever the policy of the moment, so a change of policy strands none.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;

use crate::path::visit_order::{Cursor, Fired, OrderedTokens, VisitOrder};
use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, SeqCst};

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

/// The queue a pool shares.
#[derive(Default)]
pub(crate) struct Shared {
    tokens: Mutex<SharedTokens>,
    len: AtomicUsize,
    /// Whether workers visit stages in an order.
    ordered: AtomicBool,
}

#[derive(Default)]
struct SharedTokens {
    /// Of priority 0: most programs have no other, and then nothing needs to be ordered.
    plain: VecDeque<Token>,
    ranks: BTreeMap<Reverse<i32>, VecDeque<Token>>,
    /// An emptied rank, kept so that a queue that swings between none and one allocates nothing.
    spare: VecDeque<Token>,
    /// Where workers visit stages in an order, what waits at each.
    by_order: Option<OrderedTokens>,
    /// How often the first token has been overtaken.
    overtaken: usize,
}

impl SharedTokens {
    fn push(&mut self, token: Token, priority: i32) {
        if let Some(by_order) = &mut self.by_order
            && token.task == Task::Any
            && by_order.add(token.stage)
        {
            return;
        }
        let rank = match priority {
            0 => &mut self.plain,
            _ => self
                .ranks
                .entry(Reverse(priority))
                .or_insert_with(|| std::mem::take(&mut self.spare)),
        };
        rank.push_back(token);
    }

    fn pop(&mut self) -> Option<Token> {
        self.pop_near(0, 1)
    }

    /// The first token; or, of the first `few`, one whose events are in the cache of the worker that
    /// calls itself `home`: they stand within a visit or two of each other, and to move a chunk from
    /// core to core costs more than to handle it. The first is overtaken `few` times at most.
    fn pop_near(&mut self, home: u32, few: usize) -> Option<Token> {
        let SharedTokens { plain, ranks, spare, overtaken, .. } = self;
        let mut near = |queue: &VecDeque<Token>| {
            let mut first = queue.iter().take(few);
            let near = first.position(|token| token.home != 0 && token.home == home);
            let near = near.filter(|_| *overtaken < few).unwrap_or(0);
            *overtaken = if near == 0 { 0 } else { *overtaken + 1 };
            near
        };
        if let Some(mut first) = ranks.first_entry()
            && (first.key().0 > 0 || plain.is_empty())
        {
            let at = near(first.get());
            let token = first.get_mut().remove(at);
            if first.get().is_empty() {
                *spare = first.remove();
            }
            return token;
        }
        let at = near(plain);
        plain.remove(at)
    }

    /// Moves the tokens of a stage to where its priority belongs now.
    fn rank(&mut self, stage: u32, priority: i32) {
        let mut moved = Vec::new();
        let mut take = |queue: &mut VecDeque<Token>| {
            queue.retain(|token| {
                let stays = token.stage != stage;
                if !stays {
                    moved.push(*token);
                }
                stays
            });
        };
        take(&mut self.plain);
        self.ranks.values_mut().for_each(&mut take);
        self.ranks.retain(|_, queue| !queue.is_empty());
        moved.into_iter().for_each(|token| self.push(token, priority));
    }

    /// Everything, in the order in which it would be taken.
    fn drain(&mut self) -> Vec<Token> {
        let mut all: Vec<Token> = std::iter::from_fn(|| self.pop()).collect();
        let ordered = self.by_order.iter_mut().flat_map(OrderedTokens::drain);
        all.extend(ordered.map(|stage| Token::new(stage, Task::Any)));
        all
    }
}

/// What a worker got from the shared queue.
#[derive(Default)]
pub(crate) struct Popped {
    pub(crate) token: Option<Token>,
    /// How many are left.
    pub(crate) left: usize,
    /// If it is the worker's focus in the visit order.
    pub(crate) focus: Option<Focus>,
    pub(crate) fired: Fired,
}

/// A worker's focus in the visit order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Focus {
    /// How many events its visit may take, if the policy has a bound.
    pub(crate) limit: Option<NonZeroUsize>,
}

impl Shared {
    /// Adds a token; its priority is asked for under the lock, under which it may be ranked anew.
    pub(crate) fn push(&self, token: Token, priority: impl FnOnce() -> i32) {
        let mut tokens = self.tokens.lock();
        tokens.push(token, priority());
        self.len.fetch_add(1, SeqCst);
    }

    /// Adds those tokens that have a priority here, in their order; the others stay. The caller sees
    /// to it that someone finds them.
    pub(crate) fn push_all(
        &self,
        tokens: &mut Vec<Token>,
        priority: impl Fn(&Token) -> Option<i32>,
    ) {
        if tokens.is_empty() {
            return;
        }
        let mut queue = self.tokens.lock();
        let before = tokens.len();
        tokens.retain(|token| match priority(token) {
            Some(priority) => {
                queue.push(*token, priority);
                false
            }
            None => true,
        });
        self.len.fetch_add(before - tokens.len(), SeqCst);
    }

    /// The priority of a stage has changed: its tokens stand where they belong now.
    pub(crate) fn rank(&self, stage: u32, priority: i32) {
        self.tokens.lock().rank(stage, priority);
    }

    /// The next token for a worker that stands at `cursor`, one of so many.
    pub(crate) fn pop(&self, cursor: &mut Cursor, workers: usize, home: u32) -> Popped {
        // An empty round of a visit order is an event of its own: it may fire.
        if self.is_empty() && !self.ordered.load(SeqCst) {
            return Popped::default();
        }
        // The length changes under the lock: whoever sees it finds a token, or waits for the lock.
        let mut tokens = self.tokens.lock();
        let mut popped = Popped { token: tokens.pop_near(home, workers * 2), ..Popped::default() };
        if popped.token.is_none()
            && let Some(by_order) = &mut tokens.by_order
        {
            let step = by_order.step(cursor, workers, &mut popped.fired);
            popped.token = step.map(|(stage, _)| Token::new(stage, Task::Any));
            popped.focus = step.map(|(_, limit)| Focus { limit });
        }
        if popped.token.is_some() {
            popped.left = self.len.fetch_sub(1, SeqCst) - 1;
        }
        popped
    }

    /// Has workers visit stages in this order, or take tokens in turn. What is here stays, each
    /// where it now belongs.
    pub(crate) fn set_visit_order(
        &self,
        visit_order: Option<Arc<VisitOrder>>,
        priority: impl Fn(u32) -> i32,
    ) {
        let mut tokens = self.tokens.lock();
        self.ordered.store(visit_order.is_some(), SeqCst);
        let all = tokens.drain();
        tokens.by_order = match (visit_order, tokens.by_order.take()) {
            (None, _) => None,
            (Some(visit_order), by_order) => Some(OrderedTokens::new(visit_order, by_order)),
        };
        all.into_iter().for_each(|token| tokens.push(token, priority(token.stage)));
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
    fn the_shared_queue_serves_by_priority_and_then_in_order() {
        let queue = Shared::default();
        for (stage, priority) in [(6, -1), (1, 0), (2, 5), (3, 0), (4, 5), (5, 9)] {
            queue.push(any(stage), || priority);
        }
        assert_eq!(stages(&queue), [5, 2, 4, 1, 3, 6]);
    }

    fn stages(queue: &Shared) -> Vec<u32> {
        let mut cursor = Cursor::default();
        let pop = || queue.pop(&mut cursor, 1, 0).token;
        std::iter::from_fn(pop).map(|token| token.stage).collect()
    }

    fn visit_order(order: &[u32]) -> Option<Arc<VisitOrder>> {
        Some(Arc::new(VisitOrder::new(order.to_vec())))
    }

    #[test]
    fn what_waits_when_a_visit_order_is_set_or_ended_stays_and_is_counted() {
        let queue = Shared::default();
        for stage in [3, 1, 1, 2] {
            queue.push(any(stage), || 0);
        }
        let resume = Token::new(1, Task::Resume { instance: 0 });
        queue.push(resume, || 0);
        queue.set_visit_order(visit_order(&[1, 2, 3]), |_| 0);
        let first = queue.pop(&mut Cursor::default(), 1, 0);
        assert_eq!((first.token, first.left), (Some(resume), 4)); // who waits for no event goes first
        assert_eq!(stages(&queue), [1, 1, 2, 3]);
        queue.push(any(2), || 0);
        queue.push(any(1), || 0);
        queue.set_visit_order(None, |stage| stage as i32);
        assert_eq!(stages(&queue), [2, 1]);
        assert!(queue.is_empty());
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

    #[test]
    fn the_first_token_is_overtaken_a_bounded_number_of_times() {
        let queue = Shared::default();
        queue.push(any(1), || 0);
        let mut taken = Vec::new();
        for _ in 0..20 {
            queue.push(Token { home: 7, ..any(2) }, || 0);
            taken.extend(queue.pop(&mut Cursor::default(), 2, 7).token.map(|token| token.stage));
        }
        assert_eq!(taken.iter().position(|stage| *stage == 1), Some(4), "{taken:?}");
    }

    #[test]
    fn tokens_follow_the_priority_of_their_stage() {
        let queue = Shared::default();
        for (stage, priority) in [(1, 0), (2, 5), (1, 0), (3, 0)] {
            queue.push(any(stage), || priority);
        }
        queue.rank(1, 9);
        queue.rank(2, -1);
        assert_eq!(stages(&queue), [1, 1, 3, 2]);
    }
}
