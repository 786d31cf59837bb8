//! The program: reader → extrusion → renderer. Nothing here says how it runs.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args as ClapArgs;
use comporta::{App, Error, Plan, Result};

use crate::extrude::Extrude;
use crate::generate::{SCENE, Storm};
use crate::reader::Reader;
use crate::renderer::{Renderer, Report, say};
use crate::riser::{NODES_MAX, Steps};

/// What the program is asked to do.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// The file to draw, `-` for standard input; a made-up storm if there is none
    pub file: Option<PathBuf>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub storm: StormArgs,

    /// The folder the pictures go to
    #[arg(long, value_name = "DIR", default_value = "target/extrusion")]
    pub out: PathBuf,

    /// Draw every N-th step
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    pub every: u64,

    /// Sides of the prism that stands for the pipe
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(3..=512))]
    pub sides: u16,

    /// Draw the pipe so many times thicker than it is
    #[arg(long, value_name = "TIMES", default_value_t = 18.0, value_parser = positive)]
    pub thicken: f64,

    /// The side the camera stands on, in degrees
    #[arg(long, value_name = "DEGREES", default_value_t = -28, allow_negative_numbers = true, value_parser = clap::value_parser!(i16).range(-180..=180))]
    pub azimuth: i16,

    /// How high the camera stands, in degrees
    #[arg(long, value_name = "DEGREES", default_value_t = 9, value_parser = clap::value_parser!(i16).range(0..=89))]
    pub elevation: i16,

    /// How many steps may be under way at once: what bounds the memory
    #[arg(long, value_name = "STEPS", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub ahead: u64,

    /// Print the most memory the program had (Linux)
    #[arg(long)]
    pub stats: bool,
}

/// What a made-up storm is like.
#[derive(Clone, Debug, ClapArgs)]
pub struct StormArgs {
    /// Steps of the made-up storm
    #[arg(long, value_name = "N", default_value_t = 480, conflicts_with = "file")]
    pub steps: u64,

    /// Segments of its pipe
    #[arg(long, value_name = "N", default_value_t = 90, conflicts_with = "file", value_parser = segments)]
    pub segments: usize,

    /// What it is made from
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "file")]
    pub seed: u64,
}

/// So many segments as a pipe may have.
///
/// # Errors
/// What is wrong with it.
pub fn segments(text: &str) -> Result<usize, String> {
    let most = NODES_MAX - 1;
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("use 1 to {most}"))
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| *number > 0.0 && *number < 1e6);
    number.ok_or_else(|| "use a number above 0".to_owned())
}

impl Args {
    /// How segments are extruded.
    pub fn extrude(&self) -> Extrude {
        Extrude {
            sides: self.sides.into(),
            thicken: self.thicken,
            azimuth: self.azimuth.into(),
            elevation: self.elevation.into(),
        }
    }

    fn reader(&self) -> Result<Reader> {
        let Some(file) = &self.file else {
            let StormArgs { steps, segments, seed } = self.storm;
            let steps = Storm::new(steps, segments, seed).map(Ok);
            return Ok(Reader::new(Box::new(steps), SCENE, self.every, self.ahead));
        };
        let name = file.display().to_string();
        let input: Box<dyn Read + Send> = if name == "-" {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(file).map_err(|error| Error::msg(format!("{name}: {error}")))?)
        };
        let steps = Steps::open(name, BufReader::with_capacity(1 << 16, input))?;
        let scene = steps.scene();
        Ok(Reader::new(Box::new(steps), scene, self.every, self.ahead))
    }
}

/// The program, that says at its end what it has drawn.
///
/// # Errors
/// None so far; a file is opened when the program starts.
pub fn build(args: Args) -> Result<App> {
    let (out, ahead, stats) = (args.out.clone(), args.ahead, args.stats);
    let report = move |drawn| {
        let mut to = io::stdout().lock();
        say(&mut to, &out, ahead, drawn)?;
        match memory_peak_kb() {
            Some(peak) if stats => writeln!(to, "most memory: {peak} kB"),
            None if stats => writeln!(to, "most memory: not known on this system"),
            _ => Ok(()),
        }
    };
    let app = app(args, Arc::new(report));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    app.set_plan(Plan::new().stage("extrusion", |stage| stage.instances(cpus)));
    Ok(app)
}

/// The program.
pub fn app(args: Args, report: Report) -> App {
    let extrude = args.extrude();
    let renderer = Renderer::new(args.out.clone(), args.every, args.ahead, extrude, report);

    let app = App::new("extrusion");
    let reader = app.source("reader", move || args.reader());
    let extrusion = app.stage("extrusion", extrude);
    let renderer = app.stage("renderer", renderer).stateful().effects();
    app.connect(reader, extrusion);
    app.connect(extrusion, renderer);
    app
}

/// The most memory this process ever had in RAM.
fn memory_peak_kb() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
