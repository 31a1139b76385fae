//! What went wrong, as JSON: `{"error": {"kind": …, "message": …}}`.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use keylapse::{Error, ErrorKind};
use serde_json::json;

/// Characters of a message.
const LONGEST: usize = 500;

/// Why a request was refused.
#[derive(Debug)]
pub(crate) struct Fault {
    status: StatusCode,
    kind: String,
    message: String,
}

impl Fault {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let kind = status.canonical_reason().unwrap_or_default().to_ascii_lowercase().replace(' ', "_");
        Self::named(status, kind, message)
    }

    /// Of a kind of its own, for programs that tell it from others.
    pub(crate) fn named(status: StatusCode, kind: impl Into<String>, message: impl Into<String>) -> Self {
        let mut message = message.into();
        // What was sent may be said again in it, however long that was.
        if let Some((end, _)) = message.char_indices().nth(LONGEST) {
            message.truncate(end);
            message.push('…');
        }
        Self { status, kind: kind.into(), message }
    }

    /// There is no such thing.
    pub(crate) fn absent(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid => Self::new(StatusCode::NOT_FOUND, error.to_string()),
            _ => Self::of(error),
        }
    }

    /// What it is to a client.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn of(error: &Error) -> Self {
        let kind = format!("{:?}", error.kind()).to_ascii_lowercase();
        Self::named(status_of(error.kind()), kind, error.to_string())
    }
}

fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Invalid | ErrorKind::Payload => StatusCode::BAD_REQUEST,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::Conflict | ErrorKind::InUse | ErrorKind::Destroying | ErrorKind::Repartitioning => {
            StatusCode::CONFLICT
        }
        ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        // The rest is about the servers behind this one: it may be better soon.
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::of(&error)
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let said = json!({ "error": { "kind": self.kind, "message": self.message } });
        (self.status, Json(said)).into_response()
    }
}

/// What routes and layers refuse by themselves, and without words for programs, is said to these as everything else is.
pub(crate) async fn as_json(request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let response = next.run(request).await;
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_api || !is_error || is_json(response.headers()) {
        return response;
    }
    let mut fault = Fault::new(status, why(status)).into_response();
    // Which methods there are.
    fault
        .headers_mut()
        .extend(response.headers().get(header::ALLOW).map(|allow| (header::ALLOW, allow.clone())));
    fault
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes) == Some(b"application/json")
}

fn why(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => {
            "there is no such route, or not here: a program that is read-only has none that acts"
        }
        StatusCode::METHOD_NOT_ALLOWED => "this route is for other methods, or may only look here",
        StatusCode::FORBIDDEN => "another site has made a browser ask for this",
        StatusCode::MISDIRECTED_REQUEST => "this server is not called so: --host adds a name",
        StatusCode::PAYLOAD_TOO_LARGE => "the body is too large",
        StatusCode::SERVICE_UNAVAILABLE => "it took too long",
        _ => "the request was refused",
    }
}
