//! What every entrant of `cep` is given: the log, a folder for its segments, and the steps of the
//! program as functions. What there is one of (alarms, report) is `Merge`; windows that overtook
//! others wait in `Reorder` until it is their turn.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weblog::alarm::{self, Suspect, Watch};
use weblog::batch::{Batch, Record};
use weblog::correlate::{self, Partial, Reporter};
use weblog::generate::generate;
use weblog::persist::{Persist, Stored};
use weblog::plain::{self, Found};
use weblog::program::kept;
use weblog::show::{Gathered, Said};

/// Logs that the lines are dealt to, each of a server of its own: published were several.
pub(crate) const LOGS: usize = 4;
/// Lines in a window, as published.
pub(crate) const WINDOW: usize = 1_000;
/// Windows a queue holds, in every entrant: some 150 kB each.
pub(crate) const QUEUE: usize = 8;
/// Segments an instance keeps: more than are written.
pub(crate) const KEEP: usize = 1_024;

/// The logs, and what is to be found in them.
pub(crate) struct Log {
    pub(crate) logs: Vec<Arc<[String]>>,
    expected: Found,
}

/// A window of one log: its lines, each a text of its own, as it is when a log is read.
pub(crate) struct Lines {
    log: usize,
    nth: u64,
    lines: Vec<String>,
}

impl Lines {
    /// Reads them.
    pub(crate) fn read(self) -> Batch {
        let mut batch = Batch::new(self.log, LOGS, self.nth);
        self.lines.into_iter().for_each(|line| batch.add(&Record::read(line)));
        batch
    }
}

impl Log {
    /// So many lines, as many in each log.
    pub(crate) fn new(lines: usize, seed: u64) -> Log {
        let log = |log| generate(seed + log as u64).take(lines.div_ceil(LOGS)).collect();
        let logs: Vec<Arc<[String]>> = (0..LOGS).map(log).collect();
        let expected = plain::find(logs.iter().map(|log| log.iter().cloned()), WINDOW);
        Log { logs, expected }
    }

    pub(crate) fn lines(&self) -> usize {
        self.logs.iter().map(|log| log.len()).sum()
    }

    /// Panics if anything else was found, or if not every line was stored.
    pub(crate) fn check(&self, name: &str, gathered: &Gathered) {
        assert_eq!(gathered.differs_from(&self.expected), None, "of {name}");
        assert_eq!(gathered.stored.lines, self.lines() as u64, "lines stored by {name}");
    }

    /// The windows of all logs in the order of their numbers: the first of each, the second of each.
    pub(crate) fn windows(&self) -> impl Iterator<Item = Lines> + Send + use<> {
        let mut logs: Vec<_> = self.logs.iter().map(|log| kept(Arc::clone(log))).collect();
        let windows = (0..).flat_map(|nth| (0..LOGS).map(move |log| (nth, log)));
        windows.map_while(move |(nth, log)| {
            let mut lines = Vec::with_capacity(WINDOW);
            lines.extend(logs[log].by_ref().take(WINDOW));
            (!lines.is_empty()).then_some(Lines { log, nth, lines })
        })
    }
}

/// A folder for the segments of one run; it is removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// In `base`, by a name that no other run has.
    pub(crate) fn new(base: &Path) -> Folder {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let folder = base.join(format!("comporta-bench-{}-{run}", std::process::id()));
        fs::create_dir_all(&folder).expect("the folder for segments can be made");
        Folder(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // what stays is seen by whoever looks for disk space
    }
}

/// What a window has to say, once it was read, stored and looked at.
pub(crate) struct Told {
    pub(crate) number: u64,
    partial: Partial,
    suspects: Vec<Suspect>,
}

/// All that can be done to a window without knowing the others.
pub(crate) fn tell(window: Lines, persist: &mut Persist) -> Told {
    let batch = window.read();
    store(persist, &batch);
    let (partial, suspects) = (correlate::correlate(&batch), alarm::suspects(&batch).collect());
    Told { number: batch.number, partial, suspects }
}

pub(crate) fn store(persist: &mut Persist, batch: &Batch) {
    persist.store(batch).expect("segments can be written");
}

/// What there is one of: alarms need the log in its order, the report does not.
#[derive(Default)]
pub(crate) struct Merge {
    reporter: Reporter,
    watch: Watch,
    gathered: Gathered,
}

impl Merge {
    pub(crate) fn take(&mut self, told: Told) {
        self.add(told.partial);
        self.see(told.suspects);
    }

    pub(crate) fn add(&mut self, partial: Partial) {
        self.reporter.add(partial);
    }

    pub(crate) fn see(&mut self, suspects: Vec<Suspect>) {
        let alarms = suspects.into_iter().filter_map(|suspect| self.watch.see(suspect));
        alarms.for_each(|alarm| self.gathered.add(Said::Alarm(alarm)));
    }

    pub(crate) fn stored(&mut self, mut persist: Persist) {
        let stored: Stored = persist.finished().expect("the last segment can be written");
        self.gathered.add(Said::Stored(stored));
    }

    /// This one's alarms and segments, the other's report.
    pub(crate) fn with_report_of(self, other: Merge) -> Merge {
        Merge { reporter: other.reporter, ..self }
    }

    pub(crate) fn result(mut self) -> Gathered {
        self.gathered.add(Said::Watched(self.watch.watched()));
        self.gathered.add(Said::Report(self.reporter.report()));
        self.gathered
    }
}

/// Gives numbered things back in the order of their numbers, from 0.
pub(crate) struct Reorder<T> {
    next: u64,
    waiting: BTreeMap<u64, T>,
}

impl<T> Reorder<T> {
    pub(crate) fn new() -> Self {
        Reorder { next: 0, waiting: BTreeMap::new() }
    }

    pub(crate) fn put(&mut self, number: u64, thing: T) {
        self.waiting.insert(number, thing);
    }

    /// The next, if it is there.
    pub(crate) fn take(&mut self) -> Option<T> {
        let thing = self.waiting.remove(&self.next)?;
        self.next += 1;
        Some(thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overtook_waits_for_its_turn() {
        let mut reorder = Reorder::new();
        reorder.put(1, 'b');
        assert_eq!(reorder.take(), None);
        reorder.put(0, 'a');
        assert_eq!([reorder.take(), reorder.take(), reorder.take()], [Some('a'), Some('b'), None]);
    }

    #[test]
    fn windows_hold_all_logs_in_the_order_of_their_numbers() {
        let log = Log::new(10_000, 1);
        let windows: Vec<_> = log.windows().collect();
        for (at, lines) in log.logs.iter().enumerate() {
            let of = windows.iter().filter(|window| window.log == at);
            let held: Vec<&String> = of.flat_map(|window| &window.lines).collect();
            assert_eq!(held, lines.iter().collect::<Vec<_>>());
        }
        let numbers: Vec<u64> = windows.into_iter().map(|window| window.read().number).collect();
        assert_eq!(numbers, (0..12).collect::<Vec<_>>());
    }
}
