//! The command `weblog`: the program of the library, with the command line every program has.

use comporta::Exit;
use weblog::program::build;

fn main() -> Exit {
    comporta::main(build)
}
