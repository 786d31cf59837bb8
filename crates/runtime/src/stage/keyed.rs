//! What a keyed stage does beside handling events: asks for the lanes of those that come, off the lock; looks after lanes
//! that are due, full or gone; makes the visits that timers and expired state ask for.
//! Before: `inlet`, `take`. After: `lanes`, `settle`.

use std::collections::HashMap;
use std::time::Duration;

use comporta_model::column::{Duties, Lanes};
use comporta_model::event::{Meta, Time};
use comporta_model::keyed::{Keys, LaneRef};
use comporta_model::kind::Kind;
use comporta_model::port::{Out, PortVisitor, Ports};

use super::handle::{Instance, Tally};
use super::lanes::watermark::Origin;
use super::lanes::{Call, Doom, Due};
use super::pace::QUANTUM;
use super::permits::Shed;
use super::ports::{Flooded, Mark, Unbounded, Withdraw};
use super::queue::Turn;
use super::settle::Settling;
use super::take::Batch;
use super::top_keys::{Known, TopKeys};
use super::{Stage, State};
use crate::core::Core;
use crate::effects::{Effects, Visit};
use crate::failure::Reason;
use crate::path::line::Place;
use crate::path::parcel::Parcel;
use crate::path::ready::{Task, Token};
use crate::snapshot::KeySnapshot;
use crate::sync::{Arc, AtomicBool, Condvar, Mutex, Relaxed, wait};
use crate::user;

/// For those outside who wait until a visit has let go of a lane.
#[derive(Default)]
pub(super) struct LaneWatch {
    waiting: Mutex<usize>,
    /// As `waiting`, for those who must not wait for the lock.
    any: AtomicBool,
    changed: Condvar,
}

impl LaneWatch {
    /// Waits until a lane may have been let go, or for so long. A change that is missed costs the time.
    pub(super) fn wait(&self, most: Duration) {
        let mut waiting = self.waiting.lock();
        *waiting += 1;
        self.any.store(true, Relaxed);
        let mut waiting = wait(&self.changed, waiting, Some(most));
        *waiting -= 1;
        self.any.store(*waiting > 0, Relaxed);
    }

    fn lane_changed(&self) {
        if self.any.load(Relaxed) {
            self.changed.notify_all();
        }
    }
}

impl<H: Kind> Stage<H> {
    /// Asks for the lanes of a parcel, outside of the lock: keys are computed, hashed and compared by the program.
    pub(super) fn add_lanes(
        &self,
        core: &Core,
        keys: &dyn Keys<H::Item>,
        parcel: &mut Parcel<'_, H::Item>,
        visit: &mut Visit,
    ) {
        let user = visit.effects.hand_over(core);
        if parcel.columns.is_none() {
            parcel.columns = std::mem::take(&mut visit.lanes);
        }
        let columns = &mut parcel.columns;
        debug_assert!(columns.lanes_and_times_mut().0.is_empty(), "lanes are asked for once");
        for slots in parcel.filled.iter().chain([&*parcel.last]) {
            let failed = &mut |panic| self.report_keyless(core, &user::reason(panic));
            if let Err(reason) = user.call(|| keys.lanes_of(slots, columns, failed)) {
                debug_assert!(false, "{reason}"); // each event has a lane, whatever its key does
            }
        }
        if let Some(top) = self.top_keys.get() {
            let (now, n) = (core.clock.now(), parcel.len());
            let lanes = parcel.columns.lanes(n).flatten().filter(|lane| !lane.is_keyless());
            let mut top = top.lock();
            let gone = lanes.filter_map(|lane| top.arrived(&lane, 1, now)).collect();
            drop(top);
            self.retire_later(gone, &mut visit.effects);
        }
    }

