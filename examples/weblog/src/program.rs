//! The program: how the stages are joined, and how it runs where nobody says otherwise.
//!
//! ```text
//! source ─▶ window ─┐      ┌─▶ persist ──────────────┐
//!     ...           ├─▶ copy ─▶ correlate ─▶ report ─┼─▶ show
//! source ─▶ window ─┘      └─▶ filter ────▶ alarm ───┘
//! ```
//!
//! A log has a source of its own, which reads its lines, and a window: so what is found does not depend
//! on how several logs happen to mix. `copy` and `filter` may run many times at once but keep the order
//! in which windows come, so that alarms are the same under every plan; `persist` and `correlate` need
//! no order.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use comporta::{App, Error, Plan, Result, Stage, sources};

use crate::alarm::{self, Watch};
use crate::batch::{Gather, Reader, Record, Shared};
use crate::correlate::{self, Reporter};
use crate::generate::generate;
use crate::persist::{self, Persist};
use crate::show::{Said, Show};

/// Where lines come from.
#[derive(Clone, Debug)]
pub enum Input {
    /// So many lines made up from a seed.
    Generated {
        /// How many.
        lines: usize,
        /// From what.
        seed: u64,
    },
    /// Lines that lie in memory.
    Kept(Arc<[String]>),
    /// The lines of a file.
    File(PathBuf),
    /// The lines of standard input.
    Stdin,
}

impl Input {
    /// Its lines, all of them at hand: for comparing.
    ///
    /// # Errors
    /// When they cannot be read, or were read already.
    pub fn lines(&self) -> Result<Box<dyn Iterator<Item = String>>> {
        match self {
            Input::Generated { lines, seed } => Ok(Box::new(generate(*seed).take(*lines))),
            Input::Kept(lines) => Ok(Box::new(kept(Arc::clone(lines)))),
            Input::File(path) => {
                let text = fs::read(path)?;
                let text = String::from_utf8_lossy(&text).into_owned();
                // As `sources::lines` reads them: a last line need not end.
                let ended = text.strip_suffix('\n').unwrap_or(&text);
                let line = |line: &str| line.strip_suffix('\r').unwrap_or(line).to_owned();
                let lines: Vec<String> = match &*text {
                    "" => Vec::new(),
                    _ => ended.split('\n').map(line).collect(),
                };
                Ok(Box::new(lines.into_iter()))
            }
            Input::Stdin => Err(Error::msg("standard input cannot be read twice")),
        }
    }
}

/// Kept lines, handed out as they are read from a log: each a text of its own.
pub fn kept(lines: Arc<[String]>) -> impl Iterator<Item = String> {
    (0..lines.len()).map(move |n| lines[n].clone())
}

/// What the program is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What to read: a log, or several.
    pub inputs: Vec<Input>,
    /// Lines in a window.
    pub window: usize,
    /// Where segments go.
    pub folder: PathBuf,
    /// How many segments an instance of `persist` keeps.
    pub keep: usize,
}

/// Joins the stages; `show` is handed all that is found.
pub fn app<S>(settings: Settings, show: S) -> App
where
    S: Stage<In = Said, Ports = ()> + Clone + Sync,
{
    let Settings { inputs, window: size, folder, keep } = settings;
    let app = App::new("weblog");
    let logs = inputs.len();
    let copy = app.map("copy", |batch: Shared| batch).ordered();
    for (log, input) in inputs.into_iter().enumerate() {
        let name = |stage: &str| named(stage, log, logs);
        let source = match input {
            Input::Generated { lines, seed } => {
                app.source(name("source"), move || generate(seed).take(lines).map(Record::read))
            }
            Input::Kept(lines) => app.source(name("source"), move || kept(lines).map(Record::read)),
            Input::File(path) => {
                app.source(name("source"), move || sources::lines(path).map(Reader::new))
            }
            Input::Stdin => app.source(name("source"), || {
                Reader::new(sources::lines_of("standard input", io::stdin()))
            }),
        };
        let window = app.stage(name("window"), Gather::new(log, logs, size));
        app.connect(source, window);
        app.connect(window, copy);
    }
    let persist = app.stage("persist", Persist::new(folder, keep)).effects();
    let correlate = app.stage("correlate", correlate::stage);
    let report = app.stage("report", Reporter::default());
    let filter = app.stage("filter", alarm::filter).ordered();
    let alarm = app.stage("alarm", Watch::default());
    let show = app.stage("show", show);
    app.connect(copy, persist); // one port, three times: each is handed the same window
    app.connect(copy, correlate);
    app.connect(copy, filter);
    app.connect(correlate, report);
    app.connect(filter, alarm);
    app.connect(persist, show);
    app.connect(report, show);
    app.connect(alarm, show);
    app
}

