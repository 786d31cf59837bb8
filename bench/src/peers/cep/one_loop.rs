//! Peer `one_loop`: no threads. What the work costs when nothing is handed on.

use crate::cep::work::{KEEP, Log, Merge, tell};
use std::path::Path;
use weblog::persist::Persist;
use weblog::show::Gathered;

pub(crate) fn run(log: &Log, folder: &Path, _: usize) -> Gathered {
    let mut persist = Persist::new(folder.to_owned(), KEEP);
    let mut merge = Merge::default();
    for window in log.windows() {
        merge.take(tell(window, &mut persist));
    }
    merge.stored(persist);
    merge.result()
}
