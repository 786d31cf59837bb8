//! The command `fleet`: a run that is watched; or, with a command such as `check` or `graph`, what every program has.

use std::process::{ExitCode, Termination};

fn main() -> ExitCode {
    // `fleet --virtual`: ours; `fleet graph`: the command line that every program has.
    let word = std::env::args().nth(1).filter(|first| !first.starts_with('-'));
    if word.is_some() {
        return comporta::main(fleet::program::build).report();
    }
    fleet::watch::main()
}
