//! The program: how the stages are joined, and how it runs where nobody says otherwise.
//!
//! ```text
//! pictures ─▶ (draw ─▶) load ─▶ grayscale ─▶ threshold ─▶ blur ─▶ threshold2 ─▶ invert ─▶ save ─▶ report
//!        └────────────────────────────────────────────────────────────────────────────────────────▲
//! ```
//!
//! No stage needs images in order: results are called after the number their image was given.

use std::fs;
use std::path::PathBuf;

use comporta::{App, Error, Plan, Result, Stage};

use crate::draw::{LARGEST, SMALLEST};
use crate::files::{self, Draw, Item, Job, Load, Save};
use crate::picture::{Colour, Grey};
use crate::report::Report;
use crate::treat::{self, HALF, LEVEL, Scratch};

/// Where images come from.
#[derive(Clone, Debug)]
pub enum Input {
    /// The files of a folder.
    Folder(PathBuf),
    /// Captchas that are made up.
    Made {
        /// How many.
        count: u64,
        /// From what.
        seed: u64,
        /// How wide they may be.
        width_max: usize,
        /// The folder they are kept in.
        folder: PathBuf,
    },
}

/// What the program is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What to treat.
    pub input: Input,
    /// Where results go.
    pub out: PathBuf,
    /// What is brighter is paper.
    pub level: u8,
}

/// Joins the stages; `report` hears of each image when it is found and when it is saved.
pub fn app<R>(settings: Settings, report: R) -> App
where
    R: Stage<In = Job, Ports = ()> + Clone + Sync,
{
    let Settings { input, out, level } = settings;
    let app = App::new("images");
    let (pictures, draw) = match input {
        Input::Folder(folder) => (app.source("pictures", move || jobs(&folder)), None),
        Input::Made { count, seed, width_max, folder } => {
            let draw = Draw { folder: folder.clone(), seed, width_max };
            let job = move |number| {
                Job::new(number, folder.join(files::captcha_name(seed, number, width_max)))
            };
            let pictures = app.source("pictures", move || (0..count).map(job));
            (pictures, Some(app.stage("draw", draw)))
        }
    };
    let load = app.stage("load", Load::default());
    let grayscale = app.map("grayscale", |Item { job, image }: Item<Colour>| Item {
        job,
        image: treat::grayscale(image),
    });
    let threshold = app.map_in_place("threshold", move |item: &mut Item<Grey>| {
        treat::threshold(&mut item.image, level);
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
    let save = app.stage("save", Save::new(out)).effects();
    let report = app.stage("report", report);
    match draw {
        None => app.connect(pictures, load),
        Some(draw) => {
            app.connect(pictures, draw);
            app.connect(draw, load);
        }
    }
    app.connect(load, grayscale);
    app.connect(grayscale, threshold);
    app.connect(threshold, blur);
    app.connect(blur, threshold2);
    app.connect(threshold2, invert);
    app.connect(invert, save);
    app.connect(save, report);
    app.connect(pictures, report);
    app
}

fn jobs(folder: &std::path::Path) -> Result<impl Iterator<Item = Job> + use<>> {
    Ok((0..).zip(files::find(folder)?).map(|(number, path)| Job::new(number, path)))
}

/// Makes captchas black and white: loads images, turns them grey, black and white, blurs them,
/// black and white again, inverts and saves them.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The folder whose files to treat, PNG and JPEG; made-up captchas if there is none
    folder: Option<PathBuf>,

    /// How many captchas to make up
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "folder")]
    count: u64,

    /// What to make them up from
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "folder")]
    seed: u64,

    /// How wide they may be: 256 x 80 is the smallest, 2560 x 1600 the largest
    #[arg(long, value_name = "PIXELS", default_value_t = LARGEST.0, conflicts_with = "folder",
          value_parser = width)]
    width_max: usize,

    /// The folder the results go to; captchas are kept in a folder inside of it
    #[arg(long, value_name = "DIR", default_value = "target/images")]
    out: PathBuf,

    /// What is brighter than this, from 0 to 255, is taken for paper, the rest for ink
    #[arg(long, value_name = "N", default_value_t = LEVEL)]
    level: u8,

    /// Compare every result, pixel by pixel, with what a plain loop makes
    #[arg(long)]
    verify: bool,
}

fn width(text: &str) -> Result<usize, String> {
    let (least, most) = (SMALLEST.0, LARGEST.0);
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("use {least} to {most}"))
}

/// The program, as told on the command line.
///
/// # Errors
/// What was told makes no sense.
pub fn build(args: Args) -> Result<App> {
    let Args { folder, count, seed, width_max, out, level, verify } = args;
    let input = match folder {
        None => Input::Made { count, seed, width_max, folder: out.join("captchas") },
        Some(folder) => {
            let place = |folder| fs::canonicalize(folder).ok();
            if place(&folder).is_some_and(|read| place(&out) == Some(read)) {
                let message = "results would lie among the images: name another folder with --out";
                return Err(Error::msg(message));
            }
            Input::Folder(folder)
        }
    };
    let report = Report::new(out.clone(), verify.then_some(level));
    let app = app(Settings { input, out, level }, report);
    app.set_plan(plan());
    Ok(app)
}

/// How it runs where nobody says otherwise: an image takes milliseconds and megabytes, so visits
/// and queues are short, and few of those that fail are kept.
pub fn plan() -> Plan {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut plan = Plan::new()
        .every(|stage| stage.capacity(4).batch(1).instances(cpus).failures_max(4))
        .stage("report", |stage| stage.capacity(1_024).batch(64));
    for name in ["load", "report"] {
        plan = plan.stage(name, |stage| stage.failures_max(1_000)); // names only, no pixels
    }
    plan
}
