//! The command line of a program: what every program understands (`options`) joined with the program's own
//! arguments, and what was given. The ids of ours begin with `comporta-`, so that they cannot clash with the fields
//! of the program's arguments.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, Resettable};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, ValueEnum};
use clap_complete::Shell;
use comporta_model::plan::nearest;

use crate::compare::{By, Line, Loads, Policies, Threads};
use crate::options;
use crate::show::{When, exit_codes};
use crate::stand_ins::{StandIns, stand_in};

/// What can be done with a program.
#[derive(Debug)]
pub(crate) enum Verb {
    Run(RunArgs),
    Check(PlanArgs),
    Graph(GraphArgs),
    Plan(ShowPlanArgs),
    Compare(Box<CompareArgs>),
    Policies { policy: Option<String> },
    Admissions { controller: Option<String> },
    Completions { shell: Shell },
}

/// Where the plan comes from. Later settings override earlier ones: files in the order given, then flags.
#[derive(Debug)]
pub(crate) struct PlanArgs {
    pub(crate) base: BaseArgs,
    pub(crate) policy: Option<String>,
    pub(crate) threads: Option<usize>,
}

/// Settings of the plan that every command about the program takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct BaseArgs {
    pub(crate) plan: Vec<PathBuf>,
    pub(crate) batch: Option<usize>,
    pub(crate) set: Vec<String>,
    pub(crate) stub: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct RunArgs {
    pub(crate) plan: PlanArgs,
    pub(crate) limit: Option<Duration>,
    pub(crate) failures: Option<PathBuf>,
    pub(crate) replay: Option<PathBuf>,
    pub(crate) json: bool,
    pub(crate) explain: bool,
    pub(crate) keys: bool,
    pub(crate) quiet: bool,
    pub(crate) progress: Progress,
}

/// A comparison. It takes lists where a run takes one value.
#[derive(Debug)]
pub(crate) struct CompareArgs {
    pub(crate) policies: Policies,
    pub(crate) threads: Option<Threads>,
    pub(crate) load: Loads,
    pub(crate) rounds: usize,
    pub(crate) limit: Option<Duration>,
    pub(crate) by: By,
    pub(crate) base: BaseArgs,
    pub(crate) allow_effects: bool,
    pub(crate) svg: bool,
    pub(crate) output: Option<PathBuf>,
    pub(crate) json: bool,
    pub(crate) progress: Progress,
    /// The command line of a run.
    pub(crate) line: Line,
}

#[derive(Debug)]
pub(crate) struct GraphArgs {
    pub(crate) plan: PlanArgs,
    pub(crate) svg: bool,
    pub(crate) dot: bool,
    pub(crate) output: Option<PathBuf>,
    pub(crate) ascii: bool,
}

#[derive(Debug)]
pub(crate) struct ShowPlanArgs {
    pub(crate) plan: PlanArgs,
    pub(crate) diff: Option<PathBuf>,
    pub(crate) keys: bool,
    pub(crate) said: bool,
}

/// One value of an argument that has at most one.
fn one<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> Option<T> {
    matches.get_one::<T>(id).cloned()
}

/// The value of an argument that has a default.
fn given<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> T {
    one(matches, id).expect("`options` gives it a default, or requires it")
}

fn all<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> Vec<T> {
    matches.get_many::<T>(id).into_iter().flatten().cloned().collect()
}

impl Verb {
    /// What was asked for; every command of `options` is one of these.
    fn of(name: &str, of: &ArgMatches) -> Verb {
        match name {
            "run" => Verb::Run(RunArgs::of(of)),
            "check" => Verb::Check(PlanArgs::of(of)),
            "graph" => Verb::Graph(GraphArgs::of(of)),
            "plan" => Verb::Plan(ShowPlanArgs::of(of)),
            "compare" => Verb::Compare(Box::new(CompareArgs::of(of))),
            "policies" => Verb::Policies { policy: one(of, "policy") },
            "admissions" => Verb::Admissions { controller: one(of, "controller") },
            "completions" => Verb::Completions { shell: given(of, "shell") },
            other => unreachable!("`options` has no command `{other}`"),
        }
    }
}

impl PlanArgs {
    fn of(of: &ArgMatches) -> PlanArgs {
        PlanArgs {
            base: BaseArgs::of(of),
            policy: one(of, "comporta-policy"),
            threads: one(of, "comporta-threads"),
        }
    }
}

impl BaseArgs {
    fn of(of: &ArgMatches) -> BaseArgs {
        BaseArgs {
            plan: all(of, "comporta-plan"),
            batch: one(of, "comporta-batch"),
            set: all(of, "comporta-set"),
            stub: all(of, "comporta-stub"),
        }
    }
}

