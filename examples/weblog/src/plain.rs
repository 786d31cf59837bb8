//! The same results by one loop over the whole log: no stages, no windows that travel, nothing
//! joined or merged. Only what a line says ([`parse`], and what is suspicious) is asked of the
//! same functions as in the program.

use std::collections::{BTreeMap, BTreeSet};

use crate::alarm::{self, Alarm, Suspicion, Watched};
use crate::batch::Entry;
use crate::correlate::{GAP, Hunt, Intent, REFUSALS, Report, SCAN_PATHS, Session, Totals};
use crate::parse;

/// All that is found in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Sums, sessions, scans.
    pub report: Report,
    /// Alarms, in the order of the log; those of several logs in any order.
    pub alarms: Vec<Alarm>,
    /// What was watched for them.
    pub watched: Watched,
    /// Bytes of all lines, with their ends.
    pub stored_bytes: u64,
}

type Times = BTreeMap<String, Vec<i64>>;
type Moments = BTreeMap<(String, Suspicion), Vec<(i64, String)>>;

/// Finds it in some logs, each in windows of `size` lines.
pub fn find<L: Iterator<Item = String>>(logs: impl IntoIterator<Item = L>, size: usize) -> Found {
    let logs: Vec<Vec<String>> = logs.into_iter().map(Iterator::collect).collect();
    let mut found = Found::default();
    let (mut times, mut hunts) = (Times::new(), BTreeMap::new());
    let mut totals = Totals::default();
    for (log, lines) in logs.iter().enumerate() {
        totals.lines += lines.len() as u64;
        let mut moments = Moments::new();
        let mut alarms = Vec::new();
        for (nth, window) in lines.chunks(size).enumerate() {
            let mut told = Vec::new();
            for text in window {
                found.stored_bytes += text.len() as u64 + 1;
                let Some(line) = parse::line(text) else {
                    totals.malformed += 1;
                    continue;
                };
                let parse::Line { client, path, time, bytes, status, .. } = line;
                let entry = Entry { line: text, client, path, time, bytes, status };
                totals.count(status, bytes);
                times.entry(client.to_owned()).or_default().push(time);
                watch(&entry, &mut moments, &mut alarms, &mut found.watched);
                if matches!(status, 401 | 403 | 404) {
                    told.push(entry);
                }
            }
            hunt((nth * logs.len() + log) as u64, &told, &mut hunts);
        }
        let clients: BTreeSet<&String> = moments.keys().map(|(client, _)| client).collect();
        found.watched.clients += clients.len() as u64;
        found.alarms.append(&mut alarms);
    }
    let sessions: Vec<(String, Vec<Session>)> =
        times.into_iter().map(|(client, times)| (client, sessions(times))).collect();
    let sessions = sessions.iter().map(|(client, sessions)| (&**client, &**sessions));
    found.report = Report::new(totals, sessions, hunts);
    found
}

fn sessions(mut times: Vec<i64>) -> Vec<Session> {
    times.sort_unstable();
    let runs = times.chunk_by(|a, b| b - a <= GAP);
    let session =
        |run: &[i64]| Session { start: run[0], end: run[run.len() - 1], hits: run.len() as u64 };
    runs.map(session).collect()
}

fn watch(entry: &Entry<'_>, moments: &mut Moments, alarms: &mut Vec<Alarm>, watched: &mut Watched) {
    let Some(why) = alarm::suspicion(entry) else { return };
    match why {
        Suspicion::Probe => watched.probes += 1,
        Suspicion::Refused => watched.refusals += 1,
    }
    let all = moments.entry((entry.client.to_owned(), why)).or_default();
    all.push((entry.time, entry.line.to_owned()));
    let near = nearest_to_last(all);
    *all = near.into_iter().map(|n| all[n].clone()).collect();
    let times: BTreeSet<i64> = all.iter().map(|(time, _)| *time).collect();
    let known = alarms.iter().any(|alarm| alarm.client == entry.client && alarm.why == why);
    if let (Some(from), Some(to)) = (times.first(), times.last())
        && !known
        && all.len() == alarm::TIMES
        && to - from <= alarm::SPAN
    {
        let lines = all.iter().take(alarm::SAMPLES).map(|(_, line)| line.clone());
        alarms.push(Alarm {
            client: entry.client.to_owned(),
            why,
            span: (*from, *to),
            lines: lines.collect(),
        });
    }
}

/// Which moments count when the last has come: those nearest to it in time; of two that are as
/// near, the one further down in the log.
fn nearest_to_last(moments: &[(i64, String)]) -> Vec<usize> {
    let Some((last, _)) = moments.last() else { return Vec::new() };
    let mut order: Vec<usize> = (0..moments.len()).rev().collect();
    order.sort_by_key(|n| (moments[*n].0 - last).abs()); // stable: it leaves later ones first
    order.truncate(alarm::TIMES);
    order.sort_unstable();
    order
}

fn hunt(number: u64, told: &[Entry<'_>], hunts: &mut BTreeMap<(String, Intent), Hunt>) {
    let clients: BTreeSet<&str> = told.iter().map(|entry| entry.client).collect();
    for client in clients {
        let by = |statuses: &'static [u16]| {
            told.iter().filter(move |e| e.client == client && statuses.contains(&e.status))
        };
        let mut met = BTreeSet::new();
        let missing: Vec<_> = by(&[404]).filter(|entry| met.insert(entry.path)).collect();
        let refused: Vec<_> = by(&[401, 403]).collect();
        for (intent, entries, enough) in
            [(Intent::Scan, missing, SCAN_PATHS), (Intent::BreakIn, refused, REFUSALS)]
        {
            if entries.len() < enough {
                continue;
            }
            let times = entries.iter().map(|entry| entry.time);
            let from = times.clone().min().unwrap_or_default();
            let to = times.max().unwrap_or_default();
            let known = hunts.entry((client.to_owned(), intent)).or_insert_with(|| Hunt {
                windows: 0,
                window: number,
                most: 0,
                span: (from, to),
                paths: first_paths(&entries),
            });
            known.windows += 1;
            if number < known.window {
                (known.window, known.paths) = (number, first_paths(&entries));
            }
            known.most = known.most.max(entries.len() as u64);
            known.span = (known.span.0.min(from), known.span.1.max(to));
        }
    }
}

fn first_paths(entries: &[&Entry<'_>]) -> Vec<String> {
    let mut met = BTreeSet::new();
    let once = entries.iter().filter(|entry| met.insert(entry.path));
    once.take(3).map(|entry| entry.path.to_owned()).collect()
}
