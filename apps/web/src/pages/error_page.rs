//! Error pages.

use std::time::Duration;

use askama::Template;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use keylapse::{Error, ErrorKind};
use keylapse_console::show_span;

use super::frame::{Frame, PageRequest, answer};
use crate::api::ApiError;
use crate::guard;
use crate::web::SharedState;

/// A page that shows an error instead of its content.
pub(super) struct ErrorPage(Box<Page>);

#[derive(Template)]
#[template(path = "trouble.html")]
struct Page {
    frame: Frame,
    status: StatusCode,
    title: &'static str,
    text: String,
    advice: &'static str,
    /// `true` if the error may be temporary.
    passes: bool,
}

const WAITS: &str = "This page refreshes itself. To find the cause, run keylapse doctor in a terminal.";
/// Interval of refreshes while Redis does not answer, shorter than usual.
const ERROR_REFRESH_MS: u32 = 2000;

impl ErrorPage {
    pub(super) fn of(frame: Frame, error: &Error) -> Self {
        let status = ApiError::of(error).status();
        let (title, advice) = match error.kind() {
            ErrorKind::Invalid => return Self::refused(frame, error.to_string()),
            ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::Unavailable => {
                ("Redis does not answer", WAITS)
            }
            _ => ("Redis refused the request", WAITS),
        };
        Self::passing(frame, status, title, error.to_string(), advice)
    }

    /// Makes the page for a timeout.
    pub(super) fn silent(frame: Frame, patience: Duration) -> Self {
        let text = format!("No answer within {}.", show_span(patience));
        Self::passing(frame, StatusCode::SERVICE_UNAVAILABLE, "Redis does not answer", text, WAITS)
    }

    fn passing(
        frame: Frame,
        status: StatusCode,
        title: &'static str,
        text: String,
        advice: &'static str,
    ) -> Self {
        let frame = frame.every(ERROR_REFRESH_MS).unread();
        Self(Box::new(Page { frame, status, title, text, advice, passes: true }))
    }

    /// Makes the page for an invalid request.
    pub(super) fn refused(frame: Frame, text: String) -> Self {
        Self::lasting(frame, StatusCode::BAD_REQUEST, "Invalid request", text)
    }

    /// Makes the page for topics that the token is not for.
    pub(super) fn not_for(frame: Frame) -> Self {
        let text = "Your token is for other topics. Log in with one for this page.".to_owned();
        Self::lasting(frame, StatusCode::FORBIDDEN, "Access denied", text)
    }

    pub(super) fn absent(frame: Frame, text: String) -> Self {
        Self::lasting(frame, StatusCode::NOT_FOUND, "Page not found", text)
    }

    /// Makes the page for a route without a token check, which would be a bug. It shows nothing.
    pub(super) fn not_let_in(shared: &SharedState) -> Self {
        let frame = Frame::around(shared, "");
        Self::lasting(frame, StatusCode::UNAUTHORIZED, "Not logged in", String::new())
    }

    fn lasting(frame: Frame, status: StatusCode, title: &'static str, text: String) -> Self {
        Self(Box::new(Page { frame: frame.still().unread(), status, title, text, advice: "", passes: false }))
    }
}

impl IntoResponse for ErrorPage {
    fn into_response(self) -> Response {
        (self.0.status, answer(&*self.0)).into_response()
    }
}

/// Answers a browser with a page, and a program as the API does.
pub(super) async fn no_such_page(visit: PageRequest, request: Request) -> Response {
    if !wants_page(request.headers()) {
        return guard::absent().await.into_response();
    }
    ErrorPage::absent(visit.frame(""), "No page has this address.".to_owned()).into_response()
}

fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accepted.is_some_and(|accept| accept.contains("text/html"))
}
