//! Runs the program, on threads or on virtual time, prints a line each second, and checks what came out of it.

use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use comporta::plan::PlanSpec;

use comporta::testing::{ServiceTime, TestRuntime};
use comporta::{App, Decision, Error, Plan, Result, Snapshot};

use crate::chart;
use crate::program::{Args, CONSUMERS, Work, app};
use crate::servsim::Packets;

/// Processors on virtual time: those of the published server.
const CPUS: NonZeroUsize = NonZeroUsize::new(8).unwrap();
/// Lines between two heads of the table.
const HEAD_EVERY: usize = 20;
/// On threads, the program is looked at no more often than this.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Positions of 66,103 vehicles from 4,141 accounts, handled by consumers whose threads follow the load.
///
/// Commands that every program has work here too: `fleet check`, `fleet graph`, `fleet plan`, `fleet run` …
#[derive(Parser, Debug)]
#[command(name = "fleet")]
struct Cli {
    #[command(flatten)]
    args: Args,

    /// Run on virtual time, as fast as the machine can: the same on every machine
    #[arg(long = "virtual")]
    is_virtual: bool,

    /// A plan, which overrides the program's own
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,

    /// Draw queues, threads and CPU against time, as SVG; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Check that no packet is missing and that those of each account were handled in order
    #[arg(long)]
    verify: bool,

    /// Print what the controllers decided, and why
    #[arg(long)]
    explain: bool,

    /// Print no lines
    #[arg(short, long)]
    quiet: bool,
}

/// What was seen of a consumer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Packets that wait.
    pub queue: usize,
    /// Its threads.
    pub threads: usize,
    /// Packets it has handled.
    pub handled: u64,
}

/// What was seen at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Seconds of the program's time.
    pub at: f64,
    /// Packets that have come.
    pub came: u64,
    /// Of each consumer.
    pub consumers: [Seen; CONSUMERS.len()],
    /// How busy the processors were since the sample before, in percent.
    pub cpu: f64,
}

impl Sample {
    fn of(snapshot: &Snapshot, speed: f64) -> Self {
        let came = snapshot.stage("coordinator").map_or(0, |stage| stage.counts.arrived);
        let seen = |name: &str| {
            let stage = snapshot.stage(name);
            let runs = |stages: &[String]| stages.iter().any(|one| one == name);
            let pool = snapshot.pools.iter().find(|pool| runs(&pool.stages));
            Seen {
                queue: stage.map_or(0, |stage| stage.queued),
                threads: pool.map_or(0, |pool| pool.threads),
                handled: stage.map_or(0, |stage| stage.counts.handled),
            }
        };
        let at = snapshot.elapsed.as_secs_f64() * speed;
        Sample { at, came, consumers: CONSUMERS.map(|consumer| seen(consumer.name)), cpu: 0.0 }
    }
}

/// The command: returns 1 if something is wrong with the run, 2 with what was asked for.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match watch(&cli) {
        Ok(code) => code,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn complain(what: &dyn std::fmt::Display) {
    let _ = io::stderr().write_all(format!("fleet: {what}\n").as_bytes());
}

fn watch(cli: &Cli) -> Result<ExitCode> {
    let speed = if cli.is_virtual { 1.0 } else { cli.args.speed };
    let args = Args { speed, ..cli.args.clone() };
    let work = if cli.is_virtual { Work::Virtual } else { Work::Real(speed) };
    let app = app(args.settings(), speed, work);
    let plan = match effective(&app, args.plan(), cli.plan.as_deref()) {
        Ok(plan) => plan,
        Err(report) => {
            let _ = io::stderr().write_all(format!("{report}\n").as_bytes());
            return Ok(ExitCode::from(2));
        }
    };
    let to_stderr = cli.output.as_ref().is_some_and(|path| path.as_os_str() == "-");
    let mut table = Table::new(to_stderr, cli.quiet);
    let run = if cli.is_virtual {
        on_virtual_time(app, &plan, &mut table)?
    } else {
        on_threads(app, &plan, speed, &mut table)?
    };
    table.end(&run)?;
    if cli.explain {
        run.decisions.iter().try_for_each(|decision| table.print(&format!("{decision}\n")))?;
    }
    if let Some(path) = &cli.output {
        write(path, &chart::draw(&title(cli), &run.samples))?;
    }
    if cli.verify { verify(&args, &run, &mut table) } else { Ok(ExitCode::SUCCESS) }
}

