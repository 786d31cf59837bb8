//! Ports are of known types.
use comporta::{Out, Ports};

#[derive(Ports)]
struct Any<T> {
    out: Out<T>,
}

fn main() {}