/// What a stage is called that each log has: `window`, or `window1`, `window2` and so on.
#[must_use]
pub fn named(stage: &str, log: usize, logs: usize) -> String {
    if logs == 1 { stage.to_owned() } else { format!("{stage}{}", log + 1) }
}

/// Watches the access logs of web servers (combined or common log format): raises alarms while it
/// goes by, stores it in segments, and tells at the end who came, and who scanned.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The logs to read, each from a server of its own, `-` for standard input; made-up ones if there
    /// are none
    logs: Vec<PathBuf>,

    /// How many lines to make up
    #[arg(long, value_name = "N", default_value_t = 1_000_000, conflicts_with = "logs")]
    lines: usize,

    /// How many logs to deal them to
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "logs")]
    sources: usize,

    /// What to make them up from
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "logs")]
    seed: u64,

    /// Lines in a window
    #[arg(long, value_name = "LINES", default_value_t = 1_000)]
    window: usize,

    /// Where to store segments [default: a new folder for temporary files, removed at the end]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// How many segments, of 32 MiB, each instance of `persist` keeps
    #[arg(long, value_name = "N", default_value_t = 64)]
    keep: usize,

    /// Compare all that was found with what one plain loop finds
    #[arg(long)]
    verify: bool,
}

/// The program, as told on the command line.
///
/// # Errors
/// What was told makes no sense.
pub fn build(args: Args) -> Result<App> {
    let Args { logs, lines, sources, seed, window, out, keep, verify } = args;
    if sources == 0 {
        return Err(Error::msg("--sources 0 would make up nothing: use at least 1"));
    }
    let mut inputs = if logs.is_empty() { made_up(lines, sources, seed) } else { Vec::new() };
    for path in logs {
        inputs.push(if path.as_os_str() == "-" {
            Input::Stdin
        } else {
            readable(&path)?;
            Input::File(path)
        });
    }
    let stdin = inputs.iter().filter(|input| matches!(input, Input::Stdin)).count();
    if verify && stdin > 0 {
        return Err(Error::msg("--verify reads the log twice: name a file instead of `-`"));
    }
    if stdin > 1 {
        return Err(Error::msg("standard input can be read once: name `-` once"));
    }
    if keep == 0 {
        return Err(Error::msg("--keep 0 would remove every segment: use at least 1"));
    }
    let temporary = out.is_none();
    let folder = out.unwrap_or_else(new_folder);
    if let Some(segment) = persist::left_behind(&folder) {
        let folder = folder.display();
        let message = format!("{folder} holds {segment} from another run: name another folder");
        return Err(Error::msg(message));
    }
    let verify = verify.then(|| (inputs.clone(), window));
    let show = Show::new(folder.clone(), verify);
    let show = if temporary { show.temporary() } else { show };
    let logs = inputs.len();
    let app = app(Settings { inputs, window, folder, keep }, show);
    app.set_plan(plan(logs));
    Ok(app)
}

/// So many lines, dealt to so many made-up logs.
#[must_use]
pub fn made_up(lines: usize, sources: usize, seed: u64) -> Vec<Input> {
    let share = |log: usize| lines / sources + usize::from(log < lines % sources);
    let made = |log: usize| Input::Generated { lines: share(log), seed: seed + log as u64 };
    (0..sources).map(made).collect()
}

/// Refuses a log that cannot be read. The source would refuse most of them, too, but it is opened
/// last, when the folder for segments has been made; and a folder fails only when it is read.
fn readable(log: &Path) -> Result<()> {
    let named = |error: io::Error| Error::msg(format!("{}: {error}", log.display()));
    let kind = fs::metadata(log).map_err(named)?;
    if kind.is_dir() {
        let log = log.display();
        let message = format!("{log} is a folder: name a file, or `-` for standard input");
        return Err(Error::msg(message));
    }
    // A pipe can be opened only once: whoever writes to it would be ended by its closing.
    if kind.is_file() {
        File::open(log).map_err(named)?;
    }
    Ok(())
}

/// How it runs where nobody says otherwise.
fn plan(logs: usize) -> Plan {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    // Few places: most stages are handed whole windows, of some 150 kB each.
    let mut plan = Plan::new().every(|stage| stage.capacity(8));
    let windows = (0..logs).map(|log| named("window", log, logs));
    for name in windows.chain(["alarm".to_owned()]) {
        plan = plan.stage(name, |stage| stage.capacity(4_096)); // of lines
    }
    for name in ["persist", "correlate", "filter"] {
        plan = plan.stage(name, |stage| stage.instances(cpus));
    }
    plan
}

/// The name of a folder that is not there yet; `persist` makes it when the program starts.
fn new_folder() -> PathBuf {
    let base = std::env::temp_dir();
    let named = |n| base.join(format!("weblog-{}-{n}", std::process::id()));
    (0u32..).map(named).find(|folder| !folder.exists()).unwrap_or(base.clone())
}
