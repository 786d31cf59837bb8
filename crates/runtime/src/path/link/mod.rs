//! A spike: an inlet that is no stage but a link to another process. Two programs stand for two processes:
//! in one, the [`Near`] end is the node where the receiving stage would be; in the other, the [`far`] end is
//! the node where the sender would be. Between them are messages, which are delayed and lost, and sometimes
//! the link breaks.
//!
//! The near end numbers what it is offered and keeps it until the far end has it. A message names the one
//! before it, so that the far end sees gaps and duplicates, and the end cannot overtake an event. What the far
//! end says is cumulative: a report that is lost is made good by the next.
//!
//! What it showed: a message must name the one before it, because a new incarnation counts from 0 and the
//! receiver could not see the gap. What is owed for an event crosses too, as a report, and the near end keeps
//! its row until then. The end goes by `Node` to the same object as the events, so it cannot overtake them. A
//! link cannot be part of a cycle, whose counts are shared memory; it passes no priority on, and decides by
//! itself what a full window does, because `Permits` belongs to stages.

mod far;
mod tests;

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use comporta_model::ack::Fate;
use comporta_model::chunk::{Chunk, ChunkQueue};
use comporta_model::column::Id;
use comporta_model::event::Meta;
use comporta_model::plan::WhenFull;

use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::failure::Failure;
use crate::node::{Node, Reading};
use crate::path::line::{Line, Place};
use crate::path::outlet::{Inlet, Refusal, Reserved, Standing};
use crate::path::parcel::Parcel;
use crate::path::ready::{Task, Token};
use crate::path::room::Room;
use crate::snapshot::{Counts, StageSnapshot};
use crate::sync::{Arc, Mutex, spawn};

/// Events that may be under way.
const WINDOW: usize = 16;
/// How long the near end waits for a report before it sends again.
const PATIENCE: Duration = Duration::from_micros(500);

/// What the near end says. A real link encodes the event, off every lock.
enum ToFar<T> {
    Event {
        after: Option<Id>,
        id: Id,
        event: T,
    },
    End {
        after: Option<Id>,
    },
    /// The near program is gone.
    Bye,
    /// Not from the near end: what the far program made of an event has ended.
    Settled(Id),
}

/// What the far end says.
#[derive(Clone, Copy)]
enum ToNear {
    /// It has all up to `received`, of which all up to `settled` have ended.
    Report { received: Option<Id>, settled: Option<Id>, ended: bool },
    /// The link broke: what was under way is lost.
    Broke,
}

/// The end in the program that sends.
struct Near<T> {
    id: u32,
    own: Weak<Near<T>>,
    state: Mutex<NearState<T>>,
    to_far: Sender<ToFar<T>>,
    from_far: Mutex<Option<Receiver<ToNear>>>,
}

struct NearState<T> {
    producers: usize,
    incarnation: u32,
    /// Events numbered in this incarnation.
    seq: u64,
    last: Option<Id>,
    /// The last that the far end has.
    received: Option<Id>,
    /// What the far end may not have: a chunk each.
    window: VecDeque<Chunk<T>>,
    /// What it has, and has not settled.
    owed: VecDeque<Chunk<T>>,
    /// The far end has reported since the timer was set.
    heard: bool,
    line: Line,
    reserved: usize,
    outboxed: usize,
    counts: Counts,
    /// The greatest number of events that were under way.
    most: usize,
    over: bool,
}

