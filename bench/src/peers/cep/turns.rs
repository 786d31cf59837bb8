//! Peer `turns`: as many threads as cores; each takes a window from the log, does all that can be
//! done to it by itself, and merges it and those that waited for it. No channel, two locks: nothing
//! is handed from thread to thread but what is merged.

use crate::cep::work::{KEEP, Log, Merge, Reorder, tell};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use weblog::persist::Persist;
use weblog::show::Gathered;

pub(crate) fn run(log: &Log, folder: &Path, threads: usize) -> Gathered {
    let windows = Mutex::new(log.windows());
    let merging = Mutex::new((Reorder::new(), Merge::default()));
    thread::scope(|scope| {
        for number in 0..threads {
            let (windows, merging) = (&windows, &merging);
            scope.spawn(move || {
                let mut persist = Persist::new(folder.to_owned(), KEEP).numbered(number);
                loop {
                    let window = windows.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(window) = window else { break };
                    let told = tell(window, &mut persist);
                    let mut merging = merging.lock().unwrap_or_else(PoisonError::into_inner);
                    let (reorder, merge) = &mut *merging;
                    reorder.put(told.number, told);
                    while let Some(told) = reorder.take() {
                        merge.take(told);
                    }
                }
                merging.lock().unwrap_or_else(PoisonError::into_inner).1.stored(persist);
            });
        }
    });
    merging.into_inner().unwrap_or_else(PoisonError::into_inner).1.result()
}
