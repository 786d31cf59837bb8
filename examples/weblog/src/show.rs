//! What is found, for people: each alarm when it is raised, a digest at the end. If asked to, it
//! then compares all of it with what one plain loop finds.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use comporta::{Cx, Error, Ev, Result, Stage};
use serde::{Deserialize, Serialize};

use crate::alarm::{Alarm, Suspicion, TIMES, Watched};
use crate::correlate::{Hunt, Intent, Report, Session};
use crate::parse::date;
use crate::persist::Stored;
use crate::plain::{self, Found};
use crate::program::Input;

/// What the stages before have to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// A client should be looked at.
    Alarm(Alarm),
    /// What was watched.
    Watched(Watched),
    /// Sums, sessions and scans.
    Report(Report),
    /// What an instance has stored.
    Stored(Stored),
}

/// Everything that was said, put together.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// What was found.
    pub found: Found,
    /// What was stored, by all instances.
    pub stored: Stored,
}

impl Gathered {
    /// Adds something.
    pub fn add(&mut self, said: Said) {
        match said {
            Said::Alarm(alarm) => self.found.alarms.push(alarm),
            Said::Watched(watched) => self.found.watched = watched,
            Said::Report(report) => self.found.report = report,
            Said::Stored(Stored { lines, bytes, segments, removed, fault }) => {
                self.found.stored_bytes += bytes;
                self.stored.lines += lines;
                self.stored.bytes += bytes;
                self.stored.segments += segments;
                self.stored.removed += removed;
                self.stored.fault = self.stored.fault.take().or(fault);
            }
        }
    }

    /// What differs from what was to be found; nothing if all is the same.
    #[must_use]
    pub fn differs_from(&self, plain: &Found) -> Option<&'static str> {
        let Found { report, alarms, watched, stored_bytes } = &self.found;
        let parts = [
            (report.totals == plain.report.totals, "the totals"),
            (report.fingerprint == plain.report.fingerprint, "the sessions"),
            (report.hunts == plain.report.hunts, "the scans"),
            (*report == plain.report, "the report"),
            (in_any_order(alarms) == in_any_order(&plain.alarms), "the alarms"),
            (*watched == plain.watched, "the suspicious requests"),
            (*stored_bytes == plain.stored_bytes, "the bytes stored"),
        ];
        parts.into_iter().find(|(same, _)| !same).map(|(_, what)| what)
    }
}

/// Alarms, as they can be compared: those of several logs come in any order.
fn in_any_order(alarms: &[Alarm]) -> Vec<&Alarm> {
    let mut alarms: Vec<&Alarm> = alarms.iter().collect();
    alarms.sort_by(|a, b| {
        (&a.client, a.why, a.span, &a.lines).cmp(&(&b.client, b.why, b.span, &b.lines))
    });
    alarms
}

/// The stage: takes what is said, prints it.
#[derive(Clone, Debug)]
pub struct Show {
    folder: PathBuf,
    /// The folder is removed at the end.
    temporary: bool,
    /// What to read again, in windows of what size.
    verify: Option<(Vec<Input>, usize)>,
    gathered: Gathered,
}

impl Show {
    /// Says that segments are in `folder`; compares with what a plain loop finds in `verify`.
    #[must_use]
    pub fn new(folder: PathBuf, verify: Option<(Vec<Input>, usize)>) -> Self {
        Show { folder, temporary: false, verify, gathered: Gathered::default() }
    }

    /// Removes the folder at the end.
    #[must_use]
    pub fn temporary(self) -> Self {
        Show { temporary: true, ..self }
    }
}

impl Stage for Show {
    type In = Said;
    type Ports = ();
    const STATEFUL: bool = true;

    fn handle(&mut self, said: Ev<'_, Said>, (): &mut (), _: &Cx) -> Result {
        let said = said.take();
        if let Said::Alarm(alarm) = &said {
            print_alarm(&mut io::stdout().lock(), alarm)?;
        }
        self.gathered.add(said);
        Ok(())
    }

    fn finish(&mut self, (): &mut (), _: &Cx) -> Result {
        let mut out = io::stdout().lock();
        digest(&mut out, &self.gathered, &self.folder)?;
        if self.temporary && self.folder.exists() {
            std::fs::remove_dir_all(&self.folder)?; // those who stored there have finished
            row(&mut out, "", "removed again: `--out DIR` keeps them".to_owned())?;
        }
        let Gathered { found, stored } = &self.gathered;
        if stored.lines != found.report.totals.lines {
            let lost = grouped(found.report.totals.lines.saturating_sub(stored.lines));
            let fault = stored.fault.as_deref().unwrap_or("see the failures of `persist`");
            return Err(Error::msg(format!("{lost} lines could not be stored: {fault}")));
        }
        let Some((inputs, window)) = &self.verify else { return Ok(()) };
        let logs = inputs.iter().map(Input::lines).collect::<Result<Vec<_>>>()?;
        let plain = plain::find(logs, *window);
        if let Some(what) = self.gathered.differs_from(&plain) {
            return Err(Error::msg(format!("{what} differ from what a plain loop finds")));
        }
        writeln!(out, "verified: a plain loop over the same lines finds exactly this")?;
        Ok(())
    }
}

fn print_alarm(out: &mut impl Write, alarm: &Alarm) -> io::Result<()> {
    let Alarm { client, why, span: (from, to), lines } = alarm;
    let what = match why {
        Suspicion::Probe => "probes for what only intruders ask for",
        Suspicion::Refused => "refusals",
    };
    writeln!(out, "ALARM {}  {client}: {TIMES} {what} within {} s", moment(*from), to - from)?;
    lines.iter().try_for_each(|line| writeln!(out, "      | {}", shortened(line)))
}

