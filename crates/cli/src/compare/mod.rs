//! `compare`: runs a program under several policies, thread counts and loads, again and again, and
//! says which is best, and how sure that is.
//!
//! 1. `runs`: what is compared, and in which order it is run.
//! 2. here: what is asked for, checked before anything runs; what comes out.
//! 3. `line`: the command line of a run.
//! 4. `child`: one run, as a process of its own.
//! 5. `life`: all runs, one after the other; `progress` is what is shown meanwhile.
//! 6. `verdict`: what the runs say; `told`, in words.
//! 7. `table`, `json`, `chart`: the comparison for people, for programs, and as a picture.
//!
//! Only `life` and `child` touch the world.

mod runs;
mod line;
mod child;
mod life;
mod progress;
mod verdict;
mod told;
mod table;
mod json;
mod chart;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use comporta_model::graph::{Graph, Kind};
use comporta_model::plan::{Plan, Settings};
use comporta_plan::{PlanSpec, bare};
use comporta_runtime::{App, PolicyWarning};

pub(crate) use line::Line;
pub(crate) use runs::{Loads, Policies, Threads, loads, policies, threads};
pub(crate) use verdict::By;

use crate::args::{BaseArgs, CompareArgs, PlanArgs};
use crate::graph::is_drawable;
use crate::show::{self, Exit, When};
use crate::{Refusal, flags, rehearse, validate};
use line::{Common, rates};
use runs::{Combination, Load};
use verdict::{Ranking, Run};

/// Of a run that has a time, how much longer it may take to end than its time and its drain.
const GRACE: Duration = Duration::from_secs(30);

/// A comparison that can be run.
pub(crate) struct Asked {
    app: String,
    /// The cluster that policies and threads are about.
    cluster: String,
    combinations: Vec<Combination>,
    /// What policies do that may surprise.
    warnings: Vec<PolicyWarning>,
    sources: Vec<String>,
    line: Line,
    base: BaseArgs,
    rounds: usize,
    by: By,
    limit: Option<Duration>,
    /// When a run is given up.
    patience: Option<Duration>,
    chart: Option<Chart>,
    json: bool,
    progress: When,
}

/// Said before figures are measured that say little.
const DEBUG_BUILD: &str = "this is a debug build, and the figures of a release build (`cargo run --release`) may rank otherwise";

/// Where the chart goes.
enum Chart {
    Stdout,
    File(PathBuf, File),
}

/// A comparison that was run, as far as it came.
struct Comparison {
    app: String,
    cluster: String,
    by: By,
    rounds: usize,
    combinations: Vec<Combination>,
    runs: Vec<Run>,
    rankings: Vec<Ranking>,
    /// The signal that ended it.
    stopped: Option<u8>,
}

