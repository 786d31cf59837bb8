//! The command line: text becomes `Options`, with nothing left to interpret.

use crate::peers;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

pub(crate) const USAGE: &str = "usage: comporta-bench NAME [--quick] [--json] [--rounds N] …
       comporta-bench list
       comporta-bench --help";

pub(crate) const HELP: &str = "\
Comporta against its peers. Every bench runs the peers in turn, round by round, in one process,
and compares Comporta with each peer within a round, so that machine noise affects all alike.

usage: comporta-bench NAME [options]
       comporta-bench list            the benches and their peers, a line each

options:
  --quick          3 rounds and short runs: shows that the bench works, proves nothing
  --rounds N       rounds (default 15; quick 3)
  --size N         the amount of work, for benches that have one (`images`: images, `cep`: lines)
  --threads N      worker threads of each peer that has a thread count (default: the cores)
  --peers A,B      only these peers (and always `--ours`)
  --case TEXT      only the cases whose name contains TEXT
  --ours NAME      the peer that the others are compared with (default comporta)
  --seed N         shuffles the order of peers and drives the bootstrap (default 1)
  --against FILE   compare with another build of this program: quick runs of Comporta alone, in
                   `--rounds` pairs; every figure is this build / the other
  --bars           also print the bars that a release must reach, each met or missed
  --json           one JSON object on the last line of stdout
  -h, --help       this page

A ratio is printed as `median [low .. high]`, a 95 % bootstrap interval over the rounds. A run ends
with its findings, a line for each comparison that matters. A bar is judged by the pessimistic end
of the interval: the low end where more is better, the high end where less is. A run in which the
machine itself stalled is repeated (detected only as root). A missed bar does not change the exit
code. Progress goes to stderr.
";

pub(crate) const ROUNDS: usize = 15;
pub(crate) const ROUNDS_QUICK: usize = 3;
const OURS: &str = "comporta";

pub(crate) enum Command {
    Help,
    List,
    Bench(String),
}

pub(crate) struct Parsed {
    pub(crate) command: Command,
    pub(crate) options: Options,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) json: bool,
    /// Ends with the bars.
    pub(crate) bars: bool,
    pub(crate) rounds: usize,
    /// The same, if it was said: some benches have a default of their own.
    pub(crate) rounds_said: Option<usize>,
    pub(crate) threads: usize,
    /// How much work, if it was said.
    pub(crate) size: Option<usize>,
    pub(crate) seed: u64,
    /// The peer that ratios put above the line.
    pub(crate) ours: String,
    peers: Option<Vec<String>>,
    case: Option<String>,
    /// Another build, to be compared with this one.
    pub(crate) against: Option<PathBuf>,
}

impl Options {
    /// Whether a peer takes part; ours always does.
    pub(crate) fn takes_peer(&self, name: &str) -> bool {
        name == self.ours
            || self.peers.as_ref().is_none_or(|chosen| chosen.iter().any(|one| one == name))
    }

    /// What the names of cases must contain.
    pub(crate) fn case(&self) -> Option<&str> {
        self.case.as_deref()
    }

    pub(crate) fn takes_case(&self, name: &str) -> bool {
        self.case.as_ref().is_none_or(|text| name.contains(text.as_str()))
    }
}

pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Parsed, lexopt::Error> {
    use lexopt::prelude::*;
    let cores = std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
    let mut options = Options {
        quick: false,
        json: false,
        bars: false,
        rounds: 0,
        rounds_said: None,
        threads: cores,
        size: None,
        seed: 1,
        ours: OURS.to_owned(),
        peers: None,
        case: None,
        against: None,
    };
    let mut name: Option<String> = None;
    let mut parser = lexopt::Parser::from_iter(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Short('h') | Long("help") => return Ok(Parsed { command: Command::Help, options }),
            Long("quick") => options.quick = true,
            Long("json") => options.json = true,
            Long("bars") => options.bars = true,
            Long("rounds") => {
                options.rounds = positive(&mut parser, "--rounds")?;
                options.rounds_said = Some(options.rounds);
            }
            Long("threads") => options.threads = positive(&mut parser, "--threads")?,
            Long("size") => options.size = Some(positive(&mut parser, "--size")?),
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("against") => options.against = Some(parser.value()?.into()),
            Long("ours") => options.ours = parser.value()?.string()?,
            Long("case") => options.case = Some(parser.value()?.string()?),
            Long("peers") => {
                let names = parser.value()?.string()?;
                let names: Vec<String> =
                    names.split(',').map(|one| one.trim().to_owned()).collect();
                if let Some(stranger) = names.iter().find(|name| !peers::is_known(name)) {
                    return Err(format!("no peer is called `{stranger}`; see `list`").into());
                }
                options.peers = Some(names);
            }
            Value(value) if name.is_none() => name = Some(value.string()?),
            other => return Err(other.unexpected()),
        }
    }
    if options.rounds == 0 {
        options.rounds = if options.quick { ROUNDS_QUICK } else { ROUNDS };
    }
    let command = match name.as_deref() {
        None | Some("help") => Command::Help,
        Some("list") => Command::List,
        Some(bench) => Command::Bench(bench.to_owned()),
    };
    Ok(Parsed { command, options })
}

fn positive(parser: &mut lexopt::Parser, option: &str) -> Result<usize, lexopt::Error> {
    use lexopt::ValueExt;
    let number: usize = parser.value()?.parse()?;
    if number == 0 { Err(format!("{option} wants at least 1").into()) } else { Ok(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Parsed, lexopt::Error> {
        parse(std::iter::once("bench").chain(line.split_whitespace()).map(OsString::from))
    }

    #[test]
    fn quick_means_three_rounds_unless_rounds_are_given() {
        assert_eq!(parsed("pipeline").unwrap().options.rounds, 15);
        assert_eq!(parsed("pipeline --quick").unwrap().options.rounds, 3);
        assert_eq!(parsed("pipeline --quick --rounds 7").unwrap().options.rounds, 7);
    }

    #[test]
    fn unknown_options_and_zero_counts_are_refused() {
        assert!(parsed("pipeline --qick").is_err());
        assert!(parsed("pipeline --rounds 0").is_err());
        assert!(parsed("pipeline wake").is_err());
        assert!(parsed("pipeline --peers tokyo").is_err());
    }

    #[test]
    fn ours_takes_part_whatever_peers_are_chosen() {
        let options = parsed("pipeline --peers flume,timely").unwrap().options;
        assert!(options.takes_peer("comporta"));
        assert!(options.takes_peer("flume"));
        assert!(!options.takes_peer("rayon_fused"));
    }

    #[test]
    fn no_name_shows_the_help() {
        assert!(matches!(parsed("").unwrap().command, Command::Help));
        assert!(matches!(parsed("list").unwrap().command, Command::List));
    }
}
