//! Who asks, from where, and whether that is allowed to them; and a line of the log for each action with who did it, and
//! for each wrong token.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::access::{Access, Pass, Role, cookie_name};
use crate::api::Fault;
use crate::guard::guesses::Verdict;
use crate::guard::said_host;
use crate::serve::Seat;
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

/// Why somebody does not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Wrong,
    /// It may be right.
    TooMany,
}

/// One who may show a token.
pub(crate) struct Showing {
    shared: Shared,
    pub(super) origin: Origin,
    /// Not known within another program's server.
    seat: Option<Seat>,
}

impl Showing {
    pub(crate) fn of(shared: &Shared, parts: &Parts) -> Self {
        let origin = Origin::of(parts, &shared.access);
        Self { shared: shared.clone(), origin, seat: parts.extensions.get::<Seat>().cloned() }
    }

    /// Returns the pass of a token.
    pub(crate) async fn token(&self, said: &[u8], by: &'static str) -> Result<Arc<Pass>, Refused> {
        let pass = self.shared.access.pass_of(said);
        match self.shared.guesses.judge(self.origin.address(), pass.as_ref().map(|pass| &*pass.name)) {
            Verdict::Right => pass.ok_or(Refused::Wrong),
            Verdict::Wrong(wait) => {
                self.origin.was_wrong(by);
                // One that has to wait keeps no place from others.
                let _waiting = self.seat.as_ref().map(Seat::waiting);
                sleep(wait).await;
                Err(Refused::Wrong)
            }
            Verdict::Refused { is_news } => {
                if is_news {
                    self.origin.was_refused(by);
                }
                Err(Refused::TooMany)
            }
        }
    }
}

const FORWARDED: HeaderName = HeaderName::from_static("x-forwarded-for");

#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The other end of the connection; not known within another program's server.
    from: Option<SocketAddr>,
    /// The client, as a proxy names it that is trusted.
    forwarded: Option<IpAddr>,
}

impl Origin {
    pub(super) fn of(parts: &Parts, access: &Access) -> Self {
        let from = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        let forwarded = access.has_proxy().then(|| last(&parts.headers)).flatten();
        Self { from, forwarded }
    }

    /// For the log.
    pub(super) fn from(&self) -> String {
        self.from.map(|from| from.to_string()).unwrap_or_default()
    }

    pub(super) fn forwarded(&self) -> Option<tracing::field::DisplayValue<IpAddr>> {
        self.forwarded.map(tracing::field::display)
    }

    /// Whose it is: of IPv6 the network, as everybody has as many addresses there as he likes.
    pub(super) fn address(&self) -> Option<IpAddr> {
        let address = self.forwarded.or(self.from.map(|from| from.ip()))?.to_canonical();
        Some(match address {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        })
    }
}

/// The address that the proxy has written itself: what stands before it comes from the client.
fn last(headers: &HeaderMap) -> Option<IpAddr> {
    let line = headers.get_all(FORWARDED).iter().next_back()?.to_str().ok()?;
    line.rsplit(',').next()?.trim().parse().ok()
}

/// An action.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deed<'a> {
    /// What was done: a verb of the API.
    pub(crate) verb: &'static str,
    pub(crate) topic: &'a str,
    /// Upon what: a key, or a filter's words.
    pub(crate) what: &'a str,
    pub(crate) outcome: &'a str,
    /// How many were acted upon.
    pub(crate) count: u64,
}

impl Who {
    /// Writes down that this was done.
    pub(crate) fn did(&self, deed: Deed<'_>) {
        let Deed { verb, topic, what, outcome, count } = deed;
        let (by, name, from, forwarded) = (self.by, self.name(), self.origin.from(), self.origin.forwarded());
        info!(target: "keylapse::audit", verb, topic, what, outcome, count, by, name, from, forwarded, "an action");
    }
}

impl Origin {
    pub(super) fn was_wrong(&self, by: &'static str) {
        let (from, forwarded) = (self.from(), self.forwarded());
        warn!(target: "keylapse::audit", by, from, forwarded, "a wrong token was shown");
    }

    pub(super) fn was_refused(&self, by: &'static str) {
        let (from, forwarded) = (self.from(), self.forwarded());
        warn!(target: "keylapse::audit", by, from, forwarded, "too many wrong tokens: the next of this address are refused, right or wrong");
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
