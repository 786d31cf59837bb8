//! How long a visit takes: the pace of an instance and of its stage, learnt from visits, and the looks at
//! the clock that end a visit whose time is up.
//! Used by `handle`; `settle` sizes the next visits by it. Sources learn theirs, too.

use std::time::Duration;

use comporta_model::event::Time;

use crate::core::Core;

/// How long a visit should take at most: long against what a visit costs (well under a
/// microsecond) and short against what a person or a deadline notices.
pub(super) const QUANTUM: Duration = Duration::from_micros(100);

/// Below this mean service time the clock is first read after `CHECK_LATE` events rather than after
/// 1: a read costs about 28 ns, which would show against a handler of a few.
const CHECK_EARLY_NS: u64 = 250;
const CHECK_LATE: usize = 256;

/// A visit costs about a microsecond: against this it is little.
const ALONE_NS: u64 = 20_000;

/// How long an event takes, learnt from visits.
#[derive(Default)]
pub(crate) struct Pace {
    mean_ns: u64,
    /// Nanoseconds per event of the last three visits; 0 where there was none.
    lately: [u64; 3],
    /// Of these, what is usual.
    usual_ns: u64,
    /// Time spent in visits that has not been added up yet.
    busy_ns: u64,
    /// Events of the last visit that handled any.
    events: usize,
}

impl Pace {
    /// A visit spent so much time on so many events.
    #[inline]
    pub(crate) fn note(&mut self, taken: Duration, events: usize) {
        self.note_ns(u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX), events);
    }

    /// As [`note`](Self::note), in nanoseconds.
    #[inline]
    pub(super) fn note_ns(&mut self, taken: u64, events: usize) {
        self.busy_ns += taken;
        let each = if events == 1 { Some(taken) } else { taken.checked_div(events as u64) };
        let Some(ns) = each.map(|ns| ns.max(1)) else { return };
        self.events = events;
        self.mean_ns = if self.mean_ns == 0 { ns } else { (self.mean_ns * 3 + ns) / 4 };
        let [_, first, second] = self.lately;
        self.lately = [first, second, ns];
        let median = first.max(second).min(first.min(second).max(ns));
        self.usual_ns = if second == 0 { ns } else { median };
    }

    /// Time spent in visits since this was last asked.
    #[inline]
    pub(crate) fn take_busy_ns(&mut self) -> u64 {
        std::mem::take(&mut self.busy_ns)
    }

    /// The mean, the latest counting most; 0 before the first visit.
    #[inline]
    pub(super) fn mean_ns(&self) -> u64 {
        self.mean_ns
    }

    /// The median of the last visits. A visit in which the machine ran something else for some
    /// milliseconds moves the mean a thousandfold, and says nothing about the next.
    #[inline]
    pub(super) fn usual_ns(&self) -> u64 {
        self.usual_ns
    }

    /// How many nanoseconds so many events usually take.
    pub(crate) fn usual_of(&self, events: usize) -> u64 {
        self.usual_ns.saturating_mul(events as u64)
    }
}

/// The pace of a stage, from the visits of all its instances.
pub(super) struct StagePace {
    /// Events per visit.
    stride: usize,
    /// Nanoseconds an event usually takes.
    usual_ns: u64,
    /// The mean, the latest visit counting most.
    mean_ns: u64,
    /// Time spent in handlers.
    busy_ns: u64,
    /// Events of the last visit that handled any.
    events: usize,
    /// What an event usually took, and how many events a visit had, when that was last acted upon.
    seen: (u64, usize),
}

/// Every so many visits the pace is acted upon whether or not it seems to have changed.
const LOOK_EVERY: u64 = if cfg!(shuttle) { 1 } else { 64 };

impl StagePace {
    /// Before the first visit: visits may take `batch` events.
    pub(super) fn new(batch: usize) -> Self {
        StagePace { stride: batch, usual_ns: 0, mean_ns: 0, busy_ns: 0, events: 0, seen: (0, 0) }
    }

