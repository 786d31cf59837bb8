//! The program: the graph, and the server that feeds it. How much it takes on stands in the plan (`api.toml`).

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use comporta::{App, Choice, Plan, Resource, WhenFull};

use crate::server::Server;
use crate::{http, quotes};

/// Quotes prices over HTTP: `POST /quotes` with an item and a quantity. Under overload it refuses some requests with
/// 503, and answers the others in time. SIGTERM ends it, when the requests in flight have been answered.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Where to listen; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// How long the supplier takes for one price, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 20)]
    takes: u64,
}

/// How it runs where no plan says otherwise.
pub fn plan() -> Plan {
    Plan::new()
        .stage("quotes", |quotes| quotes.deadline(Duration::from_secs(1)).in_flight(1_000))
        .stage("price", |price| {
            price
                .instances(8)
                .timeout(Duration::from_millis(500))
                .capacity(40)
                .when_full(WhenFull::Reject)
                .admission(Choice::new("codel"))
        })
}

/// The graph, and a server on what `listen` returns.
pub fn app(
    takes: Duration,
    listen: impl FnOnce() -> io::Result<TcpListener> + Send + 'static,
) -> (App, Resource<Server>) {
    let app = App::new("api");
    let client = quotes::graph(&app, takes);
    let open = move || Ok(Server::start(listen()?, http::router(client))?);
    let server = app.resource("server", open, Server::stop);
    app.set_plan(plan());
    (app, server)
}

/// Makes the program of its arguments.
#[must_use]
pub fn build(args: Args) -> App {
    let (app, _) = app(Duration::from_millis(args.takes), move || {
        let listener = TcpListener::bind(args.listen)?;
        writeln!(io::stdout(), "listening on http://{}", listener.local_addr()?)?;
        Ok(listener)
    });
    app
}
