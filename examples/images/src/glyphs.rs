//! The characters of made-up captchas, as strokes: what looks like another (O and 0, I and 1, ...)
//! is left out.

/// A point of a stroke: to the right and down, in a box of 4 by 6.
pub type Point = [f64; 2];

/// A character, and its strokes: points of two digits each, to the right and down.
const GLYPHS: [(char, &str); 26] = [
    ('0', "10 30 41 45 36 16 05 01 10"),
    ('2', "01 10 30 41 42 06 46"),
    ('3', "01 10 30 41 42 33 13, 33 44 45 36 16 05"),
    ('4', "36 30 04 44"),
    ('5', "40 00 02 32 43 45 36 16 05"),
    ('6', "30 10 01 05 16 36 45 44 33 13 04"),
    ('7', "00 40 16"),
    ('8', "13 02 01 10 30 41 42 33 13 04 05 16 36 45 44 33"),
    ('9', "16 36 45 41 30 10 01 02 13 33 42"),
    ('A', "06 20 46, 14 34"),
    ('C', "41 30 10 01 05 16 36 45"),
    ('E', "40 00 06 46, 03 33"),
    ('F', "40 00 06, 03 33"),
    ('H', "00 06, 40 46, 03 43"),
    ('K', "00 06, 40 03 46"),
    ('L', "00 06 46"),
    ('M', "06 00 23 40 46"),
    ('N', "06 00 46 40"),
    ('P', "06 00 30 41 42 33 03"),
    ('R', "06 00 30 41 42 33 03, 23 46"),
    ('T', "00 40, 20 26"),
    ('U', "00 05 16 36 45 40"),
    ('V', "00 26 40"),
    ('W', "00 16 22 36 40"),
    ('X', "00 46, 40 06"),
    ('Y', "00 23 40, 23 26"),
];

/// How many characters there are.
pub const COUNT: usize = GLYPHS.len();

/// The character of this number, below [`COUNT`].
#[must_use]
pub fn character(number: usize) -> char {
    GLYPHS[number].0
}

/// The strokes of the character of this number, below [`COUNT`].
pub fn strokes(number: usize) -> impl Iterator<Item = Vec<Point>> {
    GLYPHS[number].1.split(", ").map(|stroke| stroke.split(' ').map(point).collect())
}

fn point(digits: &str) -> Point {
    let bytes = digits.as_bytes();
    [0, 1].map(|n| f64::from(bytes[n] - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stroke_is_a_line_inside_of_the_box() {
        for number in 0..COUNT {
            for stroke in strokes(number) {
                assert!(stroke.len() > 1, "{}", character(number));
                for [right, down] in stroke {
                    assert!(right <= 4.0 && down <= 6.0, "{}", character(number));
                }
            }
        }
    }
}
