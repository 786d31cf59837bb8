//! What every entrant of `keyed` is given, and what it must find: each key's values folded in their order.
//! Invariant: the digest differs if an event is lost, comes twice, or overtakes another of its key.

use crate::stats::Dice;
use std::collections::HashMap;
use std::sync::Arc;

/// An event.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Click {
    pub(crate) key: u64,
    pub(crate) value: u64,
}

/// The state of a key after one more event.
#[inline]
pub(crate) fn fold(state: &mut u64, click: &Click) {
    *state = state.wrapping_mul(31).wrapping_add(click.value);
}

/// What a key adds to the digest.
pub(crate) fn digest(key: u64, state: u64) -> u64 {
    mixed(key.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ mixed(state))
}

/// A number with its bits mixed.
pub(crate) fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

/// How keys are spread over events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Spread {
    Uniform,
    /// The key of rank k comes with a weight of 1 / k^s.
    Zipf(f64),
}

/// Draws keys.
pub(crate) struct Keys {
    dice: Dice,
    /// Of Zipf's law: up to which part of all draws a rank goes.
    ranks: Vec<f64>,
    keys: usize,
}

impl Keys {
    pub(crate) fn new(keys: usize, spread: Spread, seed: u64) -> Self {
        let mut sum = 0.0;
        let mut ranks: Vec<f64> = match spread {
            Spread::Uniform => Vec::new(),
            Spread::Zipf(s) => (1..=keys)
                .map(|rank| {
                    sum += (rank as f64).powf(-s);
                    sum
                })
                .collect(),
        };
        ranks.iter_mut().for_each(|rank| *rank /= sum);
        Keys { dice: Dice::new(seed), ranks, keys }
    }

    /// The next key, by rank: 0 is the most frequent.
    pub(crate) fn draw(&mut self) -> usize {
        if self.ranks.is_empty() {
            return self.dice.below(self.keys);
        }
        let part = (self.dice.next() >> 11) as f64 / (1_u64 << 53) as f64;
        self.ranks.partition_point(|rank| *rank < part).min(self.keys - 1)
    }

    /// A number from 0 to 1.
    pub(crate) fn part(&mut self) -> f64 {
        (self.dice.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The events of a case, in memory before anything is measured.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) clicks: Arc<[Click]>,
    pub(crate) digest: u64,
}

impl Load {
    /// Every key comes once, then `events` as they are spread.
    pub(crate) fn new(keys: usize, events: usize, spread: Spread) -> Self {
        let mut draws = Keys::new(keys, spread, 7);
        let all = (0..keys).chain((0..events).map(|_| draws.draw()));
        let clicks: Arc<[Click]> =
            all.zip(1..).map(|(key, value)| Click { key: mixed(key as u64), value }).collect();
        let mut states: HashMap<u64, u64> = HashMap::new();
        clicks.iter().for_each(|click| fold(states.entry(click.key).or_default(), click));
        let digest = digest_of(&states);
        Load { clicks, digest }
    }
}

/// The digest of a part of the keys; parts are joined by `^`.
pub(crate) fn digest_of(states: &HashMap<u64, u64>) -> u64 {
    states.iter().fold(0, |sum, (key, state)| sum ^ digest(*key, *state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_sees_an_event_lost_and_two_of_a_key_swapped() {
        let digest_of = |clicks: &[Click]| {
            let mut states = HashMap::new();
            clicks.iter().for_each(|click| fold(states.entry(click.key).or_default(), click));
            super::digest_of(&states)
        };
        let load = Load::new(3, 30, Spread::Uniform);
        assert_eq!(digest_of(&load.clicks), load.digest);
        assert_ne!(digest_of(&load.clicks[1..]), load.digest);
        let mut swapped = load.clicks.to_vec();
        let first = swapped[0];
        let other = swapped.iter().rposition(|click| click.key == first.key).unwrap();
        swapped.swap(0, other);
        assert_ne!(digest_of(&swapped), load.digest);
    }

    #[test]
    fn the_first_rank_of_zipf_is_drawn_as_often_as_the_law_says() {
        let mut keys = Keys::new(1_000, Spread::Zipf(1.2), 1);
        let first = (0..100_000).filter(|_| keys.draw() == 0).count();
        assert!((21_000..26_000).contains(&first), "{first}"); // 1 / 4.3
    }
}
