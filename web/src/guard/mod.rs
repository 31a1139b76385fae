//! What every request passes before anything is done for it, and every answer before it leaves.

mod audit;
mod guesses;
mod headers;
mod host;
mod identity;
mod limits;
mod origin;
mod shown;

pub(crate) use self::audit::Deed;
pub(crate) use self::guesses::Guesses;
pub(crate) use self::host::said_host;
pub(crate) use self::identity::{Who, cookie};
pub(crate) use self::origin::Origin;
pub(crate) use self::shown::{Refused, Showing};

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use tower_http::csrf::CsrfLayer;

use crate::api;
use crate::web::Shared;

/// Behind a token, where there is one.
pub(crate) fn closed(routes: Router<Shared>, shared: &Shared) -> Router<Shared> {
    routes.layer(from_fn_with_state(shared.clone(), identity::check))
}

/// Before a token is shown.
pub(crate) fn open(routes: Router<Shared>) -> Router<Shared> {
    limits::before_login(routes)
}

/// Around all routes: the last one here is the first that a request meets.
pub(crate) fn around(routes: Router<Shared>, shared: &Shared) -> Router<Shared> {
    let routes = limits::around(routes, shared);
    // Who may call is known by Host and token; this is about who makes a browser call.
    let routes = routes.layer(CsrfLayer::new());
    // Before anything else: a rebound name passes all that a browser says of itself.
    let routes = routes.layer(from_fn_with_state(shared.clone(), host::check));
    routes.layer(from_fn(api::as_json)).layer(from_fn(headers::add))
}

/// There is no such route.
pub(crate) async fn absent() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "there is nothing here\n")
}