impl<T: Copy + Send + Sync + 'static> Near<T> {
    fn new(
        core: &Core,
        id: u32,
        to_far: Sender<ToFar<T>>,
        from_far: Receiver<ToNear>,
    ) -> Arc<Self> {
        let state = Mutex::new(NearState {
            producers: core.wiring.producers(id),
            incarnation: 1,
            seq: 0,
            last: None,
            received: None,
            window: VecDeque::new(),
            owed: VecDeque::new(),
            heard: false,
            line: Line::default(),
            reserved: 0,
            outboxed: 0,
            counts: Counts::default(),
            most: 0,
            over: false,
        });
        let from_far = Mutex::new(Some(from_far));
        Arc::new_cyclic(|own| Near { id, own: own.clone(), state, to_far, from_far })
    }

    /// Sends all that the far end may not have.
    fn send_again(&self, state: &mut NearState<T>) {
        let mut after = state.received;
        for chunk in &mut state.window {
            after = self.send(chunk, after);
        }
        if state.producers == 0 {
            let _ = self.to_far.send(ToFar::End { after });
        }
    }

    /// Sends a chunk of one event; returns its number.
    fn send(&self, chunk: &mut Chunk<T>, after: Option<Id>) -> Option<Id> {
        let id = id_of(chunk)?;
        let event = *chunk.slots_mut().first()?.as_ref()?;
        let _ = self.to_far.send(ToFar::Event { after, id, event });
        Some(id)
    }

    /// Takes events into the window, and sends them.
    fn enter(&self, state: &mut NearState<T>, mut chunk: Chunk<T>) {
        let meta = chunk.meta.clone();
        while let Some((event, mut columns)) = chunk.pop_front() {
            let id = Id { producer: 1, incarnation: state.incarnation, seq: state.seq };
            state.seq += 1;
            columns.set_ids([id]);
            let mut one = Chunk::with_columns(meta.clone(), columns, vec![Some(event)]);
            self.send(&mut one, state.last.replace(id));
            state.window.push_back(one);
        }
        state.most = state.most.max(state.window.len());
    }

    /// Grants free places to those who stand in line.
    fn changed(&self, state: &mut NearState<T>, effects: &mut Effects) {
        while let Some(want) = state.line.first_wants() {
            let room = state.free().min(want);
            if room == 0 {
                return;
            }
            state.reserved += room;
            state.line.pop().into_iter().for_each(|first| first.place.grant_by(room, effects));
        }
    }

    /// What the far end says.
    fn hear(&self, core: &Core, said: ToNear) {
        let mut effects = Effects::default();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        match said {
            ToNear::Broke => {
                state.incarnation += 1;
                state.seq = 0;
                self.send_again(state);
            }
            ToNear::Report { received, settled, ended } => {
                state.heard = true;
                state.received = state.received.max(received);
                while let Some(chunk) = state.window.pop_front_if(|first| id_of(first) <= received)
                {
                    state.counts.handled += 1;
                    state.owed.push_back(chunk);
                }
                while let Some(chunk) = state.owed.pop_front_if(|first| id_of(first) <= settled) {
                    chunk.settle(Fate::Handled);
                }
                self.changed(state, &mut effects);
                if ended && state.owed.is_empty() && !std::mem::replace(&mut state.over, true) {
                    drop(guard);
                    let _ = self.to_far.send(ToFar::Bye);
                    core.stage_ended(self.id, &mut effects);
                }
            }
        }
        core.dispatch(effects);
    }

    fn wake_later(&self, core: &Core) {
        let token = Token::new(self.id, Task::Flush);
        core.timers.add(core.clock.now() + PATIENCE, token);
    }
}

fn id_of<T>(chunk: &Chunk<T>) -> Option<Id> {
    chunk.columns().ids(1).next().flatten()
}

impl<T> NearState<T> {
    fn free(&self) -> usize {
        WINDOW.saturating_sub(self.window.len() + self.reserved)
    }

    fn free_now(&self) -> usize {
        if self.line.is_empty() { self.free() } else { 0 }
    }
}