impl Asked {
    /// Checks what is asked for against the program; nothing runs yet.
    // Long because each flag becomes one field, and is checked where it does.
    pub(crate) fn new(app: &App, files: &PlanSpec, args: CompareArgs) -> Result<Self, Refusal> {
        let graph = app.graph();
        let own = app.plan();
        let of = |policy: Option<&str>, threads: Option<usize>| {
            let policy = policy.map(str::to_owned);
            flags(files.clone(), &PlanArgs { base: args.base.clone(), policy, threads }, &own)
        };
        let plain = of(None, None);
        let settings = validate(app, &plain).map_err(Refusal::Plan)?;
        without_effects(&graph, settings.settings(), args.allow_effects)?;
        for plan in &args.base.plan {
            if !plan.is_file() {
                let plan = plan.display();
                let why = format!("`{plan}` is no file: every run reads the plan anew");
                return Err(Refusal::Said(why));
            }
        }
        let sources = graph.stages.iter().filter(|stage| stage.kind == Kind::Source);
        let sources: Vec<String> = sources.map(|stage| stage.name.to_string()).collect();
        let cluster = plain.rest(&own);
        let threads: Vec<Option<usize>> = match &args.threads {
            Some(list) => list.0.iter().copied().map(Some).collect(),
            None => vec![None],
        };
        let policies = args.policies.of(&app.catalogue().policies).map_err(Refusal::Said)?;
        let (mut combinations, mut warnings) = (Vec::new(), Vec::new());
        for load in &args.load.0 {
            if *load != Load::Max && sources.is_empty() {
                let why =
                    "the program has no sources that a load could be given to: use `--load max`";
                return Err(Refusal::Said(why.to_owned()));
            }
            for policy in &policies {
                for &threads in &threads {
                    let mut spec = of(Some(policy), threads);
                    rates(*load, &sources).iter().for_each(|rate| spec.set("--load", rate));
                    let validated = validate(app, &spec).map_err(Refusal::Plan)?;
                    for warning in rehearse(app, &validated)? {
                        if !warnings.contains(&warning) {
                            warnings.push(warning); // once, whatever the load
                        }
                    }
                    combinations.push(Combination {
                        policy: policy.clone(),
                        threads: threads_of(validated.settings(), &cluster),
                        threads_said: threads.is_some(),
                        load: *load,
                    });
                }
            }
        }
        let chart = chart_of(&args)?;
        let patience = args.limit.map(|limit| limit + drain(settings.plan()) + GRACE);
        Ok(Asked {
            app: graph.name.to_string(),
            cluster,
            combinations,
            warnings,
            sources,
            line: args.line,
            base: args.base,
            rounds: args.rounds,
            by: args.by,
            limit: args.limit,
            patience,
            chart,
            json: args.json,
            progress: args.progress.into(),
        })
    }

    fn common(&self) -> Common<'_> {
        Common { base: &self.base, limit: self.limit, sources: &self.sources }
    }

    /// Runs it all, and tells.
    ///
    /// # Errors
    /// If the first run shows that none can tell anything.
    pub(crate) fn run(mut self) -> Result<Exit, Refusal> {
        if cfg!(debug_assertions) {
            crate::warn(&DEBUG_BUILD);
        }
        for warning in &self.warnings {
            crate::warn(warning);
        }
        let chart = self.chart.take();
        let life::Ran { runs, stopped } = life::all(&self).map_err(Refusal::Said)?;
        let failed = runs.iter().any(|run| run.end.is_err());
        let mut exit = match stopped {
            Some(signal) => Exit::Stopped(signal),
            None if failed => Exit::Problems,
            None => Exit::Done,
        };
        let comparison = Comparison::of(
            self.app,
            self.cluster,
            self.by,
            self.rounds,
            self.combinations,
            runs,
            stopped,
        );
        match chart {
            None => {}
            Some(Chart::File(path, mut file)) => {
                let written = file.write_all(chart::svg(&comparison).as_bytes());
                if let Err(error) = written {
                    show::terminal::say(&format!("error: {}: {error}\n", path.display()));
                    exit = Exit::Problems;
                }
            }
            Some(Chart::Stdout) => {
                // The table is for people, who look elsewhere.
                show::terminal::say(&table::text(&comparison, show::wide(), show::colours()));
                return Ok(show::print_last(&chart::svg(&comparison), exit));
            }
        }
        if self.json {
            return Ok(show::print_last(&json::json(&comparison, exit), exit));
        }
        let terminal = std::io::stdout().is_terminal();
        let wide = if terminal { show::wide() } else { usize::MAX };
        let text = table::text(&comparison, wide, terminal && show::colours());
        Ok(show::print_last(&text, exit))
    }
}

/// Where the chart goes, if one is asked for; a file that cannot be written is found before hours of
/// work.
fn chart_of(args: &CompareArgs) -> Result<Option<Chart>, Refusal> {
    let Some(path) = args.output.as_ref().filter(|path| path.as_os_str() != "-") else {
        let wanted = args.svg || args.output.is_some();
        if wanted && args.json {
            let why = "the chart and `--json` cannot both go to standard output: give `-o FILE`";
            return Err(Refusal::Said(why.to_owned()));
        }
        return Ok(wanted.then_some(Chart::Stdout));
    };
    is_drawable(path)?;
    match File::create(path) {
        Ok(file) => Ok(Some(Chart::File(path.clone(), file))),
        Err(error) => Err(Refusal::Said(format!("{}: {error}", path.display()))),
    }
}

