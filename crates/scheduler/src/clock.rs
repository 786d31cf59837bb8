//! Time: the one file that reads the clock of the system.
//! A virtual clock stands still until the observer has nothing to do but wait for a timer, and then
//! jumps to it. So tests of handlers that sleep for hours take no time and depend on none.

use std::cell::Cell;
use std::time::Instant;

pub(crate) enum Clock {
    System,
    Virtual(Cell<Instant>),
}

impl Clock {
    pub(crate) fn virtual_time() -> Clock {
        Clock::Virtual(Cell::new(system_now()))
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        match self {
            Clock::System => system_now(),
            Clock::Virtual(now) => now.get(),
        }
    }

    #[inline]
    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self, Clock::Virtual(_))
    }

    /// Jumps to `at` if this clock is virtual; returns whether it is.
    pub(crate) fn jump_to(&self, at: Instant) -> bool {
        match self {
            Clock::System => false,
            Clock::Virtual(now) => {
                now.set(now.get().max(at));
                true
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where time comes from")]
fn system_now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn virtual_time_moves_only_forward_and_only_by_jumps() {
        let clock = Clock::virtual_time();
        let began = clock.now();
        assert_eq!(clock.now(), began);
        assert!(clock.jump_to(began + Duration::from_secs(5)));
        assert!(clock.jump_to(began + Duration::from_secs(3)));
        assert_eq!(clock.now(), began + Duration::from_secs(5));
        assert!(!Clock::System.jump_to(began));
    }
}
