//! What every entrant of `images` is given: captchas as PNG files in a folder, the queue bound, and a
//! folder to save into. Both lie where the system keeps temporary files; what was just written is most
//! likely still in memory when it is read.

use ::images::draw::{LARGEST, captcha};
use ::images::files;
use ::images::picture::{checksum, encode_colour};
use ::images::plain;
use ::images::treat::{LEVEL, Scratch};
use rayon::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Images a queue between two stages may hold, for every entrant that has queues: what a picture
/// costs is memory, and a stage needs no more than its next few.
pub(crate) fn queue(cores: usize) -> usize {
    (2 * cores).max(4)
}

/// The images, as files.
pub(crate) struct Images {
    pub(crate) files: Arc<[PathBuf]>,
    pub(crate) pixels: usize,
    pub(crate) bytes: usize,
    /// What a plain loop makes of them.
    expected: u64,
    _folder: Folder,
}

struct Drawn {
    path: PathBuf,
    bytes: usize,
    pixels: usize,
    hash: u64,
}

impl Images {
    /// So many, of the sizes the example mixes: 256 x 80 to 2560 x 1600, small ones more often.
    pub(crate) fn new(count: usize, width_max: usize, seed: u64) -> Images {
        let folder = Folder::new();
        let drawn = (0..count as u64).into_par_iter().map(|number| {
            let (image, _) = captcha(seed, number, width_max.min(LARGEST.0));
            let (mut file, mut treated) = (Vec::new(), Vec::new());
            encode_colour(&image, &mut file).expect("a captcha has as many pixels as it says");
            treat(&file, &mut Scratch::default(), &mut treated);
            let path = folder.0.join(files::name(number));
            files::write(&path, &file).expect("temporary files can be written");
            let hash = hash(number as usize, &treated);
            Drawn { path, bytes: file.len(), pixels: image.width * image.height, hash }
        });
        let drawn: Vec<Drawn> = drawn.collect();
        Images {
            pixels: drawn.iter().map(|drawn| drawn.pixels).sum(),
            bytes: drawn.iter().map(|drawn| drawn.bytes).sum(),
            expected: drawn.iter().fold(0, |sum, drawn| sum ^ drawn.hash),
            files: drawn.into_iter().map(|drawn| drawn.path).collect(),
            _folder: folder,
        }
    }

    /// Panics unless the folder holds what a plain loop makes.
    pub(crate) fn check(&self, name: &str, folder: &Folder) {
        let found: Vec<Option<Vec<u8>>> =
            (0..self.files.len()).map(|number| fs::read(folder.place(number)).ok()).collect();
        let missing = found.iter().filter(|file| file.is_none()).count();
        assert_eq!(missing, 0, "images of {name} that are not there");
        let hashes = found.iter().enumerate();
        let hashes = hashes.filter_map(|(number, file)| Some(hash(number, file.as_ref()?)));
        let all = hashes.fold(0, |sum, hash| sum ^ hash);
        assert_eq!(all, self.expected, "the images of {name} differ from a plain loop's");
    }
}

/// Reads a file in place of what `to` held.
pub(crate) fn read(path: &Path, to: &mut Vec<u8>) {
    files::read(path, to).expect("the file was written a moment ago");
}

/// All seven steps but the reading and the writing, one after the other.
pub(crate) fn treat(file: &[u8], scratch: &mut Scratch, to: &mut Vec<u8>) {
    plain::treat_all(file, LEVEL, scratch, to).expect("the file was drawn a moment ago");
}

/// A folder of temporary files, removed when it is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("comporta-images-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a temporary folder can be made");
        Folder(folder)
    }

    fn place(&self, number: usize) -> PathBuf {
        self.0.join(files::name(number as u64))
    }

    pub(crate) fn save(&self, number: usize, file: &[u8]) {
        files::write(&self.place(number), file).expect("temporary files can be written");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
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
        let folder = Folder::new();
        for (number, path) in images.files.iter().enumerate() {
            let (mut file, mut to) = (Vec::new(), Vec::new());
            read(path, &mut file);
            treat(&file, &mut Scratch::default(), &mut to);
            folder.save(1 - number, &to);
        }
        images.check("nobody", &folder);
    }

    #[test]
    #[should_panic(expected = "images of nobody that are not there")]
    fn results_that_are_not_there_are_noticed() {
        let images = Images::new(2, 256, 1);
        images.check("nobody", &Folder::new());
    }
}
