//! The commands and options that every program understands, as `--help` lists them; `args` adds the program's own
//! arguments and reads what was given.
//!
//! Declared by calls and not by clap's derive, which would cost every program two more crates to build, of which
//! one is a procedural macro. Invariant: what is declared here under an id is read in `args` under the same id and
//! as the same type; the tests there read every command and every option.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, Command, ValueHint, value_parser};
use clap_complete::Shell;
use comporta_model::plan::parse_duration;
use comporta_policy::Registry;

use crate::args::Progress;
use crate::compare::{self, By};

const HOW: &str = "How it runs";
const COMPARES: &str = "What it compares";
const FAILS: &str = "What fails";
const SHOWS: &str = "What it shows";

/// The most rounds: a bound against slips.
const ROUNDS_MAX: usize = 1_000;

/// The top of the command line; the program's name and what it is for are put in by `args`.
pub(crate) fn top() -> Command {
    let verb = |name: &'static str, about: &'static str| Command::new(name).about(about);
    Command::new("program")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .max_term_width(100)
        .subcommands([
            verb("run", "Run the program (the default command)").args(run()),
            verb("check", "Check the program and the plan without running anything").args(plan()),
            verb("graph", "Draw the program").args(graph()),
            verb("plan", "Print every setting that would be in effect, with its origin")
                .args(show_plan()),
            verb(
                "compare",
                "Run the program under several policies, thread counts and loads, and report which is best",
            )
            .args(compare()),
            verb("policies", "List the scheduling policies, or describe one")
                .arg(word("policy", "POLICY", "The policy to describe: its parameters and its source")),
            verb("admissions", "List the admission controllers, or describe one").arg(word(
                "controller",
                "CONTROLLER",
                "The controller to describe: its parameters and its source",
            )),
            verb("completions", "Print completions for a shell").arg(
                word("shell", "SHELL", "Which shell")
                    .value_parser(value_parser!(Shell))
                    .required(true),
            ),
        ])
}

/// An argument without a name.
fn word(id: &'static str, shown: &'static str, help: &'static str) -> Arg {
    Arg::new(id).value_name(shown).help(help)
}

/// `--long`; its id is `comporta-long`.
fn flag(long: &'static str, help: &'static str) -> Arg {
    Arg::new(format!("comporta-{long}")).long(long).action(ArgAction::SetTrue).help(help)
}

/// `--long VALUE`; its id is `comporta-long`.
fn option(long: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(format!("comporta-{long}")).long(long).value_name(value).help(help)
}

/// `--long FILE`.
fn file(long: &'static str, help: &'static str) -> Arg {
    option(long, "FILE", help).value_parser(value_parser!(PathBuf)).value_hint(ValueHint::FilePath)
}

/// Settings of the plan that every command about the program takes.
fn base() -> [Arg; 4] {
    [
        file("plan", "A plan file (TOML), or `-` for standard input; later files override earlier ones")
            .short('p')
            .action(ArgAction::Append)
            .display_order(1),
        option(
            "batch",
            "N",
            "The most events that one visit takes, unless the plan sets it for a stage [default: 512]",
        )
        .value_parser(value_parser!(usize))
        .display_order(4),
        option(
            "set",
            "KEY=VALUE",
            "Any setting of a plan, as in `stage.split.instances=4`; `plan --keys` lists them",
        )
        .action(ArgAction::Append)
        .value_hint(ValueHint::Other)
        .display_order(5),
        option(
            "stub",
            "STAGE",
            "Drop the events sent to this stage instead of running it, so that it has no side effects",
        )
        .action(ArgAction::Append)
        .value_hint(ValueHint::Other)
        .display_order(6),
    ]
    .map(|arg| arg.help_heading(HOW))
}

/// Where the plan comes from.
fn plan() -> Vec<Arg> {
    let more = [
        option(
            "policy",
            "NAME",
            "The scheduling policy: `NAME`, or `NAME(key=value, ...)`; `policies` lists them \
             [default: stealing]",
        )
        .value_parser(PolicyParser)
        .hide_possible_values(true)
        .display_order(2),
        option(
            "threads",
            "N",
            "The number of threads; with several clusters, of the one that names no stages \
             [default: one per CPU]",
        )
        .short('t')
        .value_parser(value_parser!(usize))
        .display_order(3),
    ];
    base().into_iter().chain(more.map(|arg| arg.help_heading(HOW))).collect()
}

fn limit(help: &'static str) -> Arg {
    option("for", "TIME", help).value_parser(duration)
}

fn json(help: &'static str) -> Arg {
    flag("json", help).help_heading(SHOWS)
}

