//! Peer `comporta` of the echo bench: the event scheduler, a coroutine per connection.

use super::{BUFFER, Server};
use comporta_scheduler::net::{TcpListener, TcpStream};
use comporta_scheduler::{Handle, Scheduler, spawn};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

struct Up {
    address: SocketAddr,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Server for Up {
    fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of it has been printed by then, and the round has failed.
            let _ = thread.join();
        }
    }
}

pub(super) fn up() -> Box<dyn Server> {
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        let mut scheduler = Scheduler::new().expect("the system has descriptors");
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        tell.send((address, scheduler.handle())).expect("it is waited for");
        scheduler.spawn(move || accept(&listener)).expect("it is the first coroutine");
        scheduler.run().expect("epoll works");
    });
    let (address, handle) = told.recv().expect("the server is up");
    Box::new(Up { address, handle, thread: Some(thread) })
}

fn accept(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        spawn(|| echo(stream))?;
    }
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
