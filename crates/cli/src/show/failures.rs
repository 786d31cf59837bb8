//! The file of `--failures`: a line of JSON for each event that fails for good, written while the
//! program runs. `replay` reads it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
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
    file: File,
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
        // At once, and with one call: a program that is killed leaves whole lines.
        match line.and_then(|line| state.file.write_all(line.as_bytes())) {
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
