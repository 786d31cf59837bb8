//! Output ports, through which a stage sends without knowing its receivers.
//! `Out<T>` is a stage's only port, or a field of a struct with `#[derive(Ports)]`.
//! It collects the events of one visit; the runtime hands them on when the visit ends, and withdraws those
//! of an event that failed.
//! Long because a port, its handle and the structs of ports are read together.
//! Invariant: events before `mark` belong to events already handled; those after it can be withdrawn.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::ack::Obligation;
use crate::chunk::{Slots, chunk_capacity};
use crate::column::{Column, Columns, Duty};
use crate::graph::StageId;

/// An output port: collects the events that a handler sends.
pub struct Out<T> {
    filling: Slots<T>,
    filled: Vec<Slots<T>>,
    filled_len: usize,
    mark: usize,
    limit: usize,
    room: usize,
    refused: usize,
    emit_max: usize,
    flooded: bool,
    turns: Option<(u32, Arc<Turns>)>,
    runs: Vec<Run>,
    /// From which event on what is sent is for events that owe this; before the first, for those of the
    /// visit.
    duties: Vec<(usize, Duty)>,
    /// Which events were sent for obligations that the handler held.
    held: Vec<(usize, Obligation)>,
}

/// Shared by the ports of one stage, to know in which order they were sent to.
/// Plain loads and stores: the ports of an instance are used by one thread at a time.
#[derive(Debug)]
pub struct Turns {
    last: AtomicU32,
    turn: AtomicU32,
}

const NO_PORT: u32 = u32::MAX;
/// What is sent before the first [`Run`] of its port is of this turn.
const FIRST_TURN: u32 = 1;

impl Turns {
    /// For a new set of ports.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        Arc::new(Turns { last: AtomicU32::new(NO_PORT), turn: AtomicU32::new(0) })
    }
}

/// From `start` on, this port was sent to without another in between.
#[derive(Clone, Copy, Debug)]
struct Run {
    turn: u32,
    start: usize,
}

impl<T> Default for Out<T> {
    fn default() -> Self {
        Out {
            filling: Vec::new(),
            filled: Vec::new(),
            filled_len: 0,
            mark: 0,
            limit: usize::MAX,
            room: usize::MAX,
            refused: 0,
            emit_max: usize::MAX,
            flooded: false,
            turns: None,
            runs: Vec::new(),
            duties: Vec::new(),
            held: Vec::new(),
        }
    }
}

impl<T> Out<T> {
    /// Sends an event. This never fails: an event that finds no room waits for it, or is shed and counted,
    /// as the plan says.
    #[inline]
    pub fn send(&mut self, event: T) {
        if self.turns.is_some() {
            self.take_turn();
        }
        if self.filling.len() == self.filling.capacity() {
            self.roll();
        }
        self.filling.push(Some(event));
    }

    /// Sends an event that was made of [held](crate::event::Ev::hold) events: their sources wait until it has
    /// been handled. Its deadline is that of the event being handled.
    ///
    /// If the handler fails afterwards, the event is withdrawn, and the events that the obligation covers
    /// have failed, whether or not the handler is retried.
    pub fn send_for(&mut self, obligation: Obligation, event: T) {
        if !self.flooded {
            self.held.push((self.len(), obligation));
        }
        self.send(event);
    }

    /// Sends an event if there is room for it now.
    ///
    /// The room is read once, when a visit begins, and is not reserved. So an event may be returned although
    /// room was made since, and an event that was sent may find the room taken: it then waits, or is shed,
    /// as with [`send`](Self::send).
    ///
    /// # Errors
    /// Returns the event if a queue that would receive it has no room.
    #[inline]
    pub fn try_send(&mut self, event: T) -> std::result::Result<(), T> {
        if self.len() >= self.room {
            self.refused += 1;
            return Err(event);
        }
        self.send(event);
        Ok(())
    }

    /// Sends up to `max` events of an iterator. Returns how many were sent.
    #[inline]
    pub fn send_all(&mut self, events: &mut impl Iterator<Item = T>, max: usize) -> usize {
        let mut sent = 0; // not by `len`: what an event sends beyond `emit_max` is not kept
        loop {
            let left = max - sent;
            if left == 0 {
                return max;
            }
            if self.turns.is_some() {
                self.take_turn();
            }
            if self.filling.len() == self.filling.capacity() {
                self.roll();
            }
            let room = left.min(self.filling.capacity() - self.filling.len());
            let filled = self.filling.len();
            self.filling.extend(events.by_ref().take(room).map(Some));
            let more = self.filling.len() - filled;
            sent += more;
            if more < room {
                return sent;
            }
        }
    }

