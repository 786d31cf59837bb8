//! Writes windows into segment files. Each instance has segments of its own, so that none waits
//! for another: `segment-<instance>-<number>.log`. A segment is written under another name
//! (`.part`), and gets its own only when all of it is on the disk: what is called a segment is
//! whole, whatever crashed.
//!
//! Bounds: a segment is closed when it has [`SEGMENT_BYTES`] or more; an instance keeps its last
//! `keep` segments and removes older ones.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use comporta::{Cx, Error, Ev, Out, Result, Stage};
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Shared};
use crate::show::Said;

/// A segment is closed when it is this large.
pub const SEGMENT_BYTES: u64 = 32 << 20;

/// What one instance has stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Lines.
    pub lines: u64,
    /// Bytes.
    pub bytes: u64,
    /// Segments written.
    pub segments: u64,
    /// Segments removed again, to make room.
    pub removed: u64,
    /// What first kept a window from being stored.
    pub fault: Option<String>,
}

/// The stage: takes windows; says what it stored after the last.
#[derive(Debug)]
pub struct Persist {
    folder: PathBuf,
    keep: usize,
    instance: usize,
    open: Option<Segment>,
    kept: VecDeque<PathBuf>,
    stored: Stored,
}

#[derive(Debug)]
struct Segment {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl Clone for Persist {
    /// Another instance, with segments of its own.
    fn clone(&self) -> Self {
        Persist::new(self.folder.clone(), self.keep)
    }
}

impl Persist {
    /// Writes into `folder`, which is made if need be; each instance keeps `keep` segments.
    #[must_use]
    pub fn new(folder: PathBuf, keep: usize) -> Self {
        Persist {
            folder,
            keep: keep.max(1),
            instance: 0,
            open: None,
            kept: VecDeque::new(),
            stored: Stored::default(),
        }
    }

    /// The instance of this number: its segments are called after it.
    #[must_use]
    pub fn numbered(self, instance: usize) -> Self {
        Persist { instance, ..self }
    }

    /// Writes a window.
    ///
    /// # Errors
    /// When it cannot be written: then none of it is.
    pub fn store(&mut self, batch: &Batch) -> io::Result<()> {
        self.write(&batch.text)?;
        self.stored.lines += batch.lines;
        self.stored.bytes += batch.text.len() as u64;
        Ok(())
    }

    /// Closes the last segment; says what was stored.
    ///
    /// # Errors
    /// When the last segment cannot be brought to the disk.
    pub fn finished(&mut self) -> io::Result<Stored> {
        self.close()?;
        Ok(self.stored.clone())
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        let segment = match &mut self.open {
            Some(segment) => segment,
            none => none.insert(Segment::open(
                self.folder
                    .join(format!("segment-{}-{:05}.log", self.instance, self.stored.segments)),
            )?),
        };
        if let Err(error) = segment.file.write_all(text.as_bytes()) {
            segment.file.set_len(segment.bytes)?; // half a window is no window
            return Err(error);
        }
        segment.bytes += text.len() as u64;
        if segment.bytes >= SEGMENT_BYTES { self.close() } else { Ok(()) }
    }

    fn close(&mut self) -> io::Result<()> {
        let Some(segment) = self.open.take() else { return Ok(()) };
        segment.file.sync_data()?;
        fs::rename(part(&segment.path), &segment.path)?;
        self.stored.segments += 1;
        self.kept.push_back(segment.path);
        if self.kept.len() > self.keep
            && let Some(oldest) = self.kept.pop_front()
        {
            fs::remove_file(oldest)?;
            self.stored.removed += 1;
        }
        Ok(())
    }

    fn named(&self, error: io::Error) -> Error {
        Error::msg(format!("{}: {error}", self.folder.display()))
    }
}

impl Segment {
    fn open(path: PathBuf) -> io::Result<Self> {
        if path.exists() {
            let name = path.file_name().unwrap_or_default().display();
            let there = format!("{name} is there already, from another run");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, there));
        }
        // Appending, so that what is cut off after a failed write is written over by the next.
        let file = File::options().append(true).create_new(true).open(part(&path))?;
        Ok(Segment { file, path, bytes: 0 })
    }
}

/// A segment that lies in `folder` from another run, if there is one.
#[must_use]
pub fn left_behind(folder: &Path) -> Option<String> {
    let names = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name());
    let mut names = names.map(|name| name.to_string_lossy().into_owned());
    names.find(|name| name.starts_with("segment-"))
}

fn part(path: &Path) -> PathBuf {
    path.with_extension("log.part")
}

impl Stage for Persist {
    type In = Shared;
    type Ports = Out<Said>;

    fn init(&mut self, cx: &Cx) -> Result {
        self.instance = cx.instance();
        fs::create_dir_all(&self.folder).map_err(|error| self.named(error))?;
        Ok(())
    }

    fn handle(&mut self, batch: Ev<'_, Shared>, _: &mut Out<Said>, _: &Cx) -> Result {
        self.store(&batch).map_err(|error| {
            let error = self.named(error);
            self.stored.fault.get_or_insert_with(|| error.to_string());
            error
        })
    }

    fn finish(&mut self, out: &mut Out<Said>, _: &Cx) -> Result {
        let stored = self.finished().map_err(|error| self.named(error))?;
        out.send(Said::Stored(stored));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use comporta::testing::StageTester;
    use std::sync::Arc;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("weblog-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn batch(text: &str, times: usize) -> Shared {
        let mut batch = Batch::default();
        batch.lines = times as u64;
        batch.text = text.repeat(times);
        Arc::new(batch)
    }

    #[test]
    fn a_segment_has_its_name_only_when_it_is_whole() {
        let folder = folder("whole");
        let mut persist = StageTester::new(Persist::new(folder.clone(), 8));
        persist.send(batch("a line\n", 2)).unwrap();
        assert_eq!(names(&folder), ["segment-0-00000.log.part"]);
        persist.finish().unwrap();
        assert_eq!(names(&folder), ["segment-0-00000.log"]);
        let written = fs::read_to_string(folder.join("segment-0-00000.log")).unwrap();
        assert_eq!(written, "a line\na line\n");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_the_last_segments_are_kept() {
        let folder = folder("kept");
        let mut persist = StageTester::new(Persist::new(folder.clone(), 2));
        let large = batch("x".repeat(1 << 20).as_str(), SEGMENT_BYTES as usize >> 20);
        (0..3).for_each(|_| persist.send(large.clone()).unwrap());
        assert_eq!(names(&folder), ["segment-0-00001.log", "segment-0-00002.log"]);
        persist.finish().unwrap();
        let said: Vec<_> = persist.out.drain().collect();
        assert!(matches!(said[..], [Said::Stored(Stored { segments: 3, removed: 1, .. })]));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_is_gone_fails_with_its_name() {
        let folder = folder("gone");
        let mut persist = StageTester::new(Persist::new(folder.clone(), 2));
        fs::remove_dir_all(&folder).unwrap();
        let failed = persist.send(batch("a\n", 1)).unwrap_err();
        assert!(format!("{failed:?}").contains("weblog-gone"), "{failed:?}");
        persist.finish().unwrap();
        let said: Vec<_> = persist.out.drain().collect();
        assert!(matches!(&said[..], [Said::Stored(Stored { lines: 0, fault: Some(_), .. })]));
    }
}
