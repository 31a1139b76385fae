//! Login and logout: a browser sends a token once, and gets a session cookie.

use askama::Template;
use axum::Form;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use serde::Deserialize;

use super::frame::{Frame, answer};
use crate::access::{LIFE, cookie_name};
use crate::guard::{self, TokenCheck, TokenRefusal, said_host};
use crate::web::SharedState;

#[derive(Template)]
#[template(path = "login.html")]
struct Page {
    frame: Frame,
    /// Why the last login failed; empty if none did.
    refused: &'static str,
    needs_token: bool,
}

#[derive(Deserialize)]
pub(super) struct LoginForm {
    token: String,
}

pub(super) async fn show(State(shared): State<SharedState>) -> Response {
    page(&shared, "")
}

pub(super) async fn enter(
    State(shared): State<SharedState>,
    parts: Parts,
    Form(shown): Form<LoginForm>,
) -> Response {
    let (status, refused) =
        match TokenCheck::of(&shared, &parts).token(shown.token.trim().as_bytes(), "login").await {
            Ok(pass) => match shared.access.cookie_for(&pass) {
                Some(cookie) => return keep(&shared, &parts, &cookie, LIFE.as_secs(), "/topics"),
                None => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            },
            Err(TokenRefusal::Wrong) => {
                (StatusCode::FORBIDDEN, "Wrong token. Enter one from this server’s token file.")
            }
            Err(TokenRefusal::TooMany) => {
                let why = "Too many wrong tokens from this address. Try again in a few seconds.";
                (StatusCode::TOO_MANY_REQUESTS, why)
            }
        };
    (status, page(&shared, refused)).into_response()
}

/// Ends the session, also for others who have a copy of its cookie.
pub(super) async fn leave(State(shared): State<SharedState>, parts: Parts) -> Response {
    if let Some(cookie) = guard::cookie(&parts) {
        shared.access.end(&cookie);
    }
    keep(&shared, &parts, "", 0, "/login")
}

/// Sets a cookie, and redirects the browser.
fn keep(shared: &SharedState, parts: &Parts, value: &str, life_s: u64, to: &str) -> Response {
    let path = match shared.path("") {
        path if path.is_empty() => "/".to_owned(),
        path => path,
    };
    let secure = if shared.access.is_tls() { "; Secure" } else { "" };
    let name = cookie_name(said_host(parts).unwrap_or_default());
    let cookie = format!("{name}={value}; HttpOnly; SameSite=Strict; Path={path}; Max-Age={life_s}{secure}");
    // Name, value, path and numbers have only characters that a header can carry.
    let Ok(cookie) = HeaderValue::try_from(cookie) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    (AppendHeaders([(header::SET_COOKIE, cookie)]), Redirect::to(&shared.path(to))).into_response()
}

fn page(shared: &SharedState, refused: &'static str) -> Response {
    let needs_token = shared.access.has_tokens();
    answer(&Page { frame: Frame::around(shared, "").still(), refused, needs_token })
}
