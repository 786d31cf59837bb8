//! Where visits come from: a small seeded generator. A few addresses come again and again, most seldom, so that a
//! cache is worth having.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// Somebody looked at a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Visit {
    pub(crate) address: Ipv4Addr,
    pub(crate) bytes: u64,
}

/// Endless visits from so many addresses; the same seed gives the same visits.
pub(crate) fn generate(seed: u64, addresses: u32) -> impl Iterator<Item = Visit> + Send {
    let mut dice = Dice(seed);
    std::iter::repeat_with(move || {
        // Squared, a number below 1 is more often small: the first tenth of the addresses makes a third of the visits.
        let rank = (dice.share() * dice.share() * f64::from(addresses)) as u32;
        let address = Ipv4Addr::from(u32::from(FIRST) + rank);
        Visit { address, bytes: 200 + dice.roll() % 20_000 }
    })
}

/// The first address; the others follow it.
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// Splitmix64: small, and good enough for this.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1u64 << 53) as f64
    }
}
