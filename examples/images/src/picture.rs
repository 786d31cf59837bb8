//! The pixels that travel from stage to stage, and how files become pixels and pixels files.
//! Pixels are moved, never copied: 2560 x 1600 of them are 12 MB in colour, 4 MB in grey.

use std::io::Cursor;

use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{DynamicImage, ExtendedColorType, ImageDecoder, ImageEncoder, ImageReader};
use serde::{Deserialize, Serialize};

/// The most pixels an image may have: what one event may cost.
pub const PIXELS_MAX: u64 = 50_000_000;

/// An image in colour: red, green and blue of each pixel, row by row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Colour {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Three bytes for each pixel.
    pub pixels: Vec<u8>,
}

/// An image in shades of grey, or in black (0) and white (255), row by row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grey {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// A byte for each pixel.
    pub pixels: Vec<u8>,
}

/// Why a file is no image for this program.
#[derive(Debug, thiserror::Error)]
pub enum BadImage {
    /// It is of another kind.
    #[error("neither PNG nor JPEG")]
    Unknown,
    /// It would take too much memory.
    #[error("{width} x {height} pixels are more than {} million", PIXELS_MAX / 1_000_000)]
    TooLarge {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// It is damaged, or of a kind within the kind that is not known.
    #[error("it cannot be decoded")]
    Damaged(#[from] image::ImageError),
}

/// The first of the seven steps: makes pixels of what is in a PNG or JPEG file. What shines through
/// is laid on white.
///
/// # Errors
/// When it is no image, damaged, or too large.
pub fn decode(file: &[u8]) -> Result<Colour, BadImage> {
    let reader = ImageReader::new(Cursor::new(file)).with_guessed_format();
    let reader = reader.map_err(|error| BadImage::Damaged(error.into()))?;
    if !reader.format().is_some_and(|format| format.reading_enabled()) {
        return Err(BadImage::Unknown);
    }
    let decoder = reader.into_decoder()?;
    let (width, height) = decoder.dimensions(); // known before there is room for any pixel
    if u64::from(width) * u64::from(height) > PIXELS_MAX {
        return Err(BadImage::TooLarge { width, height });
    }
    let image = DynamicImage::from_decoder(decoder)?;
    let pixels = match image.color().has_alpha() {
        true => on_white(image.into_rgba8().into_raw()),
        false => image.into_rgb8().into_raw(), // a mere move, if it is that already
    };
    Ok(Colour { width: width as usize, height: height as usize, pixels })
}

/// Red, green, blue and opacity become what is seen before a white wall; in place.
fn on_white(mut pixels: Vec<u8>) -> Vec<u8> {
    let count = pixels.len() / 4;
    for n in 0..count {
        let opacity = u32::from(pixels[4 * n + 3]);
        for c in 0..3 {
            let seen = u32::from(pixels[4 * n + c]) * opacity + 255 * (255 - opacity);
            pixels[3 * n + c] = ((seen + 127) / 255) as u8; // at most 255
        }
    }
    pixels.truncate(3 * count);
    pixels
}

/// The last of the seven steps: makes a PNG file of pixels, in place of what `file` held.
///
/// # Errors
/// Pixels that are not `width` by `height`.
pub fn encode(image: &Grey, file: &mut Vec<u8>) -> Result<(), image::ImageError> {
    png(image.width, image.height, &image.pixels, ExtendedColorType::L8, file)
}

/// The same in colour, for images that are made up.
///
/// # Errors
/// Pixels that are not `width` by `height`.
pub fn encode_colour(image: &Colour, file: &mut Vec<u8>) -> Result<(), image::ImageError> {
    png(image.width, image.height, &image.pixels, ExtendedColorType::Rgb8, file)
}

fn png(
    width: usize,
    height: usize,
    pixels: &[u8],
    colour: ExtendedColorType,
    file: &mut Vec<u8>,
) -> Result<(), image::ImageError> {
    file.clear();
    // Few colours in large areas: the row above tells most of it, and little effort finds that.
    let encoder = PngEncoder::new_with_quality(file, CompressionType::Fast, FilterType::Up);
    encoder.write_image(pixels, width as u32, height as u32, colour)
}

/// A number for pixels (FNV-1a), to tell whether they have changed since it was written down.
#[must_use]
pub fn checksum(pixels: &[u8]) -> u64 {
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    pixels.iter().fold(0xCBF2_9CE4_8422_2325, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let pixels: Vec<u8> = (0..3 * 5 * 4).map(|n| (n * 37) as u8).collect();
        let image = Colour { width: 5, height: 4, pixels };
        let mut file = b"what was there".to_vec();
        encode_colour(&image, &mut file).unwrap();
        assert_eq!(decode(&file).unwrap(), image);

        let grey = Grey { width: 2, height: 2, pixels: vec![0, 255, 255, 0] };
        encode(&grey, &mut file).unwrap();
        let back = decode(&file).unwrap();
        assert_eq!(back.pixels, [0, 0, 0, 255, 255, 255, 255, 255, 255, 0, 0, 0]);
    }

    #[test]
    fn what_shines_through_is_laid_on_white() {
        let mut file = Vec::new();
        let pixels = [0, 0, 0, 0, 10, 20, 30, 255, 0, 100, 200, 51];
        png(3, 1, &pixels, ExtendedColorType::Rgba8, &mut file).unwrap();
        let seen = decode(&file).unwrap();
        assert_eq!(seen.pixels, [255, 255, 255, 10, 20, 30, 204, 224, 244]);
    }

    #[test]
    fn what_is_no_image_is_refused_with_its_reason() {
        let image = Colour { width: 40, height: 40, pixels: vec![7; 40 * 40 * 3] };
        let mut whole = Vec::new();
        encode_colour(&image, &mut whole).unwrap();
        let cut = &whole[..whole.len() / 2];
        // A head that claims 60,000 x 60,000 pixels, and its checksum.
        let mut vast = whole.clone();
        vast[16..24].copy_from_slice(&[0, 0, 0xEA, 0x60, 0, 0, 0xEA, 0x60]);
        let sum = crc32(&vast[12..29]).to_be_bytes();
        vast[29..33].copy_from_slice(&sum);
        for (file, reason) in [
            (&b""[..], "neither PNG nor JPEG"),
            (b"GIF89a", "neither PNG nor JPEG"),
            (b"\x89PNG\r\n\x1a\n", "it cannot be decoded"),
            (cut, "it cannot be decoded"),
            (&vast, "60000 x 60000 pixels are more than 50 million"),
        ] {
            let error = decode(file).unwrap_err().to_string();
            assert_eq!(error, reason);
        }
    }

    fn crc32(bytes: &[u8]) -> u32 {
        let step = |sum: u32, _| if sum & 1 == 1 { 0xEDB8_8320 ^ (sum >> 1) } else { sum >> 1 };
        !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
    }
}