    /// Learns from a visit of an instance, the stage's `visits`th; visits take `batch` events at most. Returns whether it has
    /// become another: by more than a quarter.
    #[inline(always)]
    pub(super) fn learn(&mut self, pace: &mut Pace, batch: usize, visits: u64) -> bool {
        self.busy_ns += pace.take_busy_ns();
        (self.mean_ns, self.events) = (pace.mean_ns, pace.events);
        self.usual_ns = pace.usual_ns();
        let (usual_ns, events) = self.seen;
        let same = self.usual_ns.abs_diff(usual_ns) <= usual_ns / 4
            && self.events.abs_diff(events) <= events / 4;
        if same && !visits.is_multiple_of(LOOK_EVERY) {
            return false;
        }
        self.seen = (self.usual_ns, self.events);
        // By what is usual: events that leave in pieces after one slow visit stay so for the rest
        // of their way.
        let fits = QUANTUM.as_nanos() as u64 / self.usual_ns.max(1);
        self.stride = usize::try_from(fits).unwrap_or(usize::MAX).clamp(1, batch);
        true
    }

    /// Events per visit; of a stage whose events others could have (`shared`), one where that costs
    /// little against the handler, or its pace is not known: a handler that does not return then holds
    /// nothing back but its own event.
    #[inline]
    pub(super) fn stride(&self, shared: bool) -> usize {
        let alone = self.usual_ns == 0 || self.usual_ns >= ALONE_NS;
        if shared && alone { 1 } else { self.stride }
    }

    #[inline]
    pub(super) fn usual_ns(&self) -> u64 {
        self.usual_ns
    }

    /// How long a visit like the last takes, in nanoseconds, and how many events it has. That of a stage whose events
    /// others could have (`shared`), by the mean: one slow event among many quick ones should not hold them up.
    #[inline]
    pub(super) fn visit_ns(&self, shared: bool) -> (u64, usize) {
        let each = if shared { self.usual_ns.max(self.mean_ns) } else { self.usual_ns };
        (each.saturating_mul(self.events as u64), self.events)
    }

    pub(super) fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns)
    }
}

/// When to look at the clock: after 1, 2, 4, 8 ... events, so that a visit overshoots its time at
/// most twofold.
///
/// A visit that is late all of a sudden is pardoned once: if what is left would fit its time at the
/// pace it had, then the machine was away and not the handler slow, and to stop would gain nothing
/// and leave the events in two pieces for the rest of their way. The look-outs begin anew with the
/// next event, so a handler that did become slow costs one event more.
pub(super) struct QuantumCheck {
    next: usize,
    /// When, and at which event, the count of look-outs began.
    start: Time,
    from: usize,
    /// Nanoseconds per event as far as known; 0 if not.
    pace_ns: u64,
    pardoned: bool,
    /// The stage, if a test gives its handlers time.
    timed: Option<u32>,
}

impl QuantumCheck {
    #[inline]
    pub(super) fn new(start: Time, pace: &Pace) -> Self {
        let early = pace.mean_ns() > CHECK_EARLY_NS || pace.mean_ns() == 0;
        let next = if early { 1 } else { CHECK_LATE };
        QuantumCheck {
            next,
            start,
            from: 0,
            pace_ns: pace.usual_ns(),
            pardoned: false,
            timed: None,
        }
    }

    /// Does not look at the clock at all.
    pub(super) fn never(start: Time, pace: &Pace) -> Self {
        QuantumCheck { next: usize::MAX, ..QuantumCheck::new(start, pace) }
    }

    /// Notes whether a test gives the handlers of this stage time.
    #[inline]
    pub(super) fn time(&mut self, core: &Core, stage: u32) {
        self.timed = core.is_timed(stage).then_some(stage);
    }

    /// Whether a test does.
    #[inline]
    pub(super) fn is_timed(&self) -> bool {
        self.timed.is_some()
    }

    /// If so, lets the time pass that the next call takes: before the call, so that what the handler does comes at its
    /// end. Returns the end of what is called next.
    #[inline]
    pub(super) fn serve(&self, core: &Core, at: usize, until: usize, grouped: bool) -> usize {
        let Some(stage) = self.timed else { return until };
        let until = if grouped { until } else { at + 1 };
        core.serve(stage, until - at);
        until
    }

