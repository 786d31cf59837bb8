//! The arguments that every program understands, beside its own. Their ids begin with `comporta-`, so that
//! they cannot clash with the fields of the program's arguments.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, Resettable, StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use comporta_model::plan::nearest;
use comporta_policy::Registry;

use crate::compare::{self, By, Line, Loads, Policies, Threads};
use crate::show::{When, exit_codes};
use crate::stand_ins::{StandIns, stand_in};

/// The top of the command line; the program's name and what it is for are put in.
#[derive(Debug, Parser)]
#[command(subcommand_required = true, disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Top {
    #[command(subcommand)]
    pub(crate) command: Verb,
}

/// What can be done with a program.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the program (the default command)
    Run(RunArgs),
    /// Check the program and the plan without running anything
    Check(PlanArgs),
    /// Draw the program
    Graph(GraphArgs),
    /// Print every setting that would be in effect, with its origin
    Plan(ShowPlanArgs),
    /// Run the program under several policies, thread counts and loads, and report which is best
    Compare(Box<CompareArgs>),
    /// List the scheduling policies, or describe one
    Policies {
        /// The policy to describe: its parameters and its source
        policy: Option<String>,
    },
    /// List the admission controllers, or describe one
    Admissions {
        /// The controller to describe: its parameters and its source
        controller: Option<String>,
    },
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
}

/// Where the plan comes from. Later settings override earlier ones: files in the order given, then flags.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "How it runs")]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) base: BaseArgs,

    /// The scheduling policy: `NAME`, or `NAME(key=value, ...)`; `policies` lists them
    /// [default: stealing]
    #[arg(id = "comporta-policy", long = "policy", value_name = "NAME")]
    #[arg(value_parser = PolicyParser, hide_possible_values = true, display_order = 2)]
    pub(crate) policy: Option<String>,

    /// The number of threads; with several clusters, of the one that names no stages
    /// [default: one per CPU]
    #[arg(id = "comporta-threads", long = "threads", short = 't', value_name = "N")]
    #[arg(display_order = 3)]
    pub(crate) threads: Option<usize>,
}

/// Settings of the plan that every command about the program takes.
#[derive(Clone, Debug, Default, Args)]
#[group(skip)]
#[command(next_help_heading = "How it runs")]
pub(crate) struct BaseArgs {
    /// A plan file (TOML); later files override earlier ones
    #[arg(id = "comporta-plan", long = "plan", short = 'p', value_name = "FILE")]
    #[arg(value_hint = clap::ValueHint::FilePath, display_order = 1)]
    pub(crate) plan: Vec<PathBuf>,

    /// The most events that one visit takes, unless the plan sets it for a stage [default: 512]
    #[arg(id = "comporta-batch", long = "batch", value_name = "N", display_order = 4)]
    pub(crate) batch: Option<usize>,

    /// Any setting of a plan, as in `stage.split.instances=4`; `plan --keys` lists them
    #[arg(id = "comporta-set", long = "set", value_name = "KEY=VALUE")]
    #[arg(value_hint = clap::ValueHint::Other, display_order = 5)]
    pub(crate) set: Vec<String>,

    /// Drop the events sent to this stage instead of running it, so that it has no side effects
    #[arg(id = "comporta-stub", long = "stub", value_name = "STAGE")]
    #[arg(value_hint = clap::ValueHint::Other, display_order = 6)]
    pub(crate) stub: Vec<String>,
}

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,

    /// Drain the program after this time: events in it are still handled
    #[arg(id = "comporta-for", long = "for", value_name = "TIME", value_parser = duration)]
    #[arg(help_heading = "How it runs")]
    pub(crate) limit: Option<Duration>,

    /// Append failed events to this file while the program runs: a line of JSON each, with the
    /// reason
    #[arg(id = "comporta-failures", long = "failures", value_name = "FILE")]
    #[arg(help_heading = "What fails", value_hint = clap::ValueHint::FilePath)]
    pub(crate) failures: Option<PathBuf>,

    /// Feed the events of such a file back to the stages that failed them, without opening the
    /// sources
    #[arg(id = "comporta-replay", long = "replay", value_name = "FILE")]
    #[arg(help_heading = "What fails", value_hint = clap::ValueHint::FilePath)]
    pub(crate) replay: Option<PathBuf>,

    /// Print the summary as one JSON object on the last line of standard output
    #[arg(id = "comporta-json", long = "json", help_heading = "What it shows")]
    pub(crate) json: bool,

    /// Report at the end what the policy did, and why
    #[arg(id = "comporta-explain", long = "explain", help_heading = "What it shows")]
    pub(crate) explain: bool,

    /// Count the busiest keys of keyed stages, and report them at the end
    #[arg(id = "comporta-keys", long = "keys", help_heading = "What it shows")]
    pub(crate) keys: bool,

    /// Print no progress and no summary, only problems
    #[arg(id = "comporta-quiet", long = "quiet", short = 'q', help_heading = "What it shows")]
    pub(crate) quiet: bool,

    /// Show progress: `auto` (if standard error is a terminal), `always` (without one, as a line every
    /// few seconds) or `never`
    #[arg(id = "comporta-progress", long = "progress", value_name = "WHEN", value_enum)]
    #[arg(default_value_t, help_heading = "What it shows", hide_possible_values = true)]
    #[arg(hide_default_value = true)]
    pub(crate) progress: Progress,
}

