//! What is to be done for lanes when their time has come: tries again, timers, state that expires.
//! Before: `alarms`, which knows when. After: `visits`, where a lane is that is called.
//! Invariant: a lane that something is due for is ready, or will be when it is open.

use comporta_model::event::Time;
use comporta_model::keyed::LaneRef;

use super::alarms::Alarm;
use super::place::Due;
use super::watermark::Watermark;
use super::{LINKED, LaneQueue};
use crate::stage::queue::{Side, Turn};

/// A visit to a lane for something other than its events.
pub(crate) struct Call {
    pub(crate) lane: LaneRef,
    pub(crate) due: Due,
    /// How far event time has come for the lane: events that wait in it hold it back.
    pub(crate) watermark: Time,
    pub(crate) turn: Turn,
}

impl<T: Send> LaneQueue<T> {
    /// When the clock is to be asked, if it is another time than before.
    pub(crate) fn arm(&mut self) -> Option<Time> {
        self.alarms.arm(&self.rules, self.watermark.as_ref(), self.now)
    }

    /// The clock says that the time of some lanes has come.
    pub(crate) fn ring(&mut self, now: Time) {
        self.now = self.now.max(now);
        if let Some(progress) = &self.progress {
            progress.listen();
        }
        self.alarms.ring(now);
        // Before the timers: a lane that has one due at this moment is not in use for it.
        while let Some(idle) = self.rules.idle
            && let Some(lane) = self.next_expired(now, |used| used + idle <= now)
        {
            self.is_due(&lane, Due::Expiry);
        }
        while let Some((due, alarm)) = self.alarms.next(now) {
            match alarm {
                Alarm::Retry(at) => {
                    // Its place is gone if the event was cancelled, and no more events come.
                    if self.places.get_mut(at).is_some_and(|place| place.end_wait(Some(due))) {
                        self.waiting -= 1;
                        self.look_at(at, Side::Newest);
                    }
                }
                Alarm::Timer(lane) => self.is_due(&lane, Due::Timer),
            }
        }
        if let Some(watermark) = &mut self.watermark {
            watermark.look(self.now);
            self.fire_event_timers();
        }
    }

    /// Something is to be done for a lane.
    pub(super) fn is_due(&mut self, lane: &LaneRef, due: Due) {
        let at = self.place_of(lane);
        if self.place(at).turn.is_some_and(|turn| self.is_fresh(turn)) {
            self.dissolve(); // it comes before the events that wait
        }
        let place = self.place(at);
        let work = place.work();
        place.due.get_or_insert(due);
        let (more, ready) = (place.work() - work, place.ready);
        self.ready_work += if ready { more } else { 0 };
        self.look_at(at, Side::Newest);
    }

    /// Takes out the lane whose state expires next.
    fn next_expired(&mut self, now: Time, old: impl Fn(Time) -> bool) -> Option<LaneRef> {
        let places = &self.places;
        let is_busy =
            |lane: &LaneRef| lane.slot().is_some_and(|slot| places[slot as usize].is_busy());
        self.alarms.expire(now, old, is_busy)
    }

    /// Has the oldest state expire if there is more than may be.
    pub(super) fn expire_surplus(&mut self) {
        let Some(most) = self.rules.keys_max else { return };
        while self.alarms.watched() > most.get()
            && let Some(lane) = self.next_expired(self.now, |_| true)
        {
            self.is_due(&lane, Due::Expiry);
        }
    }

    /// What the next visit is to do for a lane beside its events, if it is that: one that has begun goes on with `turn`.
    pub(crate) fn take_due(&mut self, turn: Option<Turn>) -> Option<Call> {
        self.skip_empty();
        let due = self.first_ready()?.due?;
        let at = self.pop_ready()?;
        let turn = turn.unwrap_or_else(|| self.new_turn());
        let place = self.place(at);
        place.due = None;
        let (lane, first) = (place.lane.clone().expect(LINKED), place.events.first());
        let come = self.watermark.as_ref().map_or(Time::ZERO, Watermark::at);
        let watermark = first.map_or(come, |first| self.events.mark(first));
        self.add_lane(turn, at);
        Some(Call { lane, due, watermark, turn })
    }
}
