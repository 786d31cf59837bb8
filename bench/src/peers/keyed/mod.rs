//! The entrants of `keyed`: each folds the values of every key in their order and returns the digest of all keys. One
//! thread or task hands the events out, and `threads` more have state; queues hold `load::CAPACITY` events, messages
//! are of `load::BATCH`.

pub(crate) mod comporta;
pub(crate) mod tokio_hash;
pub(crate) mod partitioned;
pub(crate) mod sharded_rayon;

use crate::keyed::load::{Click, Load};

pub(crate) struct KeyedPeer {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The events, and how many threads to use; returns the digest.
    pub(crate) run: fn(&Load, usize) -> u64,
}

pub(crate) const PEERS: &[KeyedPeer] = &[
    KeyedPeer { name: "comporta", about: "a keyed stage", run: comporta::run },
    KeyedPeer {
        name: "tokio_hash",
        about: "a task for each part of the hashes, Vec batches through tokio mpsc",
        run: tokio_hash::run,
    },
    KeyedPeer {
        name: "partitioned",
        about: "a thread for each part of the hashes, Vec batches through crossbeam",
        run: partitioned::run,
    },
    KeyedPeer {
        name: "sharded_rayon",
        about: "a sharded map, windows of events dealt to the shards, rayon over the shards",
        run: sharded_rayon::run,
    },
];

/// Which of `parts` a key belongs to. The bits are not those that the maps go by.
pub(crate) fn part_of(click: &Click, parts: usize) -> usize {
    (click.key >> 17) as usize % parts
}
