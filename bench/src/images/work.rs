//! What every entrant of `images` is given: captchas as the bytes of PNG files, the queue bound, and
//! a folder to save into. All of it lies in memory: a disk would be measured before anything else.

use ::images::draw::{LARGEST, captcha};
use ::images::picture::{checksum, encode_colour};
use ::images::plain;
use ::images::treat::{LEVEL, Scratch};
use rayon::prelude::*;
use std::sync::{Arc, OnceLock};

/// Images a queue between two stages may hold, for every entrant that has queues: what a picture
/// costs is memory, and a stage needs no more than its next few.
pub(crate) fn queue(cores: usize) -> usize {
    (2 * cores).max(4)
}

/// The images, as files.
pub(crate) struct Images {
    pub(crate) files: Arc<[Vec<u8>]>,
    pub(crate) pixels: usize,
    /// What a plain loop makes of them.
    expected: u64,
}

impl Images {
    /// So many, of the sizes the example mixes: 256 x 80 to 2560 x 1600, small ones more often.
    pub(crate) fn new(count: usize, width_max: usize, seed: u64) -> Images {
        let drawn = (0..count as u64).into_par_iter().map(|number| {
            let (image, _) = captcha(seed, number, width_max.min(LARGEST.0));
            let (mut file, mut treated) = (Vec::new(), Vec::new());
            encode_colour(&image, &mut file).expect("a captcha has as many pixels as it says");
            treat(&file, &mut Scratch::default(), &mut treated);
            (file, hash(number as usize, &treated), image.width * image.height)
        });
        let drawn: Vec<(Vec<u8>, u64, usize)> = drawn.collect();
        let expected = drawn.iter().fold(0, |sum, (_, hash, _)| sum ^ hash);
        let pixels = drawn.iter().map(|(_, _, pixels)| pixels).sum();
        Images { files: drawn.into_iter().map(|(file, ..)| file).collect(), pixels, expected }
    }

    /// Panics unless the folder holds what a plain loop makes.
    pub(crate) fn check(&self, name: &str, folder: &Folder) {
        assert_eq!(folder.0.len(), self.files.len());
        let missing = folder.0.iter().filter(|place| place.get().is_none()).count();
        assert_eq!(missing, 0, "images of {name} that are not there");
        assert_eq!(folder.hash(), self.expected, "the images of {name} differ from a plain loop's");
    }
}

/// All seven steps, one after the other.
pub(crate) fn treat(file: &[u8], scratch: &mut Scratch, to: &mut Vec<u8>) {
    plain::treat_all(file, LEVEL, scratch, to).expect("the file was drawn a moment ago");
}

/// Where results are saved: a place for each, as files have names.
pub(crate) struct Folder(Vec<OnceLock<Vec<u8>>>);

impl Folder {
    pub(crate) fn of(images: &Images) -> Folder {
        Folder(images.files.iter().map(|_| OnceLock::new()).collect())
    }

    pub(crate) fn save(&self, number: usize, file: Vec<u8>) {
        assert!(self.0[number].set(file).is_ok(), "image {number} is saved twice");
    }

    fn hash(&self) -> u64 {
        let files = self.0.iter().enumerate();
        let hashes = files.filter_map(|(number, place)| Some(hash(number, place.get()?)));
        hashes.fold(0, |sum, hash| sum ^ hash)
    }
}

/// Of one result: its bytes and its number. The hash of all is these put together, in any order.
fn hash(number: usize, file: &[u8]) -> u64 {
    checksum(file).wrapping_mul(2 * number as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "differ from a plain loop's")]
    fn results_that_change_places_are_noticed() {
        let images = Images::new(2, 256, 1);
        let folder = Folder::of(&images);
        for (number, file) in images.files.iter().enumerate() {
            let mut to = Vec::new();
            treat(file, &mut Scratch::default(), &mut to);
            folder.save(1 - number, to);
        }
        images.check("nobody", &folder);
    }

    #[test]
    #[should_panic(expected = "images of nobody that are not there")]
    fn results_that_are_not_there_are_noticed() {
        let images = Images::new(2, 256, 1);
        images.check("nobody", &Folder::of(&images));
    }
}
