//! Unix sockets, with the names and meanings of `std::os::unix::net`.

use super::socket::{After, Socket, Way, checked, counted};
use mio::net;
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Listens for connections at a path.
pub struct UnixListener {
    socket: Socket<net::UnixListener>,
}

impl UnixListener {
    /// Listens at a path, which must not exist.
    ///
    /// # Errors
    /// The system's.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        Ok(UnixListener { socket: Socket::new(net::UnixListener::bind(path)?) })
    }

    /// Accepts a connection; suspends the coroutine until there is one.
    ///
    /// # Errors
    /// As [`TcpListener::accept`](super::TcpListener::accept).
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        self.accept_within(None)
    }

    /// As [`UnixListener::accept`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`UnixListener::accept`], and [`TimedOut`](io::ErrorKind::TimedOut).
    pub fn accept_timeout(&self, limit: Duration) -> io::Result<(UnixStream, SocketAddr)> {
        self.accept_within(Some(limit))
    }

    fn accept_within(&self, limit: Option<Duration>) -> io::Result<(UnixStream, SocketAddr)> {
        let accept = |socket: &net::UnixListener| socket.accept().map(|new| (new, After::More));
        let (stream, peer) = self.socket.io_within(Way::Read, limit, accept)?;
        Ok((UnixStream { socket: Socket::new(stream) }, peer))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.with(net::UnixListener::local_addr)
    }
}

/// A Unix stream.
pub struct UnixStream {
    socket: Socket<net::UnixStream>,
}

impl UnixStream {
    /// Connects to a path. The system answers at once: there is no need to wait.
    ///
    /// # Errors
    /// The system's; [`WouldBlock`](io::ErrorKind::WouldBlock) if the backlog of the listener is full.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        Ok(UnixStream { socket: Socket::new(net::UnixStream::connect(path)?) })
    }

    /// Two ends that are connected to each other.
    ///
    /// # Errors
    /// The system's.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (one, other) = net::UnixStream::pair()?;
        Ok((UnixStream { socket: Socket::new(one) }, UnixStream { socket: Socket::new(other) }))
    }

    /// Takes over a stream of the standard library.
    ///
    /// # Errors
    /// If it cannot be made non-blocking.
    pub fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<UnixStream> {
        stream.set_nonblocking(true)?;
        Ok(UnixStream { socket: Socket::new(net::UnixStream::from_std(stream)) })
    }

    /// Limits each wait of a read (`None`: no limit).
    ///
    /// # Errors
    /// If the limit is zero.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.socket.limit(Way::Read).set(checked(limit)?);
        Ok(())
    }

    /// Limits each wait of a write (`None`: no limit).
    ///
    /// # Errors
    /// If the limit is zero.
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.socket.limit(Way::Write).set(checked(limit)?);
        Ok(())
    }

    /// Shuts it down, in one direction or both.
    ///
    /// # Errors
    /// The system's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.with(|socket| socket.shutdown(how))
    }
}

impl Read for &UnixStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len();
        self.socket.io(Way::Read, |mut socket| Ok(counted(socket.read(buffer)?, room)))
    }
}

impl Write for &UnixStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.io(Way::Write, |mut socket| Ok(counted(socket.write(bytes)?, bytes.len())))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let all = slices.iter().map(|slice| slice.len()).sum();
        self.socket.io(Way::Write, |mut socket| Ok(counted(socket.write_vectored(slices)?, all)))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for UnixStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for UnixStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.with(|socket| socket.fmt(f))
    }
}

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.with(|socket| socket.fmt(f))
    }
}
