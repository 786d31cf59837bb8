//! The demultiplexer of the operating system (`system`: epoll, kqueue): which sockets and descriptors can be
//! read or written. It has a time limit, so it is what the loop sleeps in.
//!
//! Readiness is edge-triggered: a socket is registered once, in both directions, and an edge is kept
//! ([`Readiness`]) until an operation finds the socket drained. No operation registers anything.

use super::{Observer, Source, Sources};
use crate::core::{Core, Parked};
use crate::events::Ready;
use crate::mailbox::Mailbox;
use crate::repository::Handler;
use crate::table::Key;
use crate::wait_list::WaitList;
use mio::event::Source as MioSource;
use mio::unix::SourceFd;
use mio::{Interest, Token};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A descriptor whose readiness is an event.
pub(super) struct Descriptor {
    mailbox: Rc<Mailbox<Ready>>,
    descriptor: OwnedFd,
}

impl Observer {
    /// Registers a socket in both directions.
    pub(crate) fn add_socket(
        &self,
        socket: &mut impl MioSource,
    ) -> io::Result<(Key, Rc<Readiness>)> {
        let readiness = Readiness::new();
        let both = Interest::READABLE | Interest::WRITABLE;
        let key = self.sources.borrow_mut().add(Source::Socket(readiness.clone()), socket, both)?;
        Ok((key, readiness))
    }

    pub(crate) fn remove_socket(&self, key: Key, socket: &mut impl MioSource) {
        // It cannot fail for a socket that is registered.
        let _ = self.sources.borrow().system.registry().deregister(socket);
        self.remove(key);
    }

    pub(crate) fn add_descriptor(
        &self,
        mailbox: Rc<Mailbox<Ready>>,
        descriptor: OwnedFd,
        interest: Interest,
    ) -> io::Result<Key> {
        let raw = descriptor.as_raw_fd();
        let source = Source::Descriptor(Descriptor { mailbox, descriptor });
        self.sources.borrow_mut().add(source, &mut SourceFd(&raw), interest)
    }

    pub(super) fn forget_descriptor(&self, source: &Descriptor) {
        // It cannot fail for a descriptor that is registered.
        let raw = source.descriptor.as_raw_fd();
        let _ = self.sources.borrow().system.registry().deregister(&mut SourceFd(&raw));
    }

    /// Waits for the operating system, and wakes the handlers that wait for what it reports. Returns `false` if it
    /// waited in vain. The inbox was asked whether the loop may sleep, unless the wait is none.
    pub(super) fn ask_system(&self, wait: Option<Duration>) -> io::Result<bool> {
        let mut sources = self.sources.borrow_mut();
        let waited = sources.system.wait(wait);
        self.inbox.woke();
        match waited {
            Ok(()) => Ok(sources.report_all()),
            // A signal may end the wait early; that is no error.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The same while no handler is ready, and shortly. If there is one report, about a descriptor, and one handler waits
    /// for it, returns that handler, to be resumed at once. Does not return errors: whoever asks again meets them.
    #[inline(always)]
    pub(super) fn ask_system_for_one(&self) -> Option<Rc<Handler>> {
        let mut sources = self.sources.borrow_mut();
        let waited = sources.system.wait_shortly();
        self.inbox.woke();
        waited.ok()?;
        let only = sources.report_only();
        if only.is_none() {
            sources.report_all();
        }
        only
    }
}

impl Sources {
    /// Adds a source of which the operating system is to report.
    fn add(
        &mut self,
        source: Source,
        descriptor: &mut impl MioSource,
        interest: Interest,
    ) -> io::Result<Key> {
        let key = self.table.insert(source);
        let registered = self.system.registry().register(descriptor, Token(key.place()), interest);
        if registered.is_err() {
            // Not user code: a descriptor, or what is known of a socket.
            drop(self.table.remove(key));
        }
        registered.map(|()| key)
    }

    /// Wakes the handlers that wait for what was reported. Returns `false` if nothing was.
    #[inline(never)]
    fn report_all(&self) -> bool {
        for report in self.system.reports() {
            match self.table.at(report.token().0) {
                Some(Source::Socket(readiness)) => readiness.edge(report),
                Some(Source::Descriptor(source)) => {
                    // A full mailbox holds a report that was not seen; another would say no more.
                    let _ = source.mailbox.push(Ready::of(report));
                }
                _ => self.system.note(report.token()),
            }
        }
        !self.system.reports().is_empty()
    }

    /// Hands the only report over, or does nothing.
    #[inline(always)]
    fn report_only(&self) -> Option<Rc<Handler>> {
        let mut reports = self.system.reports().iter();
        let report = reports.next()?;
        if reports.next().is_some() {
            return None;
        }
        match self.table.at(report.token().0) {
            Some(Source::Descriptor(source)) => source.mailbox.hand_over(Ready::of(report)),
            _ => None,
        }
    }
}

/// One direction of a socket.
pub(crate) struct Direction {
    /// An operation may succeed: nothing was seen to the contrary since the last edge.
    maybe: Cell<bool>,
    /// The end of the stream, or an error, was reported: there will be no further edge.
    over: Cell<bool>,
    /// The socket has left the scheduler.
    left: Cell<bool>,
    waiting: WaitList,
}

impl Direction {
    fn new() -> Direction {
        Direction {
            maybe: Cell::new(true),
            over: Cell::new(false),
            left: Cell::new(false),
            waiting: WaitList::default(),
        }
    }

    pub(crate) fn maybe_ready(&self) -> bool {
        self.maybe.get()
    }

    /// There will be no further edge.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get()
    }

    /// The socket has left for another scheduler. A handler that waits for it here has an error: if it took the socket
    /// back, the two would take it from each other without end.
    pub(crate) fn abandon(&self) {
        self.left.set(true);
        self.waiting.wake_all();
    }

    /// An operation has found it drained: only an edge makes it ready. The end of the stream may have
    /// been reported together with the last bytes; it is yet to be read, and no edge will come.
    pub(crate) fn drained(&self) {
        self.maybe.set(self.over.get());
    }

    /// An operation would have blocked, so whatever was over is not: only an edge makes it ready.
    pub(crate) fn would_block(&self) {
        self.over.set(false);
        self.maybe.set(false);
    }

    fn edge(&self, over: bool) {
        self.maybe.set(true);
        self.over.set(self.over.get() || over);
        self.waiting.wake_all();
    }

    /// Suspends the running handler until there is an edge.
    pub(crate) fn wait(&self, core: &Rc<Core>, deadline: Option<Instant>) -> io::Result<()> {
        while !self.maybe.get() {
            if self.left.get() {
                return Err(io::Error::other("another scheduler has taken the socket over"));
            }
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

    fn edge(&self, event: &mio::event::Event) {
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
