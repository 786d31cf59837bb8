//! Who is asked: a directory of countries. In the program it is the service, over HTTP; in tests it is made up.
//! What an answer means for the event stands here: whether it is worth another try, and when.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use comporta::{Error, Result};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper::{StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// An answer that is on its way.
pub(crate) type Answer<'a> = Pin<Box<dyn Future<Output = Result<String>> + Send + 'a>>;

/// Knows which country an address belongs to.
pub(crate) trait Directory: Send + Sync {
    fn country(&self, address: Ipv4Addr) -> Answer<'_>;
}

/// The service. Its connections are kept open and used again.
pub(crate) struct Http {
    service: SocketAddr,
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl Http {
    pub(crate) fn new(service: SocketAddr) -> Self {
        Http { service, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    async fn ask(&self, address: Ipv4Addr) -> Result<String> {
        let uri: Uri = format!("http://{}/country/{address}", self.service).parse()?;
        let response = self.client.get(uri).await?;
        let status = response.status();
        if status == StatusCode::OK {
            let body = response.into_body().collect().await?.to_bytes();
            return Ok(String::from_utf8(body.to_vec())?);
        }
        let refused = Error::msg(format!("the service answers {status}"));
        Err(match retry_after(response.headers()) {
            Some(wait) => Error::retry_after(refused, wait),
            None if status.is_client_error() => Error::permanent(refused), // as wrong the next time
            None => refused,
        })
    }
}

impl Directory for Http {
    fn country(&self, address: Ipv4Addr) -> Answer<'_> {
        Box::pin(self.ask(address))
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}
