//! The command line of the simulator: arguments, the progress of a run, what is written where.
//!
//! 1. `progress`: a bar on the terminal.
//! 2. `compare`: several strategies on the same events.

mod progress;
mod compare;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use comporta_placement::{Choice, Registry};
use comporta_sim::{Outcome, Scenario, file, run_with, show};

use self::progress::Bar;

/// Simulates programs on clusters of nodes in virtual time.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a scenario and prints its results.
    Run {
        /// The scenario, a TOML file.
        scenario: PathBuf,
        /// Overrides the strategy of the file, as in 'adaptive(d=0.5)'.
        #[arg(long)]
        strategy: Option<String>,
        /// Overrides the seed of the file.
        #[arg(long)]
        seed: Option<u64>,
        /// Lists every migration with its reason.
        #[arg(long)]
        explain: bool,
        /// Writes all results as JSON to a file; `-` is standard output.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Draws latency and node loads over time into this SVG file; `-` is standard output, and the results go to
        /// standard error.
        #[arg(long, short, alias = "svg", value_name = "FILE")]
        output: Option<PathBuf>,
        /// Shows no progress.
        #[arg(long)]
        quiet: bool,
    },
    /// Runs a scenario under several strategies on the same events, and compares them with the first.
    Compare {
        /// The scenario, a TOML file.
        scenario: PathBuf,
        /// Strategies; the others are compared with the first.
        #[arg(required = true, num_args = 1..)]
        strategies: Vec<String>,
        /// The number of seeds that each strategy is run with.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
        seeds: u64,
    },
    /// Reports the mistakes of a scenario without running it.
    Check {
        /// The scenario, a TOML file.
        scenario: PathBuf,
    },
    /// Lists the strategies and their parameters.
    Strategies,
}

/// What went wrong, as it is shown, and the exit code.
struct Failure(String, u8);

impl Failure {
    fn wrong(text: impl Into<String>) -> Self {
        Failure(text.into(), 2)
    }
}

pub(crate) fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(
                    std::io::stderr(),
                    "error: standard output cannot be written: {error}"
                );
                ExitCode::from(1)
            }
        },
        Err(Failure(text, code)) => {
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::from(code)
        }
    }
}

/// Does what was asked for; what is printed comes back.
fn run(args: Args) -> Result<String, Failure> {
    match args.command {
        Command::Run { scenario, strategy, seed, explain, json, output, quiet } => {
            let is_stdout = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
            if is_stdout(&json) && is_stdout(&output) {
                let both =
                    "error: --json and --output both name standard output: give one of them a file";
                return Err(Failure::wrong(both));
            }
            let mut scenario = read(&scenario)?;
            if let Some(strategy) = strategy {
                scenario.strategy = Choice::from(strategy.as_str());
            }
            scenario.seed = seed.unwrap_or(scenario.seed);
            let outcome = simulate(&scenario, quiet)?;
            let picture = output.is_some().then(|| show::timeline(&outcome));
            if let (Some(path), Some(picture)) = (&output, &picture)
                && !is_stdout(&output)
            {
                write(path, picture)?;
            }
            if let Some(path) = &json {
                let text = format!("{}\n", show::json(&outcome));
                if is_stdout(&json) {
                    return Ok(text);
                }
                write(path, &text)?;
            }
            let mut text = show::summary(std::slice::from_ref(&outcome));
            if explain {
                text += "\n";
                text += &show::migrations(&outcome);
            }
            if let Some(picture) = picture.filter(|_| is_stdout(&output)) {
                let _ = std::io::stderr().write_all(text.as_bytes());
                return Ok(picture);
            }
            Ok(text)
        }
        Command::Compare { scenario, strategies, seeds } => {
            compare::compare(&read(&scenario)?, &strategies, seeds)
        }
        Command::Check { scenario } => {
            let scenario = read(&scenario)?;
            let (nodes, operators) = (scenario.nodes.len(), scenario.operators.len());
            let seconds = scenario.duration;
            Ok(format!("{}: {nodes} nodes, {operators} operators, {seconds} s\n", scenario.name))
        }
        Command::Strategies => Ok(strategies()),
    }
}

fn read(path: &Path) -> Result<Scenario, Failure> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::wrong(format!("error: {name} cannot be read: {error}")))?;
    let colours = std::io::stderr().is_terminal();
    file::read(&name, &text, &Registry::new())
        .map_err(|mistakes| Failure::wrong(mistakes.render(colours)))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| {
        Failure(format!("error: {} cannot be written: {error}", path.display()), 1)
    })
}

fn simulate(scenario: &Scenario, quiet: bool) -> Result<Outcome, Failure> {
    let mut bar = Bar::new(quiet);
    let outcome = run_with(scenario, &Registry::new(), &mut |progress| bar.show(progress));
    bar.clear();
    outcome.map_err(|error| Failure::wrong(format!("error: {error}")))
}

fn strategies() -> String {
    let mut text = String::new();
    for entry in Registry::new().entries() {
        let offer = entry.offer;
        text += &format!("{:<12} {}\n", offer.name, offer.about);
        for param in offer.params {
            let (name, default) = (param.name, param.default);
            text += &format!("             {name} = {default}: {}\n", param.about);
        }
    }
    text
}
