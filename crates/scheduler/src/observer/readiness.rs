//! The demultiplexer of the operating system (epoll, kqueue, by way of mio): which sockets and
//! descriptors can be read or written. It has a time limit, so it is what the loop sleeps in.
//!
//! Readiness is edge-triggered: a socket is registered once, in both directions, and an edge is kept
//! ([`Readiness`]) until an operation finds the socket drained. No operation registers anything.

use super::{Observer, Source};
use crate::core::{Core, Parked};
use crate::events::Ready;
use crate::mailbox::Mailbox;
use crate::repository::Handler;
use crate::sync::Waker;
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

/// What one call to the operating system may report.
const REPORTS_MAX: usize = 1024;
const WAKE: Token = Token(usize::MAX);

/// The operating system, and what it reported last.
pub(super) struct OperatingSystem {
    poll: mio::Poll,
    reports: mio::Events,
}

impl OperatingSystem {
    pub(super) fn new() -> io::Result<OperatingSystem> {
        let reports = mio::Events::with_capacity(REPORTS_MAX);
        Ok(OperatingSystem { poll: mio::Poll::new()?, reports })
    }

    /// What ends its wait, from any thread.
    pub(super) fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.poll.registry(), WAKE)
    }

    pub(super) fn forget(&self, source: &Descriptor) {
        // It cannot fail for a descriptor that is registered.
        let _ = self.poll.registry().deregister(&mut SourceFd(&source.descriptor.as_raw_fd()));
    }
}

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
        let key = self.sources.borrow_mut().insert(Source::Socket(readiness.clone()));
        let both = Interest::READABLE | Interest::WRITABLE;
        let system = self.system.borrow();
        let registered = system.poll.registry().register(socket, Token(key.place()), both);
        drop(system);
        if let Err(error) = registered {
            self.remove(key);
            return Err(error);
        }
        Ok((key, readiness))
    }

    pub(crate) fn remove_socket(&self, key: Key, socket: &mut impl MioSource) {
        // It cannot fail for a socket that is registered.
        let _ = self.system.borrow().poll.registry().deregister(socket);
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
        let key = self.sources.borrow_mut().insert(source);
        let system = self.system.borrow();
        let token = Token(key.place());
        let registered = system.poll.registry().register(&mut SourceFd(&raw), token, interest);
        drop(system);
        if let Err(error) = registered {
            // It was not registered with the system: there is nothing else to forget.
            let source = self.sources.borrow_mut().remove(key);
            drop(source);
            return Err(error);
        }
        Ok(key)
    }

    /// Waits for the operating system, and wakes the handlers that wait for what it reports. Returns `false` if it
    /// waited in vain. The inbox was asked whether the loop may sleep, unless the wait is none.
    pub(super) fn ask_system(&self, wait: Option<Duration>) -> io::Result<bool> {
        let system = &mut *self.system.borrow_mut();
        match self.poll(system, wait) {
            Ok(()) => Ok(self.report_all(&system.reports)),
            // A signal may end the wait early; that is no error.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The same while no handler is ready. If there is one report, about a descriptor, and one handler waits for it,
    /// returns that handler, to be resumed at once. Calls `in_vain` if it waited in vain. Does not return errors:
    /// whoever asks again meets them.
    #[inline(always)]
    pub(super) fn ask_system_for_one(
        &self,
        wait: Duration,
        in_vain: impl FnOnce(),
    ) -> Option<Rc<Handler>> {
        let system = &mut *self.system.borrow_mut();
        self.poll(system, Some(wait)).ok()?;
        let only = self.report_only(&system.reports);
        if only.is_none() && !self.report_all(&system.reports) {
            in_vain();
        }
        only
    }

    #[inline(always)]
    fn poll(&self, system: &mut OperatingSystem, wait: Option<Duration>) -> io::Result<()> {
        let polled = system.poll.poll(&mut system.reports, wait);
        self.inbox.woke();
        polled
    }

    /// Wakes the handlers that wait for what was reported. Returns `false` if nothing was.
    #[inline(never)]
    fn report_all(&self, reports: &mio::Events) -> bool {
        let sources = self.sources.borrow();
        for report in reports {
            // The waker has a token that is no place.
            match sources.at(report.token().0) {
                Some(Source::Socket(readiness)) => readiness.edge(report),
                Some(Source::Descriptor(source)) => {
                    // A full mailbox holds a report that was not seen; another would say no more.
                    let _ = source.mailbox.push(Ready::of(report));
                }
                _ => {}
            }
        }
        !reports.is_empty()
    }

    /// Hands the only report over, or does nothing.
    #[inline(always)]
    fn report_only(&self, reports: &mio::Events) -> Option<Rc<Handler>> {
        let mut reports = reports.iter();
        let (Some(report), None) = (reports.next(), reports.next()) else { return None };
        match self.sources.borrow().at(report.token().0) {
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
