//! Peer `tokio` of the echo bench: the current-thread runtime, a task per connection.

use super::{BUFFER, Server};
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

struct Up {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server for Up {
    fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of it has been printed by then, and the round has failed.
            let _ = thread.join();
        }
    }
}

pub(super) fn up() -> Box<dyn Server> {
    let (tell, told) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = thread::spawn(move || {
        let runtime =
            Builder::new_current_thread().enable_io().build().expect("the system has descriptors");
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
            tell.send(listener.local_addr().expect("it is bound")).expect("it is waited for");
            tokio::spawn(accept(listener));
            // Ends when the sender is dropped.
            let _ = stopped.await;
        });
    });
    let address = told.recv().expect("the server is up");
    Box::new(Up { address, stop: Some(stop), thread: Some(thread) })
}

async fn accept(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(echo(stream));
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; BUFFER];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            read => stream.write_all(&buffer[..read]).await?,
        }
    }
}
