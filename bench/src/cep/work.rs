//! What every entrant of `cep` is given: the log, a folder for its segments, and the steps of the
//! program as functions. What there is one of (alarms, report) is `Merge`; windows that overtook
//! others wait in `Reorder` until it is their turn.

use comporta::windows::Window;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weblog::alarm::{self, Suspect, Watch};
use weblog::batch::Batch;
use weblog::correlate::{self, Partial, Reporter};
use weblog::generate::generate;
use weblog::persist::{Persist, Stored};
use weblog::plain::{self, Found};
use weblog::program::kept;
use weblog::show::{Gathered, Said};

/// Lines in a window, as published.
pub(crate) const WINDOW: usize = 1_000;
/// Windows a queue holds, in every entrant: some 150 kB each.
pub(crate) const QUEUE: usize = 8;
/// Segments an instance keeps: more than are written.
pub(crate) const KEEP: usize = 1_024;

/// The log, and what is to be found in it.
pub(crate) struct Log {
    pub(crate) lines: Arc<[String]>,
    expected: Found,
}

impl Log {
    pub(crate) fn new(lines: usize, seed: u64) -> Log {
        let lines: Arc<[String]> = generate(seed).take(lines).collect();
        let expected = plain::find(lines.iter().cloned(), WINDOW);
        Log { lines, expected }
    }

    /// Panics if anything else was found, or if not every line was stored.
    pub(crate) fn check(&self, name: &str, gathered: &Gathered) {
        assert_eq!(gathered.differs_from(&self.expected), None, "of {name}");
        assert_eq!(gathered.stored.lines, self.lines.len() as u64, "lines stored by {name}");
    }

    /// The windows of the log, one after the other; each line is a text of its own, as it is when
    /// a log is read.
    pub(crate) fn windows(&self) -> impl Iterator<Item = Window<String>> + Send + use<> {
        let mut lines = kept(Arc::clone(&self.lines));
        let mut start = 0;
        std::iter::from_fn(move || {
            let mut events = Vec::with_capacity(WINDOW);
            events.extend(lines.by_ref().take(WINDOW));
            let window = Window { start, end: start + events.len() as i64, events };
            start = window.end;
            (!window.events.is_empty()).then_some(window)
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
pub(crate) fn tell(window: &Window<String>, persist: &mut Persist) -> Told {
    let batch = Batch::read(window, WINDOW);
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
    fn windows_hold_the_whole_log() {
        let log = Log::new(2_500, 1);
        let windows: Vec<_> = log.windows().collect();
        assert_eq!(windows.iter().map(|window| window.start).collect::<Vec<_>>(), [0, 1000, 2000]);
        let lines: Vec<String> = windows.into_iter().flat_map(|window| window.events).collect();
        assert_eq!(lines, log.lines.to_vec());
    }
}
