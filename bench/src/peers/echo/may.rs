//! Peer `may` of the echo bench: stackful coroutines on a scheduler of the whole process, which is told
//! to use one worker.

use super::{BUFFER, Server};
use may::coroutine::{Builder, JoinHandle};
use may::net::{TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::net::SocketAddr;

struct Up {
    address: SocketAddr,
    listening: JoinHandle<io::Result<()>>,
}

impl Server for Up {
    fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Up {
    #[expect(unsafe_code, reason = "may has no other way to cancel a coroutine")]
    fn drop(&mut self) {
        // SAFETY: it is suspended in `accept`, and has nothing that a cancellation could leave half done.
        unsafe { self.listening.coroutine().cancel() };
    }
}

pub(super) fn up() -> Box<dyn Server> {
    may::config().set_workers(1);
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    let accept = move || loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        drop(start(move || echo(stream))?);
    };
    Box::new(Up { address, listening: start(accept).expect("it has memory for a stack") })
}

#[expect(unsafe_code, reason = "may cannot know that a coroutine stays within its stack")]
fn start(
    run: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<JoinHandle<io::Result<()>>> {
    // SAFETY: the coroutines above use a buffer of 1 KiB and no thread-local; the stack is 64 KiB.
    unsafe { Builder::new().stack_size(64 * 1024).spawn(run) }
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; BUFFER];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            read => stream.write_all(&buffer[..read])?,
        }
    }
}
