//! Refuses requests that call this server by a name that is not its own.

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::web::Shared;

pub(crate) async fn check(State(shared): State<Shared>, request: Request, next: Next) -> Response {
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
