//! The command `weblog`: the program of the library, run under a small plan.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use comporta::{Ended, Plan, StartError};
use weblog::program::{Args, build};

#[derive(Parser)]
#[command(name = "weblog")]
struct Command {
    #[command(flatten)]
    args: Args,

    /// Threads of the program [default: one per CPU]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let command = Command::parse();
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = command.threads.unwrap_or_else(cpus);
    let several = threads.max(1);
    // Few places: most stages are handed whole windows.
    let mut plan = Plan::new().threads(threads).every(|stage| stage.capacity(8));
    for name in ["window", "alarm"] {
        plan = plan.stage(name, |stage| stage.capacity(4_096));
    }
    for name in ["parse", "persist", "correlate", "filter"] {
        plan = plan.stage(name, |stage| stage.instances(several));
    }
    let app = match build(command.args) {
        Ok(app) => app,
        Err(error) => return say(format_args!("{error}"), 2),
    };
    match app.run(&plan) {
        Ok(summary) => {
            let _ = write!(io::stderr(), "\n{summary}");
            let whole = summary.ended == Ended::Complete && summary.problems.is_empty();
            if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error @ StartError::Plan(_)) => say(format_args!("{error}"), 2),
        Err(error) => say(format_args!("{error}"), 1),
    }
}

fn say(message: std::fmt::Arguments<'_>, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "weblog: {message}");
    ExitCode::from(code)
}
