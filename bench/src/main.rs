//! Comporta against its peers: every figure is a ratio measured inside one run.
//!
//! Read in this order:
//! 1. `options`  what to run: the command line
//! 2. `load`     what every peer is given: events, source, handlers, sink
//! 3. `spin`     the calibrated 1 µs of work; `pacer`, the open-loop load generator
//! 4. `rounds`   peers taken in turn, so that noise hits all alike; `stalls`, runs in which the
//!    machine itself was away, made again
//! 5. `stats`    medians, paired ratios, confidence intervals
//! 6. `cpu`, `alloc`, `instructions`  what the machine, the allocator and valgrind say about a run
//! 7. `report`   tables, verdicts, bars and JSON; `against`, one build against another
//! 8. `pipeline`, `latency`, `wake`  one bench each; `scale`, `policies` and `overload`, Comporta
//!    against itself; `cep` and `images`, whole programs under the plans of a published table;
//!    `coroutine`, the event scheduler; `waiting`, handlers that wait (`async`);
//!    `gateway`, requests and their replies; `keyed`, a lane and state for each key;
//!    `nexmark`, the field's own queries
//! 9. `placement`  the placement strategies in virtual time; `saturation`, what they are there for;
//!    `elastic`, threads that follow the load, in virtual time too
//! 10. `peers`    one file per peer; `peers::mod` is the list
//!
//! Each group of benches is a feature, so that one can be built without the peers of the others.

// The harness serves every group.
#![cfg_attr(not(feature = "core"), allow(dead_code, unused_imports, unused_macros))]

mod options;
mod load;
mod spin;
#[cfg(feature = "core")]
mod pacer;
mod rounds;
mod stalls;
mod stats;
mod cpu;
mod alloc;
mod instructions;
mod report;
mod against;
#[cfg(feature = "core")]
mod pipeline;
#[cfg(feature = "core")]
mod two_threads;
#[cfg(feature = "core")]
mod latency;
#[cfg(feature = "core")]
mod wake;
#[cfg(feature = "core")]
mod scale;
#[cfg(feature = "core")]
mod policies;
#[cfg(feature = "programs")]
mod cep;
#[cfg(feature = "programs")]
mod images;
#[cfg(feature = "core")]
mod overload;
#[cfg(feature = "coroutine")]
mod coroutine;
#[cfg(feature = "core")]
mod waiting;
#[cfg(feature = "core")]
mod gateway;
#[cfg(feature = "keyed")]
mod keyed;
#[cfg(feature = "nexmark")]
mod nexmark;
#[cfg(feature = "placement")]
mod placement;
#[cfg(feature = "placement")]
mod saturation;
#[cfg(feature = "elastic")]
mod elastic;
mod peers;

use options::{Command, Options, Parsed};
use report::Report;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// One bench: its name on the command line, what it answers, and how it runs.
struct Bench {
    name: &'static str,
    about: &'static str,
    run: fn(&Options) -> Report,
}

const BENCHES: &[Bench] = &[
    #[cfg(feature = "core")]
    Bench { name: "pipeline", about: pipeline::ABOUT, run: pipeline::run },
    #[cfg(feature = "core")]
    Bench { name: "latency", about: latency::ABOUT, run: latency::run },
    #[cfg(feature = "core")]
    Bench { name: "wake", about: wake::ABOUT, run: wake::run },
    #[cfg(feature = "core")]
    Bench { name: "scale", about: scale::ABOUT, run: scale::run },
    #[cfg(feature = "core")]
    Bench { name: "policies", about: policies::ABOUT, run: policies::run },
    #[cfg(feature = "programs")]
    Bench { name: "cep", about: cep::ABOUT, run: cep::run },
    #[cfg(feature = "programs")]
    Bench { name: "images", about: images::ABOUT, run: images::run },
    #[cfg(feature = "core")]
    Bench { name: "overload", about: overload::ABOUT, run: overload::run },
    #[cfg(feature = "coroutine")]
    Bench { name: "coroutine", about: coroutine::ABOUT, run: coroutine::run },
    #[cfg(feature = "core")]
    Bench { name: "async", about: waiting::ABOUT, run: waiting::run },
    #[cfg(feature = "core")]
    Bench { name: "gateway", about: gateway::ABOUT, run: gateway::run },
    #[cfg(feature = "keyed")]
    Bench { name: "keyed", about: keyed::ABOUT, run: keyed::run },
    #[cfg(feature = "nexmark")]
    Bench { name: "nexmark", about: nexmark::ABOUT, run: nexmark::run },
    #[cfg(feature = "placement")]
    Bench { name: "placement", about: placement::ABOUT, run: placement::run },
    #[cfg(feature = "placement")]
    Bench { name: "saturation", about: saturation::ABOUT, run: saturation::run },
    #[cfg(feature = "elastic")]
    Bench { name: "elastic", about: elastic::ABOUT, run: elastic::run },
];

fn main() -> ExitCode {
    match options::parse(std::env::args_os()) {
        Ok(Parsed { command: Command::Help, .. }) => print!("{}", options::HELP),
        Ok(Parsed { command: Command::List, .. }) => list(),
        Ok(Parsed { command: Command::Bench(name), options }) => {
            let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
                let names = BENCHES.iter().map(|bench| bench.name).collect::<Vec<_>>().join(", ");
                eprintln!("no bench is called `{name}`; there are: {names}");
                return ExitCode::from(2);
            };
            if let Some(other) = &options.against {
                return match against::run(bench.name, other, &options) {
                    Ok(()) => ExitCode::SUCCESS,
                    Err(message) => {
                        eprintln!("{message}");
                        ExitCode::FAILURE
                    }
                };
            }
            let report = (bench.run)(&options);
            match options.bars {
                true => report.print_bars(),
                false => report.print_verdict(),
            }
            if options.json {
                report.print_json();
            }
        }
        Err(refusal) => {
            eprintln!("{refusal}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn list() {
    for bench in BENCHES {
        println!("{:<10} {}", bench.name, bench.about);
    }
    for listed in peers::listed() {
        println!("\npeers of `{}`:", listed.bench);
        for (name, about) in listed.peers {
            println!("  {name:<14} {about}");
        }
    }
}
