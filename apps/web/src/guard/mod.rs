//! Checks and limits of each request, and security headers of each answer.

mod guesses;
mod identity;

pub(crate) use self::guesses::TokenThrottle;
pub(crate) use self::identity::{AuditRecord, Caller, TokenCheck, TokenRefusal, cookie};

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
use crate::web::SharedState;

/// Requires a token, if there are tokens.
pub(crate) fn closed(routes: Router<SharedState>, shared: &SharedState) -> Router<SharedState> {
    routes.layer(from_fn_with_state(shared.clone(), identity::check))
}

/// Limits routes that need no token.
pub(crate) fn open(routes: Router<SharedState>) -> Router<SharedState> {
    routes.layer(from_fn(read_at_once))
}

/// Adds the layers around all routes. A request meets the last one first.
pub(crate) fn around(routes: Router<SharedState>, shared: &SharedState) -> Router<SharedState> {
    let routes = limited(routes, shared);
    // Refuses requests that a page of another site makes a browser send.
    let routes = routes.layer(CsrfLayer::new());
    // Checked before the origin: after DNS rebinding a browser sends an `Origin` that matches.
    let routes = routes.layer(from_fn_with_state(shared.clone(), check_host));
    routes.layer(from_fn(api::as_json)).layer(from_fn(add_headers))
}

/// Answers that the route does not exist.
pub(crate) async fn absent() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "not found\n")
}

/// Maximum bytes of a body. It limits payloads to 2 MiB of JSON, or 1.5 MiB of bytes in base64.
const LARGEST_BODY: usize = 2 << 20;

/// Maximum bytes of a body without a token, and its time limit. The form with a token is smaller.
const LARGEST_BEFORE: usize = 2 << 10;
const BEFORE: Duration = Duration::from_secs(2);

async fn read_at_once(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match timeout(BEFORE, to_bytes(body, LARGEST_BEFORE)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(head, Body::from(body))).await,
        Ok(Err(_)) => {
            (StatusCode::PAYLOAD_TOO_LARGE, "the body is too large: send a token only\n").into_response()
        }
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n").into_response(),
    }
}

/// Limits the size and the time of a request.
fn limited(routes: Router<SharedState>, shared: &SharedState) -> Router<SharedState> {
    // The limit applies to `Content-Length` before the body is read, and to the bytes that arrive.
    let routes = routes.layer(DefaultBodyLimit::disable()).layer(RequestBodyLimitLayer::new(LARGEST_BODY));
    let routes = routes.layer(RequestBodyTimeoutLayer::new(shared.limits.body));
    routes.layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, shared.limits.answer))
}

/// Refuses requests to a host name that is not one of this server.
async fn check_host(State(shared): State<SharedState>, request: Request, next: Next) -> Response {
    if is_ours(&shared, &request) {
        return next.run(request).await;
    }
    let why = "unknown host name: `--allowed-host NAME` adds one\n";
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

/// Returns whether the request has a host, and the hosts of its line and of its header are names of this server.
fn is_ours(shared: &SharedState, request: &Request) -> bool {
    let of_line = request.uri().authority().map(|authority| authority.as_str());
    let of_headers: Vec<_> = request.headers().get_all(header::HOST).iter().collect();
    if of_headers.len() > 1 {
        return false;
    }
    let of_header = of_headers.first().map(|host| host.to_str().unwrap_or_default());
    let mut said = of_line.into_iter().chain(of_header).peekable();
    said.peek().is_some() && said.all(|host| shared.access.is_host(host))
}

/// Returns the host of a request that passed [`check_host`], with its port.
pub(crate) fn said_host(parts: &Parts) -> Option<&str> {
    let of_header = || parts.headers.get(header::HOST)?.to_str().ok();
    parts.uri.authority().map(|authority| authority.as_str()).or_else(of_header)
}

/// Allows files of this server only, and nothing inline.
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

/// Adds the security headers to an answer.
async fn add_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        // Headers of a route take precedence: browsers may cache files that never change.
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
