//! The command `rpc`: a shop and its clients on one thread, as coroutines or with callbacks.

use clap::{Parser, ValueEnum};
use rpc::{Load, callbacks, raise_descriptors, sequential};
use std::io::{self, Write};
use std::process::ExitCode;

/// A shop that knows no prices, and clients whom it asks while they wait for their totals.
#[derive(Parser)]
struct Args {
    /// How the program is written
    #[arg(long, value_enum, default_value = "sequential")]
    style: Style,

    /// How many clients there are, all at once
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    clients: usize,

    /// How many of them die when they are asked for a price
    #[arg(long, value_name = "N", default_value_t = 10)]
    dying: usize,

    /// What is in each basket
    #[arg(long, value_name = "N", default_value_t = 20)]
    items: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Style {
    /// Coroutines on the event scheduler
    Sequential,
    /// Callbacks on a bare event loop
    Callbacks,
}

fn main() -> ExitCode {
    let Args { style, clients, dying, items } = Args::parse();
    let load = Load { clients, dying, items };
    raise_descriptors();
    let report = match style {
        Style::Sequential => sequential::run(load),
        Style::Callbacks => callbacks::run(load),
    };
    let told = report.and_then(|report| {
        let (expected, mut stdout) = (load.expected(), io::stdout());
        writeln!(stdout, "{} clients were told a total, {} in all", report.answered, report.sum)?;
        writeln!(stdout, "{} died, and the shop noticed {}", expected.broken, report.broken)?;
        if report == expected { Ok(()) } else { Err(io::Error::other("that is not right")) }
    });
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "rpc: {error}");
            ExitCode::FAILURE
        }
    }
}