/// As much of a line as a terminal has room for.
fn shortened(line: &str) -> String {
    const ROOM: usize = 100;
    match line.char_indices().nth(ROOM) {
        None => line.to_owned(),
        Some((end, _)) => format!("{} ...", &line[..end]),
    }
}

fn digest(out: &mut impl Write, all: &Gathered, folder: &Path) -> io::Result<()> {
    let Gathered { found: Found { report, alarms, watched, .. }, stored } = all;
    let totals = &report.totals;
    writeln!(out)?;
    let unread = grouped(totals.malformed);
    row(out, "lines", format!("{}, {unread} could not be read", grouped(totals.lines)))?;
    let [other, one, two, three, four, five] = totals.answers.map(grouped);
    let classes =
        format!("{two} 2xx, {three} 3xx, {four} 4xx, {five} 5xx, {one} 1xx, {other} other");
    row(out, "answers", format!("{classes}; {}", size(totals.bytes)))?;
    let requests: u64 = totals.answers.iter().sum();
    let mean = requests as f64 / report.sessions.max(1) as f64;
    let sessions = format!("{} of {} clients", grouped(report.sessions), grouped(report.clients));
    row(out, "sessions", format!("{sessions}, {mean:.1} requests each"))?;
    if let Some((client, Session { start, end, hits })) = &report.longest {
        let (minutes, from) = ((end - start) / 60, moment(*start));
        row(out, "longest", format!("{client}, {minutes} min from {from}, {hits} requests"))?;
    }
    let busiest = report.busiest.iter().map(|(client, hits)| format!("{client} ({hits})"));
    row(out, "busiest", busiest.collect::<Vec<_>>().join(", "))?;
    hunts(out, &report.hunts)?;
    let [probes, refusals, clients] =
        [watched.probes, watched.refusals, watched.clients].map(grouped);
    let suspicious = format!("{probes} probes and {refusals} refusals, from {clients} clients");
    row(out, "suspicious", format!("{suspicious}; alarms: {}", alarms.len()))?;
    let Stored { lines, bytes, segments, removed, .. } = *stored;
    let (lines, bytes, folder) = (grouped(lines), size(bytes), folder.display());
    let gone = if removed > 0 { format!(" ({removed} removed again)") } else { String::new() };
    row(out, "stored", format!("{lines} lines, {bytes}; segments: {segments}{gone}, in {folder}"))
}

/// The first of those who scanned or tried to get in, by time.
fn hunts(out: &mut impl Write, hunts: &[((String, Intent), Hunt)]) -> io::Result<()> {
    const SHOWN: usize = 8;
    let mut hunts: Vec<_> = hunts.iter().collect();
    hunts.sort_by_key(|(_, hunt)| hunt.span);
    for (n, ((client, intent), hunt)) in hunts.iter().take(SHOWN).enumerate() {
        let Hunt { most, span: (from, to), paths, .. } = hunt;
        let what = match intent {
            Intent::Scan => format!("{most} missing paths: {} ...", paths.join(" ")),
            Intent::BreakIn => format!("{most} refusals: {}", paths.join(" ")),
        };
        let when = format!("{} {:5} s", moment(*from), to - from);
        row(out, if n == 0 { "scans" } else { "" }, format!("{when}  {client:15}  {what}"))?;
    }
    match hunts.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => row(out, "", format!("... and {more} more")),
    }
}

/// `1,000,000`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn row(out: &mut impl Write, name: &str, text: String) -> io::Result<()> {
    writeln!(out, "{name:10}  {text}")
}

/// `2024-03-04 08:00:00`, in UTC.
fn moment(time: i64) -> String {
    let (year, month, day) = date(time.div_euclid(86_400));
    let second = time.rem_euclid(86_400);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comporta::testing::StageTester;

    fn reported(lines: u64) -> Said {
        let mut report = Report::default();
        report.totals.lines = lines;
        Said::Report(report)
    }

    #[test]
    fn lines_that_were_not_stored_are_a_problem_with_its_reason() {
        let mut show = StageTester::new(Show::new("folder".into(), None));
        show.send(reported(5_000)).unwrap();
        let fault = Some("no space left".to_owned());
        show.send(Said::Stored(Stored { lines: 3_000, fault, ..Stored::default() })).unwrap();
        show.send(Said::Stored(Stored { lines: 1_000, ..Stored::default() })).unwrap();
        let problem = format!("{:?}", show.finish().unwrap_err());
        assert!(problem.contains("1,000 lines could not be stored: no space left"), "{problem}");
    }

    #[test]
    fn what_differs_from_the_plain_loop_is_named() {
        let mut gathered = Gathered::default();
        assert_eq!(gathered.differs_from(&Found::default()), None);
        gathered.add(reported(1));
        assert_eq!(gathered.differs_from(&Found::default()), Some("the totals"));
        let mut show = StageTester::new(Show::new(
            "f".into(),
            Some((vec![Input::Generated { lines: 1, seed: 1 }], 1)),
        ));
        let problem = format!("{:?}", show.finish().unwrap_err());
        assert!(problem.contains("the totals differ from what a plain loop finds"), "{problem}");
    }

    #[test]
    fn long_numbers_are_grouped_by_three() {
        let numbers = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "1,234,567"]);
    }
}
