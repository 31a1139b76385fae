//! Who asks, and whether that is allowed to them.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use crate::access::{Pass, Role, cookie_name};
use crate::api::Fault;
use crate::guard::Origin;
use crate::guard::host::said_host;
use crate::guard::shown::{Refused, Showing};
use crate::web::Shared;

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) role: Role,
    /// How they have shown it, for the log.
    pub(crate) by: &'static str,
    /// None where nobody needs one.
    pass: Option<Arc<Pass>>,
    pub(super) origin: Origin,
}

impl Who {
    /// Their token's, for the log.
    pub(super) fn name(&self) -> &str {
        self.pass.as_ref().map_or("", |pass| &pass.name)
    }

    /// Returns whether a topic is for them.
    pub(crate) fn may(&self, topic: &str) -> bool {
        self.pass.as_ref().is_none_or(|pass| pass.is_for(topic))
    }

    /// Returns whether they may look at all topics together.
    pub(crate) fn may_all(&self) -> bool {
        self.pass.as_ref().is_none_or(|pass| pass.is_for_all())
    }

    pub(crate) fn check_all(&self) -> Result<(), Fault> {
        let why = "this token is for some topics alone, and this is about all of them";
        self.may_all().then_some(()).ok_or_else(|| Fault::new(StatusCode::FORBIDDEN, why))
    }
}

/// Puts [`Who`] into the request, or refuses it.
pub(crate) async fn check(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let who = match who(&shared, &parts).await {
        Ok(who) => who,
        Err(Refused::Wrong) => return unknown(&shared, &parts),
        Err(Refused::TooMany) => return too_many(),
    };
    if who.role == Role::Read && !parts.method.is_safe() {
        return Fault::new(StatusCode::FORBIDDEN, "this token may only look").into_response();
    }
    if let Some(topic) = topic(&mut parts).await
        && let Err(fault) = shared.check(&who, &topic)
    {
        return fault.into_response();
    }
    parts.extensions.insert(who);
    next.run(Request::from_parts(parts, body)).await
}

async fn who(shared: &Shared, parts: &Parts) -> Result<Who, Refused> {
    let (access, showing) = (&shared.access, Showing::of(shared, parts));
    let who = |pass: Option<Arc<Pass>>, by| {
        let role = pass.as_ref().map_or(Role::Act, |pass| pass.role);
        Who { role, by, pass, origin: showing.origin }
    };
    if !access.has_tokens() {
        return Ok(who(None, "nothing"));
    }
    // Who shows a token is known by it alone, right or wrong.
    if let Some(said) = bearer(&parts.headers) {
        return showing.token(said, "token").await.map(|pass| who(Some(pass), "token"));
    }
    let pass = cookie(parts).and_then(|cookie| access.pass_of_cookie(&cookie));
    pass.map(|pass| who(Some(pass), "cookie")).ok_or(Refused::Wrong)
}

/// The topic that the path names.
async fn topic(parts: &mut Parts) -> Option<String> {
    let params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    params.iter().find(|(name, _)| *name == "topic").map(|(_, topic)| topic.to_owned())
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

/// The cookie that a browser keeps of this server.
pub(crate) fn cookie(parts: &Parts) -> Option<String> {
    let wanted = cookie_name(said_host(parts).unwrap_or_default());
    let lines = parts.headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut all = lines.flat_map(|line| line.split(';')).filter_map(|one| one.trim().split_once('='));
    all.find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned())
}

/// A person is asked for the token, a program is told that it needs one.
fn unknown(shared: &Shared, parts: &Parts) -> Response {
    let wants_page = parts.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let wants_page = wants_page.is_some_and(|accept| accept.contains("text/html"));
    if shared.has_pages() && wants_page && parts.method.is_safe() {
        return Redirect::to(&shared.path("/login")).into_response();
    }
    let fault = Fault::new(StatusCode::UNAUTHORIZED, "a token is needed: Authorization: Bearer …");
    ([(header::WWW_AUTHENTICATE, "Bearer")], fault).into_response()
}

fn too_many() -> Response {
    let why = "too many wrong tokens have come from this address: try again in some seconds";
    let fault = Fault::named(StatusCode::TOO_MANY_REQUESTS, "too_many", why);
    ([(header::RETRY_AFTER, "10")], fault).into_response()
}
