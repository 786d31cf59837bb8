//! Made-up bids in the spirit of Nexmark's: auctions open one after the other, most bids go to a few that are hot for a
//! while, and bids arrive up to half a second after they were made. The same seed makes the same bids.

use std::time::Duration;

use comporta::Time;
use serde::{Deserialize, Serialize};

/// A bid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bid {
    /// What is bid for.
    pub auction: u64,
    /// Who bids.
    pub bidder: u64,
    /// How much, in cents.
    pub price: u64,
    /// When.
    pub time: Time,
}

/// How long after it was made a bid arrives, at most.
pub const DELAY: Duration = Duration::from_millis(500);

/// So many bids open an auction.
const BIDS_PER_AUCTION: u64 = 15;
/// So many auctions are open at once.
const OPEN: u64 = 100;
/// Of four bids, three go to one of the hot auctions.
const HOT_IN_FOUR: u64 = 3;
/// The hot auctions are others after so many bids.
const HOT_FOR: u64 = 30_000;
/// The first auction: numbers that look like numbers of auctions.
const FIRST: u64 = 1_000;

/// Bids without end, so many in a second of their time.
pub fn bids(seed: u64, per_second: u64) -> impl Iterator<Item = Bid> + Send {
    let gap = 1_000_000_000 / per_second.max(1);
    let mut dice = Dice(seed);
    (0_u64..).map(move |n| {
        let newest = FIRST + n / BIDS_PER_AUCTION + OPEN;
        let age = if dice.below(4) < HOT_IN_FOUR {
            // The lowest of two throws: some of the hot ones are hotter than others.
            newest
                - (FIRST
                    + n / HOT_FOR * HOT_FOR / BIDS_PER_AUCTION
                    + dice.below(8).min(dice.below(8)))
        } else {
            1 + dice.below(OPEN)
        };
        let delay = dice.below(u64::try_from(DELAY.as_nanos()).unwrap_or(u64::MAX));
        let arrives = Time::from_millis(1_000) + Duration::from_nanos(n * gap);
        Bid {
            auction: newest - age,
            bidder: dice.below(5_000),
            price: 100 + dice.below(100_000),
            time: arrives - Duration::from_nanos(delay),
        }
    })
}

/// Splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n.max(1)
    }
}

/// What an auction sells.
#[must_use]
pub fn item(auction: u64) -> String {
    const LOOKS: [&str; 8] =
        ["brass", "walnut", "blue", "signed", "chipped", "silver", "tiny", "framed"];
    const THINGS: [&str; 9] =
        ["lamp", "globe", "clock", "atlas", "teapot", "sextant", "chair", "camera", "print"];
    let mut dice = Dice(auction);
    let look = LOOKS[usize::try_from(dice.below(8)).unwrap_or(0)];
    let thing = THINGS[usize::try_from(dice.below(9)).unwrap_or(0)];
    format!("{look} {thing}")
}
