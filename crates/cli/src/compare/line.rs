//! The command line of a run: our options for it, then the program's own arguments as they were
//! given. Which of the arguments of `compare` are the program's own is found by reading them once
//! more, with what is known of both kinds of options.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::{Arg, Command};
use comporta_model::plan::show_duration;
use comporta_plan::bare;

use super::runs::{Combination, Load};
use crate::args::{BaseArgs, is_ours};

/// How a run of the program is called.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    /// What `run` calls our options, by their ids: a program may have one of the same name.
    names: Vec<(String, String)>,
    /// The program's own arguments.
    own: Vec<OsString>,
}

/// What all runs have in common.
#[derive(Clone, Debug)]
pub(super) struct Common<'a> {
    pub(super) base: &'a BaseArgs,
    pub(super) limit: Option<Duration>,
    /// The sources, which share the load.
    pub(super) sources: &'a [String],
}

impl Line {
    /// From the commands `compare` and `run`, and what followed the word `compare`.
    pub(crate) fn new(compare: &Command, run: &Command, args: &[OsString]) -> Self {
        let name = |arg: &Arg| Some((arg.get_id().to_string(), arg.get_long()?.to_owned()));
        let names = run.get_arguments().filter(|arg| is_ours(arg)).filter_map(name).collect();
        Line { names, own: own(compare, args) }
    }

    /// The arguments of a run.
    pub(super) fn args(&self, of: &Combination, common: &Common<'_>) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["run".into()];
        let mut say = |id: &str, value: Option<&OsStr>| {
            let Some((_, long)) = self.names.iter().find(|(known, _)| known == id) else { return };
            let mut arg = OsString::from(format!("--{long}"));
            if let Some(value) = value {
                arg.push("=");
                arg.push(value);
            }
            args.push(arg);
        };
        let Common { base, limit, sources } = common;
        base.plan.iter().for_each(|path| say("comporta-plan", Some(path.as_os_str())));
        say("comporta-policy", Some(of.policy.as_ref()));
        if of.threads_said {
            say("comporta-threads", Some(of.threads.to_string().as_ref()));
        }
        if let Some(batch) = base.batch {
            say("comporta-batch", Some(batch.to_string().as_ref()));
        }
        base.set.iter().for_each(|said| say("comporta-set", Some(said.as_ref())));
        rates(of.load, sources).iter().for_each(|said| say("comporta-set", Some(said.as_ref())));
        base.stub.iter().for_each(|stage| say("comporta-stub", Some(stage.as_ref())));
        if let Some(limit) = limit {
            let limit = show_duration(*limit);
            say("comporta-for", Some(limit.as_ref()));
        }
        say("comporta-json", None);
        say("comporta-progress", Some("never".as_ref()));
        args.extend(self.own.iter().cloned());
        args
    }
}

/// What a load says of each source, as `--set` takes it.
pub(super) fn rates(load: Load, sources: &[String]) -> Vec<String> {
    let Load::Rate(rate) = load else { return Vec::new() };
    let each = rate / sources.len() as f64;
    sources.iter().map(|name| format!("stage.{}.rate={each}", bare(name))).collect()
}

/// The arguments that are not ours.
fn own(compare: &Command, args: &[OsString]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        // What is not UTF-8 is no option of ours.
        let Some(text) = arg.to_str() else {
            kept.push(arg.clone());
            continue;
        };
        if text == "--" {
            kept.push(arg.clone());
            kept.extend(args.by_ref().cloned());
        } else if let Some(long) = text.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
            let option = compare.get_arguments().find(|arg| has_long(arg, name));
            let follow = option.filter(|_| value.is_none()).map_or(0, values);
            let values = args.by_ref().take(follow).cloned();
            if option.is_some_and(is_ours) {
                values.for_each(drop);
            } else {
                kept.push(arg.clone());
                kept.extend(values);
            }
        } else if text.len() > 1 && text.starts_with('-') {
            let (left, follow) = shorts(compare, &text[1..]);
            let values = args.by_ref().take(follow.unwrap_or((0, true)).0).cloned();
            kept.extend((!left.is_empty()).then(|| format!("-{left}").into()));
            if follow.is_some_and(|(_, ours)| ours) {
                values.for_each(drop);
            } else {
                kept.extend(values);
            }
        } else {
            kept.push(arg.clone());
        }
    }
    kept
}

