//! The inner loop of hop 6: the handler of an instance is called with one event after the other, or with a group. The loop
//! knows its types, and is small: everything that can be is decided before it or after it.
//! Used by `handle`, and by `plain`.
//! Invariant: `at` is the event being handled, also after a panic.

use std::mem::needs_drop;
use std::time::Duration;

use comporta_model::async_stage::Flight;
use comporta_model::chunk::{Chunk, Slots};
use comporta_model::column::{Cursor, Duty};
use comporta_model::error::Result;
use comporta_model::event::Time;
use comporta_model::keyed::LaneRef;
use comporta_model::kind::Kind;
use comporta_model::port::Ports;
use comporta_model::stage::{Cx, Handler};

use super::CopyFn;
use super::handle::{Instance, Progress, Stop};
use super::pace::QuantumCheck;
use super::ports::{Flooded, Mark, Over, Owes};
use super::take::{Batch, Rows};
use super::tray::Tray;
use crate::core::Core;
use crate::user;

impl<H: Kind> Instance<H> {
    /// Calls the handler with the one event of `batch`.
    pub(super) fn try_one(
        &mut self,
        batch: &mut Batch<H::Item>,
        retain: Option<CopyFn<H::Item>>,
    ) -> Stop {
        let Batch { chunk, lanes, marks, .. } = batch;
        self.run_slots(chunk.slots_mut(), &mut 0, Rows { lanes, marks }, retain)
            .unwrap_or(Stop::Spent)
    }

    /// Runs the handler over the events of the chunk in hand that are not done with.
    #[inline(never)]
    pub(super) fn run(
        &mut self,
        chunk: &mut Chunk<H::Item>,
        progress: &mut Progress,
        check: &mut QuantumCheck,
        rows: Rows<'_>,
        retain: Option<CopyFn<H::Item>>,
        core: &Core,
    ) -> Stop {
        let (slots, columns) = chunk.parts_mut();
        // Mostly the clock need not be looked at before the end, and all events owe the same.
        let (at, len) = (progress.at, slots.len());
        let last = at < len && (progress.before + len <= check.next() || len == at + 1);
        if last && columns.is_none() && self.handler.is_some() && !check.is_timed() {
            let rows = if H::KEYED { rows.after(progress.before) } else { rows };
            return self.run_slots(slots, &mut progress.at, rows, retain).unwrap_or(Stop::Spent);
        }
        let duties = columns.duties().filter(|_| !H::GROUPED);
        let mut cursor = Cursor::default();
        let Progress { before, at } = progress;
        let before = *before;
        let rows = rows.after(before);
        if self.handler.is_none() {
            slots[*at..].fill_with(|| None);
            *at = slots.len();
        }
        while *at < slots.len() {
            // The clock is looked at between spans, so that the loop inside stays small.
            let span = check.next().saturating_sub(before).max(*at + 1);
            let mut until = slots.len().min(if H::GROUPED { slots.len() } else { span });
            until = check.serve(core, *at, until, H::GROUPED);
            if let Some((duty, end)) = duties.and_then(|duties| duties.at(*at, &mut cursor)) {
                until = until.min(end);
                self.cx.set_duty(duty);
                self.ports.each(&mut Owes(duty));
            }
            if let Some(stop) = self.run_slots(&mut slots[..until], at, rows, retain) {
                return stop;
            }
            let look = *at < slots.len() && before + *at >= check.next();
            if look && check.is_late(core, before + *at, slots.len() - *at) {
                return Stop::Late;
            }
        }
        Stop::Spent
    }

    /// Runs the handler over these events, from `at` on. Returns why it stopped before their end, if it did.
    #[inline(always)]
    pub(super) fn run_slots(
        &mut self,
        slots: &mut [Option<H::Item>],
        at: &mut usize,
        rows: Rows<'_>,
        retain: Option<CopyFn<H::Item>>,
    ) -> Option<Stop> {
        let Instance { handler: Some(handler), ports, cx, kept, .. } = self else { return None };
        match retain {
            None if H::IN_PLACE => handler.run_in_place(slots, at, ports, cx),
            _ => handler.run_span(slots, at, rows, With { ports, cx, retain, kept }),
        }
    }

    /// After the event in hand: runs the handler over those in the tray, as long as they carry nothing and the clock need not
    /// be looked at. What it leaves there is for whoever looks at more.
    #[inline]
    pub(super) fn run_from(
        &mut self,
        chunk: &mut Chunk<H::Item>,
        tray: &Tray<H::Item>,
        progress: &mut Progress,
        check: &QuantumCheck,
        rows: Rows<'_>,
        core: &Core,
    ) -> Stop {
        let Instance { handler: Some(handler), ports, cx, kept, .. } = self else {
            return Stop::Spent;
        };
        let one = progress.at == 1 && chunk.is_plain();
        if H::IN_PLACE || H::WAITS || H::GROUPED || !one || check.is_timed() {
            return Stop::Spent;
        }
        let shown = Shown { tray, slot: chunk.slots_mut(), until: check.next(), core };
        let with = With { ports, cx, retain: None, kept };
        handler.run_tray(shown, progress, rows, with).unwrap_or(Stop::Spent)
    }

