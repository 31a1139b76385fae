//! Errors of the API as JSON: `{"error": {"kind": …, "message": …}}`.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use keylapse::{Error, ErrorKind};
use serde_json::json;

/// Maximum characters of a message.
const LONGEST: usize = 500;

/// An error answer.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    kind: String,
    message: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let kind = status.canonical_reason().unwrap_or_default().to_ascii_lowercase().replace(' ', "_");
        Self::named(status, kind, message)
    }

    /// Makes an error with a kind of its own, by which programs can distinguish it.
    pub(crate) fn named(status: StatusCode, kind: impl Into<String>, message: impl Into<String>) -> Self {
        let mut message = message.into();
        // The message may quote input of any length.
        if let Some((end, _)) = message.char_indices().nth(LONGEST) {
            message.truncate(end);
            message.push('…');
        }
        Self { status, kind: kind.into(), message }
    }

    /// Makes a 404 error if the name in the request is unknown.
    pub(crate) fn absent(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid => Self::new(StatusCode::NOT_FOUND, error.to_string()),
            _ => Self::of(error),
        }
    }

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
        // The other kinds concern Redis, and may be temporary.
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self::of(&error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let said = json!({ "error": { "kind": self.kind, "message": self.message } });
        (self.status, Json(said)).into_response()
    }
}

/// Converts the errors of axum and its layers to JSON, for paths of the API.
pub(crate) async fn as_json(request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let response = next.run(request).await;
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_api || !is_error || is_json(response.headers()) {
        return response;
    }
    let mut fault = ApiError::new(status, why(status)).into_response();
    // The methods that the route has.
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
        StatusCode::NOT_FOUND => "no such route: a read-only server has none that act",
        StatusCode::METHOD_NOT_ALLOWED => {
            "this route has other methods: see the header `Allow`; a read-only server has none that act"
        }
        StatusCode::FORBIDDEN => "a page of another site made this request: only pages of this server may",
        StatusCode::MISDIRECTED_REQUEST => "unknown host name: `--allowed-host NAME` adds one",
        StatusCode::PAYLOAD_TOO_LARGE => "the body is too large",
        StatusCode::SERVICE_UNAVAILABLE => "the request took too long: try again",
        _ => "the request was refused",
    }
}
