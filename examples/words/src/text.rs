//! Where the text comes from: a file, or a small seeded generator whose words follow Zipf's law,
//! as those of natural languages do: the word of rank r comes about 1/r as often as the first.

use std::path::PathBuf;

/// What is counted.
#[derive(Clone, Debug)]
pub(crate) enum Text {
    /// The lines of a file.
    File(PathBuf),
    /// So many lines made up from a seed.
    Generated { lines: usize, seed: u64 },
}

/// Endless lines of made-up text; the same seed gives the same text.
pub(crate) fn generate(seed: u64) -> impl Iterator<Item = String> + Send {
    let mut dice = Dice(seed);
    std::iter::repeat_with(move || line(&mut dice))
}

/// The most frequent words; the others are made of syllables.
const COMMON: [&str; 24] = [
    "the", "of", "and", "to", "a", "in", "that", "it", "is", "was", "for", "on", "with", "as",
    "he", "at", "by", "not", "this", "from", "are", "or", "she", "when",
];
const SYLLABLES: [&str; 16] = [
    "ta", "ri", "mo", "ne", "la", "su", "ko", "ve", "di", "pa", "lun", "ber", "tis", "gar", "mel",
    "os",
];
/// How many words there are.
const VOCABULARY: f64 = 20_000.0;

fn line(dice: &mut Dice) -> String {
    let words = 5 + dice.below(10);
    let mut line = String::with_capacity(words * 6);
    for n in 0..words {
        if n > 0 {
            line.push_str(if dice.below(9) == 0 { ", " } else { " " });
        }
        let start = line.len();
        push_word(&mut line, dice.rank());
        if n == 0 {
            line[start..=start].make_ascii_uppercase();
        }
    }
    line.push('.');
    line
}

/// A rank beyond the common words spells itself in syllables.
fn push_word(line: &mut String, rank: usize) {
    match COMMON.get(rank) {
        Some(word) => line.push_str(word),
        None => {
            let mut rest = rank;
            while rest > 0 {
                line.push_str(SYLLABLES[rest % SYLLABLES.len()]);
                rest /= SYLLABLES.len();
            }
        }
    }
}

/// Splitmix64: small, and good enough for text.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.roll() % bound as u64) as usize
    }

    /// A rank from 0, chosen by Zipf's law. Rank r has the share ln(1 + 1/(r + 1)), close to
    /// 1/(r + 1), so the shares up to r add up to ln(r + 2), which is easily inverted.
    fn rank(&mut self) -> usize {
        let uniform = (self.roll() >> 11) as f64 / (1u64 << 53) as f64;
        VOCABULARY.powf(uniform) as usize - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_text_and_another_seed_another() {
        let text = |seed| generate(seed).take(100).collect::<Vec<_>>();
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn frequent_words_follow_their_rank() {
        let mut dice = Dice(1);
        let mut times = [0u32; 16];
        for _ in 0..100_000 {
            if let Some(times) = times.get_mut(dice.rank()) {
                *times += 1;
            }
        }
        let [first, second, .., last] = times;
        assert!(first > second && second > last && last > 0, "{times:?}");
    }
}
