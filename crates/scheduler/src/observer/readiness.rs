//! The demultiplexer of the operating system (epoll, kqueue, by way of mio): which sockets and
//! descriptors can be read or written. It has a time limit, so it is what the loop sleeps in.
//!
//! Readiness is edge-triggered: a socket is registered once, in both directions, and an edge is kept
//! ([`Readiness`]) until an operation finds the socket drained. No operation registers anything.

use crate::core::{Core, Parked};
use crate::wait_list::WaitList;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Instant;

/// One direction of a socket.
pub(crate) struct Direction {
    /// An operation may succeed: nothing was seen to the contrary since the last edge.
    maybe: Cell<bool>,
    waiting: WaitList,
}

impl Direction {
    fn new() -> Direction {
        Direction { maybe: Cell::new(true), waiting: WaitList::default() }
    }

    pub(crate) fn maybe_ready(&self) -> bool {
        self.maybe.get()
    }

    /// An operation has found it drained: only an edge makes it ready.
    pub(crate) fn drained(&self) {
        self.maybe.set(false);
    }

    fn edge(&self) {
        self.maybe.set(true);
        self.waiting.wake_all();
    }

    /// Suspends the running handler until there is an edge.
    pub(crate) fn wait(&self, core: &Rc<Core>, deadline: Option<Instant>) -> io::Result<()> {
        while !self.maybe.get() {
            match self.waiting.park(core, deadline) {
                Parked::Woken => {}
                Parked::TimedOut if self.maybe.get() => {}
                Parked::TimedOut => return Err(io::ErrorKind::TimedOut.into()),
                Parked::Unwinding => return Err(unwinding()),
            }
        }
        Ok(())
    }
}

/// What is known of a registered socket.
pub(crate) struct Readiness {
    pub(crate) read: Direction,
    pub(crate) write: Direction,
}

impl Readiness {
    pub(crate) fn new() -> Rc<Readiness> {
        Rc::new(Readiness { read: Direction::new(), write: Direction::new() })
    }

    pub(super) fn edge(&self, event: &mio::event::Event) {
        // An error or the end of the stream is found by whichever operation comes next.
        let over = event.is_error();
        if event.is_readable() || event.is_read_closed() || over {
            self.read.edge();
        }
        if event.is_writable() || event.is_write_closed() || over {
            self.write.edge();
        }
    }
}

/// What an operation returns that cannot suspend its handler.
pub(crate) fn unwinding() -> io::Error {
    io::Error::other("the coroutine is unwinding, so it cannot wait")
}
