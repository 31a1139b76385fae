//! Shows a token once, and keeps a cookie in its place.

use askama::Template;
use axum::Form;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use serde::Deserialize;
use tracing::info;

use super::frame::{Frame, answer};
use crate::access::{COOKIE, LIFE};
use crate::guard::now_s;
use crate::web::Shared;

#[derive(Template)]
#[template(path = "login.html")]
struct Page {
    frame: Frame,
    is_wrong: bool,
    needs_token: bool,
}

#[derive(Deserialize)]
pub(super) struct Shown {
    token: String,
}

pub(super) async fn show(State(shared): State<Shared>) -> Response {
    page(&shared, false)
}

pub(super) async fn enter(State(shared): State<Shared>, Form(shown): Form<Shown>) -> Response {
    let role = shared.access.role_of(shown.token.trim().as_bytes());
    let cookie = role.and_then(|role| shared.access.cookie_for(role, now_s()));
    let Some(cookie) = cookie else {
        info!(target: "keylapse::audit", "a wrong token was shown");
        return (StatusCode::FORBIDDEN, page(&shared, true)).into_response();
    };
    keep(&shared, &cookie, LIFE.as_secs(), "/topics")
}

pub(super) async fn leave(State(shared): State<Shared>) -> Response {
    keep(&shared, "", 0, "/login")
}

/// Has the browser keep a cookie, and go on.
fn keep(shared: &Shared, value: &str, life_s: u64, to: &str) -> Response {
    let path = match shared.path("") {
        path if path.is_empty() => "/".to_owned(),
        path => path,
    };
    let secure = if shared.access.is_tls() { "; Secure" } else { "" };
    let cookie =
        format!("{COOKIE}={value}; HttpOnly; SameSite=Strict; Path={path}; Max-Age={life_s}{secure}");
    // Value, path and numbers are of letters that a header can carry.
    let Ok(cookie) = HeaderValue::try_from(cookie) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    (AppendHeaders([(header::SET_COOKIE, cookie)]), Redirect::to(&shared.path(to))).into_response()
}

fn page(shared: &Shared, is_wrong: bool) -> Response {
    let needs_token = shared.access.has_tokens();
    answer(&Page { frame: Frame::around(shared, "").still(), is_wrong, needs_token })
}
