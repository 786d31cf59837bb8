//! Runs from outside: programs that are started, signalled, and asked how it went.

mod started;
mod signals;
mod ends;
mod picture;
