//! What is due later: tokens of retries, paced sources and groups that gather; timers of policies.
//! A thread of its own waits for the next one, so that no worker has to; under test the stepper asks.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use comporta_model::event::Time;

use crate::path::ready::Token;
use crate::sync::{AtomicBool, Condvar, Mutex, SeqCst, wait};

/// What is to happen at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// A token is made ready.
    Ready(Token),
    /// A policy is called.
    Policy(PolicyTimer),
    /// Wakers are called that handlers asked for.
    Wakers,
    /// A request of a gateway is late, or those who wait for replies are to be woken.
    Gateway(u32),
    /// A drain has waited long enough for sources that do not return.
    Leave,
}

/// A timer of the policy of a cluster; it is called if it is still the one of this epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyTimer {
    pub(crate) cluster: usize,
    pub(crate) timer: u32,
    pub(crate) epoch: u32,
}

/// Calls of user code that are due, for a thread that makes them: the clock must not wait for it.
pub(crate) struct Calls<T> {
    state: Mutex<CallsState<T>>,
    changed: Condvar,
}

struct CallsState<T> {
    due: VecDeque<T>,
    has_thread: bool,
    /// Threads that wait for a call to be due.
    waiting: usize,
    /// Calls ever begun, and how many they were when it was last asked whether they are held up.
    begun: u64,
    begun_before: u64,
    stopped: bool,
}

impl<T> Default for CallsState<T> {
    fn default() -> Self {
        let (due, has_thread, stopped) = (VecDeque::new(), false, false);
        CallsState { due, has_thread, waiting: 0, begun: 0, begun_before: 0, stopped }
    }
}

impl<T> Default for Calls<T> {
    fn default() -> Self {
        Calls { state: Mutex::default(), changed: Condvar::new() }
    }
}

/// Who makes the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callers {
    /// The thread that is there.
    Thread,
    /// A thread that is to be started.
    NewThread,
    /// Nobody: the program has stopped.
    Nobody,
}

impl<T> Calls<T> {
    /// Adds calls that are due, unless the program has stopped.
    pub(crate) fn add(&self, add: impl FnOnce(&mut VecDeque<T>)) -> Callers {
        let mut state = self.state.lock();
        if state.stopped {
            return Callers::Nobody;
        }
        add(&mut state.due);
        self.changed.notify_one();
        match std::mem::replace(&mut state.has_thread, true) {
            true => Callers::Thread,
            false => Callers::NewThread,
        }
    }

    /// The thread could not be started. Returns what is due.
    pub(crate) fn forget_thread(&self) -> VecDeque<T> {
        let mut state = self.state.lock();
        state.has_thread = false;
        std::mem::take(&mut state.due)
    }

    /// Whether calls are due and none was begun since this was last asked: whoever makes them does not return, and
    /// another thread is to.
    pub(crate) fn are_held_up(&self) -> bool {
        let mut state = self.state.lock();
        let begun = state.begun;
        let before = std::mem::replace(&mut state.begun_before, begun);
        state.has_thread && !state.due.is_empty() && before == begun && !state.stopped
    }

    /// Waits for the next; none once the program has stopped, and all are made that were due, or if another thread
    /// waits already.
    pub(crate) fn next(&self) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if let Some(call) = state.due.pop_front() {
                state.begun += 1;
                return Some(call);
            }
            if state.stopped || state.waiting > 0 {
                return None;
            }
            state.waiting += 1;
            state = wait(&self.changed, state, None);
            state.waiting -= 1;
        }
    }

    /// The program has stopped. Calls are still made that are due, but for those `given_up`.
    pub(crate) fn stop(&self, given_up: impl FnMut(&T) -> bool) {
        let mut state = self.state.lock();
        state.stopped = true;
        let mut given_up = given_up;
        state.due.retain(|call| !given_up(call));
        self.changed.notify_all();
    }
}

impl From<Token> for Alarm {
    fn from(token: Token) -> Self {
        Alarm::Ready(token)
    }
}

/// For which times the clock was asked on behalf of many that wait: the earliest comes last. It is asked again
/// only for an earlier one, so that what has been asked for is as many as there are here.
#[derive(Default)]
pub(crate) struct Armed(Vec<Time>);

impl Armed {
    /// The first of those that wait is due then. Returns the time for which the clock is to be asked, if any.
    #[must_use]
    pub(crate) fn arm(&mut self, first: Time) -> Option<Time> {
        if self.0.last().is_some_and(|armed| *armed <= first) {
            return None;
        }
        self.0.push(first);
        Some(first)
    }

    /// The clock has told.
    pub(crate) fn ring(&mut self, now: Time) {
        while self.0.pop_if(|armed| *armed <= now).is_some() {}
    }
}

#[derive(Default)]
pub(crate) struct Timers {
    state: Mutex<TimerState>,
    changed: Condvar,
    hurried: AtomicBool,
}

