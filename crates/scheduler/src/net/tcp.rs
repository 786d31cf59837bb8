//! TCP, with the names and meanings of `std::net`.

use super::families::{listener, stream};
use super::socket::{Socket, Way, checked};
use crate::core::Core;
use mio::net;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// Listens for TCP connections.
pub struct TcpListener {
    socket: Socket<net::TcpListener>,
}

impl TcpListener {
    /// Listens at an address; of several, at the first that can be had.
    ///
    /// # Errors
    /// Returns the error of the system. A host name is looked up on the calling thread, which blocks meanwhile.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        first(address, net::TcpListener::bind)
            .map(|listener| TcpListener { socket: Socket::new(listener) })
    }

    /// Takes over a listener of the standard library.
    ///
    /// # Errors
    /// Returns an error if it cannot be made non-blocking.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
        listener.set_nonblocking(true)?;
        Ok(TcpListener { socket: Socket::new(net::TcpListener::from_std(listener)) })
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
    /// Returns the error of the system. A host name is looked up on the calling thread, which blocks meanwhile.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        first(address, |address| TcpStream::connect_within(address, None))
    }

    /// Connects to an address within a limit.
    ///
    /// # Errors
    /// Returns the error of the system, or [`TimedOut`](io::ErrorKind::TimedOut).
    pub fn connect_timeout(address: &SocketAddr, limit: Duration) -> io::Result<TcpStream> {
        TcpStream::connect_within(*address, checked(Some(limit))?)
    }

    fn connect_within(address: SocketAddr, limit: Option<Duration>) -> io::Result<TcpStream> {
        // It always has to wait, if only for the answer.
        let core = Core::of_handler().ok_or(io::ErrorKind::WouldBlock)?;
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
    /// Returns an error if it cannot be made non-blocking.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<TcpStream> {
        stream.set_nonblocking(true)?;
        Ok(TcpStream { socket: Socket::new(net::TcpStream::from_std(stream)) })
    }

    /// Sets whether small pieces are sent at once, rather than gathered (`TCP_NODELAY`).
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket.with(|socket| socket.set_nodelay(nodelay))
    }

    /// Returns the address of this end.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.with(net::TcpStream::local_addr)
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// Returns the error of the system.
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

listener!(TcpListener, TcpStream, SocketAddr, net::TcpListener);
stream!(TcpStream);