/// Refuses a program whose stages do something to the world outside that nobody allowed to repeat.
fn without_effects(graph: &Graph, settings: &Settings, allowed: bool) -> Result<(), Refusal> {
    let stages = graph.stages.iter().zip(&settings.stages);
    let with = stages.filter(|(spec, validated)| spec.effects && !validated.stub);
    let names: Vec<_> = with.map(|(spec, _)| (&*spec.name, spec.kind)).collect();
    if allowed || names.is_empty() {
        return Ok(());
    }
    let listed: Vec<_> = names.iter().map(|(name, _)| format!("`{name}`")).collect();
    let stubs = names.iter().filter(|(_, kind)| *kind == Kind::Stage);
    let stubs: Vec<_> = stubs.map(|(name, _)| format!("--stub {name}")).collect();
    let stubs = match stubs.len() {
        0 => String::new(),
        _ => format!("drop the events sent there with `{}`, or ", stubs.join(" ")),
    };
    let what = if names.len() == 1 { "this stage has" } else { "these stages have" };
    Err(Refusal::Said(format!(
        "a comparison runs the program many times, and {what} effects on the world outside: {}\n  \
         = help: {stubs}give `--allow-effects` if they may be repeated",
        listed.join(", "),
    )))
}

fn drain(plan: &Plan) -> Duration {
    plan.drain.unwrap_or(comporta_model::plan::defaults::DRAIN)
}

fn threads_of(settings: &Settings, cluster: &str) -> usize {
    let named = settings.clusters.iter().find(|settings| settings.name == cluster);
    named.or(settings.clusters.first()).map_or(1, |settings| settings.threads)
}

impl Comparison {
    fn of(
        app: String,
        cluster: String,
        by: By,
        rounds: usize,
        combinations: Vec<Combination>,
        runs: Vec<Run>,
        stopped: Option<u8>,
    ) -> Self {
        let mut loads: Vec<Load> = combinations.iter().map(|one| one.load).collect();
        loads.dedup(); // they stand together
        let ranking = |load: &Load| {
            let of = combinations.iter().enumerate().filter(|(_, one)| one.load == *load);
            let of: Vec<usize> = of.map(|(at, _)| at).collect();
            Ranking::of(*load, by, &of, &runs)
        };
        let rankings = loads.iter().map(ranking).collect();
        Comparison { app, cluster, by, rounds, combinations, runs, rankings, stopped }
    }

    fn name(&self, combination: usize) -> String {
        self.combinations[combination].name()
    }

    /// The rounds in which every combination was run.
    fn rounds_run(&self) -> usize {
        let ran = |round: &usize| self.runs.iter().filter(|run| run.round == *round).count();
        (0..self.rounds).filter(|round| ran(round) == self.combinations.len()).count()
    }

    /// What its figures are.
    fn about(&self) -> String {
        let rounds = match (self.rounds_run(), crate::counted(self.rounds, "round")) {
            (ran, all) if ran == self.rounds => all,
            (ran, all) => format!("{ran} of {all}"),
        };
        format!("medians of {rounds}, ranked by {}", self.by.name())
    }

    fn sentence(&self, ranking: &Ranking) -> String {
        ranking.sentence(|combination| self.name(combination))
    }

    /// What a plan says of a combination.
    fn plan_lines(&self, combination: usize) -> Vec<String> {
        let Combination { policy, threads, threads_said, .. } = &self.combinations[combination];
        let cluster = bare(&self.cluster);
        let mut lines = vec![format!("cluster.{cluster}.policy = {policy:?}")];
        lines.extend(threads_said.then(|| format!("cluster.{cluster}.threads = {threads}")));
        lines
    }
}
