//! Identifies the caller of a request and checks its rights. Logs each action with its caller, and each wrong token.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::access::{Access, Role, TokenGrant, cookie_name};
use crate::api::ApiError;
use crate::guard::guesses::TokenVerdict;
use crate::guard::said_host;
use crate::serve::ConnectionSlot;
use crate::web::SharedState;

/// The caller of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) role: Role,
    /// How the caller sent its token, for the log.
    pub(crate) by: &'static str,
    /// `None` if the server needs no token.
    pass: Option<Arc<TokenGrant>>,
    pub(super) origin: Origin,
}

impl Caller {
    /// Returns the name of the token, for the log.
    pub(super) fn name(&self) -> &str {
        self.pass.as_ref().map_or("", |pass| &pass.name)
    }

    /// Returns whether the caller may use a topic.
    pub(crate) fn may(&self, topic: &str) -> bool {
        self.pass.as_ref().is_none_or(|pass| pass.is_for(topic))
    }

    /// Returns whether the caller may use all topics.
    pub(crate) fn may_all(&self) -> bool {
        self.pass.as_ref().is_none_or(|pass| pass.is_for_all())
    }

    pub(crate) fn check_all(&self) -> Result<(), ApiError> {
        let why = "this token is for some topics only, and this route is about all of them";
        self.may_all().then_some(()).ok_or_else(|| ApiError::new(StatusCode::FORBIDDEN, why))
    }
}

/// Adds the [`Caller`] to the request, or refuses it.
pub(crate) async fn check(State(shared): State<SharedState>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let who = match who(&shared, &parts).await {
        Ok(who) => who,
        Err(TokenRefusal::Wrong) => return unknown(&shared, &parts),
        Err(TokenRefusal::TooMany) => return too_many(),
    };
    if who.role == Role::Read && !parts.method.is_safe() {
        return ApiError::new(
            StatusCode::FORBIDDEN,
            "this token may only read: use one with the right `act`",
        )
        .into_response();
    }
    if let Some(topic) = topic(&mut parts).await
        && let Err(fault) = shared.check(&who, &topic)
    {
        return fault.into_response();
    }
    parts.extensions.insert(who);
    next.run(Request::from_parts(parts, body)).await
}

async fn who(shared: &SharedState, parts: &Parts) -> Result<Caller, TokenRefusal> {
    let (access, showing) = (&shared.access, TokenCheck::of(shared, parts));
    let who = |pass: Option<Arc<TokenGrant>>, by| {
        let role = pass.as_ref().map_or(Role::Act, |pass| pass.role);
        Caller { role, by, pass, origin: showing.origin }
    };
    if !access.has_tokens() {
        return Ok(who(None, "nothing"));
    }
    // A token in the header decides alone. After a wrong one the cookie is not tried.
    if let Some(said) = bearer(&parts.headers) {
        return showing.token(said, "token").await.map(|pass| who(Some(pass), "token"));
    }
    let pass = cookie(parts).and_then(|cookie| access.pass_of_cookie(&cookie));
    pass.map(|pass| who(Some(pass), "cookie")).ok_or(TokenRefusal::Wrong)
}

/// Returns the topic in the path.
async fn topic(parts: &mut Parts) -> Option<String> {
    let params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    params.iter().find(|(name, _)| *name == "topic").map(|(_, topic)| topic.to_owned())
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

/// Returns the value of this server's cookie.
pub(crate) fn cookie(parts: &Parts) -> Option<String> {
    let wanted = cookie_name(said_host(parts).unwrap_or_default());
    let lines = parts.headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut all = lines.flat_map(|line| line.split(';')).filter_map(|one| one.trim().split_once('='));
    all.find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned())
}

/// Redirects a browser to the login page, and answers 401 to a program.
fn unknown(shared: &SharedState, parts: &Parts) -> Response {
    let wants_page = parts.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let wants_page = wants_page.is_some_and(|accept| accept.contains("text/html"));
    if shared.has_pages() && wants_page && parts.method.is_safe() {
        return Redirect::to(&shared.path("/login")).into_response();
    }
    let fault = ApiError::new(
        StatusCode::UNAUTHORIZED,
        "a token is needed: send the header Authorization: Bearer TOKEN",
    );
    ([(header::WWW_AUTHENTICATE, "Bearer")], fault).into_response()
}

fn too_many() -> Response {
    let why = "too many wrong tokens from this address: try again in a few seconds";
    let fault = ApiError::named(StatusCode::TOO_MANY_REQUESTS, "too_many", why);
    ([(header::RETRY_AFTER, "10")], fault).into_response()
}

/// Why a token was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenRefusal {
    Wrong,
    /// The address sent too many wrong tokens. This one may be right.
    TooMany,
}

/// Checks the token of one request.
pub(crate) struct TokenCheck {
    shared: SharedState,
    pub(super) origin: Origin,
    /// `None` within another program's server.
    seat: Option<ConnectionSlot>,
}

impl TokenCheck {
    pub(crate) fn of(shared: &SharedState, parts: &Parts) -> Self {
        let origin = Origin::of(parts, &shared.access);
        Self { shared: shared.clone(), origin, seat: parts.extensions.get::<ConnectionSlot>().cloned() }
    }

