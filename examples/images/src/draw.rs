//! Makes captchas up: some distorted characters on grainy paper, crossed by lines, strewn with
//! specks. The same seed and number are the same image on every machine: nothing is used that
//! machines may round in their own way.
//!
//! An image is 80 units high, however many pixels that is; lengths are in units.

use crate::glyphs::{self, Point};
use crate::picture::Colour;

/// To be raised when images change, so that those drawn before are not taken for them.
pub const EDITION: u32 = 1;
/// The size of the smallest image.
pub const SMALLEST: (usize, usize) = (256, 80);
/// The size of the largest.
pub const LARGEST: (usize, usize) = (2_560, 1_600);

const HIGH: f64 = 80.0;
/// The blur looks one unit far: lines and specks are thinner than what it leaves, strokes thicker.
const STROKE: (f64, f64) = (5.0, 6.5);
const LINE: (f64, f64) = (0.6, 0.9);

/// The image of this number, at most so wide, and what is written on it.
#[must_use]
pub fn captcha(seed: u64, number: u64, width_max: usize) -> (Colour, String) {
    let mut dice = Dice::new(seed, number);
    let (width, height) = size(&mut dice, width_max);
    let mut canvas = paper(&mut dice, width, height);
    let wide = canvas.wide();
    let text = write(&mut canvas, &mut dice);
    for _ in 0..dice.below(3) + 1 {
        let light = dice.colour(185, 66);
        canvas.wavy(&mut dice, light); // cuts through strokes
    }
    for _ in 0..dice.below(4) + 3 {
        let dark = dice.colour(0, 110);
        canvas.wavy(&mut dice, dark);
    }
    for _ in 0..(wide * HIGH / 90.0) as usize {
        let at = [dice.between(0.0, wide), dice.between(0.0, HIGH)];
        let (thick, colour) = (dice.between(0.5, 1.0), dice.colour(0, 120));
        canvas.stroke([at, at], thick, colour);
    }
    (canvas.image, text)
}

/// Small images are more common than large ones.
fn size(dice: &mut Dice, width_max: usize) -> (usize, usize) {
    let span = |from: usize, to: usize| to as f64 - from as f64;
    let most = span(SMALLEST.0, width_max.min(LARGEST.0)) / span(SMALLEST.0, LARGEST.0);
    let share = dice.between(0.0, 1.0);
    let share = share * share * most.max(0.0);
    let at = |from: usize, to: usize| from + (span(from, to) * share) as usize;
    (at(SMALLEST.0, LARGEST.0), at(SMALLEST.1, LARGEST.1))
}

/// Two pale colours that run into each other, in grains of a unit.
fn paper(dice: &mut Dice, width: usize, height: usize) -> Canvas {
    let (from, to) = (dice.colour(190, 62), dice.colour(190, 62));
    let grains = (width * 80).div_ceil(height);
    let mut pixels = Vec::with_capacity(width * height * 3);
    let mut row = vec![[0; 3]; grains];
    let mut drawn = usize::MAX;
    for y in 0..height {
        let down = y * 80 / height;
        if drawn != down {
            drawn = down;
            for (right, grain) in row.iter_mut().enumerate() {
                let share = (right + down) as f64 / (grains + 80) as f64;
                let tone = dice.below(17) as f64 - 8.0;
                *grain = std::array::from_fn(|c| {
                    let mixed = f64::from(from[c]) * (1.0 - share) + f64::from(to[c]) * share;
                    (mixed + tone).clamp(0.0, 255.0) as u8
                });
            }
        }
        (0..width).for_each(|x| pixels.extend(row[x * 80 / height]));
    }
    Canvas { image: Colour { width, height, pixels }, scale: height as f64 / HIGH }
}

/// Writes some characters, each turned, slanted and moved a little, all of them bent by a wave.
fn write(canvas: &mut Canvas, dice: &mut Dice) -> String {
    let wide = canvas.wide();
    let count = if wide < 180.0 { 4 } else { 5 + dice.below(2) };
    let slot = (wide - 16.0) / count as f64;
    let (bend, from) = (dice.between(2.0, 4.0), dice.between(0.0, 1.0));
    let mut text = String::new();
    for n in 0..count {
        let glyph = dice.below(glyphs::COUNT);
        text.push(glyphs::character(glyph));
        let high = dice.between(38.0, 46.0);
        let broad = (slot * dice.between(0.55, 0.65)).min(30.0);
        let (turn, slant) = (dice.between(-0.14, 0.14), dice.between(-0.2, 0.2));
        // The sine and cosine of an angle, by the tangent of its half.
        let round = 1.0 + turn * turn;
        let (cos, sin) = ((1.0 - turn * turn) / round, 2.0 * turn / round);
        let middle = [8.0 + slot * (n as f64 + 0.5), HIGH / 2.0 + dice.between(-7.0, 7.0)];
        let place = |[right, down]: Point| {
            let y = (down / 6.0 - 0.5) * high;
            let x = (right / 4.0 - 0.5) * broad - y * slant;
            let (x, y) = (middle[0] + x * cos - y * sin, middle[1] + x * sin + y * cos);
            [x + bend / 2.0 * wave(y / 60.0 + from), y + bend * wave(x / 70.0 + from)]
        };
        let (thick, colour) = (dice.between(STROKE.0, STROKE.1), dice.colour(0, 100));
        for stroke in glyphs::strokes(glyph) {
            for ends in stroke.windows(2) {
                canvas.bent(ends[0], ends[1], 6, thick, colour, place);
            }
        }
    }
    text
}

