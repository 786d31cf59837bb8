//! Sockets whose operations read like blocking ones: where a thread would block, the coroutine is
//! suspended. They implement [`Read`](std::io::Read) and [`Write`](std::io::Write), so that ordinary
//! libraries work on them.
//!
//! - A socket may be made anywhere. It belongs to the scheduler in whose coroutine it last had to
//!   wait.
//! - Outside of a coroutine an operation that would have to wait returns
//!   [`WouldBlock`](std::io::ErrorKind::WouldBlock).
//! - One that exceeds its time limit returns [`TimedOut`](std::io::ErrorKind::TimedOut).
//! - In a coroutine that is unwinding (a `Drop` of a cancelled one, say), one that would have to wait
//!   returns an error at once.
//! - A coroutine whose operations never have to wait is suspended every 128 of them, to let others go
//!   first; an operation that fails for want of descriptors or memory lets others go first too.
//!
//! 1. `socket`  what all of them share: readiness, waiting, time limits
//! 2. `families`  what listeners and streams of every family do alike
//! 3. `tcp`, `unix`  one file per family

mod socket;
mod families;
mod tcp;
mod unix;

pub use tcp::{TcpListener, TcpStream};
pub use unix::{UnixListener, UnixStream};