    /// Sends on the event that was handled in place, if it was.
    pub(super) fn pass_on_one(&mut self, chunk: &mut Chunk<H::Item>) {
        if H::IN_PLACE
            && let Some(handler) = &mut self.handler
        {
            let (duty, _) = chunk.first_duty();
            if chunk.columns().duties().is_some() || *duty != Duty::default() {
                self.ports.each(&mut Owes(duty));
            }
            let (slots, _) = chunk.parts_mut();
            for event in slots.iter_mut().filter_map(Option::take) {
                handler.pass_one(event, &mut self.ports);
            }
        }
    }
}

/// What a handler is called with beside its events.
pub(crate) struct With<'a, H: Kind> {
    ports: &'a mut H::Ports,
    cx: &'a Cx,
    /// How to copy an event, if the stage retains, and where to.
    retain: Option<CopyFn<H::Item>>,
    kept: &'a mut Vec<H::Item>,
}

/// Events that are handled one at a time, in one slot.
pub(crate) struct Shown<'a, T> {
    tray: &'a Tray<T>,
    slot: &'a mut [Option<T>],
    /// After how many events of the visit the clock is to be looked at.
    until: usize,
    core: &'a Core,
}

/// A handler of some type. Its methods but for the loops are those of [`Handler`].
pub(crate) trait DynHandler<H: Kind>: Send {
    /// Handles the one event that there is. Returns why it failed, if it did: what else an event may lead to, such as that
    /// there is no more room, matters to the next.
    fn run_one(
        &mut self,
        slots: &mut [Option<H::Item>],
        ports: &mut H::Ports,
        cx: &Cx,
    ) -> Option<Stop>;

    /// Handles these events in place, from `at` on. Returns why it stopped before their end, if it did.
    fn run_in_place(
        &mut self,
        slots: &mut [Option<H::Item>],
        at: &mut usize,
        ports: &mut H::Ports,
        cx: &Cx,
    ) -> Option<Stop>;

    /// As [`run_in_place`](Self::run_in_place), of any handler.
    fn run_span(
        &mut self,
        slots: &mut [Option<H::Item>],
        at: &mut usize,
        rows: Rows<'_>,
        with: With<'_, H>,
    ) -> Option<Stop>;

    /// As [`run_span`](Self::run_span), of events in a tray.
    fn run_tray(
        &mut self,
        shown: Shown<'_, H::Item>,
        progress: &mut Progress,
        rows: Rows<'_>,
        with: With<'_, H>,
    ) -> Option<Stop>;

    fn fire(&mut self, lane: &LaneRef, now: Time, out: &mut H::Ports, cx: &Cx) -> Result<bool>;
    fn expire(&mut self, lane: &LaneRef, out: &mut H::Ports, cx: &Cx) -> Result;
    fn take_flight(&mut self) -> Option<Box<dyn Flight<H::Item, H::Ports>>>;
    fn put_by(&mut self, flight: Box<dyn Flight<H::Item, H::Ports>>);
    fn pass_on(&mut self, handled: Slots<H::Item>, out: &mut H::Ports);
    fn pass_one(&mut self, event: H::Item, out: &mut H::Ports);
    fn group(&self) -> Option<(usize, Duration)>;
    fn init(&mut self, cx: &Cx) -> Result;
    fn finish(&mut self, out: &mut H::Ports, cx: &Cx) -> Result;
}

impl<C: Handler<Kind = H>, H: Kind<Item = C::Item, Ports = C::Ports>> DynHandler<H> for C {
    fn run_one(
        &mut self,
        slots: &mut [Option<H::Item>],
        ports: &mut H::Ports,
        cx: &Cx,
    ) -> Option<Stop> {
        ports.each(&mut Mark);
        if let Err(error) = self.call(slots, ports, cx) {
            return Some(Stop::Failed(error));
        }
        if !H::IN_PLACE {
            let mut flooded = Flooded(false);
            ports.each(&mut flooded);
            if flooded.0 {
                return Some(Stop::Flooded);
            }
            if needs_drop::<H::Item>() {
                slots.fill_with(|| None);
            }
        }
        None
    }

