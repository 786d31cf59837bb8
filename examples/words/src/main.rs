//! Counts the words of a text: four stages, and a command line for free.
//! `count` is the program, `text` is what it reads; this file joins its arguments to it.

mod text;
mod count;

use std::io::{self, Write};
use std::path::PathBuf;

use comporta::{App, Exit, Plan};

use count::Tally;
use text::Text;

/// Counts the words of a file, or of generated text, and prints the most frequent.
#[derive(clap::Args)]
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
}

fn build(args: Args) -> App {
    let text = match args.file {
        Some(path) => Text::File(path),
        None => Text::Generated { lines: args.generate, seed: args.seed },
    };
    let app = count::app(text, args.top, |(word, times): Tally| {
        writeln!(io::stdout(), "{times:9} {word}")
    });
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    app.set_plan(
        Plan::new()
            .stage("split", |stage| stage.instances(cpus))
            // At the end a counter sends as many tallies as it has met words, however many that is.
            .stage("count", |stage| stage.instances(cpus).emit_max(usize::MAX))
            .stage("top", |stage| stage.emit_max(usize::MAX)),
    );
    app
}

fn main() -> Exit {
    comporta::main(build)
}
