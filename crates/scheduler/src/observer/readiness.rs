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
    /// The end of the stream, or an error, was reported: there will be no further edge.
    over: Cell<bool>,
    waiting: WaitList,
}

impl Direction {
    fn new() -> Direction {
        Direction { maybe: Cell::new(true), over: Cell::new(false), waiting: WaitList::default() }
    }

    pub(crate) fn maybe_ready(&self) -> bool {
        self.maybe.get()
    }

    /// There will be no further edge.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get()
    }

    /// The socket has left the scheduler: whoever waits for it is to try again.
    pub(crate) fn abandon(&self) {
        self.edge(true);
    }

    /// An operation has found it drained: only an edge makes it ready. The end of the stream may have
    /// been reported together with the last bytes; it is yet to be read, and no edge will come.
    pub(crate) fn drained(&self) {
        self.maybe.set(self.over.get());
    }

    fn edge(&self, over: bool) {
        self.maybe.set(true);
        self.over.set(self.over.get() || over);
        self.waiting.wake_all();
    }

    /// Suspends the running handler until there is an edge.
    pub(crate) fn wait(&self, core: &Rc<Core>, deadline: Option<Instant>) -> io::Result<()> {
        while !self.maybe.get() {
            match self.waiting.park(core, deadline) {
                Parked::Woken => {}
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
        // What it is about is found out by whichever operation comes next.
        let error = event.is_error();
        let (read_over, write_over) = (event.is_read_closed(), event.is_write_closed());
        if event.is_readable() || read_over || error {
            self.read.edge(read_over || error);
        }
        if event.is_writable() || write_over || error {
            self.write.edge(write_over || error);
        }
    }
}

/// What an operation returns that cannot suspend its handler.
pub(crate) fn unwinding() -> io::Error {
    io::Error::other("the coroutine is unwinding, so it cannot wait")
}
