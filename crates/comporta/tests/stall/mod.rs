//! How tests on threads wait for the end of a program: for as long as it gets on. A machine that has much
//! else to do makes a program slow, and a bound on its time would fail then; one that stands still is at fault
//! however fast the machine is. Part of each test binary that has such tests.

use std::fmt::Debug;
use std::time::Duration;

use comporta::{Counts, Running, Summary};

/// A program none of whose counts changes for so long has stalled.
pub(crate) const STALLED: Duration = Duration::from_secs(30);
/// How often its counts are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often at most: a program that goes on for ever fails too.
const LOOKS_MAX: u32 = 900;

/// Waits for the end of a program. `what` says which one it was.
///
/// # Panics
/// If the program stalls, with all that is known of where it stands.
#[track_caller]
pub(crate) fn ended(mut running: Running, what: impl Debug) -> Summary {
    let mut before = Vec::new();
    let mut still = Duration::ZERO;
    for _ in 0..LOOKS_MAX {
        running = match running.wait_for(LOOK) {
            Ok(summary) => return summary,
            Err(running) => running,
        };
        let now = counts(&running);
        still = if now == before { still + LOOK } else { Duration::ZERO };
        before = now;
        if still >= STALLED {
            panic!("stalled: {what:?}\n{}\n{running:#?}", running.snapshot());
        }
    }
    panic!("goes on for ever: {what:?}\n{}\n{running:#?}", running.snapshot());
}

/// What changes whenever a program does anything for its events.
fn counts(running: &Running) -> Vec<(Counts, bool)> {
    running.snapshot().stages.iter().map(|stage| (stage.counts, stage.ended)).collect()
}
