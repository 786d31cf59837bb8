//! Checks of the house that no other tool makes: `cargo run -p xtask -- tidy`.

mod tidy;

use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut stderr = io::stderr();
    if std::env::args().skip(1).collect::<Vec<_>>() != ["tidy"] {
        let _ = writeln!(stderr, "usage: xtask tidy");
        return ExitCode::from(2);
    }
    match tidy::repository() {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            let _ = writeln!(stderr, "{}", faults.join("\n"));
            ExitCode::FAILURE
        }
        Err(error) => {
            let _ = writeln!(stderr, "tidy: {error}");
            ExitCode::FAILURE
        }
    }
}
