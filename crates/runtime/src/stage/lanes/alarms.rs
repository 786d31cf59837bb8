//! What is to happen to lanes at a time: events tried again, timers, state that expires. Used by `mod.rs`.
//! Invariant: the clock has been asked for the first of them.

use std::collections::BTreeMap;

use comporta_model::event::Time;
use comporta_model::keyed::{AlarmId, Clock, LaneRef};

use super::LaneRules;
use super::watermark::Watermark;
use crate::timer::Armed;

/// What is to happen at a time.
pub(super) enum Alarm {
    /// A lane waits no longer to try its first event again.
    Retry(usize),
    /// The timers of a lane are looked at.
    Timer(LaneRef),
}

#[derive(Default)]
pub(super) struct Alarms {
    by_time: BTreeMap<(Time, u64), Alarm>,
    /// Lanes whose state is looked after, by when they were last known to be used.
    by_age: BTreeMap<(Time, u64), LaneRef>,
    /// Lanes whose event timers are looked at when the watermark has come so far.
    by_event_time: BTreeMap<(Time, u64), LaneRef>,
    /// Those whose state was forgotten: the directory may forget them too.
    forgotten: Vec<LaneRef>,
    /// Numbers what is due at one moment.
    made: u64,
    armed: Armed,
}

impl Alarms {
    /// A lane waits until then to try its first event again.
    pub(super) fn add_retry(&mut self, due: Time, at: usize) {
        self.made += 1;
        self.by_time.insert((due, self.made), Alarm::Retry(at));
    }

    /// Looks at the timers of a lane then, and not later.
    pub(super) fn add_timer(&mut self, of: Clock, due: Time, lane: LaneRef) {
        self.made += 1;
        let alarm = (due, self.made);
        if let Some(before) = lane.set_alarm(of, Some(alarm)) {
            self.cancel(of, before);
        }
        match of {
            Clock::Program => drop(self.by_time.insert(alarm, Alarm::Timer(lane))),
            Clock::Events => drop(self.by_event_time.insert(alarm, lane)),
        }
    }

    /// A lane is left that has no timers: they were taken back.
    pub(super) fn forget_timers(&mut self, lane: &LaneRef) {
        for of in [Clock::Program, Clock::Events] {
            if let Some(alarm) = lane.set_alarm(of, None) {
                self.cancel(of, alarm);
            }
        }
    }

    /// One that has come already is ignored.
    fn cancel(&mut self, of: Clock, alarm: AlarmId) {
        match of {
            Clock::Program => drop(self.by_time.remove(&alarm)),
            Clock::Events => drop(self.by_event_time.remove(&alarm)),
        }
    }

    /// Takes out the next lane whose event timers are to be looked at.
    pub(super) fn next_by_event_time(&mut self, watermark: Time) -> Option<LaneRef> {
        let entry = self.by_event_time.first_entry().filter(|entry| entry.key().0 <= watermark)?;
        Some(entry.remove())
    }

    /// Whether event timers are to be looked at now.
    pub(super) fn has_event_timers(&self, watermark: Time) -> bool {
        self.by_event_time.first_key_value().is_some_and(|((due, _), _)| *due <= watermark)
    }

    /// Looks after the state of a lane from now on.
    pub(super) fn watch(&mut self, used: Time, lane: LaneRef) {
        self.made += 1;
        self.by_age.insert((used, self.made), lane);
    }

    /// Takes out lanes that were looked after, and have no state any more.
    pub(super) fn take_forgotten(&mut self) -> Vec<LaneRef> {
        std::mem::take(&mut self.forgotten)
    }

    /// Lanes whose state is looked after.
    pub(super) fn watched(&self) -> usize {
        self.by_age.len()
    }

    /// When the clock is to be asked, if it is another time than before.
    pub(super) fn arm(
        &mut self,
        rules: &LaneRules,
        watermark: Option<&Watermark>,
        now: Time,
    ) -> Option<Time> {
        let first = self.by_time.first_key_value().map(|((due, _), _)| *due);
        let idle = rules
            .idle
            .and_then(|idle| self.by_age.first_key_value().map(|((used, _), _)| *used + idle));
        let timer = self.by_event_time.first_key_value().map(|((due, _), _)| *due);
        let look = watermark.and_then(|watermark| watermark.next_look(timer?, now));
        self.armed.arm(first.into_iter().chain(idle).chain(look).min()?)
    }

    /// The clock has told.
    pub(super) fn ring(&mut self, now: Time) {
        self.armed.ring(now);
    }

    /// Takes out the next that is due.
    pub(super) fn next(&mut self, now: Time) -> Option<(Time, Alarm)> {
        let entry = self.by_time.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((due, _), alarm) = entry.remove_entry();
        Some((due, alarm))
    }

    /// Takes out the lane that was last used longest ago, if that was when `old` says. One that was used since is
    /// put where it belongs, and the next is looked at; `now` is when lanes that are being visited are used.
    pub(super) fn expire(
        &mut self,
        now: Time,
        old: impl Fn(Time) -> bool,
        is_busy: impl Fn(&LaneRef) -> bool,
    ) -> Option<LaneRef> {
        for _ in 0..self.by_age.len() {
            let entry = self.by_age.first_entry().filter(|entry| old(entry.key().0))?;
            let ((known, _), lane) = entry.remove_entry();
            let busy = is_busy(&lane);
            let used = if busy { now } else { lane.used() };
            if !lane.has_state() && !busy {
                lane.watch(false);
                self.forgotten.push(lane); // by its handler, meanwhile
            } else if busy || used > known {
                self.watch(used.max(known), lane);
            } else {
                lane.watch(false);
                return Some(lane);
            }
        }
        None
    }
}
