//! The five treatments between loading and saving: one image in, the same memory out.
//! All is reckoned in whole numbers, so that every machine makes the same pixels.

use crate::picture::{Colour, Grey};

/// What is brighter than this is paper, unless said otherwise.
pub const LEVEL: u8 = 128;
/// The second threshold: ink is where at least half of the surroundings are.
pub const HALF: u8 = 127;

/// How far the blur looks, for an image of this height: a line that was thin when it was 80 pixels
/// high is thin when it is 1,600.
#[must_use]
pub fn radius(height: usize) -> usize {
    ((height + 40) / 80).clamp(1, 32)
}

/// The grey of a colour, as bright as people see it (ITU-R BT.601).
#[must_use]
pub fn grey([red, green, blue]: [u8; 3]) -> u8 {
    ((77 * u32::from(red) + 150 * u32::from(green) + 29 * u32::from(blue) + 128) >> 8) as u8
}

/// Colours become shades of grey, at the front of the same memory; the rest is given back.
#[must_use]
pub fn grayscale(image: Colour) -> Grey {
    let Colour { width, height, mut pixels } = image;
    let count = pixels.len() / 3;
    for n in 0..count {
        pixels[n] = grey([pixels[3 * n], pixels[3 * n + 1], pixels[3 * n + 2]]);
    }
    pixels.truncate(count);
    pixels.shrink_to_fit(); // allocators cut it off where it is: two thirds less to queue
    Grey { width, height, pixels }
}

/// What is above the level becomes black, the rest white.
pub fn threshold(image: &mut Grey, level: u8) {
    for pixel in &mut image.pixels {
        *pixel = if *pixel > level { 0 } else { 255 };
    }
}

/// What the blur remembers of rows it has written over; kept from image to image.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    rows: Vec<u8>,
    sums: Vec<u32>,
}

/// Every pixel becomes the mean of the square around it, or of what of it lies in the image.
///
/// In place, and in the same time for any radius: the sums of columns move down row by row, the sum
/// of the square moves along them. Only the last rows are still needed as they were.
pub fn blur(image: &mut Grey, radius: usize, scratch: &mut Scratch) {
    let Grey { width, height, ref mut pixels } = *image;
    let Scratch { rows, sums } = scratch;
    let kept = radius + 1; // those above the row that is written, and itself
    rows.clear();
    rows.resize(kept * width, 0);
    sums.clear();
    sums.resize(width, 0);
    for y in 0..radius.min(height) {
        add(sums, &pixels[y * width..][..width]);
    }
    for y in 0..height {
        if y + radius < height {
            add(sums, &pixels[(y + radius) * width..][..width]);
        }
        let slot = &mut rows[y % kept * width..][..width];
        if y > radius {
            take(sums, slot); // the row that was here is radius + 1 above
        }
        let row = &mut pixels[y * width..][..width];
        slot.copy_from_slice(row);
        let high = (y + radius).min(height - 1) - y.saturating_sub(radius) + 1;
        means(row, sums, radius, high as u32);
    }
}

fn add(sums: &mut [u32], row: &[u8]) {
    sums.iter_mut().zip(row).for_each(|(sum, pixel)| *sum += u32::from(*pixel));
}

fn take(sums: &mut [u32], row: &[u8]) {
    sums.iter_mut().zip(row).for_each(|(sum, pixel)| *sum -= u32::from(*pixel));
}

/// A row of means, from the sums of columns that are `high` pixels high.
fn means(row: &mut [u8], sums: &[u32], radius: usize, high: u32) {
    let width = row.len();
    let mut sum: u32 = sums.iter().take(radius).sum();
    for (x, pixel) in row.iter_mut().enumerate() {
        sum += sums.get(x + radius).unwrap_or(&0);
        if x > radius {
            sum -= sums[x - radius - 1];
        }
        let wide = (x + radius).min(width - 1) - x.saturating_sub(radius) + 1;
        *pixel = mean(sum, wide as u32 * high);
    }
}

/// Rounded to the nearest.
#[must_use]
pub fn mean(sum: u32, count: u32) -> u8 {
    ((sum + count / 2) / count) as u8
}

/// Black becomes white, and white black.
pub fn invert(image: &mut Grey) {
    image.pixels.iter_mut().for_each(|pixel| *pixel = 255 - *pixel);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grey_is_as_bright_as_its_colour_is_seen() {
        let colours = [[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255]];
        assert_eq!(colours.map(grey), [0, 255, 77, 149, 29]);
        let image = Colour { width: 5, height: 1, pixels: colours.concat() };
        let grey = grayscale(image);
        assert_eq!(grey.pixels, [0, 255, 77, 149, 29]);
        assert_eq!((grey.width, grey.height), (5, 1));
        assert!(grey.pixels.capacity() < 15, "the rest is given back");
    }

    #[test]
    fn what_is_above_the_level_is_black_and_the_rest_white() {
        let mut image = Grey { width: 4, height: 1, pixels: vec![0, 128, 129, 255] };
        threshold(&mut image, 128);
        assert_eq!(image.pixels, [255, 255, 0, 0]);
        invert(&mut image);
        assert_eq!(image.pixels, [0, 0, 255, 255]);
    }

    #[test]
    fn a_blur_is_the_mean_of_the_square_around() {
        let mut scratch = Scratch::default();
        for (width, height) in [(1, 1), (1, 9), (9, 1), (2, 3), (17, 13), (40, 9)] {
            for radius in [1, 2, 3, 8, 32] {
                let pixels: Vec<u8> = (0..width * height).map(|n| (n * n * 31) as u8).collect();
                let mut image = Grey { width, height, pixels: pixels.clone() };
                blur(&mut image, radius, &mut scratch);
                for y in 0..height {
                    for x in 0..width {
                        let ys = y.saturating_sub(radius)..=(y + radius).min(height - 1);
                        let xs = x.saturating_sub(radius)..=(x + radius).min(width - 1);
                        let square = ys.flat_map(|y| xs.clone().map(move |x| (x, y)));
                        let all: Vec<f64> =
                            square.map(|(x, y)| f64::from(pixels[y * width + x])).collect();
                        let mean = (all.iter().sum::<f64>() / all.len() as f64).round() as u8;
                        let at = format!("{x} {y} of {width} {height}, radius {radius}");
                        assert_eq!(image.pixels[y * width + x], mean, "{at}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_blur_looks_as_far_as_the_image_is_large() {
        assert_eq!([1, 80, 119, 120, 1_600, 9_000].map(radius), [1, 1, 1, 2, 20, 32]);
    }
}