    /// After which event of the visit to look next.
    #[inline]
    pub(super) fn next(&self) -> usize {
        self.next
    }

    #[cold]
    #[inline(never)]
    pub(super) fn is_late(&mut self, core: &Core, at: usize, left: usize) -> bool {
        self.judge(core.clock.now(), at, left)
    }

    /// Whether a visit that has spent `at` events by now must stop with `left` to go.
    pub(super) fn judge(&mut self, now: Time, at: usize, left: usize) -> bool {
        let (spent, events) = (now.duration_since(self.start), at - self.from);
        if spent <= QUANTUM {
            self.next = at + events;
            self.pace_ns = (spent.as_nanos() as u64 / events as u64).max(1);
            return false;
        }
        let fits = QUANTUM.as_nanos() as u64 / self.pace_ns.max(1);
        if self.pardoned || self.pace_ns == 0 || left as u64 > fits {
            return true;
        }
        *self = QuantumCheck { next: at + 1, start: now, from: at, pardoned: true, ..*self };
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(pace: &mut Pace, ns: u64) {
        pace.note(Duration::from_nanos(ns), 1);
    }

    #[test]
    fn one_slow_visit_moves_the_mean_but_not_what_is_usual() {
        let mut pace = Pace::default();
        assert_eq!((pace.mean_ns(), pace.usual_ns()), (0, 0));
        note(&mut pace, 40_000); // even if it is the first
        assert_eq!(pace.usual_ns(), 40_000);
        note(&mut pace, 4);
        assert_eq!(pace.usual_ns(), 4);
        note(&mut pace, 40_000);
        note(&mut pace, 5);
        note(&mut pace, 4);
        assert_eq!(pace.usual_ns(), 5);
        assert!(pace.mean_ns() > 1000);
    }

    #[test]
    fn two_slow_visits_in_a_row_are_the_new_usual() {
        let mut pace = Pace::default();
        for ns in [4, 4, 4, 40_000, 50_000] {
            note(&mut pace, ns);
        }
        assert_eq!(pace.usual_ns(), 40_000);
    }

    const MS: u64 = 1_000_000;

    fn check(usual_ns: u64) -> QuantumCheck {
        let mut pace = Pace::default();
        note(&mut pace, usual_ns);
        QuantumCheck::new(Time::ZERO, &pace)
    }

    fn at_ns(ns: u64) -> Time {
        Time::from_nanos(ns)
    }

    #[test]
    fn a_fast_visit_that_is_late_all_of_a_sudden_goes_on() {
        let mut check = check(4);
        assert_eq!(check.next, CHECK_LATE);
        assert!(!check.judge(at_ns(5 * MS), 128, 128));
        assert_eq!(check.next, 129);
        assert!(!check.judge(at_ns(5 * MS + 4), 129, 127));
        assert_eq!(check.next, 130);
        assert!(!check.judge(at_ns(5 * MS + 8), 130, 126));
        assert_eq!(check.next, 132);
    }

    #[test]
    fn a_handler_that_became_slow_costs_one_event_more() {
        let mut check = check(4);
        assert!(!check.judge(at_ns(128 * MS), 128, 128));
        assert!(check.judge(at_ns(129 * MS), 129, 127));
    }

    #[test]
    fn a_visit_is_not_pardoned_before_its_pace_is_known_or_where_the_rest_does_not_fit() {
        let mut first = QuantumCheck::new(Time::ZERO, &Pace::default());
        assert!(first.judge(at_ns(MS), 1, 255));
        let mut slow = check(1_000); // 100 fit a visit
        assert!(!slow.judge(at_ns(1_000), 1, 255));
        assert!(!slow.judge(at_ns(2_000), 2, 254));
        assert!(slow.judge(at_ns(MS), 4, 101));
    }

    #[test]
    fn the_clock_is_looked_at_after_1_2_4_and_8_events() {
        let mut check = QuantumCheck::new(Time::ZERO, &Pace::default());
        for (at, next) in [(1, 2), (2, 4), (4, 8), (8, 16)] {
            assert_eq!(check.next, at);
            assert!(!check.judge(at_ns(1), at, 100));
            assert_eq!(check.next, next);
        }
    }
}
