//! Draws a riser: this file decides how the program runs, from the command line.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use comporta::{Ended, Plan, StartError};
use comporta_example_extrusion::program::{Args, build};

/// Draws a simulated riser, the pipe between an oil platform and the seabed, step by step.
///
/// Each step becomes a picture (SVG), its colours the tension of the pipe; index.html plays them.
/// However many steps there are, memory stays the same. `extrusion-data` writes such files.
#[derive(Parser)]
#[command(name = "extrusion")]
struct Command {
    #[command(flatten)]
    args: Args,

    /// Threads of the program [default: one per CPU]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let Command { args, threads } = Command::parse();
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or_else(cpus);
    let plan = Plan::new().threads(threads).stage("extrusion", |s| s.instances(threads.max(1)));
    let run = build(args).map(|app| app.run(&plan));
    match run {
        Ok(Ok(summary)) => {
            let _ = write!(io::stderr(), "\n{summary}");
            let failed = summary.snapshot.stages.iter().any(|stage| stage.counts.failed > 0);
            let whole = summary.ended == Ended::Complete && summary.problems.is_empty() && !failed;
            if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Ok(Err(error)) => {
            let _ = writeln!(io::stderr(), "extrusion: {error}");
            if matches!(error, StartError::Plan(_)) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "extrusion: {error}");
            ExitCode::FAILURE
        }
    }
}
