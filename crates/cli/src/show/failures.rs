//! The file of `--failures`: a line of JSON for each event that fails for good, written while the
//! program runs. `replay` reads it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use comporta_runtime::{App, FailedEvent, Reason};
use serde::Serialize;
use serde_json::value::RawValue;

/// A line.
#[derive(Serialize)]
struct Line<'a> {
    stage: &'a str,
    /// `error`, `panic` or `flood` (it sent more than `emit_max` allows).
    kind: &'static str,
    reason: String,
    attempts: u32,
    /// Seconds since the program started.
    at_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a RawValue>,
    /// Why there is no event.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'a str>,
}

/// The file, and what went into it.
pub(super) struct FailureFile {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: Whole<File>,
    written: u64,
    /// Events that are not in the file though their failures are, by stage and reason.
    missing: BTreeMap<(String, String), u64>,
    /// Failures that could not be written, and why the first could not.
    unwritten: Option<(u64, String)>,
}

/// What is told of the file at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) path: String,
    pub(super) written: u64,
    /// By stage: how many of its failures are there without their events, and why.
    pub(super) missing: Vec<(String, String, u64)>,
}

impl FailureFile {
    /// Has the failed events of a program written to a file, after what is there.
    pub(super) fn open(path: &Path, app: &App) -> io::Result<Arc<Self>> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let unfinished = is_unfinished(path, &file);
        let file = Whole { out: file, unfinished };
        let (missing, unwritten) = (BTreeMap::new(), None);
        let state = Mutex::new(State { file, written: 0, missing, unwritten });
        let own = Arc::new(FailureFile { path: path.to_owned(), state });
        let shared = own.clone();
        app.on_failure(move |failed| shared.write(failed));
        Ok(own)
    }

    fn write(&self, failed: &FailedEvent<'_>) {
        let line = line(failed);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match line.and_then(|line| state.file.write(line)) {
            Ok(()) => state.written += 1,
            Err(error) => {
                let unwritten = state.unwritten.get_or_insert((0, error.to_string()));
                unwritten.0 += 1;
                return;
            }
        }
        if let Err(why) = &failed.event {
            *state.missing.entry((failed.stage.to_owned(), why.clone())).or_default() += 1;
        }
    }

    /// What went into the file, and what is wrong with it.
    pub(super) fn end(&self) -> (Kept, Option<String>) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path.display().to_string();
        let problem = state.unwritten.as_ref().map(|(n, why)| {
            format!("`{path}` cannot be written ({why}): {n} failed events are not in it")
        });
        let missing = state.missing.iter();
        let missing = missing.map(|((stage, why), n)| (stage.clone(), why.clone(), *n)).collect();
        (Kept { path, written: state.written, missing }, problem)
    }
}

/// Whether the last line of a file has no end, because whoever wrote it came to one first.
fn is_unfinished(path: &Path, file: &File) -> bool {
    if !file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0) {
        return false;
    }
    let last = || -> io::Result<u8> {
        let mut file = File::open(path)?;
        let mut byte = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut byte)?;
        Ok(byte[0])
    };
    last().map_or(true, |byte| byte != b'\n') // a blank line does no harm
}

/// Writes lines, of which none begins behind a part of another.
struct Whole<W> {
    out: W,
    /// The last line may have no end.
    unfinished: bool,
}

impl<W: Write> Whole<W> {
    fn write(&mut self, mut line: String) -> io::Result<()> {
        if self.unfinished {
            line.insert(0, '\n');
        }
        // At once, and with one call: a program that is killed leaves whole lines.
        let written = self.out.write_all(line.as_bytes());
        self.unfinished = written.is_err(); // a part of it may be there
        written
    }
}

/// A failed event as a line, with its end.
fn line(failed: &FailedEvent<'_>) -> io::Result<String> {
    let event = failed.event.as_deref().ok().map(serde_json::from_str::<&RawValue>).transpose()?;
    let kind = match failed.reason {
        Reason::Error(_) => "error",
        Reason::Panic(..) => "panic",
        Reason::Flood(_) => "flood",
        _ => "other",
    };
    let line = Line {
        stage: failed.stage,
        kind,
        reason: failed.reason.to_string(),
        attempts: failed.attempts,
        at_s: failed.at.as_nanos() as f64 / 1e9,
        event,
        missing: failed.event.as_ref().err().map(String::as_str),
    };
    Ok(serde_json::to_string(&line)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that is full after so many bytes, until it is not.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.room - self.bytes.len());
            self.bytes.extend_from_slice(&bytes[..n]);
            if n == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(n) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_begins_behind_no_part_of_another() {
        let mut file = Whole { out: Disk { bytes: Vec::new(), room: 7 }, unfinished: false };
        file.write("first\n".to_owned()).unwrap();
        assert!(file.write("second\n".to_owned()).is_err());
        file.out.room = 100;
        for line in ["third\n", "fourth\n"] {
            file.write(line.to_owned()).unwrap();
        }
        assert_eq!(String::from_utf8(file.out.bytes).unwrap(), "first\ns\nthird\nfourth\n");
    }
}
