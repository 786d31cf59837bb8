//! The queue that the workers of a group share: what comes from outside, and everything under a policy of one
//! queue, by priority and then first come first served. Under a policy with a visit order, tokens that say no
//! more than that events wait are counted by stage (`visit_order`), and a worker takes that of the next stage
//! on its way. Part of hop 4, beside `ready`.
//! Invariant: tokens move with their stage, for a group may be left without a worker once its last stage has
//! moved away. Whoever moves a stage says so first and then takes its tokens out; whoever adds one looks under
//! the lock whether that was said.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;

use crate::path::ready::{Task, Token};
use crate::path::visit_order::{Cursor, Fired, OrderedTokens, VisitOrder};
use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, SeqCst};

/// See the header.
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

    /// Takes out the tokens of a stage.
    fn take_stage(&mut self, stage: u32) -> Vec<Token> {
        let mut taken = Vec::new();
        let mut take = |queue: &mut VecDeque<Token>| {
            queue.retain(|token| {
                let stays = token.stage != stage;
                if !stays {
                    taken.push(*token);
                }
                stays
            });
        };
        take(&mut self.plain);
        self.ranks.values_mut().for_each(&mut take);
        self.ranks.retain(|_, queue| !queue.is_empty());
        let ordered = self.by_order.as_mut().map_or(0, |by_order| by_order.take_stage(stage));
        taken.extend(std::iter::repeat_n(Token::new(stage, Task::Any), ordered));
        taken
    }

    /// Moves the tokens of a stage to where its priority belongs now.
    fn rank(&mut self, stage: u32, priority: i32) {
        self.take_stage(stage).into_iter().for_each(|token| self.push(token, priority));
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
    /// Adds a token, if it has a priority here; returns `false` if its stage has moved away. The priority is
    /// asked for under the lock, under which tokens are ranked anew and taken out.
    #[must_use]
    pub(crate) fn push(&self, token: Token, priority: impl FnOnce() -> Option<i32>) -> bool {
        let mut tokens = self.tokens.lock();
        let Some(priority) = priority() else { return false };
        tokens.push(token, priority);
        self.len.fetch_add(1, SeqCst);
        true
    }

    /// Takes out the tokens of a stage, which has moved away.
    pub(crate) fn take_stage(&self, stage: u32) -> Vec<Token> {
        let mut tokens = self.tokens.lock();
        let taken = tokens.take_stage(stage);
        self.len.fetch_sub(taken.len(), SeqCst);
        taken
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

    fn push(queue: &Shared, token: Token, priority: i32) {
        assert!(queue.push(token, || Some(priority)));
    }

    #[test]
    fn the_shared_queue_serves_by_priority_and_then_in_order() {
        let queue = Shared::default();
        for (stage, priority) in [(6, -1), (1, 0), (2, 5), (3, 0), (4, 5), (5, 9)] {
            push(&queue, any(stage), priority);
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
            push(&queue, any(stage), 0);
        }
        let resume = Token::new(1, Task::Resume { instance: 0 });
        push(&queue, resume, 0);
        queue.set_visit_order(visit_order(&[1, 2, 3]), |_| 0);
        let first = queue.pop(&mut Cursor::default(), 1, 0);
        assert_eq!((first.token, first.left), (Some(resume), 4)); // who waits for no event goes first
        assert_eq!(stages(&queue), [1, 1, 2, 3]);
        push(&queue, any(2), 0);
        push(&queue, any(1), 0);
        queue.set_visit_order(None, |stage| stage as i32);
        assert_eq!(stages(&queue), [2, 1]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_stage_that_moves_away_takes_its_tokens_and_none_is_added() {
        let queue = Shared::default();
        queue.set_visit_order(visit_order(&[1, 2]), |_| 0);
        let resume = Token::new(1, Task::Resume { instance: 0 });
        for token in [any(1), any(2), resume, any(1)] {
            push(&queue, token, 3);
        }
        assert_eq!(queue.take_stage(1), [resume, any(1), any(1)]);
        assert!(!queue.push(any(1), || None));
        assert_eq!(stages(&queue), [2]);
        assert!(queue.is_empty());
    }

    #[test]
    fn the_first_token_is_overtaken_a_bounded_number_of_times() {
        let queue = Shared::default();
        push(&queue, any(1), 0);
        let mut taken = Vec::new();
        for _ in 0..20 {
            push(&queue, Token { home: 7, ..any(2) }, 0);
            taken.extend(queue.pop(&mut Cursor::default(), 2, 7).token.map(|token| token.stage));
        }
        assert_eq!(taken.iter().position(|stage| *stage == 1), Some(4), "{taken:?}");
    }

    #[test]
    fn tokens_follow_the_priority_of_their_stage() {
        let queue = Shared::default();
        for (stage, priority) in [(1, 0), (2, 5), (1, 0), (3, 0)] {
            push(&queue, any(stage), priority);
        }
        queue.rank(1, 9);
        queue.rank(2, -1);
        assert_eq!(stages(&queue), [1, 1, 3, 2]);
    }
}