    /// Returns the number of events sent and not yet handed on.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.filled_len + self.filling.len()
    }

    /// Returns `true` if no event was sent.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all events sent, in order, for tests of a handler without a runtime.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        let (filled, filling) = self.take();
        filled.into_iter().chain([filling]).flatten().flatten()
    }

    #[cold]
    fn roll(&mut self) {
        let emitted = self.len() - self.mark;
        if emitted >= self.emit_max {
            self.flooded = true;
            self.limit = 0; // so that the one test after each event notices
        }
        if self.flooded {
            // The event has failed already; what it still sends is not to take memory.
            self.filling.truncate(self.mark.saturating_sub(self.filled_len));
        }
        let full = chunk_capacity::<T>();
        if self.filling.capacity() < full {
            // Not `clamp`: storage handed back may lack fewer than 4 places of a chunk.
            let more = (self.filling.len() * 3).max(4).min(full - self.filling.len());
            self.filling.reserve_exact(more);
        } else if self.filling.len() == self.filling.capacity() {
            self.filled_len += self.filling.len();
            self.filled.push(std::mem::replace(&mut self.filling, Vec::with_capacity(full)));
        }
    }

    #[inline(always)]
    fn take_turn(&mut self) {
        let Some((index, turns)) = &self.turns else { return };
        if turns.last.load(Relaxed) == *index {
            return;
        }
        turns.last.store(*index, Relaxed);
        if turns.turn.load(Relaxed) == 0 {
            turns.turn.store(FIRST_TURN, Relaxed); // mostly the only one of a visit: it needs no `Run`
        } else {
            self.begin_run();
        }
    }

    #[inline(never)]
    fn begin_run(&mut self) {
        let Some((_, turns)) = &self.turns else { return };
        let turn = turns.turn.load(Relaxed) + 1;
        turns.turn.store(turn, Relaxed);
        self.runs.push(Run { turn, start: self.len() });
    }
}

/// Methods for the runtime, not for handlers.
#[doc(hidden)]
impl<T> Out<T> {
    /// A port that is one of several.
    #[must_use]
    pub fn one_of(turns: &Arc<Turns>, index: u32) -> Self {
        Out { turns: Some((index, turns.clone())), ..Out::default() }
    }

    /// Before a visit: `limit` events may be sent before the visit stops taking input, `room`
    /// before `try_send` refuses, `emit_max` by one event before it fails.
    #[inline]
    pub fn allow(&mut self, limit: usize, room: usize, emit_max: usize) {
        self.limit = limit;
        self.room = room;
        self.refused = 0;
        self.emit_max = emit_max;
    }

    /// How many events `try_send` gave back since.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// How many events may be sent before the visit stops.
    #[inline]
    #[must_use]
    pub fn allowance(&self) -> usize {
        self.limit
    }

    /// Before an event: what was sent so far stays.
    #[inline(always)]
    pub fn set_mark(&mut self) {
        self.mark = self.filled_len + self.filling.len();
    }

