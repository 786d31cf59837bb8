//! Alarms, while the log goes by. `filter` picks the suspicious entries out of a window, any number
//! of windows at once but in their order; `alarm`, of which there is one, raises an alarm when a
//! client has had [`TIMES`] of a kind within [`SPAN`] in one log. One alarm for a client and a kind is
//! enough there.
//!
//! Times may go back: servers write a line when a request ends but date it from its beginning, and
//! rotated files are often read newest first. So a span is that from the earliest to the latest,
//! and what makes room for a new moment is the one that lies furthest from it, before or after. In
//! a log whose times only rise, or only fall, that is the first of those kept, and no alarm is
//! missed; a stray line puts one off by one moment at most. No order makes an alarm of less.
//!
//! Memory of `alarm`: a record of at most [`TIMES`] moments and [`SAMPLES`] lines for each client
//! that was ever suspicious.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use comporta::{Cx, Ev, Out, Result, Stage};
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Entry, Shared};
use crate::show::Said;

/// So many suspicious requests ...
pub const TIMES: usize = 10;
/// ... within so many seconds raise an alarm.
pub const SPAN: i64 = 600;
/// Lines shown with an alarm.
pub const SAMPLES: usize = 3;

/// What no visitor asks for: the ends and parts of paths that give a probe away.
const PROBES: [&str; 12] = [
    "wp-login.php",
    ".env",
    ".git/",
    "phpmyadmin",
    "admin.php",
    "xmlrpc.php",
    "backup.zip",
    "server-status",
    "cgi-bin/",
    "phpunit",
    "shell.php",
    "etc/passwd",
];

/// Why an entry is suspicious.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Suspicion {
    /// It asks for what only intruders ask for.
    Probe,
    /// It was refused.
    Refused,
}

/// A suspicious entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    /// Which log it is of.
    log: usize,
    client: String,
    why: Suspicion,
    time: i64,
    line: String,
}

/// A client that should be looked at, and the evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// Who.
    pub client: String,
    /// Why.
    pub why: Suspicion,
    /// The earliest and the latest moment, in seconds since 1970.
    pub span: (i64, i64),
    /// Those lines that stand first in the log, of those that raised it.
    pub lines: Vec<String>,
}

/// What was watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Probes.
    pub probes: u64,
    /// Refusals.
    pub refusals: u64,
    /// Clients that had any, of each log.
    pub clients: u64,
}

/// Whether an entry is suspicious.
#[must_use]
pub fn suspicion(entry: &Entry<'_>) -> Option<Suspicion> {
    match entry.status {
        401 | 403 => Some(Suspicion::Refused),
        // Only what is not there: a server that has such a page knows why.
        404 if PROBES.iter().any(|probe| entry.path.contains(probe)) => Some(Suspicion::Probe),
        _ => None,
    }
}

/// The suspicious entries of a window, in order.
pub fn suspects(batch: &Batch) -> impl Iterator<Item = Suspect> {
    batch.entries().filter_map(|entry| {
        let why = suspicion(&entry)?;
        let (client, line) = (entry.client.to_owned(), entry.line.to_owned());
        Some(Suspect { log: batch.log, client, why, time: entry.time, line })
    })
}

/// The stage `filter`: takes windows, sends their suspicious entries.
pub fn filter(batch: Shared, out: &mut Out<Suspect>) {
    suspects(&batch).for_each(|suspect| out.send(suspect));
}

/// The stage `alarm`: takes suspicious entries in the order of the log, sends alarms at once and
/// what it watched at the end.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    watched: Watched,
    /// By log, since what comes from two logs comes in no order.
    clients: HashMap<(usize, String), [Trail; 2]>,
}

#[derive(Clone, Debug, Default)]
struct Trail {
    raised: bool,
    /// Moments and their lines, at most [`TIMES`], in the order of the log.
    kept: VecDeque<(i64, String)>,
}

impl Trail {
    /// Another moment; gives the evidence if it is the one that raises the alarm.
    fn add(&mut self, time: i64, line: String) -> Option<((i64, i64), Vec<String>)> {
        if self.raised {
            return None;
        }
        if self.kept.len() == TIMES {
            // The least of the reversed is the first of the furthest.
            let distance = |n: &usize| Reverse(self.kept[*n].0.abs_diff(time));
            let furthest = (0..TIMES).min_by_key(distance)?;
            self.kept.remove(furthest);
        }
        self.kept.push_back((time, line));
        if self.kept.len() < TIMES {
            return None;
        }
        let times = self.kept.iter().map(|(time, _)| *time);
        let (earliest, latest) = (times.clone().min()?, times.max()?);
        if latest - earliest > SPAN {
            return None;
        }
        self.raised = true;
        let lines = std::mem::take(&mut self.kept).into_iter().take(SAMPLES);
        Some(((earliest, latest), lines.map(|(_, line)| line).collect()))
    }
}

