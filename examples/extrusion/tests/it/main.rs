//! `program`: the graph, under every plan and any order of arrival. `command`: the commands as their
//! user meets them. `memory`: that it stays the same for any input.

#![expect(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]

mod program;
mod command;
mod memory;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// An empty folder of this name.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("extrusion").join(name);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
        _ => fs::create_dir_all(&folder).unwrap(),
    }
    folder
}

/// The files of a folder and what is in them.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read_to_string(entry.path()).unwrap())
    };
    entries.map(read).collect()
}
