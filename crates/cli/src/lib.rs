//! The command line that every program gets for free: `main(build)`.
//!
//! 1. `build`: the function that builds a program.
//! 2. `options`, `args`: the arguments; `stand_ins`: values for arguments that only a run needs.
//! 3. here: the commands; plans are read by `comporta-plan`.
//! 4. `show`: a run, its progress, its end; `replay`: failed events of an earlier run; `recorded`: their file.
//! 5. `graph`, `draw`: the graph, as text and as a picture.
//! 6. `compare`: many runs, and which is best.

mod build;
mod options;
mod args;
mod stand_ins;
mod policies;
mod replay;
mod recorded;
mod graph;
pub mod show;
pub mod draw;
mod compare;

use clap::{Args as _, Command, FromArgMatches as _};
use std::io::Write;
use std::path::Path;

use comporta_model::error::Error;
use comporta_model::graph::Graph;
use comporta_model::plan::{Catalogue, Plan, Settings};
use comporta_plan::{Effective, PlanSpec, Report, bare, escaped, escaped_lines, keys};
use comporta_runtime::{App, PolicyWarning, StartError};

pub use build::{Build, IntoApp, Nothing};
pub use show::Exit;

use args::{GraphArgs, Parsed, PlanArgs, RunArgs, ShowPlanArgs, Verb};
use compare::Asked;
use graph::draw_graph;
use replay::Told;
use stand_ins::StandIns;

/// Runs the command line of a program: `run`, `check`, `graph`, `plan`, `compare`, `policies`,
/// `admissions`, `completions`, beside the program's own arguments. Without a command the program
/// is run.
///
/// ```no_run
/// # mod comporta { pub use comporta_cli::{Exit, main}; pub use comporta_runtime::App; }
/// use comporta::{App, Exit};
///
/// /// Prints squares.
/// #[derive(clap::Args)]
/// struct Args {
///     /// How many
///     #[arg(default_value_t = 10)]
///     count: u64,
/// }
///
/// fn build(args: Args) -> App {
///     let app = App::new("squares");
///     let numbers = app.source("numbers", move || 1..=args.count);
///     let show = app.sink("show", |n: u64| println!("{}", n * n));
///     app.connect(numbers, show);
///     app
/// }
///
/// fn main() -> Exit {
///     comporta::main(build)
/// }
/// ```
pub fn main<M, B: Build<M>>(build: B) -> Exit {
    let mut args = std::env::args_os();
    let program = args.next().unwrap_or_default();
    let name = Path::new(&program).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|| "program".to_owned());
    let Parsed { verb, own, stand_ins } = match args::parse::<B::Args>(&name, args) {
        Ok(parsed) => parsed,
        Err(error) => {
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            return match error.use_stderr() {
                true => Exit::Refused,
                false => written(printed).unwrap_or_else(Refusal::tell),
            };
        }
    };
    let done = match (verb, own) {
        (Verb::Policies { policy }, _) => {
            told(policies::policies(&catalogue::<M, B>(build), policy.as_deref()))
        }
        (Verb::Admissions { controller }, _) => {
            told(policies::admissions(&catalogue::<M, B>(build), controller.as_deref()))
        }
        (Verb::Completions { shell }, _) => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut args::command::<B::Args>(&name), name, &mut text);
            print(&String::from_utf8_lossy(&text))
        }
        (Verb::Plan(ShowPlanArgs { keys: true, .. }), _) => print(&known_keys()),
        (verb, Some(own)) => {
            if let Some(stand_ins) = stand_ins {
                return looked_at(about(verb, build, own), stand_ins);
            }
            let json = match &verb {
                Verb::Run(run) => run.json,
                Verb::Compare(compare) => compare.json,
                _ => false,
            };
            about(verb, build, own).map_err(|refusal| match json {
                true => Refusal::Json(Box::new(refusal)),
                false => refusal,
            })
        }
        (_, None) => Ok(Exit::Done), // every other verb is about the program
    };
    done.unwrap_or_else(Refusal::tell)
}

/// How it ends that a program was looked at for which values stand in.
fn looked_at(done: Result<Exit, Refusal>, stand_ins: StandIns) -> Exit {
    match done {
        Err(Refusal::Build(_)) => {
            let _ = stand_ins.missing.print();
            Exit::Refused
        }
        done => {
            tell(&stand_ins.told());
            done.unwrap_or_else(Refusal::tell)
        }
    }
}

