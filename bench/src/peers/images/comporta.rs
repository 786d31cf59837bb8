//! Ours: the seven stages of the example `images`, as it joins them, from files to files.

use crate::images::work::{Folder, Images, read};
use ::images::picture::{self, Colour, Grey};
use ::images::treat::{self, HALF, LEVEL, Scratch};
use comporta::{App, Ended, Plan, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// An image on its way.
#[derive(Clone, Serialize, Deserialize)]
struct Item<P> {
    number: usize,
    image: P,
}

pub(crate) fn run(images: &Images, folder: &Arc<Folder>, plan: &Plan) {
    let summary = app(images, folder).run(plan).expect("the plans fit the program");
    assert_eq!(summary.ended, Ended::Complete, "{summary}");
    assert!(summary.snapshot.adds_up(), "{summary}");
}

fn app(images: &Images, folder: &Arc<Folder>) -> App {
    let app = App::new("images");
    let (files, folder) = (Arc::clone(&images.files), Arc::clone(folder));
    let count = files.len();
    let pictures = app.source("pictures", move || 0..count);
    let mut file = Vec::new();
    let load = app.process("load", move |number: usize, out| -> Result {
        read(&files[number], &mut file);
        let image = picture::decode(&file)?;
        out.send(Item { number, image });
        Ok(())
    });
    let grayscale = app.map("grayscale", |Item { number, image }: Item<Colour>| Item {
        number,
        image: treat::grayscale(image),
    });
    let threshold = app.map_in_place("threshold", |item: &mut Item<Grey>| {
        treat::threshold(&mut item.image, LEVEL);
    });
    let mut scratch = Scratch::default();
    let blur = app.map_in_place("blur", move |item: &mut Item<Grey>| {
        let radius = treat::radius(item.image.height);
        treat::blur(&mut item.image, radius, &mut scratch);
    });
    let threshold2 = app.map_in_place("threshold2", |item: &mut Item<Grey>| {
        treat::threshold(&mut item.image, HALF);
    });
    let invert = app.map_in_place("invert", |item: &mut Item<Grey>| treat::invert(&mut item.image));
    let mut file = Vec::new();
    let save = app.sink("save", move |Item { number, image }: Item<Grey>| -> Result {
        picture::encode(&image, &mut file)?;
        folder.save(number, &file);
        Ok(())
    });
    app.connect(pictures, load);
    app.connect(load, grayscale);
    app.connect(grayscale, threshold);
    app.connect(threshold, blur);
    app.connect(blur, threshold2);
    app.connect(threshold2, invert);
    app.connect(invert, save);
    app
}
