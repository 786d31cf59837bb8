//! What the types of all families of sockets have in common: a listener accepts, a stream is read, written and shut
//! down. Each is written once here, for a type that has a `socket`.

/// Accepting, for a listener whose streams are `$stream`.
macro_rules! listener {
    ($listener:ident, $stream:ident, $address:ty, $raw:ty) => {
        impl $listener {
            /// Accepts a connection; suspends the coroutine until there is one.
            ///
            /// # Errors
            /// Returns the error of the system; see the [module](super). A listener stays usable after an error: if the
            /// process has no descriptor left, others go first before the next operation, and the
            /// connection stays in the backlog.
            pub fn accept(&self) -> std::io::Result<($stream, $address)> {
                self.accept_within(None)
            }

            /// Like `accept`, but waits no longer than `limit`.
            ///
            /// # Errors
            /// Like `accept`, or [`TimedOut`](std::io::ErrorKind::TimedOut).
            pub fn accept_timeout(
                &self,
                limit: std::time::Duration,
            ) -> std::io::Result<($stream, $address)> {
                self.accept_within(Some(limit))
            }

            fn accept_within(
                &self,
                limit: Option<std::time::Duration>,
            ) -> std::io::Result<($stream, $address)> {
                use super::socket::{After, Socket, Way};
                let accept = |socket: &$raw| socket.accept().map(|new| (new, After::More));
                let (stream, peer) = self.socket.io_within(Way::Read, limit, accept)?;
                Ok(($stream { socket: Socket::new(stream) }, peer))
            }

            /// Returns the address at which it listens.
            ///
            /// # Errors
            /// Returns the error of the system.
            pub fn local_addr(&self) -> std::io::Result<$address> {
                self.socket.with(<$raw>::local_addr)
            }
        }

        impl std::fmt::Debug for $listener {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.socket.with(|socket| socket.fmt(f))
            }
        }
    };
}

/// Reading, writing, time limits and shutting down.
macro_rules! stream {
    ($stream:ident) => {
        impl $stream {
            /// Limits each wait of a read (`None`: no limit).
            ///
            /// # Errors
            /// Returns an error if the limit is zero.
            pub fn set_read_timeout(
                &self,
                limit: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.socket.set_limit(super::socket::Way::Read, limit)
            }

            /// Limits each wait of a write (`None`: no limit).
            ///
            /// # Errors
            /// Returns an error if the limit is zero.
            pub fn set_write_timeout(
                &self,
                limit: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.socket.set_limit(super::socket::Way::Write, limit)
            }

            /// Shuts the stream down, in one direction or both.
            ///
            /// # Errors
            /// Returns the error of the system.
            pub fn shutdown(&self, how: std::net::Shutdown) -> std::io::Result<()> {
                self.socket.with(|socket| socket.shutdown(how))
            }
        }

        impl std::io::Read for &$stream {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.socket.read(buffer)
            }
        }

        impl std::io::Write for &$stream {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.socket.write(bytes)
            }

            fn write_vectored(
                &mut self,
                slices: &[std::io::IoSlice<'_>],
            ) -> std::io::Result<usize> {
                self.socket.write_vectored(slices)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        impl std::io::Read for $stream {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.socket.read(buffer)
            }
        }

        impl std::io::Write for $stream {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.socket.write(bytes)
            }

            fn write_vectored(
                &mut self,
                slices: &[std::io::IoSlice<'_>],
            ) -> std::io::Result<usize> {
                self.socket.write_vectored(slices)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        impl std::fmt::Debug for $stream {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.socket.with(|socket| socket.fmt(f))
            }
        }
    };
}

pub(super) use {listener, stream};