/// What can be chosen by name: in the program, if it can be built from nothing; else in the library.
fn catalogue<M, B: Build<M>>(build: B) -> Catalogue {
    let nothing = B::Args::augment_args(Command::new("own")).try_get_matches_from(["own"]);
    let args = nothing.and_then(|matches| B::Args::from_arg_matches(&matches)).ok();
    let own = PlanSpec::new().app::<B::Own>().ok();
    let app = args.zip(own).and_then(|(args, own)| build.build(args, own).ok());
    app.unwrap_or_else(|| App::new("")).catalogue()
}

fn told(text: Result<String, String>) -> Result<Exit, Refusal> {
    match text {
        Ok(text) => print(&text),
        Err(message) => Err(Refusal::Build(Error::msg(message))),
    }
}

/// Why nothing was done.
enum Refusal {
    Plan(Report),
    /// What is wrong with the program, or what its policies refuse; and with the plan.
    Graph(Vec<String>, Option<Report>),
    Build(Error),
    Said(String),
    /// One of these, in a run that was to end with a line of JSON.
    Json(Box<Refusal>),
    Output(std::io::Error),
}

/// Does what is asked of the program.
// Long because each command that runs nothing is one arm.
fn about<M, B: Build<M>>(verb: Verb, build: B, args: B::Args) -> Result<Exit, Refusal> {
    let compared;
    let said = match &verb {
        Verb::Compare(compare) => {
            compared = PlanArgs { base: compare.base.clone(), policy: None, threads: None };
            &compared
        }
        Verb::Run(RunArgs { plan, .. })
        | Verb::Check(plan)
        | Verb::Graph(GraphArgs { plan, .. })
        | Verb::Plan(ShowPlanArgs { plan, .. }) => plan,
        Verb::Policies { .. } | Verb::Admissions { .. } | Verb::Completions { .. } => {
            return Ok(Exit::Done);
        }
    };
    one_reader(&verb, said)?;
    let files = files(said);
    // Which cluster a flag is about is known for sure when the program has said what it has.
    let spec = flags(files.clone(), said, &Plan::new());
    // A program is built only from what was meant: not from a variable that is not set.
    if let (false, Err(report)) = (spec.is_read(), spec.check()) {
        return Err(Refusal::Plan(report));
    }
    let own = spec.app::<B::Own>().map_err(Refusal::Plan)?;
    let app = build.build(args, own).map_err(|error| match spec.check() {
        Ok(()) => Refusal::Build(error),
        Err(report) => Refusal::Plan(report),
    })?;
    let replayed = match &verb {
        Verb::Run(run) => replay(&app, run)?,
        _ => None,
    };
    let spec = flags(files.clone(), said, &app.plan());
    let validated = validate(&app, &spec);
    let warnings = app.check().map_err(|error| {
        let faults = match error {
            StartError::Graph(faults) => faults.iter().map(ToString::to_string).collect(),
            error => vec![error.to_string()],
        };
        Refusal::Graph(faults, spec.check().err())
    })?;
    let effective = validated.map_err(Refusal::Plan)?;
    match verb {
        Verb::Run(run) => {
            let skipped = replayed.iter().flat_map(|told| &told.warnings);
            skipped.for_each(warn);
            if !run.quiet {
                warnings.iter().for_each(warn);
                replayed.iter().for_each(|told| tell(&escaped_lines(&told.summary)));
                // What policies refuse, the start reports.
                let surprises = app.rehearse(effective.plan()).unwrap_or_default();
                surprises.iter().for_each(warn);
            }
            let options = show::Options {
                json: run.json,
                explain: run.explain,
                keys: run.keys,
                quiet: run.quiet,
                failures: run.failures,
                limit: run.limit,
                progress: run.progress.into(),
            };
            Ok(show::run(app, effective.plan(), &options))
        }
        Verb::Compare(args) => Asked::new(&app, &files, *args)?.run(),
        Verb::Graph(args) => draw_graph(&app, &effective, &args),
        Verb::Plan(ShowPlanArgs { diff: Some(other), .. }) => {
            let mut over = PlanSpec::new();
            plan_file(&mut over, &other);
            let other = validate(&app, &over).map_err(Refusal::Plan)?;
            let differences = effective.differences(&other);
            let text: String = differences.iter().map(ToString::to_string).collect();
            print(if text.is_empty() { "the plans are alike\n" } else { &text })
        }
        Verb::Plan(ShowPlanArgs { said: true, .. }) => print(&effective.said()),
        Verb::Plan(_) => print(&effective.to_string()),
        Verb::Check(_)
        | Verb::Policies { .. }
        | Verb::Admissions { .. }
        | Verb::Completions { .. } => {
            let surprises = rehearse(&app, &effective)?;
            let graph = app.graph();
            let warnings = warnings.iter().map(ToString::to_string);
            let warnings = warnings.chain(surprises.iter().map(ToString::to_string));
            let mut text: String =
                warnings.map(|warning| format!("warning: {}\n", escaped(&warning))).collect();
            text += &effects(&graph, effective.settings());
            text += &blocking(&graph, effective.settings());
            text += &format!(
                "{}: {}, {}, {}: the plan fits the program\n",
                graph.name,
                counted(graph.stages.len(), "stage"),
                counted(graph.connectors.len(), "connector"),
                counted(effective.settings().clusters.len(), "cluster"),
            );
            print(&text)
        }
    }
}

