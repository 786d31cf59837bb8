//! `run --replay FILE`: the failed events that `run --failures FILE` has written are fed back to their
//! stages, in place of what sources bring. The file is read twice: once to find every mistake before
//! anything runs, and then as the stages have room.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use comporta_model::error::{Error, Result};
use comporta_runtime::App;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::counted;
use crate::show::units::events;

/// Mistakes that are told; the rest is counted.
const MISTAKES_MAX: usize = 20;

/// What is read of a line; see `show/failures.rs`.
#[derive(Deserialize)]
struct Line {
    stage: String,
    event: Option<Box<RawValue>>,
    missing: Option<String>,
}

impl Line {
    fn read(text: &str) -> Result<Self> {
        Ok(serde_json::from_str(text)?)
    }

    /// The event. One that is `null` is an event, too, unless the line says why there is none.
    fn event(&self) -> Option<&str> {
        match (&self.event, &self.missing) {
            (Some(event), _) => Some(event.get()),
            (None, None) => Some("null"),
            (None, Some(_)) => None,
        }
    }
}

/// Has the events of a file fed back to the stages of a program. Returns what to say of it.
///
/// # Errors
/// The mistakes of the file, a line each.
pub(crate) fn prepare(app: &App, path: &Path) -> std::result::Result<String, Vec<String>> {
    let mut found = Found::default();
    let lines = lines(path).map_err(|error| vec![error.to_string()])?;
    for (number, line) in (1_u64..).zip(lines) {
        let mistake = line.and_then(|line| found.see(app, &line)).err();
        if let Some(mistake) = mistake {
            found.mistakes.push(format!("{}:{number}: {mistake}", path.display()));
        }
    }
    if !found.mistakes.is_empty() {
        let more = found.mistakes.len().saturating_sub(MISTAKES_MAX);
        found.mistakes.truncate(MISTAKES_MAX);
        if more > 0 {
            found.mistakes.push(format!("and {more} more"));
        }
        return Err(found.mistakes);
    }
    if found.stages.is_empty() {
        return Err(vec![format!("{}: there is no event to replay", path.display())]);
    }
    for stage in found.stages.keys() {
        let (path, own) = (path.to_owned(), stage.clone());
        let fed = app.replay(stage, move || of_stage(path, own));
        fed.map_err(|error| vec![error.to_string()])?;
    }
    Ok(found.told(path))
}

/// What is in a file.
#[derive(Default)]
struct Found {
    stages: BTreeMap<String, u64>,
    /// Lines without an event.
    without: usize,
    mistakes: Vec<String>,
}

impl Found {
    fn see(&mut self, app: &App, text: &str) -> Result<()> {
        let line = Line::read(text)?;
        let Some(event) = line.event() else {
            self.without += 1;
            return Ok(());
        };
        app.check_event(&line.stage, event)?;
        *self.stages.entry(line.stage).or_default() += 1;
        Ok(())
    }

    fn told(&self, path: &Path) -> String {
        let fed: Vec<_> =
            self.stages.iter().map(|(stage, n)| format!("{} to `{stage}`", events(*n))).collect();
        let without = match self.without {
            0 => String::new(),
            n => format!("; {} without an event", counted(n, "line")),
        };
        let path = path.display();
        let fed = fed.join(", ");
        format!("replay of {path}: {fed}{without}\n(the sources of the program are not opened)")
    }
}

/// The lines of the file that are not empty.
fn lines(path: &Path) -> Result<impl Iterator<Item = Result<String>> + use<>> {
    let named = |error| Error::msg(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(named)?;
    let lines = BufReader::new(file).lines().map(|line| Ok(line?));
    Ok(lines
        .filter(|line: &Result<String>| line.as_ref().map_or(true, |line| !line.trim().is_empty())))
}

/// The events of one stage.
fn of_stage(
    path: PathBuf,
    stage: String,
) -> Result<impl Iterator<Item = Result<String>> + Send + use<>> {
    let events = lines(&path)?.filter_map(move |line| {
        let read = line.and_then(|line| Line::read(&line));
        match read {
            Ok(line) if line.stage == stage => line.event().map(|event| Ok(event.to_owned())),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    });
    Ok(events)
}
