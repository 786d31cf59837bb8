//! Unix sockets, with the names and meanings of `std::os::unix::net`.

use super::families::{listener, stream};
use super::socket::{Socket, checked};
use crate::core::Core;
use mio::net;
use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// The system does not report when a listener has room: it is tried again, ever more seldom.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Listens for connections at a path.
pub struct UnixListener {
    socket: Socket<net::UnixListener>,
}

impl UnixListener {
    /// Listens at a path, which must not exist.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        Ok(UnixListener { socket: Socket::new(net::UnixListener::bind(path)?) })
    }
}

/// A Unix stream.
pub struct UnixStream {
    socket: Socket<net::UnixStream>,
}

impl UnixStream {
    /// Connects to a path. Suspends the coroutine while the backlog of the listener is full.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        UnixStream::connect_within(path.as_ref(), None)
    }

    /// Connects to a path within a limit.
    ///
    /// # Errors
    /// Returns the error of the system, or [`TimedOut`](io::ErrorKind::TimedOut).
    pub fn connect_timeout(path: impl AsRef<Path>, limit: Duration) -> io::Result<UnixStream> {
        UnixStream::connect_within(path.as_ref(), checked(Some(limit))?)
    }

    fn connect_within(path: &Path, limit: Option<Duration>) -> io::Result<UnixStream> {
        let core = Core::of_handler();
        core.as_ref().inspect(|core| core.spend());
        let deadline = core.as_ref().and_then(|core| core.deadline(limit));
        let mut pause = PAUSE_MIN;
        loop {
            match (net::UnixStream::connect(path), &core) {
                (Err(error), Some(core)) if error.kind() == io::ErrorKind::WouldBlock => {
                    core.pause(pause, deadline)?;
                    pause = (2 * pause).min(PAUSE_MAX);
                }
                (connected, _) => {
                    return connected.map(|stream| UnixStream { socket: Socket::new(stream) });
                }
            }
        }
    }

    /// Creates two streams that are connected to each other.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (one, other) = net::UnixStream::pair()?;
        Ok((UnixStream { socket: Socket::new(one) }, UnixStream { socket: Socket::new(other) }))
    }

    /// Takes over a stream of the standard library.
    ///
    /// # Errors
    /// Returns an error if it cannot be made non-blocking.
    pub fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<UnixStream> {
        stream.set_nonblocking(true)?;
        Ok(UnixStream { socket: Socket::new(net::UnixStream::from_std(stream)) })
    }
}

listener!(UnixListener, UnixStream, SocketAddr, net::UnixListener);
stream!(UnixStream);
