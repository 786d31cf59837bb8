//! Says where the visitors of a web site come from, by asking an HTTP service about every address: a pipeline whose
//! handlers wait. `program` joins the stages; this file joins the arguments to it.

mod visits;
mod service;
mod directory;
mod cache;
mod pace;
mod program;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::time::Duration;

use comporta::{App, Exit, Plan, Result, Retry};

use program::{Limits, Line};
use service::Faults;

/// Says where the visitors of a web site come from, by asking an HTTP service about every address. The service is
/// part of the program, and misbehaves as it is told.
#[derive(clap::Args)]
struct Args {
    /// How many visits there are
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    visits: usize,

    /// From how many addresses
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=131_072))]
    addresses: u32,

    /// What the visits are made from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// The share of addresses for which the service takes --delay, the first time
    #[arg(long, value_name = "SHARE", default_value_t = 0.02, value_parser = share)]
    slow: f64,

    /// How long it takes then, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5_000)]
    delay: u64,

    /// The share of addresses for which the service fails, the first time
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = share)]
    failing: f64,

    /// The share of addresses that the service does not know
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    unknown: f64,

    /// How many questions the service answers in a second; it refuses others
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

fn share(text: &str) -> std::result::Result<f64, String> {
    let share = text.parse().map_err(|error| format!("{error}"))?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("expected 0 to 1".to_owned()) }
}

/// How it runs where no plan says otherwise.
fn plan() -> Plan {
    Plan::new().stage("locate", |locate| {
        locate
            .instances(64)
            .timeout(Duration::from_millis(500))
            .retry(Retry::new(5, Duration::from_millis(50)))
    })
}

fn build(args: Args, limits: Limits) -> Result<App> {
    limits.check()?;
    let Args { slow, failing, unknown, limit, .. } = args;
    let faults = Faults { slow, delay: Duration::from_millis(args.delay), failing, unknown, limit };
    let visits = visits::generate(args.seed, args.addresses).take(args.visits);
    let app = program::app(visits, &limits, faults, |line| match line {
        Line::Country { name, visits, bytes } => {
            writeln!(io::stdout(), "{name:10} {visits:9} visits {bytes:12} bytes")
        }
        Line::Cache { asked, hits } => {
            writeln!(
                io::stdout(),
                "asked {asked} times; {hits} visits needed no question of their own"
            )
        }
    });
    app.set_plan(plan());
    Ok(app)
}

fn main() -> Exit {
    comporta::main(build)
}
