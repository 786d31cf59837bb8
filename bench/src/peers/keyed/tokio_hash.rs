//! Peer `tokio_hash`: a task for each part of the hashes with a map of its own, `Vec` batches through bounded tokio mpsc.

use super::part_of;
use crate::keyed::load::{Click, Load, digest_of, fold};
use crate::load::{BATCH, CAPACITY_BATCHES};
use std::collections::HashMap;
use tokio::runtime::Builder;
use tokio::sync::mpsc::channel;

pub(crate) fn run(load: &Load, threads: usize) -> u64 {
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads)
        .build()
        .expect("a tokio runtime of a few threads can be built");
    let clicks = load.clicks.clone();
    runtime.block_on(async move {
        let (mut senders, mut tasks) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let (sender, mut inlet) = channel::<Vec<Click>>(CAPACITY_BATCHES);
            senders.push(sender);
            tasks.push(tokio::spawn(async move {
                let mut states: HashMap<u64, u64> = HashMap::new();
                while let Some(batch) = inlet.recv().await {
                    for click in &batch {
                        fold(states.entry(click.key).or_default(), click);
                    }
                }
                digest_of(&states)
            }));
        }
        let source = tokio::spawn(async move {
            let mut batches: Vec<Vec<_>> = senders.iter().map(|_| Vec::new()).collect();
            for click in clicks.iter() {
                let part = part_of(click, senders.len());
                batches[part].push(*click);
                if batches[part].len() == BATCH {
                    let full = std::mem::replace(&mut batches[part], Vec::with_capacity(BATCH));
                    let _ = senders[part].send(full).await; // a task that panics is told by its join
                }
            }
            for (sender, batch) in senders.iter().zip(batches) {
                let _ = sender.send(batch).await;
            }
        });
        source.await.expect("the source ends");
        let mut sum = 0;
        for task in tasks {
            sum ^= task.await.expect("the tasks end");
        }
        sum
    })
}
