//! The command `extrusion`: the program of the library, with the command line every program has.

use comporta::Exit;
use comporta_example_extrusion::program::build;

fn main() -> Exit {
    comporta::main(build)
}
