//! Correlates the entries of a window: visits of each client, and clients that scan or that try to
//! get in. `correlate` works on one window by itself, so any number may run at once; `report`, of
//! which there is one, adds their findings up. The sum is the same in whatever order they come:
//! sessions are joined where they lie within [`GAP`] of each other, all else is sums and extremes.
//!
//! Memory of `report`: one small record for each session, and one for each client that scans.

use std::collections::{BTreeMap, HashMap, HashSet};

use comporta::{Cx, Ev, Out, Result, Stage};
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Shared};
use crate::show::Said;

/// A session ends when its client asks for nothing for more than half an hour.
pub const GAP: i64 = 30 * 60;
/// A client that asks for so many different things that are not there, in one window, scans.
pub const SCAN_PATHS: usize = 15;
/// A client that is refused so often in one window tries to get in.
pub const REFUSALS: usize = 15;
/// What is shown of a scan, and of the busiest clients.
const SAMPLES: usize = 3;
const BUSIEST: usize = 5;

/// One visit of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Session {
    /// Its first request, in seconds since 1970.
    pub start: i64,
    /// Its last.
    pub end: i64,
    /// How many.
    pub hits: u64,
}

/// What a client is up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Intent {
    /// Asks for many things that are not there.
    Scan,
    /// Is refused again and again.
    BreakIn,
}

/// A client that scanned or tried to get in, and the evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hunt {
    /// The windows in which it stood out.
    pub windows: u64,
    /// The number of the first of them.
    pub window: u64,
    /// The most different paths, or refusals, in one window.
    pub most: u64,
    /// When it began and ended, in seconds since 1970.
    pub span: (i64, i64),
    /// The first things it asked for, each once.
    pub paths: Vec<String>,
}

/// What one window tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    totals: Totals,
    sessions: Vec<(String, Vec<Session>)>,
    hunts: Vec<((String, Intent), Hunt)>,
}

/// Plain sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Lines.
    pub lines: u64,
    /// Lines that could not be read.
    pub malformed: u64,
    /// Bytes sent by the server.
    pub bytes: u64,
    /// Answers by their first digit; those that have no such digit first.
    pub answers: [u64; 6],
}

impl Totals {
    /// Counts one more answer.
    pub fn count(&mut self, status: u16, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        let class = usize::from(status / 100);
        self.answers[if class < 6 { class } else { 0 }] += 1;
    }

    fn add(&mut self, more: &Totals) {
        self.lines += more.lines;
        self.malformed += more.malformed;
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.answers.iter_mut().zip(more.answers).for_each(|(sum, n)| *sum += n);
    }
}

/// What all windows tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Sums.
    pub totals: Totals,
    /// Different clients.
    pub clients: u64,
    /// Sessions of all clients.
    pub sessions: u64,
    /// A number made of all sessions: two reports with the same have the same sessions.
    pub fingerprint: u64,
    /// The session that took longest, and whose it was.
    pub longest: Option<(String, Session)>,
    /// Those who asked most often.
    pub busiest: Vec<(String, u64)>,
    /// Those who scanned or tried to get in.
    pub hunts: Vec<((String, Intent), Hunt)>,
}

impl Report {
    /// Sums up the sessions of all clients.
    #[must_use]
    pub fn new<'a>(
        totals: Totals,
        sessions: impl Iterator<Item = (&'a str, &'a [Session])>,
        hunts: BTreeMap<(String, Intent), Hunt>,
    ) -> Self {
        let mut report = Report { totals, hunts: hunts.into_iter().collect(), ..Report::default() };
        let mut busiest: Vec<(u64, &str)> = Vec::new();
        let mut longest: Option<(i64, std::cmp::Reverse<&str>, Session)> = None;
        for (client, sessions) in sessions {
            report.clients += 1;
            report.sessions += sessions.len() as u64;
            busiest.push((sessions.iter().map(|session| session.hits).sum(), client));
            for session in sessions {
                let length = session.end - session.start;
                longest = longest.max(Some((length, std::cmp::Reverse(client), *session)));
                report.fingerprint = report.fingerprint.wrapping_add(fingerprint(client, session));
            }
        }
        busiest.sort_unstable_by(|(m, a), (n, b)| n.cmp(m).then_with(|| a.cmp(b)));
        busiest.truncate(BUSIEST);
        report.busiest = busiest.into_iter().map(|(hits, who)| (who.to_owned(), hits)).collect();
        report.longest = longest.map(|(_, client, session)| (client.0.to_owned(), session));
        report
    }
}

/// FNV-1a of a client and a session; sums of these do not depend on their order.
fn fingerprint(client: &str, session: &Session) -> u64 {
    let Session { start, end, hits } = session;
    let numbers = [start.to_le_bytes(), end.to_le_bytes(), hits.to_le_bytes()];
    let bytes = client.bytes().chain(numbers.into_iter().flatten());
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    })
}

/// Joins `new` to what lies within [`GAP`] of it. `sessions` are in order and further apart.
pub fn join(sessions: &mut Vec<Session>, mut new: Session) {
    let from = sessions.partition_point(|session| session.end + GAP < new.start);
    let near = sessions[from..].iter().take_while(|session| session.start <= new.end + GAP).count();
    for session in &sessions[from..from + near] {
        new.start = new.start.min(session.start);
        new.end = new.end.max(session.end);
        new.hits += session.hits;
    }
    match near {
        0 => sessions.insert(from, new),
        1 => sessions[from] = new,
        _ => drop(sessions.splice(from..from + near, [new])),
    }
}

