//! A socket that knows when to wait: tries an operation, and suspends the coroutine until the
//! system says that it may succeed.
//! Invariant: a socket that was found drained is not tried again before there was an edge; one that
//! was not, is. So an echo costs a read and a write, and no call that finds nothing.

use crate::core::Core;
use crate::observer::{Direction, Readiness};
use crate::table::Key;
use mio::event::Source;
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, Read, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

struct Registered {
    core: Rc<Core>,
    key: Key,
    readiness: Rc<Readiness>,
}

pub(super) struct Socket<S: Source> {
    /// Borrowed for single calls to the system only.
    source: RefCell<S>,
    registered: RefCell<Option<Registered>>,
    read_limit: Cell<Option<Duration>>,
    write_limit: Cell<Option<Duration>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Read,
    Write,
}

/// What an operation found out about the socket, besides its result.
pub(super) enum After {
    /// It may succeed again.
    More,
    /// It took all there was.
    Drained,
}

impl<S: Source> Socket<S> {
    pub(super) fn new(source: S) -> Socket<S> {
        Socket {
            source: RefCell::new(source),
            registered: RefCell::new(None),
            read_limit: Cell::new(None),
            write_limit: Cell::new(None),
        }
    }

    /// Calls the system about it, without waiting.
    pub(super) fn with<R>(&self, call: impl FnOnce(&S) -> R) -> R {
        call(&self.source.borrow())
    }

    fn limit(&self, way: Way) -> &Cell<Option<Duration>> {
        match way {
            Way::Read => &self.read_limit,
            Way::Write => &self.write_limit,
        }
    }

    /// Limits each wait in one direction.
    pub(super) fn set_limit(&self, way: Way, limit: Option<Duration>) -> io::Result<()> {
        self.limit(way).set(checked(limit)?);
        Ok(())
    }

    /// Tries `operation` until it does not have to wait, no longer than this socket's limit.
    fn io<R>(
        &self,
        way: Way,
        operation: impl FnMut(&S) -> io::Result<(R, After)>,
    ) -> io::Result<R> {
        self.io_within(way, self.limit(way).get(), operation)
    }

    /// As `io`, with a limit of its own.
    pub(super) fn io_within<R>(
        &self,
        way: Way,
        limit: Option<Duration>,
        mut operation: impl FnMut(&S) -> io::Result<(R, After)>,
    ) -> io::Result<R> {
        let Some(core) = Core::of_handler() else {
            return self.with(operation).map(|(result, _)| result);
        };
        core.spend();
        let mut deadline = None;
        loop {
            let readiness = self.readiness(&core);
            let direction = readiness.as_deref().map(|readiness| direction(readiness, way));
            if direction.is_none_or(Direction::maybe_ready) {
                match self.with(&mut operation) {
                    Ok((result, After::More)) => return Ok(result),
                    Ok((result, After::Drained)) => {
                        direction.inspect(|direction| direction.drained());
                        return Ok(result);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        direction.inspect(|direction| direction.would_block());
                    }
                    Err(error) => {
                        if is_exhaustion(&error) {
                            core.spend_all();
                        }
                        return Err(error);
                    }
                }
            }
            match direction {
                None => self.register(&core)?,
                Some(direction) => {
                    let deadline = *deadline.get_or_insert_with(|| core.deadline(limit));
                    direction.wait(&core, deadline)?;
                }
            }
        }
    }

    /// Suspends the coroutine until the system has something new to say about it. Returns whether it
    /// may have more to say later.
    pub(super) fn wait(&self, core: &Rc<Core>, way: Way, at: Option<Instant>) -> io::Result<bool> {
        if self.readiness(core).is_none() {
            self.register(core)?;
        }
        let readiness = self.readiness(core).expect("it was registered just now");
        let direction = direction(&readiness, way);
        direction.drained();
        direction.wait(core, at)?;
        Ok(!direction.is_over())
    }

    /// What its scheduler knows of it. A socket that comes to another scheduler leaves the one before.
    fn readiness(&self, core: &Rc<Core>) -> Option<Rc<Readiness>> {
        if let Some(registered) = &*self.registered.borrow()
            && Rc::ptr_eq(&registered.core, core)
        {
            return Some(registered.readiness.clone());
        }
        self.unregister();
        None
    }

    fn unregister(&self) {
        if let Some(Registered { core, key, readiness }) = self.registered.take() {
            core.observer.remove_socket(key, &mut *self.source.borrow_mut());
            readiness.read.abandon();
            readiness.write.abandon();
        }
    }

    fn register(&self, core: &Rc<Core>) -> io::Result<()> {
        let (key, readiness) = core.observer.add_socket(&mut *self.source.borrow_mut())?;
        // The system reports at once what it is ready for: until then there is nothing to try.
        readiness.read.drained();
        readiness.write.drained();
        self.registered.replace(Some(Registered { core: core.clone(), key, readiness }));
        Ok(())
    }
}

impl<S: Source> Socket<S>
where
    for<'a> &'a S: Read + Write,
{
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len();
        self.io(Way::Read, |mut socket| Ok(counted(socket.read(buffer)?, room)))
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.io(Way::Write, |mut socket| Ok(counted(socket.write(bytes)?, bytes.len())))
    }

    pub(super) fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let all = slices.iter().map(|slice| slice.len()).sum();
        self.io(Way::Write, |mut socket| Ok(counted(socket.write_vectored(slices)?, all)))
    }
}

fn direction(readiness: &Readiness, way: Way) -> &Direction {
    match way {
        Way::Read => &readiness.read,
        Way::Write => &readiness.write,
    }
}

/// Whether the machine or the process has run out of something that others may give back.
fn is_exhaustion(error: &io::Error) -> bool {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    // Of these, the one that is not the same on Linux and on BSD and macOS.
    const ENOBUFS: i32 = if cfg!(target_os = "linux") { 105 } else { 55 };
    matches!(error.raw_os_error(), Some(ENOMEM | ENFILE | EMFILE | ENOBUFS))
}

impl<S: Source> Drop for Socket<S> {
    fn drop(&mut self) {
        self.unregister();
    }
}

/// A limit that std refuses too.
pub(super) fn checked(limit: Option<Duration>) -> io::Result<Option<Duration>> {
    if limit == Some(Duration::ZERO) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a time limit of zero"));
    }
    Ok(limit)
}

/// How many bytes were read or written, of how many there was room for: fewer means that there
/// were no more.
fn counted(bytes: usize, of: usize) -> (usize, After) {
    (bytes, if bytes > 0 && bytes < of { After::Drained } else { After::More })
}
