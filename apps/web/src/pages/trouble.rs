//! Pages in the place of those that cannot be shown.

use std::time::Duration;

use askama::Template;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use keylapse::{Error, ErrorKind};
use keylapse_console::show_span;

use super::frame::{Frame, Visit, answer};
use crate::api::Fault;
use crate::guard;
use crate::web::Shared;

/// Why a page cannot be shown.
pub(super) struct Trouble(Box<Page>);

#[derive(Template)]
#[template(path = "trouble.html")]
struct Page {
    frame: Frame,
    status: StatusCode,
    title: &'static str,
    text: String,
    advice: &'static str,
    /// It may be better soon.
    passes: bool,
}

const WAITS: &str =
    "This page looks again by itself. In a terminal keylapse doctor says what is amiss with a server.";
/// While there is no server, pages are asked for more often.
const SOON_MS: u32 = 2000;

impl Trouble {
    pub(super) fn of(frame: Frame, error: &Error) -> Self {
        let status = Fault::of(error).status();
        let (title, advice) = match error.kind() {
            ErrorKind::Invalid => return Self::refused(frame, error.to_string()),
            ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::Unavailable => {
                ("Redis does not answer", WAITS)
            }
            _ => ("Redis refuses", WAITS),
        };
        Self::passing(frame, status, title, error.to_string(), advice)
    }

    /// The server has said nothing for so long.
    pub(super) fn silent(frame: Frame, patience: Duration) -> Self {
        let text = format!("There was no answer within {}.", show_span(patience));
        Self::passing(frame, StatusCode::SERVICE_UNAVAILABLE, "Redis does not answer", text, WAITS)
    }

    fn passing(
        frame: Frame,
        status: StatusCode,
        title: &'static str,
        text: String,
        advice: &'static str,
    ) -> Self {
        let frame = frame.every(SOON_MS).unread();
        Self(Box::new(Page { frame, status, title, text, advice, passes: true }))
    }

    /// What was asked for makes no sense.
    pub(super) fn refused(frame: Frame, text: String) -> Self {
        Self::lasting(frame, StatusCode::BAD_REQUEST, "This cannot be shown", text)
    }

    /// It is of topics that the token is not for.
    pub(super) fn not_for(frame: Frame) -> Self {
        let text = "The token that you have shown is for other topics.".to_owned();
        Self::lasting(frame, StatusCode::FORBIDDEN, "This is not for you", text)
    }

    pub(super) fn absent(frame: Frame, text: String) -> Self {
        Self::lasting(frame, StatusCode::NOT_FOUND, "There is no such page", text)
    }

    /// A route that nobody guards is a mistake of ours, and shows nothing.
    pub(super) fn not_let_in(shared: &Shared) -> Self {
        let frame = Frame::around(shared, "");
        Self::lasting(frame, StatusCode::UNAUTHORIZED, "Nobody was let in here", String::new())
    }

    fn lasting(frame: Frame, status: StatusCode, title: &'static str, text: String) -> Self {
        Self(Box::new(Page { frame: frame.still().unread(), status, title, text, advice: "", passes: false }))
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        (self.0.status, answer(&*self.0)).into_response()
    }
}

/// A person gets a page, a program what the API says.
pub(super) async fn no_such_page(visit: Visit, request: Request) -> Response {
    if !wants_page(request.headers()) {
        return guard::absent().await.into_response();
    }
    Trouble::absent(visit.frame(""), "Nothing is at this address.".to_owned()).into_response()
}

fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accepted.is_some_and(|accept| accept.contains("text/html"))
}
