//! The entrants of `cep`: ours under a plan, and the same program written by hand. All do the same
//! with the functions of the example `weblog`, hold at most `work::QUEUE` windows in a queue, and
//! find the same (asserted after every run).

pub(crate) mod comporta;
pub(crate) mod one_loop;
pub(crate) mod stages;
pub(crate) mod pool;
pub(crate) mod turns;
pub(crate) mod rayon;

use crate::cep::work::Log;
use std::path::Path;
use weblog::show::Gathered;

pub(crate) struct CepPeer {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Whether ours must keep up with it; if not it is there to be compared with.
    pub(crate) judged: bool,
    /// The log, the folder, and how many threads to use where that can be chosen.
    pub(crate) run: fn(&Log, &Path, usize) -> Gathered,
}

pub(crate) const PEERS: &[CepPeer] = &[
    CepPeer {
        name: "one_loop",
        about: "one thread, one loop over the windows: a reference, not judged by",
        judged: false,
        run: one_loop::run,
    },
    CepPeer {
        name: "stages",
        about: "a thread per stage, bounded crossbeam channels",
        judged: true,
        run: stages::run,
    },
    CepPeer {
        name: "pool",
        about: "reader, workers that take whole windows, merger; bounded crossbeam channels",
        judged: true,
        run: pool::run,
    },
    CepPeer {
        name: "turns",
        about: "threads that take turns at the log, and at merging; no channel",
        judged: true,
        run: turns::run,
    },
    CepPeer {
        name: "rayon",
        about: "windows through rayon's par_bridge, merged in order",
        judged: true,
        run: rayon::run,
    },
];
