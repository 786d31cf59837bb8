//! Hop 4, ready: the tokens that say which stage has work, and the queue of one worker, where they wait under
//! a policy that steals. Before: a stage makes a token. After: `work` takes it. The other queue is `shared`.
//! Invariant: a token pushed is popped by some worker of the group; takers look in every place for what they may take,
//! whatever the policy of the moment, so a change of policy strands none. A worker that leaves hands on what stands in
//! its own queue.
//!
//! Moving events to another processor costs more than handling them, if their handler is quick. So others take a token only
//! if that pays (for its visit, or together with those that follow from it), if it has waited for long, if it is one of several sources, or if the worker is occupied: in a visit
//! that takes a while, or in user code. What others may not take, the clock looks after (`Core::look`): whoever leaves
//! such a token in a queue asks it to (`Timers::hurry`).

use std::collections::VecDeque;
use std::time::Duration;

use comporta_model::event::Time;

use crate::sync::{AtomicBool, AtomicUsize, Mutex, Relaxed, SeqCst};

/// A token whose events would cost more to move than to handle is stolen only if it has waited for so long: its worker
/// has much else to do.
const WAIT_MAX: Duration = Duration::from_micros(200);

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

/// A token as it is put into the queue of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) token: Token,
    pub(crate) since: Time,
    /// To handle its events takes longer than to move them to another processor.
    pub(crate) pays: bool,
}

/// The queue of one worker.
#[derive(Default)]
pub(crate) struct Local {
    tokens: Mutex<LocalTokens>,
    len: AtomicUsize,
    /// Those that it pays to move. Changed under the lock, as `len` is.
    paying: AtomicUsize,
    /// One had waited for long when somebody last looked.
    overdue: AtomicBool,
    /// The worker does not come to its tokens for a while. Its own to change.
    occupied: AtomicBool,
    /// There are several that are to come last, and so several sources: one of them may go.
    spare_source: AtomicBool,
}

#[derive(Default)]
struct LocalTokens {
    /// Its worker has left: nothing may be put here any more.
    closed: bool,
    /// The latest is taken first.
    lifo: VecDeque<Entry>,
    fifo: VecDeque<Entry>,
    last: VecDeque<Entry>,
    /// Of those who want the oldest, the next begins with `last`: nothing is passed over for ever.
    last_first: bool,
}

impl LocalTokens {
    fn pop_latest(&mut self) -> Option<Entry> {
        self.lifo.pop_back().or_else(|| self.fifo.pop_front())
    }

    fn pop_fairly(&mut self) -> Option<Entry> {
        self.take_oldest(true, |_| true)
    }

    /// Takes the oldest of those that `may` be taken: of those that are to come last, or, if `fair` too, of the others.
    fn take_oldest(&mut self, fair: bool, may: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let LocalTokens { lifo, fifo, last, last_first, .. } = self;
        *last_first ^= fair;
        let queues = if fair && !*last_first { [fifo, lifo, last] } else { [last, fifo, lifo] };
        queues.into_iter().find_map(|queue| queue.remove(queue.iter().position(&may)?))
    }

    /// Of several sources one may go: what they would bring is in nobody's cache, and chains that have nothing to do with
    /// each other are best run side by side. The last stays, since its worker has what it sends to.
    fn take_spare_source(&mut self) -> Option<Entry> {
        if self.last.len() > 1 { self.last.pop_front() } else { None }
    }

    /// The arrival of the token that has waited longest.
    fn oldest(&self) -> Option<Time> {
        [&self.lifo, &self.fifo, &self.last]
            .iter()
            .filter_map(|queue| Some(queue.front()?.since))
            .min()
    }

    fn is_overdue(&self, now: Time) -> bool {
        self.oldest().is_some_and(|since| is_old(since, now))
    }
}

fn is_old(since: Time, now: Time) -> bool {
    now.duration_since(since) > WAIT_MAX
}

impl Local {
    /// Adds a token.
    pub(crate) fn push(&self, entry: Entry, when: When) {
        let mut tokens = self.tokens.lock();
        match when {
            When::Lifo => tokens.lifo.push_back(entry),
            When::Fifo => tokens.fifo.push_back(entry),
            When::Last => {
                tokens.last.push_back(entry);
                set(&self.spare_source, tokens.last.len() > 1);
            }
        }
        self.added(entry);
    }

