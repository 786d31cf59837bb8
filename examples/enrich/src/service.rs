//! The service that is asked, so that the example needs none: it says which country an address belongs to, over HTTP
//! on the loopback interface, on a thread of its own. On request it misbehaves as services do: some answers come
//! late, some are errors, and too many questions are refused.
//!
//! What it does to an address follows from the address and from how often it was asked, never from chance: so the
//! result of a run does not depend on its timing.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use comporta::{Error, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::RETRY_AFTER;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::visits::Dice;

/// How the service misbehaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// The share of addresses whose first answer comes late.
    pub(crate) slow: f64,
    /// How late.
    pub(crate) delay: Duration,
    /// The share of addresses whose first answer is an error.
    pub(crate) failing: f64,
    /// The share of addresses that it does not know.
    pub(crate) unknown: f64,
    /// How many questions it answers in a second; others are refused until the second is over.
    pub(crate) limit: u32,
}

/// The service while it runs.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Service {
    /// Starts it on a free port.
    pub(crate) fn start(faults: Faults) -> io::Result<Service> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("service".to_owned()).spawn(move || {
            runtime.spawn(serve(listener, faults));
            let _ = runtime.block_on(stopped); // dropping the runtime ends the rest
        })?;
        Ok(Service { address, stop, thread })
    }

    /// Ends it, with all its connections.
    pub(crate) fn stop(self) -> Result {
        drop(self.stop);
        self.thread.join().map_err(|_| Error::msg("the service panicked"))
    }
}

async fn serve(listener: std::net::TcpListener, faults: Faults) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let state = Arc::new(State { faults, asked: Mutex::default() });
    loop {
        let (stream, _) = listener.accept().await?;
        let state = state.clone();
        let answer = service_fn(move |request| answer(state.clone(), request));
        // A client that hangs up is its own business.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}

struct State {
    faults: Faults,
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    times: HashMap<Ipv4Addr, u32>,
    /// The second at hand, and how many were answered in it.
    second: Option<(Instant, u32)>,
}

/// `GET /country/198.18.0.7`
async fn answer(
    state: Arc<State>,
    request: Request<Incoming>,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path();
    let address = path.strip_prefix("/country/").and_then(|address| address.parse().ok());
    let Some(address) = address else { return Ok(said(StatusCode::BAD_REQUEST, "no address")) };
    let verdict = state.verdict(address);
    if let Verdict::Late(_) = verdict {
        tokio::time::sleep(state.faults.delay).await;
    }
    Ok(match verdict {
        Verdict::Country(country) | Verdict::Late(country) => said(StatusCode::OK, country),
        Verdict::Unknown => said(StatusCode::NOT_FOUND, "unknown"),
        Verdict::Error => said(StatusCode::INTERNAL_SERVER_ERROR, "out of order"),
        Verdict::TooMany => {
            let mut refused = said(StatusCode::TOO_MANY_REQUESTS, "too many questions");
            refused.headers_mut().insert(RETRY_AFTER, 1.into());
            refused
        }
    })
}

fn said(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

enum Verdict {
    Country(&'static str),
    Late(&'static str),
    Unknown,
    Error,
    TooMany,
}

const COUNTRIES: [&str; 8] = ["BR", "DE", "ES", "FR", "IN", "JP", "PT", "US"];

impl State {
    fn verdict(&self, address: Ipv4Addr) -> Verdict {
        let Faults { slow, failing, unknown, limit, .. } = self.faults;
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let (began, answered) = asked.second.get_or_insert_with(|| (Instant::now(), 0));
        if began.elapsed() >= Duration::from_secs(1) {
            (*began, *answered) = (Instant::now(), 0);
        }
        if *answered >= limit {
            return Verdict::TooMany;
        }
        *answered += 1;
        let times = asked.times.entry(address).or_default();
        *times += 1;
        let first = *times == 1;
        let mut dice = Dice(u32::from(address).into());
        let country = COUNTRIES[(dice.roll() % 8) as usize];
        let share = dice.share();
        match share {
            _ if share < unknown => Verdict::Unknown,
            _ if first && share < unknown + failing => Verdict::Error,
            _ if first && share < unknown + failing + slow => Verdict::Late(country),
            _ => Verdict::Country(country),
        }
    }
}
