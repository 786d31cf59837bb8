//! `comporta-sim`: what if this program ran on 6, 58 or 1,000 nodes?
//! Exit codes: 0 done, 1 something could not be written, 2 a scenario or an argument is wrong.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
