//! Ports are a struct.
use comporta::{Out, Ports};

#[derive(Ports)]
enum Either {
    Left(Out<u64>),
    Right(Out<u64>),
}

fn main() {}