impl<T: Copy + Send + Sync + 'static> Inlet<T> for Near<T> {
    fn room(&self, _: &Core, _: &Meta, _: Option<WhenFull>) -> Room {
        let free = self.state.lock().free_now();
        Room { before_waiting: free, before_refusing: free }
    }

    fn offer(&self, _: &Core, mut parcel: Parcel<'_, T>, visit: &mut Visit) -> Option<Standing> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        parcel.join();
        let n = parcel.len();
        state.counts.offered += n as u64;
        state.counts.arrived += n as u64;
        if state.over {
            state.counts.cancelled += n as u64;
            parcel.end(Fate::Cancelled, &mut visit.effects);
            return None;
        }
        if let Some(Reserved(places)) = parcel.reserved.take() {
            state.reserved -= places;
        }
        let enter = if parcel.outbox.is_empty() { n.min(state.free_now()) } else { 0 };
        let meta = parcel.meta;
        parcel.take(enter, |slots, columns| {
            self.enter(state, Chunk::with_columns(meta.clone(), columns, slots));
            Vec::new()
        });
        if enter == n {
            return None;
        }
        parcel.keep();
        state.outboxed += n - enter;
        let (place, want) = (parcel.place.clone(), parcel.outbox.len());
        let stands = !parcel.waits_elsewhere;
        stands.then(|| Standing { inside: false, number: state.line.join(place, want) })
    }

    fn resume(
        &self,
        _: &Core,
        outbox: &mut ChunkQueue<T>,
        place: &Arc<Place>,
        granted: usize,
        visit: &mut Visit,
    ) -> Option<Standing> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.reserved -= granted;
        let mut enter = outbox.len().min(granted.max(state.free_now()));
        state.outboxed -= enter;
        while enter > 0
            && let Some(chunk) = outbox.pop(enter)
        {
            enter -= chunk.len();
            self.enter(state, chunk);
        }
        let rest = outbox.len();
        let standing = (rest > 0)
            .then(|| Standing { inside: false, number: state.line.join(place.clone(), rest) });
        self.changed(state, &mut visit.effects);
        standing
    }

    fn leave(
        &self,
        _: &Core,
        outbox: &mut ChunkQueue<T>,
        place: &Place,
        standing: Option<Standing>,
        effects: &mut Effects,
    ) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some(standing) = standing
            && !state.line.leave(standing.number)
        {
            state.reserved -= place.take();
        }
        while let Some(chunk) = outbox.pop(usize::MAX) {
            state.outboxed -= chunk.len();
            state.counts.cancelled += chunk.len() as u64;
            chunk.settle(Fate::Cancelled);
        }
        self.changed(state, effects);
    }

    fn reserve(
        &self,
        _: &Core,
        n: usize,
        _: &Meta,
        _: Option<WhenFull>,
    ) -> Result<Reserved, Refusal> {
        let mut state = self.state.lock();
        if state.free_now() < n {
            return Err(Refusal::Full);
        }
        state.reserved += n;
        Ok(Reserved(n))
    }

    fn release(&self, _: &Core, Reserved(places): Reserved, effects: &mut Effects) {
        let mut guard = self.state.lock();
        guard.reserved -= places;
        self.changed(&mut guard, effects);
    }

    fn refuse(&self) {
        let mut state = self.state.lock();
        state.counts.offered += 1;
        state.counts.refused += 1;
    }
}

impl<T: Copy + Send + Sync + 'static> Node for Near<T> {
    /// A timer has fired: what the far end has not reported is sent again.
    fn visit(&self, core: &Arc<Core>, _: Task, _: &mut Visit) {
        let mut state = self.state.lock();
        if !state.over {
            if !std::mem::take(&mut state.heard) {
                self.send_again(&mut state);
            }
            self.wake_later(core);
        }
    }

    fn start(&self, core: &Arc<Core>, _: &mut Effects) -> Result<(), String> {
        self.wake_later(core);
        let Some(from_far) = self.from_far.lock().take() else { return Ok(()) };
        let (core, near) = (Arc::downgrade(core), self.own.clone());
        let spawned = spawn("near".to_owned(), move || {
            for said in from_far {
                let (Some(core), Some(near)) = (core.upgrade(), near.upgrade()) else { return };
                near.hear(&core, said);
            }
        });
        spawned.map(drop).map_err(|error| error.to_string())
    }

    fn inlet(self: Arc<Self>) -> Box<dyn Any> {
        let inlet: Arc<dyn Inlet<T>> = self;
        Box::new(inlet)
    }

    fn close_edge(&self, _: &Core, _: u32, _: &mut Effects) {
        let mut state = self.state.lock();
        state.producers -= 1; // all they sent has been offered: nobody ends with a full outbox
        if state.producers == 0 {
            let _ = self.to_far.send(ToFar::End { after: state.last });
        }
    }

    fn cancel(&self, _: &mut Effects) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if std::mem::replace(&mut state.over, true) {
            return;
        }
        let lost = state.window.len();
        state.counts.cancelled += lost as u64;
        for chunk in state.window.drain(..).chain(state.owed.drain(..)) {
            chunk.settle(Fate::Cancelled);
        }
        let _ = self.to_far.send(ToFar::Bye);
        let waiting: Vec<_> = std::iter::from_fn(|| state.line.pop()).collect();
        drop(guard);
        let callers = waiting.iter().filter(|waiter| waiter.place.token().is_none());
        callers.for_each(|waiter| waiter.place.close());
    }

    fn snapshot(&self, name: &str, priority: i32) -> StageSnapshot {
        let state = self.state.lock();
        StageSnapshot {
            counts: state.counts,
            in_flight: state.window.len(),
            outboxed: state.outboxed,
            capacity: WINDOW,
            ended: state.over,
            ..StageSnapshot::blank(name, priority)
        }
    }

    fn reading(&self) -> Reading {
        Reading::default()
    }

    fn failures(&self) -> Vec<Failure> {
        Vec::new()
    }
}