/// What is left of `-abc` without our letters; and if its last letter awaits values in the
/// arguments that follow, how many, and whether it is ours.
fn shorts(compare: &Command, letters: &str) -> (String, Option<(usize, bool)>) {
    let mut left = String::new();
    for (at, letter) in letters.char_indices() {
        let rest = &letters[at + letter.len_utf8()..];
        let option = compare.get_arguments().find(|arg| {
            arg.get_short_and_visible_aliases().is_some_and(|all| all.contains(&letter))
        });
        let (wants, ours) = option.map_or((0, false), |option| (values(option), is_ours(option)));
        if !ours {
            left.push(letter);
        }
        if wants > 0 && !rest.is_empty() {
            // The rest of the word is its value.
            left += if ours { "" } else { rest };
            return (left, None);
        }
        if wants > 0 {
            return (left, Some((wants, ours)));
        }
    }
    (left, None)
}

fn has_long(arg: &Arg, name: &str) -> bool {
    arg.get_long_and_visible_aliases().is_some_and(|all| all.contains(&name))
        || arg.get_all_aliases().is_some_and(|all| all.contains(&name))
}

/// How many values follow an option at least.
fn values(arg: &Arg) -> usize {
    match arg.get_num_args() {
        Some(range) => range.min_values(),
        None => usize::from(arg.get_action().takes_values()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    #[derive(clap::Args)]
    struct Own {
        file: Option<String>,
        #[arg(short, long)]
        verbose: bool,
        #[arg(short = 'n', long, allow_hyphen_values = true)]
        name: Option<String>,
        #[arg(long, num_args = 2)]
        pair: Vec<String>,
        #[arg(long)]
        json: bool,
    }

    fn line(args: &[&str]) -> Line {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let mut command = args::command::<Own>("own");
        command.build();
        let of = |name| command.find_subcommand(name).unwrap();
        Line::new(of("compare"), of("run"), &args)
    }

    #[test]
    fn the_programs_own_arguments_are_kept_as_given_and_ours_are_not() {
        let cases: &[(&[&str], &[&str])] = &[
            (&[], &[]),
            (&["a.txt", "--policies", "all", "-v"], &["a.txt", "-v"]),
            (&["--policies=all", "--threads", "1,2", "a.txt"], &["a.txt"]),
            (&["-t2", "-vt4", "-p", "-p", "-v"], &["-v", "-v"]),
            (&["-t", "2", "-vt", "4", "a.txt"], &["-v", "a.txt"]),
            (&["--name", "--policies", "--rounds", "3"], &["--name", "--policies"]),
            (&["-n", "-t", "-n-t", "-vnt", "x"], &["-n", "-t", "-n-t", "-vnt", "x"]),
            (&["--pair", "x", "y", "--set", "a=b"], &["--pair", "x", "y"]),
            (
                &["--name=--set", "--", "--policies", "all"],
                &["--name=--set", "--", "--policies", "all"],
            ),
            (&["--json", "--comporta-json", "-"], &["--json", "-"]),
        ];
        for (given, expected) in cases {
            assert_eq!(line(given).own, expected.iter().map(OsString::from).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_run_is_told_all_that_is_said_of_it_and_where_names_clash_by_our_other_name() {
        let base = BaseArgs {
            plan: vec!["p.toml".into()],
            batch: Some(7),
            set: vec!["drain=1s".to_owned()],
            stub: vec!["save".to_owned()],
        };
        let sources = ["a".to_owned(), "b.c".to_owned()];
        let limit = Some(Duration::from_millis(1_500));
        let common = Common { base: &base, limit, sources: &sources };
        let of = Combination {
            policy: "seda(threads=4, every=1s)".to_owned(),
            threads: 2,
            threads_said: true,
            load: Load::Rate(5.0),
        };
        let args = line(&["--rounds", "2", "a.txt"]).args(&of, &common);
        let expected = [
            "run",
            "--plan=p.toml",
            "--policy=seda(threads=4, every=1s)",
            "--threads=2",
            "--batch=7",
            "--set=drain=1s",
            "--set=stage.a.rate=2.5",
            "--set=stage.\"b.c\".rate=2.5",
            "--stub=save",
            "--for=1s 500ms",
            "--comporta-json",
            "--progress=never",
            "a.txt",
        ];
        assert_eq!(args, expected.map(OsString::from));
        // What the plan has is not said once more.
        let of = Combination { threads_said: false, load: Load::Max, ..of };
        let base = BaseArgs::default();
        let args = line(&[]).args(&of, &Common { base: &base, limit: None, sources: &sources });
        let policy = "--policy=seda(threads=4, every=1s)";
        assert_eq!(
            args,
            ["run", policy, "--comporta-json", "--progress=never"].map(OsString::from)
        );
    }
}
