//! Peer `pool`: a reader, as many workers as cores that do all that can be done to a window by
//! itself, and a merger that puts windows back into their order; bounded crossbeam channels. A
//! window is handed on twice instead of six times.

use crate::cep::work::{KEEP, Log, Merge, QUEUE, Reorder, Told, tell};
use crossbeam_channel::bounded;
use std::path::Path;
use std::thread;
use weblog::persist::Persist;
use weblog::show::Gathered;

pub(crate) fn run(log: &Log, folder: &Path, threads: usize) -> Gathered {
    let mut merge = Merge::default();
    thread::scope(|scope| {
        let (to_work, work) = bounded(QUEUE);
        let (to_merge, merging) = bounded::<Told>(QUEUE);
        let windows = log.windows();
        // A send fails only when a receiver has panicked, which the join tells.
        scope.spawn(move || windows.into_iter().try_for_each(|window| to_work.send(window)));
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let (work, to_merge) = (work.clone(), to_merge.clone());
                scope.spawn(move || {
                    let mut persist = Persist::new(folder.to_owned(), KEEP).numbered(number);
                    for window in work {
                        let _ = to_merge.send(tell(window, &mut persist));
                    }
                    persist
                })
            })
            .collect();
        drop(to_merge);
        let mut reorder = Reorder::new();
        for told in merging {
            reorder.put(told.number, told);
            while let Some(told) = reorder.take() {
                merge.take(told);
            }
        }
        for worker in workers {
            merge.stored(worker.join().expect("workers do not panic"));
        }
    });
    merge.result()
}