impl Watch {
    /// The next suspicious entry; gives an alarm if it is the one that raises it.
    pub fn see(&mut self, suspect: Suspect) -> Option<Alarm> {
        let Suspect { log, client, why, time, line } = suspect;
        let whose = (log, client);
        if !self.clients.contains_key(&whose) {
            self.clients.insert(whose.clone(), Default::default());
            self.watched.clients += 1;
        }
        match why {
            Suspicion::Probe => self.watched.probes += 1,
            Suspicion::Refused => self.watched.refusals += 1,
        }
        let trail = &mut self.clients.get_mut(&whose)?[why as usize];
        let (span, lines) = trail.add(time, line)?;
        Some(Alarm { client: whose.1, why, span, lines })
    }

    /// What was seen so far.
    #[must_use]
    pub fn watched(&self) -> Watched {
        self.watched
    }
}

impl Stage for Watch {
    type In = Suspect;
    type Ports = Out<Said>;
    const STATEFUL: bool = true;

    fn handle(&mut self, suspect: Ev<'_, Suspect>, out: &mut Out<Said>, _: &Cx) -> Result {
        self.see(suspect.take()).into_iter().for_each(|alarm| out.send(Said::Alarm(alarm)));
        Ok(())
    }

    fn finish(&mut self, out: &mut Out<Said>, _: &Cx) -> Result {
        out.send(Said::Watched(self.watched));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comporta::testing::StageTester;

    fn alarms(times: impl IntoIterator<Item = i64>) -> Vec<(i64, i64)> {
        let mut watch = StageTester::new(Watch::default());
        for time in times {
            let (client, line) = ("c".to_owned(), format!("line at {time}"));
            watch.send(Suspect { log: 0, client, why: Suspicion::Refused, time, line }).unwrap();
        }
        let said = watch.out.drain().map(|said| match said {
            Said::Alarm(alarm) => {
                assert_eq!(alarm.lines.len(), SAMPLES);
                alarm.span
            }
            other => panic!("{other:?}"),
        });
        said.collect()
    }

    #[test]
    fn enough_within_the_span_raise_one_alarm_and_no_second() {
        let step = SPAN / (TIMES as i64 - 1);
        let last = step * (TIMES as i64 - 1);
        assert_eq!(alarms((0..30).map(|n| n * step)), [(0, last)]);
        assert_eq!(alarms((0..TIMES as i64 - 1).map(|n| n * step)), []);
    }

    #[test]
    fn exactly_the_span_is_within_it() {
        let last_at = |last| std::iter::repeat_n(0, TIMES - 1).chain([last]);
        assert_eq!(alarms(last_at(SPAN)), [(0, SPAN)]);
        assert_eq!(alarms(last_at(SPAN + 1)), []);
    }

    #[test]
    fn as_many_over_a_longer_time_raise_none() {
        let step = SPAN / (TIMES as i64 - 1) + 1;
        assert_eq!(alarms((0..1_000).map(|n| n * step)), []);
        assert_eq!(alarms((0..1_000).rev().map(|n| n * step)), [], "newest first");
        // Until they come faster.
        let faster = (0..50).map(|n| n * step).chain((0..TIMES as i64).map(|n| 50 * step + n));
        assert_eq!(alarms(faster).len(), 1);
    }

    #[test]
    fn one_a_day_raises_none_even_newest_first() {
        const DAY: i64 = 86_400;
        assert_eq!(alarms((0..100).map(|n| n * DAY)), []);
        assert_eq!(alarms((0..100).rev().map(|n| n * DAY)), []);
        // Far back and forth, as from files read in the order of their names.
        assert_eq!(alarms((0..100).map(|n| n * 37 % 100 * DAY)), []);
    }

    #[test]
    fn lines_a_little_out_of_order_raise_an_alarm_from_the_earliest_to_the_latest() {
        let mut times: [i64; TIMES] = std::array::from_fn(|n| 100 + n as i64);
        assert_eq!(alarms(times), [(100, 109)]);
        times.reverse();
        assert_eq!(alarms(times), [(100, 109)]);
        assert_eq!(alarms([112, 100, 101, 103, 102, 104, 106, 105, 107, 100]), [(100, 112)]);
        // Also where those before lie too far back.
        let before = (0..50).map(|n| n * 300 - 15_500);
        assert_eq!(alarms(before.chain(times)), [(100, 109)]);
    }

    #[test]
    fn a_stray_line_raises_no_alarm_and_puts_one_off_by_one_moment_at_most() {
        for stray in [-1_000_000, 1_000_000] {
            let around = |after: i64| (0..5).chain([stray]).chain(5..5 + after);
            assert_eq!(alarms(around(4)), [], "nine and {stray}");
            assert_eq!(alarms(around(5)), [(0, 9)], "ten and {stray}");
        }
        // The stray line takes the place of one that lies further from it than the one of before.
        let late = [-700].into_iter().chain(0..9).chain([-1_000_000]).chain(9..20);
        assert_eq!(alarms(late), [(0, 10)]);
    }

    #[test]
    fn the_lines_of_an_alarm_are_the_first_of_its_own_in_the_log() {
        let mut trail = Trail::default();
        let times = [900_000, 4, 3, 9, 8, 7, 6, 5, 2, 1, 0];
        let raised = times.into_iter().filter_map(|time| trail.add(time, time.to_string()));
        let expected = ["4", "3", "9"].map(str::to_owned).to_vec();
        assert_eq!(raised.collect::<Vec<_>>(), [((0, 9), expected)]);
    }
}
