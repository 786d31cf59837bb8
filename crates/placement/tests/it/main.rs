//! What must hold of placement, a file for each part.

mod rounds;
mod published;
mod ours;
mod monitor;
mod any_cluster;
