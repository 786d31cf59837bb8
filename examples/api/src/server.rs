//! The server, as a resource: opened before events flow, closed after the last. So a program that drains refuses new
//! requests, answers those in flight, and then its server closes the connections.

use std::io;
use std::net::{SocketAddr, TcpListener};

use axum::Router;
use comporta::Result;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server while it runs.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    served: JoinHandle<io::Result<()>>,
}

impl Server {
    /// Serves connections on a runtime of its own.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn start(listener: TcpListener, router: Router) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("http")
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let served = runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let stopped = async { drop(stopped.await) };
            axum::serve(listener, router).with_graceful_shutdown(stopped).await
        });
        Ok(Server { address, runtime, stop, served })
    }

    /// Accepts no more connections, and waits until all responses have been written.
    ///
    /// # Errors
    /// The server had failed.
    pub fn stop(self) -> Result {
        drop(self.stop);
        self.runtime.block_on(self.served)??;
        Ok(())
    }
}
