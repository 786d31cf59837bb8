//! The entrants of `coroutine`'s echo: a server on one thread that sends back what it reads, with
//! a buffer of `BUFFER` bytes for each connection.

mod comporta;
mod may;
mod tokio;

use std::net::SocketAddr;

/// What a connection reads at a time.
pub(crate) const BUFFER: usize = 1024;

/// A server that is up. Dropping it takes it down.
pub(crate) trait Server {
    fn address(&self) -> SocketAddr;
}

pub(crate) struct EchoPeer {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) up: fn() -> Box<dyn Server>,
}

pub(crate) const PEERS: &[EchoPeer] = &[
    EchoPeer {
        name: "comporta",
        about: "a coroutine per connection, on one thread",
        up: comporta::up,
    },
    EchoPeer {
        name: "tokio",
        about: "a task per connection, current-thread runtime",
        up: tokio::up,
    },
    EchoPeer { name: "may", about: "a coroutine per connection, one worker thread", up: may::up },
];