/// Something to draw on.
struct Canvas {
    image: Colour,
    /// Pixels in a unit.
    scale: f64,
}

impl Canvas {
    fn wide(&self) -> f64 {
        self.image.width as f64 / self.scale
    }

    /// A thin line from the left to the right.
    fn wavy(&mut self, dice: &mut Dice, colour: [u8; 3]) {
        let ends = [0.0, self.wide()].map(|x| [x, dice.between(8.0, HIGH - 8.0)]);
        let (high, from) = (dice.between(2.0, 9.0), dice.between(0.0, 1.0));
        let (long, thick) = (dice.between(50.0, 120.0), dice.between(LINE.0, LINE.1));
        let place = |[x, y]: Point| [x, y + high * wave(x / long + from)];
        self.bent(ends[0], ends[1], 60, thick, colour, place);
    }

    /// A line, in so many pieces, each end moved by `place`.
    fn bent(
        &mut self,
        from: Point,
        to: Point,
        pieces: u32,
        thick: f64,
        colour: [u8; 3],
        place: impl Fn(Point) -> Point,
    ) {
        let at = |n: u32| {
            let share = f64::from(n) / f64::from(pieces);
            place([0, 1].map(|c| from[c] * (1.0 - share) + to[c] * share))
        };
        (0..pieces).for_each(|n| self.stroke([at(n), at(n + 1)], thick, colour));
    }

    /// A straight line with round ends and soft edges.
    fn stroke(&mut self, ends: [Point; 2], thick: f64, colour: [u8; 3]) {
        let Colour { width, height, ref mut pixels } = self.image;
        let [a, b] = ends.map(|end| end.map(|length| length * self.scale));
        let half = thick * self.scale / 2.0;
        let span = |c: usize, most: usize| {
            let least = (a[c].min(b[c]) - half - 1.0).max(0.0) as usize;
            least..((a[c].max(b[c]) + half + 2.0).max(0.0) as usize).min(most)
        };
        let along = [b[0] - a[0], b[1] - a[1]];
        let length = along[0] * along[0] + along[1] * along[1];
        for y in span(1, height) {
            for x in span(0, width) {
                let to = [x as f64 + 0.5 - a[0], y as f64 + 0.5 - a[1]];
                let share = if length > 0.0 {
                    ((to[0] * along[0] + to[1] * along[1]) / length).clamp(0.0, 1.0)
                } else {
                    0.0
                };
                let off = [to[0] - share * along[0], to[1] - share * along[1]];
                let away = (off[0] * off[0] + off[1] * off[1]).sqrt();
                let covered = (half - away + 0.5).clamp(0.0, 1.0);
                if covered > 0.0 {
                    let pixel = &mut pixels[(y * width + x) * 3..][..3];
                    for (old, new) in pixel.iter_mut().zip(colour) {
                        let mixed = f64::from(*old) * (1.0 - covered) + f64::from(new) * covered;
                        *old = (mixed + 0.5) as u8;
                    }
                }
            }
        }
    }
}

/// Much like a sine of so many turns.
fn wave(turns: f64) -> f64 {
    let part = turns - turns.floor();
    if part < 0.5 { 16.0 * part * (0.5 - part) } else { -16.0 * (part - 0.5) * (1.0 - part) }
}

/// Splitmix64: small, and good enough for captchas that nobody has to break.
struct Dice(u64);

impl Dice {
    fn new(seed: u64, number: u64) -> Self {
        let mut dice = Dice(seed);
        dice.0 = dice.next().wrapping_add(number);
        dice.0 = dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (self.next() >> 11) as f64 / (1_u64 << 53) as f64 * (to - from)
    }

    fn colour(&mut self, from: usize, span: usize) -> [u8; 3] {
        std::array::from_fn(|_| (from + self.below(span)) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::checksum;

    #[test]
    fn sizes_span_the_range_and_respect_the_bound() {
        let sizes = |most| (0..400).map(move |n| size(&mut Dice::new(1, n), most));
        let all: Vec<_> = sizes(LARGEST.0).collect();
        assert!(all.iter().min().unwrap().0 < 270 && all.iter().max().unwrap().0 > 2_450);
        assert!(all.iter().all(|size| *size >= SMALLEST && size.1 <= LARGEST.1));
        assert!(sizes(300).all(|(width, _)| (256..=300).contains(&width)));
        assert!(sizes(1).all(|size| size == SMALLEST));
    }

    #[test]
    fn the_same_seed_is_the_same_image_and_another_is_not() {
        let (image, text) = captcha(7, 3, 280);
        assert_eq!((&image, &text), (&captcha(7, 3, 280).0, &captcha(7, 3, 280).1));
        assert_ne!(image, captcha(7, 4, 280).0);
        assert_ne!(image, captcha(8, 3, 280).0);
        assert_eq!(image.pixels.len(), image.width * image.height * 3);
        assert!((5..=6).contains(&text.len()));
    }

    /// If this fails on purpose, raise [`EDITION`].
    #[test]
    fn images_are_what_they_were() {
        let sums = [(1, 0), (1, 1), (2, 0)].map(|(seed, number)| {
            let (image, text) = captcha(seed, number, 320);
            (text, image.width, format!("{:016x}", checksum(&image.pixels)))
        });
        let sums = sums.each_ref().map(|(text, width, sum)| (text.as_str(), *width, sum.as_str()));
        assert_eq!(
            sums,
            [
                ("H2XAM", 286, "3b4f977216e0268e"),
                ("0RXF0", 300, "ece2c28a22c9daeb"),
                ("95RAMH", 256, "c4667d4bad59b07c"),
            ]
        );
    }
}
