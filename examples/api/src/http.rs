//! HTTP: an order becomes a request of the gateway, its reply a response. Each refusal has a status of its own, so
//! that clients know what to do: come back later, or not.

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use comporta::{Client, Refusal};

use crate::quotes::{Answer, Order};

/// When a client that was refused may try again, in seconds.
const RETRY_AFTER_S: &str = "1";

/// `POST /quotes` with an order.
pub fn router(client: Client<Order, Answer>) -> Router {
    Router::new().route("/quotes", post(quote)).with_state(client)
}

/// A client that hangs up drops this future, and with it the request.
async fn quote(State(client): State<Client<Order, Answer>>, Json(order): Json<Order>) -> Response {
    match client.request(order).await {
        Ok(Answer::Quote(quote)) => Json(quote).into_response(),
        Ok(Answer::NoSuchItem) => (StatusCode::NOT_FOUND, "no such item\n").into_response(),
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &Refusal<Order>) -> Response {
    let text = format!("{refusal}\n");
    match refusal {
        // Too much to do, or not there yet, or not any more.
        Refusal::Rejected(_)
        | Refusal::Refused(..)
        | Refusal::Shed { .. }
        | Refusal::NotStarted(_)
        | Refusal::Closed(_)
        | Refusal::Cancelled => {
            (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, RETRY_AFTER_S)], text).into_response()
        }
        Refusal::Deadline => (StatusCode::GATEWAY_TIMEOUT, text).into_response(),
        Refusal::Failed { .. } => (StatusCode::BAD_GATEWAY, text).into_response(),
        // The graph answers everything, and a task may wait: neither should happen.
        _ => (StatusCode::INTERNAL_SERVER_ERROR, text).into_response(),
    }
}