/// One client in one window.
#[derive(Default)]
struct Seen<'a> {
    sessions: Vec<Session>,
    missing: HashSet<&'a str>,
    missed: Evidence<'a>,
    refusals: usize,
    refused: Evidence<'a>,
}

/// The span of some entries, and the first of their paths.
#[derive(Default)]
struct Evidence<'a> {
    span: Option<(i64, i64)>,
    paths: Vec<&'a str>,
}

impl<'a> Evidence<'a> {
    fn add(&mut self, time: i64, path: &'a str) {
        let (from, to) = self.span.unwrap_or((time, time));
        self.span = Some((from.min(time), to.max(time)));
        if self.paths.len() < SAMPLES && !self.paths.contains(&path) {
            self.paths.push(path);
        }
    }

    fn hunt(self, window: u64, most: usize) -> Hunt {
        let paths = self.paths.into_iter().map(str::to_owned).collect();
        let span = self.span.unwrap_or_default();
        Hunt { windows: 1, window, most: most as u64, span, paths }
    }
}

/// What one window tells.
#[must_use]
pub fn correlate(batch: &Batch) -> Partial {
    let mut totals =
        Totals { lines: batch.lines, malformed: batch.malformed(), ..Totals::default() };
    let mut clients: HashMap<&str, Seen<'_>> = HashMap::new();
    for entry in batch.entries() {
        totals.count(entry.status, entry.bytes);
        let seen = clients.entry(entry.client).or_default();
        join(&mut seen.sessions, Session { start: entry.time, end: entry.time, hits: 1 });
        match entry.status {
            404 if seen.missing.insert(entry.path) => seen.missed.add(entry.time, entry.path),
            401 | 403 => {
                seen.refusals += 1;
                seen.refused.add(entry.time, entry.path);
            }
            _ => {}
        }
    }
    let mut partial = Partial { totals, ..Partial::default() };
    for (client, seen) in clients {
        if seen.missing.len() >= SCAN_PATHS {
            let hunt = seen.missed.hunt(batch.number, seen.missing.len());
            partial.hunts.push(((client.to_owned(), Intent::Scan), hunt));
        }
        if seen.refusals >= REFUSALS {
            let hunt = seen.refused.hunt(batch.number, seen.refusals);
            partial.hunts.push(((client.to_owned(), Intent::BreakIn), hunt));
        }
        partial.sessions.push((client.to_owned(), seen.sessions));
    }
    partial
}

/// Takes the findings of windows; sends the report after the last.
#[derive(Clone, Debug, Default)]
pub struct Reporter {
    totals: Totals,
    sessions: HashMap<String, Vec<Session>>,
    hunts: BTreeMap<(String, Intent), Hunt>,
}

impl Reporter {
    /// Takes what one more window tells.
    pub fn add(&mut self, partial: Partial) {
        let Partial { totals, sessions, hunts } = partial;
        self.totals.add(&totals);
        for (client, sessions) in sessions {
            match self.sessions.get_mut(&client) {
                Some(known) => sessions.into_iter().for_each(|session| join(known, session)),
                None => drop(self.sessions.insert(client, sessions)),
            }
        }
        for (key, hunt) in hunts {
            match self.hunts.get_mut(&key) {
                Some(known) => merge(known, hunt),
                None => drop(self.hunts.insert(key, hunt)),
            }
        }
    }

    /// What all of them tell, after the last.
    pub fn report(&mut self) -> Report {
        let sessions = self.sessions.iter().map(|(client, sessions)| (&**client, &**sessions));
        Report::new(self.totals, sessions, std::mem::take(&mut self.hunts))
    }
}

impl Stage for Reporter {
    type In = Partial;
    type Ports = Out<Said>;
    const STATEFUL: bool = true;

    fn handle(&mut self, partial: Ev<'_, Partial>, _: &mut Out<Said>, _: &Cx) -> Result {
        self.add(partial.take());
        Ok(())
    }

    fn finish(&mut self, out: &mut Out<Said>, _: &Cx) -> Result {
        out.send(Said::Report(self.report()));
        Ok(())
    }
}

fn merge(known: &mut Hunt, more: Hunt) {
    known.windows += more.windows;
    known.most = known.most.max(more.most);
    known.span = (known.span.0.min(more.span.0), known.span.1.max(more.span.1));
    if more.window < known.window {
        known.window = more.window;
        known.paths = more.paths;
    }
}

/// The stage: takes windows, sends what each tells.
pub fn stage(batch: Shared, out: &mut Out<Partial>) {
    out.send(correlate(&batch));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: i64) -> Session {
        Session { start: time, end: time, hits: 1 }
    }

    #[test]
    fn a_pause_of_exactly_the_gap_does_not_end_a_session() {
        let mut sessions = Vec::new();
        [0, GAP, 2 * GAP + 1].into_iter().for_each(|time| join(&mut sessions, at(time)));
        assert_eq!(sessions, [Session { start: 0, end: GAP, hits: 2 }, at(2 * GAP + 1)]);
    }

    #[test]
    fn sessions_joined_in_any_order_are_the_same() {
        let times = [0, 10, GAP + 5, 4 * GAP, 5 * GAP, 9 * GAP, 7 * GAP, 8 * GAP];
        let mut expected = Vec::new();
        times.into_iter().for_each(|time| join(&mut expected, at(time)));
        assert_eq!(expected.len(), 3);
        for turn in 0..times.len() {
            let mut sessions = Vec::new();
            let turned = times[turn..].iter().chain(&times[..turn]).rev();
            turned.for_each(|time| join(&mut sessions, at(*time)));
            assert_eq!(sessions, expected);
        }
    }
}