/// A comparison. It takes lists where a run takes one value.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "What it compares")]
pub(crate) struct CompareArgs {
    /// Policies, separated by commas, or `all`; `policies` lists them
    #[arg(id = "comporta-policies", long = "policies", value_name = "LIST")]
    #[arg(default_value = "all", value_parser = compare::policies)]
    pub(crate) policies: Policies,

    /// Numbers of threads, as in `1,2,4` [default: as the plan has it]
    #[arg(id = "comporta-threads-list", long = "threads", short = 't', value_name = "LIST")]
    #[arg(value_parser = compare::threads)]
    pub(crate) threads: Option<Threads>,

    /// Events per second of all sources together, as in `1000,5k`; `max` is as fast as it goes
    #[arg(id = "comporta-load", long = "load", value_name = "LIST")]
    #[arg(default_value = "max", value_parser = compare::loads)]
    pub(crate) load: Loads,

    /// Runs of each combination; fewer than 6 prove nothing, 9 tolerate one that was disturbed
    #[arg(id = "comporta-rounds", long = "rounds", value_name = "N", default_value_t = 6)]
    #[arg(value_parser = rounds)]
    pub(crate) rounds: usize,

    /// Drain each run after this time: events in it are still handled
    #[arg(id = "comporta-for", long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) limit: Option<Duration>,

    /// The measure to rank by: `throughput` (events per second that leave the program), `input` (that
    /// enter it), `mean` or `p99` (of the time in the program), `cpu` (processor time per event)
    #[arg(id = "comporta-by", long = "by", value_name = "FIGURE", value_enum, default_value_t)]
    #[arg(hide_possible_values = true)]
    pub(crate) by: By,

    #[command(flatten)]
    pub(crate) base: BaseArgs,

    /// Run the program although its stages have side effects, which every run repeats
    #[arg(id = "comporta-allow-effects", long = "allow-effects", help_heading = "How it runs")]
    #[arg(display_order = 7)]
    pub(crate) allow_effects: bool,

    /// Draw a chart (SVG), too; `-o` names the file
    #[arg(id = "comporta-svg", long = "svg", help_heading = "What it shows")]
    pub(crate) svg: bool,

    /// Draw a chart into this file; `-` is standard output, and the table goes to standard error
    #[arg(id = "comporta-output", long = "output", short = 'o', value_name = "FILE")]
    #[arg(help_heading = "What it shows", value_hint = clap::ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Print every run and the verdict as one JSON object on the last line, in place of the table
    #[arg(id = "comporta-json", long = "json", help_heading = "What it shows")]
    pub(crate) json: bool,

    /// Show progress on standard error: `auto` (in place on a terminal, else a line for each run) or
    /// `never`
    #[arg(id = "comporta-progress", long = "progress", value_name = "WHEN", value_enum)]
    #[arg(default_value_t, help_heading = "What it shows", hide_possible_values = true)]
    #[arg(hide_default_value = true)]
    pub(crate) progress: Progress,

