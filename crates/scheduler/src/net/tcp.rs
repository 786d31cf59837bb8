//! TCP, with the names and meanings of `std::net`.

use super::socket::{After, Socket, Way, checked, counted};
use crate::core::Core;
use mio::net;
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// Listens for TCP connections.
pub struct TcpListener {
    socket: Socket<net::TcpListener>,
}

impl TcpListener {
    /// Listens at an address; of several, at the first that can be had.
    ///
    /// # Errors
    /// The system's. A host name is looked up on the calling thread, which blocks meanwhile.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        first(address, net::TcpListener::bind)
            .map(|listener| TcpListener { socket: Socket::new(listener) })
    }

    /// Takes over a listener of the standard library.
    ///
    /// # Errors
    /// If it cannot be made non-blocking.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
        listener.set_nonblocking(true)?;
        Ok(TcpListener { socket: Socket::new(net::TcpListener::from_std(listener)) })
    }

    /// Accepts a connection; suspends the coroutine until there is one.
    ///
    /// # Errors
    /// The system's; see the [module](super). A listener stays usable after an error: if the
    /// process has no descriptor left, others go first before the next operation, and the connection
    /// stays in the backlog.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept_within(None)
    }

    /// As [`TcpListener::accept`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`TcpListener::accept`], and [`TimedOut`](io::ErrorKind::TimedOut).
    pub fn accept_timeout(&self, limit: Duration) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept_within(Some(limit))
    }

    fn accept_within(&self, limit: Option<Duration>) -> io::Result<(TcpStream, SocketAddr)> {
        let accept = |socket: &net::TcpListener| socket.accept().map(|new| (new, After::More));
        let (stream, peer) = self.socket.io_within(Way::Read, limit, accept)?;
        Ok((TcpStream { socket: Socket::new(stream) }, peer))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.with(net::TcpListener::local_addr)
    }
}

/// A TCP connection.
pub struct TcpStream {
    socket: Socket<net::TcpStream>,
}

impl TcpStream {
    /// Connects to an address; of several, to the first that answers. Suspends the coroutine.
    ///
    /// # Errors
    /// The system's. A host name is looked up on the calling thread, which blocks meanwhile.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        first(address, |address| TcpStream::connect_within(address, None))
    }

    /// Connects to an address within a limit.
    ///
    /// # Errors
    /// The system's, and [`TimedOut`](io::ErrorKind::TimedOut).
    pub fn connect_timeout(address: &SocketAddr, limit: Duration) -> io::Result<TcpStream> {
        TcpStream::connect_within(*address, checked(Some(limit))?)
    }

    fn connect_within(address: SocketAddr, limit: Option<Duration>) -> io::Result<TcpStream> {
        let core = Core::expect_handler("TcpStream::connect");
        core.spend();
        let deadline = core.deadline(limit);
        let stream = TcpStream { socket: Socket::new(net::TcpStream::connect(address)?) };
        loop {
            let more = stream.socket.wait(&core, Way::Write, deadline)?;
            if let Some(error) = stream.socket.with(net::TcpStream::take_error)? {
                return Err(error);
            }
            match stream.peer_addr() {
                Err(error) if more && error.kind() == io::ErrorKind::NotConnected => {}
                other => return other.map(|_| stream),
            }
        }
    }

    /// Takes over a stream of the standard library, which is connected.
    ///
    /// # Errors
    /// If it cannot be made non-blocking.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<TcpStream> {
        stream.set_nonblocking(true)?;
        Ok(TcpStream { socket: Socket::new(net::TcpStream::from_std(stream)) })
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

    /// Sends small pieces at once rather than gathering them.
    ///
    /// # Errors
    /// The system's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket.with(|socket| socket.set_nodelay(nodelay))
    }

    /// Shuts it down, in one direction or both.
    ///
    /// # Errors
    /// The system's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.with(|socket| socket.shutdown(how))
    }

    /// This end of it.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.with(net::TcpStream::local_addr)
    }

    /// The other end of it.
    ///
    /// # Errors
    /// The system's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.with(net::TcpStream::peer_addr)
    }
}

/// Tries the addresses one by one; the error is the last one's.
fn first<T>(
    address: impl ToSocketAddrs,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no address was given");
    for address in address.to_socket_addrs()? {
        match attempt(address) {
            Ok(made) => return Ok(made),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Read for &TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len();
        self.socket.io(Way::Read, |mut socket| Ok(counted(socket.read(buffer)?, room)))
    }
}

impl Write for &TcpStream {
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

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for TcpStream {
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

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.with(|socket| socket.fmt(f))
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.with(|socket| socket.fmt(f))
    }
}
