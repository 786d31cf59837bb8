//! Ports have names.
use comporta::{Out, Ports};

#[derive(Ports)]
struct Pair(Out<u64>, Out<u64>);

fn main() {}
