//! Peer `rayon`: windows through `par_bridge`; whoever has looked at a window merges it, and those
//! that waited for it, under a lock.

use crate::cep::work::{KEEP, Log, Merge, Reorder, tell};
use ::rayon::prelude::*;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use weblog::persist::Persist;
use weblog::show::Gathered;

pub(crate) fn run(log: &Log, folder: &Path, threads: usize) -> Gathered {
    let pool = ::rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .expect("a rayon pool of a few threads can be built");
    let persists: Vec<Mutex<Persist>> = (0..threads)
        .map(|number| Mutex::new(Persist::new(folder.to_owned(), KEEP).numbered(number)))
        .collect();
    let merging = Mutex::new((Reorder::new(), Merge::default()));
    pool.install(|| {
        log.windows().par_bridge().for_each(|window| {
            // A segment file per thread, so that its lock is never waited for.
            let thread = ::rayon::current_thread_index().unwrap_or(0);
            let told = {
                let mut persist = persists[thread].lock().unwrap_or_else(PoisonError::into_inner);
                tell(window, &mut persist)
            };
            let mut merging = merging.lock().unwrap_or_else(PoisonError::into_inner);
            let (reorder, merge) = &mut *merging;
            reorder.put(told.number, told);
            while let Some(told) = reorder.take() {
                merge.take(told);
            }
        });
    });
    let (_, mut merge) = merging.into_inner().unwrap_or_else(PoisonError::into_inner);
    for persist in persists {
        merge.stored(persist.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
    merge.result()
}
