//! The beginning of a visit: an instance that is idle takes a batch of events from the queue.
//! Before: `work`, with a token. After: `handle`.

use std::collections::VecDeque;

use comporta_model::ack::Obligation;
use comporta_model::chunk::Chunk;
use comporta_model::column::{Duties, Duty, Lanes, all_of};
use comporta_model::event::{Meta, Time};
use comporta_model::keyed::LaneRef;
use comporta_model::kind::Kind;
use comporta_policy::admission::{Look, Next};

use super::flight::InFlight;
use super::groups::GroupSize;
use super::handle::{Instance, Tally};
use super::lanes::{Call, Doom};
use super::permits::Shed;
use super::queue::{Oldest, Side, StageQueue, Taken, Turn, Want};
use super::tray::Tray;
use super::{Stage, State, age};
use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::sync::{Arc, MutexGuard, Relaxed};

/// What an instance has in hand in a visit.
pub(super) struct Batch<T> {
    /// The events it handles.
    pub(super) chunk: Chunk<T>,
    /// Where those stand that it handles after these, one at a time.
    pub(super) tray: Option<Arc<Tray<T>>>,
    /// Of an ordered stage: its place in the order of results.
    pub(super) ticket: Option<u64>,
    /// It was the only one when a plain visit took it.
    pub(super) alone: bool,
    /// Which end of the queue it was taken from.
    pub(super) from: Side,
    /// How those ended that it handled before it waited to try one again.
    pub(super) tally: Tally,
    /// What is owed for those it has handled.
    pub(super) spent: Duties,
    /// How many more of its events may wait, set aside for it.
    pub(super) slots: usize,
    /// Of a keyed stage: what its queue knows it by.
    pub(super) turn: Turn,
    /// Which lane each of its events belongs to, if somebody wants to know.
    pub(super) lanes: Lanes,
    /// The watermark that each found, if the stage has event time.
    pub(super) marks: Vec<Time>,
    /// Its events fail as they are.
    pub(super) doomed: Option<Doom>,
    /// When the first of what it did not come to is tried again, and which try that is.
    pub(super) retry: Option<(Time, u32)>,
}

impl<T> Default for Batch<T> {
    /// Of no events.
    fn default() -> Self {
        Batch::of(Chunk::new(Meta::default(), Vec::new()))
    }
}

impl<T> Batch<T> {
    /// Of these events, and nothing has been done.
    pub(super) fn of(chunk: Chunk<T>) -> Self {
        Batch {
            chunk,
            tray: None,
            ticket: None,
            alone: false,
            from: Side::Oldest,
            tally: Tally::default(),
            spent: Duties::default(),
            slots: 0,
            turn: Turn::default(),
            lanes: Vec::new(),
            marks: Vec::new(),
            doomed: None,
            retry: None,
        }
    }

    /// What is owed for what its events lead to: for all of them alike, unless a column says it of each.
    /// Of events that are handled as one, all that is owed for any of them.
    pub(super) fn owed<H: Kind>(&self) -> (Duty, Obligation) {
        match self.chunk.columns().duties().filter(|_| H::GROUPED) {
            None => (self.chunk.meta.duty.clone(), Obligation::default()),
            Some(duties) => {
                let (deadline, together) = all_of(duties);
                (Duty { deadline, ack: together.group().cloned() }, together)
            }
        }
    }
}

/// What the queue knows of the events of a visit, one by one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rows<'a> {
    pub(super) lanes: &'a [Option<LaneRef>],
    /// The watermarks that they found, if the stage has event time.
    pub(super) marks: &'a [Time],
}

impl Rows<'_> {
    /// Of those after the first `n`.
    #[inline]
    pub(super) fn after(self, n: usize) -> Self {
        let lanes = self.lanes.get(n..).unwrap_or_default();
        Rows { lanes, marks: self.marks.get(n..).unwrap_or_default() }
    }
}

/// A visit that has begun.
struct Begun<H: Kind> {
    instance: Box<Instance<H>>,
    with: With<H>,
}

/// What a visit has to do.
enum With<H: Kind> {
    Events(Box<Batch<H::Item>>),
    Flights(VecDeque<InFlight<H>>),
    /// A timer of a lane is due, or its state has expired.
    Lane(Call),
}

impl<H: Kind> Stage<H> {
    /// One visit of an idle instance to the queue.
    #[inline(always)]
    pub(super) fn visit_events(&self, core: &Arc<Core>, visit: &mut Visit) {
        if self.gate.is_present() {
            return self.visit_by_gate(core, visit);
        }
        let mut guard = self.state.lock();
        let plain = self.may_be_plain(core);
        match if plain { self.take_plain(core, &mut guard, visit) } else { None } {
            Some(begun) => {
                drop(guard);
                self.run_plain(core, begun, visit);
            }
            None => self.visit_at_large(core, guard, Side::Oldest, visit),
        }
    }

