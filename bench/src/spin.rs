//! The calibrated work of a handler: pure arithmetic that takes about a microsecond.
//! Calibrated once per process; every peer then burns the same number of iterations, so an error
//! in the calibration shifts all peers alike.

use crate::load::Work;
use std::hint::black_box;
use std::time::Instant;

/// Iterations of one calibration trial: about half a millisecond, long against the clock's grain.
const TRIAL_SPINS: u32 = 500_000;
/// The fastest trial counts: noise only ever makes a trial slower.
const TRIALS: usize = 40;

/// A chain of dependent multiplications: no memory, nothing to vectorise.
#[inline]
pub(crate) fn burn(spins: u32, seed: u64) -> u64 {
    let mut state = seed | 1;
    for _ in 0..spins {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(17);
    }
    state
}

/// The work that takes about one microsecond on this machine.
pub(crate) fn one_microsecond() -> Work {
    let fastest_ns = (0..TRIALS)
        .map(|trial| {
            let started = Instant::now();
            black_box(burn(black_box(TRIAL_SPINS), trial as u64));
            started.elapsed().as_nanos() as u64
        })
        .min()
        .expect("TRIALS is above 0");
    let spins = u64::from(TRIAL_SPINS) * 1000 / fastest_ns.max(1);
    Work { spins: u32::try_from(spins).unwrap_or(u32::MAX).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibration_finds_some_work() {
        assert!(one_microsecond().spins > 0);
    }

    #[test]
    fn more_spins_are_a_different_result() {
        assert_ne!(burn(10, 1), burn(11, 1));
    }
}