    /// Adds a token from another worker; gives it back if the owner has left.
    pub(crate) fn offer(&self, entry: Entry) -> Result<(), Token> {
        let mut tokens = self.tokens.lock();
        if tokens.closed {
            return Err(entry.token);
        }
        tokens.fifo.push_back(entry);
        self.added(entry);
        Ok(())
    }

    fn added(&self, entry: Entry) {
        if entry.pays {
            self.paying.fetch_add(1, SeqCst);
        }
        self.len.fetch_add(1, SeqCst);
    }

    fn removed(&self, entry: Entry) -> Token {
        self.len.fetch_sub(1, SeqCst);
        if entry.pays {
            self.paying.fetch_sub(1, SeqCst);
        }
        entry.token
    }

    /// The owner leaves. Returns what was left.
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
        let next = || tokens.pop_latest().or_else(|| tokens.last.pop_front());
        std::iter::from_fn(next).map(|entry| self.removed(entry)).collect()
    }

    /// The worker's own next token: the latest; the oldest, or one that is to come last, if `fair`.
    pub(crate) fn pop(&self, fair: bool, now: Time) -> Option<Token> {
        if self.is_empty() {
            return None;
        }
        let mut tokens = self.tokens.lock();
        let first = if fair { tokens.pop_fairly() } else { tokens.pop_latest() };
        let entry = first.or_else(|| tokens.last.pop_front())?;
        self.note_changed(&tokens, now);
        Some(self.removed(entry))
    }

    /// Takes a token for another worker: of those that are to come last; or, if `fair` too, the
    /// oldest.
    pub(crate) fn steal(&self, fair: bool, now: Time) -> Option<Token> {
        if !self.has_stealable() {
            return None;
        }
        let mut tokens = self.tokens.lock();
        let occupied = self.occupied.load(SeqCst);
        let may = |entry: &Entry| occupied || entry.pays || is_old(entry.since, now);
        let stolen = tokens.take_oldest(fair, may).or_else(|| tokens.take_spare_source());
        self.note_changed(&tokens, now);
        stolen.map(|entry| self.removed(entry))
    }

    fn note_changed(&self, tokens: &LocalTokens, now: Time) {
        set(&self.overdue, tokens.is_overdue(now));
        set(&self.spare_source, tokens.last.len() > 1);
    }

    /// Notes whether a token has waited for long. Returns whether others should take one.
    pub(crate) fn note_time(&self, now: Time) -> bool {
        self.note_changed(&self.tokens.lock(), now);
        self.has_stealable()
    }

    /// Takes a token back that was offered, if it is still there.
    pub(crate) fn take_back(&self, token: Token) -> Option<Token> {
        let mut tokens = self.tokens.lock();
        let at = tokens.fifo.iter().rposition(|entry| entry.token == token)?;
        tokens.fifo.remove(at).map(|entry| self.removed(entry))
    }

    /// Its worker does not come to its tokens for a while, or does again.
    pub(crate) fn set_occupied(&self, occupied: bool) {
        set(&self.occupied, occupied);
    }

    /// Whether others should take a token.
    pub(crate) fn has_stealable(&self) -> bool {
        let flags = [&self.occupied, &self.overdue, &self.spare_source];
        let any = || self.paying.load(SeqCst) > 0 || flags.iter().any(|flag| flag.load(SeqCst));
        !self.is_empty() && any()
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(SeqCst)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Sets a flag that is mostly as it should be: it is read before it is written.
fn set(flag: &AtomicBool, to: bool) {
    if flag.load(Relaxed) != to {
        flag.store(to, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::ZERO;
    const LATER: Time = Time::from_nanos(WAIT_MAX.as_nanos() as u64 + 1);

    fn any(stage: u32) -> Token {
        Token::new(stage, Task::Any)
    }

    fn entry(stage: u32, pays: bool) -> Entry {
        Entry { token: any(stage), since: NOW, pays }
    }

    #[test]
    fn a_worker_that_has_left_is_given_nothing() {
        let local = Local::default();
        local.push(entry(1, true), When::Fifo);
        local.push(entry(4, false), When::Last);
        assert_eq!(local.offer(entry(2, true)), Ok(()));
        assert_eq!(local.close(), [any(1), any(2), any(4)]);
        assert_eq!(local.offer(entry(3, true)), Err(any(3)));
        assert!(local.is_empty());
        assert!(!local.has_stealable());
    }

    /// 1 and 2 in line, 3 and then 4 next, 5 last.
    fn some(pays: bool) -> Local {
        let local = Local::default();
        for (stage, when) in
            [(5, When::Last), (1, When::Fifo), (3, When::Lifo), (2, When::Fifo), (4, When::Lifo)]
        {
            local.push(entry(stage, pays), when);
        }
        local
    }

    #[test]
    fn its_worker_takes_what_is_in_its_cache_and_then_what_waits_and_last_what_is_to_come_last() {
        for pays in [true, false] {
            let local = some(pays);
            let popped = std::iter::from_fn(|| local.pop(false, NOW)).map(|token| token.stage);
            assert_eq!(popped.collect::<Vec<_>>(), [4, 3, 1, 2, 5]);
            assert!(local.is_empty());
        }
    }

    #[test]
    fn fairness_takes_what_is_to_come_last_and_the_oldest_in_turn() {
        let local = some(true);
        let popped = std::iter::from_fn(|| local.pop(true, NOW)).map(|token| token.stage);
        assert_eq!(popped.collect::<Vec<_>>(), [5, 1, 2, 3, 4]);
    }

    fn stolen(local: &Local, now: Time) -> Vec<u32> {
        std::iter::from_fn(|| local.steal(false, now)).map(|token| token.stage).collect()
    }

    #[test]
    fn a_thief_takes_what_is_in_nobodys_cache_and_the_latest_last() {
        let local = some(true);
        assert_eq!(stolen(&local, NOW), [5, 1, 2, 3, 4]);
        assert!(local.is_empty());
    }

    #[test]
    fn a_thief_takes_only_what_it_pays_to_move() {
        let local = some(false);
        assert!(!local.has_stealable());
        local.push(entry(7, true), When::Fifo);
        assert!(local.has_stealable());
        assert_eq!(stolen(&local, NOW), [7]);
        assert!(!local.has_stealable());
        assert_eq!(local.len(), 5);
    }

    #[test]
    fn a_thief_takes_everything_while_the_worker_is_occupied() {
        let local = some(false);
        local.set_occupied(true);
        assert!(local.has_stealable());
        assert_eq!(local.steal(false, NOW), Some(any(5)));
        local.set_occupied(false);
        assert!(!local.has_stealable());
        assert!(stolen(&local, NOW).is_empty());
    }

    #[test]
    fn of_several_sources_a_thief_takes_all_but_the_last() {
        let local = Local::default();
        for stage in 1..=3 {
            local.push(entry(stage, false), When::Last);
        }
        assert_eq!(stolen(&local, NOW), [1, 2]);
        assert!(!local.has_stealable());
        assert_eq!(local.pop(false, NOW), Some(any(3)));
    }

    #[test]
    fn a_token_is_taken_back_unless_its_new_owner_has_it() {
        let local = some(false);
        assert_eq!(local.take_back(any(2)), Some(any(2)));
        assert_eq!(local.take_back(any(2)), None);
        assert_eq!(local.len(), 4);
    }

    #[test]
    fn a_thief_takes_what_has_waited_for_long() {
        let local = some(false);
        local.push(Entry { since: LATER, ..entry(9, false) }, When::Fifo);
        assert!(!local.note_time(NOW));
        assert!(local.note_time(LATER));
        assert_eq!(stolen(&local, LATER), [5, 1, 2, 3, 4]);
        assert!(!local.has_stealable(), "what came later has not");
        let local = some(false);
        assert_eq!(local.pop(false, LATER), Some(any(4)));
        assert!(local.has_stealable(), "its worker noticed");
    }

    #[test]
    fn a_thief_that_is_fair_does_not_pass_over_the_oldest_for_ever() {
        let local = Local::default();
        local.push(entry(1, true), When::Fifo);
        let mut stolen = Vec::new();
        for _ in 0..2 {
            local.push(entry(9, true), When::Last); // a source that always has more
            stolen.extend(local.steal(true, NOW).map(|token| token.stage));
        }
        assert!(stolen.contains(&1), "{stolen:?}");
    }
}
