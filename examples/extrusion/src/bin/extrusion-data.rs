//! Writes a made-up storm as a file that `extrusion` draws: any number of steps, in the memory of
//! one.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use comporta_example_extrusion::generate::{SCENE, Storm};
use comporta_example_extrusion::program::segments;
use comporta_example_extrusion::riser::{write_header, write_step};

/// Writes a made-up storm as a file that `extrusion` draws.
///
/// A segment of a step takes about 30 bytes: a million steps of 100 segments are 3 GB.
#[derive(Parser)]
#[command(name = "extrusion-data")]
struct Command {
    /// The file to write, `-` for standard output
    file: PathBuf,

    /// Steps
    #[arg(long, value_name = "N", default_value_t = 480)]
    steps: u64,

    /// Segments of the pipe
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = segments)]
    segments: usize,

    /// What the storm is made from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let command = Command::parse();
    match command.write() {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read it has seen enough, as with `| head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let file = command.file.display();
            let _ = writeln!(io::stderr(), "extrusion-data: {file}: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Command {
    fn write(&self) -> io::Result<()> {
        let to: Box<dyn Write> = match self.file.to_str() {
            Some("-") => Box::new(io::stdout().lock()),
            _ => Box::new(File::create(&self.file)?),
        };
        let mut to = BufWriter::with_capacity(1 << 16, to);
        write_header(&mut to, &SCENE, self.segments + 1)?;
        for step in Storm::new(self.steps, self.segments, self.seed) {
            write_step(&mut to, &step)?;
        }
        to.flush()
    }
}
