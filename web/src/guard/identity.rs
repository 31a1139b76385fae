//! Who asks, and whether that is allowed to them.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use crate::access::{COOKIE, Role};
use crate::api::Fault;
use crate::web::Shared;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) role: Role,
    /// How they have shown it, for the log.
    pub(crate) by: &'static str,
    /// From where; not known within another program's server.
    pub(crate) from: Option<SocketAddr>,
}

/// Puts [`Who`] into the request, or refuses it.
pub(crate) async fn check(State(shared): State<Shared>, mut request: Request, next: Next) -> Response {
    let Some(who) = who(&shared, &request) else {
        return unknown(&shared, &request);
    };
    if who.role == Role::Read && !request.method().is_safe() {
        return Fault::new(StatusCode::FORBIDDEN, "this token may only look").into_response();
    }
    request.extensions_mut().insert(who);
    next.run(request).await
}

fn who(shared: &Shared, request: &Request) -> Option<Who> {
    let from = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    let access = &shared.access;
    if !access.has_tokens() {
        return Some(Who { role: Role::Act, by: "nothing", from });
    }
    // Who shows a token is known by it alone, right or wrong.
    if let Some(said) = bearer(request.headers()) {
        let role = access.role_of(said)?;
        return Some(Who { role, by: "token", from });
    }
    let role = access.role_of_cookie(cookie(request.headers())?, now_s())?;
    Some(Who { role, by: "cookie", from })
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut all = lines.flat_map(|line| line.split(';')).filter_map(|one| one.trim().split_once('='));
    all.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A person is asked for the token, a program is told that it needs one.
fn unknown(shared: &Shared, request: &Request) -> Response {
    let wants_page = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let wants_page = wants_page.is_some_and(|accept| accept.contains("text/html"));
    if shared.has_pages() && wants_page && request.method().is_safe() {
        return Redirect::to(&shared.path("/login")).into_response();
    }
    let fault = Fault::new(StatusCode::UNAUTHORIZED, "a token is needed: Authorization: Bearer …");
    ([(header::WWW_AUTHENTICATE, "Bearer")], fault).into_response()
}
