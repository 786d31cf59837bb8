//! The entrants of `images`: ours under a plan, and the same steps without Comporta. All call the
//! functions of the example `images`, and save the same bytes (asserted after every run).

pub(crate) mod comporta;
pub(crate) mod rayon;
pub(crate) mod crossbeam;

use crate::images::work::{Folder, Images};

pub(crate) struct ImagesPeer {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The images, where they go, and the cores.
    pub(crate) run: fn(&Images, &Folder, usize),
}

pub(crate) const PEERS: &[ImagesPeer] = &[
    ImagesPeer {
        name: "rayon",
        about: "all seven steps of an image in one task of a parallel iterator, a thread a core",
        run: rayon::run,
    },
    ImagesPeer {
        name: "crossbeam",
        about: "as many threads per stage as cores, bounded crossbeam channels between them",
        run: crossbeam::run,
    },
];
