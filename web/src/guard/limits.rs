//! How much a request may bring, and how long it may take.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::{RequestBodyTimeoutLayer, TimeoutLayer};

use crate::web::Shared;

/// The largest body, and so what can be armed over HTTP: 2 MiB of JSON, or 1.5 MiB of bytes in base64.
const LARGEST_BODY: usize = 2 << 20;

/// The most that somebody may send who has not come in yet, and how long that may take: a token in a form is shorter.
const LARGEST_BEFORE: usize = 2 << 10;
const BEFORE: Duration = Duration::from_secs(2);

/// For routes that are open to everybody.
pub(super) fn before_login(routes: Router<Shared>) -> Router<Shared> {
    routes.layer(from_fn(read_at_once))
}

async fn read_at_once(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match timeout(BEFORE, to_bytes(body, LARGEST_BEFORE)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(head, Body::from(body))).await,
        Ok(Err(_)) => (StatusCode::PAYLOAD_TOO_LARGE, "this is more than a token\n").into_response(),
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the body did not come in time\n").into_response(),
    }
}

pub(super) fn around(routes: Router<Shared>, shared: &Shared) -> Router<Shared> {
    // By the length that is said, before anything is read; and by what comes.
    let routes = routes.layer(DefaultBodyLimit::disable()).layer(RequestBodyLimitLayer::new(LARGEST_BODY));
    let routes = routes.layer(RequestBodyTimeoutLayer::new(shared.patience.body));
    routes.layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, shared.patience.answer))
}
