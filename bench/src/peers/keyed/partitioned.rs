//! Peer `partitioned`: a thread for each part of the hashes with a map of its own, `Vec` batches through bounded crossbeam
//! channels.

use super::part_of;
use crate::keyed::load::{Click, Load, digest_of, fold};
use crate::load::{BATCH, CAPACITY_BATCHES};
use crossbeam_channel::bounded;
use std::collections::HashMap;
use std::thread;

pub(crate) fn run(load: &Load, threads: usize) -> u64 {
    thread::scope(|scope| {
        let (mut senders, mut workers) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let (sender, inlet) = bounded::<Vec<Click>>(CAPACITY_BATCHES);
            senders.push(sender);
            workers.push(scope.spawn(move || {
                let mut states: HashMap<u64, u64> = HashMap::new();
                for batch in inlet {
                    for click in &batch {
                        fold(states.entry(click.key).or_default(), click);
                    }
                }
                digest_of(&states)
            }));
        }
        let mut batches: Vec<Vec<_>> = senders.iter().map(|_| Vec::new()).collect();
        for click in load.clicks.iter() {
            let part = part_of(click, threads);
            batches[part].push(*click);
            if batches[part].len() == BATCH {
                let full = std::mem::replace(&mut batches[part], Vec::with_capacity(BATCH));
                let _ = senders[part].send(full); // a worker that panics is told by its join
            }
        }
        for (sender, batch) in senders.iter().zip(batches) {
            let _ = sender.send(batch);
        }
        drop(senders);
        workers.into_iter().fold(0, |sum, worker| sum ^ worker.join().expect("workers end"))
    })
}