    /// Returns the grant of a token. Delays the answer to a wrong token.
    pub(crate) async fn token(&self, said: &[u8], by: &'static str) -> Result<Arc<TokenGrant>, TokenRefusal> {
        let pass = self.shared.access.pass_of(said);
        match self.shared.guesses.judge(self.origin.address(), pass.as_ref().map(|pass| &*pass.name)) {
            TokenVerdict::Right => pass.ok_or(TokenRefusal::Wrong),
            TokenVerdict::Wrong(wait) => {
                self.origin.was_wrong(by);
                // A delayed request counts as idle, so that it keeps no slot from others.
                let _waiting = self.seat.as_ref().map(ConnectionSlot::waiting);
                sleep(wait).await;
                Err(TokenRefusal::Wrong)
            }
            TokenVerdict::Refused { is_news } => {
                if is_news {
                    self.origin.was_refused(by);
                }
                Err(TokenRefusal::TooMany)
            }
        }
    }
}

const FORWARDED: HeaderName = HeaderName::from_static("x-forwarded-for");

#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The other end of the connection; `None` within another program's server.
    from: Option<SocketAddr>,
    /// The client's address, as a trusted proxy reports it.
    forwarded: Option<IpAddr>,
}

impl Origin {
    pub(super) fn of(parts: &Parts, access: &Access) -> Self {
        let from = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        let forwarded = access.has_proxy().then(|| last(&parts.headers)).flatten();
        Self { from, forwarded }
    }

    /// Returns the other end of the connection, for the log.
    pub(super) fn from(&self) -> String {
        self.from.map(|from| from.to_string()).unwrap_or_default()
    }

    pub(super) fn forwarded(&self) -> Option<tracing::field::DisplayValue<IpAddr>> {
        self.forwarded.map(tracing::field::display)
    }

    /// Returns the address that wrong tokens are counted for. For IPv6 it is the network of 64 bits, because a client has as
    /// many addresses in it as it likes.
    pub(super) fn address(&self) -> Option<IpAddr> {
        let address = self.forwarded.or(self.from.map(|from| from.ip()))?.to_canonical();
        Some(match address {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        })
    }
}

/// Returns the last address, which the proxy wrote itself. The earlier ones come from the client.
fn last(headers: &HeaderMap) -> Option<IpAddr> {
    let line = headers.get_all(FORWARDED).iter().next_back()?.to_str().ok()?;
    line.rsplit(',').next()?.trim().parse().ok()
}

/// A line of the audit log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuditRecord<'a> {
    /// The action, as the API names it.
    pub(crate) verb: &'static str,
    pub(crate) topic: &'a str,
    /// The key, filter or destination that the action is for, or the reason for a pause.
    pub(crate) what: &'a str,
    pub(crate) outcome: &'a str,
    /// Number of entries that changed.
    pub(crate) count: u64,
}

impl Caller {
    /// Logs an action of this caller.
    pub(crate) fn log_action(&self, deed: AuditRecord<'_>) {
        let AuditRecord { verb, topic, what, outcome, count } = deed;
        let (by, name, from, forwarded) = (self.by, self.name(), self.origin.from(), self.origin.forwarded());
        info!(target: "keylapse::audit", verb, topic, what, outcome, count, by, name, from, forwarded, "action");
    }
}

impl Origin {
    pub(super) fn was_wrong(&self, by: &'static str) {
        let (from, forwarded) = (self.from(), self.forwarded());
        warn!(target: "keylapse::audit", by, from, forwarded, "wrong token");
    }

    pub(super) fn was_refused(&self, by: &'static str) {
        let (from, forwarded) = (self.from(), self.forwarded());
        warn!(target: "keylapse::audit", by, from, forwarded, "too many wrong tokens: refusing new tokens of this address for now, right or wrong");
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn origin(lines: &[&str], has_proxy: bool) -> Origin {
        let request = lines.iter().fold(Request::builder(), |request, line| request.header(FORWARDED, *line));
        let mut parts = request.body(()).unwrap().into_parts().0;
        let from: SocketAddr = "10.0.0.1:4711".parse().unwrap();
        parts.extensions.insert(ConnectInfo(from));
        Origin::of(&parts, &Access::to_loopback().behind_proxy(has_proxy))
    }

    #[test]
    fn a_proxy_is_believed_the_address_that_it_wrote_itself() {
        for (lines, has_proxy, address) in [
            (&["192.0.2.7"][..], false, "10.0.0.1"),
            (&["192.0.2.7"], true, "192.0.2.7"),
            (&["1.1.1.1, 192.0.2.7"], true, "192.0.2.7"),
            (&["1.1.1.1", "192.0.2.7"], true, "192.0.2.7"),
            (&["2001:db8:1:2:3:4:5:6"], true, "2001:db8:1:2::"),
            (&["::ffff:192.0.2.7"], true, "192.0.2.7"),
            (&["nobody"], true, "10.0.0.1"),
            (&[], true, "10.0.0.1"),
        ] {
            assert_eq!(origin(lines, has_proxy).address(), Some(address.parse().unwrap()), "{lines:?}");
        }
    }
}