    /// More was sent than there was room for.
    #[inline(always)]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.filled_len + self.filling.len() > self.limit
    }

    /// One event sent more than `emit_max`.
    #[inline(always)]
    #[must_use]
    pub fn is_flooded(&self) -> bool {
        self.flooded
    }

    /// Withdraws what was sent since the mark, the last first, and gives each event to `discard`.
    pub fn withdraw(&mut self, mut discard: impl FnMut(T)) {
        self.flooded = false;
        while self.len() > self.mark {
            match self.filling.pop() {
                Some(event) => event.into_iter().for_each(&mut discard),
                None => {
                    let Some(last) = self.filled.pop() else { break };
                    self.filled_len -= last.len();
                    self.filling = last;
                }
            }
        }
        while self.runs.last().is_some_and(|run| run.start >= self.mark) {
            self.runs.pop();
        }
        // One that holds from the mark on holds for what is sent next.
        while self.duties.pop_if(|(from, _)| *from > self.mark).is_some() {}
        while self.held.pop_if(|(at, _)| *at >= self.mark).is_some() {} // dropped: it has failed
        if let Some((_, turns)) = &self.turns {
            turns.last.store(NO_PORT, Relaxed);
        }
    }

    /// What is sent from now on is for an event that owes this, and not what its visit says.
    pub fn set_duty(&mut self, duty: &Duty) {
        if self.duties.last().is_none_or(|(_, last)| last != duty) {
            let from = self.len();
            let _ = self.duties.pop_if(|(last, _)| *last == from); // nothing was sent for it
            self.duties.push((from, duty.clone()));
        }
    }

    /// What is sent with the next chunks owes this, event by event.
    pub fn set_duties(&mut self, duties: &Column<Duty>) {
        let mut from = self.len();
        for (duty, n) in duties.runs() {
            self.duties.push((from, duty.clone()));
            from += n;
        }
    }

    /// Whether events may owe something else than the visit says.
    #[inline]
    #[must_use]
    pub fn has_duties(&self) -> bool {
        !self.duties.is_empty() || !self.held.is_empty()
    }

    /// Takes what each event owes, where that is not what the visit says (`shared`), and the obligations
    /// that some were sent for, to be dropped when the events have been handed on.
    #[inline]
    pub fn take_duties(&mut self, shared: &Duty) -> (Columns, Vec<(usize, Obligation)>) {
        if self.duties.is_empty() && self.held.is_empty() {
            return (Columns::default(), Vec::new());
        }
        self.take_each_duty(shared)
    }

    fn take_each_duty(&mut self, shared: &Duty) -> (Columns, Vec<(usize, Obligation)>) {
        // Where nobody waits for anything, it does not matter what was sent for whom.
        let nothing = || shared.ack.is_none() && self.held.iter().all(|(_, held)| !held.is_owed());
        let as_shared = self.duties.iter().all(|(_, duty)| duty == shared);
        if as_shared && (self.held.is_empty() || nothing()) {
            self.duties.clear();
            self.held.clear();
            return (Columns::default(), Vec::new());
        }
        let mut column = Column::default();
        let mut at = 0;
        let mut fill = |column: &mut Column<Duty>, until: usize, duty: &Duty| {
            column.extend(duty.clone(), until - at);
            at = until;
        };
        let mut held = self.held.iter().peekable();
        let spans = std::iter::once(shared).chain(self.duties.iter().map(|(_, duty)| duty));
        let ends = self.duties.iter().map(|(from, _)| *from).chain([self.len()]);
        for (duty, end) in spans.zip(ends) {
            while let Some((sent, obligation)) = held.next_if(|(sent, _)| *sent < end) {
                fill(&mut column, *sent, duty);
                let own = Duty { ack: obligation.group().cloned(), ..duty.clone() };
                fill(&mut column, sent + 1, &own);
            }
            fill(&mut column, end, duty);
        }
        self.duties.clear();
        (Columns::of_duties(column), std::mem::take(&mut self.held))
    }

    /// Takes everything: the filled chunks, and the one being filled.
    #[must_use]
    pub fn take(&mut self) -> (Vec<Slots<T>>, Slots<T>) {
        let (filled, filling) = self.lend();
        (std::mem::take(filled), std::mem::take(filling))
    }

    /// As [`take`](Self::take), for one that takes the events and leaves their storage empty.
    #[inline(always)]
    #[must_use]
    pub fn lend(&mut self) -> (&mut Vec<Slots<T>>, &mut Slots<T>) {
        self.runs.clear();
        if self.has_duties() {
            self.duties.clear();
            self.held.clear();
        }
        if let Some((_, turns)) = &self.turns {
            // All ports of a stage are emptied together: turns are compared within a visit only.
            turns.last.store(NO_PORT, Relaxed);
            turns.turn.store(0, Relaxed);
        }
        self.filled_len = 0;
        self.mark = 0;
        (&mut self.filled, &mut self.filling)
    }

    /// As [`lend`](Self::lend), if that is one chunk whose events owe what the visit says.
    #[inline(always)]
    pub fn lend_one(&mut self) -> Option<&mut Slots<T>> {
        if self.filled.is_empty() && !self.has_duties() { Some(self.lend().1) } else { None }
    }

    /// Sends a chunk that is already made.
    #[inline]
    pub fn give(&mut self, slots: Slots<T>) {
        if slots.is_empty() {
            return;
        }
        if self.is_empty() {
            self.filling = slots;
        } else {
            // The chunk being filled may be short: chunks need not be full, only in order.
            self.filled_len += self.filling.len();
            self.filled.push(std::mem::replace(&mut self.filling, slots));
        }
    }

    /// Takes what was sent, to be sent by another port of this place: [`append`](Self::append).
    #[must_use]
    pub fn take_sent(&mut self) -> Sent<T> {
        let held = std::mem::take(&mut self.held);
        let sent = Sent {
            refused: self.refused,
            flooded: self.flooded,
            runs: self.runs(),
            held: held.into_iter().peekable(),
            at: 0,
            events: {
                let (filled, filling) = self.take();
                filled.into_iter().chain([filling]).flatten()
            },
        };
        self.refused = 0;
        self.flooded = false;
        sent
    }

    /// Sends the next `n` events that were sent through another port of this place.
    pub fn append(&mut self, sent: &mut Sent<T>, n: usize) {
        self.refused += std::mem::take(&mut sent.refused);
        for event in sent.events.by_ref().take(n) {
            let obligation = sent.held.next_if(|(at, _)| *at == sent.at);
            sent.at += 1;
            match (event, obligation) {
                (Some(event), Some((_, obligation))) => self.send_for(obligation, event),
                (Some(event), None) => self.send(event),
                (None, _) => {}
            }
        }
        if sent.flooded {
            self.flooded = true;
            self.limit = 0;
        }
    }

    /// Shows every event that was sent, in order.
    pub fn for_each(&self, see: impl FnMut(&T)) {
        self.filled.iter().chain([&self.filling]).flatten().flatten().for_each(see);
    }

    /// The runs of this port as `(turn, length)`, oldest first.
    #[must_use]
    pub fn runs(&self) -> Vec<(u32, usize)> {
        let before = self.runs.first().map_or(self.len(), |run| run.start);
        let first = (self.turns.is_some() && before > 0).then_some((FIRST_TURN, before));
        let ends = self.runs.iter().skip(1).map(|run| run.start).chain([self.len()]);
        let later = self.runs.iter().zip(ends);
        let later = later.map(|(run, end)| (run.turn, end.saturating_sub(run.start)));
        first.into_iter().chain(later).collect()
    }
}

