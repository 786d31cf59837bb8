//! Plan files as people write them: good ones, bad ones, mangled ones.

mod program;
mod bad;
mod good;
mod mangled;
mod document;
mod large;
