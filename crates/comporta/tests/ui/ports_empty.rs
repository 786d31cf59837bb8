//! A stage without ports says so by its type.
use comporta::Ports;

#[derive(Ports)]
struct Nothing {}

fn main() {}