impl RunArgs {
    fn of(of: &ArgMatches) -> RunArgs {
        RunArgs {
            plan: PlanArgs::of(of),
            limit: one(of, "comporta-for"),
            failures: one(of, "comporta-failures"),
            replay: one(of, "comporta-replay"),
            json: of.get_flag("comporta-json"),
            explain: of.get_flag("comporta-explain"),
            keys: of.get_flag("comporta-keys"),
            quiet: of.get_flag("comporta-quiet"),
            progress: given(of, "comporta-progress"),
        }
    }
}

impl CompareArgs {
    fn of(of: &ArgMatches) -> CompareArgs {
        CompareArgs {
            policies: given(of, "comporta-policies"),
            threads: one(of, "comporta-threads-list"),
            load: given(of, "comporta-load"),
            rounds: given(of, "comporta-rounds"),
            limit: one(of, "comporta-for"),
            by: given(of, "comporta-by"),
            base: BaseArgs::of(of),
            allow_effects: of.get_flag("comporta-allow-effects"),
            svg: of.get_flag("comporta-svg"),
            output: one(of, "comporta-output"),
            json: of.get_flag("comporta-json"),
            progress: given(of, "comporta-progress"),
            line: Line::default(),
        }
    }
}

impl GraphArgs {
    fn of(of: &ArgMatches) -> GraphArgs {
        GraphArgs {
            plan: PlanArgs::of(of),
            svg: of.get_flag("comporta-svg"),
            dot: of.get_flag("comporta-dot"),
            output: one(of, "comporta-output"),
            ascii: of.get_flag("comporta-ascii"),
        }
    }
}

impl ShowPlanArgs {
    fn of(of: &ArgMatches) -> ShowPlanArgs {
        ShowPlanArgs {
            plan: PlanArgs::of(of),
            diff: one(of, "comporta-diff"),
            keys: of.get_flag("comporta-keys"),
            said: of.get_flag("comporta-said"),
        }
    }
}

/// The values of `--progress`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress {
    Auto,
    Always,
    Never,
}

impl ValueEnum for Progress {
    fn value_variants<'a>() -> &'a [Self] {
        &[Progress::Auto, Progress::Always, Progress::Never]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Progress::Auto => "auto",
            Progress::Always => "always",
            Progress::Never => "never",
        }))
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
    let mut top = options::top().name(name.to_owned()).bin_name(name.to_owned());
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
    let (word, given) = matches.subcommand().expect("`options` requires a command");
    let own = match ABOUT_PROGRAM.contains(&word) {
        true => Some(A::from_arg_matches(given)?),
        false => None,
    };
    let mut verb = Verb::of(word, given);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nothing;

    fn read(line: &str) -> Verb {
        let args = line.split_whitespace().map(OsString::from);
        parse::<Nothing>("program", args).unwrap_or_else(|error| panic!("{line}: {error}")).verb
    }

    #[test]
    fn every_command_is_declared_and_read_alike() {
        options::top().debug_assert();
        for command in options::top().get_subcommands() {
            let value = if command.get_name() == "completions" { "bash" } else { "" };
            let read = format!("{:?}", read(&format!("{} {value}", command.get_name())));
            let name = command.get_name();
            assert!(read.to_lowercase().starts_with(name), "{name} is read as {read}");
        }
    }

    #[test]
    fn every_option_is_read_as_what_it_is_declared_to_be() {
        let plan = "--plan a -p b --batch 3 --set k=v --stub s --policy single --threads 2";
        let run = read(&format!(
            "run {plan} --for 1m --failures f --replay r --json --explain --keys -q --progress never"
        ));
        let Verb::Run(run) = run else { panic!("{run:?}") };
        let base = &run.plan.base;
        assert_eq!(
            (base.plan.len(), base.batch, base.set.len(), base.stub.len()),
            (2, Some(3), 1, 1)
        );
        assert_eq!((run.plan.policy.as_deref(), run.plan.threads), (Some("single"), Some(2)));
        assert_eq!(run.limit, Some(Duration::from_secs(60)));
        assert_eq!((run.failures.is_some(), run.replay.is_some()), (true, true));
        assert!(
            run.json
                && run.explain
                && run.keys
                && run.quiet
                && matches!(run.progress, Progress::Never)
        );
        let compare = read(
            "compare --policies single -t 1,2 --load 5k --rounds 9 --for 1s --by p99 --allow-effects --svg -o x \
             --json --progress always",
        );
        let Verb::Compare(compare) = compare else { panic!("{compare:?}") };
        assert!(compare.threads.is_some() && compare.rounds == 9 && compare.by == By::P99);
        assert!(compare.allow_effects && compare.svg && compare.json && compare.output.is_some());
        let graph = read(&format!("graph {plan} --ascii -o -"));
        assert!(matches!(graph, Verb::Graph(GraphArgs { ascii: true, output: Some(_), .. })));
        let shown = read(&format!("plan {plan} --diff d --keys --said"));
        assert!(matches!(
            shown,
            Verb::Plan(ShowPlanArgs { diff: Some(_), keys: true, said: true, .. })
        ));
    }
}