    /// The command line of a run.
    #[arg(skip)]
    pub(crate) line: Line,
}

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct GraphArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,

    /// Draw an SVG picture; the default if `-o` names a file that ends in `.svg`
    #[arg(id = "comporta-svg", long = "svg", conflicts_with = "comporta-dot")]
    #[arg(help_heading = "What it shows")]
    pub(crate) svg: bool,

    /// Print text for Graphviz; the default if `-o` names a file that ends in `.dot` or `.gv`
    #[arg(id = "comporta-dot", long = "dot", help_heading = "What it shows")]
    pub(crate) dot: bool,

    /// Draw into this file; `-` is standard output [default: -]
    #[arg(id = "comporta-output", long = "output", short = 'o', value_name = "FILE")]
    #[arg(help_heading = "What it shows", value_hint = clap::ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Use ASCII characters only
    #[arg(id = "comporta-ascii", long = "ascii", help_heading = "What it shows")]
    #[arg(conflicts_with_all = ["comporta-svg", "comporta-dot"])]
    pub(crate) ascii: bool,
}

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct ShowPlanArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,

    /// Print only what this plan would change
    #[arg(id = "comporta-diff", long = "diff", value_name = "FILE")]
    #[arg(help_heading = "What it shows")]
    pub(crate) diff: Option<PathBuf>,

    /// Print every key that a plan may have, with its meaning
    #[arg(id = "comporta-keys", long = "keys", help_heading = "What it shows")]
    pub(crate) keys: bool,

    /// Print only the settings that were given, without the defaults
    #[arg(id = "comporta-said", long = "said", help_heading = "What it shows")]
    pub(crate) said: bool,
}

/// The values of `--progress`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Progress {
    #[default]
    Auto,
    Always,
    Never,
}

/// A policy by name, with parameters or without. The names are checked later, because a program may
/// register its own; those of the library are offered as completions.
#[derive(Clone)]
struct PolicyParser;

impl TypedValueParser for PolicyParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let offers = Registry::new().offers().into_iter();
        Some(Box::new(
            offers.map(|offer| {
                PossibleValue::new(offer.name).aliases(offer.aliases).help(offer.about)
            }),
        ))
    }
}

impl From<Progress> for When {
    fn from(progress: Progress) -> Self {
        match progress {
            Progress::Auto => When::Auto,
            Progress::Always => When::Always,
            Progress::Never => When::Never,
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "expected a duration such as `500ms`, `10s` or `1h 30m`".to_owned())
}

/// The most rounds: a bound against slips.
const ROUNDS_MAX: usize = 1_000;

fn rounds(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (1..=ROUNDS_MAX).contains(n));
    number.ok_or_else(|| format!("use 1 to {ROUNDS_MAX}"))
}

/// Which verbs are about the program, and so take its own arguments.
const ABOUT_PROGRAM: [&str; 5] = ["run", "check", "graph", "plan", "compare"];

/// Whether an argument is ours, and not the program's.
pub(crate) fn is_ours(arg: &clap::Arg) -> bool {
    arg.get_id().as_str().starts_with("comporta-")
        || matches!(arg.get_id().as_str(), "help" | "version")
}

/// The command line of the program called `name`, whose own arguments are `A`.
pub(crate) fn command<A: Args>(name: &str) -> Command {
    // What the program says of itself stands with its own arguments.
    let own = A::augment_args(Command::new("own"));
    let mut top = Top::command().name(name.to_owned()).bin_name(name.to_owned());
    top = top.override_usage(format!("{name} [OPTIONS]\n       {name} COMMAND [OPTIONS]"));
    top = top.after_help(format!(
        "Without a command the program is run: `{name} run --help` lists its options.\n\n\
         Exit codes:\n{}",
        exit_codes()
    ));
    if let Some(version) = own.get_version() {
        top = top.version(version.to_owned());
    }
    top = match own.get_about() {
        Some(about) => top.about(about.clone()),
        None => top.about(Resettable::Reset),
    };
    for verb in ABOUT_PROGRAM {
        top = top.mut_subcommand(verb, |command| {
            let said = command.get_about().cloned();
            let command = rename_clashing(command, &own);
            let command = A::augment_args(command.next_help_heading(Resettable::Reset));
            // What the program says of itself must not take the place of what the verb does.
            match said {
                Some(said) => command.about(said).long_about(Resettable::Reset),
                None => command,
            }
        });
    }
    top.mut_subcommand("compare", |compare| compare.after_help(compare_help(name)))
}

