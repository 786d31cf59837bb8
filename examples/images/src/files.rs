//! Finds, reads and writes files: the stages `draw`, `load` and `save`, which are the ones with
//! effects outside of the program. A file is written under another name (`.part`) and then renamed:
//! nobody ever sees half an image.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use comporta::{Cx, Error, Ev, Out, Result, Stage};
use serde::{Deserialize, Serialize};

use crate::draw::{EDITION, captcha};
use crate::picture::{self, Colour, Grey};

/// An image that is to be treated, or that has been.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its place among all: what the result is called after.
    pub number: u64,
    /// The file it is in.
    pub path: PathBuf,
    /// Whether it had to be drawn first.
    pub drawn: bool,
    /// How many pixels of it have been saved; nothing until then.
    pub saved: Option<u64>,
}

impl Job {
    /// One that is still to be done.
    #[must_use]
    pub fn new(number: u64, path: PathBuf) -> Self {
        Job { number, path, drawn: false, saved: None }
    }
}

/// An image on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item<P> {
    /// Which one.
    pub job: Job,
    /// Its pixels.
    pub image: P,
}

/// The files of a folder, by name; not those of folders inside of it, nor hidden ones.
///
/// # Errors
/// When the folder cannot be read, or holds no file.
pub fn find(folder: &Path) -> Result<Vec<PathBuf>> {
    let named = |error: io::Error| Error::msg(format!("{}: {error}", folder.display()));
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(named)? {
        let path = entry.map_err(named)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
        if path.is_file() && !hidden {
            found.push(path);
        }
    }
    if found.is_empty() {
        return Err(Error::msg(format!("{}: there are no files in it", folder.display())));
    }
    found.sort();
    Ok(found)
}

/// The name of a result.
#[must_use]
pub fn name(number: u64) -> String {
    format!("image-{number:06}.png")
}

/// The name of an image that is made up.
#[must_use]
pub fn captcha_name(seed: u64, number: u64, width_max: usize) -> String {
    format!("captcha-{EDITION}-{seed}-{width_max}-{number:06}.png")
}

/// What is in a file, in place of what `file` held.
///
/// # Errors
/// Those of the system, with the file's name.
pub fn read(path: &Path, file: &mut Vec<u8>) -> Result {
    file.clear();
    let read = File::open(path).and_then(|mut from| from.read_to_end(file));
    read.map(|_| ()).map_err(|error| Error::msg(format!("{}: {error}", path.display())))
}

/// Writes a file that is there whole, or not at all. (It does not wait for the disk: what a power
/// cut takes can be made again.)
///
/// # Errors
/// Those of the system, with the file's name.
pub fn write(path: &Path, file: &[u8]) -> Result {
    let part = path.with_extension("part");
    let written = fs::write(&part, file).and_then(|()| fs::rename(&part, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&part); // there may be none
        Error::msg(format!("{}: {error}", path.display()))
    })
}

fn make(folder: &Path) -> Result {
    let made = fs::create_dir_all(folder);
    made.map_err(|error| Error::msg(format!("{}: {error}", folder.display())))
}

/// The stage `draw`: makes up the image of a job, unless an earlier run has.
#[derive(Clone, Debug)]
pub struct Draw {
    /// Where images go.
    pub folder: PathBuf,
    /// What they are made up from.
    pub seed: u64,
    /// How wide they may be.
    pub width_max: usize,
}

impl Stage for Draw {
    type In = Job;
    type Ports = Out<Job>;

    fn init(&mut self, _: &Cx) -> Result {
        make(&self.folder)
    }

    fn handle(&mut self, job: Ev<'_, Job>, out: &mut Out<Job>, _: &Cx) -> Result {
        let drawn = !job.path.exists();
        if drawn {
            let (image, _) = captcha(self.seed, job.number, self.width_max);
            let mut file = Vec::new();
            picture::encode_colour(&image, &mut file)?;
            write(&job.path, &file)?;
        }
        out.send(Job { drawn, ..job.take() });
        Ok(())
    }
}

/// The stage `load`.
#[derive(Debug, Default)]
pub struct Load {
    /// What is in the file; its memory is used again.
    file: Vec<u8>,
}

impl Clone for Load {
    fn clone(&self) -> Self {
        Load::default()
    }
}

impl Stage for Load {
    type In = Job;
    type Ports = Out<Item<Colour>>;

    fn handle(&mut self, job: Ev<'_, Job>, out: &mut Out<Item<Colour>>, _: &Cx) -> Result {
        read(&job.path, &mut self.file)?;
        let image = picture::decode(&self.file).map_err(|error| {
            Error::msg(format!("{}: {}", job.path.display(), Error::from(error)))
        })?;
        out.send(Item { job: job.take(), image });
        Ok(())
    }
}

/// The stage `save`; says of each image that it is there.
#[derive(Debug)]
pub struct Save {
    folder: PathBuf,
    /// What goes into the file; its memory is used again.
    file: Vec<u8>,
}

impl Save {
    /// Saves into this folder, which is made if need be.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Save { folder, file: Vec::new() }
    }
}

impl Clone for Save {
    fn clone(&self) -> Self {
        Save::new(self.folder.clone())
    }
}

impl Stage for Save {
    type In = Item<Grey>;
    type Ports = Out<Job>;

    fn init(&mut self, _: &Cx) -> Result {
        make(&self.folder)
    }

    fn handle(&mut self, item: Ev<'_, Item<Grey>>, out: &mut Out<Job>, _: &Cx) -> Result {
        picture::encode(&item.image, &mut self.file)?;
        write(&self.folder.join(name(item.job.number)), &self.file)?;
        let Item { job, image } = item.take();
        out.send(Job { saved: Some(image.pixels.len() as u64), ..job });
        Ok(())
    }
}
