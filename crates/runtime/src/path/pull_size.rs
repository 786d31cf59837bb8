//! How many events a source is pulled for. An iterator may block for its next event, and what the
//! pull has until then is held back for as long: lines typed by a person, messages of a channel.
//! Nobody can see beforehand that it will, so it is pulled for one event at a time until it has been
//! quick for a while, and again from the first pull that waited.
//! Used by `source`.

use std::time::Duration;

/// A pull that takes this long, ...
const SLOW_PULL: Duration = Duration::from_millis(1);
/// ... and this long for each of its events, has waited for them rather than worked.
const SLOW_EACH: Duration = Duration::from_micros(50);
/// How many quick pulls there are for one event each, and for each number after that. So what a
/// burst leaves behind in a pull that waits is small against what it has handed on.
const ALONE: u32 = 64;
const ALIKE: u32 = 16;

/// How much a source is asked for.
pub(crate) struct PullSize {
    events: usize,
    /// Quick pulls that are missing for more.
    missing: u32,
}

impl PullSize {
    pub(crate) fn new() -> Self {
        PullSize { events: 1, missing: ALONE }
    }

    /// As much as there is: where time is virtual, no pull waits.
    pub(crate) fn unbounded() -> Self {
        PullSize { events: usize::MAX, missing: 0 }
    }

    /// How many events to pull for at most.
    pub(crate) fn events(&self) -> usize {
        self.events
    }

    /// A pull brought so many events, in so much time. Returns whether it waited for them.
    pub(crate) fn note(&mut self, events: usize, took: Duration) -> bool {
        let each = u32::try_from(events).unwrap_or(u32::MAX).max(1);
        if took >= SLOW_PULL && took / each >= SLOW_EACH {
            *self = PullSize::new();
            return true;
        }
        self.missing = self.missing.saturating_sub(1);
        if self.missing == 0 {
            self.events = self.events.saturating_mul(2);
            self.missing = ALIKE;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_micros(20);

    /// Takes all that is asked for, at once, until so many have come.
    fn burst(pull_size: &mut PullSize, events: usize) -> usize {
        let mut came = 0;
        while came + pull_size.events() <= events {
            came += pull_size.events();
            pull_size.note(pull_size.events(), QUICK);
        }
        events - came
    }

    #[test]
    fn a_burst_is_handed_on_and_what_is_left_in_the_pull_that_waits_is_a_small_part_of_it() {
        for events in [1, 10, 64, 100, 1_000, 5_000, 20_000] {
            let left = burst(&mut PullSize::new(), events);
            assert!(left * 10 <= events, "{left} of {events} are held back");
        }
        assert_eq!(burst(&mut PullSize::new(), 64), 0);
    }

    #[test]
    fn a_source_that_waited_is_pulled_for_one_event_again() {
        let mut pull_size = PullSize::new();
        burst(&mut pull_size, 100_000);
        assert!(pull_size.events() > 512);
        pull_size.note(300, Duration::from_millis(80));
        assert_eq!(pull_size.events(), 1);
    }

    #[test]
    fn a_source_that_works_is_not_taken_for_one_that_waits() {
        let mut pull_size = PullSize::new();
        for _ in 0..10_000 {
            let events = pull_size.events().min(512);
            pull_size.note(events, Duration::from_micros(20) * events as u32);
        }
        assert!(pull_size.events() >= 512);
    }

    #[test]
    fn a_steady_source_is_held_back_for_some_milliseconds_at_most() {
        for gap in [60, 200, 900, 5_000].map(Duration::from_micros) {
            let mut pull_size = PullSize::new();
            let mut longest = Duration::ZERO;
            for _ in 0..10_000 {
                let took = gap * pull_size.events() as u32;
                longest = longest.max(took - gap);
                pull_size.note(pull_size.events(), took);
            }
            assert!(longest < Duration::from_millis(4), "{longest:?} between events of {gap:?}");
        }
    }
}
