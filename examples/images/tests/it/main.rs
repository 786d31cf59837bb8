//! What `images` promises: the same results under every plan, short queues, and a command that says
//! what is wrong. `program`: the graph. `command`: the command as its user meets it.

#![expect(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

mod program;
mod command;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use images::draw::captcha;
use images::picture::encode_colour;

/// An empty folder of this name.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("images").join(name);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
        _ => fs::create_dir_all(&folder).unwrap(),
    }
    folder
}

/// The files of a folder and what is in them.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let read = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    files.map(read).collect()
}

/// A small captcha, as a PNG file.
fn png(number: u64) -> Vec<u8> {
    let mut file = Vec::new();
    encode_colour(&captcha(3, number, 280).0, &mut file).unwrap();
    file
}

/// A folder of images, two of which are none: the second and the fourth.
fn damaged(name: &str) -> PathBuf {
    let folder = folder(name);
    fs::write(folder.join("a.png"), png(0)).unwrap();
    fs::write(folder.join("b.png"), &png(1)[..900]).unwrap();
    fs::write(folder.join("c.jpeg"), jpeg(2)).unwrap();
    fs::write(folder.join("d.txt"), "no image").unwrap();
    fs::write(folder.join("e.jpg"), png(4)).unwrap(); // names do not matter
    fs::write(folder.join(".hidden"), "nor this").unwrap();
    fs::create_dir(folder.join("more")).unwrap();
    folder
}

fn jpeg(number: u64) -> Vec<u8> {
    let image = captcha(3, number, 280).0;
    let mut file = Vec::new();
    let (width, height) = (image.width as u32, image.height as u32);
    let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut file, 90);
    let colour = image::ExtendedColorType::Rgb8;
    image::ImageEncoder::write_image(encoder, &image.pixels, width, height, colour).unwrap();
    file
}