impl<T> fmt::Debug for Out<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Out").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Visits every port of a set, whatever its type.
pub trait PortVisitor {
    /// The port numbered `index`.
    fn port<T: Send + 'static>(&mut self, index: usize, out: &mut Out<T>);
}

/// The ports of a stage: `()`, `Out<T>`, or a struct of `Out<_>` fields with `#[derive(Ports)]`.
pub trait Ports: Send + Sized + 'static {
    /// Copyable handles to the ports, for `connect`.
    type Refs: Copy;

    /// The names of the ports, in order.
    const NAMES: &'static [&'static str];

    /// A set of ports for a new instance.
    fn new() -> Self;

    /// Handles to the ports of a stage of the graph.
    fn refs(of: StageKey) -> Self::Refs;

    /// Shows every port to `visitor`, in order.
    fn each<V: PortVisitor>(&mut self, visitor: &mut V);

    /// Sends what was sent through another set of these ports, which is left empty.
    fn append(&mut self, from: &mut Self);
}

impl Ports for () {
    type Refs = ();
    const NAMES: &'static [&'static str] = &[];
    fn new() {}
    fn refs(_: StageKey) {}
    #[inline(always)]
    fn each<V: PortVisitor>(&mut self, _: &mut V) {}
    #[inline(always)]
    fn append(&mut self, (): &mut ()) {}
}

impl<T: Send + 'static> Ports for Out<T> {
    type Refs = Port<T>;
    const NAMES: &'static [&'static str] = &["out"];
    fn new() -> Self {
        Out::default()
    }
    fn refs(of: StageKey) -> Port<T> {
        Port::of(of, 0)
    }
    #[inline(always)]
    fn each<V: PortVisitor>(&mut self, visitor: &mut V) {
        visitor.port(0, self);
    }
    #[inline]
    fn append(&mut self, from: &mut Self) {
        if from.filled.is_empty() && from.held.is_empty() && from.refused == 0 && !from.flooded {
            // Its storage stays where it is.
            for event in from.filling.drain(..).flatten() {
                self.send(event);
            }
            from.mark = 0;
        } else {
            Out::append(self, &mut from.take_sent(), usize::MAX);
        }
    }
}

/// What was sent through a port, on its way to another port of this place.
#[doc(hidden)]
pub struct Sent<T> {
    refused: usize,
    flooded: bool,
    runs: Vec<(u32, usize)>,
    held: std::iter::Peekable<std::vec::IntoIter<(usize, Obligation)>>,
    at: usize,
    events: Events<T>,
}

type Events<T> = std::iter::Flatten<
    std::iter::Chain<std::vec::IntoIter<Slots<T>>, std::array::IntoIter<Slots<T>, 1>>,
>;

impl<T> Sent<T> {
    /// Its runs, as those of the port numbered `port`: for [`in_turn`].
    pub fn runs(&self, port: usize) -> impl Iterator<Item = (u32, usize, usize)> {
        self.runs.iter().map(move |(turn, n)| (*turn, port, *n))
    }
}