    /// What is handled is what is sent, and the handler sees nothing but its event.
    fn run_in_place(
        &mut self,
        slots: &mut [Option<H::Item>],
        at: &mut usize,
        ports: &mut H::Ports,
        cx: &Cx,
    ) -> Option<Stop> {
        if !H::IN_PLACE {
            return None;
        }
        ports.each(&mut Mark); // what this visit has passed on before is not withdrawn by a failure
        let room = self.allowance(ports);
        let until = slots.len().min(room.saturating_add(1));
        let tried_again = cx.attempt() > 1;
        for slot in slots.get_mut(*at..until).unwrap_or_default() {
            if let Err(error) = self.call(std::slice::from_mut(slot), ports, cx) {
                return Some(Stop::Failed(error));
            }
            *at += 1;
            if tried_again {
                cx.set_attempt(1); // of the events after it
            }
        }
        (*at > room).then_some(Stop::Full)
    }

    fn run_span(
        &mut self,
        slots: &mut [Option<H::Item>],
        at: &mut usize,
        rows: Rows<'_>,
        with: With<'_, H>,
    ) -> Option<Stop> {
        let With { ports, cx, retain, kept } = with;
        let mut again = cx.attempt() > 1;
        while *at < slots.len() {
            let end = if H::GROUPED { slots.len() } else { *at + 1 };
            ports.each(&mut Mark);
            if let Some(copy) = retain {
                kept.drain(..).for_each(user::discard);
                kept.extend(slots[*at..end].iter().flatten().map(copy));
            }
            let called = if H::KEYED {
                if let Some(mark) = rows.marks.get(*at) {
                    cx.set_watermark(*mark);
                }
                let lane = rows.lanes[*at].as_ref().expect("each event of a keyed stage has one");
                self.call_in(lane, &mut slots[*at..end], ports, cx)
            } else {
                self.call(&mut slots[*at..end], ports, cx)
            };
            if let Err(error) = called {
                return Some(Stop::Failed(error));
            }
            if H::WAITS && cx.is_waiting() {
                cx.set_waiting(false);
                return Some(Stop::Waits);
            }
            let mut over = Over(H::IN_PLACE && *at >= self.allowance(ports));
            ports.each(&mut over);
            if over.0 {
                let mut flooded = Flooded(false);
                ports.each(&mut flooded);
                if flooded.0 {
                    return Some(Stop::Flooded);
                }
            }
            if needs_drop::<H::Item>() && !H::IN_PLACE {
                slots[*at..end].fill_with(|| None);
            }
            *at = end;
            if again {
                cx.set_attempt(1);
                again = false;
            }
            if over.0 {
                return Some(Stop::Full);
            }
            if cx.is_quitting() {
                return Some(Stop::Quit);
            }
        }
        None
    }

    fn run_tray(
        &mut self,
        shown: Shown<'_, H::Item>,
        progress: &mut Progress,
        rows: Rows<'_>,
        with: With<'_, H>,
    ) -> Option<Stop> {
        let Shown { tray, slot, until, core } = shown;
        let With { ports, cx, kept, .. } = with;
        while progress.done() < until && !core.is_stopped() {
            let event = tray.next_plain()?;
            slot[0] = Some(event);
            *progress = Progress { before: progress.done(), at: 0 };
            let rows = if H::KEYED { rows.after(progress.before) } else { rows };
            let with = With { ports: &mut *ports, cx, retain: None, kept: &mut *kept };
            let stopped = self.run_span(slot, &mut progress.at, rows, with);
            if stopped.is_some() {
                return stopped;
            }
        }
        None
    }

    fn fire(&mut self, lane: &LaneRef, now: Time, out: &mut H::Ports, cx: &Cx) -> Result<bool> {
        Handler::fire(self, lane, now, out, cx)
    }

    fn expire(&mut self, lane: &LaneRef, out: &mut H::Ports, cx: &Cx) -> Result {
        Handler::expire(self, lane, out, cx)
    }

    fn take_flight(&mut self) -> Option<Box<dyn Flight<H::Item, H::Ports>>> {
        Handler::take_flight(self)
    }

    fn put_by(&mut self, flight: Box<dyn Flight<H::Item, H::Ports>>) {
        Handler::put_by(self, flight);
    }

    fn pass_on(&mut self, handled: Slots<H::Item>, out: &mut H::Ports) {
        Handler::pass_on(self, handled, out);
    }

    fn pass_one(&mut self, event: H::Item, out: &mut H::Ports) {
        Handler::pass_one(self, event, out);
    }

    fn group(&self) -> Option<(usize, Duration)> {
        Handler::group(self)
    }

    fn init(&mut self, cx: &Cx) -> Result {
        Handler::init(self, cx)
    }

    fn finish(&mut self, out: &mut H::Ports, cx: &Cx) -> Result {
        Handler::finish(self, out, cx)
    }
}
