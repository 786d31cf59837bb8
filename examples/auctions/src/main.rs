//! The command `auctions`: the program of the library, with the command line every program has.

use auctions::program::build;
use comporta::Exit;

fn main() -> Exit {
    comporta::main(build)
}