    #[inline(never)]
    fn visit_by_gate(&self, core: &Arc<Core>, visit: &mut Visit) {
        let from = self.sift(core, visit);
        self.visit_at_large(core, self.state.lock(), from, visit);
    }

    #[inline(never)]
    fn visit_at_large(
        &self,
        core: &Arc<Core>,
        guard: MutexGuard<'_, State<H>>,
        from: Side,
        visit: &mut Visit,
    ) {
        match self.take_batch(core, guard, from, visit) {
            None => {}
            Some(Begun { instance, with: With::Events(batch) }) => {
                self.run(core, instance, batch, visit);
            }
            Some(Begun { instance, with: With::Flights(woken) }) if H::WAITS => {
                self.fly_on(core, instance, woken, visit);
            }
            Some(Begun { with: With::Flights(_), .. }) => {} // of handlers that wait only
            Some(Begun { instance, with: With::Lane(call) }) => {
                self.visit_lanes(core, instance, call, visit);
            }
        }
    }

    fn take_batch(
        &self,
        core: &Core,
        mut guard: MutexGuard<'_, State<H>>,
        from: Side,
        visit: &mut Visit,
    ) -> Option<Begun<H>> {
        let state = &mut *guard;
        if !state.instances.use_claim() {
            return None; // a copy of a token that was used
        }
        let mut instance = state.instances.take_idle(visit.home)?;
        if H::WAITS
            && let Some(woken) = self.take_woken(state, visit)
        {
            state.counts.visits += 1;
            self.changed(core, state, &mut visit.effects);
            return Some(Begun { instance, with: With::Flights(woken) });
        }
        if self.rules.keys.is_some()
            && let Some(call) = state.queue.as_lanes().and_then(|lanes| lanes.take_due(None))
        {
            instance.turn = Some(call.turn);
            state.counts.visits += 1;
            self.changed(core, state, &mut visit.effects);
            return Some(Begun { instance, with: With::Lane(call) });
        }
        let mut taken = self.take_events(core, state, from, visit);
        let effects = &mut visit.effects;
        if let Some(awaited) = taken.take_if(|taken| taken.chunk.is_awaited()) {
            taken = self.shed_over(state, awaited, visit.start, effects);
        }
        let Some(Taken { chunk, turn, attempt }) = taken else {
            state.instances.put_idle(instance);
            self.claim(state, effects);
            state.deactivate(effects);
            self.changed(core, state, effects);
            return None;
        };
        instance.turn = Some(turn);
        instance.cx.set_attempt(attempt);
        let mut batch = instance.hand.take().unwrap_or_default();
        let events = chunk.len();
        batch.chunk = chunk;
        (batch.turn, batch.from, batch.tally) = (turn, from, Tally::default());
        if self.rules.keys.is_some() {
            batch.doomed = self.note_lanes_of(state, turn, &mut batch.lanes, &mut batch.marks);
        }
        state.in_flight += events;
        state.counts.visits += 1;
        batch.ticket = self.order.is_some().then(|| state.tickets.take());
        if H::WAITS {
            batch.slots = usize::from(state.flights.reserve());
        }
        self.changed(core, state, effects);
        let shared = events > 1 && self.is_shared(state);
        drop(guard);
        if shared {
            let in_hand = Chunk::new(batch.chunk.meta.clone(), Vec::with_capacity(1));
            let rest = std::mem::replace(&mut batch.chunk, in_hand);
            batch.tray = Some(Tray::new(rest, from, turn));
        }
        Some(Begun { instance, with: With::Events(batch) })
    }

    /// How many events a visit takes, if `stride` fit its time. No more than the queue may hold: what a visit puts back comes
    /// on top of what came meanwhile, and if the next one took it all, the queue would grow from visit to visit.
    pub(super) fn takes(&self, state: &State<H>, stride: usize, visit: &Visit) -> usize {
        visit.at_most(stride.min(state.permits.capacity().max(1)))
    }

    /// Takes the events of a visit from the queue.
    #[inline(always)]
    fn take_events(
        &self,
        core: &Core,
        state: &mut State<H>,
        from: Side,
        visit: &Visit,
    ) -> Option<Taken<H::Item>> {
        let group = if H::GROUPED { self.group.get() } else { None };
        match group {
            // Its token may have been made for a flight that was woken.
            _ if H::WAITS && self.may_begin(state, 1) == 0 => None,
            None => {
                let stride = if self.has_faults(core) { 1 } else { self.stride(state) };
                let max = self.takes(state, stride, visit);
                let side_by_side = match state.pays_to_move {
                    true => self.threads.load(Relaxed).min(state.instances.count()),
                    false => 1, // one worker makes them all
                };
                state.queue.take(Want { max, from, side_by_side, now: visit.start })
            }
            // Others may have taken, or shed, what made it complete.
            Some(size) if !state.is_group_complete(*size) => None,
            Some(size) => {
                state.gathering.taken(core.clock.now());
                take_group(&mut state.queue, size.events)
            }
        }
    }

