//! The command `images`: the program of the library, with the command line every program has.

use comporta::Exit;
use images::program::build;

fn main() -> Exit {
    comporta::main(build)
}