/// Has the program replay the failed events of a file, if that is asked for; returns what to say of it.
fn replay(app: &App, run: &RunArgs) -> Result<Option<Told>, Refusal> {
    let Some(path) = &run.replay else { return Ok(None) };
    if run.failures.as_ref().is_some_and(|other| is_same_file(path, other)) {
        let why =
            "--failures and --replay name the same file: what fails again would be read again";
        return Err(Refusal::Said(why.to_owned()));
    }
    replay::prepare(app, path).map(Some).map_err(|mistakes| Refusal::Graph(mistakes, None))
}

/// Whether two paths lead to one file, as hard links do, too.
#[cfg(unix)]
fn is_same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let which = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    which(one).is_some_and(|one| which(other) == Some(one))
}

#[cfg(not(unix))]
fn is_same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| other == one))
}

/// What policies would refuse, before anything runs, and what they do that may surprise.
fn rehearse(app: &App, effective: &Effective) -> Result<Vec<PolicyWarning>, Refusal> {
    app.rehearse(effective.plan())
        .map_err(|refused| Refusal::Graph(refused.iter().map(ToString::to_string).collect(), None))
}

fn validate(app: &App, spec: &PlanSpec) -> Result<Effective, Report> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    spec.validate(&app.graph(), &app.plan(), &app.catalogue(), cpus)
}

/// Read once: a file may be a pipe.
fn files(args: &PlanArgs) -> PlanSpec {
    let mut spec = PlanSpec::new();
    args.base.plan.iter().for_each(|path| plan_file(&mut spec, path));
    spec
}

/// A file, or standard input.
fn plan_file(spec: &mut PlanSpec, path: &Path) {
    match is_stdin(path) {
        true => spec.reader("standard input", std::io::stdin().lock()),
        false => spec.file(path),
    }
}

/// Whether `-` is meant.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Refuses what `-` cannot mean: standard input read twice, and failed events among the program's own output.
fn one_reader(verb: &Verb, plan: &PlanArgs) -> Result<(), Refusal> {
    let mut readers = vec!["--plan"; plan.base.plan.iter().filter(|path| is_stdin(path)).count()];
    match verb {
        Verb::Run(run) => {
            readers.extend(run.replay.as_deref().filter(|path| is_stdin(path)).map(|_| "--replay"));
            if run.failures.as_deref().is_some_and(is_stdin) {
                let why = "`--failures -`: standard output is the program's own: name a file";
                return Err(Refusal::Said(why.to_owned()));
            }
        }
        Verb::Plan(show) => {
            readers.extend(show.diff.as_deref().filter(|path| is_stdin(path)).map(|_| "--diff"));
        }
        Verb::Compare(_) if !readers.is_empty() => {
            let why = "`--plan -`: every run of a comparison reads the plan anew: name a file";
            return Err(Refusal::Said(why.to_owned()));
        }
        _ => {}
    }
    match readers.as_slice() {
        [one, other, ..] => Err(Refusal::Said(format!(
            "`{one} -` and `{other} -`: standard input can be read once only"
        ))),
        _ => Ok(()),
    }
}

