//! `run --replay FILE`: the failed events that `run --failures FILE` has written are fed back to their
//! stages, in place of what sources bring. The file is read twice: once to find every mistake before
//! anything runs, and then as the stages have room.
//! A line that breaks off, as of a run that was killed or whose disk was full, is skipped with a warning: it is the
//! beginning of a line of JSON and no more. Any other line that cannot be read is a mistake.

use std::collections::BTreeMap;
use std::path::Path;

use comporta_model::error::Result;
use comporta_plan::escaped;
use comporta_runtime::App;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::counted;
use crate::recorded::{Numbered, Recorded};
use crate::show::table::clip;
use crate::show::units::events;

/// Mistakes that are told, and lines that are named in warnings; the rest is counted.
const MISTAKES_MAX: usize = 20;

/// The most columns of a mistake: it may quote all of an event.
const MISTAKE_MAX: usize = 200;

/// What is read of a line; see `show/failures.rs`.
#[derive(Deserialize)]
struct Line {
    stage: String,
    event: Option<Box<RawValue>>,
    missing: Option<String>,
}

/// What a line is found to be.
enum Read {
    Line(Line),
    Blank,
    /// It breaks off.
    Cut,
}

impl Line {
    fn read(bytes: &[u8]) -> Result<Read> {
        if bytes.trim_ascii().is_empty() {
            return Ok(Read::Blank);
        }
        match serde_json::from_slice(bytes) {
            Ok(line) => Ok(Read::Line(line)),
            Err(error) if error.is_eof() => Ok(Read::Cut),
            Err(error) => Err(error.into()),
        }
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

/// What to say of events that are replayed.
pub(crate) struct Told {
    pub(crate) summary: String,
    /// What is not replayed, a line each.
    pub(crate) warnings: Vec<String>,
}

/// Has the events of a file fed back to the stages of a program.
///
/// # Errors
/// The mistakes of the file, a line each.
pub(crate) fn prepare(app: &App, path: &Path) -> std::result::Result<Told, Vec<String>> {
    let recorded = Recorded::open(path).map_err(|error| vec![error.to_string()])?;
    let name = &recorded.name;
    let mut found = Found::default();
    for line in recorded.lines().map_err(|error| vec![error.to_string()])? {
        match line {
            Ok(line) => found.see(app, name, &line),
            Err(error) => found.mistakes.push(error.to_string()),
        }
    }
    if !found.mistakes.is_empty() {
        return Err(first_few(found.mistakes));
    }
    let warnings = first_few(found.cut.iter().map(|number| cut(name, *number)).collect());
    if found.stages.is_empty() {
        let none = format!("{name}: there is no event to replay");
        return Err([warnings, vec![none]].concat());
    }
    for stage in found.stages.keys() {
        let (recorded, own) = (recorded.clone(), stage.clone());
        let fed = app.replay(stage, move || of_stage(&recorded, own));
        fed.map_err(|error| vec![error.to_string()])?;
    }
    Ok(Told { summary: found.told(name), warnings })
}

fn cut(name: &str, number: u64) -> String {
    format!("{name}:{number}: the line breaks off, and is skipped")
}

/// As many as are told, and how many more there are.
fn first_few(mut all: Vec<String>) -> Vec<String> {
    let more = all.len().saturating_sub(MISTAKES_MAX);
    all.truncate(MISTAKES_MAX);
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    all
}

/// A message of serde_json without its place: it counts within one line, or within the event in it.
fn without_place(message: &str) -> &str {
    let Some((text, place)) = message.rsplit_once(" at line ") else { return message };
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match place.split_once(" column ") {
        Some((line, column)) if number(line) && number(column) => text,
        _ => message,
    }
}

/// What is in a file.
#[derive(Default)]
struct Found {
    stages: BTreeMap<String, u64>,
    /// Lines without an event.
    without: usize,
    /// Lines that break off, by number.
    cut: Vec<u64>,
    mistakes: Vec<String>,
}

impl Found {
    fn see(&mut self, app: &App, name: &str, line: &Numbered) {
        let number = line.number;
        if let Err(error) = self.try_see(app, line) {
            let mistake = error.to_string();
            let mistake = clip(&escaped(without_place(&mistake)), MISTAKE_MAX);
            self.mistakes.push(format!("{name}:{number}: {mistake}"));
        }
    }

    fn try_see(&mut self, app: &App, line: &Numbered) -> Result<()> {
        let line = match Line::read(&line.bytes)? {
            Read::Line(line) => line,
            Read::Blank => return Ok(()),
            Read::Cut => {
                self.cut.push(line.number);
                return Ok(());
            }
        };
        let Some(event) = line.event() else {
            self.without += 1;
            return Ok(());
        };
        app.check_event(&line.stage, event)?;
        *self.stages.entry(line.stage).or_default() += 1;
        Ok(())
    }

    fn told(&self, name: &str) -> String {
        let fed: Vec<_> =
            self.stages.iter().map(|(stage, n)| format!("{} to `{stage}`", events(*n))).collect();
        let lines = |n: usize, what| match n {
            0 => String::new(),
            n => format!("; {} {what}", counted(n, "line")),
        };
        let without = lines(self.without, "without an event");
        let cut = lines(self.cut.len(), "skipped");
        let fed = fed.join(", ");
        format!(
            "replay of {name}: {fed}{without}{cut}\n(the sources of the program are not opened)"
        )
    }
}

/// The events of one stage.
fn of_stage(
    recorded: &Recorded,
    stage: String,
) -> Result<impl Iterator<Item = Result<String>> + Send + use<>> {
    let events = recorded.lines()?.filter_map(move |line| {
        match line.and_then(|line| Line::read(&line.bytes)) {
            Ok(Read::Line(line)) if line.stage == stage => {
                line.event().map(|event| Ok(event.to_owned()))
            }
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    });
    Ok(events)
}
