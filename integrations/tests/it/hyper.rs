//! hyper's client and server, both in handlers: a program serves connections, another asks it.

use std::convert::Infallible;
use std::net::SocketAddr;

use ::hyper::body::{Bytes, Incoming};
use ::hyper::server::conn::http1;
use ::hyper::service::service_fn;
use ::hyper::{Request, Response, Uri};
use comporta::{App, Error, Plan, Running, Sender};
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

use crate::program::{all_come_through, ends, waiting};

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from(request.uri().path()[1..].to_owned())))
}

/// A program that serves every connection in a handler: a keep-alive connection is an event that waits.
pub(crate) fn server() -> (Running, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let app = App::new("server");
    let accept = app.sink_async("accept", |(listener, connections): Accepting| async move {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            if connections.send_async(stream).await.is_err() {
                return Ok::<(), Error>(()); // the program ends
            }
        }
    });
    let (listeners, listening) = app.input::<Accepting>("listeners");
    let (connections, connected) = app.input::<TcpStream>("connections");
    let serve = app.sink_async("serve", |stream: TcpStream| async {
        let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(echo));
        served.await.map_err(Error::from)
    });
    app.connect_local(listening, accept);
    app.connect_local(connected, serve);
    let running = app.start(&Plan::new().stage("serve", |serve| serve.instances(1_000))).unwrap();
    listeners.send((listener, connections)).unwrap();
    (running, address)
}

type Accepting = (std::net::TcpListener, Sender<TcpStream>);

#[test]
fn a_program_asks_another_over_http_both_in_handlers() {
    let (server, address) = server();
    let app = App::new("asking");
    let client = app.resource(
        "client",
        || Ok(Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>()),
        drop,
    );
    let asking = waiting(app, 500, 50, move |n| {
        let client = client.clone();
        async move {
            let uri: Uri = format!("http://{address}/{n}").parse()?;
            let body = client.get().get(uri).await?.into_body().collect().await?.to_bytes();
            Ok(std::str::from_utf8(&body)?.parse()?)
        }
    });
    all_come_through(asking, 500);
    // Its acceptor waits for ever: it is cancelled, and so are connections that are still open.
    let summary = server.stop();
    assert!(summary.snapshot.adds_up(), "{summary}");
    assert!(summary.problems.is_empty(), "{summary}");
}

#[test]
fn a_connection_that_ends_in_the_middle_costs_its_event() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let app = App::new("cut-off");
    let (running, seen) = waiting(app, 1, 1, move |n| async move {
        let stream = TcpStream::connect(address).await?;
        let (mut sender, connection) =
            ::hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        sender.send_request(Request::new(Empty::<Bytes>::new())).await?;
        Ok(n)
    });
    drop(listener.accept().unwrap());
    let summary = ends(running);
    assert!(seen.lock().unwrap().is_empty());
    assert_eq!(summary.snapshot.stage("wait").unwrap().counts.failed, 1, "{summary}");
}
