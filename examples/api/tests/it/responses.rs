//! What is answered to which request.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use api::program;
use api::quotes::{Price, Supplier};
use comporta::testing::replace_resource;
use comporta::{App, AsyncCx, Error, Plan, Running};

use crate::client::quote;

/// The program, on a free port.
pub(crate) fn served() -> (App, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (app, _) = program::app(Duration::ZERO, move || Ok(listener));
    (app, address)
}

pub(crate) fn supplied(app: &App, supplier: impl Supplier + 'static) {
    replace_resource(app, "supplier", move || Ok(Box::new(supplier) as Box<dyn Supplier>));
}

fn started(supplier: Option<Failing>) -> (Running, SocketAddr) {
    let (app, address) = served();
    supplier.into_iter().for_each(|supplier| supplied(&app, supplier));
    (app.start(&Plan::new()).unwrap(), address)
}

struct Failing(fn() -> Price<'static>);

impl Supplier for Failing {
    fn price<'a>(&'a self, _: &'a str, _: &'a AsyncCx) -> Price<'a> {
        (self.0)()
    }
}

#[test]
fn an_order_is_quoted_and_what_is_wrong_with_others_is_said() {
    let (running, address) = started(None);
    for (order, status, body) in [
        (r#"{"item": "tea", "quantity": 2}"#, 200, r#""cents":780"#),
        (r#"{"item": "tea", "quantity": 10}"#, 200, r#""cents":3510"#),
        (r#"{"item": "gold", "quantity": 1}"#, 404, "no such item"),
        (r#"{"item": "tea"}"#, 422, "missing field `quantity`"),
        ("{", 400, "EOF"),
    ] {
        let response = quote(address, order);
        assert_eq!(response.status, status, "{order}: {response:?}");
        assert!(response.body.contains(body), "{order}: {response:?}");
    }
    let _ = running.drain();
}

#[test]
fn a_supplier_that_fails_is_a_bad_gateway_and_one_that_does_not_answer_a_timeout() {
    const ORDER: &str = r#"{"item": "tea", "quantity": 1}"#;
    let fails = Failing(|| Box::pin(async { Err(Error::msg("out of order")) }));
    let (running, address) = started(Some(fails));
    let response = quote(address, ORDER);
    assert_eq!(response.status, 502, "{response:?}");
    assert!(response.body.contains("failed in `price`: out of order"), "{response:?}");
    let _ = running.drain();

    let (app, address) = served();
    supplied(&app, Failing(|| Box::pin(std::future::pending())));
    let ten = Duration::from_millis(10);
    let plan = Plan::new()
        .stage("quotes", |quotes| quotes.deadline(ten))
        .stage("price", |price| price.timeout(Duration::from_secs(60)));
    let running = app.start(&plan).unwrap();
    let response = quote(address, ORDER);
    assert_eq!(response.status, 504, "{response:?}");
    let _ = running.drain();
}
