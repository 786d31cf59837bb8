//! Where time comes from: the machine's clock, or a virtual one that a test moves.

use crate::sync::{AtomicU64, Relaxed};
use comporta_model::event::Time;
use std::time::{Duration, Instant};

/// The clock of one program.
#[derive(Debug)]
pub(crate) enum Clock {
    /// The machine's, from the start of the program.
    Real(Instant),
    /// Moved by hand.
    Virtual(AtomicU64),
}

impl Clock {
    pub(crate) fn real() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the one place time comes from")]
        Clock::Real(Instant::now())
    }

    pub(crate) fn virtual_at_zero() -> Self {
        Clock::Virtual(AtomicU64::new(0))
    }

    /// Whether it moves by itself.
    pub(crate) fn is_real(&self) -> bool {
        matches!(self, Clock::Real(_))
    }

    #[inline]
    pub(crate) fn now(&self) -> Time {
        match self {
            Clock::Real(start) => {
                let elapsed = start.elapsed();
                // Cheaper than `as_nanos`, which works in 128 bits; good for 584 years.
                Time::from_nanos(
                    elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos()),
                )
            }
            Clock::Virtual(now) => Time::from_nanos(now.load(Relaxed)),
        }
    }

    /// Moves a virtual clock forward; a real one moves by itself.
    pub(crate) fn advance(&self, by: Duration) {
        if let Clock::Virtual(now) = self {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            now.store(now.load(Relaxed).saturating_add(by), Relaxed);
        }
    }
}