/// What a drawing is called: how the program ran, and what decided on its threads.
fn title(cli: &Cli) -> String {
    let time = if cli.is_virtual { "virtual time" } else { "real threads" };
    let plan = cli.plan.as_deref().and_then(Path::file_name);
    let decided = plan.map_or_else(
        || cli.args.controller.to_string(),
        |plan| plan.to_string_lossy().into_owned(),
    );
    format!("fleet, {time}, {decided}")
}

/// The plan of the program, and what a file says in its place.
fn effective(app: &App, own: Plan, file: Option<&Path>) -> std::result::Result<Plan, String> {
    let Some(file) = file else { return Ok(own) };
    let mut spec = PlanSpec::new();
    spec.file(file);
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let effective = spec.validate(&app.graph(), &own, &app.catalogue(), cpus);
    effective.map(|effective| effective.plan().clone()).map_err(|report| report.to_string())
}

/// What a run left.
struct Run {
    samples: Vec<Sample>,
    last: Snapshot,
    problems: Vec<String>,
    decisions: Vec<Decision>,
}

fn on_virtual_time(app: App, plan: &Plan, table: &mut Table) -> Result<Run> {
    let mut runtime = TestRuntime::new(app, plan)?;
    runtime.set_cpus(CPUS);
    for consumer in CONSUMERS {
        let time = if consumer.busy { ServiceTime::busy } else { ServiceTime::waiting };
        runtime.service_time(consumer.name, time(consumer.takes));
    }
    let mut samples: Vec<Sample> = Vec::new();
    while !runtime.is_ended() {
        runtime.advance(Duration::from_secs(1));
        let mut sample = Sample::of(&runtime.snapshot(), 1.0);
        let before = samples.last().copied().unwrap_or_default();
        sample.cpu = computed(&before, &sample) / CPUS.get() as f64 * 100.0;
        table.line(&before, &sample)?;
        samples.push(sample);
    }
    let decisions = runtime.control().decisions("main").unwrap_or_default();
    Ok(Run { samples, last: runtime.snapshot(), problems: runtime.problems(), decisions })
}

/// Seconds of CPU that handlers used in a second between two samples.
fn computed(before: &Sample, now: &Sample) -> f64 {
    let spent = |i: usize| {
        let handled = now.consumers[i].handled - before.consumers[i].handled;
        if CONSUMERS[i].busy { handled as f64 * CONSUMERS[i].takes.as_secs_f64() } else { 0.0 }
    };
    (0..CONSUMERS.len()).map(spent).sum::<f64>() / (now.at - before.at).max(f64::MIN_POSITIVE)
}

#[expect(clippy::disallowed_methods, reason = "a run on threads takes real time")]
fn on_threads(app: App, plan: &Plan, speed: f64, table: &mut Table) -> Result<Run> {
    let running = app.start(plan)?;
    let (begin, mut printed) = (Instant::now(), Sample::default());
    let look = Duration::from_secs(1).div_f64(speed).max(LOOK_EVERY);
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let (mut samples, mut cpu) = (Vec::new(), cpu_time());
    let mut print_at = Duration::from_secs(1);
    while !running.is_ended() {
        std::thread::sleep(look);
        let mut sample = Sample::of(&running.snapshot(), speed);
        let before: Sample = samples.last().copied().unwrap_or_default();
        let used = cpu_time();
        let passed = (sample.at - before.at) / speed;
        sample.cpu = (used - cpu).max(0.0) / passed.max(1e-3) / cpus as f64 * 100.0;
        cpu = used;
        samples.push(sample);
        if begin.elapsed() >= print_at {
            print_at = begin.elapsed() + Duration::from_secs(1) - look / 2;
            table.line(&printed, &sample)?;
            printed = sample;
        }
    }
    let decisions = running.control().decisions("main").unwrap_or_default();
    let summary = running.wait();
    Ok(Run { samples, last: summary.snapshot, problems: summary.problems, decisions })
}

/// Seconds of CPU that this process has used; 0 where the system does not report it.
fn cpu_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Where lines go: standard output, unless the drawing does.
struct Table {
    to_stderr: bool,
    quiet: bool,
    lines: usize,
}

