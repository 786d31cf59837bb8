//! Every field is a port.
use comporta::{Out, Ports};

#[derive(Ports)]
struct Mixed {
    good: Out<u64>,
    sent: u64,
}

fn main() {}
