//! Peer `sharded_rayon`: a map in shards; windows of events are dealt to the shards, and rayon goes over the shards. In its
//! favour a window is larger than a queue of the others: rayon starts anew for each.

use super::part_of;
use crate::keyed::load::{Click, Load, digest_of, fold};
use crate::load::CAPACITY;
use ::rayon::prelude::*;
use std::collections::HashMap;

const WINDOW: usize = 16 * CAPACITY;
const SHARDS_EACH: usize = 4;

#[derive(Default)]
struct Shard {
    states: HashMap<u64, u64>,
    inbox: Vec<Click>,
}

pub(crate) fn run(load: &Load, threads: usize) -> u64 {
    let pool = ::rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .expect("a rayon pool of a few threads can be built");
    let count = SHARDS_EACH * threads;
    let mut shards: Vec<Shard> = (0..count).map(|_| Shard::default()).collect();
    pool.install(|| {
        for window in load.clicks.chunks(WINDOW) {
            for click in window {
                shards[part_of(click, count)].inbox.push(*click);
            }
            shards.par_iter_mut().for_each(|Shard { states, inbox }| {
                for click in inbox.drain(..) {
                    fold(states.entry(click.key).or_default(), &click);
                }
            });
        }
        shards.par_iter().map(|shard| digest_of(&shard.states)).reduce(|| 0, |a, b| a ^ b)
    })
}