impl Table {
    fn new(to_stderr: bool, quiet: bool) -> Self {
        Table { to_stderr, quiet, lines: 0 }
    }

    fn print(&self, text: &str) -> Result {
        if self.to_stderr {
            io::stderr().write_all(text.as_bytes())?;
        } else {
            io::stdout().write_all(text.as_bytes())?;
        }
        Ok(())
    }

    fn line(&mut self, before: &Sample, now: &Sample) -> Result {
        if self.quiet {
            return Ok(());
        }
        let mut text = String::new();
        if self.lines.is_multiple_of(HEAD_EVERY) {
            text += "\n time    in";
            CONSUMERS.iter().for_each(|consumer| text += &format!(" {:>15}", consumer.name));
            text += " CPU\n    s    /s";
            CONSUMERS.iter().for_each(|_| text += "  queue thr   /s");
            text += "   %\n";
        }
        self.lines += 1;
        let seconds = (now.at - before.at).max(f64::MIN_POSITIVE);
        let rate = |now: u64, before: u64| ((now - before) as f64 / seconds).round();
        text += &format!("{:>5.0} {:>5}", now.at, rate(now.came, before.came));
        for (now, before) in now.consumers.iter().zip(&before.consumers) {
            let out = rate(now.handled, before.handled);
            text += &format!("{:>7} {:>3} {:>4}", now.queue, now.threads, out);
        }
        self.print(&format!("{text} {:>3.0}\n", now.cpu))
    }

    fn end(&self, run: &Run) -> Result {
        let last = run.samples.last().copied().unwrap_or_default();
        self.print(&format!("\n{} packets in {:.0} s\n", last.came, last.at))?;
        for (i, consumer) in CONSUMERS.iter().enumerate() {
            let most = |of: fn(&Seen) -> usize| {
                run.samples.iter().map(|sample| of(&sample.consumers[i])).max().unwrap_or(0)
            };
            self.print(&format!(
                "  {:<9} {:<26} queue {:>6} at most, threads {:>2} at most\n",
                consumer.name,
                consumer.process,
                most(|seen| seen.queue),
                most(|seen| seen.threads),
            ))?;
        }
        run.problems.iter().try_for_each(|problem| self.print(&format!("problem: {problem}\n")))
    }
}

fn write(path: &Path, text: &str) -> Result {
    if path.as_os_str() == "-" {
        io::stdout().write_all(text.as_bytes())?;
    } else {
        let failed = |error| Error::msg(format!("`{}` cannot be written: {error}", path.display()));
        File::create(path).and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
    }
    Ok(())
}

/// Compares what was handled with what one plain loop over the packets finds. That each account's packets came in order is
/// checked by the consumers: one that did not has failed.
fn verify(args: &Args, run: &Run, table: &mut Table) -> Result<ExitCode> {
    let packets = Packets::new(args.settings()).count() as u64;
    let mut wrong = Vec::new();
    if !run.last.adds_up() {
        wrong.push("the counts of the run do not add up".to_owned());
    }
    for name in CONSUMERS.map(|consumer| consumer.name) {
        let counts = run.last.stage(name).map(|stage| stage.counts).unwrap_or_default();
        if counts.handled != packets || counts.failed > 0 {
            let (handled, failed) = (counts.handled, counts.failed);
            wrong.push(format!(
                "`{name}` handled {handled} of {packets} packets, and {failed} failed"
            ));
        }
    }
    wrong.extend(run.problems.iter().cloned());
    if wrong.is_empty() {
        table.print(&format!(
            "verified: every consumer handled {packets} packets, those of each account in order\n"
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    wrong.iter().for_each(|wrong| complain(wrong));
    Ok(ExitCode::FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_is_called_after_what_decided_on_the_threads() {
        let of = |args: &[&str]| title(&Cli::try_parse_from(args).unwrap());
        assert_eq!(of(&["fleet", "--virtual"]), "fleet, virtual time, elastic");
        assert_eq!(of(&["fleet", "--controller", "ds2"]), "fleet, real threads, ds2");
        assert_eq!(of(&["fleet", "--plan", "a/my.toml"]), "fleet, real threads, my.toml");
    }
}
