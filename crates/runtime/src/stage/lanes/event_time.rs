//! Event time in a queue with lanes: events move the watermark, the watermark makes lanes ready whose event timers it has
//! passed, and what is done lets event time be handed on. Part of `mod.rs`; before: `watermark`, `alarms`, `progress`.
//! Invariant: a lane with an event timer that is due is ready, or has events that come first; either holds event time
//! before the timer.

use std::time::Duration;

use comporta_model::event::Time;
use comporta_model::keyed::{Clock, EventAlarm, LaneRef};

use super::progress::{HandedOn, Progress};
use super::watermark::{Origin, Watermark};
use super::{Due, LaneQueue};
use crate::snapshot::EventTimeSnapshot;
use crate::sync::Arc;

/// So many lanes are made ready at once when the watermark goes on; the others when these have been visited.
const DUE_AT_ONCE: usize = 256;

impl<T: Send> LaneQueue<T> {
    /// Gives the stage event time; `out` is told how far it has been handed on.
    pub(crate) fn with_event_time(mut self, watermark: Watermark, out: Arc<HandedOn>) -> Self {
        self.is_plain = false;
        self.watermark = Some(watermark);
        self.progress = Some(Progress::new(out));
        self
    }

    /// The events that come next are from there.
    pub(crate) fn from(&mut self, origin: Origin) {
        if let Some(watermark) = &mut self.watermark {
            watermark.from(origin);
        }
    }

    /// An input of the stage has ended.
    pub(crate) fn input_ended(&mut self, origin: Origin, now: Time) {
        self.now = self.now.max(now);
        if let Some(watermark) = &mut self.watermark {
            watermark.end(origin, self.now);
            self.fire_event_timers();
        }
    }

    /// How far event time has come, and how many events were late, if the stage has event time.
    pub(crate) fn event_time(&self) -> Option<EventTimeSnapshot> {
        let watermark = self.watermark.as_ref()?;
        Some(EventTimeSnapshot { watermark: watermark.at(), late: watermark.late() })
    }

    /// The watermark may have gone on: makes lanes ready whose event timers it has passed.
    pub(super) fn fire_event_timers(&mut self) {
        let Some(watermark) = self.watermark.as_ref().map(Watermark::at) else { return };
        if let Some(progress) = &mut self.progress {
            progress.advance(watermark);
        }
        for _ in 0..DUE_AT_ONCE {
            let Some(lane) = self.alarms.next_by_event_time(watermark) else { break };
            // One that has events handles them first: those that found the watermark beyond a timer fire it before,
            // and after the last of them the lane comes to `rest`.
            if let Some(at) = self.busy_place(&lane) {
                self.look_at_hold(at);
            } else if !self.look_at_event_timers(&lane, watermark) && !lane.has_state() {
                self.retired.push(lane); // what it was kept for was taken back
            }
        }
        if let Some(progress) = &mut self.progress {
            progress.hand_on(self.alarms.has_event_timers(watermark));
        }
    }

    /// Makes a lane ready if one of its event timers is due, or has it looked at when one is.
    pub(super) fn look_at_event_timers(&mut self, lane: &LaneRef, watermark: Time) -> bool {
        let alarm = lane.event_alarm(watermark);
        match alarm {
            EventAlarm::None => {}
            EventAlarm::At(due) => self.alarms.add_timer(Clock::Events, due, lane.clone()),
            EventAlarm::Due => {
                self.is_due(lane, Due::Timer);
                let at = self.place_of(lane);
                self.look_at_hold(at);
            }
        }
        alarm == EventAlarm::Due
    }

    /// A lane with an event timer that is due holds event time before it.
    #[inline]
    pub(super) fn look_at_hold(&mut self, at: usize) {
        let Some(progress) = &mut self.progress else { return };
        let place = &mut self.places[at];
        let Some(lane) = &place.lane else { return };
        let watermark = self.watermark.as_ref().map_or(Time::ZERO, Watermark::at);
        let due = lane.first_due(watermark);
        let holds = due.map(|due| due - Duration::from_nanos(1));
        // A visit may have taken out a timer whose results have yet to leave: only its end lets go.
        let held = place.holds();
        let stays = place.turn.is_some() && held.is_some();
        let holds = if stays { held.min(holds.or(held)) } else { holds };
        if holds != held {
            holds.into_iter().for_each(|at| progress.hold(at));
            let before = place.set_holds(holds);
            before.into_iter().for_each(|at| progress.release(at));
        }
    }

    /// What held event time there does so no longer.
    #[inline]
    pub(super) fn release_time(&mut self, held: Option<Time>) {
        if let (Some(progress), Some(at)) = (&mut self.progress, held) {
            progress.release(at);
        }
    }

    /// Whether event time was handed on since this was last asked.
    pub(crate) fn take_handed_on(&mut self) -> bool {
        self.progress.as_mut().is_some_and(Progress::take_changed)
    }

    /// An event has come and stays, in a stage with event time, which it holds. Returns the watermark that it found.
    #[inline]
    pub(super) fn arrive(&mut self, time: Option<Time>) -> Time {
        let mark = self.pass(time);
        self.hold_time(mark);
        mark
    }

    /// An event has come. Returns the watermark that it found.
    #[inline]
    pub(super) fn pass(&mut self, time: Option<Time>) -> Time {
        let now = self.now;
        self.watermark.as_mut().map_or(Time::ZERO, |watermark| watermark.pass(time, now))
    }

    /// An event that found this watermark holds event time there.
    #[inline]
    pub(super) fn hold_time(&mut self, mark: Time) {
        if let Some(progress) = &mut self.progress {
            progress.advance(mark);
            progress.hold(mark);
        }
    }
}
