//! The same images without stages, twice: `treat_all` calls the seven steps one after the other, as
//! one would without Comporta (and as a benchmark compares with); `defined` says what each pixel is
//! by definition, and shares none of their loops.

use crate::picture::{BadImage, Grey, decode, encode};
use crate::treat::{self, HALF, Scratch};

/// The seven steps, from what is in one file to what is in the other.
///
/// # Errors
/// Those of the first step.
pub fn treat_all(
    file: &[u8],
    level: u8,
    scratch: &mut Scratch,
    to: &mut Vec<u8>,
) -> Result<Grey, BadImage> {
    let mut image = treat::grayscale(decode(file)?);
    treat::threshold(&mut image, level);
    let radius = treat::radius(image.height);
    treat::blur(&mut image, radius, scratch);
    treat::threshold(&mut image, HALF);
    treat::invert(&mut image);
    encode(&image, to)?;
    Ok(image)
}

/// What the pixels of the result must be: white where at least half of the square around is ink,
/// which is what is no brighter than the level.
///
/// # Errors
/// Those of the first step.
pub fn defined(file: &[u8], level: u8) -> Result<Grey, BadImage> {
    let image = decode(file)?;
    let (width, height) = (image.width, image.height);
    let (colours, _) = image.pixels.as_chunks::<3>();
    // How many of the pixels above and to the left are ink; a row and a column more than the image.
    let wide = width + 1;
    let mut inked = vec![0_u32; wide * (height + 1)];
    for y in 0..height {
        for x in 0..width {
            let ink = u32::from(treat::grey(colours[y * width + x]) <= level);
            let corner = inked[(y + 1) * wide + x] + inked[y * wide + x + 1] - inked[y * wide + x];
            inked[(y + 1) * wide + x + 1] = corner + ink;
        }
    }
    let radius = treat::radius(height);
    let mut pixels = Vec::with_capacity(width * height);
    for y in 0..height {
        for x in 0..width {
            let (left, right) = (x.saturating_sub(radius), (x + radius + 1).min(width));
            let (top, bottom) = (y.saturating_sub(radius), (y + radius + 1).min(height));
            let ink = inked[bottom * wide + right] + inked[top * wide + left]
                - inked[bottom * wide + left]
                - inked[top * wide + right];
            let count = ((right - left) * (bottom - top)) as u32;
            pixels.push(if 2 * ink >= count { 255 } else { 0 });
        }
    }
    Ok(Grey { width, height, pixels })
}

/// The first pixel that is not what it must be, for people.
#[must_use]
pub fn difference(found: &Grey, expected: &Grey) -> Option<String> {
    let size = |image: &Grey| (image.width, image.height);
    if size(found) != size(expected) {
        let ((w, h), (width, height)) = (size(found), size(expected));
        return Some(format!("{w} x {h} pixels instead of {width} x {height}"));
    }
    let at = found.pixels.iter().zip(&expected.pixels).position(|(a, b)| a != b)?;
    let (x, y) = (at % found.width, at / found.width);
    let (is, must) = (found.pixels[at], expected.pixels[at]);
    Some(format!("the pixel at {x}, {y} is {is} instead of {must}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::captcha;
    use crate::picture::{checksum, encode_colour};

    fn file(seed: u64, number: u64) -> Vec<u8> {
        let mut file = Vec::new();
        encode_colour(&captcha(seed, number, 320).0, &mut file).unwrap();
        file
    }

    #[test]
    fn the_seven_steps_make_what_is_defined() {
        let (mut scratch, mut to) = (Scratch::default(), Vec::new());
        for (number, level) in [(0, 128), (1, 128), (2, 90), (3, 0), (4, 255)] {
            let image = treat_all(&file(5, number), level, &mut scratch, &mut to).unwrap();
            let expected = defined(&file(5, number), level).unwrap();
            assert_eq!(difference(&image, &expected), None, "{number}");
            assert_eq!(treat::grayscale(decode(&to).unwrap()), image, "{number}");
        }
    }

    /// How much of it is ink, in percent, and its checksum.
    #[test]
    fn results_are_what_they_were() {
        let sums = [(1, 0), (1, 1), (2, 0)].map(|(seed, number)| {
            let image = defined(&file(seed, number), treat::LEVEL).unwrap();
            let white = image.pixels.iter().filter(|pixel| **pixel == 255).count();
            (100 * white / image.pixels.len(), checksum(&image.pixels))
        });
        assert_eq!(
            sums,
            [(17, 0x26E5_9270_7AC1_F2E5), (19, 0xBD7F_D6AF_0E35_C138), (21, 0xEAF4_8DB6_B7EA_07F4),]
        );
    }

    #[test]
    fn the_pictures_beside_the_readme_are_before_and_after() {
        let before = include_bytes!("../before.png");
        assert_eq!(decode(before).unwrap(), captcha(2, 1, 256).0);
        let after = treat::grayscale(decode(include_bytes!("../after.png")).unwrap());
        assert_eq!(difference(&after, &defined(before, treat::LEVEL).unwrap()), None);
    }

    #[test]
    fn a_pixel_that_differs_is_named() {
        let one = Grey { width: 3, height: 2, pixels: vec![0; 6] };
        let mut other = one.clone();
        assert_eq!(difference(&one, &other), None);
        other.pixels[5] = 255;
        let said = difference(&one, &other).unwrap();
        assert_eq!(said, "the pixel at 2, 1 is 0 instead of 255");
        let turned = Grey { width: 2, height: 3, pixels: vec![0; 6] };
        assert_eq!(difference(&turned, &one).unwrap(), "2 x 3 pixels instead of 3 x 2");
    }
}
