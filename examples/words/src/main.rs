//! Counts the words of a text: four stages, and a plan from the command line.
//! `count` is the program, `text` is what it reads; this file decides how it runs.

mod text;
mod count;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use comporta::{Ended, Plan, Policy, StartError};

use count::Tally;
use text::Text;

/// Counts the words of a file, or of generated text, and prints the most frequent.
#[derive(Parser)]
#[command(name = "words")]
struct Args {
    /// The file to read; generated text if there is none
    file: Option<PathBuf>,

    /// Count this many lines of generated text
    #[arg(long, value_name = "LINES", default_value_t = 300_000, conflicts_with = "file")]
    generate: usize,

    /// What the generated text is made from
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "file")]
    seed: u64,

    /// How many words to print
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Threads of the program [default: one per CPU]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// How many lines are split, and how many words counted, at once [default: one per thread]
    #[arg(long, value_name = "N")]
    instances: Option<usize>,

    /// How threads choose what to do next: stealing, single or srpt
    #[arg(long, default_value_t)]
    policy: Policy,
}

fn main() -> ExitCode {
    let args = Args::parse(); // prints what is wrong with the usage, and leaves with 2
    let plan = plan(&args);
    let text = match args.file {
        Some(path) => Text::File(path),
        None => Text::Generated { lines: args.generate, seed: args.seed },
    };
    let show = |(word, times): Tally| writeln!(io::stdout(), "{times:9} {word}");

    // The result goes to standard output, all that is said about it to standard error.
    match count::app(text, args.top, show).run(&plan) {
        Ok(summary) => {
            let _ = write!(io::stderr(), "\n{summary}");
            let whole = summary.ended == Ended::Complete && summary.problems.is_empty();
            if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "words: {error}");
            let usage = matches!(error, StartError::Plan(_));
            if usage { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// How it runs: the only place that knows of threads and instances.
fn plan(args: &Args) -> Plan {
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or_else(cpus);
    let instances = args.instances.unwrap_or(threads.max(1));
    Plan::new()
        .threads(threads)
        .policy(args.policy)
        .stage("split", |stage| stage.instances(instances))
        // At the end a counter sends as many tallies as it has met words, however many that is.
        .stage("count", |stage| stage.instances(instances).emit_max(usize::MAX))
        .stage("top", |stage| stage.emit_max(usize::MAX))
}
