//! Shows a token once, and keeps a cookie in its place.

use askama::Template;
use axum::Form;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use serde::Deserialize;

use super::frame::{Frame, answer};
use crate::access::{LIFE, cookie_name};
use crate::guard::{self, Refused, Showing, said_host};
use crate::web::Shared;

#[derive(Template)]
#[template(path = "login.html")]
struct Page {
    frame: Frame,
    /// Why somebody was not let in, if that is so.
    refused: &'static str,
    needs_token: bool,
}

#[derive(Deserialize)]
pub(super) struct Shown {
    token: String,
}

pub(super) async fn show(State(shared): State<Shared>) -> Response {
    page(&shared, "")
}

pub(super) async fn enter(State(shared): State<Shared>, parts: Parts, Form(shown): Form<Shown>) -> Response {
    let (status, refused) =
        match Showing::of(&shared, &parts).token(shown.token.trim().as_bytes(), "login").await {
            Ok(pass) => match shared.access.cookie_for(&pass) {
                Some(cookie) => return keep(&shared, &parts, &cookie, LIFE.as_secs(), "/topics"),
                None => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            },
            Err(Refused::Wrong) => (StatusCode::FORBIDDEN, "This is no token of this server."),
            Err(Refused::TooMany) => {
                let why = "Too many wrong tokens have come from this address: try again in some seconds.";
                (StatusCode::TOO_MANY_REQUESTS, why)
            }
        };
    (status, page(&shared, refused)).into_response()
}

/// Ends the visit, for all who may have its cookie.
pub(super) async fn leave(State(shared): State<Shared>, parts: Parts) -> Response {
    if let Some(cookie) = guard::cookie(&parts) {
        shared.access.end(&cookie);
    }
    keep(&shared, &parts, "", 0, "/login")
}

/// Has the browser keep a cookie, and go on.
fn keep(shared: &Shared, parts: &Parts, value: &str, life_s: u64, to: &str) -> Response {
    let path = match shared.path("") {
        path if path.is_empty() => "/".to_owned(),
        path => path,
    };
    let secure = if shared.access.is_tls() { "; Secure" } else { "" };
    let name = cookie_name(said_host(parts).unwrap_or_default());
    let cookie = format!("{name}={value}; HttpOnly; SameSite=Strict; Path={path}; Max-Age={life_s}{secure}");
    // Name, value, path and numbers are of letters that a header can carry.
    let Ok(cookie) = HeaderValue::try_from(cookie) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    (AppendHeaders([(header::SET_COOKIE, cookie)]), Redirect::to(&shared.path(to))).into_response()
}

fn page(shared: &Shared, refused: &'static str) -> Response {
    let needs_token = shared.access.has_tokens();
    answer(&Page { frame: Frame::around(shared, "").still(), refused, needs_token })
}
