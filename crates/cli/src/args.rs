//! The arguments every program understands, beside its own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, Resettable};
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use comporta_model::plan::Policy;

use crate::show::exit_codes;

/// The top of the command line; the program's name and what it is for are put in.
#[derive(Debug, Parser)]
#[command(
    subcommand_required = true,
    disable_help_subcommand = true,
    max_term_width = 100,
    override_usage = "\n  PROGRAM [OPTIONS]\n  PROGRAM COMMAND [OPTIONS]"
)]
pub(crate) struct Top {
    #[command(subcommand)]
    pub(crate) command: Verb,
}

/// What can be done with a program.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the program; meant if no command is named
    Run(RunArgs),
    /// Check the program and the plan, and run nothing
    Check(PlanArgs),
    /// Draw the program
    Graph(GraphArgs),
    /// Print the plan that would hold, with every default and who said what
    Plan(ShowPlanArgs),
    /// List the policies: how threads choose what to do next
    Policies,
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
}

/// Where the plan comes from. Later words go over earlier ones: files as given, then flags.
#[derive(Debug, Args)]
#[command(next_help_heading = "How it runs")]
pub(crate) struct PlanArgs {
    /// A plan (TOML); several go one over the other
    #[arg(long, short, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) plan: Vec<PathBuf>,

    /// How threads choose what to do next
    #[arg(long, value_name = "NAME", value_parser = policies())]
    pub(crate) policy: Option<String>,

    /// Threads [default: one per CPU]
    #[arg(long, short, value_name = "N")]
    pub(crate) threads: Option<usize>,

    /// Events one visit takes at most, where the plan does not say so of a stage [default: 256]
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<usize>,

    /// Any setting of a plan, as in `stage.split.instances=4`; `plan --keys` lists them
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,

    /// End after this long: what is in the program is still handled
    #[arg(long = "for", value_name = "TIME", value_parser = duration, help_heading = "How it runs")]
    pub(crate) limit: Option<Duration>,

    /// Print the summary as one JSON object on the last line of standard output
    #[arg(long, help_heading = "What it shows")]
    pub(crate) json: bool,

    /// No progress and no summary, only problems
    #[arg(long, short, help_heading = "What it shows")]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,

    /// As an SVG picture
    #[arg(long, conflicts_with = "dot", help_heading = "What it shows")]
    pub(crate) svg: bool,

    /// As text for Graphviz
    #[arg(long, help_heading = "What it shows")]
    pub(crate) dot: bool,

    /// In letters any terminal has
    #[arg(long, conflicts_with_all = ["svg", "dot"], help_heading = "What it shows")]
    pub(crate) ascii: bool,

    /// Into a file
    #[arg(long, short, value_name = "FILE", help_heading = "What it shows")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowPlanArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,

    /// Only what this plan would change
    #[arg(long, value_name = "FILE", help_heading = "What it shows")]
    pub(crate) diff: Option<PathBuf>,

    /// Every key a plan may have, with what it means
    #[arg(long, help_heading = "What it shows")]
    pub(crate) keys: bool,
}

fn policies() -> PossibleValuesParser {
    PossibleValuesParser::new(Policy::ALL.iter().map(|(_, names, about)| {
        PossibleValue::new(names[0]).aliases(names[1..].iter().copied()).help(*about)
    }))
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "expected a duration such as `500ms`, `10s` or `1h 30m`".to_owned())
}

/// Which verbs are about the program, and so take its own arguments.
const ABOUT_PROGRAM: [&str; 4] = ["run", "check", "graph", "plan"];

/// The command line of the program called `name`, whose own arguments are `A`.
pub(crate) fn command<A: Args>(name: &str) -> Command {
    // What the program says of itself stands with its own arguments.
    let own = A::augment_args(Command::new("own"));
    let about = own.get_about().cloned();
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
    if let Some(about) = &about {
        top = top.about(about.clone());
    }
    for verb in ABOUT_PROGRAM {
        top = top.mut_subcommand(verb, |command| {
            let said = command.get_about().cloned();
            let command = A::augment_args(command.next_help_heading(Resettable::Reset));
            // What the program says of itself must not take the place of what the verb does.
            match said {
                Some(said) => command.about(said).long_about(Resettable::Reset),
                None => command,
            }
        });
    }
    top
}

/// What was asked for, and the program's own arguments if the verb takes them.
pub(crate) fn parse<A: Args>(
    name: &str,
    args: impl Iterator<Item = OsString>,
) -> Result<(Verb, Option<A>), clap::Error> {
    let mut command = command::<A>(name);
    let mut args: Vec<OsString> = args.collect();
    let first = args.first().and_then(|arg| arg.to_str()).unwrap_or_default();
    let verb = command.get_subcommands().any(|verb| verb.get_name() == first);
    let version = command.get_version().is_some() && matches!(first, "--version" | "-V");
    if !(verb || version || matches!(first, "--help" | "-h")) {
        args.insert(0, "run".into());
    }
    args.insert(0, name.into());
    let matches = command.try_get_matches_from_mut(args)?;
    let own = match matches.subcommand() {
        Some((verb, matches)) if ABOUT_PROGRAM.contains(&verb) => {
            Some(A::from_arg_matches(matches)?)
        }
        _ => None,
    };
    Ok((Top::from_arg_matches(&matches)?.command, own))
}
