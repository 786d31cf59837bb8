//! Peer `rayon`: one parallel iterator over the images, all seven steps of an image in one task.
//! No stages, hence no queues between them and nothing to schedule: an image stays in one cache.

use crate::images::work::{Folder, Images, read, treat};
use ::images::treat::Scratch;
use rayon::prelude::*;

pub(crate) fn run(images: &Images, folder: &Folder, cores: usize) {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(cores)
        .build()
        .expect("a rayon pool of a few threads can be built");
    pool.install(|| {
        // An image a task: images differ two hundredfold in size, so that larger shares end late.
        let tasks = images.files.par_iter().enumerate().with_max_len(1);
        let hands = || (Scratch::default(), Vec::new(), Vec::new());
        tasks.for_each_init(hands, |(scratch, file, to), (number, path)| {
            read(path, file);
            treat(file, scratch, to);
            folder.save(number, to);
        });
    });
}