fn progress(help: &'static str) -> Arg {
    option("progress", "WHEN", help)
        .value_parser(value_parser!(Progress))
        .default_value("auto")
        .hide_possible_values(true)
        .hide_default_value(true)
        .help_heading(SHOWS)
}

fn run() -> Vec<Arg> {
    let more = [
        limit("Drain the program after this time: events in it are still handled")
            .help_heading(HOW),
        file(
            "failures",
            "Append failed events to this file (no `-`: standard output is the program's) while it \
             runs: a line of JSON each, with the reason",
        )
        .help_heading(FAILS),
        file(
            "replay",
            "Feed the events of such a file back to the stages that failed them, without opening the \
             sources; `-` is standard input. A line that breaks off is skipped with a warning",
        )
        .help_heading(FAILS),
        json("Print the summary as one JSON object on the last line of standard output"),
        flag("explain", "Report at the end what the policy did, and why").help_heading(SHOWS),
        flag("keys", "Count the busiest keys of keyed stages, and report them at the end")
            .help_heading(SHOWS),
        flag("quiet", "Print no progress and no summary, only problems")
            .short('q')
            .help_heading(SHOWS),
        progress(
            "Show progress: `auto` (if standard error is a terminal), `always` (without one, as a \
             line every few seconds) or `never`",
        ),
    ];
    plan().into_iter().chain(more).collect()
}

// Long because each option has its sentence.
fn compare() -> Vec<Arg> {
    let compares = [
        option(
            "policies",
            "LIST",
            "Policies, separated by commas, or `all`; `policies` lists them",
        )
        .default_value("all")
        .value_parser(compare::policies),
        option("threads", "LIST", "Numbers of threads, as in `1,2,4` [default: as the plan has it]")
            .id("comporta-threads-list")
            .short('t')
            .value_parser(compare::threads),
        option(
            "load",
            "LIST",
            "Events per second of all sources together, as in `1000,5k`; `max` is as fast as it goes",
        )
        .default_value("max")
        .value_parser(compare::loads),
        option(
            "rounds",
            "N",
            "Runs of each combination; fewer than 6 prove nothing, 9 tolerate one that was disturbed",
        )
        .default_value("6")
        .value_parser(rounds),
        limit("Drain each run after this time: events in it are still handled"),
        option(
            "by",
            "FIGURE",
            "The measure to rank by: `throughput` (events per second that leave the program), \
             `input` (that enter it), `mean` or `p99` (of the time in the program), `cpu` (processor \
             time per event)",
        )
        .value_parser(value_parser!(By))
        .default_value(By::default().word())
        .hide_possible_values(true),
    ]
    .map(|arg| arg.help_heading(COMPARES));
    let effects = flag(
        "allow-effects",
        "Run the program although its stages have side effects, which every run repeats",
    );
    let shows = [
        flag("svg", "Draw a chart (SVG), too; `-o` names the file").help_heading(SHOWS),
        file(
            "output",
            "Draw a chart into this file; `-` is standard output, and the table goes to standard error",
        )
        .short('o')
        .help_heading(SHOWS),
        json("Print every run and the verdict as one JSON object on the last line, in place of the table"),
        progress(
            "Show progress on standard error: `auto` (in place on a terminal, else a line for each \
             run) or `never`",
        ),
    ];
    let effects = effects.help_heading(HOW).display_order(7);
    compares.into_iter().chain(base()).chain([effects]).chain(shows).collect()
}

fn graph() -> Vec<Arg> {
    let more = [
        flag("svg", "Draw an SVG picture; the default if `-o` names a file that ends in `.svg`")
            .conflicts_with("comporta-dot"),
        flag(
            "dot",
            "Print text for Graphviz; the default if `-o` names a file that ends in `.dot` or `.gv`",
        ),
        file("output", "Draw into this file; `-` is standard output [default: -]").short('o'),
        flag("ascii", "Use ASCII characters only")
            .conflicts_with_all(["comporta-svg", "comporta-dot"]),
    ];
    plan().into_iter().chain(more.map(|arg| arg.help_heading(SHOWS))).collect()
}

fn show_plan() -> Vec<Arg> {
    let more = [
        file("diff", "Print only what this plan would change; `-` is standard input"),
        flag("keys", "Print every key that a plan may have, with its meaning"),
        flag("said", "Print only the settings that were given, without the defaults"),
    ];
    plan().into_iter().chain(more.map(|arg| arg.help_heading(SHOWS))).collect()
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

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .ok_or_else(|| "expected a duration such as `500ms`, `10s` or `1h 30m`".to_owned())
}

fn rounds(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (1..=ROUNDS_MAX).contains(n));
    number.ok_or_else(|| format!("use 1 to {ROUNDS_MAX}"))
}
