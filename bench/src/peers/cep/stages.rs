//! Peer `stages`: a thread per stage, whole windows through bounded crossbeam channels: the graph
//! of the program drawn with threads. What a window has read is shared with the three that look at
//! it, as in ours.

use crate::cep::work::{KEEP, Log, Merge, QUEUE, store};
use crossbeam_channel::bounded;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use weblog::alarm;
use weblog::batch::Batch;
use weblog::correlate;
use weblog::persist::Persist;
use weblog::show::Gathered;

pub(crate) fn run(log: &Log, folder: &Path, _: usize) -> Gathered {
    let mut merge = Merge::default();
    let mut alarms = Merge::default();
    let mut persist = Persist::new(folder.to_owned(), KEEP);
    thread::scope(|scope| {
        let (to_parse, parse) = bounded(QUEUE);
        let (to_persist, persisted) = bounded::<Arc<Batch>>(QUEUE);
        let (to_correlate, correlated) = bounded::<Arc<Batch>>(QUEUE);
        let (to_filter, filtered) = bounded::<Arc<Batch>>(QUEUE);
        let (to_report, report) = bounded(QUEUE);
        let windows = log.windows();
        // A send fails only when a receiver has panicked, which the scope then tells.
        scope.spawn(move || windows.into_iter().try_for_each(|window| to_parse.send(window)));
        scope.spawn(move || {
            for window in parse {
                let batch = Arc::new(window.read());
                for queue in [&to_persist, &to_correlate, &to_filter] {
                    let _ = queue.send(Arc::clone(&batch));
                }
            }
        });
        scope.spawn(|| persisted.into_iter().for_each(|batch| store(&mut persist, &batch)));
        scope.spawn(move || {
            let partials = correlated.into_iter().map(|batch| correlate::correlate(&batch));
            partials.into_iter().try_for_each(|partial| to_report.send(partial))
        });
        let alarms = &mut alarms;
        scope.spawn(move || {
            filtered.into_iter().for_each(|batch| alarms.see(alarm::suspects(&batch).collect()));
        });
        report.into_iter().for_each(|partial| merge.add(partial));
    });
    alarms.stored(persist);
    alarms.with_report_of(merge).result()
}