    /// Sheds, of what was taken, what nobody waits for any more. Returns the rest, if there is any.
    #[inline(never)]
    fn shed_over(
        &self,
        state: &mut State<H>,
        mut taken: Taken<H::Item>,
        now: Time,
        effects: &mut Effects,
    ) -> Option<Taken<H::Item>> {
        // Asked once: whoever waits may give up at any moment.
        let mut runs = Vec::new();
        let chunk = &taken.chunk;
        chunk.columns().for_duties(&chunk.meta.duty, chunk.len(), |duty, n| {
            runs.push((duty.is_over(now), n));
        });
        if let Some(lanes) = state.queue.as_lanes() {
            let mut each = runs.iter().flat_map(|(over, n)| std::iter::repeat_n(*over, *n));
            lanes.shed_of(taken.turn, &mut each);
        }
        let mut over = runs.iter().map(|(over, _)| *over);
        if let Some(over) = taken.chunk.remove_where(|_| over.next().unwrap_or(false)) {
            let n = over.len();
            state.shed(&self.rules.name, Shed::Abandoned, over, effects);
            self.cycle_ended(state, n, effects);
            if taken.chunk.is_empty() {
                state.queue.done(taken.turn);
                return None;
            }
        }
        Some(taken)
    }

    /// As [`shed_over`](Self::shed_over), of a batch one of whose events is to be tried again.
    pub(super) fn shed_over_retry(
        &self,
        core: &Core,
        instance: &Instance<H>,
        batch: &mut Batch<H::Item>,
        visit: &mut Visit,
    ) {
        if !batch.chunk.is_awaited() {
            return;
        }
        let is_over = |duty: &Duty| duty.is_over(visit.start);
        if is_over(batch.chunk.first_duty().0) {
            instance.cx.set_attempt(1); // of those after it
        }
        let Some(over) = batch.chunk.remove_where(is_over) else { return };
        let n = over.len();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.in_flight -= n;
        state.shed(&self.rules.name, Shed::Abandoned, over, &mut visit.effects);
        self.cycle_ended(state, n, &mut visit.effects);
        self.changed(core, state, &mut visit.effects);
    }

    /// Asks the admission controller, outside of the lock, whom to take, and sheds those that it says
    /// have waited in vain.
    #[cold]
    #[inline(never)]
    fn sift(&self, core: &Core, visit: &mut Visit) -> Side {
        if let Some(failure) = self.gate.take_failure() {
            core.report(format!("`{}`: {failure}", self.rules.name));
        }
        loop {
            let Some((look, enqueued)) = self.state.lock().look(visit.start) else {
                return Side::Oldest;
            };
            visit.effects.hand_over(core);
            match self.gate.next(&look) {
                (Next::Shed(n), reason) => {
                    self.shed_oldest(core, reason, n.clamp(1, look.n), enqueued, visit);
                }
                (Next::Newest, _) if !self.rules.in_order => return Side::Newest,
                _ => return Side::Oldest,
            }
        }
    }

    /// Sheds `n` of the oldest events, if they are still those that came at that time.
    fn shed_oldest(&self, core: &Core, reason: Shed, n: usize, enqueued: Time, visit: &mut Visit) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.queue.oldest().is_some_and(|oldest| oldest.meta.enqueued == enqueued) {
            let effects = &mut visit.effects;
            let Some(chunk) = state.queue.remove_oldest(n) else { return };
            let shed = chunk.len();
            state.shed(&self.rules.name, reason, chunk, effects);
            self.cycle_ended(state, shed, effects);
            self.changed(core, state, effects);
        }
    }
}

impl<H: Kind> State<H> {
    /// Whether a group of this size can be taken.
    fn is_group_complete(&self, size: GroupSize) -> bool {
        self.gathering.visits(self.queue.len(), size, self.is_last_call()) > 0
    }

    /// What the admission controller is shown of the oldest events, and when they came.
    fn look(&self, now: Time) -> Option<(Look, Time)> {
        let Oldest { meta, duty, n } = self.queue.oldest()?;
        let look = Look {
            now,
            n,
            queued: self.queue.len(),
            age: age(meta, now),
            tier: meta.tier,
            deadline: duty.deadline,
        };
        Some((look, meta.enqueued))
    }
}

/// Takes up to `size` events as one chunk.
fn take_group<T: Send + 'static>(queue: &mut StageQueue<T>, size: usize) -> Option<Taken<T>> {
    let mut gathered = queue.remove(size, Side::Oldest)?;
    while gathered.len() < size
        && let Some(more) = queue.remove(size - gathered.len(), Side::Oldest)
    {
        let (meta, columns, mut events) = more.into_parts();
        gathered.meta.tier = gathered.meta.tier.max(meta.tier);
        gathered.append(&meta, columns, &mut events);
        queue.recycle(events);
    }
    Some(Taken { chunk: gathered, turn: Turn::default(), attempt: 1 })
}
