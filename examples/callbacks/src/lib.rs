//! A phone whose native interface knows only callbacks, and one program for it, written twice:
//!
//! 1. `phone`       the phone, simulated: a radio, a position sensor, a user; it only calls back
//! 2. `sequential`  the program as coroutines, on the event scheduler
//! 3. `callbacks`   the same program with callbacks, as the phone wants it
//!
//! The program answers messages that ask `where?`: it asks the user, waits for a position that is
//! accurate enough, and sends it, again if the radio is busy.

pub mod phone;
pub mod sequential;
pub mod callbacks;

use phone::Time;

/// How long the user may take to answer.
pub const PATIENCE: Time = 30_000;
/// A position is good enough within so many metres.
pub const ACCURATE: u32 = 20;
/// So often the sensor is asked, and the radio tried.
pub const FIXES_MAX: u32 = 4;
/// How often a message is tried.
pub const TRIES_MAX: u32 = 3;
/// The pause before a message is tried again.
pub const PAUSE: Time = 2_000;