/// How soon whoever keeps the time looks after those who were not woken: long against a visit, and
/// some hundred times a second cost next to nothing.
pub(crate) const HURRY: Duration = Duration::from_millis(2);

#[derive(Default)]
struct TimerState {
    heap: BinaryHeap<Reverse<Entry>>,
    made: u64,
    stopped: bool,
}

struct Entry {
    due: Time,
    number: u64,
    alarm: Alarm,
}

impl Entry {
    fn rank(&self) -> (Time, u64) {
        (self.due, self.number)
    }
}
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl Timers {
    /// Sets an alarm.
    pub(crate) fn add(&self, due: Time, alarm: impl Into<Alarm>) {
        let alarm = alarm.into();
        let mut state = self.state.lock();
        let number = state.made;
        state.made += 1;
        let sooner = state.heap.peek().is_none_or(|Reverse(first)| due < first.due);
        state.heap.push(Reverse(Entry { due, number, alarm }));
        drop(state);
        if sooner {
            self.changed.notify_one();
        }
    }

    /// Sets an alarm in place of an equal one.
    pub(crate) fn set(&self, due: Time, alarm: Alarm) {
        self.state.lock().heap.retain(|Reverse(entry)| entry.alarm != alarm);
        self.add(due, alarm);
    }

    /// Takes what is due.
    pub(crate) fn due(&self, now: Time, into: &mut Vec<Alarm>) {
        let mut state = self.state.lock();
        while state.heap.peek().is_some_and(|Reverse(first)| first.due <= now) {
            if let Some(Reverse(entry)) = state.heap.pop() {
                into.push(entry.alarm);
            }
        }
    }

    /// Whether a token is to be made ready at some time, or a handler to be woken.
    pub(crate) fn awaits_token(&self) -> bool {
        let awaited = |alarm| matches!(alarm, Alarm::Ready(_) | Alarm::Wakers);
        self.state.lock().heap.iter().any(|Reverse(entry)| awaited(entry.alarm))
    }

    /// Takes back all alarms of the policies of a cluster.
    pub(crate) fn forget(&self, of: usize) {
        let other = |alarm| !matches!(alarm, Alarm::Policy(timer) if timer.cluster == of);
        self.state.lock().heap.retain(|Reverse(entry)| other(entry.alarm));
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Time> {
        self.state.lock().heap.peek().map(|Reverse(first)| first.due)
    }

    /// Someone was not woken because enough are at work: it is to be looked soon whether they are.
    #[inline]
    pub(crate) fn hurry(&self) {
        // Looked at before it is written: it is asked for at every visit.
        if !self.hurried.load(SeqCst) {
            self.begin_to_hurry();
        }
    }

    #[cold]
    fn begin_to_hurry(&self) {
        if !self.hurried.swap(true, SeqCst) {
            drop(self.state.lock()); // who waits has looked at this before, or will be notified
            self.changed.notify_one();
        }
    }

    /// Whether it was asked to hurry, and [`was_hurried`](Self::was_hurried) has not been asked since.
    pub(crate) fn is_hurried(&self) -> bool {
        self.hurried.load(SeqCst)
    }

    /// Whether it was asked to hurry since this was last asked.
    pub(crate) fn was_hurried(&self) -> bool {
        self.hurried.swap(false, SeqCst)
    }

    /// Waits until something is due, the set of timers changed, or `at_most` has passed. Says
    /// whether to go on.
    pub(crate) fn wait(&self, now: Time, at_most: Duration) -> bool {
        let state = self.state.lock();
        if state.stopped {
            return false;
        }
        let at_most = if self.hurried.load(SeqCst) { at_most.min(HURRY) } else { at_most };
        let next = state.heap.peek().map(|Reverse(first)| first.due.duration_since(now));
        let state = wait(&self.changed, state, Some(next.unwrap_or(at_most).min(at_most)));
        !state.stopped
    }

    /// Ends [`wait`](Self::wait) for good.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::ready::Task;

    #[test]
    fn tokens_come_out_when_due_and_in_order() {
        let timers = Timers::default();
        let token = |stage| Token::new(stage, Task::Any);
        for (due, stage) in [(30, 3), (10, 1), (10, 2)] {
            timers.add(Time::from_nanos(due), token(stage));
        }
        let mut out = Vec::new();
        timers.due(Time::from_nanos(9), &mut out);
        assert!(out.is_empty());
        timers.due(Time::from_nanos(10), &mut out);
        assert_eq!(out, [token(1).into(), token(2).into()]);
        assert_eq!(timers.next(), Some(Time::from_nanos(30)));
        for due in [40, 20] {
            timers.set(Time::from_nanos(due), Alarm::Gateway(7));
        }
        timers.due(Time::from_nanos(50), &mut out);
        assert_eq!(out[2..], [Alarm::Gateway(7), token(3).into()]);
    }
}