/// Flags over files; the particular flags before the general one.
fn flags(mut spec: PlanSpec, args: &PlanArgs, program: &Plan) -> PlanSpec {
    let rest = bare(&spec.rest(program));
    if let Some(policy) = &args.policy {
        spec.set("--policy", &format!("cluster.{rest}.policy={policy}"));
    }
    if let Some(threads) = args.threads {
        spec.set("--threads", &format!("cluster.{rest}.threads={threads}"));
    }
    if let Some(batch) = args.base.batch {
        spec.set("--batch", &format!("every.batch={batch}"));
    }
    args.base.set.iter().for_each(|said| spec.set("--set", said));
    for stage in &args.base.stub {
        spec.set("--stub", &format!("stage.{}.stub=true", bare(stage)));
    }
    spec
}

/// The line about stages that do something to the world outside, if there are any.
fn effects(graph: &Graph, settings: &Settings) -> String {
    let stages = graph.stages.iter().zip(&settings.stages).filter(|(spec, _)| spec.effects);
    let told: Vec<_> = stages
        .map(|(spec, validated)| {
            let stub = if validated.stub { " (a stub stands in for it)" } else { "" };
            format!("`{}`{stub}", spec.name)
        })
        .collect();
    match told.len() {
        0 => String::new(),
        _ => format!("effects on the world outside: {}\n", told.join(", ")),
    }
}

/// The stages that have threads of their own.
fn blocking(graph: &Graph, settings: &Settings) -> String {
    let clusters = settings.clusters.iter().enumerate();
    let mut own = clusters.filter(|(_, cluster)| cluster.blocking);
    let Some((number, cluster)) = own.next() else { return String::new() };
    let stages = graph.stages.iter().zip(&settings.stages);
    let of = stages.filter(|(_, validated)| validated.cluster == number);
    let names: Vec<_> = of.map(|(spec, _)| format!("`{}`", spec.name)).collect();
    let threads = counted(cluster.threads, "thread");
    format!("blocking, on {threads} of their own (`blocking.threads`): {}\n", names.join(", "))
}

fn counted(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// How wide a line is where there is no terminal: as wide as people read with ease.
const WIDE: usize = 100;

/// How wide a line may be.
fn width() -> usize {
    match show::wide() {
        usize::MAX => WIDE,
        wide => wide,
    }
}

fn known_keys() -> String {
    let keys = keys();
    let width = keys.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
    keys.iter().map(|(key, about)| format!("{key:width$}  {about}\n")).collect()
}

fn print(text: &str) -> Result<Exit, Refusal> {
    written(show::print(text))
}

/// How it ends that something was printed. A reader that has seen enough is no failure.
fn written(printed: std::io::Result<()>) -> Result<Exit, Refusal> {
    match printed {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Refusal::Output(error)),
        _ => Ok(Exit::Done),
    }
}

fn warn<W: ToString>(warning: &W) {
    tell(&format!("warning: {}", escaped(&warning.to_string())));
}

fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

impl Refusal {
    /// What is wrong, a line each.
    fn problems(&self) -> Vec<String> {
        let of = |report: &Report| {
            report.mistakes().iter().map(|mistake| mistake.title().to_owned()).collect::<Vec<_>>()
        };
        match self {
            Refusal::Plan(report) => of(report),
            Refusal::Graph(faults, report) => {
                faults.iter().cloned().chain(report.iter().flat_map(of)).collect()
            }
            Refusal::Build(error) => vec![error.to_string()],
            Refusal::Said(why) => vec![why.clone()],
            Refusal::Json(inner) => inner.problems(),
            Refusal::Output(error) => vec![show::unwritten(error)],
        }
    }

    fn tell(self) -> Exit {
        if let Refusal::Json(inner) = self {
            let problems = inner.problems();
            let exit = inner.tell();
            return show::refused(problems, exit);
        }
        let (width, colours) = (width(), show::colours());
        let (text, exit) = match self {
            Refusal::Plan(report) => (report.render(width, colours), Exit::Refused),
            Refusal::Graph(faults, report) => {
                let mut text: Vec<_> =
                    faults.iter().map(|fault| format!("error: {}", escaped(fault))).collect();
                text.extend(report.map(|report| report.render(width, colours)));
                (text.join("\n"), Exit::Refused)
            }
            Refusal::Build(error) => {
                (format!("error: {}", escaped_lines(&error.to_string())), Exit::Refused)
            }
            Refusal::Said(why) => (format!("error: {}", escaped_lines(&why)), Exit::Refused),
            Refusal::Output(error) => {
                (format!("error: {}", show::unwritten(&error)), Exit::Problems)
            }
            Refusal::Json(_) => (String::new(), Exit::Refused), // told above
        };
        tell(&text);
        exit
    }
}