fn compare_help(name: &str) -> String {
    format!(
        "Every combination is run once in every round, in an order that changes. Each run is a \
         separate process without standard input, and its output is discarded. The table shows the \
         medians of the rounds. A row that does not differ from the best with 95 % confidence is a \
         tie; with fewer than 6 rounds nothing is proven. Ctrl-C ends the comparison and prints the \
         results so far.\n\n\
         Examples:\n  \
         {name} compare                                    all policies, as fast as it goes\n  \
         {name} compare --threads 1,2,4 --rounds 9         which policy, and how many threads\n  \
         {name} compare --load 1k,5k --for 10s --by p99    the lowest p99 under a given load"
    )
}

/// If the program has an option of the same name, the name means the program's option: ours loses its
/// letter and is called `--comporta-NAME`.
fn rename_clashing(command: Command, own: &Command) -> Command {
    let longs: Vec<&str> = own
        .get_arguments()
        .flat_map(|arg| arg.get_long_and_visible_aliases().unwrap_or_default())
        .collect();
    let shorts: Vec<char> = own
        .get_arguments()
        .flat_map(|arg| arg.get_short_and_visible_aliases().unwrap_or_default())
        .collect();
    command.mut_args(|arg| {
        let arg = match arg.get_short() {
            Some(short) if shorts.contains(&short) => arg.short(Resettable::Reset),
            _ => arg,
        };
        match arg.get_long().map(str::to_owned) {
            Some(long) if longs.contains(&long.as_str()) => arg.long(format!("comporta-{long}")),
            _ => arg,
        }
    })
}

/// The parsed command line.
pub(crate) struct Parsed<A> {
    pub(crate) verb: Verb,
    /// The program's own arguments, if the verb takes them.
    pub(crate) own: Option<A>,
    /// What stands in for those that were not given.
    pub(crate) stand_ins: Option<StandIns>,
}

/// Reads the command line.
pub(crate) fn parse<A: Args>(
    name: &str,
    args: impl Iterator<Item = OsString>,
) -> Result<Parsed<A>, clap::Error> {
    let mut command = command::<A>(name);
    let mut args: Vec<OsString> = args.collect();
    let first = args.first().and_then(|arg| arg.to_str()).unwrap_or_default().to_owned();
    let verbs: Vec<String> =
        command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let version = command.get_version().is_some() && matches!(first.as_str(), "--version" | "-V");
    if first == "help" && !std::path::Path::new("help").exists() {
        args.remove(0);
        args.truncate(1);
        args.push("--help".into());
    } else if !(verbs.contains(&first) || version || matches!(first.as_str(), "--help" | "-h")) {
        if let Some(verb) = slip(&first, &verbs) {
            let message = format!("there is no command `{first}`: did you mean `{verb}`?\n");
            return Err(command.error(ErrorKind::InvalidSubcommand, message));
        }
        args.insert(0, "run".into());
    }
    args.insert(0, name.into());
    let (matches, stand_ins) = match command.try_get_matches_from_mut(&args) {
        Ok(matches) => (matches, None),
        Err(error) => stand_in::<A>(self::command::<A>(name), &args, error)?,
    };
    let own = match matches.subcommand() {
        Some((verb, matches)) if ABOUT_PROGRAM.contains(&verb) => {
            Some(A::from_arg_matches(matches)?)
        }
        _ => None,
    };
    let mut verb = Top::from_arg_matches(&matches)?.command;
    if let Verb::Compare(compare) = &mut verb {
        let of = |name| command.find_subcommand(name);
        if let (Some(from), Some(run)) = (of("compare"), of("run")) {
            compare.line = Line::new(from, run, &args[2..]);
        }
    }
    Ok(Parsed { verb, own, stand_ins })
}

/// The verb that a first word was meant to be, if it is nearly one and no file.
fn slip(first: &str, verbs: &[String]) -> Option<String> {
    let word = first.len() > 2 && first.chars().all(|c| c.is_ascii_lowercase());
    if !word || std::path::Path::new(first).exists() {
        return None;
    }
    let near = nearest(first, verbs.iter().map(String::as_str))?;
    let letters = |text: &str| {
        let mut letters: Vec<char> = text.chars().collect();
        letters.sort_unstable();
        letters
    };
    // Letters swapped, one left out, one too many: not every word that is somewhat alike.
    let alike = letters(first) == letters(&near)
        || near.len().abs_diff(first.len()) == 1
            && (near.starts_with(&first[..2]) || near.ends_with(&first[first.len() - 2..]));
    alike.then_some(near)
}