    /// Events of these lanes were handled, or failed, which took so long.
    pub(super) fn count_keys<'a>(
        &self,
        lanes: impl ExactSizeIterator<Item = &'a Option<LaneRef>>,
        busy: Duration,
    ) {
        if let Some(top) = self.top_keys.get()
            && let Ok(n @ 1..) = u32::try_from(lanes.len())
        {
            let mut top = top.lock();
            lanes.flatten().for_each(|lane| top.handled(lane, 1, busy / n));
        }
    }

    /// Its busiest keys, if somebody has them counted.
    pub(super) fn top_keys_snapshot(&self) -> Vec<KeySnapshot> {
        let (Some(top), Some(keys)) = (self.top_keys.get(), &self.rules.keys) else {
            return Vec::new();
        };
        let lanes = top.lock().lanes();
        let queued: HashMap<u64, usize> = {
            let mut state = self.state.lock();
            let Some(queue) = state.queue.as_lanes() else { return Vec::new() };
            lanes.iter().map(|lane| (lane.id(), queue.queued_of(lane))).collect()
        };
        let shown = top.lock().shown(|lane| queued.get(&lane.id()).copied().unwrap_or(0));
        let snapshot = |(known, queued): (Known<LaneRef>, usize)| {
            let name = user::call(|| keys.name(&known.lane)).ok().flatten();
            let Known { lane, arrived, error, since, handled, busy, .. } = known;
            let key = name.unwrap_or_else(|| format!("#{:x}", lane.id()));
            let _ = user::call(|| keys.retire(lane)); // it may have gone meanwhile
            KeySnapshot { key, queued, arrived, error, since, handled, busy }
        };
        let shown = shown.into_iter().map(snapshot).collect();
        let _ = user::call(|| lanes.into_iter().for_each(|lane| keys.retire(lane)));
        shown
    }

    /// Its busiest keys, which are counted from the first time on that this is asked.
    pub(super) fn counted_keys(&self) -> Option<&Mutex<TopKeys<LaneRef>>> {
        let counted = || &**self.top_keys.get_or_init(|| Box::new(Mutex::new(TopKeys::new())));
        self.rules.keys.is_some().then(counted)
    }

    /// The events that come next to the queue are from there.
    pub(super) fn note_origin(&self, state: &mut State<H>, place: &Place) {
        if self.rules.keys.is_some()
            && let Some(lanes) = state.queue.as_lanes()
        {
            lanes.from(place.stage().map_or(Origin::Outside, Origin::Node));
        }
    }

    fn report_keyless(&self, core: &Core, reason: &Reason) {
        let stage = &self.rules.name;
        core.report(format!("`{stage}`: the key of an event cannot be had: {reason}"));
    }

    /// Lanes that wait to try an event again can act, by and by: their cycle is told, after the tokens were made that
    /// are due for those that wait no longer.
    pub(super) fn note_waiting_lanes(&self, state: &mut State<H>, effects: &mut Effects) {
        let Some(cycle) = state.cycle.clone() else { return };
        let waiting = state.queue.as_lanes().map_or(0, |lanes| lanes.waiting());
        let known = std::mem::replace(&mut state.lanes_waiting, waiting);
        (known..waiting).for_each(|_| cycle.activate());
        (waiting..known).for_each(|_| state.deactivate(effects));
    }

    /// The lane of one event, if the stage is keyed.
    pub(super) fn lane_of(&self, core: &Core, event: &H::Item) -> Option<LaneRef> {
        let keys = self.rules.keys.as_deref()?;
        Some(user::call(|| keys.lane_of(event)).unwrap_or_else(|reason| {
            self.report_keyless(core, &reason);
            keys.keyless()
        }))
    }

    /// After a change of the lanes: those that were full have shed, those that have left are forgotten, and the clock
    /// is asked for the next that is due.
    pub(super) fn note_lanes(&self, core: &Core, state: &mut State<H>, effects: &mut Effects) {
        // In a drain, those who wait for room would wait for lanes that are held as long as it lasts.
        let crowded = state.draining && state.permits.has_waiters();
        let rests = state.in_flight == 0 && (state.is_last_call() || crowded);
        self.lane_watch.lane_changed();
        let Some(lanes) = state.queue.as_lanes() else { return };
        if rests {
            lanes.give_up(); // nobody could release them any more
        }
        let (rejected, retired, due) = (lanes.take_rejected(), lanes.take_retired(), lanes.arm());
        if lanes.take_handed_on() {
            for to in core.wiring.leads_to(self.id) {
                if core.wiring.handed_on(to.0).tell() {
                    effects.token(to.0, Task::Alarm);
                }
            }
        }
        if let Some(rejected) = rejected {
            let n = rejected.len();
            state.shed(&self.rules.name, Shed::LaneFull, rejected, effects);
            self.cycle_ended(state, n, effects);
        }
        self.retire_later(retired, effects);
        if let Some(due) = due {
            core.timers.add(due, Token::new(self.id, Task::Alarm));
        }
    }

    /// The lanes of the events that a visit took, if somebody wants to know. Returns why they fail as they are.
    pub(super) fn note_lanes_of(
        &self,
        state: &mut State<H>,
        turn: Turn,
        lane_of: &mut Lanes,
        marks: &mut Vec<Time>,
    ) -> Option<Doom> {
        let lanes = state.queue.as_lanes()?;
        if H::KEYED || lanes.rules().holds || self.top_keys.get().is_some() {
            lanes.take_lanes(lane_of);
            lanes.marks_of(turn, marks);
        } else {
            lanes.skip_lanes();
        }
        lanes.doom(turn)
    }

    /// The event of a lane has failed for good: if the plan says so, the lane waits for it.
    pub(super) fn hold_lane(&self, lane: Option<&LaneRef>) -> Option<LaneRef> {
        let lane = lane.filter(|lane| !lane.is_keyless())?;
        let mut state = self.state.lock();
        let lanes = state.queue.as_lanes()?;
        (lanes.rules().holds && lanes.hold(lane)).then(|| lane.clone())
    }

    /// Lanes of events that end before they came to the queue may be forgotten.
    pub(super) fn retire_later(&self, lanes: Vec<LaneRef>, effects: &mut Effects) {
        if let Some(keys) = self.rules.keys.as_ref().filter(|_| !lanes.is_empty()) {
            let keys = keys.clone();
            effects.call_off(move || lanes.into_iter().for_each(|lane| keys.retire(lane)));
        }
    }

    /// Lanes wait no longer for events that failed.
    pub(super) fn release_lanes(
        &self,
        core: &Core,
        released: impl IntoIterator<Item = LaneRef>,
        effects: &mut Effects,
    ) {
        let mut released = released.into_iter().peekable();
        if released.peek().is_none() {
            return;
        }
        let mut guard = self.state.lock();
        if let Some(lanes) = guard.queue.as_lanes() {
            released.for_each(|lane| lanes.release(&lane));
        }
        self.changed(core, &mut guard, effects);
    }

    /// Calls `call` with a lane that no visit has meanwhile.
    pub(super) fn with_closed_lane(
        &self,
        core: &Core,
        lane: &mut Option<LaneRef>,
        call: &mut dyn FnMut(&LaneRef),
        effects: &mut Effects,
    ) -> bool {
        let close = |known: &LaneRef| self.state.lock().queue.as_lanes()?.close(known);
        let Some(turn) = lane.as_ref().and_then(close) else { return false };
        effects.hand_over(core);
        // Its hold on the lane is gone before the lane can be forgotten.
        let _ = lane.take().map(|lane| user::call(|| call(&lane)));
        let mut guard = self.state.lock();
        if let Some(lanes) = guard.queue.as_lanes() {
            lanes.reopen(turn);
        }
        self.changed(core, &mut guard, effects);
        true
    }

    /// No more events come: what the queue has of lanes that rest is let go of, so that these belong to the directory alone.
    pub(super) fn leave_lanes(&self, effects: &mut Effects) {
        if self.rules.keys.is_some() {
            let resting = self.state.lock().queue.as_lanes().map(|lanes| lanes.take_resting());
            resting.into_iter().for_each(|resting| effects.discard(resting));
        }
    }

    /// The stage handles no more events: what it kept for its keys is dropped.
    pub(super) fn drop_lanes(&self, effects: &mut Effects) {
        let Some(keys) = &self.rules.keys else { return };
        self.leave_lanes(effects);
        let mut lanes = Vec::new();
        while keys.take_some(&mut lanes) {
            lanes.drain(..).for_each(|lane| effects.discard(lane));
        }
    }

    /// The clock says that the time of some lanes has come.
    pub(super) fn lanes_due(&self, core: &Core, visit: &mut Visit) {
        let mut guard = self.state.lock();
        let now = core.clock.now();
        if let Some(lanes) = guard.queue.as_lanes() {
            lanes.ring(now);
        }
        self.changed(core, &mut guard, &mut visit.effects);
    }

    /// A visit for lanes that have timers due, or whose state has expired. They are taken one by one, so that one whose
    /// timer does not return holds up no other, and belong to the visit until what it sent has left.
    pub(super) fn visit_lanes(
        &self,
        core: &Arc<Core>,
        mut instance: Box<Instance<H>>,
        first: Call,
        visit: &mut Visit,
    ) {
        let _reactor = if H::WAITS { core.enter_reactor() } else { None }; // for state that is dropped
        let turn = first.turn;
        let begin = core.clock.now();
        instance.cx.set_origin(begin, u8::MAX);
        instance.cx.set_duty(&Default::default());
        let (mut next, mut now) = (Some(first), begin);
        while let Some(call) = next {
            self.call_lane(core, &mut instance, call, now, visit);
            now = core.clock.now();
            let late = now.duration_since(begin) > QUANTUM || core.is_stopped();
            let mut sent = Sends(0);
            instance.ports.each(&mut sent);
            let on = !late && sent.0 < SENDS_AT_ONCE;
            next = if on { self.state.lock().next_call(turn) } else { None };
        }
        let Instance { ports, links, .. } = &mut *instance;
        let end = core.clock.now();
        visit.end = Some(end);
        let (home, tier) = (visit.home, u8::MAX);
        let meta = Meta { ingress: begin, enqueued: end, home, tier, ..Meta::default() };
        let sent = links.flush(core, ports, &meta, !H::IN_PLACE, visit);
        let in_line = links.in_line();
        let (tally, spent) = (Tally::default(), Duties::default());
        let settling = Settling { meta: &meta, spent: Some(&spent), enqueued: end, tally, sent };
        let mut guard = self.state.lock();
        let state = &mut *guard;
        self.count(core, state, &settling, visit);
        self.place(core, state, instance, in_line, &mut visit.effects);
        self.changed(core, state, &mut visit.effects);
    }

    /// Calls what is due of one lane.
    fn call_lane(
        &self,
        core: &Arc<Core>,
        instance: &mut Instance<H>,
        call: Call,
        now: Time,
        visit: &mut Visit,
    ) {
        let Call { lane, due, watermark, .. } = call;
        let Instance { handler, ports, cx, .. } = instance;
        cx.set_watermark(watermark);
        ports.each(&mut Unbounded(self.rules.emit_max));
        // A timer may set others that are due too: the rest comes with the next visit.
        for _ in 0..FIRES_AT_ONCE {
            ports.each(&mut Mark);
            visit.effects.hand_over(core);
            let result = user::try_call(|| match (&mut *handler, due) {
                (Some(handler), Due::Timer) => handler.fire(&lane, now, ports, cx),
                (Some(handler), Due::Expiry) => handler.expire(&lane, ports, cx).map(|()| false),
                (None, _) => Ok(false),
            });
            let mut flooded = Flooded(false);
            ports.each(&mut flooded);
            let result = match result {
                _ if flooded.0 => Err(Reason::Flood(self.rules.emit_max).to_string()),
                result => result,
            };
            match result {
                Ok(true) => {}
                Ok(false) => break,
                Err(message) => {
                    ports.each(&mut Withdraw);
                    let what =
                        if due == Due::Timer { "a timer" } else { "the end of a key's state" };
                    core.report(format!("`{}`: {what} failed: {message}", self.rules.name));
                }
            }
        }
        user::discard(lane);
    }
}

/// How much a visit that fires timers sends before it hands on what it sent, about.
const SENDS_AT_ONCE: usize = 1_024;

/// How many timers of a lane a visit fires.
const FIRES_AT_ONCE: usize = 64;

/// Counts what the ports were sent.
struct Sends(usize);
impl PortVisitor for Sends {
    fn port<T: Send + 'static>(&mut self, _: usize, out: &mut Out<T>) {
        self.0 += out.len();
    }
}

impl<H: Kind> State<H> {
    /// The next lane that a visit is to call, if one is due.
    fn next_call(&mut self, turn: Turn) -> Option<Call> {
        self.queue.as_lanes()?.take_due(Some(turn))
    }
}

impl<H: Kind> State<H> {
    /// The event that a visit has come to leaves it, and takes its lane along. Returns its turn.
    pub(super) fn detach(&mut self, batch: &Batch<H::Item>) -> Option<Turn> {
        let lanes = self.queue.as_lanes()?;
        let left = batch.chunk.len() + batch.tray.as_ref().map_or(0, |tray| tray.left());
        Some(lanes.detach(batch.turn, left))
    }
}
