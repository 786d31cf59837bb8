//! Placeholder values for arguments of the program that were not given, for commands that need only its graph:
//! `graph`, `check` and `plan` open no source, and most graphs do not depend on a file's name. A note lists the
//! placeholders; if the program cannot be built from them, the missing arguments are reported instead.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command};

/// The commands that only look at the program.
const LOOK_ONLY: [&str; 3] = ["check", "graph", "plan"];

/// For arguments whose values are neither text nor paths, nor one of a few words.
const GUESSES: [&str; 7] = ["1", "0", "1s", "true", "127.0.0.1:1", "127.0.0.1", "a"];

/// What stands in for arguments that were not given.
pub(crate) struct StandIns {
    /// Of each argument, as usage shows it, what stands in.
    pub(crate) values: Vec<(String, String)>,
    /// What to say if the program cannot be built from them.
    pub(crate) missing: clap::Error,
}

impl StandIns {
    /// What to say of it.
    pub(crate) fn told(&self) -> String {
        let each = self.values.iter().map(|(arg, value)| format!("`{value}` for {arg}"));
        let each: Vec<_> = each.collect();
        format!("note: arguments are missing; these stand in: {}", each.join(", "))
    }
}

/// Reads a command line once more in which arguments of the program, `A`, are missing; `command` is
/// what it was not read by.
///
/// # Errors
/// `error`, where something else is wrong, more than the graph is asked for, or nothing can stand in.
pub(crate) fn stand_in<A: Args>(
    mut command: Command,
    args: &[OsString],
    error: clap::Error,
) -> Result<(ArgMatches, Option<StandIns>), clap::Error> {
    let verb = args.get(1).and_then(|verb| verb.to_str()).filter(|verb| LOOK_ONLY.contains(verb));
    let Some(verb) = verb.filter(|_| error.kind() == ErrorKind::MissingRequiredArgument) else {
        return Err(error);
    };
    let mut own = A::augment_args(Command::new("own"));
    own.build(); // so that its arguments can be shown
    let mut values = Vec::new();
    for arg in own.get_arguments().filter(|arg| arg.is_required_set()) {
        let value = candidates(arg).into_iter().find(|value| accepts(arg, value));
        let Some(value) = value else { return Err(error) };
        command = with_default(command, verb, arg, &value);
        values.push((arg, value));
    }
    let Ok(matches) = command.try_get_matches_from(args) else { return Err(error) };
    let stood_in = values.into_iter().filter(|(arg, _)| is_default(&matches, arg));
    let values = stood_in.map(|(arg, value)| (arg.to_string(), value)).collect();
    Ok((matches, Some(StandIns { values, missing: error })))
}

/// Whether a value is one that an argument may have.
fn accepts(arg: &Arg, value: &str) -> bool {
    let alone = Arg::new("value").value_parser(arg.get_value_parser().clone());
    let alone = alone.num_args(1).allow_hyphen_values(true);
    Command::new("value").arg(alone).try_get_matches_from(["value", value]).is_ok()
}

fn is_default(matches: &ArgMatches, arg: &Arg) -> bool {
    let Some((_, own)) = matches.subcommand() else { return false };
    own.value_source(arg.get_id().as_str()) == Some(clap::parser::ValueSource::DefaultValue)
}

fn with_default(command: Command, verb: &str, arg: &Arg, value: &str) -> Command {
    let value = value.to_owned();
    command.mut_subcommand(verb, |verb| {
        verb.mut_arg(arg.get_id(), |arg| arg.required(false).default_value(value))
    })
}

/// What may stand in for a value.
fn candidates(arg: &Arg) -> Vec<String> {
    let name = arg.get_value_names().and_then(|names| names.first());
    let name = name.map_or_else(|| arg.get_id().to_string(), ToString::to_string);
    let kind = arg.get_value_parser().type_id();
    if let Some(first) = arg.get_possible_values().first() {
        return vec![first.get_name().to_owned()];
    }
    if kind == clap::value_parser!(PathBuf).type_id() {
        return vec![format!("/dev/null/{name}")]; // nothing is there, and nothing can be put there
    }
    std::iter::once(name).chain(GUESSES.map(str::to_owned)).collect()
}
