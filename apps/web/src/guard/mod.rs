//! What every request passes before anything is done for it, and every answer before it leaves.

mod guesses;
mod identity;

pub(crate) use self::guesses::Guesses;
pub(crate) use self::identity::{Deed, Refused, Showing, Who, cookie};

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;
use tower_http::csrf::CsrfLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::{RequestBodyTimeoutLayer, TimeoutLayer};

use crate::api;
use crate::web::Shared;

/// Behind a token, where there is one.
pub(crate) fn closed(routes: Router<Shared>, shared: &Shared) -> Router<Shared> {
    routes.layer(from_fn_with_state(shared.clone(), identity::check))
}

/// Before a token is shown.
pub(crate) fn open(routes: Router<Shared>) -> Router<Shared> {
    routes.layer(from_fn(read_at_once))
}

/// Around all routes: the last one here is the first that a request meets.
pub(crate) fn around(routes: Router<Shared>, shared: &Shared) -> Router<Shared> {
    let routes = limited(routes, shared);
    // Who may call is known by Host and token; this is about who makes a browser call.
    let routes = routes.layer(CsrfLayer::new());
    // Before anything else: a rebound name passes all that a browser says of itself.
    let routes = routes.layer(from_fn_with_state(shared.clone(), check_host));
    routes.layer(from_fn(api::as_json)).layer(from_fn(add_headers))
}

/// There is no such route.
pub(crate) async fn absent() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "there is nothing here\n")
}

/// The largest body, and so what can be armed over HTTP: 2 MiB of JSON, or 1.5 MiB of bytes in base64.
const LARGEST_BODY: usize = 2 << 20;

/// The most that somebody may send who has not come in yet, and how long that may take: a token in a form is shorter.
const LARGEST_BEFORE: usize = 2 << 10;
const BEFORE: Duration = Duration::from_secs(2);

async fn read_at_once(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match timeout(BEFORE, to_bytes(body, LARGEST_BEFORE)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(head, Body::from(body))).await,
        Ok(Err(_)) => (StatusCode::PAYLOAD_TOO_LARGE, "this is more than a token\n").into_response(),
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the body did not come in time\n").into_response(),
    }
}

/// Bounds how much a request may bring, and how long it may take.
fn limited(routes: Router<Shared>, shared: &Shared) -> Router<Shared> {
    // By the length that is said, before anything is read; and by what comes.
    let routes = routes.layer(DefaultBodyLimit::disable()).layer(RequestBodyLimitLayer::new(LARGEST_BODY));
    let routes = routes.layer(RequestBodyTimeoutLayer::new(shared.patience.body));
    routes.layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, shared.patience.answer))
}

/// Refuses requests that call this server by a name that is not its own.
async fn check_host(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    if is_ours(&shared, &request) {
        return next.run(request).await;
    }
    let why = "this server is not called so: --host adds a name\n";
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

/// A request says it once or, where its line has a whole URL, twice; and each time it has to be one of our names.
fn is_ours(shared: &Shared, request: &Request) -> bool {
    let of_line = request.uri().authority().map(|authority| authority.as_str());
    let of_headers: Vec<_> = request.headers().get_all(header::HOST).iter().collect();
    if of_headers.len() > 1 {
        return false;
    }
    let of_header = of_headers.first().map(|host| host.to_str().unwrap_or_default());
    let mut said = of_line.into_iter().chain(of_header).peekable();
    said.peek().is_some() && said.all(|host| shared.access.is_host(host))
}

/// By which name, and which port, a request that was let through calls this server.
pub(crate) fn said_host(parts: &Parts) -> Option<&str> {
    let of_header = || parts.headers.get(header::HOST)?.to_str().ok();
    parts.uri.authority().map(|authority| authority.as_str()).or_else(of_header)
}

/// Nothing but what this server itself has, and nothing within a page.
const CONTENT: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                       form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Tells browsers what not to do with an answer.
async fn add_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        // What a route has said by itself stands: files that never change may be kept.
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