impl<T> fmt::Debug for Sent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sent").finish_non_exhaustive()
    }
}

/// Calls `append` with each run of the ports of a set, in the order in which they were sent to: what
/// `#[derive(Ports)]` writes calls this.
#[doc(hidden)]
pub fn in_turn(
    runs: impl Iterator<Item = (u32, usize, usize)>,
    mut append: impl FnMut(usize, usize),
) {
    let mut runs: Vec<_> = runs.collect();
    runs.sort_unstable();
    runs.into_iter().for_each(|(_, port, n)| append(port, n));
}

/// A stage of a particular app, so that handles of two apps are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StageKey {
    /// Which app.
    pub app: u64,
    /// Which stage of it.
    pub stage: StageId,
}

/// A handle to one output port of a stage.
pub struct Port<T> {
    /// Whose port.
    pub of: StageKey,
    /// Its number.
    pub index: usize,
    carries: PhantomData<fn() -> T>,
}

impl<T> Port<T> {
    /// The port numbered `index` of a stage; `#[derive(Ports)]` calls this.
    #[must_use]
    pub fn of(of: StageKey, index: usize) -> Self {
        Port { of, index, carries: PhantomData }
    }
}

impl<T> Clone for Port<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Port<T> {}

impl<T> PartialEq for Port<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.of, self.index) == (other.of, other.index)
    }
}
impl<T> Eq for Port<T> {}

impl<T> Hash for Port<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.of, self.index).hash(state);
    }
}

impl<T> fmt::Debug for Port<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("of", &self.of).field("index", &self.index).finish()
    }
}

/// A connector can start here: a port, or a stage with exactly one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not send `{T}`",
    note = "the start of a connector is a port (`stage.port`) or a stage with one port, and must carry what its end takes"
)]
pub trait AsPort<T> {
    /// The port.
    fn as_port(&self) -> Port<T>;
}

impl<T> AsPort<T> for Port<T> {
    fn as_port(&self) -> Port<T> {
        *self
    }
}

/// A connector can end here: a stage that takes `T`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not take `{T}`",
    note = "the end of a connector is a stage whose `In` is what the port carries"
)]
pub trait AsInput<T> {
    /// The stage.
    fn as_input(&self) -> StageKey;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_event_sent_is_withdrawn_across_chunks() {
        let mut out = Out::<u64>::default();
        for n in 0..300 {
            out.send(n);
        }
        out.set_mark();
        for n in 300..2_000 {
            out.send(n);
        }
        out.withdraw(drop);
        assert_eq!(out.len(), 300);
        out.send(7);
        assert_eq!(out.drain().collect::<Vec<_>>(), (0..300).chain([7]).collect::<Vec<_>>());
        assert!(out.is_empty());
    }

    #[test]
    fn storage_of_any_size_can_be_filled_further() {
        for capacity in 0..=300 {
            let mut out = Out::<u64>::default();
            *out.lend().1 = Vec::with_capacity(capacity);
            (0..1_000).for_each(|n| out.send(n));
            assert!(out.drain().eq(0..1_000));
        }
    }

    #[test]
    fn one_event_that_sends_too_much_takes_no_more_memory() {
        let mut out = Out::<u64>::default();
        out.allow(usize::MAX, usize::MAX, 1_000);
        for n in 0..1_000_000 {
            out.send(n);
        }
        assert!(out.is_flooded() && out.len() < 2_000);
        out.withdraw(drop);
        assert!(!out.is_flooded() && out.is_empty());
    }

    #[test]
    fn try_send_gives_the_event_back_when_there_is_no_room() {
        let mut out = Out::default();
        out.allow(usize::MAX, 1, usize::MAX);
        assert_eq!(out.try_send("a"), Ok(()));
        assert_eq!(out.try_send("b"), Err("b"));
        assert!(!out.is_over());
    }

    #[test]
    fn the_order_of_sending_between_ports_is_known() {
        let turns = Turns::shared();
        let (mut a, mut b) = (Out::one_of(&turns, 0), Out::one_of(&turns, 1));
        a.send(1);
        a.send(2);
        b.send(3);
        a.send(4);
        assert_eq!((a.runs(), b.runs()), (vec![(1, 2), (3, 1)], vec![(2, 1)]));
        a.set_mark();
        a.send(5);
        a.withdraw(drop);
        b.send(6);
        assert_eq!((a.runs(), b.runs()), (vec![(1, 2), (3, 1)], vec![(2, 1), (4, 1)]));
    }
}
