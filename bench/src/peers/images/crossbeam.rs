//! Peer `crossbeam`: the seven stages by hand, a bounded channel before each and as many threads
//! for each as there are cores, so that none is idle wherever the work lies.

use crate::images::work::{Folder, Images, queue, read};
use ::images::picture::{self, Grey};
use ::images::treat::{self, HALF, LEVEL, Scratch};
use crossbeam_channel::{Receiver, bounded};
use std::thread::{self, Scope};

pub(crate) fn run(images: &Images, folder: &Folder, cores: usize) {
    thread::scope(|scope| {
        let stage = Stage { scope, cores };
        let (numbers, inlet) = bounded(queue(cores));
        let mut file = Vec::new();
        let colours = stage.map(inlet, move |number: usize| {
            read(&images.files[number], &mut file);
            picture::decode(&file).expect("the file was drawn a moment ago")
        });
        let greys = stage.map(colours, treat::grayscale);
        let inked = stage.map(greys, |mut image: Grey| {
            treat::threshold(&mut image, LEVEL);
            image
        });
        let mut scratch = Scratch::default();
        let blurred = stage.map(inked, move |mut image: Grey| {
            let radius = treat::radius(image.height);
            treat::blur(&mut image, radius, &mut scratch);
            image
        });
        let cleared = stage.map(blurred, |mut image: Grey| {
            treat::threshold(&mut image, HALF);
            image
        });
        let inverted = stage.map(cleared, |mut image: Grey| {
            treat::invert(&mut image);
            image
        });
        for _ in 0..cores {
            let inverted = inverted.clone();
            scope.spawn(move || {
                let mut file = Vec::new();
                for (number, image) in inverted {
                    picture::encode(&image, &mut file).expect("the pixels are those of an image");
                    folder.save(number, &file);
                }
            });
        }
        drop(inverted);
        for number in 0..images.files.len() {
            numbers.send((number, number)).expect("the stages take images until the last one");
        }
        drop(numbers);
    });
}

struct Stage<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    cores: usize,
}

impl<'scope> Stage<'scope, '_> {
    /// The threads of one stage, and the channel behind it. Images carry their numbers.
    fn map<T: Send + 'scope, U: Send + 'scope>(
        &self,
        inlet: Receiver<(usize, T)>,
        step: impl FnMut(T) -> U + Clone + Send + 'scope,
    ) -> Receiver<(usize, U)> {
        let (outlet, next) = bounded(queue(self.cores));
        for _ in 0..self.cores {
            let (inlet, outlet, mut step) = (inlet.clone(), outlet.clone(), step.clone());
            self.scope.spawn(move || {
                for (number, image) in inlet {
                    if outlet.send((number, step(image))).is_err() {
                        return;
                    }
                }
            });
        }
        next
    }
}
