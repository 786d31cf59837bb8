//! The command `api`: the program of the library, with the command line every program has.

use api::program::build;
use comporta::Exit;

fn main() -> Exit {
    comporta::main(build)
}
